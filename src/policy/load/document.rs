//! One object of a file: what it is, and from its faults to places in the file.

use std::ops::Range;

use portcullis_text::yaml::{Content, Node, locate};
use serde_json::Value as Json;

use super::Problem;
use super::source_text::SourceText;
use crate::diagnostic::Diagnostic;
use crate::json::value_at;

/// What an object is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DocumentRole {
    Validating,
    ValidatingBinding,
    Mutating,
    MutatingBinding,
    GangPolicy,
    Exception,
    /// A case of `portcullis test`.
    Test,
    /// Something of `admissionregistration.k8s.io` that is not evaluated here.
    Foreign,
    /// Something of `portcullis.dev` that there is not.
    Unknown,
    /// Perhaps somebody's parameters.
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
            (OURS, "GangPolicy") => Self::GangPolicy,
            (OURS, "PolicyException") => Self::Exception,
            (OURS, "PolicyTest") => Self::Test,
            (OURS, _) => Self::Unknown,
            _ => Self::Param,
        }
    }
}

/// The group of an `apiVersion`: empty for core.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The API group of our own kinds.
pub(super) const OURS: &str = "portcullis.dev";

/// The versions of our own kinds.
pub(super) const OUR_VERSION: &str = "v1alpha1";

/// Our kinds.
pub(super) const OUR_KINDS: [&str; 3] = ["GangPolicy", "PolicyException", "PolicyTest"];

/// An object and where it stands.
#[derive(Debug)]
pub(super) struct SourceDocument {
    /// The file, by position.
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

    /// `ValidatingAdmissionPolicy "no-latest"`
    pub(super) fn about(&self) -> String {
        format!("{} {:?}", self.kind(), self.name())
    }

    /// Where the object starts.
    pub(super) fn start(&self) -> Range<usize> {
        self.place(&Diagnostic::error("/kind", "").at_key())
    }

    /// The bytes that a fault is about.
    fn place(&self, diagnostic: &Diagnostic) -> Range<usize> {
        let (node, key, reached) = self.node.at(&diagnostic.pointer);
        match (&node.content, diagnostic.offset) {
            (Content::Scalar { value: Json::String(_), .. }, Some(_)) if reached => node.span.clone(),
            // A collection may go on for pages: its key is what is shown.
            (Content::Sequence(_) | Content::Mapping(_), _) => key.unwrap_or_else(|| first(node)),
            (Content::Scalar { .. }, _) => {
                key.filter(|_| diagnostic.at_key || node.span.is_empty()).unwrap_or_else(|| node.span.clone())
            }
        }
    }

    /// A fault at its place.
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
            span = locate(raw, whole.start, *style, value, word(value, offset));
        }
        Problem {
            suggestion: diagnostic.suggestion,
            about: Some(self.about()),
            // There is one container, which has no name.
            ..text.problem(diagnostic.severity, &span, diagnostic.message.replace(" (in container '')", ""))
        }
    }
}

/// Where a collection starts: at its first key or item.
fn first(node: &Node) -> Range<usize> {
    match &node.content {
        Content::Mapping(entries) => {
            entries.iter().map(|entry| entry.key_span.clone()).find(|span| !span.is_empty())
        }
        Content::Sequence(items) => items.first().map(first),
        Content::Scalar { .. } => None,
    }
    .unwrap_or(node.span.start..node.span.start)
}

/// The word of an expression that an issue is about. CEL says `.` for a field and `(` for a call; their names are what people look for.
pub(super) fn word(source: &str, offset: usize) -> Range<usize> {
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
