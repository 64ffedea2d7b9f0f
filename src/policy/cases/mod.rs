//! Test cases of policies: `PolicyTest` files beside the policies (`limits.test.yaml` beside `limits.yaml`).
//!
//! A case is an object, or several as one manifest, in a world, and what is to become of it. Each object goes the way that a request goes:
//! mutating policies change it, validating policies judge what they made of it. Owns how cases are read, run and compared; never reads a
//! file and never prints. Equal inputs give equal reports.

mod compare;
mod read;
mod requests;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_core::model::closest;
use serde_json::Value as Json;

use crate::diagnostic::Diagnostic;
use crate::input::CapacityReport;

pub use read::read;
pub use run::{CaseMismatch, CaseReport, CaseVerdict};

/// The kind of these documents.
pub const POLICY_TEST_KIND: &str = "PolicyTest";

/// A document of test cases.
#[derive(Clone, Debug, PartialEq)]
pub struct TestSuite {
    /// Its name.
    pub name: String,
    /// The policy files it tests, relative to its own; empty for the file of its own name, or else all of its directory.
    pub policies: Vec<String>,
    /// The cases, in order.
    pub cases: Vec<TestCase>,
}

/// A test case.
#[derive(Clone, Debug, PartialEq)]
pub struct TestCase {
    /// Its name, unique within the suite.
    pub name: String,
    /// Where it stands in its document: a JSON pointer.
    pub pointer: String,
    /// A file of objects, relative to the file of the case.
    pub file: Option<String>,
    objects: Vec<Json>,
    asked: CaseRequest,
    cluster: CaseClusterData,
    expected: CaseExpectation,
}

/// How an object is asked about.
#[derive(Clone, Debug, PartialEq)]
struct CaseRequest {
    operation: String,
    old: Option<Json>,
    user: Option<Json>,
    namespace: String,
    sub_resource: String,
}

/// What a suite or a case says of the world.
#[derive(Clone, Debug, Default, PartialEq)]
struct CaseClusterData {
    /// Objects of any kind that matters: namespaces, groups, gangs, classes.
    objects: Vec<Json>,
    capacity: Option<Arc<CapacityReport>>,
    priority_classes: Option<BTreeMap<String, Json>>,
    runtime_classes: Option<BTreeMap<String, Json>>,
    now: Option<i64>,
}

/// What is to become of it.
#[derive(Clone, Debug, Default, PartialEq)]
struct CaseExpectation {
    verdict: Option<CaseVerdict>,
    /// Each must be in one of the refusals, or where it is let in in one of the warnings.
    messages: Vec<TextPattern>,
    /// Who refuses it, or changes it.
    policies: Vec<String>,
    /// All warnings, in any order.
    warnings: Option<Vec<TextPattern>>,
    /// What the object has in it afterwards.
    object: Option<Json>,
    /// The very patch.
    patch: Option<Json>,
    changed: Option<bool>,
    /// Rules that cannot be evaluated and are passed over are what is wanted.
    ignored: bool,
}

/// A part of a text, or `/a regular expression/`.
#[derive(Clone, Debug)]
struct TextPattern {
    text: String,
    regex: Option<regex::Regex>,
}

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl TextPattern {
    fn is_in(&self, text: &str) -> bool {
        self.regex.as_ref().map_or_else(|| text.contains(&self.text), |regex| regex.is_match(text))
    }
}

/// One step more of a JSON pointer.
fn step(pointer: &str, name: &str) -> String {
    portcullis_text::pointer::join(pointer, name)
}

/// Tells of fields that are none.
fn strict(value: &Json, known: &[&str], pointer: &str, diagnostics: &mut Vec<Diagnostic>) {
    let Some(fields) = value.as_object() else {
        return diagnostics.push(Diagnostic::error(pointer, "this must be a mapping"));
    };
    for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
        let meant = closest(name, known.iter().copied()).map(str::to_owned);
        let message = match &meant {
            Some(_) => format!("unknown field {name:?}"),
            None => format!("unknown field {name:?}: the fields are {}", known.join(", ")),
        };
        diagnostics.push(Diagnostic::error(step(pointer, name), message).at_key().suggest(meant));
    }
}
