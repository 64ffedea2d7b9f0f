//! Files that make no set: test cases, the objects they name, `GangPolicy`s that are explained. Read as policies are, with the place of everything.

use serde_json::Value as Json;

use super::document::{Document, Role};
use super::text::Text;
use super::{Problem, SourceFile, order, read};
use crate::cases::{self, Suite};
use crate::fault::Severity;
use crate::gang;

/// What became of a file of test cases.
#[derive(Debug, Default)]
pub struct Cases {
    /// The suites that are sound, with the line of each of their cases, from 1.
    pub suites: Vec<(Suite, Vec<usize>)>,
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
}

fn documents<'f>(file: &'f SourceFile, problems: &mut Vec<Problem>) -> Option<(Text<'f>, Vec<Document>)> {
    match Text::of(file) {
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
pub fn test_cases(file: &SourceFile) -> Cases {
    let mut made = Cases::default();
    let Some((text, documents)) = documents(file, &mut made.problems) else { return made };
    for document in &documents {
        let start = document.start();
        if document.role() != Role::Test {
            let message = format!(
                "this is no {} of portcullis.dev/v1alpha1, and only those belong into a file of tests",
                cases::KIND
            );
            made.problems.push(text.problem(Severity::Error, &(start.start..start.start), message));
            continue;
        }
        let mut faults = Vec::new();
        let suite = cases::read(&document.json, &mut faults);
        made.problems.extend(faults.into_iter().map(|fault| document.problem(&text, fault)));
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
pub fn manifest(file: &SourceFile) -> (Vec<Json>, Vec<Problem>) {
    let mut problems = Vec::new();
    let documents = documents(file, &mut problems).map(|(_, documents)| documents).unwrap_or_default();
    (documents.into_iter().map(|document| document.json).collect(), problems)
}

/// What each `GangPolicy` of a file becomes, and everything that is wrong with them; other objects are passed over.
#[must_use]
pub fn explain(file: &SourceFile) -> (Vec<Json>, Vec<Problem>) {
    let (mut made, mut problems) = (Vec::new(), Vec::new());
    let Some((text, documents)) = documents(file, &mut problems) else { return (made, problems) };
    let policies: Vec<&Document> =
        documents.iter().filter(|document| document.role() == Role::GangPolicy).collect();
    if policies.is_empty() {
        problems.push(text.problem(
            Severity::Error,
            &(0..0),
            format!("there is no {} in this file", gang::KIND),
        ));
    }
    for document in policies {
        let mut faults = Vec::new();
        made.extend(gang::lower(&document.json, &mut faults).unwrap_or_default());
        problems.extend(faults.into_iter().map(|fault| document.problem(&text, fault)));
    }
    order(&mut problems);
    (made, problems)
}
