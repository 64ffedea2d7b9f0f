//! `PolicyException`: some objects need not follow a policy until a date. An exception names an owner and a
//! reason.
//!
//! The policy is still evaluated. Its denials are allowed and recorded in log and audit. After the date the
//! policy denies again. This module owns the kind and its meaning; it never changes a policy.

use portcullis_core::model::closest;
use portcullis_text::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::api::LabelSelector;
use crate::checks::label_selector;
use crate::diagnostic::Diagnostic;
use crate::evaluation::{AppliedException, Denial, LabelMatcher, ValidationResult};
use crate::input::AdmissionRequest;

/// An exception from one or more policies.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyException {
    name: String,
    owner: String,
    reason: String,
    /// Unix seconds.
    expires: i64,
    /// `expires` as written in the file, for messages.
    expires_text: String,
    policies: Vec<ExceptionTarget>,
    namespaces: Vec<String>,
    names: Vec<String>,
    selector: Option<LabelMatcher>,
}

/// A policy, or some validations of it, that the exception covers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExceptionTarget {
    name: String,
    validations: Option<Vec<u64>>,
}

const SPEC_FIELDS: [&str; 5] = ["owner", "reason", "expires", "policies", "match"];
const MATCH_FIELDS: [&str; 3] = ["namespaces", "names", "selector"];
const TARGET_FIELDS: [&str; 2] = ["name", "validations"];
const TOP_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];
const METADATA_FIELDS: [&str; 3] = ["name", "labels", "annotations"];

/// Reads an exception strictly and collects every error.
struct ExceptionReader<'a> {
    root: &'a Json,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> ExceptionReader<'a> {
    fn get(&self, pointer: &str) -> Option<&'a Json> {
        self.root.pointer(pointer).filter(|value| !value.is_null())
    }

    fn error(&mut self, pointer: &str, message: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error(pointer, message));
    }

    /// Returns the mapping at a pointer and reports unknown fields. `None` if it is absent or not a mapping.
    fn mapping(&mut self, pointer: &str, fields: &[&str]) -> Option<&'a Map<String, Json>> {
        let value = self.get(pointer)?;
        let Some(found) = value.as_object() else {
            self.error(pointer, "this must be a mapping");
            return None;
        };
        for key in found.keys().filter(|key| !fields.contains(&key.as_str())) {
            let meant = closest(key, fields.iter().copied()).map(str::to_owned);
            let place = portcullis_text::pointer::join(pointer, key);
            self.diagnostics
                .push(Diagnostic::error(place, format!("unknown field {key:?}")).at_key().suggest(meant));
        }
        Some(found)
    }

    fn text(&mut self, pointer: &str, why: &str) -> &'a str {
        let name = pointer.rsplit('/').next().unwrap_or_default();
        match self.get(pointer) {
            Some(Json::String(text)) if !text.trim().is_empty() => text,
            Some(Json::String(_)) | None => {
                self.error(pointer, format!("the field {name:?} is required: {why}"));
                ""
            }
            Some(_) => {
                self.error(pointer, "this must be text");
                ""
            }
        }
    }

    fn texts(&mut self, pointer: &str) -> Vec<String> {
        let Some(value) = self.get(pointer) else { return Vec::new() };
        let Some(items) = value.as_array() else {
            self.error(pointer, "this must be a list");
            return Vec::new();
        };
        let mut found = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match item.as_str().filter(|text| !text.is_empty()) {
                Some(text) => found.push(text.to_owned()),
                None => self.error(&format!("{pointer}/{index}"), "this must be text, and not empty"),
            }
        }
        found
    }

    fn target(&mut self, pointer: &str) -> Option<ExceptionTarget> {
        let fields = self.mapping(pointer, &TARGET_FIELDS);
        if fields.is_none() {
            self.error(pointer, "this must be a mapping with the name of a policy");
        }
        let name = self.text(&format!("{pointer}/name"), "which policy?").to_owned();
        let place = format!("{pointer}/validations");
        let validations = match self.get(&place) {
            None => None,
            Some(Json::Array(items)) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    if !item.is_u64() {
                        self.error(
                            &format!("{place}/{index}"),
                            "this must be the position of a validation in its policy, from 0",
                        );
                    }
                }
                Some(items.iter().filter_map(Json::as_u64).collect())
            }
            Some(_) => {
                self.error(
                    &place,
                    "this must be a list of positions of validations, from 0; without it, the exception covers all",
                );
                None
            }
        };
        fields.map(|_| ExceptionTarget { name, validations })
    }
}

impl PolicyException {
    /// Reads a document.
    ///
    /// # Errors
    /// Every error in it.
    pub fn read(document: &Json) -> Result<Self, Vec<Diagnostic>> {
        let mut reader = ExceptionReader { root: document, diagnostics: Vec::new() };
        reader.mapping("", &TOP_FIELDS);
        reader.mapping("/metadata", &METADATA_FIELDS);
        let name = reader.text("/metadata/name", "logs name the exception by it").to_owned();
        if reader.get("/spec").is_none() {
            reader.error("/spec", "the field \"spec\" is required");
        }
        reader.mapping("/spec", &SPEC_FIELDS);
        let owner = reader.text("/spec/owner", "who owns the exception?").to_owned();
        let reason = reader.text("/spec/reason", "why is the exception needed?").to_owned();
        let expires_text =
            reader.text("/spec/expires", "when does it expire, such as 2027-01-31T00:00:00Z?").to_owned();
        let expires = Timestamp::parse(&expires_text).map(Timestamp::seconds);
        if expires.is_err() && !expires_text.is_empty() {
            let message = format!("{expires_text:?} is not a timestamp: write it as 2027-01-31T00:00:00Z");
            reader.error("/spec/expires", message);
        }
        let count = match reader.get("/spec/policies") {
            Some(Json::Array(items)) => items.len(),
            Some(_) => {
                reader.error("/spec/policies", "this must be a list");
                1
            }
            None => 0,
        };
        if count == 0 {
            reader.error(
                "/spec/policies",
                "the field \"policies\" is required: which policies does the exception cover?",
            );
        }
        let is_list = reader.get("/spec/policies").is_some_and(Json::is_array);
        let policies = (0..count)
            .filter(|_| is_list)
            .filter_map(|index| reader.target(&format!("/spec/policies/{index}")))
            .collect();
        reader.mapping("/spec/match", &MATCH_FIELDS);
        let namespaces = reader.texts("/spec/match/namespaces");
        let names = reader.texts("/spec/match/names");
        let selector = reader.get("/spec/match/selector").and_then(|selector| {
            reader.diagnostics.extend(label_selector(selector, "/spec/match/selector"));
            Some(LabelMatcher::new(Some(&LabelSelector::deserialize(selector).ok()?)))
        });
        if namespaces.is_empty() && names.is_empty() && selector.as_ref().is_none_or(LabelMatcher::is_empty) {
            let message = "an exception must not match everything: set namespaces, names or selector";
            reader.error("/spec/match", message);
        }
        match expires {
            Ok(expires) if reader.diagnostics.is_empty() => {
                Ok(Self { name, owner, reason, expires, expires_text, policies, namespaces, names, selector })
            }
            _ => Err(reader.diagnostics),
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a warning if the exception has expired.
    #[must_use]
    pub fn expired(&self, now: i64) -> Option<Diagnostic> {
        (now >= self.expires).then(|| {
            let message = format!(
                "it expired at {} and has no effect: remove it, or agree on another date with {}",
                self.expires_text, self.owner
            );
            Diagnostic::warning("/spec/expires", message)
        })
    }

    /// Whether the exception covers the object of a request.
    fn matches(&self, request: &AdmissionRequest<'_>) -> bool {
        let Some(object) = request.object().or_else(|| request.old_object()) else { return false };
        let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
        let name = match (request.name(), text("/metadata/name")) {
            ("", "") => text("/metadata/generateName"),
            ("", name) | (name, _) => name,
        };
        let any = |patterns: &[String], value: &str| {
            patterns.is_empty() || patterns.iter().any(|pattern| matches_pattern(pattern, value))
        };
        any(&self.namespaces, request.namespace())
            && any(&self.names, name)
            && self.selector.as_ref().is_none_or(|selector| selector.matches(object))
    }

    fn covers_denial(&self, denial: &Denial) -> bool {
        self.policies.iter().any(|target| {
            target.name == denial.policy
                && target.validations.as_ref().is_none_or(|positions| {
                    let position = denial.rule.strip_prefix("/spec/validations/");
                    position.and_then(|at| at.parse().ok()).is_some_and(|at: u64| positions.contains(&at))
                })
        })
    }

    fn covers_policy(&self, policy: &str) -> bool {
        self.policies.iter().any(|target| target.validations.is_none() && target.name == policy)
    }

    fn applied(&self, policy: &str, message: &str) -> AppliedException {
        AppliedException {
            exception: self.name.clone(),
            owner: self.owner.clone(),
            reason: self.reason.clone(),
            policy: policy.to_owned(),
            message: message.to_owned(),
        }
    }
}

/// Returns the exceptions that cover a request now.
pub(crate) fn active_exceptions<'e>(
    all: &'e [PolicyException],
    request: &AdmissionRequest<'_>,
    now: i64,
) -> Vec<&'e PolicyException> {
    all.iter().filter(|exception| now < exception.expires && exception.matches(request)).collect()
}

/// Applies exceptions to a result: denials become records, and warnings of fully excepted policies are
/// dropped.
pub(crate) fn apply<'n>(
    validation: &mut ValidationResult,
    exceptions: &[&PolicyException],
    policies: impl Iterator<Item = &'n str>,
) {
    if exceptions.is_empty() {
        return;
    }
    let (denials, applied) = (&mut validation.denials, &mut validation.applied_exceptions);
    denials.retain(|denial| {
        let by = exceptions.iter().find(|exception| exception.covers_denial(denial));
        applied.extend(by.map(|by| by.applied(&denial.policy, &denial.message)));
        by.is_none()
    });
    for one in &validation.applied_exceptions {
        let value = format!("{} let in by {} of {}: {}", one.message, one.exception, one.owner, one.reason);
        let noted = validation.audit.entry(format!("{}/exception", one.policy)).or_default();
        if !noted.is_empty() {
            noted.push_str("; ");
        }
        noted.push_str(&value);
    }
    for policy in policies.filter(|policy| exceptions.iter().any(|exception| exception.covers_policy(policy)))
    {
        let of = format!("ValidatingAdmissionPolicy '{policy}' with");
        validation.warnings.retain(|warning| !warning.contains(&of));
    }
}

/// Returns the exception that covers a mutating policy, if there is one.
pub(crate) fn exception_for(policy: &str, exceptions: &[&PolicyException]) -> Option<AppliedException> {
    let by = exceptions.iter().find(|exception| exception.covers_policy(policy))?;
    Some(by.applied(policy, "not asked"))
}

/// Whether a name matches a pattern. `*` stands for any characters.
fn matches_pattern(pattern: &str, value: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = value.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
#[path = "exception_tests.rs"]
mod tests;
