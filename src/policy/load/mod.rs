//! Files to a [`PolicySet`], or everything that is wrong with them.
//!
//! ```text
//! text       bytes -> text, with lines and columns        strict     fields and types, by schema
//!                                                          admission  what the API server demands besides
//! document   trees -> objects, faults -> places           typed      expressions again, with kinds that are known; costs
//! assemble   objects -> policies with bindings, params and exceptions: what refers to what
//! single     files that make no set: test cases, manifests
//! show       problems for people                          formats    problems for programs
//! ```
//!
//! Everything that is wrong is told at once: an object that is wrong in one place is looked at in all others.

mod assemble;
mod document;
mod report;
mod source_text;
mod standalone;

use std::fmt;

use portcullis_text::hash::sha256_hex;
use portcullis_text::yaml::{self, Content, Node};
use serde_json::Value as Json;

use crate::diagnostic::Severity;
use crate::set::{PolicyException, PolicySet};
use document::SourceDocument;
use source_text::SourceText;

pub use report::{problems_as_github_annotations, problems_as_json, problems_as_sarif, render_problems};
pub use standalone::{LoadedTestSuites, read_manifest, read_test_suites, translate_gang_policies};

/// A file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The name to show: a path as the user gave it.
    pub name: String,
    /// Its bytes, which may be no text.
    pub bytes: Vec<u8>,
}

/// Something wrong, at its place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the set can be used.
    pub severity: Severity,
    /// The file.
    pub file: String,
    /// From 1; 0 when the whole file is meant.
    pub line: usize,
    /// In characters, from 1; 0 when the whole line or file is meant.
    pub column: usize,
    /// How many characters are meant, at least 1.
    pub length: usize,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What may have been meant.
    pub suggestion: Option<String>,
    /// What it is about: `ValidatingAdmissionPolicy "no-latest"`.
    pub about: Option<String>,
}

impl Problem {
    /// `FILE:LINE:COLUMN`, without what is not known.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.line, self.column) {
            (0, _) => self.file.clone(),
            (line, 0) => format!("{}:{line}", self.file),
            (line, column) => format!("{}:{line}:{column}", self.file),
        }
    }

    /// All of it in one line, for logs.
    #[must_use]
    pub fn one_line(&self) -> String {
        let about = self.about.as_ref().map(|about| format!("{about}: ")).unwrap_or_default();
        let meant =
            self.suggestion.as_ref().map(|meant| format!(", did you mean {meant:?}?")).unwrap_or_default();
        format!("{}: {about}{}{meant}", self.place(), self.message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.one_line())
    }
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCounts {
    /// Files.
    pub files: usize,
    /// Policies of all kinds.
    pub policies: usize,
    /// Validations, audit annotations and mutations.
    pub rules: usize,
    /// Bindings.
    pub bindings: usize,
    /// Exceptions.
    pub exceptions: usize,
    /// Objects that bindings can hand to policies.
    pub params: usize,
}

/// What became of files.
#[derive(Debug, Default)]
pub struct LoadResult {
    /// The set; none when a problem is an error.
    pub set: Option<PolicySet>,
    /// Everything that was found, by file and place.
    pub problems: Vec<Problem>,
    /// How much was read, also of what is wrong.
    pub counts: LoadCounts,
    /// Exceptions with where they end.
    expiries: Vec<(PolicyException, Problem)>,
}

impl LoadResult {
    /// Warns of what has ended by a moment, in Unix seconds.
    #[must_use]
    pub fn warn_expired(mut self, now: i64) -> Self {
        for (exception, place) in &self.expiries {
            if let Some(diagnostic) = exception.expired(now) {
                self.problems.push(Problem {
                    severity: diagnostic.severity,
                    message: diagnostic.message,
                    ..place.clone()
                });
            }
        }
        order(&mut self.problems);
        self
    }
}

/// By file and place; what is worse first.
fn order(problems: &mut Vec<Problem>) {
    problems.sort_by(|a, b| {
        let key = |problem: &Problem| (problem.line, problem.column, std::cmp::Reverse(problem.severity));
        a.file.cmp(&b.file).then_with(|| key(a).cmp(&key(b))).then_with(|| a.message.cmp(&b.message))
    });
    problems.dedup();
}

/// Whether a file is read by its name. Cases of `portcullis test` lie beside policies and are none.
fn is_policy_file(name: &str) -> bool {
    let stem = name
        .strip_suffix(".yaml")
        .or_else(|| name.strip_suffix(".yml"))
        .or_else(|| name.strip_suffix(".json"));
    stem.is_some_and(|stem| !stem.ends_with(".test")) || name == "-"
}

/// Reads policy files: all of one set. Names decide the order, and the suffix (`.yaml`, `.yml`, `.json`) what is read; `-` is read, too.
#[must_use]
pub fn load(files: &[SourceFile]) -> LoadResult {
    let mut wanted: Vec<&SourceFile> = files.iter().filter(|file| is_policy_file(&file.name)).collect();
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut problems = Vec::new();
    let mut documents = Vec::new();
    let mut texts = Vec::new();
    for file in &wanted {
        match SourceText::of(file) {
            Ok(text) => {
                read(&text, texts.len(), &mut documents, &mut problems);
                texts.push(text);
            }
            Err(problem) => problems.push(*problem),
        }
    }
    let mut assembled = assemble::assemble(&documents, &texts);
    problems.append(&mut assembled.problems);
    order(&mut problems);
    assembled.counts.files = wanted.len();
    let good = problems.iter().all(|problem| problem.severity < Severity::Error);
    let set = good.then(|| {
        let exceptions = assembled.exceptions.iter().map(|(exception, _)| exception.clone()).collect();
        PolicySet::new(hash(&wanted), assembled.policies, assembled.rules, exceptions)
    });
    LoadResult { set, problems, counts: assembled.counts, expiries: assembled.exceptions }
}

/// Names a set by its files: their names without directories, so that a set is the same wherever it is mounted, and their bytes.
fn hash(files: &[&SourceFile]) -> String {
    sha256_hex(files.iter().flat_map(|file| {
        let name = file.name.rsplit('/').next().unwrap_or_default();
        [name.as_bytes(), &file.bytes]
    }))
}

/// Reads the objects of a file.
fn read(
    text: &SourceText<'_>,
    file: usize,
    documents: &mut Vec<SourceDocument>,
    problems: &mut Vec<Problem>,
) {
    let (nodes, flaws) = yaml::read(text.text, text.is_json());
    for flaw in flaws {
        let severity = if flaw.is_warning { Severity::Warning } else { Severity::Error };
        problems.push(text.problem(severity, &flaw.span, flaw.message));
    }
    for node in nodes {
        objects(text, node, file, documents, problems);
    }
}

/// An object, or the objects of a list of them.
fn objects(
    text: &SourceText<'_>,
    node: Node,
    file: usize,
    documents: &mut Vec<SourceDocument>,
    problems: &mut Vec<Problem>,
) {
    let json = node.json();
    if !json.is_object() {
        let message =
            "this is no Kubernetes object: it must be a mapping with apiVersion and kind".to_owned();
        problems.push(text.problem(Severity::Error, &(node.span.start..node.span.start), message));
        return;
    }
    let kind = json.get("kind").and_then(Json::as_str).unwrap_or_default();
    let is_list = kind.ends_with("List") && json.get("items").is_some_and(Json::is_array);
    if !is_list {
        documents.push(SourceDocument::new(file, node, json));
        return;
    }
    let Content::Mapping(entries) = node.content else { return };
    for entry in entries.into_iter().filter(|entry| entry.key == "items") {
        if let Content::Sequence(items) = entry.value.content {
            for item in items {
                objects(text, item, file, documents, problems);
            }
        }
    }
}

/// An issue of an expression that is no part of a file, as a problem in a file of that name.
pub(crate) fn in_expression(
    name: &str,
    source: &str,
    issue: portcullis_cel::Issue,
    severity: Severity,
) -> Problem {
    let text = SourceText::new(name, source);
    let message = issue.message.replace(" (in container '')", "");
    let span = document::word(source, issue.offset);
    Problem { suggestion: issue.suggestion, ..text.problem(severity, &span, message) }
}

/// Reads any bytes as a policy file: for fuzzing. What comes of it must hold together.
#[doc(hidden)]
pub fn fuzz_load(bytes: &[u8]) {
    for name in ["fuzz.yaml", "fuzz.json"] {
        let files = [SourceFile { name: name.to_owned(), bytes: bytes.to_owned() }];
        let loaded = load(&files).warn_expired(0);
        let errors = loaded.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
        assert_eq!(loaded.set.is_none(), errors > 0, "a set exists just when there is no error");
        let lines = bytes.split(|byte| *byte == b'\n').count();
        for problem in &loaded.problems {
            assert!(
                problem.line <= lines && problem.length > 0 && !problem.message.is_empty(),
                "{problem:?}"
            );
        }
        let again = load(&files).warn_expired(0);
        assert_eq!(loaded.problems, again.problems, "the same file is read the same way");
        assert!(loaded.problems.is_empty() || !render_problems(&loaded.problems, &files).is_empty());
        let _ = problems_as_sarif(&loaded.problems);
    }
}

#[cfg(test)]
mod tests;
