//! CEL values. A list or map of an object is a reference into its JSON; items become values when an
//! expression reads them. This module owns equality, order and sizes of values.

mod display;
pub(crate) mod number;
mod time_zone;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

pub(crate) use display::quote;
pub(crate) use number::{double_text, parse_double};
pub use portcullis_text::Timestamp;
pub(crate) use time_zone::civil_in_zone;

use crate::library::opaque::Opaque;
use crate::types::Type;

/// A string, borrowed from an object or expression where possible.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// A part of an object or of the expression.
    Borrowed(&'a str),
    /// A string that the evaluation created.
    Owned(Arc<str>),
}

impl Text<'_> {
    /// The string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}
impl Eq for Text<'_> {}
impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// A part of an object.
    Json(&'a [Json]),
    /// A list that the evaluation created.
    Owned(Arc<Vec<Value<'a>>>),
}

impl<'a> List<'a> {
    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Json(items) => items.len(),
            Self::Owned(items) => items.len(),
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at an index, counted from 0.
    #[must_use]
    pub fn item(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Json(items) => items.get(index).map(Value::json),
            Self::Owned(items) => items.get(index).cloned(),
        }
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.item(index))
    }

    /// The items as an owned vector.
    pub(crate) fn into_vec(self) -> Vec<Value<'a>> {
        match self {
            Self::Json(items) => items.iter().map(Value::json).collect(),
            Self::Owned(items) => Arc::try_unwrap(items).unwrap_or_else(|shared| shared.as_ref().clone()),
        }
    }
}

/// The key of a map. Numbers of different types are different keys; [`Map::find`] finds a number by any
/// number type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key<'a> {
    /// `true` or `false`
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// The bits of a double.
    Double(u64),
    /// A string.
    String(Text<'a>),
}

impl<'a> Key<'a> {
    pub(crate) fn new(value: &Value<'a>) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Int(*value),
            Value::Uint(value) => Self::Uint(*value),
            Value::Double(value) => Self::Double(value.to_bits()),
            Value::String(text) => Self::String(text.clone()),
            _ => return None,
        })
    }

    pub(crate) fn value(&self) -> Value<'a> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Double(bits) => Value::Double(f64::from_bits(*bits)),
            Self::String(text) => Value::String(text.clone()),
        }
    }
}

/// A map. Its entries are in the order of the keys. The order of the API server is random.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// A part of an object.
    Json(&'a serde_json::Map<String, Json>),
    /// A map that the evaluation created.
    Owned(Arc<BTreeMap<Key<'a>, Value<'a>>>),
}

impl<'a> Map<'a> {
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Json(map) => map.len(),
            Self::Owned(map) => map.len(),
        }
    }

    /// Whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a string key.
    #[must_use]
    pub fn field(&self, name: &'a str) -> Option<Value<'a>> {
        match self {
            Self::Json(map) => map.get(name).map(Value::json),
            Self::Owned(map) => map.get(&Key::String(Text::Borrowed(name))).cloned(),
        }
    }

    /// The value of a key. An integer is found by any number type.
    #[must_use]
    pub fn find(&self, key: &Value<'a>) -> Option<Value<'a>> {
        match self {
            Self::Json(map) => match key {
                Value::String(text) => map.get(text.as_str()).map(Value::json),
                _ => None,
            },
            Self::Owned(map) => {
                let found = Key::new(key).and_then(|key| map.get(&key));
                let other = |key: Option<Key<'a>>| key.and_then(|key| map.get(&key));
                found
                    .or_else(|| other(key.exact_int().map(Key::Int)))
                    .or_else(|| other(key.exact_uint().map(Key::Uint)))
                    .or_else(|| other(key.as_double().map(|value| Key::Double(value.to_bits()))))
                    .cloned()
            }
        }
    }

    /// The entries in the order of the keys.
    #[must_use]
    pub fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        match self {
            Self::Json(map) => {
                map.iter().map(|(key, value)| (Value::text(key), Value::json(value))).collect()
            }
            Self::Owned(map) => map.iter().map(|(key, value)| (key.value(), value.clone())).collect(),
        }
    }
}

/// A struct value created by `Name{}`, such as `Object.spec` or `JSONPatch`.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// The name of the type.
    pub name: Arc<str>,
    /// The fields that are set.
    pub fields: BTreeMap<Arc<str>, Value<'a>>,
}

/// A CEL value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A string.
    String(Text<'a>),
    /// A byte string.
    Bytes(Arc<[u8]>),
    /// A list.
    List(List<'a>),
    /// A map.
    Map(Map<'a>),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A point in time.
    Timestamp(Timestamp),
    /// A type.
    Type(Type),
    /// An optional value.
    Optional(Option<Arc<Value<'a>>>),
    /// A quantity, address, version or other value of a Kubernetes type.
    Opaque(Arc<Opaque>),
    /// A struct value.
    Message(Arc<Message<'a>>),
}

impl<'a> Value<'a> {
    /// A view of JSON. Integers that fit are `int`, all other numbers are `double`, as in the API server.
    #[must_use]
    pub fn json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => {
                number.as_i64().map_or_else(|| Self::Double(number.as_f64().unwrap_or(f64::NAN)), Self::Int)
            }
            Json::String(text) => Self::String(Text::Borrowed(text)),
            Json::Array(items) => Self::List(List::Json(items)),
            Json::Object(map) => Self::Map(Map::Json(map)),
        }
    }

    /// A borrowed string.
    #[must_use]
    pub fn text(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    /// An owned string.
    #[must_use]
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Owned(text.into()))
    }

    /// An owned list.
    #[must_use]
    pub fn list(items: Vec<Value<'a>>) -> Self {
        Self::List(List::Owned(Arc::new(items)))
    }

    /// An owned map.
    #[must_use]
    pub fn map(entries: BTreeMap<Key<'a>, Value<'a>>) -> Self {
        Self::Map(Map::Owned(Arc::new(entries)))
    }

    /// An optional value that is present.
    #[must_use]
    pub fn some(value: Value<'a>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn opaque(value: Opaque) -> Self {
        Self::Opaque(Arc::new(value))
    }

    /// The string, if the value is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The type of the value. It ignores the items of lists and maps.
    #[must_use]
    pub fn kind(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::Type(_) => Type::Type(None),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Opaque(opaque) => opaque.kind(),
            Self::Message(message) => Type::Struct(message.name.clone()),
        }
    }

    /// The size for cost computation: characters, bytes, items or entries, and 1 for other values.
    #[must_use]
    pub fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.as_str().chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Optional(Some(inner)) => return inner.size(),
            Self::Opaque(opaque) => return opaque.size(),
            _ => 1,
        };
        size as u64
    }

    /// Whether it is the zero value of its type.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) | Self::Duration(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.as_str().is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Timestamp(moment) => moment.is_go_zero(),
            Self::Optional(inner) => inner.as_ref().is_none_or(|inner| inner.is_zero()),
            Self::Message(message) => message.fields.is_empty(),
            Self::Type(_) | Self::Opaque(_) => false,
        }
    }

    pub(crate) fn exact_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Uint(value) => i64::try_from(*value).ok(),
            Self::Double(value) => number::exact_int(*value),
            _ => None,
        }
    }

    pub(crate) fn exact_uint(&self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(*value).ok(),
            Self::Uint(value) => Some(*value),
            Self::Double(value) => number::exact_uint(*value),
            _ => None,
        }
    }

    pub(crate) fn as_double(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(number::from_int(*value)),
            Self::Uint(value) => Some(number::from_uint(*value)),
            Self::Double(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether two values are equal. Numbers compare by value; other values of different types are not equal.
    #[must_use]
    pub fn equals(&self, other: &Value<'a>) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a.name() == b.name(),
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (None, None) => true,
                _ => false,
            },
            (Self::Opaque(a), Self::Opaque(b)) => a.equals(b),
            (Self::List(a), Self::List(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(x, y)| x.equals(&y))
            }
            (Self::Map(a), Self::Map(b)) => {
                a.len() == b.len()
                    && a.entries().iter().all(|(key, x)| b.find(key).is_some_and(|y| x.equals(&y)))
            }
            (Self::Message(a), Self::Message(b)) => {
                a.name == b.name
                    && a.fields.len() == b.fields.len()
                    && a.fields.iter().all(|(name, x)| b.fields.get(name).is_some_and(|y| x.equals(y)))
            }
            _ => number::compare(self, other) == Some(Ordering::Equal),
        }
    }

    /// The order of two values; `None` when they have none. For two numbers, `None` means that one is NaN.
    pub(crate) fn compare(&self, other: &Value<'a>) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::String(a), Self::String(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            _ => number::compare(self, other),
        }
    }
}
