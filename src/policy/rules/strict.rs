//! What the API server says of an object with fields that its kind has not, or values of a wrong type, after a JSON patch.

use serde_json::Value as Json;

use crate::schema::{Schema, Shape};

/// Holds an object against its kind.
///
/// # Errors
/// All fields that are unknown, or the first value of a wrong type.
pub(crate) fn check(schema: &'static Schema, object: &Json) -> Result<(), String> {
    let mut unknown = Vec::new();
    visit(schema, object, "", &mut unknown)?;
    if unknown.is_empty() { Ok(()) } else { Err(format!("strict decoding error: {}", unknown.join(", "))) }
}

fn visit(schema: &'static Schema, value: &Json, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    match (schema.shape(), value) {
        (_, Json::Null) => Ok(()),
        (Shape::Object, Json::Object(fields)) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match schema.field(name) {
                    Some(field) => visit(field, value, &path, unknown)?,
                    None if schema.is_open() => {}
                    None => unknown.push(format!("unknown field \"{path}\"")),
                }
            }
            Ok(())
        }
        (Shape::Map, Json::Object(fields)) => {
            let Some(values) = schema.values() else { return Ok(()) };
            fields
                .iter()
                .try_for_each(|(name, value)| visit(values, value, &format!("{path}.{name}"), unknown))
        }
        (Shape::List, Json::Array(items)) => {
            let Some(kind) = schema.items() else { return Ok(()) };
            items
                .iter()
                .enumerate()
                .try_for_each(|(index, item)| visit(kind, item, &format!("{path}[{index}]"), unknown))
        }
        (Shape::Object | Shape::Map | Shape::List, _) => Err(mismatch(value, path)),
        (Shape::Text, Json::String(_))
        | (Shape::Boolean, Json::Bool(_))
        | (Shape::Integer | Shape::Number, Json::Number(_))
        | (Shape::IntegerOrText, Json::Number(_) | Json::String(_))
        | (Shape::Any, _) => Ok(()),
        _ => Err(mismatch(value, path)),
    }
}

fn mismatch(value: &Json, path: &str) -> String {
    let found = match value {
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        _ => "object",
    };
    format!("json: cannot unmarshal {found} into Go struct field {path}")
}
