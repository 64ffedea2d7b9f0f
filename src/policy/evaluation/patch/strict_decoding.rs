//! Strict decoding after a JSON patch. The API server decodes the object as its Go type: unknown fields and
//! wrong types are errors, and `null` counts as absent.

use serde_json::Value as Json;

use crate::schema::{Schema, ValueShape};

/// Validates an object against its kind and removes nulls.
///
/// # Errors
/// All unknown fields, or the first value of a wrong type.
pub(crate) fn decode_strictly(schema: &'static Schema, kind: &str, object: &mut Json) -> Result<(), String> {
    let mut unknown = Vec::new();
    visit(
        schema,
        object,
        &DecodePath { structure: kind, path: String::new(), shown: String::new() },
        &mut unknown,
    )?;
    if unknown.is_empty() { Ok(()) } else { Err(format!("strict decoding error: {}", unknown.join(", "))) }
}

/// The location of a value: its Go type, its path in field names, and its path with list indices.
struct DecodePath<'a> {
    structure: &'a str,
    path: String,
    shown: String,
}

impl DecodePath<'_> {
    fn field(&self, name: &str) -> Self {
        let joined = |path: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        Self { structure: self.structure, path: joined(&self.path), shown: joined(&self.shown) }
    }

    fn mismatch(&self, value: &Json, schema: &'static Schema) -> String {
        let found = match value {
            Json::Bool(_) => "bool",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            _ => "object",
        };
        format!(
            "json: cannot unmarshal {found} into Go struct field {}.{} of type {}",
            self.structure,
            self.path,
            go_type(schema)
        )
    }
}

/// Returns the API server's Go type of a value.
fn go_type(schema: &'static Schema) -> String {
    if let Some(name) = schema.definition() {
        return name.rsplit('.').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(".");
    }
    match schema.shape() {
        ValueShape::Boolean => "bool".to_owned(),
        ValueShape::Integer => schema.format().unwrap_or("int64").to_owned(),
        ValueShape::Number => "float64".to_owned(),
        ValueShape::List => {
            format!("[]{}", schema.items().map_or_else(|| "interface {}".to_owned(), go_type))
        }
        ValueShape::Map => {
            format!("map[string]{}", schema.values().map_or_else(|| "interface {}".to_owned(), go_type))
        }
        _ => "string".to_owned(),
    }
}

fn visit(
    schema: &'static Schema,
    value: &mut Json,
    place: &DecodePath<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let structure = schema.definition().and_then(|name| name.rsplit('.').next()).unwrap_or(place.structure);
    let here = DecodePath { structure, path: place.path.clone(), shown: place.shown.clone() };
    match (schema.shape(), value) {
        (_, Json::Null) => Ok(()),
        (ValueShape::Object, Json::Object(fields)) => {
            fields.retain(|_, value| !value.is_null());
            for (name, value) in fields.iter_mut() {
                let place = here.field(name);
                match schema.field(name) {
                    Some(field) => visit(field, value, &place, unknown)?,
                    None if schema.is_open() => {}
                    None => unknown.push(format!("unknown field \"{}\"", place.shown)),
                }
            }
            Ok(())
        }
        (ValueShape::Map, Json::Object(fields)) => {
            let Some(values) = schema.values() else { return Ok(()) };
            for value in fields.values_mut() {
                if value.is_null() && values.shape() == ValueShape::Text {
                    *value = Json::String(String::new());
                }
                visit(values, value, &here, unknown)?;
            }
            Ok(())
        }
        (ValueShape::List, Json::Array(items)) => {
            let Some(kind) = schema.items() else { return Ok(()) };
            items.iter_mut().enumerate().try_for_each(|(index, item)| {
                let place = DecodePath {
                    structure: here.structure,
                    path: here.path.clone(),
                    shown: format!("{}[{index}]", here.shown),
                };
                visit(kind, item, &place, unknown)
            })
        }
        (ValueShape::Text, Json::String(_))
        | (ValueShape::Boolean, Json::Bool(_))
        | (ValueShape::Integer | ValueShape::Number, Json::Number(_))
        | (ValueShape::IntegerOrText, Json::Number(_) | Json::String(_))
        | (ValueShape::Any, _) => Ok(()),
        (ValueShape::Map, value) => Err(place.mismatch(value, schema.values().unwrap_or(schema))),
        (_, value) => Err(place.mismatch(value, schema)),
    }
}
