//! Rules of the API server for policies and bindings beyond fields and types, from
//! `pkg/apis/admissionregistration/validation` of k8s.io/kubernetes.
//!
//! All violations are reported at once. Values of a wrong type are skipped, because `schema_check` reports
//! them.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::name_rules;
use super::schema_check::{self, not_allowed_value};
use crate::diagnostic::Diagnostic;
use crate::json::value_at;
use crate::schema::Schema;

const OPERATIONS: [&str; 5] = ["*", "CREATE", "UPDATE", "DELETE", "CONNECT"];
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CREATE", "UPDATE", "CONNECT"];
const DENIAL_REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const VALIDATION_ACTIONS: [&str; 3] = ["Deny", "Warn", "Audit"];
const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION_BYTES: usize = 5 * 1024;
const MAX_MATCH_CONDITIONS: usize = 64;

/// Returns the errors of a label selector in a Portcullis kind, which has no schema.
pub(crate) fn label_selector(value: &Json, pointer: &str) -> Vec<Diagnostic> {
    let policy = Schema::of("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy");
    let schema = ["spec", "matchConstraints", "objectSelector"]
        .into_iter()
        .fold(policy, |schema, name| schema.and_then(|schema| schema.field(name)));
    let mut diagnostics = schema.map(|schema| schema_check::check(value, schema)).unwrap_or_default();
    let mut checks = ObjectChecks { root: value, diagnostics: Vec::new() };
    checks.selector("");
    let reported: BTreeSet<String> =
        diagnostics.iter().map(|diagnostic| diagnostic.pointer.clone()).collect();
    diagnostics
        .extend(checks.diagnostics.into_iter().filter(|diagnostic| !reported.contains(&diagnostic.pointer)));
    for diagnostic in &mut diagnostics {
        diagnostic.pointer.insert_str(0, pointer);
    }
    diagnostics
}

/// An object and the violations found in it.
struct ObjectChecks<'a> {
    root: &'a Json,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> ObjectChecks<'a> {
    fn get(&self, pointer: &str) -> Option<&'a Json> {
        value_at(self.root, pointer).filter(|value| !value.is_null())
    }

    /// Returns the string at a pointer; empty if there is none.
    fn text(&self, pointer: &str) -> &'a str {
        self.get(pointer).and_then(Json::as_str).unwrap_or_default()
    }

    /// Whether the value is not a string. `schema_check` reports that.
    fn is_not_string(&self, pointer: &str) -> bool {
        self.get(pointer).is_some_and(|value| !value.is_string())
    }

    /// Returns the pointers of a list's items.
    fn items(&self, pointer: &str) -> Vec<String> {
        let count = self.get(pointer).and_then(Json::as_array).map_or(0, Vec::len);
        (0..count).map(|index| format!("{pointer}/{index}")).collect()
    }

    fn texts(&self, pointer: &str) -> Vec<&'a str> {
        let items = self.get(pointer).and_then(Json::as_array);
        items.into_iter().flatten().filter_map(Json::as_str).collect()
    }

    fn error(&mut self, pointer: &str, message: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error(pointer, message));
    }

    /// Reports a required string that is empty or absent. `schema_check` reports absent fields that the
    /// schema requires.
    fn required(&mut self, pointer: &str) -> bool {
        if self.is_not_string(pointer) {
            return false;
        }
        let empty = self.text(pointer).trim().is_empty();
        let name = pointer.rsplit('/').next().unwrap_or_default();
        if empty {
            self.error(pointer, format!("the field {name:?} is required"));
        }
        !empty
    }

    fn choice(&mut self, pointer: &str, choices: &[&str]) {
        let text = self.text(pointer);
        if self.get(pointer).is_some_and(Json::is_string) && !choices.contains(&text) {
            self.diagnostics.push(not_allowed_value(pointer, text, choices));
        }
    }

    /// Checks that an expression is present. The compiler checks the rest.
    fn expression(&mut self, pointer: &str) {
        self.required(pointer);
    }

    fn metadata(&mut self) {
        let name = self.text("/metadata/name");
        if name.is_empty() {
            if !self.is_not_string("/metadata/name") {
                self.error("/metadata/name", "the field \"metadata.name\" is required");
            }
        } else if let Err(why) = name_rules::subdomain(name) {
            self.error("/metadata/name", format!("{name:?} is not a valid object name: {why}"));
        }
        if self.get("/metadata/namespace").is_some() {
            let message = format!("a {} is cluster-scoped: remove this field", self.text("/kind"));
            self.diagnostics.push(Diagnostic::error("/metadata/namespace", message).at_key());
        }
    }

    fn policy(&mut self) {
        self.metadata();
        self.choice("/spec/failurePolicy", &["Fail", "Ignore"]);
        if self.get("/spec/paramKind").is_some() {
            self.param_kind();
        }
        if self.get("/spec/matchConstraints").is_none() {
            self.error("/spec/matchConstraints", "matchConstraints is required: it selects the requests");
        } else {
            self.match_resources("/spec/matchConstraints");
            let rules = "/spec/matchConstraints/resourceRules";
            if self.get(rules).is_none_or(|rules| rules.as_array().is_some_and(Vec::is_empty)) {
                self.error(
                    rules,
                    "matchConstraints needs at least one of resourceRules: they select the requests",
                );
            }
        }
        self.match_conditions();
        let mut known = BTreeSet::new();
        for variable in self.items("/spec/variables") {
            let place = format!("{variable}/name");
            let name = self.text(&place);
            if self.required(&place) && !portcullis_cel::is_identifier(name) {
                self.error(&place, format!("{name:?} is not a valid variable name: it must be a CEL identifier, letters, digits and _"));
            }
            if !name.is_empty() && !known.insert(name) {
                self.diagnostics.push(Diagnostic::warning(
                    &place,
                    format!("duplicate variable {name:?}; the last one is used"),
                ));
            }
            self.expression(&format!("{variable}/expression"));
        }
    }

    fn param_kind(&mut self) {
        let place = "/spec/paramKind/apiVersion";
        if self.required(place) {
            let (group, version) = match self.text(place).split_once('/') {
                Some((group, version)) => (group, version),
                None => ("", self.text(place)),
            };
            if !group.is_empty() && name_rules::subdomain(group).is_err() {
                self.error(place, format!("{group:?} is not a valid API group"));
            }
            if name_rules::label(version).is_err() {
                self.error(place, format!("{version:?} is not a valid version, such as v1 or v1beta1"));
            }
        }
        let place = "/spec/paramKind/kind";
        if self.required(place) && name_rules::label(&self.text(place).to_lowercase()).is_err() {
            self.error(place, format!("{:?} is no kind", self.text(place)));
        }
    }

    fn match_conditions(&mut self) {
        let all = self.items("/spec/matchConditions");
        if all.len() > MAX_MATCH_CONDITIONS {
            self.error(
                "/spec/matchConditions",
                format!("there are {} match conditions, more than {MAX_MATCH_CONDITIONS}", all.len()),
            );
        }
        let mut known = BTreeSet::new();
        for condition in all {
            let place = format!("{condition}/name");
            let name = self.text(&place);
            if self.required(&place)
                && let Err(why) = name_rules::qualified(name)
            {
                self.error(&place, format!("{name:?} is not a valid match condition name: {why}"));
            }
            if !name.is_empty() && !known.insert(name) {
                self.error(&place, format!("duplicate match condition {name:?}"));
            }
            self.expression(&format!("{condition}/expression"));
        }
    }

    fn match_resources(&mut self, place: &str) {
        self.choice(&format!("{place}/matchPolicy"), &["Equivalent", "Exact"]);
        self.selector(&format!("{place}/namespaceSelector"));
        self.selector(&format!("{place}/objectSelector"));
        for list in ["resourceRules", "excludeResourceRules"] {
            for rule in self.items(&format!("{place}/{list}")) {
                self.rule(&rule);
            }
        }
    }

    fn selector(&mut self, place: &str) {
        let labels = format!("{place}/matchLabels");
        for (key, value) in self.get(&labels).and_then(Json::as_object).into_iter().flatten() {
            let pointer = portcullis_text::pointer::join(&labels, key);
            if let Err(why) = name_rules::qualified(key) {
                self.diagnostics.push(
                    Diagnostic::error(pointer.as_str(), format!("{key:?} is not a valid label key: {why}"))
                        .at_key(),
                );
            }
            if let Some(Err(why)) = value.as_str().map(name_rules::label_value) {
                self.error(&pointer, format!("{value} is not a valid label value: {why}"));
            }
        }
        for requirement in self.items(&format!("{place}/matchExpressions")) {
            let (key, operator, values) = (
                format!("{requirement}/key"),
                format!("{requirement}/operator"),
                format!("{requirement}/values"),
            );
            if self.required(&key)
                && let Err(why) = name_rules::qualified(self.text(&key))
            {
                self.error(&key, format!("{:?} is not a valid label key: {why}", self.text(&key)));
            }
            if !self.required(&operator) {
                continue;
            }
            let count = self.get(&values).and_then(Json::as_array).map_or(0, Vec::len);
            match self.text(&operator) {
                word @ ("In" | "NotIn") if count == 0 => {
                    self.error(&requirement, format!("{word} needs at least one of values"));
                }
                word @ ("Exists" | "DoesNotExist") if count > 0 => {
                    self.error(&values, format!("{word} takes no values"));
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                _ => self.choice(&operator, &["In", "NotIn", "Exists", "DoesNotExist"]),
            }
            for value in self.items(&values) {
                if let Err(why) = name_rules::label_value(self.text(&value)) {
                    self.error(&value, format!("{:?} is not a valid label value: {why}", self.text(&value)));
                }
            }
        }
    }

    fn rule(&mut self, place: &str) {
        let mut known = BTreeSet::new();
        for name in self.items(&format!("{place}/resourceNames")) {
            if !name_rules::is_path_segment(self.text(&name)) {
                self.error(&name, format!("{:?} is not a valid object name", self.text(&name)));
            }
            if !known.insert(self.text(&name)) {
                self.error(&name, format!("the name {:?} is here twice", self.text(&name)));
            }
            let text = self.text(&name);
            if matches!(text, "." | "..") || text.contains(['/', '%']) {
                self.error(
                    &name,
                    format!("{text:?} is not a valid object name: it has no \"/\" and no \"%\""),
                );
            }
        }
        for (list, what) in [
            ("operations", "operations"),
            ("apiGroups", "API groups"),
            ("apiVersions", "API versions"),
            ("resources", "resources"),
        ] {
            let pointer = format!("{place}/{list}");
            let values = self.texts(&pointer);
            if self.get(&pointer).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty)) {
                self.error(&pointer, format!("the field {list:?} is required: \"*\" selects all"));
            }
            if list != "resources" && values.len() > 1 && values.contains(&"*") {
                self.error(&pointer, format!("\"*\" selects all {what}: remove the other entries"));
            }
            for item in self.items(&pointer) {
                if list == "operations" {
                    self.choice(&item, &OPERATIONS);
                } else if list != "apiGroups" && !self.is_not_string(&item) && self.text(&item).is_empty() {
                    self.error(&item, "it is empty");
                }
            }
        }
        self.resources(&format!("{place}/resources"));
        self.choice(&format!("{place}/scope"), &["*", "Cluster", "Namespaced"]);
    }

    fn resources(&mut self, place: &str) {
        let (mut whole, mut sub) = (BTreeSet::new(), BTreeSet::new());
        let (mut double, mut single, mut plain) = (false, false, false);
        let all = self.items(place);
        for item in &all {
            let written = self.text(item);
            double |= written == "*/*";
            single |= written == "*";
            let Some((resource, subresource)) = written.split_once('/') else {
                // As in the API server, only the last resource without a subresource is remembered.
                plain = written != "*";
                continue;
            };
            if whole.contains(resource) {
                self.error(item, format!("\"{resource}/*\" already includes it"));
            }
            if sub.contains(subresource) {
                self.error(item, format!("\"*/{subresource}\" already includes it"));
            }
            if subresource == "*" {
                whole.insert(resource);
            }
            if resource == "*" {
                sub.insert(subresource);
            }
        }
        if all.len() > 1 && double {
            self.error(place, "\"*/*\" selects all resources: remove the other entries");
        }
        if single && plain {
            self.error(place, "\"*\" selects all resources: only subresources are allowed beside it");
        }
    }

    /// Rejects DELETE, which a mutating policy cannot match.
    fn mutated_operations(&mut self, place: &str) {
        for rule in self.items(&format!("{place}/resourceRules")) {
            for operation in self.items(&format!("{rule}/operations")) {
                if self.text(&operation) == "DELETE" {
                    self.error(
                        &operation,
                        format!(
                            "a mutating policy cannot match DELETE: it must be one of {}",
                            MUTATING_OPERATIONS.join(", ")
                        ),
                    );
                }
            }
        }
    }

    fn binding(&mut self) {
        self.metadata();
        if self.required("/spec/policyName") {
            let name = self.text("/spec/policyName");
            if let Err(why) = name_rules::subdomain(name) {
                self.error("/spec/policyName", format!("{name:?} is not a valid policy name: {why}"));
            }
        }
        if self.get("/spec/matchResources").is_some() {
            self.match_resources("/spec/matchResources");
        }
        if self.get("/spec/paramRef").is_none() {
            return;
        }
        self.selector("/spec/paramRef/selector");
        let (name, selector) = (self.text("/spec/paramRef/name"), self.get("/spec/paramRef/selector"));
        if !name.is_empty() && selector.is_some() {
            self.diagnostics.push(
                Diagnostic::error("/spec/paramRef/selector", "name and selector are mutually exclusive")
                    .at_key(),
            );
        }
        if name.is_empty() && selector.is_none() {
            self.error("/spec/paramRef", "one of name and selector is required");
        }
        if !name_rules::is_path_segment(name) {
            self.error("/spec/paramRef/name", format!("{name:?} is not a valid object name"));
        }
        if self.required("/spec/paramRef/parameterNotFoundAction") {
            self.choice("/spec/paramRef/parameterNotFoundAction", &["Allow", "Deny"]);
        }
    }

    fn validations(&mut self) {
        let (rules, annotations) = (self.items("/spec/validations"), self.items("/spec/auditAnnotations"));
        let absent =
            |list: &str| self.get(list).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty));
        if absent("/spec/validations") && absent("/spec/auditAnnotations") {
            self.error("/spec/validations", "at least one of validations or auditAnnotations is required");
        }
        for rule in rules {
            self.expression(&format!("{rule}/expression"));
            for field in ["message", "messageExpression"] {
                let place = format!("{rule}/{field}");
                let text = self.text(&place);
                if !text.is_empty() && text.trim().is_empty() {
                    self.error(&place, format!("{field} is empty: remove it"));
                }
            }
            let place = format!("{rule}/message");
            if self.text(&place).trim().contains(['\n', '\r']) {
                self.error(&place, "a message must be one line");
            }
            self.choice(&format!("{rule}/reason"), &DENIAL_REASONS);
        }
        if annotations.len() > MAX_AUDIT_ANNOTATIONS {
            self.error(
                "/spec/auditAnnotations",
                format!(
                    "there are {} audit annotations, more than {MAX_AUDIT_ANNOTATIONS}",
                    annotations.len()
                ),
            );
        }
        let mut known = BTreeSet::new();
        for annotation in annotations {
            let place = format!("{annotation}/key");
            let key = self.text(&place);
            if self.required(&place)
                && let Err(why) = name_rules::qualified(&format!("{}/{key}", self.text("/metadata/name")))
            {
                self.error(&place, format!("{key:?} is not a valid audit annotation key after the policy's name and a slash: {why}"));
            }
            if !key.is_empty() && !known.insert(key) {
                self.error(&place, format!("duplicate audit annotation {key:?}"));
            }
            let place = format!("{annotation}/valueExpression");
            self.expression(&place);
            let length = self.text(&place).trim().len();
            if length > MAX_VALUE_EXPRESSION_BYTES {
                self.error(&place, format!("it has {length} bytes, more than {MAX_VALUE_EXPRESSION_BYTES}"));
            }
        }
    }

    fn mutations(&mut self) {
        self.mutated_operations("/spec/matchConstraints");
        if self.get("/spec/mutations").is_none_or(|list| list.as_array().is_some_and(Vec::is_empty)) {
            self.error("/spec/mutations", "at least one of mutations is required");
        }
        for mutation in self.items("/spec/mutations") {
            let place = format!("{mutation}/patchType");
            if !self.required(&place) {
                continue;
            }
            let (mine, other) = match self.text(&place) {
                "JSONPatch" => ("jsonPatch", "applyConfiguration"),
                "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
                _ => {
                    self.choice(&place, &["ApplyConfiguration", "JSONPatch"]);
                    continue;
                }
            };
            let written = self.text(&place);
            if self.get(&format!("{mutation}/{mine}")).is_none() {
                self.error(&mutation, format!("{mine} is required when patchType is {written}"));
            } else {
                self.expression(&format!("{mutation}/{mine}/expression"));
            }
            let place = format!("{mutation}/{other}");
            if self.get(&place).is_some() {
                self.diagnostics.push(
                    Diagnostic::error(place, format!("it is not allowed when patchType is {written}"))
                        .at_key(),
                );
            }
        }
        if self.required("/spec/reinvocationPolicy") {
            self.choice("/spec/reinvocationPolicy", &["Never", "IfNeeded"]);
        }
    }

    fn actions(&mut self) {
        let place = "/spec/validationActions";
        if self.get(place).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty)) {
            self.error(place, "the field \"validationActions\" is required: Deny, Warn or Audit");
        }
        let mut known = BTreeSet::new();
        for action in self.items(place) {
            self.choice(&action, &VALIDATION_ACTIONS);
            if !known.insert(self.text(&action)) {
                self.error(&action, format!("{:?} is here twice", self.text(&action)));
            }
        }
        if known.contains("Deny") && known.contains("Warn") {
            self.error(place, "Deny and Warn are mutually exclusive: a denial already shows the message");
        }
    }
}

fn checked(document: &Json, checks: impl FnOnce(&mut ObjectChecks<'_>)) -> Vec<Diagnostic> {
    let mut all = ObjectChecks { root: document, diagnostics: Vec::new() };
    checks(&mut all);
    all.diagnostics
}

/// Checks a `ValidatingAdmissionPolicy`.
pub(crate) fn validating(document: &Json) -> Vec<Diagnostic> {
    checked(document, |checks| {
        checks.policy();
        checks.validations();
    })
}

/// Checks a `ValidatingAdmissionPolicyBinding`.
pub(crate) fn validating_binding(document: &Json) -> Vec<Diagnostic> {
    checked(document, |checks| {
        checks.binding();
        checks.actions();
    })
}

/// Checks a `MutatingAdmissionPolicy`.
pub(crate) fn mutating(document: &Json) -> Vec<Diagnostic> {
    checked(document, |checks| {
        checks.policy();
        checks.mutations();
    })
}

/// Checks a `MutatingAdmissionPolicyBinding`.
pub(crate) fn mutating_binding(document: &Json) -> Vec<Diagnostic> {
    checked(document, |checks| {
        checks.binding();
        checks.mutated_operations("/spec/matchResources");
    })
}

#[cfg(test)]
#[path = "api_rules_tests.rs"]
mod tests;
