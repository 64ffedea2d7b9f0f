//! The types of CEL and how they are written. Owns their names in messages, which are cel-go's.

use std::fmt;
use std::sync::Arc;

/// A type. Parameters (`Param`) stand only inside signatures and while an expression is checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// The type of `null`.
    Null,
    /// `true` and `false`.
    Bool,
    /// 64 bits with sign.
    Int,
    /// 64 bits without sign.
    Uint,
    /// IEEE 754, 64 bits.
    Double,
    /// Unicode text.
    String,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Duration,
    /// A moment.
    Timestamp,
    /// Known only when evaluated.
    Dyn,
    /// What could not be typed; the issue is already told.
    Error,
    /// A type parameter.
    Param(u32),
    /// A list of one type.
    List(Arc<Type>),
    /// A map from one type to another.
    Map(Arc<(Type, Type)>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A named type with parameters and without fields, such as `net.IP` or `optional_type(int)`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// A named type with fields; which, says the environment.
    Struct(Arc<str>),
}

/// The name of the type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// A list of `items`.
    #[must_use]
    pub fn list(items: Type) -> Self {
        Self::List(Arc::new(items))
    }

    /// A map from `keys` to `values`.
    #[must_use]
    pub fn map(keys: Type, values: Type) -> Self {
        Self::Map(Arc::new((keys, values)))
    }

    /// An optional value.
    #[must_use]
    pub fn optional(value: Type) -> Self {
        Self::Opaque(OPTIONAL.into(), Arc::new([value]))
    }

    /// The type of the type `of`.
    #[must_use]
    pub fn kind(of: Type) -> Self {
        Self::Type(Some(Arc::new(of)))
    }

    /// What is inside an optional type.
    #[must_use]
    pub fn unwrap_optional(&self) -> Option<&Type> {
        match self {
            Self::Opaque(name, parameters) if &**name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    /// The name of the type without its parameters, as `type()` shows it.
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

    /// Whether more than so many types stand inside of each other.
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

    /// Reads a type as it is written in `signatures.tsv`: parameters are `'A`, and `names` collects them.
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
            OPTIONAL => Self::optional(next()),
            "net.IP" | "net.CIDR" => Self::Opaque(name.into(), Arc::new([])),
            _ => Self::Struct(name.into()),
        }
    }
}

/// Splits at the commas that stand in no parentheses.
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
