use base64::Engine as _;
use serde_json::{Value, json};

use super::*;

/// A review of a pod as the API server sends it.
fn review(operation: &str, object: &Value, old: Option<&Value>) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "requestKind": { "group": "", "version": "v1", "kind": "Pod" },
            "name": object["metadata"]["name"], "namespace": "default", "operation": operation,
            "userInfo": { "username": "developer", "groups": ["system:authenticated"] },
            "object": object, "oldObject": old, "dryRun": false, "options": null
        }
    })
}

fn ask(settings: &Settings, hook: Hook, review: &Value) -> (Value, Summary) {
    let body = serde_json::to_vec(review).unwrap();
    fuzz_review(&body);
    let answer = answer(settings, hook, &body).unwrap();
    (serde_json::from_slice(&answer.body).unwrap(), answer.summary)
}

fn patched(answer: &Value, object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(patch) = answer["response"]["patch"].as_str() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
        json_patch::patch(&mut object, &serde_json::from_slice::<json_patch::Patch>(&bytes).unwrap())
            .unwrap();
    }
    object
}

#[test]
fn a_member_with_the_label_only_is_linked_gated_and_equipped() {
    let object = json!({
        "metadata": { "name": "model-1", "labels": { "kai.scheduler/podgroup": "app-with-models" },
            "annotations": { "gpu-memory": "8000" } },
        "spec": { "containers": [{ "name": "model", "image": "m" }] }
    });
    let (answer, summary) = ask(&Settings::default(), Hook::Mutate, &review("CREATE", &object, None));
    assert_eq!(summary.verdict, Verdict::Patched);
    assert_eq!(
        answer["response"]["warnings"],
        json!([
            r#"pod-group-name was missing; set to "app-with-models" from the label kai.scheduler/podgroup"#
        ])
    );
    assert_eq!(
        patched(&answer, &object),
        json!({
            "metadata": { "name": "model-1", "labels": { "kai.scheduler/podgroup": "app-with-models" },
                "annotations": { "gpu-memory": "8000", "pod-group-name": "app-with-models" } },
            "spec": {
                "schedulingGates": [{ "name": "portcullis.dev/gang" }],
                "tolerations": [{ "key": "portcullis.dev/gpu-sharing", "operator": "Equal", "value": "vram",
                    "effect": "NoSchedule" }],
                "containers": [{ "name": "model", "image": "m", "env": [{ "name": "NVIDIA_VISIBLE_DEVICES",
                    "valueFrom": { "fieldRef": { "apiVersion": "v1",
                        "fieldPath": "metadata.annotations['portcullis.dev/gpus']" } } }] }]
            }
        })
    );
}

#[test]
fn a_pod_with_gpu_and_gpu_memory_is_told_both_places_and_both_ways_out() {
    let object = json!({
        "metadata": { "name": "model-2", "annotations": { "gpu-memory": "8000" } },
        "spec": { "containers": [{ "name": "model", "resources": { "limits": { "nvidia.com/gpu": "1" },
            "requests": { "nvidia.com/gpu": "1" } } }] }
    });
    let (answer, summary) = ask(&Settings::default(), Hook::Mutate, &review("CREATE", &object, None));
    assert_eq!(summary.verdict, Verdict::Denied);
    let status = &answer["response"]["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
    assert_eq!(
        status["details"],
        json!({ "name": "model-2", "kind": "Pod", "causes": [
            { "reason": "FieldValueForbidden", "field": "metadata.annotations[gpu-memory]",
              "message": "cannot request both GPU and GPU memory: this pod asks for 8000 MiB of a shared card and, in container \"model\", for 1 whole GPU (limits nvidia.com/gpu). Keep one: remove the annotation gpu-memory for a whole GPU, or remove nvidia.com/gpu to share a card." },
            { "reason": "FieldValueForbidden", "field": "spec.containers[0].resources.limits[nvidia.com/gpu]",
              "message": "cannot request both GPU and GPU memory: \"1\" stands against the annotation gpu-memory (\"8000\"). Keep one: remove the annotation gpu-memory for a whole GPU, or remove nvidia.com/gpu to share a card." },
        ] })
    );
}
