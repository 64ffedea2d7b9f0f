//! PriorityClasses (`scheduling.k8s.io/v1`), as far as the queue asks for them.

use serde::Deserialize;

use super::ReadError;
use super::view::Meta;
use crate::model::{Str, closest, quoted, str};

/// A PriorityClass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriorityClass {
    /// Its name; classes live in no namespace.
    pub name: Str,
    /// Higher goes first.
    pub value: i32,
    /// Whether it is the class of pods that name none.
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

/// The sentence for a class that is named and does not exist: `PriorityClass "Inference" not found; did you
/// mean "inference"?`
pub fn class_not_found<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let name: String = name.chars().take(LONGEST_NAME).collect();
    match closest(&name, known) {
        Some(meant) => format!("PriorityClass {} not found; did you mean {}?", quoted(&name), quoted(meant)),
        None => format!("PriorityClass {} not found.", quoted(&name)),
    }
}

/// Most characters of a name that is repeated in a sentence.
const LONGEST_NAME: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_with_what_the_queue_asks_for() {
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
