//! A minimal webhook for tests of the simulation itself.

use base64::Engine as _;
use serde_json::{Value, json};

use super::api::WebhookCall;
use portcullis_core::admission::Hook;
use portcullis_core::pod::Pod;

/// Adds the gate and the toleration to every member of a gang, and allows every request.
pub(crate) fn call() -> WebhookCall {
    Box::new(|hook, body| {
        let review: Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
        let request = &review["request"];
        let mut object = request["object"].clone();
        if object["metadata"].get("name").is_none() {
            object["metadata"]["name"] = json!("unnamed");
        }
        object["metadata"]["uid"] = json!("none-yet");
        let mut response = json!({"uid": request["uid"], "allowed": true});
        let create = hook == Hook::Mutate && request["operation"] == "CREATE";
        if create
            && let Ok(pod) = Pod::read(&object.to_string())
            && pod.membership.is_some()
            && !pod.gated()
            && pod.node.is_none()
        {
            let mut gates =
                request["object"]["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
            gates.push(json!({"name": "portcullis.dev/gang"}));
            let mut patch = vec![json!({"op": "add", "path": "/spec/schedulingGates", "value": gates})];
            if pod.shape.share.is_some() {
                let toleration = json!({"key": "portcullis.dev/gpu-sharing", "operator": "Exists"});
                patch.push(json!({"op": "add", "path": "/spec/tolerations", "value": [toleration]}));
            }
            response["patchType"] = json!("JSONPatch");
            response["patch"] =
                json!(base64::engine::general_purpose::STANDARD.encode(Value::from(patch).to_string()));
        }
        let answer =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        Ok(answer.to_string().into_bytes())
    })
}
