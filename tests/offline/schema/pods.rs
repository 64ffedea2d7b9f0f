//! Pods: the view of the webhook, and what the engine reads from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as typed;
use portcullis_core::dialect::Membership;
use portcullis_core::gpu::{GpuShare, ShareSize};
use portcullis_core::model::{
    Bytes, DialectId, GangId, MilliCpu, NodeName, PodKey, PodUid, ResourceVersion, Resources, Str, Time,
    VramMib, str,
};
use portcullis_core::objects::affinity::{
    AffinityTerm, Operator, RequiredNodeAffinity, Requirement, TaintEffect, Toleration,
};
use portcullis_core::objects::{ObjectRef, PodLabels, view};
use portcullis_core::pod::{AffinityLayout, Pod, PodPhase, TermLayout};
use portcullis_core::shape::Shape;

use super::pod_rules::{pod_affinity_view, pod_rules, spread_view, typed_pod_term, typed_spread};
use super::*;

/// Resources with these requests, limits, and the name of a claim.
struct Needs<'a>(Pairs<'a>, Pairs<'a>, &'a str);

impl<'a> Needs<'a> {
    fn typed(&self) -> Option<typed::ResourceRequirements> {
        Some(typed::ResourceRequirements {
            requests: quantities(self.0),
            limits: quantities(self.1),
            claims: Some(vec![typed::ResourceClaim { name: self.2.to_owned(), request: None }]),
        })
    }

    fn view(&self) -> view::ResourceRequirements<'a> {
        view::ResourceRequirements {
            requests: scalars(self.0),
            limits: scalars(self.1),
            claims: vec![view::Named { name: text(self.2) }],
        }
    }
}

/// The requests in the spec, the effective resources, and the allocated resources. Each has the largest value
/// of a different resource, so that the result shows that all three were read.
const MAIN: Needs<'_> =
    Needs(&[("example.com/a", "1")], &[("example.com/a", "1"), ("example.com/d", "5")], "claim");
const MAIN_EFFECTIVE: Needs<'_> = Needs(&[("example.com/b", "2")], &[("example.com/b", "2")], "claim-2");
const MAIN_ALLOCATED: Pairs<'_> = &[("example.com/c", "4")];
const SIDECAR: Needs<'_> = Needs(&[("example.com/a", "10")], &[("example.com/d", "50")], "claim-3");
const SIDECAR_EFFECTIVE: Needs<'_> = Needs(&[("example.com/b", "20")], &[("example.com/b", "20")], "claim-4");
const SIDECAR_ALLOCATED: Pairs<'_> = &[("example.com/c", "40")];
const POD: Needs<'_> = Needs(
    &[("cpu", "8"), ("hugepages-2Mi", "2Mi"), ("memory", "8Gi")],
    &[("hugepages-1Gi", "1Gi")],
    "claim-5",
);
const POD_EFFECTIVE: Needs<'_> = Needs(&[("memory", "10Gi")], &[("memory", "11Gi")], "claim-6");
const POD_ALLOCATED: Pairs<'_> = &[("hugepages-2Mi", "6Mi")];
const OVERHEAD: Pairs<'_> = &[("cpu", "250m"), ("memory", "64Mi")];
const SELECTOR: Pairs<'_> = &[("disk", "fast")];

fn typed_container(
    name: &str,
    needs: &Needs<'_>,
    host_port: i32,
    restart_policy: Option<&str>,
) -> typed::Container {
    typed::Container {
        name: name.to_owned(),
        resources: needs.typed(),
        restart_policy: restart_policy.map(str::to_owned),
        ports: Some(vec![typed::ContainerPort {
            container_port: 9000,
            host_port: Some(host_port),
            host_ip: set("10.0.0.1"),
            protocol: set("UDP"),
            name: set("port"),
        }]),
        env: Some(vec![
            typed::EnvVar { name: "PLAIN".to_owned(), value: set("value"), value_from: None },
            typed::EnvVar {
                name: "CARDS".to_owned(),
                value: None,
                value_from: Some(typed::EnvVarSource {
                    field_ref: Some(typed::ObjectFieldSelector {
                        api_version: set("v1"),
                        field_path: "metadata.annotations['portcullis.dev/gpus']".to_owned(),
                    }),
                    ..typed::EnvVarSource::default()
                }),
            },
        ]),
        ..typed::Container::default()
    }
}

fn container_view<'a>(
    name: &'a str,
    needs: &Needs<'a>,
    host_port: u32,
    restart_policy: &'a str,
) -> view::Container<'a> {
    let field_ref = view::FieldRef { field_path: text("metadata.annotations['portcullis.dev/gpus']") };
    view::Container {
        name: text(name),
        resources: needs.view(),
        restart_policy: text(restart_policy),
        ports: vec![view::ContainerPort {
            container_port: 9000,
            host_port,
            host_ip: text("10.0.0.1"),
            protocol: text("UDP"),
        }],
        env: Some(vec![
            view::EnvVar { name: text("PLAIN"), value: Some(text("value")), value_from: None },
            view::EnvVar {
                name: text("CARDS"),
                value: None,
                value_from: Some(view::EnvSource { field_ref: Some(field_ref) }),
            },
        ]),
    }
}

fn typed_status(name: &str, effective: &Needs<'_>, allocated: Pairs<'_>) -> typed::ContainerStatus {
    typed::ContainerStatus {
        name: name.to_owned(),
        allocated_resources: quantities(allocated),
        resources: effective.typed(),
        ..typed::ContainerStatus::default()
    }
}

fn status_view<'a>(name: &'a str, effective: &Needs<'a>, allocated: Pairs<'a>) -> view::ContainerStatus<'a> {
    view::ContainerStatus {
        name: text(name),
        allocated_resources: scalars(allocated),
        resources: Some(effective.view()),
    }
}

fn typed_requirement(key: &str, operator: &str, value: &str) -> Option<Vec<typed::NodeSelectorRequirement>> {
    Some(vec![typed::NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(vec![value.to_owned()]),
    }])
}

pub(super) fn requirement_view<'a>(
    key: &'a str,
    operator: &'a str,
    value: &'a str,
) -> Option<Vec<view::NodeRequirement<'a>>> {
    Some(vec![view::NodeRequirement { key: text(key), operator: text(operator), values: vec![text(value)] }])
}

fn typed_affinity() -> typed::Affinity {
    let preference = typed::NodeSelectorTerm {
        match_expressions: typed_requirement("zone", "In", "a"),
        match_fields: None,
    };
    typed::Affinity {
        node_affinity: Some(typed::NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(typed::NodeSelector {
                node_selector_terms: vec![typed::NodeSelectorTerm {
                    match_expressions: typed_requirement("zone", "NotIn", "b"),
                    match_fields: typed_requirement("metadata.name", "In", "node-1"),
                }],
            }),
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                typed::PreferredSchedulingTerm { weight: 1, preference },
            ]),
        }),
        pod_affinity: Some(typed::PodAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![typed_pod_term("zone")]),
            preferred_during_scheduling_ignored_during_execution: None,
        }),
        pod_anti_affinity: Some(typed::PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![typed_pod_term("rack")]),
            preferred_during_scheduling_ignored_during_execution: None,
        }),
    }
}

pub(super) fn typed_pod() -> typed::Pod {
    typed::Pod {
        metadata: typed_meta("worker-1", LABELS),
        spec: Some(typed::PodSpec {
            node_name: set("node-1"),
            scheduler_name: set("another-scheduler"),
            scheduling_gates: Some(vec![typed::PodSchedulingGate { name: "portcullis.dev/gang".to_owned() }]),
            containers: vec![typed_container("main", &MAIN, 8000, None)],
            init_containers: Some(vec![typed_container("sidecar", &SIDECAR, 8001, Some("Always"))]),
            resources: POD.typed(),
            overhead: quantities(OVERHEAD),
            node_selector: map(SELECTOR),
            affinity: Some(typed_affinity()),
            tolerations: Some(vec![typed::Toleration {
                key: set("portcullis.dev/gpu-sharing"),
                operator: set("Equal"),
                value: set("vram"),
                effect: set("NoSchedule"),
                toleration_seconds: None,
            }]),
            priority: Some(1000),
            priority_class_name: set("high"),
            runtime_class_name: set("nvidia"),
            resource_claims: Some(vec![typed::PodResourceClaim {
                name: "claim".to_owned(),
                ..typed::PodResourceClaim::default()
            }]),
            host_network: Some(true),
            topology_spread_constraints: Some(vec![typed_spread()]),
            scheduling_group: Some(typed::PodSchedulingGroup { pod_group_name: set("another") }),
            ..typed::PodSpec::default()
        }),
        status: Some(typed::PodStatus {
            phase: set("Running"),
            nominated_node_name: set("node-2"),
            conditions: Some(vec![typed::PodCondition {
                type_: "PodScheduled".to_owned(),
                status: "False".to_owned(),
                reason: set("SchedulingGated"),
                message: set("it is gated"),
                ..typed::PodCondition::default()
            }]),
            container_statuses: Some(vec![typed_status("main", &MAIN_EFFECTIVE, MAIN_ALLOCATED)]),
            init_container_statuses: Some(vec![typed_status(
                "sidecar",
                &SIDECAR_EFFECTIVE,
                SIDECAR_ALLOCATED,
            )]),
            allocated_resources: quantities(POD_ALLOCATED),
            resources: POD_EFFECTIVE.typed(),
            ..typed::PodStatus::default()
        }),
    }
}

#[test]
fn every_field_of_the_pod_view_exists_in_kubernetes() {
    let json = serde_json::to_string(&typed_pod()).expect("a pod serialises");
    let read: view::PodView<'_> = serde_json::from_str(&json).expect("a pod reads");
    let node_affinity = read.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = node_affinity.and_then(|node| node.preferred.as_ref()).map(Vec::len);
    assert_eq!(preferred, Some(1), "of the preferred terms only the number is read");
    let expected = view::PodView {
        metadata: meta_view("worker-1", LABELS),
        spec: view::PodSpec {
            node_name: text("node-1"),
            scheduler_name: text("another-scheduler"),
            scheduling_gates: vec![view::Named { name: text("portcullis.dev/gang") }],
            containers: vec![container_view("main", &MAIN, 8000, "")],
            init_containers: vec![container_view("sidecar", &SIDECAR, 8001, "Always")],
            resources: POD.view(),
            overhead: scalars(OVERHEAD),
            node_selector: entries(SELECTOR),
            affinity: Some(view::Affinity {
                node_affinity: Some(view::NodeAffinity {
                    required: Some(view::NodeSelector {
                        node_selector_terms: vec![view::NodeSelectorTerm {
                            match_expressions: requirement_view("zone", "NotIn", "b"),
                            match_fields: requirement_view("metadata.name", "In", "node-1"),
                        }],
                    }),
                    preferred: Some(vec![serde::de::IgnoredAny]),
                }),
                pod_affinity: pod_affinity_view("zone"),
                pod_anti_affinity: pod_affinity_view("rack"),
            }),
            tolerations: vec![view::Toleration {
                key: text("portcullis.dev/gpu-sharing"),
                operator: text("Equal"),
                value: text("vram"),
                effect: text("NoSchedule"),
            }],
            priority: 1000,
            priority_class_name: text("high"),
            runtime_class_name: text("nvidia"),
            resource_claims: vec![view::Named { name: text("claim") }],
            host_network: true,
            topology_spread_constraints: vec![spread_view()],
            scheduling_group: Some(view::SchedulingGroup { pod_group_name: text("another") }),
            // Removed in 1.36. The names are those in the tests beside the code.
            workload_ref: None,
        },
        status: view::PodStatus {
            phase: text("Running"),
            nominated_node_name: text("node-2"),
            conditions: vec![view::Condition {
                r#type: text("PodScheduled"),
                status: text("False"),
                reason: text("SchedulingGated"),
                message: text("it is gated"),
            }],
            container_statuses: vec![status_view("main", &MAIN_EFFECTIVE, MAIN_ALLOCATED)],
            init_container_statuses: vec![status_view("sidecar", &SIDECAR_EFFECTIVE, SIDECAR_ALLOCATED)],
            allocated_resources: scalars(POD_ALLOCATED),
            resources: Some(POD_EFFECTIVE.view()),
        },
    };
    assert_eq!(read, expected, "\n{read:#?}\n{expected:#?}");
}

#[test]
fn every_field_of_a_typed_pod_is_read() {
    let mut pod = typed_pod();
    // A share and a claim contradict each other, and no share is read from a pod with a contradiction.
    if let Some(spec) = &mut pod.spec {
        spec.resource_claims = None;
    }
    let json = serde_json::to_string(&pod).expect("a pod serialises");
    let extended = [
        ("example.com/a", 1 + 10),
        ("example.com/b", 2 + 20),
        ("example.com/c", 4 + 40),
        ("example.com/d", 5 + 50),
        ("hugepages-1Gi", GI),
        ("hugepages-2Mi", 6 * MI),
    ];
    let requirement = |key: &str, operator: fn(Vec<Str>) -> Operator, value: &str| Requirement {
        key: str(key),
        operator: operator(vec![str(value)]),
    };
    let expected = Pod {
        key: PodKey::new("training", "worker-1"),
        uid: PodUid(str("uid-1")),
        resource_version: ResourceVersion(4711),
        created: Time::parse_rfc3339("2026-11-21T09:14:03Z").expect("a time"),
        gates: vec![str("portcullis.dev/gang")],
        node: Some(NodeName(str("node-1"))),
        nominated: Some(NodeName(str("node-2"))),
        scheduler_message: None,
        phase: PodPhase::Running,
        terminating: true,
        grace_end: Time::parse_rfc3339("2026-11-21T10:00:00Z"),
        scheduler: str("another-scheduler"),
        priority: 1000,
        priority_class: Some(str("high")),
        gpus: Some(vec![0, 2]),
        labels: PodLabels::new("training", LABELS.iter().copied()),
        membership: Some(Membership {
            gang: GangId::new(DialectId::Kai, "training", "app"),
            role: Some(str("workers")),
            declared: None,
        }),
        node_bound: false,
        owner: Some(ObjectRef {
            api_version: str("batch/v1"),
            kind: str("Job"),
            name: str("job"),
            uid: str("uid-2"),
        }),
        shape: Arc::new(Shape {
            requests: Resources {
                cpu: MilliCpu(8250),
                memory: Bytes(10 * GI + 64 * MI),
                ephemeral_storage: Bytes(0),
                extended: extended.map(|(name, amount)| (str(name), amount)).into(),
            },
            share: Some(GpuShare { size: ShareSize::Vram(VramMib(8000)), devices: 1 }),
            node_affinity: RequiredNodeAffinity {
                selector: [(str("disk"), str("fast"))].into(),
                terms: Some(vec![AffinityTerm {
                    expressions: vec![requirement("zone", Operator::NotIn, "b")],
                    fields: vec![requirement("metadata.name", Operator::In, "node-1")],
                }]),
            },
            tolerations: vec![Toleration {
                key: str("portcullis.dev/gpu-sharing"),
                value: Some(str("vram")),
                effect: Some(TaintEffect::NoSchedule),
            }],
            host_ports: BTreeSet::from([8000, 8001].map(|port| (str("10.0.0.1"), str("UDP"), port))),
            pod_rules: Some(Arc::new(pod_rules())),
        }),
        affinity: AffinityLayout {
            affinity: true,
            node_affinity: true,
            required: Some(vec![TermLayout { empty: false, has_fields: true }]),
            preferred: true,
        },
    };
    let read = Pod::read(&json).expect("a pod reads");
    assert_eq!(read, expected, "\n{read:#?}\n{expected:#?}");
}
