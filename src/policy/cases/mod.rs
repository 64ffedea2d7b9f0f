//! Test cases of policies: `PolicyTest` files beside the policies (`limits.test.yaml` beside `limits.yaml`).
//!
//! A case has one or more objects, cluster data, and an expectation. Each object takes the path of a request:
//! mutating policies change it, validating policies evaluate the result. Each object is part of the cluster
//! data for the objects after it. Cluster data that the case does not declare is unknown, as in a replica
//! that has just started. This module reads, runs and compares cases; it neither reads files nor prints.
//! Equal inputs give equal reports.

mod compare;
mod read;
mod requests;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_core::capacity::CapacityReport;
use portcullis_core::model::closest;
use serde_json::Value as Json;

use crate::diagnostic::Diagnostic;

pub use read::read;
pub use run::{CaseMismatch, CaseReport, CaseVerdict};

/// The kind of the documents.
pub const POLICY_TEST_KIND: &str = "PolicyTest";

/// A document of test cases.
#[derive(Clone, Debug, PartialEq)]
pub struct TestSuite {
    /// The name of the suite.
    pub name: String,
    /// Policy files under test, relative to the suite's file. If empty: the policy file of the same name, or
    /// else the whole directory.
    pub policies: Vec<String>,
    /// The cases, in order.
    pub cases: Vec<TestCase>,
}

/// A test case.
#[derive(Clone, Debug, PartialEq)]
pub struct TestCase {
    /// The name, unique within the suite.
    pub name: String,
    /// JSON pointer of the case in its document.
    pub pointer: String,
    /// A file of objects, relative to the suite's file.
    pub file: Option<String>,
    objects: Vec<Json>,
    request_attributes: CaseRequest,
    cluster: CaseClusterData,
    expected: CaseExpectation,
}

/// Attributes of the requests of a case.
#[derive(Clone, Debug, PartialEq)]
struct CaseRequest {
    operation: String,
    old_object: Option<Json>,
    user: Option<Json>,
    namespace: String,
    sub_resource: String,
}

/// The cluster data that a suite or a case declares.
#[derive(Clone, Debug, Default, PartialEq)]
struct CaseClusterData {
    /// Namespaces, groups, gangs and classes; other kinds are ignored.
    objects: Vec<Json>,
    capacity: Option<Arc<CapacityReport>>,
    priority_classes: Option<BTreeMap<String, Json>>,
    runtime_classes: Option<BTreeMap<String, Json>>,
    now: Option<i64>,
}

/// What a case expects.
#[derive(Clone, Debug, Default, PartialEq)]
struct CaseExpectation {
    verdict: Option<CaseVerdict>,
    /// Each must match one of the denials, or one of the warnings if the request is allowed.
    messages: Vec<TextPattern>,
    /// Policies that must deny or mutate.
    policies: Vec<String>,
    /// All warnings, in any order.
    warnings: Option<Vec<TextPattern>>,
    /// What the object must contain afterwards.
    object: Option<Json>,
    /// The exact patch.
    patch: Option<Json>,
    changed: Option<bool>,
    /// Whether rules must fail and be ignored.
    ignored: bool,
}

/// A substring, or `/a regular expression/`.
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

/// Appends a step to a JSON pointer.
fn pointer_step(pointer: &str, name: &str) -> String {
    portcullis_text::pointer::join(pointer, name)
}

/// Reports unknown fields.
fn report_unknown_fields(value: &Json, known: &[&str], pointer: &str, diagnostics: &mut Vec<Diagnostic>) {
    let Some(fields) = value.as_object() else {
        return diagnostics.push(Diagnostic::error(pointer, "this must be a mapping"));
    };
    for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
        let meant = closest(name, known.iter().copied()).map(str::to_owned);
        let message = match &meant {
            Some(_) => format!("unknown field {name:?}"),
            None => format!("unknown field {name:?}: the fields are {}", known.join(", ")),
        };
        diagnostics.push(Diagnostic::error(pointer_step(pointer, name), message).at_key().suggest(meant));
    }
}
