//! Fields and items of values, the work of walking values, and whether a value matches a type. A list
//! or map is matched by its first entry, as in cel-go.

use crate::eval::Error;
use crate::library::strings;
use crate::types::{OPTIONAL_TYPE_NAME, Type};
use crate::value::{List, Map, Value};

/// A field of a value. With `maybe`, a missing field is `None` instead of an error.
pub(crate) fn field<'a>(value: &Value<'a>, name: &'a str, maybe: bool) -> Result<Option<Value<'a>>, Error> {
    match value {
        Value::Map(map) => match map.field(name) {
            None if !maybe => Err(Error::new(format!("no such key: {name}"))),
            found => Ok(found),
        },
        Value::Message(message) => match message.fields.get(name) {
            // Message types of the API server return null for a field that is not set.
            None if !maybe => Ok(Some(Value::Null)),
            found => Ok(found.cloned()),
        },
        other => item(other, &Value::text(name), maybe),
    }
}

/// An item of a list or an entry of a map. With `maybe`, a missing one is `None` instead of an error.
pub(crate) fn item<'a>(value: &Value<'a>, key: &Value<'a>, maybe: bool) -> Result<Option<Value<'a>>, Error> {
    match value {
        Value::Map(map) => match map.find(key) {
            None if !maybe => Err(Error::new(format!("no such key: {}", strings::plain(key)))),
            found => Ok(found),
        },
        Value::List(list) => {
            let Some(index) = key.exact_int() else {
                return Err(Error::new(match key {
                    Value::Double(_) | Value::Uint(_) => {
                        format!("unsupported index value {} in list", strings::plain(key))
                    }
                    other => format!("unsupported index type '{}' in list", other.kind().name()),
                }));
            };
            match usize::try_from(index).ok().and_then(|index| list.item(index)) {
                None if !maybe => Err(Error::new(format!("index out of bounds: {}", strings::plain(key)))),
                found => Ok(found),
            }
        }
        _ if maybe => Ok(None),
        _ => Err(Error::new(format!("no such key: {}", strings::plain(key)))),
    }
}

pub(crate) fn go_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Null => "types.Null",
        Value::List(List::Json(_)) => "[]interface {}",
        Value::List(List::Owned(_)) => "*types.baseList",
        Value::Map(Map::Json(_)) => "map[string]interface {}",
        Value::Map(Map::Owned(_)) => "*types.baseMap",
        Value::Duration(_) => "types.Duration",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Type(_) => "*types.Type",
        Value::Optional(_) => "*types.Optional",
        _ => "value",
    }
}

/// Bytes of a string that count as one unit of work.
const BYTES_PER_WORK_UNIT: usize = 256;

/// The work of reading a string, bytes or opaque value.
pub(crate) fn length(value: &Value<'_>) -> u64 {
    let length = match value {
        Value::String(text) => text.as_str().len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Opaque(opaque) => opaque.length(),
        _ => 0,
    };
    (length / BYTES_PER_WORK_UNIT) as u64
}

/// The number of values in a value, itself included, plus the work of reading its strings.
pub(crate) fn weight(value: &Value<'_>) -> u64 {
    match value {
        Value::List(list) => list.iter().fold(1, |sum: u64, item| sum.saturating_add(weight(&item))),
        Value::Map(map) => {
            map.entries().iter().fold(1, |sum: u64, (_, value)| sum.saturating_add(1 + weight(value)))
        }
        Value::Message(message) => {
            message.fields.values().fold(1, |sum: u64, value| sum.saturating_add(1 + weight(value)))
        }
        Value::Optional(Some(inner)) => weight(inner),
        other => 1 + length(other),
    }
}

/// The work of comparing two values, in the worst case: when they are equal.
pub(crate) fn shared<'a>(first: &Value<'a>, second: &Value<'a>) -> u64 {
    let all = |pairs: &mut dyn Iterator<Item = u64>| pairs.fold(1, u64::saturating_add);
    match (first, second) {
        (Value::List(a), Value::List(b)) if a.len() == b.len() => {
            all(&mut a.iter().zip(b.iter()).map(|(a, b)| shared(&a, &b)))
        }
        (Value::Map(a), Value::Map(b)) if a.len() == b.len() => {
            let entries = a.entries();
            all(&mut entries.iter().map(|(key, a)| 1 + b.find(key).map_or(0, |b| shared(a, &b))))
        }
        (Value::Message(a), Value::Message(b)) if a.fields.len() == b.fields.len() => {
            let of = |name| b.fields.get(name);
            all(&mut a.fields.iter().map(|(name, a)| 1 + of(name).map_or(0, |b| shared(a, b))))
        }
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => shared(a, b),
        _ => 1 + length(first).min(length(second)),
    }
}

/// The work of a call that its cost does not cover.
pub(crate) fn work(function: &str, values: &[Value<'_>]) -> u64 {
    /// Copying this many entries or items is one unit of work.
    const COPIES_PER_WORK_UNIT: u64 = 4;
    let items = |index: usize| match values.get(index) {
        Some(Value::List(list)) => list.len() as u64,
        Some(Value::Map(map)) => map.len() as u64,
        _ => 1,
    };
    let own = match (function, values) {
        ("@in", [Value::List(_) | Value::Map(_), Value::List(list)]) => weight(&Value::List(list.clone())),
        ("distinct", [list]) => weight(list).saturating_mul(items(0)),
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [first, second]) => {
            weight(first).saturating_mul(items(1)).saturating_add(weight(second).saturating_mul(items(0)))
        }
        ("indexOf" | "lastIndexOf", [list @ Value::List(_), _]) => weight(list),
        // These functions write their argument into the result or into an error.
        ("format", [_, written]) | ("join" | "optional.unwrap" | "unwrapOpt", [written, ..]) => {
            weight(written)
        }
        ("flatten", [list, ..]) => weight(list),
        ("_+_", [Value::List(_), Value::List(_)]) => items(0).saturating_add(items(1)) / COPIES_PER_WORK_UNIT,
        ("cel.@mapInsert", _) => items(0).saturating_add(items(1)) / COPIES_PER_WORK_UNIT,
        ("isSorted" | "sum" | "min" | "max", [_]) => items(0) / COPIES_PER_WORK_UNIT,
        ("getQuery", [url]) => length(url).saturating_mul(8),
        (name, [Value::Timestamp(_), _]) if name.starts_with("get") => 10,
        _ => 0,
    };
    values.iter().fold(own, |sum, value| sum.saturating_add(length(value)))
}

/// Whether values match the parameter types of a function. `None` matches every type.
pub(crate) fn fits(wanted: &[Type], values: &[Option<&Value<'_>>]) -> bool {
    wanted.len() == values.len()
        && wanted.iter().zip(values).all(|(wanted, value)| value.is_none_or(|value| is_a(wanted, value)))
}

fn is_a(wanted: &Type, value: &Value<'_>) -> bool {
    match (wanted, value) {
        (Type::Dyn | Type::Param(_), _)
        | (Type::Null, Value::Null)
        | (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Uint, Value::Uint(_))
        | (Type::Double, Value::Double(_))
        | (Type::String, Value::String(_))
        | (Type::Bytes, Value::Bytes(_))
        | (Type::Duration, Value::Duration(_))
        | (Type::Timestamp, Value::Timestamp(_))
        | (Type::Type(_), Value::Type(_)) => true,
        (Type::List(items), Value::List(list)) => list.item(0).is_none_or(|first| is_a(items, &first)),
        (Type::Map(entry), Value::Map(map @ (Map::Json(_) | Map::Owned(_)))) => {
            matches!(entry.as_ref(), (Type::Param(_) | Type::Dyn, Type::Param(_) | Type::Dyn))
                || map
                    .entries()
                    .first()
                    .is_none_or(|(key, first)| is_a(&entry.0, key) && is_a(&entry.1, first))
        }
        (Type::Opaque(name, parameters), Value::Optional(inner)) => {
            &**name == OPTIONAL_TYPE_NAME
                && inner
                    .as_ref()
                    .is_none_or(|inner| parameters.first().is_none_or(|wanted| is_a(wanted, inner)))
        }
        (Type::Opaque(name, _) | Type::Struct(name), Value::Opaque(opaque)) => {
            opaque.kind().name() == &**name
        }
        (Type::Struct(name), Value::Message(message)) => *name == message.name,
        _ => false,
    }
}
