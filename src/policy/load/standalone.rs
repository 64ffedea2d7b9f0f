//! Files that make no set: test cases, the objects they name, `GangPolicy`s that are explained. Read as policies are, with the place of everything.

use serde_json::Value as Json;

use super::document::{DocumentRole, SourceDocument};
use super::source_text::SourceText;
use super::{Problem, SourceFile, order, read};
use crate::cases::{self, TestSuite};
use crate::diagnostic::Severity;
use crate::gang_policy;

/// What became of a file of test cases.
#[derive(Debug, Default)]
pub struct LoadedTestSuites {
    /// The suites that are sound, with the line of each of their cases, from 1.
    pub suites: Vec<(TestSuite, Vec<usize>)>,
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
}

fn documents<'f>(
    file: &'f SourceFile,
    problems: &mut Vec<Problem>,
) -> Option<(SourceText<'f>, Vec<SourceDocument>)> {
    match SourceText::of(file) {
        Ok(text) => {
            let mut documents = Vec::new();
            read(&text, 0, &mut documents, problems);
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
                "this is no {} of portcullis.dev/v1alpha1, and only those belong into a file of tests",
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
    order(&mut made.problems);
    made
}

/// Reads the objects of a manifest, whatever they are.
#[must_use]
pub fn read_manifest(file: &SourceFile) -> (Vec<Json>, Vec<Problem>) {
    let mut problems = Vec::new();
    let documents = documents(file, &mut problems).map(|(_, documents)| documents).unwrap_or_default();
    (documents.into_iter().map(|document| document.json).collect(), problems)
}

/// What each `GangPolicy` of a file becomes, and everything that is wrong with them; other objects are passed over.
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
    order(&mut problems);
    (made, problems)
}
