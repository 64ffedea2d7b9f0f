//! PriorityClasses (`scheduling.k8s.io/v1`), with the fields that the queue uses.

use serde::Deserialize;

use super::ReadError;
use super::view::Meta;
use crate::model::{Str, closest, quoted, str};

/// A PriorityClass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriorityClass {
    /// Name. The kind is cluster-scoped.
    pub name: Str,
    /// A gang with a higher value is first in the queue.
    pub value: i32,
    /// Whether pods without a class get this one.
    pub global_default: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct View<'a> {
    #[serde(default)]
    metadata: Meta<'a>,
    #[serde(default)]
    value: i32,
    #[serde(default)]
    global_default: bool,
}

impl PriorityClass {
    /// Reads a PriorityClass from its JSON. A value that is not written is 0, as in the API server.
    ///
    /// # Errors
    /// When it is no JSON, has no name, or `value` is no 32-bit integer.
    pub fn read(json: &str) -> Result<Self, ReadError> {
        let fail = |name: String, problem: String| ReadError { kind: "PriorityClass", name, problem };
        let view: View<'_> = serde_json::from_str(json).map_err(|e| fail("?".to_owned(), e.to_string()))?;
        if view.metadata.name.is_empty() {
            return Err(fail("?".to_owned(), "metadata.name is missing".to_owned()));
        }
        Ok(Self {
            name: str(view.metadata.name.as_str()),
            value: view.value,
            global_default: view.global_default,
        })
    }
}

/// The message for a class that does not exist: `PriorityClass "Inference" not found; did you
/// mean "inference"?`
pub fn class_not_found<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let name: String = name.chars().take(MAX_NAME_CHARS).collect();
    match closest(&name, known) {
        Some(meant) => format!("PriorityClass {} not found; did you mean {}?", quoted(&name), quoted(meant)),
        None => format!("PriorityClass {} not found.", quoted(&name)),
    }
}

/// Maximum length of a name in a message.
const MAX_NAME_CHARS: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_with_value_and_default() {
        let class =
            |name: &str, value, global_default| PriorityClass { name: str(name), value, global_default };
        for (json, expected) in [
            (r#"{"metadata":{"name":"inference"},"value":125}"#, Some(class("inference", 125, false))),
            (
                r#"{"metadata":{"name":"low"},"value":-5,"globalDefault":true,"preemptionPolicy":"Never"}"#,
                Some(class("low", -5, true)),
            ),
            (r#"{"metadata":{"name":"zero"}}"#, Some(class("zero", 0, false))),
            (r#"{"metadata":{},"value":1}"#, None),
            (r#"{"metadata":{"name":"big"},"value":2147483648}"#, None),
            (r#"{"metadata":{"name":"text"},"value":"1"}"#, None),
        ] {
            assert_eq!(PriorityClass::read(json).ok(), expected, "{json}");
        }
    }
}
