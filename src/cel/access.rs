//! Fields and items of values, and whether a value matches a type. A list or map is matched by its first
//! entry, as in cel-go.

use crate::eval::Error;
use crate::library::strings;
use crate::types::{OPTIONAL_TYPE_NAME, Type};
use crate::value::{List, Map, Value};

/// A field of a value. With `is_optional`, a missing field is `None` instead of an error.
pub(crate) fn field<'a>(
    value: &Value<'a>,
    name: &'a str,
    is_optional: bool,
) -> Result<Option<Value<'a>>, Error> {
    match value {
        Value::Map(map) => match map.field(name) {
            None if !is_optional => Err(Error::new(format!("no such key: {name}"))),
            found => Ok(found),
        },
        Value::Message(message) => match message.fields.get(name) {
            // Message types of the API server return null for a field that is not set.
            None if !is_optional => Ok(Some(Value::Null)),
            found => Ok(found.cloned()),
        },
        other => item(other, &Value::text(name), is_optional),
    }
}

/// An item of a list or an entry of a map. With `is_optional`, a missing one is `None` instead of an error.
pub(crate) fn item<'a>(
    value: &Value<'a>,
    key: &Value<'a>,
    is_optional: bool,
) -> Result<Option<Value<'a>>, Error> {
    match value {
        Value::Map(map) => match map.find(key) {
            None if !is_optional => Err(Error::new(format!("no such key: {}", strings::plain(key)))),
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
                None if !is_optional => {
                    Err(Error::new(format!("index out of bounds: {}", strings::plain(key))))
                }
                found => Ok(found),
            }
        }
        _ if is_optional => Ok(None),
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

/// Whether values match the parameter types of a function. `None` matches every type.
pub(crate) fn matches_parameters(wanted: &[Type], values: &[Option<&Value<'_>>]) -> bool {
    wanted.len() == values.len()
        && wanted.iter().zip(values).all(|(wanted, value)| value.is_none_or(|value| has_type(wanted, value)))
}

fn has_type(wanted: &Type, value: &Value<'_>) -> bool {
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
        (Type::List(items), Value::List(list)) => list.item(0).is_none_or(|first| has_type(items, &first)),
        (Type::Map(entry), Value::Map(map @ (Map::Json(_) | Map::Owned(_)))) => {
            matches!(entry.as_ref(), (Type::Param(_) | Type::Dyn, Type::Param(_) | Type::Dyn))
                || map
                    .entries()
                    .first()
                    .is_none_or(|(key, first)| has_type(&entry.0, key) && has_type(&entry.1, first))
        }
        (Type::Opaque(name, parameters), Value::Optional(inner)) => {
            &**name == OPTIONAL_TYPE_NAME
                && inner
                    .as_ref()
                    .is_none_or(|inner| parameters.first().is_none_or(|wanted| has_type(wanted, inner)))
        }
        (Type::Opaque(name, _) | Type::Struct(name), Value::Opaque(opaque)) => {
            opaque.kind().name() == &**name
        }
        (Type::Struct(name), Value::Message(message)) => *name == message.name,
        _ => false,
    }
}
