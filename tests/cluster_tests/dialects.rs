//! A gang of each stack on a real control plane, with pods and groups as that stack makes them. The
//! registered webhook gates the pods, the engine starts them together, and the status of the group object
//! reports it where the kind has such a status.

use std::fmt::Write as _;

use portcullis_test_cluster::{Cluster, Node, Options, Portcullis, ProgramOptions, Version, available};
use serde_json::{Value, json};

/// A stack, and how it describes a gang of three.
struct Case {
    name: &'static str,
    /// The parts of `metadata` and `spec` of a pod that name its gang.
    keys: fn(index: u32) -> Value,
    /// The group object and its path.
    group: Option<(Value, &'static str)>,
    /// Name of the `Gang` object.
    gang: &'static str,
    /// The expected final status of the group object.
    final_status: Option<fn(&Value) -> bool>,
}

fn keys(labels: &Value, annotations: &Value) -> Value {
    json!({ "metadata": { "labels": labels, "annotations": annotations } })
}

fn group(api_version: &str, spec: &Value) -> Value {
    json!({ "apiVersion": api_version, "kind": "PodGroup", "metadata": { "name": "app" }, "spec": spec })
}

fn runs(status: &Value) -> bool {
    status["phase"] == "Running" && status["running"] == 3
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "kai",
            keys: |_| keys(&json!({ "kai.scheduler/podgroup": "app" }), &json!({})),
            group: Some((
                group("scheduling.run.ai/v2alpha2", &json!({ "minMember": 3 })),
                "/apis/scheduling.run.ai/v2alpha2/namespaces/NS/podgroups/app",
            )),
            gang: "app",
            final_status: Some(runs),
        },
        Case {
            name: "coscheduling",
            keys: |_| keys(&json!({ "scheduling.x-k8s.io/pod-group": "app" }), &json!({})),
            group: Some((
                group(
                    "scheduling.x-k8s.io/v1alpha1",
                    &json!({ "minMember": 3, "scheduleTimeoutSeconds": 120 }),
                ),
                "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/NS/podgroups/app",
            )),
            gang: "app.coscheduling",
            final_status: Some(|status| runs(status) && status["scheduled"] == 3),
        },
        Case {
            name: "coscheduling-old",
            keys: |_| {
                let label = "pod-group.scheduling.sigs.k8s.io";
                keys(
                    &json!({ format!("{label}/name"): "app", format!("{label}/min-available"): "3" }),
                    &json!({}),
                )
            },
            group: Some((
                group("scheduling.sigs.k8s.io/v1alpha1", &json!({ "minMember": 3 })),
                "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/NS/podgroups/app",
            )),
            gang: "app.coscheduling",
            final_status: Some(runs),
        },
        Case {
            name: "labels-alone",
            keys: |_| {
                let label = "pod-group.scheduling.sigs.k8s.io";
                keys(
                    &json!({ format!("{label}/name"): "app", format!("{label}/min-available"): "3" }),
                    &json!({}),
                )
            },
            group: None,
            gang: "app.coscheduling",
            final_status: None,
        },
        Case {
            name: "volcano",
            keys: |_| keys(&json!({}), &json!({ "scheduling.k8s.io/group-name": "app" })),
            group: Some((
                group("scheduling.volcano.sh/v1beta1", &json!({ "minMember": 3, "queue": "default" })),
                "/apis/scheduling.volcano.sh/v1beta1/namespaces/NS/podgroups/app",
            )),
            gang: "app.volcano",
            final_status: Some(|status| runs(status) && status["conditions"][0]["type"] == "Scheduled"),
        },
        Case {
            name: "lws",
            keys: |index| {
                let set = "leaderworkerset.sigs.k8s.io";
                let mut labels = json!({ format!("{set}/name"): "app" });
                if index > 0 {
                    labels[format!("{set}/group-index")] = json!("0");
                }
                let mut keys = keys(&labels, &json!({ format!("{set}/size"): "3" }));
                let place = if index == 0 { String::new() } else { format!("-{index}") };
                keys["metadata"]["name"] = json!(format!("app-0{place}"));
                keys
            },
            group: None,
            gang: "app-0.lws",
            final_status: None,
        },
        Case {
            name: "yunikorn",
            keys: |index| {
                let mut annotations = json!({ "yunikorn.apache.org/task-group-name": "workers" });
                if index == 0 {
                    annotations["yunikorn.apache.org/task-groups"] =
                        json!(r#"[{"name": "workers", "minMember": 3}]"#);
                }
                keys(&json!({ "applicationId": "app" }), &annotations)
            },
            group: None,
            gang: "app.yunikorn",
            final_status: None,
        },
        Case {
            name: "plain",
            keys: |_| {
                keys(&json!({}), &json!({ "portcullis.dev/gang": "app", "portcullis.dev/gang-size": "3" }))
            },
            group: None,
            gang: "app.plain",
            final_status: None,
        },
        Case {
            name: "plain-by-label",
            keys: |_| {
                keys(&json!({ "portcullis.dev/gang": "app" }), &json!({ "portcullis.dev/gang-size": "3" }))
            },
            group: None,
            gang: "app.plain",
            final_status: None,
        },
    ]
}

fn native() -> Case {
    Case {
        name: "native",
        keys: |_| json!({ "metadata": {}, "spec": { "schedulingGroup": { "podGroupName": "app" } } }),
        group: Some((
            group(
                "scheduling.k8s.io/v1alpha2",
                &json!({ "schedulingPolicy": { "gang": { "minCount": 3 } } }),
            ),
            "/apis/scheduling.k8s.io/v1alpha2/namespaces/NS/podgroups/app",
        )),
        gang: "app.native",
        final_status: Some(|status| {
            let conditions = status["conditions"].as_array();
            conditions
                .into_iter()
                .flatten()
                .any(|c| c["type"] == "PodGroupScheduled" && c["status"] == "True")
        }),
    }
}

fn pod(case: &Case, index: u32) -> Value {
    let mut pod = (case.keys)(index);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    if pod["metadata"]["name"].is_null() {
        pod["metadata"]["name"] = json!(format!("app-{index}"));
    }
    let requests = json!({ "cpu": "100m", "memory": "64Mi" });
    pod["spec"]["containers"] =
        json!([{ "name": "main", "image": "app:1", "resources": { "requests": requests } }]);
    pod
}

fn gated(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.into_iter().flatten().any(|gate| gate["name"] == "portcullis.dev/gang")
}

/// Two members wait until the third is created, then all start. The group object reports it, if its kind has
/// a status for that.
fn play(cluster: &Cluster, case: &Case) {
    let namespace = cluster.namespace(case.name).unwrap();
    let apply = |objects: &[Value]| {
        let mut text = String::new();
        for object in objects {
            writeln!(text, "{object}\n---").unwrap();
        }
        cluster.kubectl_with(&["apply", "-n", &namespace, "-f", "-"], &text).expect_success();
    };
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let group = case.group.iter().map(|(group, _)| group.clone());
    apply(&group.chain([pod(case, 0), pod(case, 1)]).collect::<Vec<_>>());
    let gang = format!("/apis/portcullis.dev/v1alpha1/namespaces/{namespace}/gangs/{}", case.gang);
    let told = cluster.wait(&gang, &format!("{}: the Gang object counts two of three", case.name), |gang| {
        gang["status"]["members"] == 2
    });
    assert_eq!(told["status"]["phase"], "Gathering", "{}", case.name);
    assert_eq!(told["status"]["ready"], "2/3", "{}: {told:#}", case.name);
    let list = cluster.api().get(&pods).unwrap();
    let waiting = list["items"].as_array().unwrap();
    assert!(waiting.len() == 2 && waiting.iter().all(gated), "{}: {list:#}", case.name);
    apply(&[pod(case, 2)]);
    cluster.wait(&pods, &format!("{}: all three run", case.name), |pods| {
        let pods = pods["items"].as_array().map_or(&[][..], Vec::as_slice);
        pods.len() == 3 && pods.iter().all(|pod| pod["status"]["phase"] == "Running" && !gated(pod))
    });
    if let (Some((_, path)), Some(final_status)) = (&case.group, case.final_status) {
        let path = path.replace("NS", &namespace);
        cluster.wait(&path, &format!("{}: the status of the group", case.name), |group| {
            final_status(&group["status"])
        });
    }
}

#[test]
fn a_gang_of_each_stack_is_gated_and_started() {
    if !available(Version::default()) {
        return;
    }
    let cluster = Cluster::start(&Options::default()).unwrap();
    let _portcullis =
        Portcullis::start(&cluster, ProgramOptions::new(env!("CARGO_BIN_EXE_portcullis"))).unwrap();
    cluster.create_nodes(&[Node::plain("node-1")]).unwrap();
    for case in cases() {
        play(&cluster, &case);
    }

    // A pod with the keys of two stacks: kubectl prints both.
    let namespace = cluster.namespace("two-groups").unwrap();
    let both = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "both", "labels": { "scheduling.x-k8s.io/pod-group": "one" },
            "annotations": { "portcullis.dev/gang": "other", "portcullis.dev/gang-size": "2" },
        },
        "spec": { "containers": [{ "name": "main", "image": "app:1" }] },
    });
    let refused =
        cluster.kubectl_with(&["apply", "-n", &namespace, "-f", "-"], &both.to_string()).expect_failure();
    assert!(
        refused.contains("names two groups") && refused.contains("\"one\"") && refused.contains("\"other\"")
    );

    // With the feature gate off the API server drops the field after the webhook has seen it. The pod is
    // still a member.
    let namespace = cluster.namespace("native-off").unwrap();
    let case = native();
    cluster
        .kubectl_with(&["apply", "-n", &namespace, "--validate=false", "-f", "-"], &pod(&case, 0).to_string())
        .expect_success();
    let stored = cluster.api().get(&format!("/api/v1/namespaces/{namespace}/pods/app-0")).unwrap();
    assert!(stored["spec"]["schedulingGroup"].is_null() && gated(&stored), "{stored:#}");
    let gang = format!("/apis/portcullis.dev/v1alpha1/namespaces/{namespace}/gangs/app.native");
    cluster.wait(&gang, "the pod says what it waits for", |gang| gang["status"]["reason"] == "GroupNotFound");
}

#[test]
fn a_native_gang_is_gated_and_started() {
    if !available(Version::V1_36) {
        return;
    }
    let cluster = Cluster::start(&Options::native_groups(Version::V1_36)).unwrap();
    let _portcullis =
        Portcullis::start(&cluster, ProgramOptions::new(env!("CARGO_BIN_EXE_portcullis"))).unwrap();
    cluster.create_nodes(&[Node::plain("node-1")]).unwrap();
    play(&cluster, &native());
}
