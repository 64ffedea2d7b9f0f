//! A webhook that allows everything and records the requests of the API server.

use std::sync::{Arc, Mutex};

use portcullis::webhook::LocalWebhook;
use portcullis_core::admission::{AdmissionVerdict, Hook, ReviewOutcome, ReviewSummary};
use serde_json::{Value as Json, json};

/// The last recorded requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedRequests {
    pub(crate) mutating: Option<Json>,
    pub(crate) validating: Option<Json>,
}

pub(crate) struct Recorder {
    webhook: LocalWebhook,
    seen: Arc<Mutex<RecordedRequests>>,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let seen = Arc::new(Mutex::new(RecordedRequests::default()));
        let kept = Arc::clone(&seen);
        let webhook = LocalWebhook::start_with_handler(Arc::new(move |hook, body: &[u8]| {
            let review: Json = serde_json::from_slice(body).unwrap();
            let request = review["request"].clone();
            let uid = request["uid"].as_str().unwrap_or_default().to_owned();
            let body = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": { "uid": uid, "allowed": true },
            });
            let mut seen = kept.lock().unwrap();
            match hook {
                Hook::Mutate => seen.mutating = Some(request),
                _ => seen.validating = Some(request),
            }
            let summary = ReviewSummary {
                uid,
                operation: String::new(),
                namespace: String::new(),
                name: String::new(),
                verdict: AdmissionVerdict::Allowed,
                causes: Vec::new(),
                warnings: 0,
                patch_operations: 0,
                policies: None,
            };
            Ok(ReviewOutcome { body: body.to_string().into_bytes(), summary })
        }))
        .unwrap();
        Self { webhook, seen }
    }

    /// Returns and clears the recorded requests.
    pub(crate) fn take(&self) -> RecordedRequests {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// The webhook configurations for every request in namespaces with the label `case`.
    pub(crate) fn configurations(&self) -> [Json; 2] {
        let ca = base64(self.webhook.ca_pem().as_bytes());
        let configuration = |kind: &str, path: &str, more: Json| {
            let mut hook = json!({
                "name": "recorder.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
                "clientConfig": { "url": format!("https://{}{path}", self.webhook.address()), "caBundle": ca },
                "namespaceSelector": { "matchExpressions": [{ "key": "case", "operator": "Exists" }] },
                "rules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"] }],
            });
            for (key, value) in more.as_object().into_iter().flatten() {
                hook[key] = value.clone();
            }
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": "recorder" }, "webhooks": [hook],
            })
        };
        [
            configuration(
                "MutatingWebhookConfiguration",
                "/mutate",
                json!({ "reinvocationPolicy": "IfNeeded" }),
            ),
            configuration("ValidatingWebhookConfiguration", "/validate", json!({})),
        ]
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
