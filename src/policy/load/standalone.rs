//! Reads files that are not part of a set: test cases, the manifests they name, and `GangPolicy` documents
//! for `portcullis policy explain`. Problems have locations as in policy files.

use serde_json::Value as Json;

use super::document::{DocumentRole, SourceDocument};
use super::source_text::SourceText;
use super::{Problem, SourceFile, read_documents, sort_problems};
use crate::cases::{self, TestSuite};
use crate::diagnostic::Severity;
use crate::gang_policy;

/// The result of reading a file of test cases.
#[derive(Debug, Default)]
pub struct LoadedTestSuites {
    /// The valid suites, each with the lines of its cases, from 1.
    pub suites: Vec<(TestSuite, Vec<usize>)>,
    /// All problems.
    pub problems: Vec<Problem>,
}

fn documents<'f>(
    file: &'f SourceFile,
    problems: &mut Vec<Problem>,
) -> Option<(SourceText<'f>, Vec<SourceDocument>)> {
    match SourceText::of(file) {
        Ok(text) => {
            let mut documents = Vec::new();
            read_documents(&text, 0, &mut documents, problems);
            Some((text, documents))
        }
        Err(problem) => {
            problems.push(*problem);
            None
        }
    }
}

/// Reads a file of test cases.
#[must_use]
pub fn read_test_suites(file: &SourceFile) -> LoadedTestSuites {
    let mut made = LoadedTestSuites::default();
    let Some((text, documents)) = documents(file, &mut made.problems) else { return made };
    for document in &documents {
        let start = document.start();
        if document.role() != DocumentRole::Test {
            let message = format!(
                "this is not a {} of portcullis.dev/v1alpha1; a test file may contain only those",
                cases::POLICY_TEST_KIND
            );
            made.problems.push(text.problem(Severity::Error, &(start.start..start.start), message));
            continue;
        }
        let mut diagnostics = Vec::new();
        let suite = cases::read(&document.json, &mut diagnostics);
        made.problems.extend(diagnostics.into_iter().map(|diagnostic| document.problem(&text, diagnostic)));
        if let Some(suite) = suite {
            let line = |pointer: &str| text.position(document.node.at(pointer).0.span.start).0;
            let lines = suite.cases.iter().map(|case| line(&case.pointer)).collect();
            made.suites.push((suite, lines));
        }
    }
    sort_problems(&mut made.problems);
    made
}

/// Reads the objects of a manifest, of any kind.
#[must_use]
pub fn read_manifest(file: &SourceFile) -> (Vec<Json>, Vec<Problem>) {
    let mut problems = Vec::new();
    let documents = documents(file, &mut problems).map(|(_, documents)| documents).unwrap_or_default();
    (documents.into_iter().map(|document| document.json).collect(), problems)
}

/// Translates each `GangPolicy` of a file, and returns all problems. Other objects are ignored.
#[must_use]
pub fn translate_gang_policies(file: &SourceFile) -> (Vec<Json>, Vec<Problem>) {
    let (mut made, mut problems) = (Vec::new(), Vec::new());
    let Some((text, documents)) = documents(file, &mut problems) else { return (made, problems) };
    let policies: Vec<&SourceDocument> =
        documents.iter().filter(|document| document.role() == DocumentRole::GangPolicy).collect();
    if policies.is_empty() {
        problems.push(text.problem(
            Severity::Error,
            &(0..0),
            format!("there is no {} in this file", gang_policy::GANG_POLICY_KIND),
        ));
    }
    for document in policies {
        let mut diagnostics = Vec::new();
        made.extend(gang_policy::translate(&document.json, &mut diagnostics).unwrap_or_default());
        problems.extend(diagnostics.into_iter().map(|diagnostic| document.problem(&text, diagnostic)));
    }
    sort_problems(&mut problems);
    (made, problems)
}
