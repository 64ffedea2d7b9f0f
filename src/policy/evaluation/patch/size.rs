//! Estimates the size of a value as JSON without serializing it, so that oversized values are never built.

use portcullis_cel::{List, Map, Value};
use serde_json::Value as Json;

/// Maximum bytes that one policy may create or copy in an object. The API server accepts smaller objects
/// only.
pub(crate) const MAX_OBJECT_BYTES: usize = 3 * 1024 * 1024;

/// Counts bytes up to [`MAX_OBJECT_BYTES`].
#[derive(Debug)]
pub(crate) struct SizeCounter {
    left: usize,
}

impl SizeCounter {
    pub(crate) fn new() -> Self {
        Self { left: MAX_OBJECT_BYTES }
    }

    /// Returns the bytes counted so far.
    pub(crate) fn used(&self) -> usize {
        MAX_OBJECT_BYTES - self.left
    }

    fn charge(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left;
        self.left = self.left.saturating_sub(bytes);
        fits
    }

    /// Counts a JSON value. False if the limit is exceeded.
    pub(crate) fn json(&mut self, value: &Json) -> bool {
        match value {
            Json::Null | Json::Bool(_) => self.charge(4),
            Json::Number(_) => self.charge(8),
            Json::String(text) => self.charge(text.len() + 2),
            Json::Array(items) => {
                self.charge(2) && items.iter().all(|item| self.charge(1) && self.json(item))
            }
            Json::Object(fields) => {
                self.charge(2)
                    && fields.iter().all(|(name, value)| self.charge(name.len() + 4) && self.json(value))
            }
        }
    }

    /// Counts a CEL value. False if the limit is exceeded.
    pub(crate) fn value(&mut self, value: &Value<'_>) -> bool {
        match value {
            Value::Null | Value::Bool(_) => self.charge(4),
            Value::String(text) => self.charge(text.as_str().len() + 2),
            Value::Bytes(bytes) => self.charge(bytes.len() * 4 / 3 + 2),
            Value::List(List::Json(items)) => {
                self.charge(2) && items.iter().all(|item| self.charge(1) && self.json(item))
            }
            Value::List(list) => {
                self.charge(2) && list.iter().all(|item| self.charge(1) && self.value(&item))
            }
            Value::Map(Map::Json(fields)) => {
                self.charge(2)
                    && fields.iter().all(|(name, value)| self.charge(name.len() + 4) && self.json(value))
            }
            Value::Map(map) => {
                self.charge(2)
                    && map
                        .entries()
                        .iter()
                        .all(|(key, value)| self.charge(4) && self.value(key) && self.value(value))
            }
            Value::Message(message) => {
                self.charge(2)
                    && message
                        .fields
                        .iter()
                        .all(|(name, value)| self.charge(name.len() + 4) && self.value(value))
            }
            Value::Optional(Some(inner)) => self.value(inner),
            _ => self.charge(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_counted_about_as_they_are_written() {
        for value in [
            json!(null),
            json!({ "a": [1, 2.5, "three", { "b": true }], "c": "x".repeat(500) }),
            json!(["a", "b", []]),
        ] {
            let (mut size, mut same) = (SizeCounter::new(), SizeCounter::new());
            assert!(size.json(&value) && same.value(&Value::json(&value)));
            let written = value.to_string().len();
            assert!(
                size.used().abs_diff(written) <= 8 + written / 2,
                "{value}: {} for {written}",
                size.used()
            );
            assert_eq!(size.used(), same.used(), "{value}");
        }
        let large = json!("x".repeat(MAX_OBJECT_BYTES / 2));
        let mut size = SizeCounter::new();
        assert!(size.json(&large) && !size.json(&large));
    }
}
