//! CEL types and their names. The names in messages are those of cel-go.

use std::fmt;
use std::sync::Arc;

/// A type. `Param` occurs only in signatures and during the check of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// The type of `null`.
    Null,
    /// `true` and `false`.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// An unsigned 64-bit integer.
    Uint,
    /// A 64-bit IEEE 754 number.
    Double,
    /// Unicode text.
    String,
    /// A byte string.
    Bytes,
    /// A duration in nanoseconds.
    Duration,
    /// A point in time.
    Timestamp,
    /// A type that is known only at run time.
    Dyn,
    /// The type of an expression that failed the check. Its issue is already reported.
    Error,
    /// A type parameter.
    Param(u32),
    /// A list with its item type.
    List(Arc<Type>),
    /// A map with its key and value types.
    Map(Arc<(Type, Type)>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A named type without fields, with its type parameters: `net.IP`, `optional_type(int)`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// A named type whose fields the environment declares.
    Struct(Arc<str>),
}

/// Name of the type of optional values.
pub(crate) const OPTIONAL_TYPE_NAME: &str = "optional_type";

impl Type {
    /// A list type.
    #[must_use]
    pub fn list(items: Type) -> Self {
        Self::List(Arc::new(items))
    }

    /// A map type.
    #[must_use]
    pub fn map(keys: Type, values: Type) -> Self {
        Self::Map(Arc::new((keys, values)))
    }

    /// The type of an optional value.
    #[must_use]
    pub fn optional(value: Type) -> Self {
        Self::Opaque(OPTIONAL_TYPE_NAME.into(), Arc::new([value]))
    }

    /// The type of a type.
    #[must_use]
    pub fn kind(of: Type) -> Self {
        Self::Type(Some(Arc::new(of)))
    }

    /// The type inside of an optional type.
    #[must_use]
    pub fn unwrap_optional(&self) -> Option<&Type> {
        match self {
            Self::Opaque(name, parameters) if &**name == OPTIONAL_TYPE_NAME => parameters.first(),
            _ => None,
        }
    }

    /// The name without parameters, as `type()` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Dyn | Self::Param(_) => "dyn",
            Self::Error => "!error!",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Opaque(name, _) | Self::Struct(name) => name,
        }
    }

    /// Whether types nest deeper than a limit.
    pub(crate) fn is_deeper(&self, than: u16) -> bool {
        let inner = |inner: &Self| than == 0 || inner.is_deeper(than - 1);
        match self {
            Self::List(items) => inner(items),
            Self::Map(entry) => inner(&entry.0) || inner(&entry.1),
            Self::Type(of) => of.as_deref().is_some_and(inner),
            Self::Opaque(_, parameters) => parameters.iter().any(inner),
            _ => false,
        }
    }

    /// Reads a type as `signatures.tsv` writes it. Type parameters are `'A`; `names` collects them.
    pub(crate) fn read(text: &str, names: &mut Vec<String>) -> Self {
        if let Some(parameter) = text.strip_prefix('\'') {
            let known = names.iter().position(|name| name == parameter);
            let index = known.unwrap_or_else(|| {
                names.push(parameter.to_owned());
                names.len() - 1
            });
            return Self::Param(u32::try_from(index).unwrap_or(u32::MAX));
        }
        let (name, inner) = match text.split_once('(') {
            Some((name, rest)) => (name, split(rest.strip_suffix(')').unwrap_or(rest))),
            None => (text, Vec::new()),
        };
        let mut parameters = inner.iter().map(|part| Self::read(part, names));
        let mut next = || parameters.next().unwrap_or(Self::Dyn);
        match name {
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "duration" => Self::Duration,
            "timestamp" => Self::Timestamp,
            "dyn" => Self::Dyn,
            "list" => Self::list(next()),
            "map" => {
                let keys = next();
                Self::map(keys, next())
            }
            "type" => Self::kind(next()),
            OPTIONAL_TYPE_NAME => Self::optional(next()),
            "net.IP" | "net.CIDR" => Self::Opaque(name.into(), Arc::new([])),
            _ => Self::Struct(name.into()),
        }
    }
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Param(index) => write!(f, "_var{index}"),
            Self::List(items) => write!(f, "list({items})"),
            Self::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            Self::Opaque(name, parameters) if !parameters.is_empty() => {
                let parameters: Vec<String> = parameters.iter().map(ToString::to_string).collect();
                write!(f, "{name}({})", parameters.join(", "))
            }
            other => f.write_str(other.name()),
        }
    }
}
