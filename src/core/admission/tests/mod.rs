//! Tests of admission: tables, random pods, damaged reviews.

#![expect(clippy::needless_pass_by_value, reason = "tables read better with json!() than with &json!()")]

use base64::Engine as _;
use serde_json::{Value, json};

use super::*;

mod groups;
mod properties;
mod required_fields;
mod stateful_set;
mod updates;

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

/// A cluster with a RuntimeClass for GPUs and two PriorityClasses.
fn nvidia() -> KnownClasses {
    let names = |names: &[&str]| Some(names.iter().map(crate::model::str).collect());
    KnownClasses { runtime_classes: names(&["nvidia"]), priority_classes: names(&["inference", "train"]) }
}

fn send(settings: &AdmissionSettings, hook: Hook, review: &Value) -> (Value, ReviewSummary) {
    let body = serde_json::to_vec(review).unwrap();
    fuzz_review(&body);
    let answer = handle_review(settings, &nvidia(), hook, &body).unwrap();
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
fn a_member_with_only_the_label_gets_all_fields() {
    let object = json!({
        "metadata": { "name": "model-1", "labels": { "kai.scheduler/podgroup": "app-with-models" },
            "annotations": { "gpu-memory": "8000" } },
        "spec": { "containers": [{ "name": "model", "image": "m" }] }
    });
    let (answer, summary) =
        send(&AdmissionSettings::default(), Hook::Mutate, &review("CREATE", &object, None));
    assert_eq!(summary.verdict, AdmissionVerdict::Patched);
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
                "runtimeClassName": "nvidia",
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
fn a_pod_with_gpu_and_gpu_memory_gets_both_fields_and_both_fixes() {
    let object = json!({
        "metadata": { "name": "model-2", "annotations": { "gpu-memory": "8000" } },
        "spec": { "containers": [{ "name": "model", "resources": { "limits": { "nvidia.com/gpu": "1" },
            "requests": { "nvidia.com/gpu": "1" } } }] }
    });
    let (answer, summary) =
        send(&AdmissionSettings::default(), Hook::Mutate, &review("CREATE", &object, None));
    assert_eq!(summary.verdict, AdmissionVerdict::Denied);
    let status = &answer["response"]["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
    assert_eq!(
        status["details"],
        json!({ "name": "model-2", "kind": "Pod", "causes": [
            { "reason": "FieldValueForbidden", "field": "metadata.annotations[gpu-memory]",
              "message": "cannot request both GPU and GPU memory: this pod asks for 8000 MiB of a shared card and, in container \"model\", for 1 whole GPU (limits nvidia.com/gpu). Keep one: remove the annotation gpu-memory for a whole GPU, or remove nvidia.com/gpu to share a card." },
            { "reason": "FieldValueForbidden", "field": "spec.containers[0].resources.limits[nvidia.com/gpu]",
              "message": "cannot request both GPU and GPU memory: \"1\" contradicts the annotation gpu-memory (\"8000\"). Keep one: remove the annotation gpu-memory for a whole GPU, or remove nvidia.com/gpu to share a card." },
        ] })
    );
}

/// A pod `p` with these labels, annotations and spec, and a container `main` if the spec has none.
fn pod(labels: Value, annotations: Value, spec: Value) -> Value {
    let mut whole = json!({ "containers": [{ "name": "main" }] });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({ "metadata": { "name": "p", "labels": labels, "annotations": annotations }, "spec": whole })
}

fn create(object: &Value) -> (Value, ReviewSummary) {
    send(&AdmissionSettings::default(), Hook::Mutate, &review("CREATE", object, None))
}

const GROUP: &str = "pod-group-name";
const LABEL: &str = "kai.scheduler/podgroup";

#[test]
fn objects_without_a_gang_or_share_are_untouched() {
    let member = pod(json!({ LABEL: "g" }), json!({ GROUP: "g", "gpu-memory": "1" }), json!({}));
    use AdmissionVerdict::{Patched, Untouched};
    let check = |what: &str, change: &dyn Fn(&mut Value), expected: AdmissionVerdict| {
        let mut asked = review("CREATE", &member, None);
        change(&mut asked["request"]);
        for hook in [Hook::Mutate, Hook::Validate] {
            let (answer, summary) = send(&AdmissionSettings::default(), hook, &asked);
            let expected = match (hook, expected) {
                // No webhook gated it before.
                (Hook::Validate, Patched) => AdmissionVerdict::Denied,
                _ => expected,
            };
            assert_eq!(summary.verdict, expected, "{what} {hook:?}");
            if expected == Untouched {
                let uid = &asked["request"]["uid"];
                assert_eq!(answer["response"], json!({ "uid": uid, "allowed": true }), "{what}");
            }
        }
    };
    let set = |path: &'static str, value: Value| {
        move |request: &mut Value| {
            let (parent, key) = path.rsplit_once('/').unwrap();
            request.pointer_mut(parent).unwrap()[key] = value.clone();
        }
    };
    check("a member", &|_| {}, Patched);
    check("dry run", &set("/dryRun", json!(true)), Patched);
    check("unknown field", &set("/object/spec/fieldOfTomorrow", json!({ "a": [1, { "b": null }] })), Patched);
    check("no annotations", &set("/object/metadata/annotations", json!({})), Patched);
    check(
        "a plain pod",
        &|request| request["object"] = pod(json!({ "app": "web" }), json!(null), json!({})),
        Untouched,
    );
    check(
        "whole GPUs",
        &|request| {
            let resources = json!({ "limits": { "nvidia.com/gpu": 8 }, "requests": { "nvidia.com/gpu": 8 } });
            let containers = json!([{ "name": "main", "resources": resources }]);
            request["object"] = pod(json!(null), json!(null), json!({ "containers": containers }));
        },
        Untouched,
    );
    check("bound", &set("/object/spec/nodeName", json!("node-1")), Untouched);
    let mirror = json!({ GROUP: "g", "kubernetes.io/config.mirror": "hash" });
    check("mirror pod", &set("/object/metadata/annotations", mirror), Untouched);
    let fixed = json!({ GROUP: "g", "kubernetes.io/config.source": "file" });
    check("static pod", &set("/object/metadata/annotations", fixed), Untouched);
    let owner =
        |kind: &str, version: &str| json!([{ "apiVersion": version, "kind": kind, "name": "o", "uid": "u" }]);
    check("daemon", &set("/object/metadata/ownerReferences", owner("DaemonSet", "apps/v1")), Untouched);
    check("job", &set("/object/metadata/ownerReferences", owner("Job", "batch/v1")), Patched);
    for namespace in ["kube-system", "kube-node-lease", "kube-public", "portcullis-system"] {
        check(namespace, &set("/namespace", json!(namespace)), Untouched);
    }
    for operation in ["DELETE", "CONNECT", ""] {
        check(operation, &set("/operation", json!(operation)), Untouched);
    }
    for subresource in ["status", "binding", "ephemeralcontainers", "resize"] {
        check(subresource, &set("/subResource", json!(subresource)), Untouched);
    }
    check("a node", &set("/kind/kind", json!("Node")), Untouched);
    check("a Pod of another group", &set("/kind/group", json!("example.com")), Untouched);
}

#[test]
fn fields_that_a_member_has_are_kept_and_not_added_twice() {
    let gate = json!({ "name": "portcullis.dev/gang" });
    let foreign = json!({ "name": "example.com/other" });
    let both = (json!({ LABEL: "g" }), json!({ GROUP: "g" }));
    for (gates, expected) in [
        (json!(null), json!([gate])),
        (json!([]), json!([gate])),
        (json!([foreign]), json!([foreign, gate])),
        (json!([gate, foreign]), json!([gate, foreign])),
    ] {
        let object = pod(both.0.clone(), both.1.clone(), json!({ "schedulingGates": gates }));
        let (answer, _) = create(&object);
        assert_eq!(patched(&answer, &object)["spec"]["schedulingGates"], expected, "{gates}");
    }
    let ours = json!({ "key": "portcullis.dev/gpu-sharing", "operator": "Equal", "value": "vram", "effect": "NoSchedule" });
    let other = json!({ "key": "a", "operator": "Exists" });
    let all = json!({ "operator": "Exists" });
    let wrong = json!({ "key": "portcullis.dev/gpu-sharing", "value": "other" });
    for (tolerations, expected) in [
        (json!([]), json!([ours])),
        (json!([other]), json!([other, ours])),
        (json!([wrong]), json!([wrong, ours])),
        (json!([all]), json!([all])),
        (json!([ours]), json!([ours])),
    ] {
        let annotations = json!({ GROUP: "g", "gpu-fraction": "0.5" });
        let object = pod(both.0.clone(), annotations, json!({ "tolerations": tolerations }));
        let (answer, _) = create(&object);
        assert_eq!(patched(&answer, &object)["spec"]["tolerations"], expected, "{tolerations}");
    }
}

#[test]
fn missing_maps_are_added_and_keys_are_escaped() {
    for empty in [json!(null), json!({})] {
        let object = pod(empty.clone(), json!({ GROUP: "g/../~1" }), json!({}));
        let (answer, summary) = create(&object);
        assert_eq!(patched(&answer, &object)["metadata"]["labels"], empty, "not a label value");
        assert_eq!(summary.warnings, 1);
        let object = pod(empty.clone(), json!({ GROUP: "g" }), json!({}));
        assert_eq!(patched(&create(&object).0, &object)["metadata"]["labels"], json!({ LABEL: "g" }));
        let object = pod(json!({ LABEL: "g", "x": "y" }), empty.clone(), json!({}));
        assert_eq!(patched(&create(&object).0, &object)["metadata"]["annotations"], json!({ GROUP: "g" }));
        let object = pod(json!({ "x": "y" }), json!({ GROUP: "g" }), json!({}));
        assert_eq!(
            patched(&create(&object).0, &object)["metadata"]["labels"],
            json!({ LABEL: "g", "x": "y" })
        );
    }
}

#[test]
fn the_cards_variable_is_added_to_the_named_container() {
    let ours = json!({ "name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": { "fieldRef": { "apiVersion": "v1",
        "fieldPath": "metadata.annotations['portcullis.dev/gpus']" } } });
    let a = json!({ "name": "A", "value": "1" });
    let all = json!({ "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" });
    let secret = json!({ "name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } });
    for (env, expected, warning) in [
        (json!(null), json!([ours]), None),
        (json!([]), json!([ours]), None),
        (json!([a]), json!([a, ours]), None),
        (json!([ours]), json!([ours]), None),
        (
            json!([all, a]),
            json!([ours, a]),
            Some(
                "NVIDIA_VISIBLE_DEVICES \"all\" in container \"main\" was replaced: the engine assigns the cards",
            ),
        ),
        (
            json!([secret]),
            json!([ours]),
            Some("NVIDIA_VISIBLE_DEVICES in container \"main\" was replaced: the engine assigns the cards"),
        ),
        (
            json!([ours, all]),
            json!([ours, ours]),
            Some(
                "NVIDIA_VISIBLE_DEVICES \"all\" in container \"main\" was replaced: the engine assigns the cards",
            ),
        ),
    ] {
        let spec =
            json!({ "containers": [{ "name": "main", "env": env }, { "name": "other", "env": [all] }] });
        let object = pod(json!({ LABEL: "g" }), json!({ GROUP: "g", "gpu-memory": "1" }), spec);
        let (answer, _) = create(&object);
        let containers = &patched(&answer, &object)["spec"]["containers"];
        assert_eq!(containers[0]["env"], expected, "{env}");
        assert_eq!(containers[1]["env"], json!([all]), "{env}");
        assert_eq!(answer["response"]["warnings"][0].as_str(), warning, "{env}");
    }
    for (name, place) in [("other", "/spec/containers/1/env"), ("load", "/spec/initContainers/0/env")] {
        let spec = json!({ "containers": [{ "name": "main" }, { "name": "other" }], "initContainers": [{ "name": "load" }] });
        let annotations = json!({ GROUP: "g", "gpu-memory": "1", "gpu-fraction-container-name": name });
        let object = pod(json!({ LABEL: "g" }), annotations, spec);
        let object = patched(&create(&object).0, &object);
        assert_eq!(object.pointer(place), Some(&json!([ours])), "{name}");
        assert_eq!(object.to_string().matches("NVIDIA_VISIBLE_DEVICES").count(), 1, "{name}");
    }
}

#[test]
fn only_members_that_portcullis_places_get_cards() {
    let settings = AdmissionSettings::default();
    // gate, cards (toleration, variable, runtime class), warnings
    for (annotations, spec, expected) in [
        (json!({ GROUP: "g", "gpu-memory": "1" }), json!({}), (true, true, Some("nvidia"), 0)),
        (
            json!({ GROUP: "g", "gpu-memory": "1" }),
            json!({ "runtimeClassName": "own" }),
            (true, true, Some("own"), 0),
        ),
        (json!({ GROUP: "g" }), json!({}), (true, false, None, 0)),
        (json!({ "gpu-memory": "1" }), json!({}), (false, false, None, 1)),
        (json!({ "gpu-memory": "1" }), json!({ "schedulerName": "kai-scheduler" }), (false, false, None, 0)),
        (
            json!({ GROUP: "g", "gpu-memory": "1" }),
            json!({ "schedulerName": "kai-scheduler" }),
            (true, false, None, 0),
        ),
        (json!({ GROUP: "g", "portcullis.dev/gpus": "0" }), json!({}), (true, false, None, 1)),
    ] {
        let object = pod(json!({}), annotations.clone(), spec.clone());
        let (answer, summary) = send(&settings, Hook::Mutate, &review("CREATE", &object, None));
        let object = patched(&answer, &object);
        let text = object.to_string();
        let got = (
            text.contains("portcullis.dev/gang\""),
            text.contains("portcullis.dev/gpu-sharing") && text.contains("NVIDIA_VISIBLE_DEVICES"),
            object["spec"]["runtimeClassName"].as_str(),
            summary.warnings,
        );
        assert_eq!(got, expected, "{annotations} {spec}");
        assert!(object["metadata"]["annotations"]["portcullis.dev/gpus"].is_null());
    }
}

#[test]
fn pods_without_a_name_or_namespace_are_reviewed() {
    let mut object = pod(json!({ LABEL: "a" }), json!({ GROUP: "b" }), json!({}));
    object["metadata"]["name"] = json!(null);
    object["metadata"]["generateName"] = json!("worker-");
    let mut asked = review("CREATE", &object, None);
    asked["request"]["namespace"] = json!(null);
    asked["request"]["object"]["metadata"]["namespace"] = json!("ml");
    let (answer, summary) = send(&AdmissionSettings::default(), Hook::Mutate, &asked);
    assert_eq!((summary.namespace.as_str(), summary.name.as_str()), ("ml", "worker-*"));
    assert_eq!(answer["response"]["status"]["details"]["name"], "worker-*");
    assert_eq!(
        summary.causes,
        [
            r#"metadata.labels[kai.scheduler/podgroup]: "a" is not the group in the annotation pod-group-name ("b"). Give both the name of one PodGroup, or remove one of them: the other is then filled in."#
        ]
    );
}

#[test]
fn a_body_that_is_not_a_review_gets_an_error_message() {
    let good = review("CREATE", &pod(json!({}), json!({}), json!({})), None);
    let check = |change: &dyn Fn(&mut Value), expected: &str| {
        let mut asked = good.clone();
        change(&mut asked);
        let body = serde_json::to_vec(&asked).unwrap();
        let error = handle_review(&AdmissionSettings::default(), &nvidia(), Hook::Mutate, &body)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    check(
        &|r| r["apiVersion"] = json!("admission.k8s.io/v1beta1"),
        "expected apiVersion admission.k8s.io/v1, kind",
    );
    check(
        &|r| r["kind"] = json!("Pod"),
        "expected apiVersion admission.k8s.io/v1, kind AdmissionReview; got",
    );
    check(&|r| *r = json!({}), "expected apiVersion");
    check(&|r| *r = json!([1]), "the body is not an AdmissionReview: ");
    check(&|r| r["request"] = json!(null), "the AdmissionReview has no request");
    check(
        &|r| r["request"]["uid"] = json!(""),
        "the AdmissionReview has no request, or the request has no uid",
    );
    check(
        &|r| r["request"]["object"] = json!(null),
        "the body is not an AdmissionReview: request.object is missing",
    );
    check(
        &|r| r["request"]["object"]["spec"]["containers"] = json!(7),
        "the body is not an AdmissionReview: request.object: ",
    );
    check(
        &|r| r["request"]["operation"] = json!("UPDATE"),
        "the body is not an AdmissionReview: request.oldObject is missing",
    );
    for body in ["", "{", "\u{feff}{}", "null", "{\"request\":"] {
        assert!(
            handle_review(&AdmissionSettings::default(), &nvidia(), Hook::Mutate, body.as_bytes()).is_err(),
            "{body}"
        );
    }
    assert!(handle_review(&AdmissionSettings::default(), &nvidia(), Hook::Mutate, &[0xff, 0xfe]).is_err());
}
