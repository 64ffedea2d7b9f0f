//! Manifest files: YAML or JSON in, JSON values and the line of every field out.
//!
//! Never judges what a manifest says. Invariant: every line number is a line of the file as it lies on disk, also in
//! the second and later documents.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{NonFiniteFloatPolicy, Spanned};

/// One document of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document {
    /// What it says.
    pub(super) value: Value,
    /// Line of each field, by JSON pointer; the document itself is "".
    lines: BTreeMap<String, u64>,
}

impl Document {
    /// The line of `pointer`, or of the closest parent that has one; `None` when the input gave no positions.
    pub(super) fn line(&self, pointer: &str) -> Option<u64> {
        let mut pointer = pointer;
        loop {
            if let Some(line) = self.lines.get(pointer) {
                return Some(*line);
            }
            pointer = &pointer[..pointer.rfind('/')?];
        }
    }
}

/// A file that is neither YAML nor JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    /// Where, as far as it is known.
    pub(super) line: Option<u64>,
    /// The column, with the line.
    pub(super) column: Option<u64>,
    /// What is wrong there.
    pub(super) problem: String,
}

/// Reads all documents of a file; empty ones are left out.
///
/// # Errors
/// Where and why the text is no YAML.
pub(super) fn read(text: &str) -> Result<Vec<Document>, Unreadable> {
    // As kubectl reads it: YAML 1.1 booleans and octal numbers are what users' files are full of.
    let options = serde_saphyr::options! {
        with_snippet: false,
        legacy_octal_numbers: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
    };
    match serde_saphyr::from_multiple_with_options::<Node>(text, options) {
        Ok(nodes) => Ok(nodes
            .into_iter()
            .filter(|n| n.content != Content::Scalar(Value::Null))
            .map(document)
            .collect()),
        Err(error) => json(text).ok_or_else(|| {
            let location = error.location();
            Unreadable {
                line: location.map(|l| l.line()),
                column: location.map(|l| l.column()),
                problem: plain(&error),
            }
        }),
    }
}

/// JSON that is no YAML (tabs for indentation), which has no positions.
fn json(text: &str) -> Option<Vec<Document>> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    Some(values.ok()?.into_iter().map(|value| Document { value, lines: BTreeMap::new() }).collect())
}

/// The message of a YAML error on one line, without the position it repeats at its end.
fn plain(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let end = first.find(" at line ").unwrap_or(first.len());
    first[..end].trim_end_matches([',', ' ', ':']).to_owned()
}

#[derive(Debug, PartialEq)]
struct Node {
    content: Content,
    line: u64,
}

#[derive(Debug, PartialEq)]
enum Content {
    Scalar(Value),
    Sequence(Vec<Node>),
    Mapping(Vec<(String, u64, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), content: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        Content::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Number(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Number(value.into())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(Value::String(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Content, E> {
        Ok(Content::Scalar(Value::String(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Content::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<Content, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = mapping.next_entry::<Spanned<String>, Node>()? {
            entries.push((key.value, key.referenced.line(), value));
        }
        Ok(Content::Mapping(entries))
    }
}

fn document(node: Node) -> Document {
    let mut lines = BTreeMap::from([(String::new(), node.line)]);
    let value = settle(node, &mut String::new(), &mut lines);
    Document { value, lines }
}

/// Turns a node into plain JSON and notes the line of everything in it.
fn settle(node: Node, pointer: &mut String, lines: &mut BTreeMap<String, u64>) -> Value {
    let base = pointer.len();
    match node.content {
        Content::Scalar(value) => value,
        Content::Sequence(items) => {
            let mut values = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                pointer.push_str(&format!("/{index}"));
                lines.insert(pointer.clone(), item.line);
                values.push(settle(item, pointer, lines));
                pointer.truncate(base);
            }
            Value::Array(values)
        }
        Content::Mapping(entries) => {
            let mut map = Map::new();
            for (key, line, value) in entries {
                pointer.push('/');
                pointer.push_str(&escape(&key));
                lines.insert(pointer.clone(), line);
                map.insert(key, settle(value, pointer, lines));
                pointer.truncate(base);
            }
            Value::Object(map)
        }
    }
}

/// One step of a JSON pointer (RFC 6901).
pub(super) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The JSON pointer of a Kubernetes field path (`spec.containers[0].resources.limits[nvidia.com/gpu]`) within `value`.
/// Steps that are not there end it: the place where something is missing is the place of its parent.
pub(super) fn pointer_of(value: &Value, field: &str) -> String {
    let mut here = value;
    let mut pointer = String::new();
    for step in steps(field) {
        let next = match here {
            Value::Object(map) => map.get(step),
            Value::Array(items) => step.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
        };
        let Some(next) = next else { break };
        pointer.push('/');
        pointer.push_str(&escape(step));
        here = next;
    }
    pointer
}

/// The steps of a field path: names between dots, keys and indexes in brackets, which may hold dots themselves.
fn steps(field: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    let mut rest = field;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = inner.find(']').unwrap_or(inner.len());
            steps.push(inner[..end].trim_matches('"'));
            rest = inner.get(end + 1..).unwrap_or_default();
        } else {
            let rest_of_name = rest.strip_prefix('.').unwrap_or(rest);
            let end = rest_of_name.find(['.', '[']).unwrap_or(rest_of_name.len());
            if end > 0 {
                steps.push(&rest_of_name[..end]);
            }
            rest = &rest_of_name[end..];
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TWO: &str = "# first\nkind: A\nlist:\n- x: 1\n- y: yes\n---\n\n---\nkind: B\nmetadata:\n  annotations: {a/b: \"8000\"}\n";

    #[test]
    fn documents_keep_the_lines_of_their_file() {
        let documents = read(TWO).expect("it is YAML");
        assert_eq!(documents.len(), 2, "the empty document is left out");
        assert_eq!(documents[0].value, json!({"kind": "A", "list": [{"x": 1}, {"y": true}]}));
        assert_eq!(documents[1].value, json!({"kind": "B", "metadata": {"annotations": {"a/b": "8000"}}}));
        for (document, pointer, line) in [
            (0, "/kind", 2),
            (0, "/list", 3),
            (0, "/list/1", 5),
            (0, "/list/1/y", 5),
            (0, "/list/1/y/deeper", 5),
            (1, "/kind", 9),
            (1, "/metadata/annotations", 11),
            (1, "/metadata/annotations/a~1b", 11),
        ] {
            assert_eq!(documents[document].line(pointer), Some(line), "{pointer}");
        }
    }

    #[test]
    fn field_paths_become_pointers() {
        let value = json!({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]},
            "metadata": {"labels": {"kai.scheduler/podgroup": "x"}}});
        for (field, pointer) in [
            ("metadata.labels[kai.scheduler/podgroup]", "/metadata/labels/kai.scheduler~1podgroup"),
            (
                "spec.containers[0].resources.limits[nvidia.com/gpu]",
                "/spec/containers/0/resources/limits/nvidia.com~1gpu",
            ),
            ("metadata.annotations[gpu-memory]", "/metadata"),
            ("spec.containers[7].name", "/spec/containers"),
            ("", ""),
        ] {
            assert_eq!(pointer_of(&value, field), pointer, "{field}");
        }
    }

    #[test]
    fn what_is_no_yaml_is_named_with_its_place() {
        let problem = read("kind: A\n  metadata: {\n").expect_err("it is not YAML");
        assert_eq!(problem.line, Some(2), "{problem:?}");
        assert!(!problem.problem.is_empty() && !problem.problem.contains('\n'), "{problem:?}");
    }

    #[test]
    fn json_with_tabs_is_read_too() {
        let documents = read("{\n\t\"kind\": \"A\"\n}\n").expect("it is JSON");
        assert_eq!(documents[0].value, json!({"kind": "A"}));
    }
}
