//! Converts the results of `Object{}` and `JSONPatch{}` expressions to JSON.
//!
//! The API server has two different conversions from CEL to Go, and both have gaps. The gaps are reproduced,
//! because a policy that works here must work there.

use portcullis_cel::{List, Map, Message, Timestamp, Value};
use serde_json::{Map as Fields, Number, Value as Json};

use super::json_patch::JsonPatchOperation;

/// Collects type names that differ from the place of the object, such as `Object.spec.wrong{}` in the field
/// `selector`.
fn collect_misnamed(value: &Value<'_>, place: &str, errors: &mut Vec<String>) {
    match value {
        Value::Message(message) => {
            if &*message.name != place {
                errors.push(format!(
                    "unexpected type name \"{}\", expected \"{place}\", which matches field name path from root Object type",
                    message.name
                ));
            }
            for (field, value) in &message.fields {
                collect_misnamed(value, &format!("{place}.{field}"), errors);
            }
        }
        Value::List(list @ List::Owned(_)) => {
            list.iter().for_each(|item| collect_misnamed(&item, place, errors));
        }
        Value::Map(map @ Map::Owned(_)) => {
            map.entries().iter().for_each(|(_, value)| collect_misnamed(value, place, errors));
        }
        _ => {}
    }
}

fn check_names(message: &Message<'_>, value: &Value<'_>) -> Result<(), String> {
    let mut errors = Vec::new();
    collect_misnamed(value, &message.name, &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(format!("type mismatch: {}", errors.join("\n"))) }
}

/// Returns borrowed JSON without conversion.
fn borrowed(value: &Value<'_>) -> Option<Json> {
    match value {
        Value::List(List::Json(items)) => Some(Json::Array(items.to_vec())),
        Value::Map(Map::Json(fields)) => Some(Json::Object((*fields).clone())),
        _ => None,
    }
}

/// Converts a value of an apply configuration. The API server cannot merge list and map literals inside of
/// other literals; for those `outer` is false.
fn merge_value(value: &Value<'_>, outer: bool) -> Result<Json, String> {
    if let Some(json_value) = borrowed(value) {
        return Ok(json_value);
    }
    Ok(match value {
        // The API server converts null to a number here.
        Value::Null => Json::from(0),
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::Double(value) => Number::from_f64(*value).map_or(Json::Null, Json::Number),
        Value::String(text) => Json::String(text.as_str().to_owned()),
        Value::List(list) if outer => {
            Json::Array(list.iter().map(|item| merge_value(&item, false)).collect::<Result<_, _>>()?)
        }
        Value::Map(map) if outer => {
            let mut fields = Fields::new();
            for (key, value) in map.entries() {
                let Some(key) = key.as_str().map(str::to_owned) else {
                    return Err(format!("map key \"{key}\" is not string"));
                };
                fields.insert(key, merge_value(&value, false)?);
            }
            Json::Object(fields)
        }
        Value::Message(message) => fields(message)?,
        // The merge treats these as neither list, map nor scalar.
        Value::List(_) => Json::String("[]ref.Val".into()),
        Value::Map(_) => Json::String("map[ref.Val]ref.Val".into()),
        other => return Err(format!("a value of type {} cannot be part of an object", other.kind().name())),
    })
}

fn fields(message: &Message<'_>) -> Result<Json, String> {
    let mut fields = Fields::new();
    for (field, value) in &message.fields {
        fields.insert(field.to_string(), merge_value(value, true)?);
    }
    Ok(Json::Object(fields))
}

/// Converts the result of an `ApplyConfiguration` expression.
///
/// # Errors
/// The API server's message.
pub(crate) fn configuration(value: &Value<'_>) -> Result<Json, String> {
    let Value::Message(message) = value else {
        return Err(format!(
            "unsupported return type from ApplyConfiguration expression: {}",
            value.kind().name()
        ));
    };
    check_names(message, value)?;
    fields(message)
}

/// The largest integer that a JavaScript number holds exactly. CEL's JSON writes larger ones as strings.
const MAX_EXACT_INTEGER: i64 = 9_007_199_254_740_991;

/// Converts the `value` of an operation.
fn json_value(value: &Value<'_>) -> Result<Json, String> {
    if let Some(json_value) = borrowed(value) {
        return Ok(json_value);
    }
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) if (-MAX_EXACT_INTEGER..=MAX_EXACT_INTEGER).contains(value) => Json::from(*value),
        Value::Int(value) => Json::String(value.to_string()),
        Value::Uint(value) if i64::try_from(*value).is_ok_and(|value| value <= MAX_EXACT_INTEGER) => {
            Json::from(*value)
        }
        Value::Uint(value) => Json::String(value.to_string()),
        Value::Double(value) => match i64_of(*value) {
            Some(whole) => Json::from(whole),
            None => Number::from_f64(*value).map_or_else(|| Json::String(value.to_string()), Json::Number),
        },
        Value::String(text) => Json::String(text.as_str().to_owned()),
        Value::Bytes(bytes) => Json::String(base64(bytes)),
        Value::Timestamp(moment) => Json::String(timestamp_text(moment)),
        Value::List(list) => {
            Json::Array(list.iter().map(|item| json_value(&item)).collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let mut fields = Fields::new();
            for (key, value) in map.entries() {
                let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                fields.insert(key, json_value(&value)?);
            }
            Json::Object(fields)
        }
        Value::Message(message) => fields(message)?,
        Value::Optional(Some(inner)) => json_value(inner)?,
        other => {
            return Err(format!(
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON: unsupported type {}",
                other.kind().name()
            ));
        }
    })
}

fn i64_of(value: f64) -> Option<i64> {
    let text = format!("{value:.0}");
    (value.fract() == 0.0 && value.abs() < 1e15).then(|| text.parse().ok()).flatten()
}

fn timestamp_text(moment: &Timestamp) -> String {
    moment.format_utc(portcullis_text::timestamp::Fraction::Shortest)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let place = usize::try_from(group >> (18 - 6 * digit) & 63).unwrap_or(0);
            text.push(if digit <= chunk.len() { char::from(DIGITS[place]) } else { '=' });
        }
    }
    text
}

/// Converts the result of a `JSONPatch` expression.
///
/// # Errors
/// The API server's message.
pub(crate) fn operations(value: &Value<'_>) -> Result<Vec<JsonPatchOperation>, String> {
    let Value::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".into());
    };
    list.iter().map(|item| operation(&item)).collect()
}

fn operation(value: &Value<'_>) -> Result<JsonPatchOperation, String> {
    let Value::Message(message) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".into());
    };
    let text = |field: &str| message.fields.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let value = match message.fields.get("value") {
        Some(value) => {
            if let Value::Message(inner) = value {
                check_names(inner, value)?;
            }
            Some(json_value(value)?)
        }
        None => None,
    };
    Ok(JsonPatchOperation { op: text("op"), path: text("path"), from: text("from"), value })
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn bytes_are_base64() {
        for (bytes, expected) in
            [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("abcd", "YWJjZA==")]
        {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
    }
}
