//! Reads a document as a test suite.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_core::model::Time;
use regex::Regex;
use serde_json::{Value as Json, json};

use super::run::CaseVerdict;
use super::{
    CaseClusterData, CaseExpectation, CaseRequest, TestCase, TestSuite, TextPattern, pointer_step,
    report_unknown_fields,
};
use crate::diagnostic::{Diagnostic, Severity};

const CASE_FIELDS: [&str; 11] = [
    "name",
    "object",
    "objects",
    "file",
    "operation",
    "oldObject",
    "user",
    "namespace",
    "subresource",
    "world",
    "expect",
];
const CLUSTER_FIELDS: [&str; 6] =
    ["objects", "namespaces", "priorityClasses", "runtimeClasses", "capacity", "now"];
const EXPECT_FIELDS: [&str; 8] =
    ["verdict", "message", "messages", "policy", "warnings", "object", "patch", "changed"];
const OPERATIONS: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];

/// Reads a suite. `None` if one of the added diagnostics is an error.
#[must_use]
pub fn read(document: &Json, diagnostics: &mut Vec<Diagnostic>) -> Option<TestSuite> {
    let mut reader = SuiteReader { diagnostics: Vec::new() };
    let suite = reader.suite(document);
    let wrong = reader.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    diagnostics.append(&mut reader.diagnostics);
    (!wrong).then_some(suite)
}

struct SuiteReader {
    diagnostics: Vec<Diagnostic>,
}

fn present<'j>(json: &'j Json, key: &str) -> Option<&'j Json> {
    json.get(key).filter(|value| !value.is_null())
}

impl SuiteReader {
    fn wrong(&mut self, pointer: &str, message: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error(pointer, message));
    }

    fn text(&mut self, json: &Json, key: &str, pointer: &str) -> Option<String> {
        let value = present(json, key)?;
        if let Some(text) = value.as_str() {
            return Some(text.to_owned());
        }
        self.wrong(&pointer_step(pointer, key), "this must be text");
        None
    }

    fn items<'j>(&mut self, json: &'j Json, key: &str, pointer: &str) -> Vec<&'j Json> {
        match present(json, key) {
            None => Vec::new(),
            Some(Json::Array(items)) => items.iter().collect(),
            Some(_) => {
                self.wrong(&pointer_step(pointer, key), "this must be a list");
                Vec::new()
            }
        }
    }

    fn names(&mut self, json: &Json, key: &str, pointer: &str) -> Vec<String> {
        let items = self.items(json, key, pointer);
        let mut names = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            match item.as_str() {
                Some(name) => names.push(name.to_owned()),
                None => self.wrong(&format!("{}/{index}", pointer_step(pointer, key)), "this must be text"),
            }
        }
        names
    }

    fn suite(&mut self, document: &Json) -> TestSuite {
        report_unknown_fields(
            document,
            &["apiVersion", "kind", "metadata", "policies", "world", "cases"],
            "",
            &mut self.diagnostics,
        );
        let name = document.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default().to_owned();
        let cluster =
            present(document, "world").map(|cluster| self.cluster(cluster, "/world")).unwrap_or_default();
        let mut known = BTreeSet::new();
        let mut cases = Vec::new();
        for (index, case) in self.items(document, "cases", "").into_iter().enumerate() {
            let pointer = format!("/cases/{index}");
            let case = self.case(case, pointer, &cluster);
            if !case.name.is_empty() && !known.insert(case.name.clone()) {
                self.wrong(&format!("{}/name", case.pointer), format!("there are two cases {:?}", case.name));
            }
            cases.push(case);
        }
        if cases.is_empty() {
            self.wrong("/cases", "there are no cases: each has a name, an object and what to expect");
        }
        TestSuite { name, policies: self.names(document, "policies", ""), cases }
    }

    fn case(&mut self, json: &Json, pointer: String, cluster: &CaseClusterData) -> TestCase {
        report_unknown_fields(json, &CASE_FIELDS, &pointer, &mut self.diagnostics);
        let name = self.text(json, "name", &pointer).unwrap_or_default();
        if name.is_empty() {
            self.wrong(
                &pointer_step(&pointer, "name"),
                "a case needs a name: a sentence about the expected behavior",
            );
        }
        let file = self.text(json, "file", &pointer);
        let mut objects: Vec<Json> = present(json, "object").cloned().into_iter().collect();
        objects.extend(self.items(json, "objects", &pointer).into_iter().cloned());
        for object in objects.iter().filter(|object| !is_object(object)) {
            let message = if object.is_object() {
                "the object needs apiVersion and kind"
            } else {
                "this must be an object"
            };
            let key =
                if present(json, "object").is_some_and(|one| one == object) { "object" } else { "objects" };
            self.diagnostics.push(Diagnostic::error(pointer_step(&pointer, key), message));
        }
        if objects.is_empty() && file.is_none() {
            self.wrong(&pointer, "a case needs an object, objects or a file");
        }
        let operation = self.text(json, "operation", &pointer).unwrap_or_else(|| "CREATE".to_owned());
        if !OPERATIONS.contains(&operation.as_str()) {
            self.wrong(
                &pointer_step(&pointer, "operation"),
                format!("{operation:?} is not one of {}", OPERATIONS.join(", ")),
            );
        }
        let request_attributes = CaseRequest {
            operation,
            old_object: present(json, "oldObject").cloned(),
            user: present(json, "user").map(user),
            namespace: self.text(json, "namespace", &pointer).unwrap_or_default(),
            sub_resource: self.text(json, "subresource", &pointer).unwrap_or_default(),
        };
        let place = pointer_step(&pointer, "world");
        let own = present(json, "world").map(|own| self.cluster(own, &place)).unwrap_or_default();
        let expected = match present(json, "expect") {
            Some(expected) => self.expected(expected, &pointer_step(&pointer, "expect")),
            None => {
                self.wrong(
                    &pointer,
                    "a case needs what to expect: `expect: allowed`, or a mapping with verdict, message, ...",
                );
                CaseExpectation::default()
            }
        };
        TestCase { name, pointer, file, objects, request_attributes, cluster: cluster.with(own), expected }
    }

    fn cluster(&mut self, json: &Json, pointer: &str) -> CaseClusterData {
        report_unknown_fields(json, &CLUSTER_FIELDS, pointer, &mut self.diagnostics);
        let mut objects: Vec<Json> = Vec::new();
        for (index, object) in self.items(json, "objects", pointer).into_iter().enumerate() {
            if is_object(object) {
                objects.push(object.clone());
            } else {
                self.wrong(
                    &format!("{pointer}/objects/{index}"),
                    "this must be an object with apiVersion and kind",
                );
            }
        }
        for (name, labels) in present(json, "namespaces").and_then(Json::as_object).into_iter().flatten() {
            let text = |labels: &serde_json::Map<String, Json>| labels.values().all(Json::is_string);
            if labels.as_object().is_some_and(text) || labels.is_null() {
                let metadata = json!({ "name": name, "labels": labels });
                objects.push(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }));
            } else {
                let message = "these must be the labels of the namespace: a mapping of text, or {}";
                self.wrong(&pointer_step(&pointer_step(pointer, "namespaces"), name), message);
            }
        }
        let capacity =
            present(json, "capacity").and_then(|capacity| match serde_json::from_value(capacity.clone()) {
                Ok(capacity) => Some(Arc::new(capacity)),
                Err(error) => {
                    self.wrong(
                        &pointer_step(pointer, "capacity"),
                        format!("this is not a capacity report: {error}"),
                    );
                    None
                }
            });
        let now = self.text(json, "now", pointer).and_then(|text| {
            let read = Time::parse_rfc3339(&text);
            if read.is_none() {
                self.wrong(
                    &pointer_step(pointer, "now"),
                    format!("{text:?} is not a timestamp: write it like 2026-11-22T08:00:00Z"),
                );
            }
            read.map(|time| i64::try_from(time.0 / 1000).unwrap_or(i64::MAX))
        });
        CaseClusterData {
            objects,
            capacity,
            priority_classes: self.classes(
                json,
                "priorityClasses",
                pointer,
                |value| json!({ "value": value }),
            ),
            runtime_classes: self.classes(
                json,
                "runtimeClasses",
                pointer,
                |value| json!({ "handler": value }),
            ),
            now,
        }
    }

    /// Reads classes: a list of names, or a mapping from names to classes or to their main field.
    fn classes(
        &mut self,
        json: &Json,
        key: &str,
        pointer: &str,
        of: fn(&Json) -> Json,
    ) -> Option<BTreeMap<String, Json>> {
        match present(json, key)? {
            Json::Object(classes) => {
                let class = |value: &Json| if value.is_object() { value.clone() } else { of(value) };
                Some(classes.iter().map(|(name, value)| (name.clone(), class(value))).collect())
            }
            _ => Some(self.names(json, key, pointer).into_iter().map(|name| (name, json!({}))).collect()),
        }
    }

    fn expected(&mut self, json: &Json, pointer: &str) -> CaseExpectation {
        if json.is_string() {
            return CaseExpectation { verdict: self.verdict(json, pointer), ..CaseExpectation::default() };
        }
        let mut known = EXPECT_FIELDS.to_vec();
        known.push("ignored");
        report_unknown_fields(json, &known, pointer, &mut self.diagnostics);
        let mut messages: Vec<TextPattern> = Vec::new();
        if let Some(text) = self.text(json, "message", pointer) {
            messages.extend(self.pattern(&text, &pointer_step(pointer, "message")));
        }
        for (index, text) in self.names(json, "messages", pointer).into_iter().enumerate() {
            messages.extend(self.pattern(&text, &format!("{}/{index}", pointer_step(pointer, "messages"))));
        }
        let warnings = present(json, "warnings").map(|_| {
            let texts = self.names(json, "warnings", pointer).into_iter().enumerate();
            let place = pointer_step(pointer, "warnings");
            texts.filter_map(|(index, text)| self.pattern(&text, &format!("{place}/{index}"))).collect()
        });
        let policies = match present(json, "policy") {
            Some(Json::String(name)) => vec![name.clone()],
            _ => self.names(json, "policy", pointer),
        };
        if present(json, "patch").is_some_and(|patch| !patch.is_array()) {
            self.wrong(&pointer_step(pointer, "patch"), "this must be a list of operations (RFC 6902)");
        }
        let expected = CaseExpectation {
            verdict: present(json, "verdict")
                .and_then(|verdict| self.verdict(verdict, &pointer_step(pointer, "verdict"))),
            messages,
            policies,
            warnings,
            object: present(json, "object").cloned(),
            patch: present(json, "patch").cloned(),
            changed: self.flag(json, "changed", pointer),
            ignored: self.flag(json, "ignored", pointer).unwrap_or_default(),
        };
        if json.as_object().is_some_and(serde_json::Map::is_empty) {
            self.wrong(
                pointer,
                "nothing is expected, so nothing can fail: write verdict: allowed, denied or warned",
            );
        }
        expected
    }

    fn flag(&mut self, json: &Json, key: &str, pointer: &str) -> Option<bool> {
        let value = present(json, key)?;
        if !value.is_boolean() {
            self.wrong(&pointer_step(pointer, key), "this must be true or false");
        }
        value.as_bool()
    }

    fn verdict(&mut self, json: &Json, pointer: &str) -> Option<CaseVerdict> {
        let text = json.as_str().unwrap_or_default();
        let found = CaseVerdict::ALL.into_iter().find(|verdict| verdict.as_str() == text);
        if found.is_none() {
            let words = CaseVerdict::ALL.map(CaseVerdict::as_str);
            let meant = portcullis_core::model::closest(&text.to_lowercase(), words).map(str::to_owned);
            let meant = meant.or_else(|| {
                words.into_iter().find(|word| word.eq_ignore_ascii_case(text)).map(str::to_owned)
            });
            self.diagnostics.push(
                Diagnostic::error(pointer, format!("{json} is not one of {}", words.join(", ")))
                    .suggest(meant),
            );
        }
        found
    }

    fn pattern(&mut self, text: &str, pointer: &str) -> Option<TextPattern> {
        let inside =
            text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')).filter(|_| text.len() > 2);
        let Some(inside) = inside else { return Some(TextPattern { text: text.to_owned(), regex: None }) };
        match Regex::new(inside) {
            Ok(regex) => Some(TextPattern { text: text.to_owned(), regex: Some(regex) }),
            Err(error) => {
                let error = error.to_string();
                let last = error.lines().last().unwrap_or_default().trim();
                self.wrong(pointer, format!("this is not a valid regular expression: {last}"));
                None
            }
        }
    }
}

fn is_object(json: &Json) -> bool {
    let text = |key: &str| json.get(key).and_then(Json::as_str).is_some_and(|text| !text.is_empty());
    text("apiVersion") && text("kind")
}

/// Returns the user info of a name or of a mapping.
fn user(json: &Json) -> Json {
    match json.as_str() {
        Some(name) => json!({ "username": name, "groups": ["system:authenticated"] }),
        None => json.clone(),
    }
}

impl CaseClusterData {
    /// Returns the suite's data overlaid with the case's data.
    fn with(&self, own: Self) -> Self {
        Self {
            objects: self.objects.iter().cloned().chain(own.objects).collect(),
            capacity: own.capacity.or_else(|| self.capacity.clone()),
            priority_classes: own.priority_classes.or_else(|| self.priority_classes.clone()),
            runtime_classes: own.runtime_classes.or_else(|| self.runtime_classes.clone()),
            now: own.now.or(self.now),
        }
    }
}
