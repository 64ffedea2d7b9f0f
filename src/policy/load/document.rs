//! One object of a file, and the mapping from its diagnostics to locations in the file.

use std::ops::Range;

use portcullis_text::yaml::{Content, Node, locate};
use serde_json::Value as Json;

use super::Problem;
use super::source_text::SourceText;
use crate::diagnostic::Diagnostic;
use crate::json::value_at;

/// What the loader does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DocumentRole {
    Validating,
    ValidatingBinding,
    Mutating,
    MutatingBinding,
    GangPolicy,
    Exception,
    /// A suite of `portcullis test`.
    Test,
    /// Another kind of `admissionregistration.k8s.io`, which is not evaluated here.
    Foreign,
    /// An unknown kind of `portcullis.dev`.
    Unknown,
    /// Any other object; it can be a parameter.
    Param,
}

impl DocumentRole {
    fn of(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => Self::Validating,
            ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => Self::ValidatingBinding,
            ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => Self::Mutating,
            ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => Self::MutatingBinding,
            ("admissionregistration.k8s.io", _) => Self::Foreign,
            (PORTCULLIS_GROUP, "GangPolicy") => Self::GangPolicy,
            (PORTCULLIS_GROUP, "PolicyException") => Self::Exception,
            (PORTCULLIS_GROUP, "PolicyTest") => Self::Test,
            (PORTCULLIS_GROUP, _) => Self::Unknown,
            _ => Self::Param,
        }
    }
}

/// Returns the group of an `apiVersion`; empty for core.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The API group of Portcullis.
pub(super) const PORTCULLIS_GROUP: &str = "portcullis.dev";

/// The version of the Portcullis kinds.
pub(super) const PORTCULLIS_VERSION: &str = "v1alpha1";

/// The Portcullis kinds in policy files.
pub(super) const PORTCULLIS_KINDS: [&str; 3] = ["GangPolicy", "PolicyException", "PolicyTest"];

/// An object and its location.
#[derive(Debug)]
pub(super) struct SourceDocument {
    /// Index of the file.
    pub(super) file: usize,
    pub(super) node: Node,
    pub(super) json: Json,
    role: DocumentRole,
}

impl SourceDocument {
    pub(super) fn new(file: usize, node: Node, json: Json) -> Self {
        let text = |name: &str| json.get(name).and_then(Json::as_str).unwrap_or_default();
        let role = DocumentRole::of(group(text("apiVersion")), text("kind"));
        Self { file, node, json, role }
    }

    pub(super) fn role(&self) -> DocumentRole {
        self.role
    }

    fn text(&self, pointer: &str) -> &str {
        value_at(&self.json, pointer).and_then(Json::as_str).unwrap_or_default()
    }

    pub(super) fn kind(&self) -> &str {
        self.text("/kind")
    }

    pub(super) fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub(super) fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    pub(super) fn group(&self) -> &str {
        group(self.api_version())
    }

    pub(super) fn version(&self) -> &str {
        let written = self.api_version();
        written.split_once('/').map_or(written, |(_, version)| version)
    }

    /// Returns `ValidatingAdmissionPolicy "no-latest"`.
    pub(super) fn about(&self) -> String {
        format!("{} {:?}", self.kind(), self.name())
    }

    /// Returns the start of the object.
    pub(super) fn start(&self) -> Range<usize> {
        self.place(&Diagnostic::error("/kind", "").at_key())
    }

    /// Returns the bytes that a diagnostic is about.
    fn place(&self, diagnostic: &Diagnostic) -> Range<usize> {
        let (node, key, reached) = self.node.at(&diagnostic.pointer);
        match (&node.content, diagnostic.offset) {
            (Content::Scalar { value: Json::String(_), .. }, Some(_)) if reached => node.span.clone(),
            // A collection can be pages long, so its key is shown.
            (Content::Sequence(_) | Content::Mapping(_), _) => key.unwrap_or_else(|| collection_start(node)),
            (Content::Scalar { .. }, _) => {
                key.filter(|_| diagnostic.at_key || node.span.is_empty()).unwrap_or_else(|| node.span.clone())
            }
        }
    }

    /// Returns a diagnostic with its location.
    pub(super) fn problem(&self, text: &SourceText<'_>, diagnostic: Diagnostic) -> Problem {
        let mut span = self.place(&diagnostic);
        if let Some(offset) = diagnostic.offset
            && let (
                Node { content: Content::Scalar { value: Json::String(value), style }, span: whole },
                _,
                true,
            ) = self.node.at(&diagnostic.pointer)
        {
            let raw = text.text.get(whole.clone()).unwrap_or_default();
            span = locate(raw, whole.start, *style, value, word_at(value, offset));
        }
        Problem {
            suggestion: diagnostic.suggestion,
            about: Some(self.about()),
            // CEL names its container; there is only the unnamed one.
            ..text.problem(diagnostic.severity, &span, diagnostic.message.replace(" (in container '')", ""))
        }
    }
}

/// Returns the start of a collection: its first key or item.
fn collection_start(node: &Node) -> Range<usize> {
    match &node.content {
        Content::Mapping(entries) => {
            entries.iter().map(|entry| entry.key_span.clone()).find(|span| !span.is_empty())
        }
        Content::Sequence(items) => items.first().map(collection_start),
        Content::Scalar { .. } => None,
    }
    .unwrap_or(node.span.start..node.span.start)
}

/// Returns the word of an expression at an offset. CEL reports the `.` of a field and the `(` of a call;
/// users look for the name.
pub(super) fn word_at(source: &str, offset: usize) -> Range<usize> {
    let mut offset = offset.min(source.len());
    while !source.is_char_boundary(offset) {
        offset -= 1;
    }
    let is_name = |character: char| character == '_' || character.is_alphanumeric();
    let rest = &source[offset..];
    let start = match rest.chars().next() {
        Some('.') => {
            let name = rest[1..].trim_start_matches('?').trim_start();
            source.len() - name.len()
        }
        Some('(') => {
            let before = source[..offset].trim_end();
            before.trim_end_matches(is_name).len()
        }
        _ => offset,
    };
    let length = source[start..].find(|character| !is_name(character)).unwrap_or(source.len() - start);
    if length > 0 {
        return start..start + length;
    }
    offset..offset + source[offset..].chars().next().map_or(0, char::len_utf8)
}
