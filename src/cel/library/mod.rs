//! The functions of Kubernetes CEL. The evaluator checks argument types before it calls a function. Functions
//! do not count costs and do no I/O.

pub(crate) mod format;
pub(crate) mod lists;
pub(crate) mod named_formats;
pub(crate) mod net;
pub(crate) mod opaque;
pub(crate) mod operators;
pub(crate) mod quantity;
pub(crate) mod regexp;
pub(crate) mod semver;
pub(crate) mod standard;
pub(crate) mod strings;
pub(crate) mod url;

use std::borrow::Cow;

use crate::value::Value;

/// Why a function has no result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallError {
    /// No overload takes these types. The evaluator adds names to the message.
    NoOverload,
    /// A message of the API server.
    Text(Cow<'static, str>),
}

impl CallError {
    pub(crate) fn text(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Text(message.into())
    }
}

pub(crate) type CallResult<'a> = Result<Value<'a>, CallError>;

/// The code of a function.
pub(crate) type Implementation = for<'a> fn(&[Value<'a>]) -> CallResult<'a>;

/// The implementation of a function. Operators, conversions and functions of several types dispatch on their
/// arguments.
pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "_+_" => operators::add,
        "_-_" => operators::subtract,
        "_*_" => operators::multiply,
        "_/_" => operators::divide,
        "_%_" => operators::modulo,
        "-_" => operators::negate,
        "!_" => operators::not,
        "_<_" => operators::less,
        "_<=_" => operators::less_equals,
        "_>_" => operators::greater,
        "_>=_" => operators::greater_equals,
        "@in" => operators::within,
        "@not_strictly_false" => |arguments| Ok(arguments[0].clone()),
        "size" => standard::size,
        "type" => |arguments| Ok(Value::Type(arguments[0].kind())),
        "dyn" => |arguments| Ok(arguments[0].clone()),
        "bool" => standard::to_bool,
        "bytes" => standard::to_bytes,
        "double" => standard::to_double,
        "duration" => standard::to_duration,
        "int" => standard::to_int,
        "string" => standard::to_string,
        "timestamp" => standard::to_timestamp,
        "uint" => standard::to_uint,
        "contains" => strings::contains,
        "startsWith" => strings::starts_with,
        "endsWith" => strings::ends_with,
        "getFullYear" => standard::full_year,
        "getMonth" => standard::month,
        "getDayOfYear" => standard::day_of_year,
        "getDayOfMonth" => standard::day_of_month,
        "getDate" => standard::date,
        "getDayOfWeek" => standard::day_of_week,
        "getHours" => standard::hours,
        "getMinutes" => standard::minutes,
        "getSeconds" => standard::seconds,
        "getMilliseconds" => standard::milliseconds,
        "optional.of" => |arguments| Ok(Value::some(arguments[0].clone())),
        "optional.none" => |_| Ok(Value::Optional(None)),
        "optional.ofNonZeroValue" => standard::of_non_zero,
        "hasValue" => standard::has_value,
        "value" => standard::optional_value,
        "optional.unwrap" | "unwrapOpt" => standard::unwrap,
        "charAt" => strings::char_at,
        "indexOf" => strings::index_of,
        "lastIndexOf" => strings::last_index_of,
        "lowerAscii" => strings::lower,
        "upperAscii" => strings::upper,
        "replace" => strings::replace,
        "split" => strings::split,
        "substring" => strings::substring,
        "trim" => strings::trim,
        "join" => strings::join,
        "strings.quote" => strings::quote,
        "jsonpatch.escapeKey" => strings::escape_key,
        "format" => format::format,
        "matches" => regexp::matches,
        "find" => regexp::find,
        "findAll" => regexp::find_all,
        "isSorted" => lists::is_sorted,
        "sum" => lists::sum,
        "min" => lists::min,
        "max" => lists::max,
        "first" => lists::first,
        "last" => lists::last,
        "distinct" => lists::distinct,
        "flatten" => lists::flatten,
        "lists.range" => lists::range,
        "reverse" => lists::reverse,
        "slice" => lists::slice,
        "sort" => lists::sort,
        "@sortByAssociatedKeys" => lists::sort_by_keys,
        "sets.contains" => lists::sets_contains,
        "sets.equivalent" => lists::sets_equivalent,
        "sets.intersects" => lists::sets_intersects,
        "cel.@mapInsert" => lists::map_insert,
        "quantity" => quantity::quantity,
        "isQuantity" => quantity::is_quantity,
        "isInteger" => quantity::is_integer,
        "asInteger" => quantity::as_integer,
        "asApproximateFloat" => quantity::as_float,
        "sign" => quantity::sign,
        "add" => quantity::add,
        "sub" => quantity::subtract,
        "isGreaterThan" => opaque::is_greater,
        "isLessThan" => opaque::is_less,
        "compareTo" => opaque::compare_to,
        "semver" => semver::semver,
        "isSemver" => semver::is_semver,
        "major" => semver::major,
        "minor" => semver::minor,
        "patch" => semver::patch,
        "ip" => net::ip,
        "isIP" => net::is_ip,
        "ip.isCanonical" => net::is_canonical,
        "family" => net::family,
        "isUnspecified" => net::is_unspecified,
        "isLoopback" => net::is_loopback,
        "isLinkLocalMulticast" => net::is_link_local_multicast,
        "isLinkLocalUnicast" => net::is_link_local_unicast,
        "isGlobalUnicast" => net::is_global_unicast,
        "cidr" => net::cidr,
        "isCIDR" => net::is_cidr,
        "containsIP" => net::contains_ip,
        "containsCIDR" => net::contains_cidr,
        "prefixLength" => net::prefix_length,
        "masked" => net::masked,
        "url" => url::url,
        "isURL" => url::is_url,
        "getScheme" => url::scheme_of,
        "getHost" => url::host,
        "getHostname" => url::hostname,
        "getPort" => url::port,
        "getEscapedPath" => url::escaped_path,
        "getQuery" => url::query,
        "format.named" => named_formats::named,
        "validate" => named_formats::validate,
        name => return named_formats::constant(name),
    })
}
