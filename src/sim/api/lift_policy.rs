//! A ValidatingAdmissionPolicy of another team that refuses to remove the gate of some pods.

use serde_json::Value;

use super::ApiStatus;
use portcullis_core::objects::names;

/// Refuses to remove the gate of the pods with this name, or with this label as `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiftPolicy {
    /// The name or the label.
    pub pods: String,
}

impl LiftPolicy {
    /// Checks an update of a pod.
    ///
    /// # Errors
    /// 403, if the update removes the gate of a pod that the policy selects.
    pub(super) fn check(&self, name: &str, before: &Value, after: &Value) -> Result<(), ApiStatus> {
        let gated = |pod: &Value| {
            let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
            gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == names::GATE))
        };
        let selected = match self.pods.split_once('=') {
            Some((key, value)) => before["metadata"]["labels"][key] == value,
            None => self.pods == name,
        };
        if !selected || !gated(before) || gated(after) {
            return Ok(());
        }
        let message = format!(
            "pods \"{name}\" is forbidden: ValidatingAdmissionPolicy 'freeze' with binding 'freeze' denied request: {} may not start",
            self.pods
        );
        Err(ApiStatus {
            about: Some(Box::new(("pods".to_owned(), name.to_owned()))),
            ..ApiStatus::new(403, "Forbidden", message)
        })
    }
}
