//! Nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as typed;
use portcullis_core::model::{Bytes, MilliCpu, NodeName, Resources, VramMib, str};
use portcullis_core::objects::affinity::{Taint, TaintEffect};
use portcullis_core::objects::{GpuInventory, GpuSharing, Node, view};

use super::*;

const NODE_LABELS: Pairs<'_> = &[("nvidia.com/gpu.memory", "81559"), ("portcullis.dev/gpu-sharing", "vram")];
const ALLOCATABLE: Pairs<'_> = &[
    ("cpu", "31500m"),
    ("ephemeral-storage", "90Gi"),
    ("memory", "120Gi"),
    ("nvidia.com/gpu", "4"),
    ("pods", "110"),
];
const CAPACITY: Pairs<'_> = &[("cpu", "32"), ("memory", "128Gi"), ("nvidia.com/gpu", "8")];

fn typed_node() -> typed::Node {
    typed::Node {
        metadata: typed_meta("node-1", NODE_LABELS),
        spec: Some(typed::NodeSpec {
            unschedulable: Some(true),
            taints: Some(vec![typed::Taint {
                key: "portcullis.dev/gpu-sharing".to_owned(),
                value: set("vram"),
                effect: "NoSchedule".to_owned(),
                time_added: None,
            }]),
            ..typed::NodeSpec::default()
        }),
        status: Some(typed::NodeStatus {
            allocatable: quantities(ALLOCATABLE),
            capacity: quantities(CAPACITY),
            conditions: Some(vec![typed::NodeCondition {
                type_: "Ready".to_owned(),
                status: "True".to_owned(),
                reason: set("KubeletReady"),
                message: set("kubelet is posting ready status"),
                ..typed::NodeCondition::default()
            }]),
            ..typed::NodeStatus::default()
        }),
    }
}

#[test]
fn every_field_of_the_node_view_exists_in_kubernetes() {
    let json = serde_json::to_string(&typed_node()).expect("a node serialises");
    let read: view::NodeView<'_> = serde_json::from_str(&json).expect("a node reads");
    let expected = view::NodeView {
        metadata: meta_view("node-1", NODE_LABELS),
        spec: view::NodeSpec {
            unschedulable: true,
            taints: vec![view::TaintView {
                key: text("portcullis.dev/gpu-sharing"),
                value: text("vram"),
                effect: text("NoSchedule"),
            }],
        },
        status: view::NodeStatus {
            allocatable: scalars(ALLOCATABLE),
            capacity: scalars(CAPACITY),
            conditions: vec![view::Condition {
                r#type: text("Ready"),
                status: text("True"),
                reason: text("KubeletReady"),
                message: text("kubelet is posting ready status"),
            }],
        },
    };
    assert_eq!(read, expected, "\n{read:#?}\n{expected:#?}");
}

#[test]
fn every_field_of_a_typed_node_is_read() {
    let json = serde_json::to_string(&typed_node()).expect("a node serialises");
    let expected = Node {
        name: NodeName(str("node-1")),
        labels: NODE_LABELS.iter().map(|(key, value)| (str(key), str(value))).collect(),
        taints: vec![Taint {
            key: str("portcullis.dev/gpu-sharing"),
            value: str("vram"),
            effect: TaintEffect::NoSchedule,
        }],
        unschedulable: true,
        ready: true,
        allocatable: Resources {
            cpu: MilliCpu(31_500),
            memory: Bytes(120 * GI),
            ephemeral_storage: Bytes(90 * GI),
            extended: BTreeMap::from([(str("nvidia.com/gpu"), 4)]),
        },
        max_pods: 110,
        gpus: GpuInventory {
            cards: 4,
            vram_each: Some(VramMib(81_559)),
            mig: false,
            sharing: GpuSharing::Vram,
        },
    };
    assert_eq!(Node::read(&json).expect("a node reads"), expected);
}
