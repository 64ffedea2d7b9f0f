//! Answers an `AdmissionReview` with a policy set: bytes in, bytes out, like `core::admission` does for
//! gangs.
//!
//! A denial lists every rule that denies as a cause of its own, because kubectl prints one line for each
//! cause and drops the rest. Every patch is applied and compared before it is returned.

mod outcome;

use std::collections::BTreeMap;

use portcullis_core::admission::{
    API_VERSION, AdmissionResponse, AdmissionVerdict, DenialCause, DenialStatus, Hook, KIND, ReviewError,
    ReviewOutcome, ReviewSummary,
};
use serde_json::Value as Json;

use crate::evaluation::{Denial, MutationResult};
use crate::input::{AdmissionRequest, ClusterData, WorkBudget};
use crate::set::PolicySet;

pub use outcome::{AdmissionOutcome, DifferenceKind, HookOutcome, OutcomeDifference, compare_outcomes};

/// The answer to one review.
#[derive(Clone, Debug)]
pub struct ReviewResult {
    /// The response, and its summary for log and metrics.
    pub answer: ReviewOutcome,
    /// The review as received, for a comparison with another set.
    pub review: Json,
    /// What the set decided.
    pub outcome: HookOutcome,
}

/// Answers one review. `None` if the work budget is exhausted.
///
/// # Errors
/// [`ReviewError`] if the body is not a review that can be answered.
pub fn review(
    set: &PolicySet,
    cluster: &ClusterData,
    hook: Hook,
    body: &[u8],
    work_budget: &WorkBudget,
) -> Result<Option<ReviewResult>, ReviewError> {
    let review: Json =
        serde_json::from_slice(body).map_err(|error| ReviewError::Malformed(error.to_string()))?;
    let text = |pointer: &str| review.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if api_version != API_VERSION || kind != KIND {
        let start = |text: &str| text.chars().take(100).collect();
        return Err(ReviewError::WrongVersion { api_version: start(api_version), kind: start(kind) });
    }
    let request = AdmissionRequest::from_review(&review).ok_or(ReviewError::NoRequest)?;
    let uid = text("/request/uid");
    if uid.is_empty() {
        return Err(ReviewError::NoRequest);
    }
    let Some(outcome) = HookOutcome::evaluate(set, hook, &request, cluster, work_budget) else {
        return Ok(None);
    };
    let answer = answer(set, &request, uid, &outcome)?;
    Ok(Some(ReviewResult { answer, review, outcome }))
}

/// Returns the response for an outcome.
fn answer(
    set: &PolicySet,
    request: &AdmissionRequest<'_>,
    uid: &str,
    outcome: &HookOutcome,
) -> Result<ReviewOutcome, ReviewError> {
    let denials = outcome.denials();
    let (patch, warnings, audit) = match outcome {
        HookOutcome::Mutated(mutation) => {
            let patch =
                if denials.is_empty() { patch(request, mutation)? } else { json_patch::Patch::default() };
            (patch, Vec::new(), BTreeMap::new())
        }
        HookOutcome::Validated(validation) => {
            // The API server prefixes audit keys with the webhook's name and drops keys that contain a slash.
            let audit = validation.audit.iter().map(|(key, value)| (key.replace('/', "."), value.clone()));
            (json_patch::Patch::default(), validation.user_warnings(), audit.collect())
        }
    };
    let name = display_name(request);
    let words: Vec<(String, String)> = denials.iter().map(field_and_message).collect();
    let kind = request.kind();
    let reply = AdmissionResponse {
        uid,
        refusal: denials.first().map(|first| DenialStatus {
            code: status_code(&first.reason),
            reason: &first.reason,
            message: message(kind, &name, denials),
            name: &name,
            group: request.json.pointer("/kind/group").and_then(Json::as_str).unwrap_or_default(),
            kind,
            causes: denials
                .iter()
                .zip(&words)
                .map(|(denial, (field, message))| cause(denial, field, message))
                .collect(),
        }),
        patch: &patch.0,
        warnings: &warnings,
        audit: &audit,
    };
    let touched = !patch.0.is_empty() || !warnings.is_empty() || !audit.is_empty();
    Ok(ReviewOutcome {
        body: reply.body(),
        summary: ReviewSummary {
            uid: uid.to_owned(),
            operation: request.operation().to_owned(),
            namespace: request.namespace().to_owned(),
            verdict: match (denials.is_empty(), patch.0.is_empty(), touched) {
                (false, ..) => AdmissionVerdict::Denied,
                (true, false, _) => AdmissionVerdict::Patched,
                (true, true, true) => AdmissionVerdict::Allowed,
                (true, true, false) => AdmissionVerdict::Untouched,
            },
            causes: denials.iter().map(log_line).collect(),
            warnings: warnings.len(),
            patch_operations: patch.0.len(),
            policies: Some(set.hash().to_owned()),
            name,
        },
    })
}

/// Returns the patch from the object to the mutated object, after applying and comparing it.
fn patch(
    request: &AdmissionRequest<'_>,
    mutation: &MutationResult,
) -> Result<json_patch::Patch, ReviewError> {
    // The API server answers 500 to a patch for an operation without an object.
    let (Some(before), Some(after)) = (request.object(), &mutation.object) else {
        return Ok(json_patch::Patch::default());
    };
    let patch = json_patch::diff(before, after);
    let mut patched = before.clone();
    json_patch::patch(&mut patched, &patch).map_err(|error| ReviewError::Unpatchable(error.to_string()))?;
    if patched == *after {
        Ok(patch)
    } else {
        let by = mutation.changed_by.join(", ");
        Err(ReviewError::Unpatchable(format!(
            "applying it does not give the object that the policies {by} made"
        )))
    }
}

/// Returns the name of the object for messages: its name, or `generateName` with a `*`.
#[must_use]
pub fn display_name(request: &AdmissionRequest<'_>) -> String {
    if !request.name().is_empty() {
        return request.name().to_owned();
    }
    let object = request.object().or_else(|| request.old_object());
    let text =
        |pointer: &str| object.and_then(|o| o.pointer(pointer)).and_then(Json::as_str).unwrap_or_default();
    match (text("/metadata/name"), text("/metadata/generateName")) {
        ("", "") => String::new(),
        ("", prefix) => format!("{prefix}*"),
        (name, _) => name.to_owned(),
    }
}

/// Returns the status code that the API server uses for a reason.
fn status_code(reason: &str) -> u16 {
    match reason {
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        "InternalError" => 500,
        _ => 422,
    }
}

/// Returns the rule `/spec/validations/0` as `spec.validations[0]`.
fn rule(denial: &Denial) -> String {
    let mut words = String::new();
    for step in denial.rule.split('/').filter(|step| !step.is_empty()) {
        if step.bytes().all(|byte| byte.is_ascii_digit()) {
            words += &format!("[{step}]");
        } else {
            if !words.is_empty() {
                words.push('.');
            }
            words += step;
        }
    }
    words
}

/// Splits a denial into the field that it is about, if it names one, and the detail. A detail that starts
/// with a field path and a colon (`spec.containers[0].image: use a fixed tag`) names the field.
#[must_use]
pub fn field_and_detail(denial: &Denial) -> (Option<&str>, &str) {
    if let Some(field) = &denial.field {
        return (Some(field), &denial.detail);
    }
    let Some((path, rest)) = denial.detail.split_once(": ") else { return (None, &denial.detail) };
    let begins = ["metadata", "spec", "status"].iter().filter_map(|root| path.strip_prefix(root));
    let is_path = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
    if path.contains(char::is_whitespace) || !begins.into_iter().any(is_path) {
        return (None, &denial.detail);
    }
    (Some(path), rest)
}

/// Returns field and message, with policy and rule. kubectl prints `FIELD: MESSAGE`, so the policy takes the
/// place of an unknown field.
fn field_and_message(denial: &Denial) -> (String, String) {
    let (rule, policy) = (rule(denial), &denial.policy);
    match (field_and_detail(denial), rule.as_str()) {
        ((Some(field), detail), "") => (field.to_owned(), format!("{detail} (policy {policy})")),
        ((Some(field), detail), _) => (field.to_owned(), format!("{detail} (policy {policy}, {rule})")),
        ((None, detail), "") => (format!("policy {policy}"), detail.to_owned()),
        ((None, detail), _) => (format!("policy {policy}"), format!("{detail} ({rule})")),
    }
}

fn cause<'a>(denial: &Denial, field: &'a str, message: &'a str) -> DenialCause<'a> {
    let reason = if denial.reason == "Forbidden" { "FieldValueForbidden" } else { "FieldValueInvalid" };
    DenialCause { reason, message, field }
}

/// Returns the message of the denial, one line per rule. Controllers show it, and kubectl where it does not
/// print causes.
fn message(kind: &str, name: &str, denials: &[Denial]) -> String {
    let of = |denial: &Denial| {
        let (field, message) = field_and_message(denial);
        format!("{field}: {message}")
    };
    let what = if name.is_empty() { kind.to_owned() } else { format!("{kind} {name:?}") };
    match denials {
        [only] => format!("{what} is refused: {}", of(only)),
        several => {
            let lines: Vec<String> = several.iter().map(|denial| format!("\n* {}", of(denial))).collect();
            format!("{what} is refused by {} rules:{}", several.len(), lines.concat())
        }
    }
}

/// Returns the log line of a denial.
fn log_line(denial: &Denial) -> String {
    format!("{}/{}: {}", denial.policy, rule(denial), denial.detail)
}

#[cfg(test)]
mod tests;
