//! Pods and group objects as each stack creates them, before admission.
//!
//! One table for the conformance tests of the dialects and for the random scenarios. A new entry is used by
//! both.

use serde_json::{Value, json};

use portcullis_core::model::DialectId;

/// How one stack creates a gang. `gang` is a short name, `size` is the number of members.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the conformance tests use more fields than the random scenarios")
)]
pub(crate) struct StackFixture {
    pub(crate) name: &'static str,
    pub(crate) dialect: DialectId,
    /// The part of metadata and spec that names the gang. The index starts at 0.
    pub(crate) pod: fn(gang: &str, index: u32, size: u32) -> Value,
    /// The group object; `None` where the fixture has none.
    pub(crate) object: Option<fn(gang: &str, size: u32) -> Value>,
    /// The kind of the group object, as kubectl names it.
    pub(crate) kind: &'static str,
    /// Whether the pods declare the number of members.
    pub(crate) declares: bool,
    /// The name within the `GangId`.
    pub(crate) group: fn(gang: &str) -> String,
}

/// A pod with these labels and annotations.
fn keys(labels: &Value, annotations: &Value) -> Value {
    json!({ "metadata": { "labels": labels, "annotations": annotations }, "spec": {} })
}

/// A Workload of 1.35 with one group.
fn workload(gang: &str, size: u32) -> Value {
    let policy = json!({ "gang": { "minCount": size } });
    let spec = json!({ "podGroups": [{ "name": "workers", "policy": policy }] });
    object("scheduling.k8s.io/v1alpha1", "Workload", gang, &spec)
}

fn object(api_version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name }, "spec": spec })
}

fn same(gang: &str) -> String {
    gang.to_owned()
}

fn leader_or_worker(gang: &str, index: u32, size: u32) -> Value {
    let mut labels = json!({ "leaderworkerset.sigs.k8s.io/name": gang });
    if index > 0 {
        // A leader does not have it yet: the webhook of LeaderWorkerSet runs later.
        labels["leaderworkerset.sigs.k8s.io/group-index"] = json!("0");
    }
    let mut pod = keys(&labels, &json!({ "leaderworkerset.sigs.k8s.io/size": size.to_string() }));
    let place = if index == 0 { String::new() } else { format!("-{index}") };
    pod["metadata"]["name"] = json!(format!("{gang}-0{place}"));
    pod
}

impl StackFixture {
    /// The group object of a gang as an argument of `kubectl delete`: kind, namespace and name. `None`
    /// without a group object.
    pub(crate) fn target(&self, namespace: &str, gang: &str) -> Option<String> {
        let object = self.object?(gang, 1);
        Some(format!("{}/{namespace}/{}", self.kind, object["metadata"]["name"].as_str()?))
    }
}

/// Every dialect, and every way to use it.
pub(crate) fn stacks() -> Vec<StackFixture> {
    let scheduling_group =
        |gang: &str, _, _| json!({ "metadata": {}, "spec": { "schedulingGroup": { "podGroupName": gang } } });
    let labels = |gang: &str, _: u32, size: u32| {
        let label = "pod-group.scheduling.sigs.k8s.io";
        keys(
            &json!({ format!("{label}/name"): gang, format!("{label}/min-available"): size.to_string() }),
            &json!({}),
        )
    };
    vec![
        StackFixture {
            name: "kai",
            dialect: DialectId::Kai,
            pod: |gang, _, _| {
                keys(&json!({ "kai.scheduler/podgroup": gang }), &json!({ "pod-group-name": gang }))
            },
            object: Some(|gang, size| {
                object("scheduling.run.ai/v2alpha2", "PodGroup", gang, &json!({ "minMember": size }))
            }),
            kind: "podgroups.scheduling.run.ai",
            declares: false,
            group: same,
        },
        StackFixture {
            name: "coscheduling",
            dialect: DialectId::Coscheduling,
            pod: |gang, _, _| keys(&json!({ "scheduling.x-k8s.io/pod-group": gang }), &json!({})),
            object: Some(|gang, size| {
                object("scheduling.x-k8s.io/v1alpha1", "PodGroup", gang, &json!({ "minMember": size }))
            }),
            kind: "podgroups.scheduling.x-k8s.io",
            declares: false,
            group: same,
        },
        StackFixture {
            name: "coscheduling of old guides",
            dialect: DialectId::Coscheduling,
            pod: labels,
            object: Some(|gang, size| {
                object("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", gang, &json!({ "minMember": size }))
            }),
            kind: "podgroups.scheduling.sigs.k8s.io",
            declares: true,
            group: same,
        },
        StackFixture {
            name: "coscheduling by labels alone",
            dialect: DialectId::Coscheduling,
            pod: labels,
            object: None,
            kind: "",
            declares: true,
            group: same,
        },
        StackFixture {
            name: "volcano",
            dialect: DialectId::Volcano,
            pod: |gang, _, _| keys(&json!({}), &json!({ "scheduling.k8s.io/group-name": gang })),
            object: Some(|gang, size| {
                object("scheduling.volcano.sh/v1beta1", "PodGroup", gang, &json!({ "minMember": size }))
            }),
            kind: "podgroups.scheduling.volcano.sh",
            declares: false,
            group: same,
        },
        StackFixture {
            name: "volcano with tasks",
            dialect: DialectId::Volcano,
            pod: |gang, index, _| {
                let task = if index == 0 { "ps" } else { "worker" };
                keys(
                    &json!({}),
                    &json!({ "scheduling.k8s.io/group-name": gang, "volcano.sh/task-spec": task }),
                )
            },
            object: Some(|gang, size| {
                let tasks = json!({ "ps": 1, "worker": size - 1 });
                let spec = json!({ "minMember": size, "minTaskMember": tasks });
                object("scheduling.volcano.sh/v1beta1", "PodGroup", gang, &spec)
            }),
            kind: "podgroups.scheduling.volcano.sh",
            declares: false,
            group: same,
        },
        StackFixture {
            name: "lws",
            dialect: DialectId::Lws,
            pod: leader_or_worker,
            object: None,
            kind: "",
            declares: true,
            group: |gang| format!("{gang}-0"),
        },
        StackFixture {
            name: "lws with its set",
            dialect: DialectId::Lws,
            pod: leader_or_worker,
            object: Some(|gang, size| {
                let spec = json!({ "leaderWorkerTemplate": { "size": size } });
                object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", gang, &spec)
            }),
            kind: "leaderworkersets.leaderworkerset.x-k8s.io",
            declares: true,
            group: |gang| format!("{gang}-0"),
        },
        StackFixture {
            name: "lws with a group of volcano",
            dialect: DialectId::Volcano,
            pod: |gang, index, size| {
                let mut pod = leader_or_worker(gang, index, size);
                pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] =
                    json!(format!("{gang}-0-c4864"));
                pod
            },
            object: Some(|gang, size| {
                let name = format!("{gang}-0-c4864");
                object("scheduling.volcano.sh/v1beta1", "PodGroup", &name, &json!({ "minMember": size }))
            }),
            kind: "podgroups.scheduling.volcano.sh",
            declares: false,
            group: |gang| format!("{gang}-0-c4864"),
        },
        StackFixture {
            name: "native 1.35",
            dialect: DialectId::Native,
            pod: |gang, _, _| {
                let workload = json!({ "name": gang, "podGroup": "workers" });
                json!({ "metadata": {}, "spec": { "workloadRef": workload } })
            },
            object: Some(workload),
            kind: "workloads.scheduling.k8s.io",
            declares: false,
            group: |gang| format!("{gang}/workers"),
        },
        StackFixture {
            name: "native 1.35, a replica of a group",
            dialect: DialectId::Native,
            pod: |gang, _, _| {
                let workload = json!({ "name": gang, "podGroup": "workers", "podGroupReplicaKey": "7" });
                json!({ "metadata": {}, "spec": { "workloadRef": workload } })
            },
            object: Some(workload),
            kind: "workloads.scheduling.k8s.io",
            declares: false,
            group: |gang| format!("{gang}/workers/7"),
        },
        StackFixture {
            name: "native 1.36",
            dialect: DialectId::Native,
            pod: scheduling_group,
            object: Some(|gang, size| {
                let spec = json!({ "schedulingPolicy": { "gang": { "minCount": size } } });
                object("scheduling.k8s.io/v1alpha2", "PodGroup", gang, &spec)
            }),
            kind: "podgroups.v1alpha2.scheduling.k8s.io",
            declares: false,
            group: same,
        },
        StackFixture {
            name: "native 1.37",
            dialect: DialectId::Native,
            pod: scheduling_group,
            object: Some(|gang, size| {
                let spec = json!({ "schedulingPolicy": { "gang": { "minCount": size } } });
                object("scheduling.k8s.io/v1beta1", "PodGroup", gang, &spec)
            }),
            kind: "podgroups.v1beta1.scheduling.k8s.io",
            declares: false,
            group: same,
        },
        StackFixture {
            name: "yunikorn",
            dialect: DialectId::Yunikorn,
            pod: |gang, index, size| {
                let task = if index == 0 { "driver" } else { "workers" };
                let mut annotations = json!({ "yunikorn.apache.org/task-group-name": task });
                if index == 0 {
                    let groups = json!([{ "name": "driver", "minMember": 1 }, { "name": "workers", "minMember": size - 1 }]);
                    annotations["yunikorn.apache.org/task-groups"] = json!(groups.to_string());
                }
                keys(&json!({ "applicationId": gang }), &annotations)
            },
            object: None,
            kind: "",
            declares: true,
            group: same,
        },
        StackFixture {
            name: "plain",
            dialect: DialectId::Plain,
            pod: |gang, _, size| {
                let annotations =
                    json!({ "portcullis.dev/gang": gang, "portcullis.dev/gang-size": size.to_string() });
                keys(&json!({}), &annotations)
            },
            object: None,
            kind: "",
            declares: true,
            group: same,
        },
    ]
}
