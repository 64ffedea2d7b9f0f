//! Manifest files: YAML or JSON in, JSON values and the line of every field out.
//!
//! The reader is the one of policy files ([`portcullis_text::yaml`]), so all commands read a file as kubectl
//! does. This module does not check the content of a manifest. Invariant: every line number is a line of the
//! file on disk, also in the second and later documents.

use std::collections::BTreeMap;

use portcullis_text::pointer;
use portcullis_text::yaml::{self, Content, Node};
use serde_json::Value;

/// One document of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document {
    /// The document as JSON.
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

/// Reads all documents of a file, without the empty ones.
///
/// # Errors
/// The first problem, when the text is neither YAML nor JSON.
pub(super) fn read(text: &str) -> Result<Vec<Document>, Unreadable> {
    read_as(text, false).or_else(|error| {
        // JSON allows tabs as indentation and YAML does not.
        let is_json = text.trim_start().starts_with('{');
        if is_json { read_as(text, true).map_err(|_| error) } else { Err(error) }
    })
}

fn read_as(text: &str, is_json: bool) -> Result<Vec<Document>, Unreadable> {
    let (nodes, issues) = yaml::read(text, is_json);
    let starts = line_starts(text);
    match issues.into_iter().find(|issue| !issue.is_warning) {
        None => Ok(nodes.iter().map(|node| document(node, &starts)).collect()),
        Some(issue) => {
            let line = line_of(&starts, issue.span.start);
            let start = usize::try_from(line - 1).ok().and_then(|index| starts.get(index));
            let before = text.get(start.copied().unwrap_or(0)..issue.span.start).unwrap_or_default();
            let column = u64::try_from(before.chars().count() + 1).ok();
            Err(Unreadable { line: Some(line), column, problem: issue.message })
        }
    }
}

/// The byte at which each line starts.
fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

/// The line of a byte, counted from 1.
fn line_of(starts: &[usize], byte: usize) -> u64 {
    u64::try_from(starts.partition_point(|start| *start <= byte)).unwrap_or(u64::MAX)
}

fn document(node: &Node, starts: &[usize]) -> Document {
    let mut lines = BTreeMap::from([(String::new(), line_of(starts, node.span.start))]);
    collect_lines(node, starts, &mut String::new(), &mut lines);
    Document { value: node.json(), lines }
}

/// Notes the line of everything in a node.
fn collect_lines(node: &Node, starts: &[usize], pointer: &mut String, lines: &mut BTreeMap<String, u64>) {
    let length = pointer.len();
    match &node.content {
        Content::Scalar { .. } => {}
        Content::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                pointer.push_str(&format!("/{index}"));
                lines.insert(pointer.clone(), line_of(starts, item.span.start));
                collect_lines(item, starts, pointer, lines);
                pointer.truncate(length);
            }
        }
        Content::Mapping(entries) => {
            for entry in entries {
                pointer::push(pointer, &entry.key);
                lines.insert(pointer.clone(), line_of(starts, entry.key_span.start));
                collect_lines(&entry.value, starts, pointer, lines);
                pointer.truncate(length);
            }
        }
    }
}

/// The JSON pointer of a Kubernetes field path (`spec.containers[0].resources.limits[nvidia.com/gpu]`) within
/// `value`. Steps that are not there end it: the place where something is missing is the place of its parent.
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
        pointer::push(&mut pointer, step);
        here = next;
    }
    pointer
}

/// The steps of a field path: names between dots, keys and indexes in brackets, which may hold dots
/// themselves.
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

    const TWO: &str = "# first\nkind: A\nlist:\n- x: 1\n- z: yes\n---\n\n---\nkind: B\nmetadata:\n  annotations: {a/b: \"8000\"}\n";

    #[test]
    fn documents_keep_the_lines_of_their_file() {
        let documents = read(TWO).expect("it is YAML");
        assert_eq!(documents.len(), 2, "the empty document is left out");
        assert_eq!(documents[0].value, json!({"kind": "A", "list": [{"x": 1}, {"z": true}]}));
        assert_eq!(documents[1].value, json!({"kind": "B", "metadata": {"annotations": {"a/b": "8000"}}}));
        for (document, pointer, line) in [
            (0, "/kind", 2),
            (0, "/list", 3),
            (0, "/list/1", 5),
            (0, "/list/1/z", 5),
            (0, "/list/1/z/deeper", 5),
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

    /// What sigs.k8s.io/yaml reads, and what `check` reads.
    #[test]
    fn scalars_are_read_as_kubectl_reads_them() {
        let text = "a: y\nb: 0777\nc: 0o17\nd: 1_000\ne: 1e3\nf: 'yes'\ng: oFF\nh: 10:30\ny: key\n";
        let documents = read(text).expect("it is YAML");
        let expected = json!({"a": true, "b": 511, "c": 15, "d": 1000, "e": 1000, "f": "yes", "g": "oFF",
            "h": "10:30", "true": "key"});
        assert_eq!(documents[0].value, expected);
        let problem = read("a: 1\nb: 2\na: 3\n").expect_err("the key is there twice");
        assert_eq!(
            (problem.line, problem.column, &*problem.problem),
            (Some(3), Some(1), "duplicate key \"a\"")
        );
    }

    #[test]
    fn json_with_tabs_is_read_too() {
        let documents = read("{\n\t\"kind\": \"A\"\n}\n").expect("it is JSON");
        assert_eq!(documents[0].value, json!({"kind": "A"}));
    }
}
