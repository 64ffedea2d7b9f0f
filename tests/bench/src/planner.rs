//! The planner on clusters of 1,213 and 5,000 nodes, nine tenths full: the time of one decision and of one
//! event.
//!
//! The mix of the smaller cluster is that of the openb trace (617 nodes with 8 GPUs, 54 with 4, 518 with 2,
//! 24 with 1). Half of the nodes are shared by VRAM, half give out whole GPUs. Fillers are drawn by
//! splitmix64 from a fixed seed, so every run plans the same decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::dialect::Quorum;
use portcullis_core::gpu::{GpuShare, ShareSize};
use portcullis_core::model::random::Random;
use portcullis_core::model::{Bytes, DialectId, GangId, MilliCpu, PodKey, PodUid, Resources, VramMib, str};
use portcullis_core::objects::affinity::{Taint, TaintEffect, Toleration};
use portcullis_core::objects::{GpuInventory, GpuSharing, Node, PodLabels, names};
use portcullis_core::planner::{PlanningRequest, WaitingMember, plan};
use portcullis_core::shape::{PodRules, Shape};
use portcullis_core::snapshot::{CardAllocation, Charge, ChargeState, SharingMode, Snapshot};
use serde_json::{Value, json};

const CARD: u64 = 81_559;
const ROUNDS: usize = 300;
const ZONE: &str = "topology.kubernetes.io/zone";

/// Runs everything and prints two tables.
pub(crate) fn run() {
    println!("planner: time for one decision (plan and report), {ROUNDS} rounds each");
    println!("{:<14} {:<34} {:<8} {:>10} {:>10} {:>10}", "cluster", "gang", "verdict", "p50", "p99", "max");
    let openb = [(617, 8), (54, 4), (518, 2), (24, 1)];
    let large = [(5000, 8)];
    for (name, mix) in [("1,213 nodes", &openb[..]), ("5,000 x 8 GPU", &large[..])] {
        let mut cluster = filled(mix, 7);
        for size in [3, 16, 64] {
            decision(name, &cluster, &format!("{size} x 1 GPU"), &vec![gpus(1); size]);
            decision(name, &cluster, &format!("{size} x 1000 MiB"), &vec![vram(1000); size]);
            decision(name, &cluster, &format!("{size} x 8 GPU"), &vec![gpus(8); size]);
            decision(name, &cluster, &format!("{size} x {CARD} MiB"), &vec![vram(CARD); size]);
        }
        decision(name, &cluster, "4000 + 8000 + 8000 MiB", &[vram(4000), vram(8000), vram(8000)]);
        decision(name, &cluster, "3 x 16 GPU (no node has so many)", &vec![gpus(16); 3]);
        let mixed: Vec<Shape> =
            (0..16).map(|i| if i % 2 == 0 { gpus(1) } else { vram(2000 + i * 100) }).collect();
        decision(name, &cluster, "16 mixed: GPUs and VRAM", &mixed);
        let mut crowd = vec![gpus(1); 5000];
        for shape in &mut crowd[..2500] {
            shape.requests.cpu = MilliCpu(2000);
        }
        decision(name, &cluster, "5000 x 1 GPU of two kinds", &crowd);
        for (rule, spec) in rules_about_pods() {
            for size in [3, 64] {
                let mut shape = gpus(1);
                shape.pod_rules = pod_rules(&spec);
                decision(name, &cluster, &format!("{size} x 1 GPU, {rule}"), &vec![shape; size]);
            }
        }
        events(name, &mut cluster);
    }
    decisions_at_the_step_limit();
}

fn decision(cluster: &str, snapshot: &Snapshot, what: &str, shapes: &[Shape]) {
    let gangs = [gang(shapes)];
    let mut times = Vec::with_capacity(ROUNDS);
    let mut fits = false;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let made = plan(black_box(snapshot), black_box(&gangs));
        times.push(start.elapsed());
        fits = !made.0.gangs.is_empty();
        black_box(made);
    }
    row(cluster, what, if fits { "fits" } else { "waits" }, &mut times);
}

/// Pod specs with one kind of rule about other pods, for pods with the label `app: gang`.
fn rules_about_pods() -> [(&'static str, Value); 5] {
    let gang = json!({"matchLabels": {"app": "gang"}});
    let term = |key: &str, selector: &Value| json!([{"topologyKey": key, "labelSelector": selector}]);
    let anti = |key, selector: &Value| {
        json!({"affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": term(key, selector)}}})
    };
    let near = json!({"affinity": {"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": term(ZONE, &gang)}}});
    let spread = |selector: &Value| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]})
    };
    let busy = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["gang", "busy"]}]});
    [
        ("one a node", anti(names::HOSTNAME_LABEL, &gang)),
        ("not beside busy pods", anti(names::HOSTNAME_LABEL, &busy)),
        ("in one zone", near),
        ("spread over zones", spread(&gang)),
        ("spread with busy pods", spread(&busy)),
    ]
}

fn pod_rules(spec: &Value) -> Option<Arc<PodRules>> {
    let pod =
        json!({"metadata": {"name": "p", "namespace": "default", "labels": {"app": "gang"}}, "spec": spec});
    let pod = pod.to_string();
    let view = serde_json::from_str(&pod).expect("a pod");
    PodRules::read(&view).map(Arc::new)
}

/// Forty different sizes on cards that they nearly fill, so that the search reaches its step limit.
fn decisions_at_the_step_limit() {
    let sizes: Vec<Shape> = (0..40_u64).map(|index| vram(1009 + (index * 7919) % 1500)).collect();
    let total: u64 = (0..40_u64).map(|index| 1009 + (index * 7919) % 1500).sum();
    let mut node = node("node", 13, true);
    node.gpus.vram_each = Some(VramMib(total.div_ceil(13)));
    let mut snapshot = Snapshot::new(SharingMode::Labelled);
    snapshot.set_node(node);
    decision("1 x 13 cards", &snapshot, "40 sizes that nearly fill it", &sizes);
}

/// Charges and releases a pod and changes a node, repeatedly.
fn events(cluster: &str, snapshot: &mut Snapshot) {
    let nodes: Vec<Node> = snapshot.nodes().map(|view| view.node.clone()).collect();
    let shape = Arc::new(vram(10));
    let (mut charges, mut releases, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS * 10 {
        let node = &nodes[(round * 7919) % nodes.len()];
        let uid = PodUid(str(format!("event-{round}")));
        let charge = Charge {
            key: None,
            node: node.name.clone(),
            labels: PodLabels::new("default", [("app", "event")]),
            terminating: false,
            shape: shape.clone(),
            cards: CardAllocation::Known(vec![0]),
            state: ChargeState::Reserved,
        };
        let start = Instant::now();
        snapshot.charge(&uid, charge);
        charges.push(start.elapsed());
        let start = Instant::now();
        snapshot.release(&uid);
        releases.push(start.elapsed());
        let mut changed = node.clone();
        changed.unschedulable = true;
        let start = Instant::now();
        snapshot.set_node(changed);
        changes.push(start.elapsed());
        snapshot.set_node(node.clone());
    }
    row(cluster, "event: a pod is charged", "", &mut charges);
    row(cluster, "event: a pod is released", "", &mut releases);
    row(cluster, "event: a node is cordoned", "", &mut changes);
}

fn row(cluster: &str, what: &str, verdict: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let micros = |time: Duration| format!("{:.1} us", time.as_secs_f64() * 1e6);
    let at = |percent: usize| micros(times[(times.len() - 1) * percent / 100]);
    println!("{cluster:<14} {what:<34} {verdict:<8} {:>10} {:>10} {:>10}", at(50), at(99), at(100));
}

/// Nodes with this many GPUs, every other node shared, with nine tenths of the GPUs and of each card in use.
fn filled(mix: &[(usize, u32)], seed: u64) -> Snapshot {
    let mut random = Random::new(seed);
    let mut snapshot = Snapshot::new(SharingMode::Labelled);
    let mut number = 0_u32;
    let mut pods = 0_u32;
    for (nodes, cards) in mix {
        for _ in 0..*nodes {
            let shared = number.is_multiple_of(2);
            let name = format!("node-{number:05}");
            let mut made = node(&name, *cards, shared);
            made.labels.insert(str(ZONE), str(format!("zone-{}", number / 2 % 3)));
            snapshot.set_node(made);
            for card in 0..*cards {
                // One GPU in ten stays free; a shared card holds up to four pods that leave a tenth of it on
                // average.
                let holders = if !shared {
                    vec![(gpus(1), CardAllocation::Unshared)]
                } else {
                    let share = CARD * (80 + random.below(21)) / 400;
                    vec![(vram(share), CardAllocation::Known(vec![card])); 4]
                };
                if !shared && random.one_in(10) {
                    continue;
                }
                for (mut shape, cards) in holders {
                    shape.requests.cpu = MilliCpu(1000);
                    shape.requests.memory = Bytes(4 << 30);
                    let uid = PodUid(str(format!("pod-{pods}")));
                    let key = Some(PodKey::new("default", format!("pod-{pods}")));
                    pods += 1;
                    let charge = Charge {
                        key,
                        node: name.as_str().into(),
                        labels: PodLabels::new("default", [("app", "busy")]),
                        terminating: false,
                        shape: Arc::new(shape),
                        cards,
                        state: ChargeState::Bound,
                    };
                    snapshot.charge(&uid, charge);
                }
            }
            number += 1;
        }
    }
    snapshot
}

/// A node with the two dozen labels of a GPU operator.
fn node(name: &str, cards: u32, shared: bool) -> Node {
    let mut labels: BTreeMap<_, _> = (0..20)
        .map(|index| (str(format!("example.com/label-{index}")), str(format!("value-{cards}"))))
        .collect();
    labels.insert(str(names::HOSTNAME_LABEL), str(name));
    labels.insert(str(names::NVIDIA_GPU_MEMORY), str(CARD.to_string()));
    let mut taints = Vec::new();
    if shared {
        labels.insert(str(names::SHARING), str(names::SHARING_VRAM));
        let (key, value) = (str(names::SHARING), str(names::SHARING_VRAM));
        taints.push(Taint { key, value, effect: TaintEffect::NoSchedule });
    }
    Node {
        name: name.into(),
        labels,
        taints,
        unschedulable: false,
        ready: true,
        allocatable: Resources {
            cpu: MilliCpu(128_000),
            memory: Bytes(1 << 40),
            ephemeral_storage: Bytes(1 << 40),
            extended: BTreeMap::from([(str(names::NVIDIA_GPU), u64::from(cards))]),
        },
        max_pods: 250,
        gpus: GpuInventory {
            cards,
            vram_each: Some(VramMib(CARD)),
            mig: false,
            sharing: if shared { GpuSharing::Vram } else { GpuSharing::No },
        },
    }
}

fn gpus(number: u64) -> Shape {
    let mut shape = Shape::default();
    shape.requests.cpu = MilliCpu(1000);
    shape.requests.memory = Bytes(4 << 30);
    shape.requests.extended.insert(str(names::NVIDIA_GPU), number);
    shape
}

fn vram(mib: u64) -> Shape {
    let mut shape = Shape {
        share: Some(GpuShare { size: ShareSize::Vram(VramMib(mib)), devices: 1 }),
        tolerations: vec![Toleration { key: str(names::SHARING), value: None, effect: None }],
        ..Shape::default()
    };
    shape.requests.cpu = MilliCpu(1000);
    shape.requests.memory = Bytes(4 << 30);
    shape
}

/// Each member has a separate shape, as when pods are read one by one.
fn gang(shapes: &[Shape]) -> PlanningRequest {
    let members: Vec<WaitingMember> = shapes
        .iter()
        .enumerate()
        .map(|(index, shape)| WaitingMember {
            uid: PodUid(str(format!("member-{index}"))),
            key: PodKey::new("default", format!("member-{index}")),
            role: None,
            labels: PodLabels::new("default", [("app", "gang")]),
            shape: Arc::new(shape.clone()),
        })
        .collect();
    PlanningRequest {
        gang: GangId::new(DialectId::Kai, "default", "gang"),
        quorum: Quorum::Count(u32::try_from(members.len()).unwrap_or(u32::MAX)),
        members,
        active: BTreeMap::new(),
        min_resources: Resources::default(),
        topology_key: None,
        gang_nodes: BTreeSet::new(),
    }
}
