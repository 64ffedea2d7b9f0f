//! Validation of new pods and of changes to pods (Kubernetes 1.36, pkg/apis/core/validation,
//! `ValidatePodUpdate`, and pkg/registry/core/pod/strategy.go).

use serde_json::{Map, Value, json};

use super::ApiStatus;

const REQUIRED: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";

/// Sets the defaults that the API server sets before admission.
pub(super) fn default(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for (key, value) in [
        ("schedulerName", json!("default-scheduler")),
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
    ] {
        spec.entry(key).or_insert(value);
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            default_requests(container);
        }
    }
}

/// Copies limits to requests that are missing.
fn default_requests(container: &mut Value) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if let Some(requests) = requests.as_object_mut() {
        for (name, quantity) in limits {
            requests.entry(name).or_insert(quantity);
        }
    }
}

/// The status a new pod starts with.
pub(super) fn first_status(pod: &Value) -> Value {
    if gates(pod).next().is_none() {
        return json!({"phase": "Pending"});
    }
    let message = "Scheduling is blocked due to non-empty scheduling gates";
    json!({
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
        ],
    })
}

/// The names of the pod's scheduling gates.
pub(super) fn gates(pod: &Value) -> impl Iterator<Item = &str> {
    let list = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|gate| gate.get("name").and_then(Value::as_str))
}

/// Validates a new pod.
pub(super) fn validate_create(name: &str, pod: &Value) -> Result<(), ApiStatus> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        return Err(ApiStatus::invalid("Pod", name, "spec.containers", "Required value"));
    }
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
    if !node.is_empty() && gates(pod).next().is_some() {
        let problem = "Forbidden: cannot be set until all schedulingGates have been cleared";
        return Err(ApiStatus::invalid("Pod", name, "spec.nodeName", problem));
    }
    Ok(())
}

/// Validates a change of a pod.
pub(super) fn validate_update(name: &str, old: &Value, new: &Value) -> Result<(), ApiStatus> {
    let (Some(old_spec), Some(new_spec)) = (old.get("spec"), new.get("spec")) else {
        return Err(ApiStatus::invalid("Pod", name, "spec", "Required value"));
    };
    if old_spec == new_spec {
        return Ok(());
    }
    let invalid = |field: &str, problem: &str| Err(ApiStatus::invalid("Pod", name, field, problem));
    if let Some(added) = gates(new).find(|gate| !gates(old).any(|known| known == *gate)) {
        let problem = format!("Forbidden: only deletion is allowed, but found new scheduling gate '{added}'");
        return invalid("spec.schedulingGates", &problem);
    }
    let gated = gates(old).next().is_some();
    let (old_selector, new_selector) = (old_spec.get("nodeSelector"), new_spec.get("nodeSelector"));
    if old_selector != new_selector && !(gated && only_added(old_selector, new_selector)) {
        let problem = if gated {
            "Invalid value: only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        } else {
            "Forbidden: field is immutable"
        };
        return invalid("spec.nodeSelector", problem);
    }
    let old_affinity = old_spec.pointer("/affinity/nodeAffinity");
    let new_affinity = new_spec.pointer("/affinity/nodeAffinity");
    if old_affinity != new_affinity {
        if !gated {
            return invalid(
                "spec",
                "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations), `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
            );
        }
        narrowed(old_spec.pointer(REQUIRED), new_spec.pointer(REQUIRED)).or_else(|problem| {
            invalid(
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
                problem,
            )
        })?;
    }
    let list = |spec: &Value| spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    let (old_tolerations, new_tolerations) = (list(old_spec), list(new_spec));
    if !old_tolerations.iter().all(|toleration| new_tolerations.contains(toleration)) {
        return invalid(
            "spec.tolerations",
            "Forbidden: existing toleration can not be modified except its tolerationSeconds",
        );
    }
    if fixed(old_spec) != fixed(new_spec) {
        let problem = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations), `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        return invalid("spec", problem);
    }
    Ok(())
}

fn only_added(old: Option<&Value>, new: Option<&Value>) -> bool {
    let old = old.and_then(Value::as_object);
    let new = new.and_then(Value::as_object);
    old.into_iter().flatten().all(|(key, value)| new.and_then(|new| new.get(key)) == Some(value))
}

/// Checks that required terms only get narrower: the same number of terms, each with its old requirements as
/// a prefix.
fn narrowed(old: Option<&Value>, new: Option<&Value>) -> Result<(), &'static str> {
    let terms = |selector: Option<&Value>| -> Vec<Value> {
        selector
            .and_then(|s| s.get("nodeSelectorTerms"))
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let (old, new) = (terms(old), terms(new));
    if old.is_empty() {
        return Ok(());
    }
    if old.len() != new.len() {
        return Err("Invalid value: no additions/deletions to non-empty NodeSelectorTerms list are allowed");
    }
    let requirements = |term: &Value, key: &str| -> Vec<Value> {
        term.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    for (old, new) in old.iter().zip(&new) {
        let all = ["matchExpressions", "matchFields"];
        let was_empty = all.iter().all(|key| requirements(old, key).is_empty());
        let is_empty = all.iter().all(|key| requirements(new, key).is_empty());
        let kept = all.iter().all(|key| requirements(new, key).starts_with(&requirements(old, key)));
        if !kept || was_empty != is_empty {
            return Err("Invalid value: only additions are allowed (no mutations or deletions)");
        }
    }
    Ok(())
}

/// The spec without the fields that may change.
fn fixed(spec: &Value) -> Map<String, Value> {
    let mut spec = spec.as_object().cloned().unwrap_or_default();
    for key in ["schedulingGates", "nodeSelector", "tolerations", "activeDeadlineSeconds"] {
        spec.remove(key);
    }
    if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.remove("nodeAffinity");
    }
    if spec.get("affinity").and_then(Value::as_object).is_some_and(Map::is_empty) {
        spec.remove("affinity");
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
            }
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(gates: &[&str], terms: Option<Value>) -> Value {
        let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
        let mut pod =
            json!({"spec": {"schedulingGates": gates, "containers": [{"name": "a", "image": "x"}]}});
        if let Some(terms) = terms {
            let required = json!({"nodeSelectorTerms": terms});
            pod["spec"]["affinity"] =
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        }
        pod
    }

    #[test]
    fn only_the_affinity_of_a_gated_pod_can_be_narrowed() {
        let here = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
        let zone = json!({"key": "zone", "operator": "Exists"});
        let pinned = json!([{"matchFields": [here]}]);
        let any = || pod(&["portcullis.dev/gang"], None);
        let zoned = || pod(&["portcullis.dev/gang"], Some(json!([{"matchExpressions": [zone]}])));
        let mut other_image = any();
        other_image["spec"]["containers"][0]["image"] = json!("y");
        let mut other_name = any();
        other_name["spec"]["containers"][0]["name"] = json!("b");
        for (old, new, allowed) in [
            (any(), pod(&[], Some(pinned.clone())), true),
            (any(), pod(&["portcullis.dev/gang", "other"], None), false),
            (pod(&[], None), pod(&[], Some(pinned.clone())), false),
            (zoned(), pod(&[], Some(pinned.clone())), false),
            (zoned(), pod(&[], Some(json!([{"matchExpressions": [zone], "matchFields": [here]}]))), true),
            (zoned(), pod(&[], Some(json!([{"matchExpressions": [zone]}, {"matchFields": [here]}]))), false),
            (pod(&["g"], Some(json!([{}]))), pod(&[], Some(pinned)), false),
            (any(), other_image, true),
            (any(), other_name, false),
        ] {
            let verdict = validate_update("a", &old, &new);
            assert_eq!(verdict.is_ok(), allowed, "{old} -> {new}: {verdict:?}");
        }
    }

    #[test]
    fn missing_requests_are_copied_from_limits() {
        let mut pod = json!({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}});
        default(&mut pod);
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"nvidia.com/gpu": 1}));
    }
}
