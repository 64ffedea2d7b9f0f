//! Reviews of StatefulSets, and of members that name a scheduler which is not installed.

use super::*;

fn set_review(operation: &str, policy: Value, metadata: &Value, template: &Value) -> Value {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata,
        "spec": { "replicas": 4, "podManagementPolicy": policy, "template": template },
    });
    let mut review = review(operation, &object, None);
    review["request"]["kind"] = json!({ "group": "apps", "version": "v1", "kind": "StatefulSet" });
    review
}

fn template(labels: Value, annotations: Value, spec: Value) -> Value {
    let mut template = pod(labels, annotations, spec);
    template["metadata"].as_object_mut().unwrap().remove("name");
    template
}

/// Labels, annotations and spec of the pods of one stack.
fn stacks() -> Vec<(&'static str, Value)> {
    let (none, old) = (json!({}), "pod-group.scheduling.sigs.k8s.io");
    vec![
        ("kai", template(json!({ "kai.scheduler/podgroup": "g" }), none.clone(), none.clone())),
        ("kai", template(none.clone(), json!({ GROUP: "g" }), none.clone())),
        (
            "coscheduling",
            template(json!({ "scheduling.x-k8s.io/pod-group": "g" }), none.clone(), none.clone()),
        ),
        ("coscheduling", template(json!({ format!("{old}/name"): "g" }), none.clone(), none.clone())),
        ("volcano", template(none.clone(), json!({ "scheduling.k8s.io/group-name": "g" }), none.clone())),
        (
            "native",
            template(none.clone(), none.clone(), json!({ "schedulingGroup": { "podGroupName": "g" } })),
        ),
        (
            "native",
            template(
                none.clone(),
                none.clone(),
                json!({ "workloadRef": { "name": "g", "podGroup": "executors" } }),
            ),
        ),
        (
            "yunikorn",
            template(
                json!({ "applicationId": "g" }),
                json!({ "yunikorn.apache.org/task-group-name": "w" }),
                none.clone(),
            ),
        ),
        (
            "plain",
            template(
                none.clone(),
                json!({ "portcullis.dev/gang": "g", "portcullis.dev/gang-size": "4" }),
                none,
            ),
        ),
    ]
}

#[test]
fn a_stateful_set_of_a_gang_creates_its_pods_all_at_once() {
    let metadata = json!({ "name": "workers" });
    for (stack, template) in stacks() {
        for policy in [json!("OrderedReady"), json!(null)] {
            let asked = set_review("CREATE", policy, &metadata, &template);
            let (answer, summary) = send(&AdmissionSettings::default(), Hook::Mutate, &asked);
            assert_eq!(
                (summary.verdict, &*summary.name),
                (AdmissionVerdict::Patched, "workers"),
                "{stack}: {template}"
            );
            let mut expected = asked["request"]["object"].clone();
            expected["spec"]["podManagementPolicy"] = json!("Parallel");
            assert_eq!(patched(&answer, &asked["request"]["object"]), expected, "{stack}");
            let warning = answer["response"]["warnings"][0].as_str().unwrap();
            assert!(warning.starts_with("spec.podManagementPolicy was OrderedReady; set to Parallel"));
            assert!(warning.ends_with("(to keep the order: annotation portcullis.dev/ordered: keep)"));
        }
    }
}

#[test]
fn other_stateful_sets_are_unchanged() {
    let (named, member) = (json!({ "name": "w" }), stacks().swap_remove(0).1);
    let outsider = template(json!({ "app": "database" }), json!({}), json!({}));
    let of_lws =
        template(json!({ "leaderworkerset.sigs.k8s.io/name": "set" }), json!({ "x": "y" }), json!({}));
    let system = json!({ "name": "w", "namespace": "kube-system" });
    for (operation, policy, metadata, template, expected) in [
        ("CREATE", "Parallel", &named, &member, AdmissionVerdict::Allowed),
        ("CREATE", "FutureOrder", &named, &member, AdmissionVerdict::Allowed),
        ("UPDATE", "OrderedReady", &named, &member, AdmissionVerdict::Untouched),
        ("DELETE", "OrderedReady", &named, &member, AdmissionVerdict::Untouched),
        ("CREATE", "OrderedReady", &named, &outsider, AdmissionVerdict::Untouched),
        ("CREATE", "OrderedReady", &named, &of_lws, AdmissionVerdict::Untouched),
        ("CREATE", "OrderedReady", &system, &member, AdmissionVerdict::Untouched),
    ] {
        let mut asked = set_review(operation, json!(policy), metadata, template);
        if let Some(namespace) = metadata["namespace"].as_str() {
            asked["request"]["namespace"] = json!(namespace);
        }
        let (answer, summary) = send(&AdmissionSettings::default(), Hook::Mutate, &asked);
        assert_eq!(summary.verdict, expected, "{asked}");
        assert!(answer["response"]["warnings"].is_null(), "{answer}");
    }
    let mut scaled = set_review("UPDATE", json!("OrderedReady"), &named, &member);
    scaled["request"]["subResource"] = json!("scale");
    assert_eq!(
        send(&AdmissionSettings::default(), Hook::Mutate, &scaled).1.verdict,
        AdmissionVerdict::Untouched
    );
}

#[test]
fn a_manifest_with_an_explicit_order_can_be_applied_again() {
    let (named, member) = (json!({ "name": "w" }), stacks().swap_remove(0).1);
    let keep = json!({ "name": "w", "annotations": { "portcullis.dev/ordered": "keep" } });
    let check = |was: &str, becomes: &str, metadata: &Value, expected: AdmissionVerdict| {
        let mut asked = set_review("UPDATE", json!(becomes), metadata, &member);
        let mut old = asked["request"]["object"].clone();
        old["spec"]["podManagementPolicy"] = json!(was);
        asked["request"]["oldObject"] = old.clone();
        let (answer, summary) = send(&AdmissionSettings::default(), Hook::Mutate, &asked);
        assert_eq!(summary.verdict, expected, "{was} {becomes}");
        if expected == AdmissionVerdict::Patched {
            assert_eq!(patched(&answer, &asked["request"]["object"]), old);
        }
    };
    check("Parallel", "OrderedReady", &named, AdmissionVerdict::Patched);
    check("Parallel", "Parallel", &named, AdmissionVerdict::Allowed);
    check("OrderedReady", "OrderedReady", &named, AdmissionVerdict::Untouched);
    check("OrderedReady", "Parallel", &named, AdmissionVerdict::Untouched);
    // The API server rejects it: the annotation asks for the order.
    check("Parallel", "OrderedReady", &keep, AdmissionVerdict::Allowed);
}

#[test]
fn a_requested_order_is_kept_with_a_warning() {
    let member = stacks().swap_remove(0).1;
    let check = |wish: &str, verdict: AdmissionVerdict, expected: &[&str]| {
        let metadata = json!({ "name": "w", "annotations": { "portcullis.dev/ordered": wish } });
        let asked = set_review("CREATE", json!("OrderedReady"), &metadata, &member);
        let (answer, summary) = send(&AdmissionSettings::default(), Hook::Mutate, &asked);
        assert_eq!(summary.verdict, verdict, "{wish}");
        assert_eq!(answer["response"]["warnings"], json!(expected), "{wish}");
    };
    let kept = "the pods are created in order (portcullis.dev/ordered: keep), each when the previous one is Ready: gang \"g\" \
                starts when all of it fits, and reserves capacity for later pods that are like the first";
    check("keep", AdmissionVerdict::Patched, &[kept]);
    check(
        "Keep",
        AdmissionVerdict::Patched,
        &[
            "portcullis.dev/ordered \"Keep\" is not a known value: use \"keep\", or remove the annotation",
            "spec.podManagementPolicy was OrderedReady; set to Parallel: in order, pod 1 would wait for pod 0, and pod 0 for its \
             gang \"g\" (to keep the order: annotation portcullis.dev/ordered: keep)",
        ],
    );
}

/// The engine reads pods, not their owners.
#[test]
fn pods_of_an_ordered_set_get_the_annotation() {
    let keep = json!({ "portcullis.dev/ordered": "keep" });
    for (stack, template) in stacks() {
        let set = json!({ "name": "w", "annotations": keep });
        let asked = set_review("CREATE", json!("OrderedReady"), &set, &template);
        let object = &asked["request"]["object"];
        let (answer, _) = send(&AdmissionSettings::default(), Hook::Mutate, &asked);
        let mut expected = object.clone();
        expected["spec"]["template"]["metadata"]["annotations"]["portcullis.dev/ordered"] = json!("keep");
        assert_eq!(patched(&answer, object), expected, "{stack}");
        // An annotation on the pods is enough, and a second review changes nothing.
        let (mut again, plain) = (asked.clone(), json!({ "name": "w" }));
        again["request"]["object"] = expected;
        for (hook, metadata) in [(Hook::Mutate, &set), (Hook::Mutate, &plain), (Hook::Validate, &set)] {
            again["request"]["object"]["metadata"] = metadata.clone();
            let (answer, summary) = send(&AdmissionSettings::default(), hook, &again);
            assert_eq!(summary.verdict, AdmissionVerdict::Allowed, "{stack} {hook:?}");
            assert!(answer["response"]["patch"].is_null(), "{stack} {hook:?}");
        }
    }
}

#[test]
fn the_warning_for_the_longest_name_is_not_truncated() {
    let template = template(json!({ "kai.scheduler/podgroup": "g".repeat(63) }), json!({}), json!({}));
    for metadata in [json!({ "name": "w" }), json!({ "annotations": { "portcullis.dev/ordered": "keep" } })] {
        let asked = set_review("CREATE", json!(null), &metadata, &template);
        let (answer, _) = send(&AdmissionSettings::default(), Hook::Mutate, &asked);
        let warning = answer["response"]["warnings"][0].as_str().unwrap();
        assert!(warning.len() < 256, "{} characters: {warning}", warning.len());
    }
}

#[test]
fn a_scheduler_that_is_not_installed_is_replaced_in_new_members() {
    let settings = AdmissionSettings {
        rewritten_schedulers: ["kai-scheduler", "scheduler-plugins-scheduler"].map(str::to_owned).into(),
        ..AdmissionSettings::default()
    };
    let check = |annotations: Value, named: &str, expected: &str, warned: &[&str]| {
        let object = pod(json!({}), annotations, json!({ "schedulerName": named }));
        let (answer, _) = send(&settings, Hook::Mutate, &review("CREATE", &object, None));
        let result = patched(&answer, &object);
        assert_eq!(result["spec"]["schedulerName"], json!(expected), "{named}");
        let warnings = answer["response"]["warnings"].as_array().cloned().unwrap_or_default();
        assert_eq!(warnings, warned, "{named}");
        result
    };
    let member = json!({ GROUP: "g", "kai.scheduler/podgroup": "g" });
    let default = "default-scheduler";
    let kai = "spec.schedulerName \"kai-scheduler\" is not installed here: changed to \"default-scheduler\", and the gang is \
               placed by portcullis";
    check(member.clone(), "kai-scheduler", default, &[kai]);
    check(
        member.clone(),
        "scheduler-plugins-scheduler",
        default,
        &[&kai.replace("kai-scheduler", "scheduler-plugins-scheduler")],
    );
    check(member.clone(), default, default, &[]);
    check(member.clone(), "volcano", "volcano", &[]);
    check(member, "", "", &[]);
    // A pod without a gang keeps its scheduler.
    check(json!({}), "kai-scheduler", "kai-scheduler", &[]);

    // Portcullis assigns cards to the pods that it places.
    let share = json!({ GROUP: "g", "gpu-memory": "8000" });
    let result = check(share.clone(), "kai-scheduler", default, &[kai]);
    assert_eq!(result["spec"]["containers"][0]["env"][0]["name"], "NVIDIA_VISIBLE_DEVICES");
    let elsewhere = pod(json!({}), share, json!({ "schedulerName": "kai-scheduler" }));
    let (answer, _) = send(&AdmissionSettings::default(), Hook::Mutate, &review("CREATE", &elsewhere, None));
    let result = patched(&answer, &elsewhere);
    assert!(result["spec"]["containers"][0]["env"].is_null() && result["spec"]["tolerations"].is_null());

    // The scheduler can be changed only at creation.
    let (old, new) = (pod(json!({}), json!({ GROUP: "g" }), json!({ "schedulerName": "kai-scheduler" })), {
        let mut new = pod(json!({}), json!({ GROUP: "g" }), json!({ "schedulerName": "kai-scheduler" }));
        new["metadata"]["labels"] = json!({ "note": "x" });
        new
    });
    let (answer, _) = send(&settings, Hook::Mutate, &review("UPDATE", &new, Some(&old)));
    assert!(answer["response"]["patch"].is_null());
}
