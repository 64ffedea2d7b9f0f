//! Loads policy files: bytes to a [`PolicySet`], or to all problems in them.
//!
//! | module | does |
//! |---|---|
//! | `source_text` | bytes to text with lines and columns |
//! | `document` | YAML trees to objects; diagnostics to line and column |
//! | `assemble` | objects to policies with bindings, parameters and exceptions |
//! | `standalone` | files that are not a set: test cases, manifests |
//! | `report` | problems as text, JSON, SARIF and GitHub annotations |
//!
//! Each object passes three checks: schema, API server rules, and expressions (see `checks`). An error in one
//! place never hides errors in other places. Line and column within an expression are looked up only for a
//! problem, through indentation, folding and escapes.

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

/// A file as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The name to show: the path as the user gave it.
    pub name: String,
    /// The content, which may be invalid UTF-8.
    pub bytes: Vec<u8>,
}

/// An error or warning with its location in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Error or warning; a set with an error cannot be used.
    pub severity: Severity,
    /// The file name.
    pub file: String,
    /// The line, from 1; 0 if the problem is about the whole file.
    pub line: usize,
    /// The column in characters, from 1; 0 if the problem is about the whole line or file.
    pub column: usize,
    /// The length in characters, at least 1.
    pub length: usize,
    /// What is wrong, without the location.
    pub message: String,
    /// A replacement that the user may have meant.
    pub suggestion: Option<String>,
    /// The object: `ValidatingAdmissionPolicy "no-latest"`.
    pub about: Option<String>,
}

impl Problem {
    /// Returns `FILE:LINE:COLUMN`, without the parts that are unknown.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.line, self.column) {
            (0, _) => self.file.clone(),
            (line, 0) => format!("{}:{line}", self.file),
            (line, column) => format!("{}:{line}:{column}", self.file),
        }
    }

    /// Returns the whole problem in one line, for logs.
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

/// Numbers of what was read.
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
    /// Objects that bindings can use as parameters.
    pub params: usize,
}

/// The result of loading files.
#[derive(Debug, Default)]
pub struct LoadResult {
    /// The set; `None` if a problem is an error.
    pub set: Option<PolicySet>,
    /// All problems, by file and location.
    pub problems: Vec<Problem>,
    /// Numbers of what was read, including objects with errors.
    pub counts: LoadCounts,
    /// Exceptions, each with a problem at its `expires`.
    expiries: Vec<(PolicyException, Problem)>,
}

impl LoadResult {
    /// Adds a warning for each exception that has expired at `now`, in Unix seconds.
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
        sort_problems(&mut self.problems);
        self
    }
}

/// Sorts by file and location, errors before warnings.
fn sort_problems(problems: &mut Vec<Problem>) {
    problems.sort_by(|a, b| {
        let key = |problem: &Problem| (problem.line, problem.column, std::cmp::Reverse(problem.severity));
        a.file.cmp(&b.file).then_with(|| key(a).cmp(&key(b))).then_with(|| a.message.cmp(&b.message))
    });
    problems.dedup();
}

/// Whether a file belongs to the set by its name. Files of `portcullis test` (`*.test.yaml`) do not.
fn is_policy_file(name: &str) -> bool {
    let stem = name
        .strip_suffix(".yaml")
        .or_else(|| name.strip_suffix(".yml"))
        .or_else(|| name.strip_suffix(".json"));
    stem.is_some_and(|stem| !stem.ends_with(".test")) || name == "-"
}

/// Loads the policy files of one set. Only `.yaml`, `.yml` and `.json` files and `-` are read, in the order
/// of their names.
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
                read_documents(&text, texts.len(), &mut documents, &mut problems);
                texts.push(text);
            }
            Err(problem) => problems.push(*problem),
        }
    }
    let mut assembled = assemble::assemble(&documents, &texts);
    problems.append(&mut assembled.problems);
    sort_problems(&mut problems);
    assembled.counts.files = wanted.len();
    let good = problems.iter().all(|problem| problem.severity < Severity::Error);
    let set = good.then(|| {
        let exceptions = assembled.exceptions.iter().map(|(exception, _)| exception.clone()).collect();
        PolicySet::new(set_hash(&wanted), assembled.policies, assembled.rules, exceptions)
    });
    LoadResult { set, problems, counts: assembled.counts, expiries: assembled.exceptions }
}

/// Returns the hash of a set over file names without directories, so that the mount path does not matter, and
/// file contents.
fn set_hash(files: &[&SourceFile]) -> String {
    sha256_hex(files.iter().flat_map(|file| {
        let name = file.name.rsplit('/').next().unwrap_or_default();
        [name.as_bytes(), &file.bytes]
    }))
}

/// Reads the objects of a file.
fn read_documents(
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
        push_objects(text, node, file, documents, problems);
    }
}

/// Adds an object, or the objects of a `List`.
fn push_objects(
    text: &SourceText<'_>,
    node: Node,
    file: usize,
    documents: &mut Vec<SourceDocument>,
    problems: &mut Vec<Problem>,
) {
    let json = node.json();
    if !json.is_object() {
        let message =
            "this is not a Kubernetes object: it must be a mapping with apiVersion and kind".to_owned();
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
                push_objects(text, item, file, documents, problems);
            }
        }
    }
}

/// Returns an issue of an expression outside of any file as a problem in a file named `name`.
pub(crate) fn problem_in_expression(
    name: &str,
    source: &str,
    issue: portcullis_cel::Issue,
    severity: Severity,
) -> Problem {
    let text = SourceText::new(name, source);
    let message = issue.message.replace(" (in container '')", "");
    let span = document::word_at(source, issue.offset);
    Problem { suggestion: issue.suggestion, ..text.problem(severity, &span, message) }
}

/// Reads any bytes as a policy file and checks the result's consistency. Fuzz target.
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
