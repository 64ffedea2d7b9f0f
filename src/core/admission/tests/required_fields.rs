//! Members that reach `/validate` without the fields that `/mutate` adds.

use super::*;

fn validated(object: &Value) -> (Value, ReviewSummary) {
    send(&AdmissionSettings::default(), Hook::Validate, &review("CREATE", object, None))
}

/// A member as patched by `/mutate`.
fn patched_member(annotations: Value, spec: Value) -> Value {
    let object = pod(json!({ LABEL: "g" }), annotations, spec);
    patched(&create(&object).0, &object)
}

#[test]
fn a_member_without_a_gate_is_denied_with_the_fix() {
    let member = pod(json!({ LABEL: "train" }), json!({ GROUP: "train" }), json!({}));
    let (answer, summary) = validated(&member);
    assert_eq!(summary.verdict, AdmissionVerdict::Denied);
    assert_eq!(
        answer["response"]["status"]["details"]["causes"],
        json!([{ "reason": "FieldValueRequired", "field": "spec.schedulingGates",
            "message": "\"portcullis.dev/gang\" is missing. A member of group \"train\" without this gate starts without its gang, and a gate cannot be added later. Portcullis adds it at creation: its mutating webhook was not called, or another webhook removed it. Create the pod again. If that fails, the platform team runs \"portcullis doctor\" and checks MutatingWebhookConfiguration portcullis." }])
    );
    let gated = patched(&create(&member).0, &member);
    assert_eq!(validated(&gated).1.verdict, AdmissionVerdict::Allowed);
}

#[test]
fn validate_denies_exactly_the_fields_that_mutate_would_add() {
    const GATE: &str = "spec.schedulingGates: \"portcullis.dev/gang\" is missing";
    const TOLERATION: &str =
        "spec.tolerations: there is no toleration of \"portcullis.dev/gpu-sharing=vram:NoSchedule\"";
    let whole = json!({ GROUP: "g" });
    let share = json!({ GROUP: "g", "gpu-memory": "1" });
    let in_other = json!({ GROUP: "g", "gpu-memory": "1", "gpu-fraction-container-name": "other" });
    let kai = json!({ "schedulerName": "kai-scheduler" });
    let two = json!({ "containers": [{ "name": "main" }, { "name": "other" }] });
    let none = json!({});
    let check =
        |what: &str, annotations: &Value, spec: &Value, undo: &dyn Fn(&mut Value), expected: &[&str]| {
            let mut object = patched_member(annotations.clone(), spec.clone());
            assert_eq!(validated(&object).1.verdict, AdmissionVerdict::Allowed, "{what}: as it was made");
            undo(&mut object);
            let (_, summary) = validated(&object);
            let denied = !expected.is_empty();
            assert_eq!(
                summary.verdict,
                if denied { AdmissionVerdict::Denied } else { AdmissionVerdict::Allowed },
                "{what}"
            );
            assert_eq!(summary.causes.len(), expected.len(), "{what}: {:#?}", summary.causes);
            for (cause, expected) in summary.causes.iter().zip(expected) {
                assert!(cause.starts_with(expected), "{what}: {cause}");
            }
            // The same pod through both webhooks.
            let through = patched(&create(&object).0, &object);
            assert_eq!(validated(&through).1.verdict, AdmissionVerdict::Allowed, "{what}: mended by mutate");
        };
    let set = |path: &'static str, value: Value| {
        move |object: &mut Value| *object.pointer_mut(path).expect(path) = value.clone()
    };
    let gates = |value: Value| set("/spec/schedulingGates", value);
    let tolerations = |value: Value| set("/spec/tolerations", value);
    let env = |value: Value| set("/spec/containers/0/env", value);
    let variable = |value: &str| json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": value }]);

    check("nothing undone", &share, &none, &|_| {}, &[]);
    for empty in [json!(null), json!([])] {
        check("no gate", &whole, &none, &gates(empty.clone()), &[GATE]);
        check("no toleration", &share, &none, &tolerations(empty.clone()), &[TOLERATION]);
        check(
            "no variable",
            &share,
            &none,
            &env(empty),
            &[
                "spec.containers[0].env: NVIDIA_VISIBLE_DEVICES is missing; it must be a fieldRef to metadata.annotations['portcullis.dev/gpus'].",
            ],
        );
    }
    check(
        "another's gates",
        &whole,
        &none,
        &gates(json!([{ "name": "a.b/c" }, { "name": "d.e/f" }])),
        &[
            "spec.schedulingGates: \"portcullis.dev/gang\" is missing beside \"a.b/c,d.e/f\". A member of group \"g\"",
        ],
    );
    check(
        "our gate behind another's",
        &whole,
        &none,
        &gates(json!([{ "name": "a.b/c" }, { "name": "portcullis.dev/gang" }])),
        &[],
    );
    check("a gate that KAI's pods have, too", &share, &kai, &gates(json!([])), &[GATE]);
    check("any toleration that does", &share, &none, &tolerations(json!([{ "operator": "Exists" }])), &[]);
    check(
        "a toleration that does not",
        &share,
        &none,
        &tolerations(json!([{ "key": "a", "operator": "Exists" }])),
        &[TOLERATION],
    );
    check(
        "all cards",
        &share,
        &none,
        &env(variable("all\u{7}")),
        &["spec.containers[0].env: NVIDIA_VISIBLE_DEVICES is \"all\\u{7}\"; it must be a fieldRef"],
    );
    check(
        "another source",
        &share,
        &none,
        &env(
            json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }]),
        ),
        &["spec.containers[0].env: NVIDIA_VISIBLE_DEVICES has another source; it must be a fieldRef"],
    );
    check(
        "the container that asks",
        &in_other,
        &two,
        &set("/spec/containers/1/env", json!([])),
        &["spec.containers[1].env: NVIDIA_VISIBLE_DEVICES is missing"],
    );
    check(
        "the one that does not",
        &in_other,
        &two,
        &|object| object["spec"]["containers"][0]["env"] = variable("all"),
        &[],
    );
    check(
        "all of it",
        &share,
        &none,
        &|object| object["spec"] = json!({ "containers": [{ "name": "main" }] }),
        &[GATE, TOLERATION, "spec.containers[0].env: NVIDIA_VISIBLE_DEVICES is missing"],
    );
    // Fields that the engine does not need, or that depend on classes known late.
    check(
        "label alone",
        &share,
        &none,
        &|object| object["metadata"]["annotations"] = json!({ "gpu-memory": "1" }),
        &[],
    );
    check("annotation alone", &whole, &none, &set("/metadata/labels", json!(null)), &[]);
    check("no RuntimeClass", &share, &none, &set("/spec/runtimeClassName", json!(null)), &[]);
    check(
        "old cards",
        &whole,
        &none,
        &|object| object["metadata"]["annotations"]["portcullis.dev/gpus"] = json!("0"),
        &[],
    );
}

#[test]
fn a_pod_without_a_gang_needs_no_gate() {
    for (annotations, expected) in [
        (json!({}), AdmissionVerdict::Untouched),
        (json!({ "gpu-memory": "1" }), AdmissionVerdict::Allowed),
        (json!({ GROUP: "" }), AdmissionVerdict::Untouched),
    ] {
        let object = pod(json!({}), annotations.clone(), json!({}));
        assert_eq!(validated(&object).1.verdict, expected, "{annotations}");
    }
}
