//! Strict validation of an object against the schema of its kind: unknown fields, wrong types and missing
//! fields, all at once.

use portcullis_core::model::closest;
use serde_json::Value as Json;

use crate::diagnostic::Diagnostic;
use crate::schema::{Schema, ValueShape};

/// Returns the errors of an object of a known kind.
pub(crate) fn check(object: &Json, schema: &'static Schema) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    visit(object, schema, &mut String::new(), &mut diagnostics);
    diagnostics
}

/// Returns an object without its invalid parts, so that lenient readers can process the rest and one error
/// hides no other.
pub(crate) fn clean(value: &Json, schema: &'static Schema) -> Json {
    valid_part(value, schema).unwrap_or_default()
}

fn valid_part(value: &Json, schema: &'static Schema) -> Option<Json> {
    match (schema.shape(), value) {
        (_, Json::Null) => None,
        (ValueShape::Any, value) => Some(value.clone()),
        (ValueShape::Object, Json::Object(fields)) => Some(
            fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), valid_part(value, schema.field(name)?)?)))
                .collect(),
        ),
        (ValueShape::Map, Json::Object(entries)) => Some(
            entries
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), valid_part(value, schema.values()?)?)))
                .collect(),
        ),
        (ValueShape::List, Json::Array(values)) => {
            let items = schema.items()?;
            // Items keep their positions.
            let empty = match items.shape() {
                ValueShape::Object | ValueShape::Map => Json::Object(serde_json::Map::new()),
                ValueShape::List => Json::Array(Vec::new()),
                _ => Json::String(String::new()),
            };
            Some(
                values
                    .iter()
                    .map(|value| valid_part(value, items).unwrap_or_else(|| empty.clone()))
                    .collect(),
            )
        }
        (ValueShape::Text, Json::String(_))
        | (ValueShape::Boolean, Json::Bool(_))
        | (ValueShape::Integer | ValueShape::Number, Json::Number(_))
        | (ValueShape::IntegerOrText, Json::String(_) | Json::Number(_)) => Some(value.clone()),
        _ => None,
    }
}

/// Calls `then` with one more step in the JSON pointer.
fn descend(pointer: &mut String, step: &str, then: impl FnOnce(&mut String)) {
    let length = pointer.len();
    portcullis_text::pointer::push(pointer, step);
    then(pointer);
    pointer.truncate(length);
}

fn visit(value: &Json, schema: &'static Schema, pointer: &mut String, diagnostics: &mut Vec<Diagnostic>) {
    let shape = schema.shape();
    match (shape, value) {
        (_, Json::Null) | (ValueShape::Any, _) => {}
        (ValueShape::Object, Json::Object(fields)) => {
            for (name, value) in fields {
                descend(pointer, name, |pointer| match schema.field(name) {
                    Some(field) => visit(value, field, pointer, diagnostics),
                    None if schema.is_open() => {}
                    None => {
                        let meant = closest(name, schema.fields().map(|(name, _)| name)).map(str::to_owned);
                        diagnostics.push(
                            Diagnostic::error(pointer.as_str(), format!("unknown field {name:?}"))
                                .at_key()
                                .suggest(meant),
                        );
                    }
                });
            }
            for name in schema.required() {
                if fields.get(*name).is_none_or(Json::is_null) {
                    let message = format!("the field {name:?} is required");
                    descend(pointer, name, |pointer| {
                        diagnostics.push(Diagnostic::error(pointer.as_str(), message));
                    });
                }
            }
        }
        (ValueShape::Map, Json::Object(entries)) => {
            for (name, value) in entries {
                if let Some(values) = schema.values() {
                    descend(pointer, name, |pointer| visit(value, values, pointer, diagnostics));
                }
            }
        }
        (ValueShape::List, Json::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                if let Some(items) = schema.items() {
                    descend(pointer, &index.to_string(), |pointer| visit(value, items, pointer, diagnostics));
                }
            }
        }
        (ValueShape::Text, Json::String(text)) => {
            let choices = schema.choices();
            if !choices.is_empty() && !choices.contains(&text.as_str()) {
                diagnostics.push(not_allowed_value(pointer, text, choices));
            }
        }
        (ValueShape::Boolean, Json::Bool(_))
        | (ValueShape::Number, Json::Number(_))
        | (ValueShape::IntegerOrText, Json::String(_) | Json::Number(_)) => {}
        (ValueShape::Integer, Json::Number(number)) if number.is_i64() || number.is_u64() => {}
        (_, found) => diagnostics.push(mismatch(pointer, shape, found)),
    }
}

/// Returns the error for a string that is not an allowed value.
pub(crate) fn not_allowed_value(pointer: &str, text: &str, choices: &[&str]) -> Diagnostic {
    let meant = closest(text, choices.iter().copied())
        .or_else(|| choices.iter().copied().find(|choice| choice.eq_ignore_ascii_case(text)));
    Diagnostic::error(pointer, format!("{text:?} is not one of {}", choices.join(", ")))
        .suggest(meant.map(str::to_owned))
}

fn mismatch(pointer: &str, wanted: ValueShape, found: &Json) -> Diagnostic {
    let wanted_words = match wanted {
        ValueShape::Object | ValueShape::Map => "a mapping",
        ValueShape::List => "a list",
        ValueShape::Text => "text",
        ValueShape::Integer => "a whole number",
        ValueShape::Number => "a number",
        ValueShape::Boolean => "true or false",
        ValueShape::IntegerOrText | ValueShape::Any => "a whole number or text",
    };
    let found_words = match found {
        Json::Null => "nothing".to_owned(),
        Json::Bool(value) => format!("the boolean {value}"),
        Json::Number(value) => format!("the number {value}"),
        Json::String(_) => "text".to_owned(),
        Json::Array(_) => "a list".to_owned(),
        Json::Object(_) => "a mapping".to_owned(),
    };
    let remedy = match (wanted, found) {
        (ValueShape::Text, Json::Bool(_)) => {
            ": put it in quotes (YAML reads yes, no, on, off, y and n as booleans)"
        }
        (ValueShape::Text, Json::Number(_)) => ": put it in quotes",
        _ => "",
    };
    Diagnostic::error(pointer, format!("this must be {wanted_words}, and is {found_words}{remedy}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    #[test]
    fn all_problems_are_reported_at_once() {
        let schema =
            Schema::of("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy").expect("known");
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": "a", "labels": { "x": 1, "y": true }, "lable": {} },
            "spec": {
                "failurePolcy": "Fail",
                "matchConstraints": { "resourceRules": { "a": 1 } },
                "validations": [{ "message": 3 }, "no"],
                "matchConditions": null,
            },
        });
        let found: Vec<(String, String, Option<String>)> = check(&object, schema)
            .into_iter()
            .map(|diagnostic| (diagnostic.pointer, diagnostic.message, diagnostic.suggestion))
            .collect();
        let text = |pointer: &str, message: &str, meant: Option<&str>| {
            (pointer.to_owned(), message.to_owned(), meant.map(str::to_owned))
        };
        assert_eq!(
            found,
            [
                text("/metadata/labels/x", "this must be text, and is the number 1: put it in quotes", None),
                text(
                    "/metadata/labels/y",
                    "this must be text, and is the boolean true: put it in quotes (YAML reads yes, no, on, off, y and n as booleans)",
                    None
                ),
                text("/metadata/lable", "unknown field \"lable\"", Some("labels")),
                text("/spec/failurePolcy", "unknown field \"failurePolcy\"", Some("failurePolicy")),
                text("/spec/matchConstraints/resourceRules", "this must be a list, and is a mapping", None),
                text(
                    "/spec/validations/0/message",
                    "this must be text, and is the number 3: put it in quotes",
                    None
                ),
                text("/spec/validations/0/expression", "the field \"expression\" is required", None),
                text("/spec/validations/1", "this must be a mapping, and is text", None),
            ]
        );
        assert_eq!(
            clean(&object, schema)["spec"],
            json!({ "matchConstraints": {}, "validations": [{}, {}] }),
            "what is left has places as before"
        );
    }
}
