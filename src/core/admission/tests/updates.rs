//! UPDATE reviews only what changed.

use super::*;

fn update(old: &Value, new: &Value) -> (AdmissionVerdict, Vec<String>) {
    let asked = review("UPDATE", new, Some(old));
    let answers =
        [Hook::Mutate, Hook::Validate].map(|hook| send(&AdmissionSettings::default(), hook, &asked));
    let [(first, summary), (second, _)] = answers;
    assert_eq!(first, second, "both hooks say the same on UPDATE");
    (summary.verdict, summary.causes)
}

fn denied(old: &Value, new: &Value, fields: &[&str]) {
    let (verdict, causes) = update(old, new);
    assert_eq!(verdict, AdmissionVerdict::Denied, "{old} {new}");
    let named: Vec<_> = causes.iter().map(|c| c.split(": ").next().unwrap()).collect();
    assert_eq!(named, fields, "{causes:?}");
}

fn allowed(old: &Value, new: &Value, verdict: AdmissionVerdict) {
    assert_eq!(update(old, new), (verdict, Vec::new()), "{old} {new}");
}

fn with(object: &Value, path: &str, value: Value) -> Value {
    let mut object = object.clone();
    let (parent, key) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

#[test]
fn a_pod_with_old_findings_can_be_updated_in_other_fields() {
    let limits =
        json!({ "containers": [{ "name": "main", "resources": { "limits": { "nvidia.com/gpu": "1" } } }] });
    let bad = pod(json!({ LABEL: "a" }), json!({ GROUP: "b", "gpu-memory": "8000", "mps": "x" }), limits);
    let bad = with(&bad, "/metadata/finalizers", json!(["example.com/f"]));
    allowed(&bad, &with(&bad, "/metadata/finalizers", json!([])), AdmissionVerdict::Allowed);
    allowed(&bad, &with(&bad, "/metadata/annotations/note", json!("x")), AdmissionVerdict::Allowed);
    allowed(
        &with(&bad, "/spec/nodeName", json!("n")),
        &with(&bad, "/spec/nodeName", json!("n")),
        AdmissionVerdict::Allowed,
    );
    let plain = pod(json!({}), json!({}), json!({}));
    allowed(
        &plain,
        &with(&plain, "/metadata/annotations", json!({ "note": "x" })),
        AdmissionVerdict::Untouched,
    );
}

#[test]
fn an_update_with_new_findings_is_denied() {
    let gate = json!({ "schedulingGates": [{ "name": "portcullis.dev/gang" }] });
    let member = pod(json!({ LABEL: "g" }), json!({ GROUP: "g", "gpu-memory": "8000" }), gate);
    let memory = "metadata.annotations[gpu-memory]";
    denied(&member, &with(&member, "/metadata/annotations/gpu-memory", json!("8Gi")), &[memory]);
    denied(&member, &with(&member, "/metadata/annotations/gpu-fraction", json!("0.5")), &[memory]);
    allowed(
        &member,
        &with(&member, "/metadata/annotations/gpu-memory", json!("4000")),
        AdmissionVerdict::Allowed,
    );
    let plain = pod(json!({}), json!({}), json!({}));
    denied(
        &plain,
        &with(&plain, "/metadata/annotations", json!({ "mps": "true" })),
        &["metadata.annotations[mps]"],
    );
}

#[test]
fn a_member_stays_in_its_group() {
    let member = pod(
        json!({ LABEL: "g", "kai.scheduler/subgroup-name": "s" }),
        json!({ GROUP: "g" }),
        json!({ "schedulingGates": [{ "name": "portcullis.dev/gang" }] }),
    );
    let group = "metadata.annotations[pod-group-name]";
    let label = "metadata.labels[kai.scheduler/podgroup]";
    let mut moved = member.clone();
    moved["metadata"]["annotations"][GROUP] = json!("h");
    denied(&member, &moved, &[label, group]);
    moved["metadata"]["labels"][LABEL] = json!("h");
    let (_, causes) = update(&member, &moved);
    assert_eq!(
        causes,
        [
            r#"metadata.annotations[pod-group-name]: an existing pod cannot move from group "g" to group "h". Delete the pod and create it in the other group."#
        ]
    );
    let mut left = member.clone();
    left["metadata"]["annotations"] = json!(null);
    allowed(&member, &left, AdmissionVerdict::Allowed);
    left["metadata"]["labels"] = json!(null);
    denied(&member, &left, &[group]);
    let mut role = member.clone();
    role["metadata"]["labels"]["kai.scheduler/subgroup-name"] = json!("t");
    denied(&member, &role, &["metadata.labels[kai.scheduler/subgroup-name]"]);
    let mut label_only = member.clone();
    label_only["metadata"]["labels"][LABEL] = json!("h");
    denied(&member, &label_only, &[label]);
    // A pod that is being deleted may change in any way.
    left["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    allowed(&member, &left, AdmissionVerdict::Untouched);
    // Controllers that group existing pods add the group later.
    let plain = pod(json!({}), json!({}), json!({}));
    allowed(&plain, &pod(json!({}), json!({ GROUP: "g" }), json!({})), AdmissionVerdict::Allowed);
}

#[test]
fn the_share_of_a_started_member_is_fixed() {
    let gated = json!({ "schedulingGates": [{ "name": "portcullis.dev/gang" }] });
    let started =
        pod(json!({ LABEL: "g" }), json!({ GROUP: "g", "gpu-memory": "8000" }), json!({ "nodeName": "n" }));
    denied(
        &started,
        &with(&started, "/metadata/annotations/gpu-memory", json!("4000")),
        &["metadata.annotations[gpu-memory]"],
    );
    denied(
        &started,
        &with(&started, "/metadata/annotations/gpu-fraction-num-devices", json!("2")),
        &["metadata.annotations[gpu-fraction-num-devices]"],
    );
    // The engine removes the gate and adds the cards.
    let waiting = pod(json!({ LABEL: "g" }), json!({ GROUP: "g", "gpu-memory": "8000" }), gated);
    let mut lifted = with(&waiting, "/spec/schedulingGates", json!(null));
    lifted["metadata"]["annotations"]["portcullis.dev/gpus"] = json!("0");
    allowed(&waiting, &lifted, AdmissionVerdict::Allowed);
}
