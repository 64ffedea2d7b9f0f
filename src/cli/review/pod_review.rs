//! Reviews one pod like the API server: policies, `/mutate`, the patch, then `/validate`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use portcullis_core::admission::{self, AdmissionSettings, Hook, KnownClasses};
use portcullis_core::dialect;
use portcullis_core::objects::view::PodView;
use serde_json::{Value, json};

use super::super::manifest::{Document, pointer_of};
use super::items::{PodItem, ReviewItem};
use super::policies::PolicyReviewer;
use super::{AllowedPod, ReviewCause, ReviewResult, changes};

/// Reviews one pod. Adds the warnings, also those of a denied pod, to `said`.
pub(super) fn review_pod(
    document: &Document,
    found: &ReviewItem,
    subject: &PodItem,
    judge: &PolicyReviewer,
    said: &mut Vec<String>,
) -> ReviewResult {
    let place = found.place();
    let locate = |field: &str| document.line(&format!("{place}{}", pointer_of(&subject.pod, field)));
    let cause = |field: &str, message: String| ReviewCause {
        line: locate(field),
        field: match (&found.template, field) {
            (_, "") => String::new(),
            (Some(template), field) => format!("{template}.{field}"),
            (None, field) => field.to_owned(),
        },
        message,
        rule: None,
    };

    let broken: Vec<ReviewCause> =
        not_text(&subject.pod).into_iter().map(|(field, message)| cause(&field, message)).collect();
    if !broken.is_empty() {
        return ReviewResult::Unreadable(broken);
    }

    if let Some(owner) = &subject.owner {
        let review = review_of(&found.namespace, ["apps", "v1", "StatefulSet", "statefulsets"], owner);
        let asked = review.to_string();
        if let Ok(answer) = admission::handle_review(
            &AdmissionSettings::default(),
            &KnownClasses::default(),
            Hook::Mutate,
            asked.as_bytes(),
        ) {
            said.extend(warnings(&response(&answer.body)));
        }
    }
    let kind = ["", "v1", "Pod", "pods"];
    let mut review =
        subject.review.clone().unwrap_or_else(|| review_of(&found.namespace, kind, &subject.pod));
    // Mutating policies run before the webhook that adds the gate.
    let before = match judge.mutate(&review) {
        Ok(object) => object,
        Err(denials) => return ReviewResult::Rejected(judge.causes(&denials, &cause)),
    };
    if let Some(object) = &before {
        review["request"]["object"] = object.clone();
    }
    let settings = AdmissionSettings::default();
    let answer = match admission::handle_review(
        &settings,
        &KnownClasses::default(),
        Hook::Mutate,
        review.to_string().as_bytes(),
    ) {
        Ok(answer) => answer,
        Err(problem) => return ReviewResult::Unreadable(vec![cause("", problem.to_string())]),
    };
    let response = response(&answer.body);
    said.extend(warnings(&response));
    if response["allowed"] != json!(true) {
        return ReviewResult::Rejected(causes(&response, &cause));
    }
    let mut patch = patch_of(&response);
    let mut patched = before.clone().unwrap_or_else(|| subject.pod.clone());
    if let Err(problem) = apply(&patch, &mut patched) {
        return ReviewResult::Unreadable(vec![cause("", format!("the patch does not apply: {problem}"))]);
    }

    if before.is_some() {
        patch = json!(json_patch::diff(&subject.pod, &patched));
    }

    // The API server sends the patched object to /validate.
    let mut second = review;
    second["request"]["object"] = patched.clone();
    let judgement = judge.validate(&second);
    said.extend(judgement.user_warnings());
    let mut refused = judge.causes(&judgement.denials, &cause);
    if let Ok(answer) = admission::handle_review(
        &settings,
        &KnownClasses::default(),
        Hook::Validate,
        second.to_string().as_bytes(),
    ) {
        let response = self::response(&answer.body);
        if response["allowed"] != json!(true) {
            refused.extend(causes(&response, &cause));
        }
    }
    if !refused.is_empty() {
        return ReviewResult::Rejected(refused);
    }

    ReviewResult::Allowed(AllowedPod {
        ours: answer.summary.verdict != admission::AdmissionVerdict::Untouched || before.is_some(),
        changes: changes::in_words(&subject.pod, &patched),
        gang: gang_of(&patched),
        patch,
        patched,
    })
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
        .expect("admission answers with JSON of its own making")
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
