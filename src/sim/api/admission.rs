//! Calls the admission webhook as an API server does: with an `AdmissionReview`, for a patch or a denial.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{ApiStatus, ObjectKind};
use portcullis_core::admission::Hook;

/// Sends one `AdmissionReview` to the webhook and returns its response. An error is a failed call.
pub type WebhookCall = Box<dyn FnMut(Hook, &[u8]) -> Result<Vec<u8>, String> + Send>;

/// The webhook of the simulated cluster, with counters and violations.
pub struct AdmissionWebhook {
    call: Option<WebhookCall>,
    calls: u64,
    /// Sends every mutation a second time, to check that it changes nothing more.
    pub twice: bool,
    /// Violations of the rules for webhooks.
    pub violations: Vec<String>,
}

/// One request to review.
pub(super) struct ReviewInput<'a> {
    pub(super) user: &'a str,
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) object: &'a Value,
    pub(super) old: Option<&'a Value>,
}

/// The response of the webhook.
struct ReviewOutput {
    patch: Option<Value>,
    warnings: Vec<String>,
}

impl AdmissionWebhook {
    /// A cluster that sends pods to `call`; `None` is a cluster without a webhook.
    pub fn new(call: Option<WebhookCall>) -> Self {
        Self { call, calls: 0, twice: true, violations: Vec::new() }
    }

    /// Number of reviews sent.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Calls the mutating webhook. Returns the patched object and the warnings.
    pub(super) fn mutate(&mut self, review: &ReviewInput<'_>) -> Result<(Value, Vec<String>), ApiStatus> {
        if self.call.is_none() {
            return Ok((review.object.clone(), Vec::new()));
        }
        let ReviewOutput { patch, warnings } = self.call(Hook::Mutate, review)?;
        let mut object = review.object.clone();
        if let Some(patch) = &patch {
            apply(&mut object, patch).map_err(|problem| {
                self.violations.push(format!(
                    "the patch for {}/{} does not apply: {problem}; patch {patch}",
                    review.namespace, review.name
                ));
                ApiStatus::new(500, "InternalError", format!("Internal error occurred: {problem}"))
            })?;
        }
        if self.twice {
            let again = self.call(Hook::Mutate, &ReviewInput { object: &object, ..*review })?;
            if let Some(patch) = again.patch.filter(|p| p.as_array().is_none_or(|list| !list.is_empty())) {
                self.violations.push(format!(
                    "mutating {}/{} twice is not mutating it once: the second patch is {patch}",
                    review.namespace, review.name
                ));
            }
        }
        Ok((object, warnings))
    }

    /// Calls the validating webhook with the object to store. Returns the warnings.
    pub(super) fn validate(&mut self, review: &ReviewInput<'_>) -> Result<Vec<String>, ApiStatus> {
        if self.call.is_none() {
            return Ok(Vec::new());
        }
        let admitted = self.call(Hook::Validate, review)?;
        if admitted.patch.is_some() {
            self.violations.push(format!("validating {}/{} answered a patch", review.namespace, review.name));
        }
        Ok(admitted.warnings)
    }

    fn call(&mut self, hook: Hook, review: &ReviewInput<'_>) -> Result<ReviewOutput, ApiStatus> {
        self.calls += 1;
        let uid = format!("review-{}", self.calls);
        let body = body(&uid, review);
        let send = self.call.as_mut().expect("callers check that there is a webhook");
        let failed = |problem: String| {
            let message = format!(
                "Internal error occurred: failed calling webhook \"{}.portcullis.dev\": {problem}",
                hook.as_str()
            );
            ApiStatus::new(500, "InternalError", message)
        };
        let answer = send(hook, &body).map_err(failed)?;
        read(&uid, &answer).map_err(failed)?
    }
}

fn body(uid: &str, review: &ReviewInput<'_>) -> Vec<u8> {
    let kind = json!({"group": "", "version": "v1", "kind": ObjectKind::Pod.as_str()});
    let resource = json!({"group": "", "version": "v1", "resource": ObjectKind::Pod.plural()});
    let (operation, options) = match review.old {
        None => ("CREATE", "CreateOptions"),
        Some(_) => ("UPDATE", "UpdateOptions"),
    };
    let value = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uid,
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": review.name, "namespace": review.namespace,
            "operation": operation,
            "userInfo": {"username": review.user, "groups": ["system:authenticated"]},
            "object": review.object,
            "oldObject": review.old.cloned().unwrap_or_default(),
            "dryRun": false,
            "options": {"kind": options, "apiVersion": "meta.k8s.io/v1"},
        },
    });
    value.to_string().into_bytes()
}

/// Checks a response as the API server's `VerifyAdmissionResponse` does. The outer error is a failed call,
/// the inner a denial.
fn read(uid: &str, answer: &[u8]) -> Result<Result<ReviewOutput, ApiStatus>, String> {
    let answer: Value = serde_json::from_slice(answer).map_err(|e| format!("the answer is no JSON: {e}"))?;
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    if text("/apiVersion") != "admission.k8s.io/v1" || text("/kind") != "AdmissionReview" {
        return Err("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview".to_owned());
    }
    if text("/response/uid") != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", text("/response/uid")));
    }
    let response = &answer["response"];
    let warnings = response["warnings"].as_array().map_or(&[][..], Vec::as_slice);
    let warnings = warnings.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if response["allowed"] != Value::Bool(true) {
        return Ok(Err(ApiStatus::denied(&response["status"])));
    }
    let patch = match (text("/response/patch"), text("/response/patchType")) {
        ("", "") => None,
        (encoded, "JSONPatch") => {
            let bytes = STANDARD.decode(encoded).map_err(|e| format!("the patch is no base64: {e}"))?;
            Some(serde_json::from_slice(&bytes).map_err(|e| format!("the patch is no JSON: {e}"))?)
        }
        (_, other) => return Err(format!("response.patchType {other:?} is not JSONPatch")),
    };
    Ok(Ok(ReviewOutput { patch, warnings }))
}

/// Applies a JSON patch (RFC 6902).
pub(super) fn apply(object: &mut Value, patch: &Value) -> Result<(), String> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(|e| e.to_string())?;
    json_patch::patch(object, &patch).map_err(|e| e.to_string())
}
