//! Tests of `GangPolicy`: what its translated policies deny and change, and the errors found in a document.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::{GANG_POLICY_FIELDS, editor_schema, translate};
use crate::diagnostic::{Diagnostic, Severity};
use crate::evaluation::{CompiledPolicies, MutatingPolicy, ParamStore, ValidatingPolicy};
use crate::input::{AdmissionRequest, ClusterData, WorkBudget};

fn policy(spec: &Json) -> Json {
    json!({ "apiVersion": "portcullis.dev/v1alpha1", "kind": "GangPolicy", "metadata": { "name": "research" }, "spec": spec })
}

fn compiled(spec: &Json) -> CompiledPolicies {
    let mut diagnostics = Vec::new();
    let documents = translate(&policy(spec), &mut diagnostics).unwrap_or_else(|| panic!("{diagnostics:?}"));
    let of = |kind: &str| documents.iter().find(|document| document["kind"] == kind);
    let mut validating = Vec::new();
    let mut mutating = Vec::new();
    if let Some(document) = of("ValidatingAdmissionPolicy") {
        let mut policy = ValidatingPolicy::compile(document, &mut diagnostics)
            .unwrap_or_else(|| panic!("{diagnostics:?}"));
        policy.bind(of("ValidatingAdmissionPolicyBinding").expect("it has one"), &mut diagnostics);
        validating.push(policy);
    }
    if let Some(document) = of("MutatingAdmissionPolicy") {
        let mut policy =
            MutatingPolicy::compile(document, &mut diagnostics).unwrap_or_else(|| panic!("{diagnostics:?}"));
        policy.bind(of("MutatingAdmissionPolicyBinding").expect("it has one"), &mut diagnostics);
        mutating.push(policy);
    }
    let errors: Vec<&Diagnostic> =
        diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    CompiledPolicies::new(validating, mutating, ParamStore::default())
}

fn cluster() -> ClusterData {
    let capacity = json!({
        "namespaces": { "ml": { "running": { "pods": 4, "gpus": 8, "gangs": 1 }, "waiting": { "pods": 2, "gpus": 4, "gangs": 1 } } },
        "queues": { "team-a": { "running": { "pods": 4, "gpus": 8, "gangs": 1 } } },
    });
    let group = json!({ "metadata": { "name": "train" }, "spec": { "minMember": 4, "queue": "team-a" } });
    let namespace = json!({ "metadata": { "name": "ml", "labels": { "team": "a" } } });
    let classes =
        [("high", json!({ "value": 9 })), ("calm", json!({ "value": 9, "preemptionPolicy": "Never" }))];
    ClusterData {
        namespaces: [("ml".to_owned(), namespace)].into(),
        groups: [("PodGroup.scheduling.run.ai/ml/train".to_owned(), group)].into(),
        priority_classes: Some(classes.map(|(name, class)| (name.to_owned(), class)).into()),
        capacity: Some(Arc::new(serde_json::from_value(capacity).expect("it is of the shape"))),
        ..ClusterData::default()
    }
}

fn request(namespace: &str, group: &str, version: &str, kind: &str, object: &Json) -> Json {
    let resource = format!("{}s", kind.to_lowercase());
    let (gvk, gvr) = (
        json!({ "group": group, "version": version, "kind": kind }),
        json!({ "group": group, "version": version, "resource": resource }),
    );
    json!({ "uid": "u", "operation": "CREATE", "namespace": namespace, "name": "x", "kind": gvk, "requestKind": gvk, "resource": gvr,
        "requestResource": gvr, "object": object, "oldObject": null, "userInfo": { "username": "ada" }, "options": {} })
}

fn pod(metadata: &Json, spec: &Json) -> Json {
    let mut whole = json!({ "containers": [{ "name": "main", "image": "train:1" }] });
    whole.as_object_mut().expect("it is one").extend(spec.as_object().expect("it is one").clone());
    request(
        "ml",
        "",
        "v1",
        "Pod",
        &json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole }),
    )
}

fn with_gpus(annotations: &Json, gpus: u32) -> Json {
    let container =
        json!({ "name": "main", "image": "train:1", "resources": { "limits": { "nvidia.com/gpu": gpus } } });
    pod(&json!({ "name": "x", "annotations": annotations }), &json!({ "containers": [container] }))
}

fn denial_messages(spec: &Json, request: &Json) -> Vec<String> {
    let validation =
        compiled(spec).validate(&AdmissionRequest { json: request }, &cluster(), &WorkBudget::unlimited());
    assert_eq!(validation.ignored_errors, Vec::<String>::new());
    let head = "ValidatingAdmissionPolicy 'research' with binding 'research' denied request: ";
    validation.denials.iter().map(|d| d.message.strip_prefix(head).unwrap_or(&d.message).to_owned()).collect()
}

/// Checks that the first request is denied with this message and the second is allowed.
fn check_denial(spec: &Json, refused: &Json, words: &str, allowed: &Json) {
    assert_eq!(denial_messages(spec, refused), [words], "{spec}");
    assert_eq!(denial_messages(spec, allowed), Vec::<String>::new(), "{spec}");
}

const PLAIN: &str = "portcullis.dev/gang";
const SIZE: &str = "portcullis.dev/gang-size";

#[test]
fn pods_above_a_pod_limit_are_denied() {
    check_denial(
        &json!({ "limits": { "pod": { "gpus": 8 } } }),
        &with_gpus(&json!({}), 16),
        "the pod asks for 16 whole GPUs, and a pod may ask for at most 8 (limits.pod.gpus of GangPolicy research). \
         Lower resources.limits, and spread the work over more pods of one gang.",
        &with_gpus(&json!({}), 8),
    );
    let share = |mib: &str| {
        pod(
            &json!({ "name": "x", "annotations": { "gpu-memory": mib, "gpu-fraction-num-devices": "2" } }),
            &json!({}),
        )
    };
    check_denial(
        &json!({ "limits": { "pod": { "vram": "40Gi" } } }),
        &share("24000"),
        "the pod asks for 48000 MiB of shared cards on 2 cards, and a pod may ask for at most 40960 MiB (limits.pod.vram of \
         GangPolicy research). Lower the annotation gpu-memory.",
        &share("20480"),
    );
}

#[test]
fn gangs_outside_of_a_gang_limit_are_denied() {
    let of = |size: &str, gpus| with_gpus(&json!({ PLAIN: "g", SIZE: size }), gpus);
    check_denial(
        &json!({ "limits": { "gang": { "maxSize": 4 } } }),
        &of("5", 1),
        "gang g has 5 members, and at most 4 are allowed (limits.gang.maxSize of GangPolicy research). Make the group smaller, or ask the \
         platform team for a higher limit.",
        &of("4", 1),
    );
    check_denial(
        &json!({ "limits": { "gang": { "minSize": 2 } } }),
        &of("1", 1),
        "gang g starts with 1 member, and at least 2 are required (limits.gang.minSize of GangPolicy research). Raise the size of the group, \
         or run the pods without a group.",
        &with_gpus(&json!({}), 1),
    );
    check_denial(
        &json!({ "limits": { "gang": { "gpus": 16 } } }),
        &of("3", 8),
        "gang g asks for 24 whole GPUs with its 3 members, and at most 16 are allowed (limits.gang.gpus of GangPolicy research). Ask for less \
         in each pod, or make the group smaller.",
        &of("2", 8),
    );
    let timed = |time: &str| with_gpus(&json!({ PLAIN: "g", SIZE: "2", "portcullis.dev/timeout": time }), 1);
    check_denial(
        &json!({ "limits": { "gang": { "timeout": "1h" } } }),
        &timed("2h"),
        "gang g has a timeout of 7200s, and at most 1h is allowed (limits.gang.timeout of GangPolicy research). Set a shorter timeout.",
        &timed("1h"),
    );
    // A group object is denied when it is applied.
    let group = |gpus: u32| {
        let object = json!({ "metadata": { "name": "big" }, "spec": { "minMember": 2, "minResources": { "nvidia.com/gpu": gpus } } });
        request("ml", "scheduling.x-k8s.io", "v1alpha1", "PodGroup", &object)
    };
    check_denial(
        &json!({ "limits": { "gang": { "gpus": 16 } } }),
        &group(32),
        "gang big asks for 32 whole GPUs with its 2 members, and at most 16 are allowed (limits.gang.gpus of GangPolicy research). Ask for less \
         in each pod, or make the group smaller.",
        &group(16),
    );
}

#[test]
fn limits_of_namespaces_and_queues_count_the_whole_gang() {
    let member = with_gpus(&json!({ "pod-group-name": "train" }), 2);
    let alone = with_gpus(&json!({}), 4);
    let limit = |n: u32| json!({ "limits": { "namespace": { "gpus": n } } });
    check_denial(
        &limit(19),
        &member,
        "namespace ml asks for 12 whole GPUs already (8 running, 4 waiting); with gang train it would be 20, and at most 19 are allowed \
         (limits.namespace.gpus of GangPolicy research). Wait until one of its pods ends, ask for less, or ask the platform team for a higher limit.",
        &alone,
    );
    assert_eq!(denial_messages(&limit(20), &member), Vec::<String>::new());
    check_denial(
        &limit(15),
        &alone,
        "namespace ml asks for 12 whole GPUs already (8 running, 4 waiting); with this object it would be 16, and at most 15 are allowed \
         (limits.namespace.gpus of GangPolicy research). Wait until one of its pods ends, ask for less, or ask the platform team for a higher limit.",
        &with_gpus(&json!({}), 3),
    );
    // A gang without GPUs is not limited.
    assert_eq!(
        denial_messages(&limit(1), &with_gpus(&json!({ PLAIN: "g", SIZE: "2" }), 0)),
        Vec::<String>::new()
    );
    let queues = |each: u32, own: u32| json!({ "limits": { "queue": { "gpus": each }, "queues": { "team-a": { "gpus": own } } } });
    check_denial(
        &queues(100, 15),
        &member,
        "queue team-a asks for 8 whole GPUs already (8 running, 0 waiting); with gang train it would be 16, and at most 15 are allowed \
         (limits.queues.team-a.gpus of GangPolicy research). Wait until one of its pods ends, ask for less, or ask the platform team for a higher limit.",
        &alone,
    );
    assert_eq!(denial_messages(&queues(1, 16), &member), Vec::<String>::new());
    let mut other = member;
    other["object"]["metadata"] = json!({ "name": "x", "labels": { "kai.scheduler/queue": "team-b" } });
    assert!(
        denial_messages(&queues(1, 16), &other)[0].starts_with("queue team-b asks for 0 whole GPUs already")
    );
}

#[test]
fn workloads_above_a_limit_are_denied_when_they_are_applied() {
    let template = json!({ "metadata": { "annotations": { PLAIN: "g", SIZE: "6" } }, "spec": { "containers": [
        { "name": "main", "resources": { "limits": { "nvidia.com/gpu": 8 } } } ] } });
    let job = request(
        "ml",
        "batch",
        "v1",
        "Job",
        &json!({ "metadata": { "name": "x" }, "spec": { "parallelism": 6, "template": template } }),
    );
    let all = denial_messages(
        &json!({ "limits": { "gang": { "maxSize": 4, "gpus": 32 }, "pod": { "gpus": 4 } } }),
        &job,
    );
    let starts: Vec<&str> = all.iter().filter_map(|text| text.split(',').next()).collect();
    assert_eq!(
        starts,
        [
            "gang g has 6 members",
            "gang g asks for 48 whole GPUs with its 6 members",
            "the pod asks for 8 whole GPUs"
        ]
    );
}

#[test]
fn missing_groups_unknown_schedulers_and_preemption_are_denied() {
    let reject = json!({ "missingGroup": "reject" });
    check_denial(
        &reject,
        &with_gpus(&json!({ "pod-group-name": "trian" }), 1),
        "group trian of kai does not exist in namespace ml (missingGroup of GangPolicy research). Create the group first, correct its name in the \
         pod, or set the number of members in the pod.",
        &with_gpus(&json!({ "pod-group-name": "train" }), 1),
    );
    assert_eq!(
        denial_messages(&reject, &with_gpus(&json!({ PLAIN: "g", SIZE: "2" }), 1)),
        Vec::<String>::new()
    );
    let named = |scheduler: &str| {
        pod(
            &json!({ "name": "x", "annotations": { "gpu-memory": "1" } }),
            &json!({ "schedulerName": scheduler }),
        )
    };
    check_denial(
        &json!({ "schedulers": { "known": ["volcano"], "unknown": "reject" } }),
        &named("kai-scheduler"),
        "scheduler kai-scheduler does not run in this cluster: the known schedulers are default-scheduler, volcano (schedulers.known of GangPolicy research). Remove \
         spec.schedulerName.",
        &named("volcano"),
    );
    let bare = json!({ "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": { "name": "x" } });
    let bare = request("ml", "scheduling.x-k8s.io", "v1alpha1", "PodGroup", &bare);
    let reject = json!({ "schedulers": { "unknown": "reject" } });
    assert_eq!(denial_messages(&reject, &bare), Vec::<String>::new(), "a group may have no spec");
    let classed = |class: &str| {
        pod(
            &json!({ "name": "x", "annotations": { "gpu-memory": "1" } }),
            &json!({ "priorityClassName": class }),
        )
    };
    check_denial(
        &json!({ "preemption": "reject" }),
        &classed("high"),
        "spec.priorityClassName high lets the scheduler evict other pods (preemption of GangPolicy research). Name a class with preemptionPolicy: Never.",
        &classed("calm"),
    );
}

#[test]
fn match_selects_the_requests_of_the_policy() {
    let check = |matching: Json, request: &Json, about: bool| {
        let spec = json!({ "match": matching, "limits": { "pod": { "gpus": 1 } } });
        assert_eq!(!denial_messages(&spec, request).is_empty(), about, "{matching}");
    };
    let big = with_gpus(&json!({ "pod-group-name": "train" }), 2);
    check(json!({}), &big, true);
    check(json!({ "namespaces": ["ml"] }), &big, true);
    check(json!({ "namespaces": ["web"] }), &big, false);
    check(json!({ "excludeNamespaces": ["ml"] }), &big, false);
    check(json!({ "namespaceSelector": { "matchLabels": { "team": "a" } } }), &big, true);
    check(json!({ "namespaceSelector": { "matchLabels": { "team": "b" } } }), &big, false);
    check(
        json!({ "objectSelector": { "matchExpressions": [{ "key": "x", "operator": "Exists" }] } }),
        &big,
        false,
    );
    check(json!({ "dialects": ["kai"] }), &big, true);
    check(json!({ "dialects": ["volcano"] }), &big, false);
    check(json!({ "dialects": ["kai"] }), &with_gpus(&json!({}), 2), false);
    let mut system = big;
    system["namespace"] = json!("kube-system");
    check(json!({}), &system, false);
}

#[test]
fn action_can_warn_and_failure_policy_can_allow_unknown_usage() {
    let spec = json!({ "action": "Warn", "limits": { "pod": { "gpus": 1 } } });
    let request = with_gpus(&json!({}), 2);
    let validation =
        compiled(&spec).validate(&AdmissionRequest { json: &request }, &cluster(), &WorkBudget::unlimited());
    assert_eq!((validation.denials.len(), validation.warnings.len()), (0, 1));
    for (policy, denials, ignored) in [("Fail", 1, 0), ("Ignore", 0, 1)] {
        let spec = json!({ "failurePolicy": policy, "limits": { "namespace": { "gpus": 1 } } });
        let validation = compiled(&spec).validate(
            &AdmissionRequest { json: &request },
            &ClusterData::default(),
            &WorkBudget::unlimited(),
        );
        assert_eq!(
            (validation.denials.len(), validation.ignored_errors.len()),
            (denials, ignored),
            "{validation:?}"
        );
        let said: String = validation.denials.iter().map(|denial| denial.detail.as_str()).collect();
        let words = "the whole GPUs of namespace ml are not known yet (limits.namespace.gpus of GangPolicy research). Try again in a few seconds.";
        assert_eq!(said, if denials == 0 { "" } else { words });
    }
}

/// Checks the changed parts of the object, by pointer.
fn check_changes(spec: &Json, request: &Json, expected: &[(&str, Json)]) {
    let mutation = compiled(spec).mutate(
        &AdmissionRequest { json: request },
        &cluster(),
        &WorkBudget::unlimited(),
        &|_| None,
    );
    assert!(mutation.denials.is_empty() && mutation.ignored_errors.is_empty(), "{spec}: {mutation:?}");
    let object = mutation.object.unwrap_or_else(|| request["object"].clone());
    let diff = json_patch::diff(&request["object"], &object);
    let found = serde_json::to_value(&diff).expect("it can be written");
    let mut paths: Vec<(String, Json)> = Vec::new();
    for operation in found.as_array().expect("it is a list") {
        paths.push((
            operation["path"].as_str().unwrap_or_default().to_owned(),
            operation.get("value").cloned().unwrap_or_default(),
        ));
    }
    paths.sort_by(|a, b| a.0.cmp(&b.0));
    let expected: Vec<(String, Json)> =
        expected.iter().map(|(path, value)| ((*path).to_owned(), value.clone())).collect();
    assert_eq!(paths, expected, "{spec}");
}

#[test]
fn lifetime_defaults_become_annotations() {
    let spec = json!({ "defaults": { "timeout": "30m", "onTimeout": "delete", "onStale": "evict", "staleGrace": "2m", "elastic": true, "onTorn": "evict", "topology": "zone", "pin": true } });
    let all = json!({ "portcullis.dev/timeout": "30m", "portcullis.dev/on-timeout": "delete", "portcullis.dev/on-stale": "evict",
        "portcullis.dev/stale-grace": "2m", "portcullis.dev/elastic": "true",
        "portcullis.dev/on-torn": "evict", "portcullis.dev/topology": "zone", "portcullis.dev/pin": "true" });
    let group = |metadata: Json, spec: Json| {
        request(
            "ml",
            "scheduling.x-k8s.io",
            "v1alpha1",
            "PodGroup",
            &json!({ "metadata": metadata, "spec": spec }),
        )
    };
    check_changes(
        &spec,
        &group(json!({ "name": "g" }), json!({ "minMember": 2 })),
        &[("/metadata/annotations", all)],
    );
    let annotations = json!({ "portcullis.dev/on-timeout": "requeue", "portcullis.dev/elastic": "false", "portcullis.dev/on-torn": "hold", "portcullis.dev/topology": "rack", "portcullis.dev/pin": "false", "portcullis.dev/stale-grace": "-1s", "portcullis.dev/on-stale": "keep" });
    check_changes(
        &spec,
        &group(
            json!({ "name": "g", "annotations": annotations }),
            json!({ "minMember": 2, "scheduleTimeoutSeconds": 60 }),
        ),
        &[],
    );
    // A group has its own annotations. Pods of a gang without a group carry them. Other pods get none.
    check_changes(&spec, &with_gpus(&json!({ "pod-group-name": "train" }), 1), &[]);
    check_changes(
        &json!({ "defaults": { "staleGrace": "never" } }),
        &with_gpus(&json!({ PLAIN: "g", SIZE: "2" }), 1),
        &[("/metadata/annotations/portcullis.dev~1stale-grace", json!("-1s"))],
    );
    check_changes(&spec, &with_gpus(&json!({}), 1), &[]);
}

#[test]
fn pod_defaults_fill_in_absent_fields() {
    let spec = json!({ "defaults": { "runtimeClassName": "nvidia", "priorityClassName": "calm", "nodeSelector": { "pool": "a", "zone": "z" } } });
    let plain = |spec: &Json| pod(&json!({ "name": "x", "annotations": { "gpu-memory": "1" } }), spec);
    check_changes(
        &spec,
        &plain(&json!({ "priority": 0, "preemptionPolicy": "PreemptLowerPriority" })),
        &[
            ("/spec/nodeSelector", json!({ "pool": "a", "zone": "z" })),
            ("/spec/preemptionPolicy", Json::Null),
            ("/spec/priority", Json::Null),
            ("/spec/priorityClassName", json!("calm")),
            ("/spec/runtimeClassName", json!("nvidia")),
        ],
    );
    check_changes(
        &spec,
        &plain(
            &json!({ "priorityClassName": "high", "priority": 9, "runtimeClassName": "kata", "nodeSelector": { "pool": "b" } }),
        ),
        &[("/spec/nodeSelector/zone", json!("z"))],
    );
    let rewrite = json!({ "schedulers": { "known": ["volcano"], "unknown": "rewrite" } });
    check_changes(
        &rewrite,
        &plain(&json!({ "schedulerName": "kai-scheduler" })),
        &[("/spec/schedulerName", json!("default-scheduler"))],
    );
    check_changes(&rewrite, &plain(&json!({ "schedulerName": "volcano" })), &[]);
    check_changes(&rewrite, &plain(&json!({})), &[]);
}

#[test]
fn a_stateful_set_of_a_gang_gets_the_ordered_annotation() {
    let set = |annotations: &Json| {
        let template = json!({ "metadata": { "annotations": { PLAIN: "g", SIZE: "3" } }, "spec": { "containers": [{ "name": "a" }] } });
        request(
            "ml",
            "apps",
            "v1",
            "StatefulSet",
            &json!({ "metadata": { "name": "s", "annotations": annotations }, "spec": { "replicas": 3, "template": template } }),
        )
    };
    let spec = json!({ "defaults": { "ordered": "keep", "timeout": "5m" } });
    check_changes(
        &spec,
        &set(&json!({})),
        &[("/metadata/annotations/portcullis.dev~1ordered", json!("keep"))],
    );
    check_changes(&spec, &set(&json!({ "portcullis.dev/ordered": "keep" })), &[]);
}

#[test]
fn errors_are_reported_with_their_place() {
    let check = |spec: Json, expected: &[(&str, &str, Option<&str>)]| {
        let mut diagnostics = Vec::new();
        let lowered = translate(&policy(&spec), &mut diagnostics);
        let found: Vec<_> = diagnostics
            .iter()
            .map(|f| (f.pointer.as_str(), f.message.as_str(), f.suggestion.as_deref()))
            .collect();
        assert_eq!(found, expected, "{spec}");
        assert_eq!(
            lowered.is_none(),
            diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
        );
    };
    check(
        json!({ "default": {}, "limits": { "gang": { "maxsize": 4, "gpus": 0 }, "pod": { "vram": "40 GB", "gpus": "8" }, "queues": { "a": { "gpu": 1 } } },
            "action": "deny", "match": { "dialects": ["kia"], "namespaces": [], "namespaceSelector": { "matchLabel": {} } },
            "defaults": { "timeout": "30", "staleGrace": "0s", "elastic": "yes", "nodeSelector": { "a": 1 } } }),
        &[
            ("/spec/action", "\"deny\" is not one of Deny, Warn, Audit", Some("Deny")),
            ("/spec/default", "unknown field \"default\"", Some("defaults")),
            ("/spec/defaults/elastic", "this must be true or false", None),
            ("/spec/defaults/nodeSelector/a", "this must be text, and is 1: put it in quotes", None),
            ("/spec/defaults/timeout", "\"30\" is not a duration: write it like 90s, 30m or 1h30m", None),
            (
                "/spec/limits/gang/gpus",
                "this must be a whole number of at least 1; remove it for no limit",
                None,
            ),
            ("/spec/limits/gang/maxsize", "unknown field \"maxsize\"", Some("maxSize")),
            (
                "/spec/limits/pod/gpus",
                "this must be a whole number of at least 1; remove it for no limit",
                None,
            ),
            (
                "/spec/limits/pod/vram",
                "\"40 GB\" is not a memory quantity: write it like 40Gi or 8000Mi, at least 1Mi",
                None,
            ),
            ("/spec/limits/queues/a/gpu", "unknown field \"gpu\"", Some("gpus")),
            (
                "/spec/match/dialects/0",
                "\"kia\" is not one of kai, coscheduling, volcano, lws, native, yunikorn, plain",
                Some("kai"),
            ),
            ("/spec/match/namespaceSelector/matchLabel", "unknown field \"matchLabel\"", Some("matchLabels")),
            ("/spec/match/namespaces", "the list is empty: remove it", None),
        ],
    );
    check(
        json!({ "defaults": { "timeout": "2h", "staleGrace": "1m", "onStale": "keep" },
            "limits": { "gang": { "minSize": 5, "maxSize": 4, "timeout": "1h", "gpus": 4 }, "pod": { "gpus": 8 } },
            "match": { "namespaces": ["a"], "excludeNamespaces": ["a"] }, "schedulers": { "known": ["volcano"], "rewriteTo": "volcano" } }),
        &[
            (
                "/spec/limits/gang/minSize",
                "no gang can have at least 5 and at most 4 members (limits.gang.maxSize)",
                None,
            ),
            (
                "/spec/limits/pod/gpus",
                "a pod may ask for 8 GPUs, and a gang for 4 only (limits.gang.gpus): this limit is never reached",
                None,
            ),
            (
                "/spec/defaults/timeout",
                "a gang without a timeout would get 2h, more than limits.gang.timeout (1h): lower the default or raise the limit",
                None,
            ),
            (
                "/spec/defaults/staleGrace",
                "has no effect: defaults.onStale is keep, so a stale gang is never evicted",
                None,
            ),
            (
                "/spec/schedulers/known",
                "has no effect: schedulers.unknown is keep, so scheduler names are not changed. Set it to rewrite or reject",
                None,
            ),
            (
                "/spec/schedulers/rewriteTo",
                "has no effect: schedulers.unknown is keep, so no pod is given to \"volcano\"",
                None,
            ),
            (
                "/spec/match/excludeNamespaces/0",
                "\"a\" is in match.namespaces too: remove it from one of them",
                None,
            ),
        ],
    );
    check(
        json!({ "action": "Warn", "limits": {} }),
        &[(
            "/spec",
            "this policy does nothing: it has no defaults, limits, schedulers, missingGroup or preemption",
            None,
        )],
    );
}

#[test]
fn documented_defaults_are_the_defaults_of_the_engine() {
    use portcullis_core::dialect::{OnStale, OnTimeout, OnTorn};
    let settings = portcullis_core::engine::EngineSettings::default();
    let shown = |path: &str| {
        GANG_POLICY_FIELDS.iter().find(|setting| setting.path == path).expect("it is there").default
    };
    assert_eq!((settings.on_timeout, shown("defaults.onTimeout")), (OnTimeout::Requeue, "requeue"));
    assert_eq!((settings.on_torn, shown("defaults.onTorn")), (OnTorn::Retry, "retry"));
    assert_eq!((settings.pin_all.to_string().as_str(), shown("defaults.pin")), ("false", "false"));
    assert_eq!((settings.on_stale, shown("defaults.onStale")), (OnStale::Evict, "evict"));
    assert_eq!(super::fields::time(shown("defaults.staleGrace")), Some(settings.stale_grace));
    let admission = portcullis_core::admission::AdmissionSettings::default();
    let excluded = format!("[{}]", super::fields::EXCLUDED_NAMESPACES.join(", "));
    assert_eq!(excluded, shown("match.excludeNamespaces"));
    assert_eq!(admission.excluded_namespaces, super::fields::EXCLUDED_NAMESPACES.map(str::to_owned).into());
}

#[test]
fn the_editor_schema_describes_every_field() {
    let schema = editor_schema();
    for setting in GANG_POLICY_FIELDS {
        let pointer = setting.path.replace(".*.", ".additionalProperties.");
        let mut place = &schema["properties"]["spec"];
        for step in pointer.split('.') {
            place = if step == "additionalProperties" { &place[step] } else { &place["properties"][step] };
        }
        assert!(place["description"].is_string(), "{}: {place}", setting.path);
    }
}
