//! The display form of values, which shows their types. Equal values of equal types have the same form.

use std::fmt;

use portcullis_text::duration;
use portcullis_text::timestamp::Fraction;

use super::{Value, double_text};

/// A string with the quotes and escapes of JSON.
pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A message in the form of the map that it becomes in an object.
fn plain(value: &Value<'_>) -> String {
    match value {
        Value::Message(message) => {
            let fields: Vec<String> = message
                .fields
                .iter()
                .map(|(name, value)| format!("{}: {}", quote(name), plain(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::List(list) => {
            let items: Vec<String> = list.iter().map(|item| plain(&item)).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}u"),
            Self::Double(value) => write!(f, "{}d", double_text(*value)),
            Self::String(text) => f.write_str(&quote(text.as_str())),
            Self::Bytes(bytes) => {
                f.write_str("b")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Duration(value) => write!(f, "duration({})", duration::format_seconds(*value)),
            Self::Timestamp(moment) => write!(f, "timestamp({})", moment.format_utc(Fraction::Shortest)),
            Self::Type(of) => write!(f, "type({})", of.name()),
            Self::Optional(None) => f.write_str("optional.none()"),
            Self::Optional(Some(inner)) => write!(f, "optional.of({inner})"),
            Self::List(list) => {
                let items: Vec<String> = list.iter().map(|item| item.to_string()).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Self::Map(map) => {
                let mut entries: Vec<String> =
                    map.entries().iter().map(|(key, value)| format!("{key}: {value}")).collect();
                entries.sort();
                write!(f, "{{{}}}", entries.join(", "))
            }
            Self::Opaque(opaque) => write!(f, "{}({opaque})", opaque.kind().name()),
            Self::Message(message) if &*message.name == "JSONPatch" => {
                let text = |name: &str| {
                    message.fields.get(name).map_or_else(|| "\"\"".to_owned(), ToString::to_string)
                };
                let value =
                    message.fields.get("value").map(|value| format!(", value: {value}")).unwrap_or_default();
                write!(
                    f,
                    "JSONPatch{{from: {}, op: {}, path: {}{value}}}",
                    text("from"),
                    text("op"),
                    text("path")
                )
            }
            Self::Message(message) => write!(f, "{}{}", message.name, plain(self)),
        }
    }
}
