//! Reviews one pod like the API server: policies, `/mutate`, the patch, then `/validate`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use portcullis_core::admission::{
    self, AdmissionSettings, AdmissionVerdict, Hook, KnownClasses, ReviewError, ReviewOutcome,
};
use portcullis_core::dialect;
use portcullis_core::objects::view::PodView;
use serde_json::{Value, json};

use super::super::manifest::{Document, pointer_of};
use super::items::{PodItem, ReviewItem};
use super::policies::PolicyReviewer;
use super::{AllowedPod, ReviewCause, ReviewResult, changes};

/// Reviews one pod. Adds its warnings to `user_warnings`, also those of a denied pod.
pub(super) fn review_pod(
    document: &Document,
    item: &ReviewItem,
    pod_item: &PodItem,
    policies: &PolicyReviewer,
    user_warnings: &mut Vec<String>,
) -> ReviewResult {
    let original = &pod_item.pod;
    let place = item.place();
    let cause = |field: &str, message: String| ReviewCause {
        line: document.line(&format!("{place}{}", pointer_of(original, field))),
        field: match (&item.template, field) {
            (_, "") => String::new(),
            (Some(template), field) => format!("{template}.{field}"),
            (None, field) => field.to_owned(),
        },
        message,
        rule: None,
    };
    let not_strings: Vec<ReviewCause> =
        not_text(original).into_iter().map(|(field, message)| cause(&field, message)).collect();
    if !not_strings.is_empty() {
        return ReviewResult::Unreadable(not_strings);
    }
    if let Some(owner) = &pod_item.owner {
        user_warnings.extend(owner_warnings(&item.namespace, owner));
    }

    let pod_type = ["", "v1", "Pod", "pods"];
    let mut review =
        pod_item.review.clone().unwrap_or_else(|| review_of(&item.namespace, pod_type, original));
    // Mutating policies run before the webhook that adds the gate.
    let mutated = match policies.mutate(&review) {
        Ok(object) => object,
        Err(denials) => return ReviewResult::Rejected(policies.causes(&denials, &cause)),
    };
    if let Some(object) = &mutated {
        review["request"]["object"] = object.clone();
    }
    let outcome = match call_webhook(Hook::Mutate, &review) {
        Ok(outcome) => outcome,
        Err(problem) => return ReviewResult::Unreadable(vec![cause("", problem.to_string())]),
    };
    let response = response(&outcome.body);
    user_warnings.extend(warnings(&response));
    if response["allowed"] != json!(true) {
        return ReviewResult::Rejected(causes(&response, &cause));
    }
    let patch = patch_of(&response);
    let mut patched = mutated.clone().unwrap_or_else(|| original.clone());
    if let Err(problem) = apply(&patch, &mut patched) {
        return ReviewResult::Unreadable(vec![cause("", format!("the patch does not apply: {problem}"))]);
    }

    // The API server sends the patched object to /validate.
    review["request"]["object"] = patched.clone();
    let denials = validate(&review, policies, &cause, user_warnings);
    if !denials.is_empty() {
        return ReviewResult::Rejected(denials);
    }
    ReviewResult::Allowed(AllowedPod {
        ours: outcome.summary.verdict != AdmissionVerdict::Untouched || mutated.is_some(),
        changes: changes::in_words(original, &patched),
        gang: gang_of(&patched),
        patch: if mutated.is_some() { json!(json_patch::diff(original, &patched)) } else { patch },
        patched,
    })
}

/// Sends a review to the webhook's own review function, without facts about a cluster.
fn call_webhook(hook: Hook, review: &Value) -> Result<ReviewOutcome, ReviewError> {
    let (settings, classes) = (AdmissionSettings::default(), KnownClasses::default());
    admission::handle_review(&settings, &classes, hook, review.to_string().as_bytes())
}

/// Returns the warnings that users get when they create the StatefulSet of a pod.
fn owner_warnings(namespace: &str, owner: &Value) -> Vec<String> {
    let review = review_of(namespace, ["apps", "v1", "StatefulSet", "statefulsets"], owner);
    let outcome = call_webhook(Hook::Mutate, &review);
    outcome.map(|outcome| warnings(&response(&outcome.body)).collect()).unwrap_or_default()
}

/// Returns the causes for which validating policies and the webhook deny a pod.
fn validate(
    review: &Value,
    policies: &PolicyReviewer,
    cause: &dyn Fn(&str, String) -> ReviewCause,
    user_warnings: &mut Vec<String>,
) -> Vec<ReviewCause> {
    let result = policies.validate(review);
    user_warnings.extend(result.user_warnings());
    let mut denials = policies.causes(&result.denials, cause);
    if let Ok(outcome) = call_webhook(Hook::Validate, review) {
        let response = response(&outcome.body);
        if response["allowed"] != json!(true) {
            denials.extend(causes(&response, cause));
        }
    }
    denials
}

/// Returns the warnings of a response.
fn warnings(response: &Value) -> impl Iterator<Item = String> {
    let lines = response["warnings"].as_array().into_iter().flatten();
    lines.filter_map(|line| line.as_str().map(ToOwned::to_owned))
}

/// Returns a CREATE review with all fields that a webhook may rely on. The type is group, version, kind and
/// plural.
pub(super) fn review_of(namespace: &str, [group, version, kind, plural]: [&str; 4], object: &Value) -> Value {
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": plural});
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-4000-8000-000000000000",
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": object.pointer("/metadata/name"), "namespace": namespace, "operation": "CREATE",
            "userInfo": {"username": "portcullis-review"},
            "object": object, "oldObject": null, "dryRun": true,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

fn response(body: &[u8]) -> Value {
    serde_json::from_slice::<Value>(body)
        .map(|mut review| review["response"].take())
        .expect("the response of admission is JSON")
}

fn patch_of(response: &Value) -> Value {
    response["patch"]
        .as_str()
        .and_then(|text| BASE64_STANDARD.decode(text).ok())
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_else(|| json!([]))
}

fn apply(patch: &Value, object: &mut Value) -> anyhow::Result<()> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())?;
    Ok(json_patch::patch(object, &patch)?)
}

/// Returns the causes of a denial, or its message if it has no causes.
fn causes(response: &Value, cause: &dyn Fn(&str, String) -> ReviewCause) -> Vec<ReviewCause> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let listed: Vec<ReviewCause> = response["status"]["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| cause(one["field"].as_str().unwrap_or_default(), text(&one["message"])))
        .collect();
    if listed.is_empty() { vec![cause("", text(&response["status"]["message"]))] } else { listed }
}

fn gang_of(pod: &Value) -> Option<String> {
    let text = pod.to_string();
    let view: PodView<'_> = serde_json::from_str(&text).ok()?;
    dialect::membership(&view).map(|membership| membership.gang.to_string())
}

/// Returns labels and annotations that are not strings. The API server cannot decode such an object, so no
/// webhook sees it. The most common case is an unquoted number.
fn not_text(pod: &Value) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    for (map, what) in [("annotations", "annotation"), ("labels", "label")] {
        let entries = pod["metadata"][map].as_object().into_iter().flatten();
        for (key, value) in entries.filter(|(_, value)| !value.is_string() && !value.is_null()) {
            let kind = match value {
                Value::Number(_) => "a number",
                Value::Bool(_) => "true or false",
                _ => "a structure",
            };
            let fix = if value.is_object() || value.is_array() {
                String::new()
            } else {
                format!(": write \"{value}\", in quotes")
            };
            wrong.push((
                format!("metadata.{map}[{key}]"),
                format!("{value} is {kind}, but the value of {a} {what} must be text, so the API server cannot read this pod{fix}",
                    a = if what == "annotation" { "an" } else { "a" }),
            ));
        }
    }
    wrong
}
