//! Tests of plan, report and check. This file has the builders.

mod checking;
mod explaining;
mod min_resources;
mod oracle;
mod placing;
mod pod_rules;
mod pod_rules_oracle;
mod proximity;
mod scheduler_tables;
mod topology;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Plan, PlanningRequest, WaitingMember};
use crate::dialect::Quorum;
use crate::gpu::{GpuShare, ShareSize};
use crate::model::random::Random;
use crate::model::{Bytes, DialectId, GangId, MilliCpu, NodeName, PodKey, PodUid, Resources, VramMib, str};
use crate::objects::affinity::{Taint, TaintEffect, Toleration};
use crate::objects::{GpuInventory, GpuSharing, Node, PodLabels, names};
use crate::shape::Shape;
use crate::snapshot::{CardAllocation, Charge, ChargeState, SharingMode, Snapshot};

pub(super) fn taint(key: &str, value: &str, effect: TaintEffect) -> Taint {
    Taint { key: str(key), value: str(value), effect }
}

/// A node with 64 cores, 256 GiB and at most 110 pods.
pub(super) fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        labels: BTreeMap::from([(str(names::HOSTNAME_LABEL), str(name))]),
        taints: Vec::new(),
        unschedulable: false,
        ready: true,
        allocatable: resources(64_000, 256 << 30, 0),
        max_pods: 110,
        gpus: GpuInventory::default(),
    }
}

pub(super) fn resources(cpu: u64, memory: u64, gpus: u64) -> Resources {
    let mut extended = BTreeMap::new();
    if gpus > 0 {
        extended.insert(str(names::NVIDIA_GPU), gpus);
    }
    Resources { cpu: MilliCpu(cpu), memory: Bytes(memory), ephemeral_storage: Bytes(100 << 30), extended }
}

/// A node with GPUs, not shared.
pub(super) fn gpu_node(name: &str, cards: u32, mib: u64) -> Node {
    let mut node = node(name);
    node.allocatable.extended.insert(str(names::NVIDIA_GPU), u64::from(cards));
    node.gpus = GpuInventory { cards, vram_each: Some(VramMib(mib)), mig: false, sharing: GpuSharing::No };
    node
}

/// A node whose cards are shared by VRAM.
pub(super) fn shared_node(name: &str, cards: u32, mib: u64) -> Node {
    let mut node = gpu_node(name, cards, mib);
    node.gpus.sharing = GpuSharing::Vram;
    node.labels.insert(str(names::SHARING), str(names::SHARING_VRAM));
    node.taints.push(taint(names::SHARING, names::SHARING_VRAM, TaintEffect::NoSchedule));
    node
}

pub(super) fn toleration(key: &str) -> Toleration {
    Toleration { key: str(key), value: None, effect: None }
}

/// A shape that requests cpu only.
pub(super) fn cpu(millis: u64) -> Shape {
    Shape { requests: Resources { cpu: MilliCpu(millis), ..Resources::default() }, ..Shape::default() }
}

/// A shape that requests whole GPUs.
pub(super) fn gpus(number: u64) -> Shape {
    let mut shape = Shape::default();
    shape.requests.extended.insert(str(names::NVIDIA_GPU), number);
    shape
}

/// A shape that shares cards by VRAM, with the toleration that the webhook adds.
pub(super) fn vram(mib: u64) -> Shape {
    vram_on(mib, 1)
}

pub(super) fn vram_on(mib: u64, devices: u32) -> Shape {
    Shape {
        share: Some(GpuShare { size: ShareSize::Vram(VramMib(mib)), devices }),
        tolerations: vec![toleration(names::SHARING)],
        ..Shape::default()
    }
}

pub(super) fn fraction(billionths: u64) -> Shape {
    let mut shape = vram(1);
    shape.share = Some(GpuShare { size: ShareSize::Fraction(billionths), devices: 1 });
    shape
}

pub(super) fn gang_id(name: &str) -> GangId {
    GangId::new(DialectId::Kai, "default", name)
}

/// A gang of these shapes that needs all of them.
pub(super) fn gang(name: &str, shapes: impl IntoIterator<Item = Shape>) -> PlanningRequest {
    let members: Vec<WaitingMember> = (0..)
        .zip(shapes)
        .map(|(index, shape)| WaitingMember {
            uid: PodUid(str(format!("{name}-{index}"))),
            key: PodKey::new("default", format!("{name}-{index}")),
            role: None,
            labels: PodLabels::new("default", []),
            shape: Arc::new(shape),
        })
        .collect();
    let quorum = Quorum::Count(u32::try_from(members.len()).expect("small"));
    let (active, minimum, beside) = (BTreeMap::new(), Resources::default(), BTreeSet::new());
    PlanningRequest {
        gang: gang_id(name),
        members,
        quorum,
        active,
        min_resources: minimum,
        topology_key: None,
        gang_nodes: beside,
    }
}

pub(super) fn cluster(nodes: impl IntoIterator<Item = Node>) -> Snapshot {
    let mut snapshot = Snapshot::new(SharingMode::Labelled);
    for node in nodes {
        snapshot.set_node(node);
    }
    snapshot
}

/// Charges `default/NAME`, bound.
pub(super) fn charge(snapshot: &mut Snapshot, name: &str, node: &str, shape: Shape, cards: CardAllocation) {
    let charge = Charge {
        key: Some(PodKey::new("default", name)),
        node: node.into(),
        labels: PodLabels::new("default", []),
        terminating: false,
        shape: Arc::new(shape),
        cards,
        state: ChargeState::Bound,
    };
    snapshot.charge(&PodUid(str(format!("uid-{name}"))), charge);
}

/// A plan as `pod -> node[cards]`, one line each.
pub(super) fn lines(plan: &Plan) -> Vec<String> {
    let placements = plan.gangs.iter().flat_map(|gang| &gang.assignments);
    placements
        .map(|p| {
            let cards: Vec<String> = p.cards.iter().map(u32::to_string).collect();
            let cards = if cards.is_empty() { String::new() } else { format!("[{}]", cards.join(",")) };
            format!("{} -> {}{cards}", p.key.name, p.node)
        })
        .collect()
}

/// One of the values.
pub(super) fn pick<T: Clone>(random: &mut Random, values: &[T]) -> T {
    random.pick(values).expect("values to choose from").clone()
}

/// Names of the nodes of a snapshot.
pub(super) fn names_of(snapshot: &Snapshot) -> BTreeSet<NodeName> {
    snapshot.nodes().map(|n| n.node.name.clone()).collect()
}
