//! Explanations, word for word.

use super::*;
use crate::model::{Reason, Time};
use crate::planner::{Explanation, PlanningOutcome, UnschedulableReason, plan};

fn why(snapshot: &Snapshot, request: &PlanningRequest) -> Explanation {
    let (_, report) = plan(snapshot, std::slice::from_ref(request));
    match &report.outcomes[&request.gang] {
        PlanningOutcome::Waiting(why) | PlanningOutcome::Placed { unplaced: Some(why), .. } => why.clone(),
        verdict => panic!("everything has a place: {verdict:?}"),
    }
}

/// Compares reason, message and remedy ("" for none).
#[track_caller]
fn says(snapshot: &Snapshot, request: &PlanningRequest, reason: Reason, sentence: &str, remedy: &str) {
    let why = why(snapshot, request);
    let got = (why.reason, &*why.message, why.remedy.as_deref().unwrap_or(""));
    assert_eq!(got, (reason, sentence, remedy));
    let refused: u32 = why.infeasible_nodes.values().sum();
    assert!(refused <= why.nodes, "{refused} refusals of {} nodes", why.nodes);
}

fn app() -> PlanningRequest {
    gang("app", [vram(4000), vram(8000), vram(8000)])
}

fn one_card_in_use(used: u64) -> Snapshot {
    let mut snapshot = cluster([shared_node("gpu-1", 1, 32_768)]);
    charge(&mut snapshot, "large-job", "gpu-1", vram(used), CardAllocation::Known(vec![0]));
    snapshot
}

#[test]
fn a2_a3_short_of_vram() {
    says(
        &one_card_in_use(25_768),
        &app(),
        Reason::InsufficientVram,
        "short of 13000 MiB VRAM: 3 members need 4000 + 8000 + 8000 MiB, 7000 MiB free on 1 card; needs 8000 MiB on one \
         card, most free is 7000 MiB (node gpu-1, card 0); 0/1 nodes are available: 1 Insufficient VRAM (free 7000 of 32768 MiB, card 0)",
        "wait for default/large-job to end (25768 MiB on node gpu-1), or add a shared card of 16000 MiB",
    );
    says(
        &one_card_in_use(17_768),
        &app(),
        Reason::InsufficientVram,
        "short of 5000 MiB VRAM: 3 members need 4000 + 8000 + 8000 MiB, 15000 MiB free on 1 card; 2 of 3 members fit, default/app-2 does not; 0/1 nodes are available: 1 Insufficient VRAM (free 3000 of 32768 MiB, card 0)",
        "wait for default/large-job to end (17768 MiB on node gpu-1), or add a shared card of 8000 MiB",
    );
    says(
        &one_card_in_use(25_768),
        &gang("one", [vram(8000)]),
        Reason::InsufficientVram,
        "short of 1000 MiB VRAM: needs 8000 MiB on one card, most free is 7000 MiB (node gpu-1, card 0); 0/1 nodes are available: 1 \
         Insufficient VRAM (free 7000 of 32768 MiB, card 0)",
        "wait for default/large-job to end (25768 MiB on node gpu-1), or add a shared card of 8000 MiB",
    );
}

#[test]
fn free_vram_that_is_fragmented_is_explained() {
    says(
        &cluster([shared_node("gpu-1", 2, 10_000)]),
        &gang("g", [vram(6000), vram(6000), vram(6000)]),
        Reason::Fragmented,
        "each member fits by itself, but not all together: 3 members need 3 x 6000 MiB, 20000 MiB free on 2 cards; 2 of 3 members fit, default/g-2 does not; 0/1 nodes are available: 1 Insufficient VRAM (free 4000 of 10000 MiB, card 0)",
        "add a shared card of 6000 MiB",
    );
    says(
        &cluster([shared_node("a", 8, 81_559)]),
        &gang("g", vec![vram(40_000); 20]),
        Reason::InsufficientVram,
        "short of 147528 MiB VRAM: 20 members need 20 x 40000 MiB, 652472 MiB free on 8 cards; 16 of 20 members fit, default/g-16 does not; 0/1 nodes are available: 1 Insufficient VRAM (free 1559 of 81559 MiB, card 0)",
        "free capacity for 4 more members (4 x 40000 MiB)",
    );
}

#[test]
fn a_request_larger_than_any_node_is_explained() {
    says(
        &cluster([shared_node("gpu-1", 2, 81_559)]),
        &gang("g", [vram(90_000)]),
        Reason::InsufficientVram,
        "no node has a card of 90000 MiB; the largest is 81559 MiB (node gpu-1); 0/1 nodes are available: 1 Insufficient VRAM (free \
         81559 of 81559 MiB, card 0)",
        "request at most 81559 MiB on one card, or add a shared node with larger cards",
    );
    says(
        &cluster([shared_node("a", 1, 8000), shared_node("b", 1, 8000)]),
        &gang("g", [vram_on(4000, 2)]),
        Reason::InsufficientVram,
        "no node has 2 shareable cards; node a has 1; 0/2 nodes are available: 2 Insufficient VRAM (most free 8000 of 8000 MiB, node a, \
         card 0)",
        "request fewer than 2 cards, or add a shared node with 2 cards",
    );
    let mut large = Shape::default();
    large.requests.memory = Bytes(257 << 30);
    says(
        &cluster([node("a")]),
        &gang("g", [large]),
        Reason::InsufficientMemory,
        "no schedulable node has 257 GiB; the most is 256 GiB (node a); 0/1 nodes are available: 1 Insufficient memory (free 256 \
         of 256 GiB)",
        "request at most 256 GiB in one pod, or add a larger node",
    );
}

#[test]
fn without_shared_nodes_the_remedy_gives_the_commands() {
    says(
        &cluster([gpu_node("gpu-1", 2, 81_559), node("cpu-1")]),
        &app(),
        Reason::NoSharedNode,
        "0/2 nodes are available: 1 node(s) had no GPU, 1 node(s) were not shared",
        "make a node with GPUs a shared node: kubectl label node gpu-1 portcullis.dev/gpu-sharing=vram && kubectl taint \
         node gpu-1 portcullis.dev/gpu-sharing=vram:NoSchedule",
    );
    // Its cards are in use as whole GPUs, so it is not a candidate: the user chooses a node.
    let mut snapshot = cluster([gpu_node("gpu-1", 2, 81_559)]);
    charge(&mut snapshot, "whole", "gpu-1", gpus(1), CardAllocation::Unshared);
    let remedy = why(&snapshot, &app()).remedy.expect("a remedy");
    assert!(remedy.contains("kubectl label node NAME portcullis.dev/gpu-sharing=vram"), "{remedy}");
    for (sharing, sentence, remedy) in [
        (
            GpuSharing::LabelOnly,
            "0/1 nodes are available: 1 node(s) had label portcullis.dev/gpu-sharing=vram without the taint",
            "taint node gpu-1, which has only the label portcullis.dev/gpu-sharing=vram: kubectl taint node gpu-1 \
             portcullis.dev/gpu-sharing=vram:NoSchedule",
        ),
        (
            GpuSharing::TaintOnly,
            "0/1 nodes are available: 1 node(s) had taint portcullis.dev/gpu-sharing=vram without the label",
            "label node gpu-1, which has only the taint portcullis.dev/gpu-sharing=vram: kubectl label node gpu-1 \
             portcullis.dev/gpu-sharing=vram",
        ),
    ] {
        let mut node = gpu_node("gpu-1", 2, 81_559);
        node.gpus.sharing = sharing;
        says(&cluster([node]), &app(), Reason::NoSharedNode, sentence, remedy);
    }
    let mut unlabelled = shared_node("gpu-1", 2, 1);
    unlabelled.gpus.vram_each = None;
    says(
        &cluster([unlabelled]),
        &app(),
        Reason::MissingVramLabel,
        "0/1 nodes are available: 1 node(s) had no valid label nvidia.com/gpu.memory",
        "set the GPU memory of node gpu-1: run GPU feature discovery on it, or kubectl label node \
         gpu-1 nvidia.com/gpu.memory=MIB",
    );
    let mut snapshot = cluster([shared_node("gpu-1", 2, 81_559)]);
    charge(&mut snapshot, "foreign", "gpu-1", gpus(1), CardAllocation::Unshared);
    says(
        &snapshot,
        &app(),
        Reason::InsufficientVram,
        "0/1 nodes are available: 1 node(s) had a pod with nvidia.com/gpu on unknown cards",
        "wait for default/foreign to end (node gpu-1)",
    );
}

#[test]
fn d2_four_nodes_of_which_two_are_tainted() {
    let mut nodes = ["control-plane", "w1", "w2", "w3"].map(node);
    for (node, cores) in nodes.iter_mut().zip([16, 16, 16, 4]) {
        node.allocatable.cpu = MilliCpu(1000 * cores);
    }
    nodes[0].taints.push(taint("node-role.kubernetes.io/control-plane", "", TaintEffect::NoSchedule));
    for blocked in &mut nodes[1..3] {
        blocked.taints.push(taint("test", "blocked", TaintEffect::NoSchedule));
    }
    let mut snapshot = cluster(nodes);
    charge(&mut snapshot, "agent", "w3", cpu(1000), CardAllocation::Unshared);
    let request = gang("constrained", vec![cpu(4000); 4]);
    says(
        &snapshot,
        &request,
        Reason::InsufficientCpu,
        "short of 13 cores of cpu: 4 members need 4 x 4 cores, 3 cores free on 1 node; needs 4 cores on one node, most free \
         is 3 cores (node w3); 0/4 nodes are available: 2 node(s) had untolerated taint {test: blocked}, 1 node(s) had untolerated taint \
         {node-role.kubernetes.io/control-plane: }, 1 Insufficient cpu (free 3 of 4 cores)",
        "remove taint test=blocked:NoSchedule: kubectl taint node w1 test=blocked:NoSchedule-",
    );
    let refusals = why(&snapshot, &request).infeasible_nodes;
    assert_eq!(refusals[&UnschedulableReason::UntoleratedTaint("{test: blocked}".to_owned())], 2);
    assert_eq!(refusals[&UnschedulableReason::Cpu], 1);
    // The remedy works.
    let mut mended = snapshot.node(&"w1".into()).expect("it is there").clone();
    mended.taints.clear();
    snapshot.set_node(mended);
    assert_eq!(lines(&plan(&snapshot, &[request]).0).len(), 4);
}

#[test]
fn an_equal_pod_that_the_scheduler_refused_is_not_placed_there_again() {
    let shape = |cores| Arc::new(cpu(cores));
    let request = gang("app", vec![cpu(1000); 2]);
    let mut snapshot = cluster([node("a"), node("b")]);
    let message = str("0/2 nodes are available: 2 node(s) were refused by the plugin Example.");
    snapshot.refuse(&"a".into(), &shape(1000), &message, Time(0));
    snapshot.refuse(&"a".into(), &shape(2000), &message, Time(0));
    let nodes = |snapshot: &Snapshot| -> Vec<String> {
        let planned = plan(snapshot, std::slice::from_ref(&request)).0.gangs;
        planned.iter().flat_map(|gang| &gang.assignments).map(|a| a.node.to_string()).collect()
    };
    assert_eq!(nodes(&snapshot), ["b", "b"]);
    snapshot.refuse(&"b".into(), &shape(1000), &message, Time(0));
    let waiting = why(&snapshot, &request);
    assert_eq!(waiting.reason, Reason::RefusedByScheduler);
    assert_eq!(
        waiting.message,
        format!("0/2 nodes are available: 2 node(s) where the scheduler refused an equal pod: {message}")
    );
    // A change of one node, or of a pod that is bound to it, ends what is remembered of it.
    snapshot.take_grown();
    charge(&mut snapshot, "x", "b", cpu(1000), CardAllocation::Unshared);
    assert!(snapshot.take_grown());
    assert_eq!(nodes(&snapshot), ["b", "b"]);
    let mut changed = node("a");
    changed.labels.insert(str("changed"), str("true"));
    snapshot.set_node(changed);
    assert_eq!(snapshot.next_refusal_end(), None);
}

#[test]
fn the_remedy_names_the_pod_whose_end_is_enough() {
    let mut snapshot = cluster([gpu_node("a", 8, 1), gpu_node("b", 8, 1), node("c")]);
    charge(&mut snapshot, "x", "a", gpus(6), CardAllocation::Unshared);
    charge(&mut snapshot, "y", "b", gpus(3), CardAllocation::Unshared);
    let mut pair = gang("g", vec![gpus(4), gpus(4)]);
    says(
        &snapshot,
        &pair,
        Reason::InsufficientExtended,
        "short of 1 GPU: 2 members need 2 x 4 GPUs, 7 GPUs free on 2 nodes; 1 of 2 members fit, default/g-1 does not; \
         0/3 nodes are available: 3 Insufficient nvidia.com/gpu (most free 2 of 8, node a)",
        "wait for default/y to end (3 GPUs on node b)",
    );
    says(
        &snapshot,
        &gang("g", [gpus(8)]),
        Reason::InsufficientExtended,
        "short of 3 GPUs: needs 8 GPUs on one node, most free is 5 GPUs (node b); 0/3 nodes are available: 3 Insufficient \
         nvidia.com/gpu (most free 5 of 8, node b)",
        "wait for default/y to end (3 GPUs on node b)",
    );
    pair.quorum = Quorum::Count(1);
    says(
        &snapshot,
        &pair,
        Reason::InsufficientExtended,
        "1 of 2 waiting members fit; needs 4 GPUs on one node, most free is 2 GPUs (node a); 0/3 nodes are available: 3 \
         Insufficient nvidia.com/gpu (most free 2 of 8, node a)",
        "wait for default/y to end (3 GPUs on node b)",
    );
    pair.quorum = Quorum::Count(3);
    says(&snapshot, &pair, Reason::Gathering, "2 of 3 members exist", "");
}

#[test]
fn each_reason_has_its_message_and_remedy() {
    type Change = fn(&mut Node, &mut Shape);
    let rows: [(Change, Reason, &str, &str); 6] = [
        (
            |n, _| n.unschedulable = true,
            Reason::NodeUnavailable,
            "0/1 nodes are available: 1 node(s) were unschedulable (cordoned)",
            "uncordon node a: kubectl uncordon a",
        ),
        (
            |n, _| n.ready = false,
            Reason::NodeUnavailable,
            "0/1 nodes are available: 1 node(s) were not ready",
            "",
        ),
        (
            |_, s| {
                s.node_affinity.selector.insert(str("zone"), str("b"));
            },
            Reason::NodeAffinityMismatch,
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector",
            "",
        ),
        (
            |_, s| {
                s.host_ports.insert((str(""), str("TCP"), 80));
            },
            Reason::HostPortConflict,
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports (80/TCP)",
            "wait for default/holder to end (node a)",
        ),
        (
            |n, _| n.max_pods = 1,
            Reason::TooManyPods,
            "0/1 nodes are available: 1 Too many pods (node a allows 1)",
            "wait for default/holder to end (node a)",
        ),
        (
            |n, _| n.allocatable.cpu = MilliCpu(1500),
            Reason::InsufficientCpu,
            "short of 500m cores of cpu: needs 1 core on one node, most free is 500m cores (node a); 0/1 nodes are available: 1 \
             Insufficient cpu (free 500m of 1.5 cores)",
            "wait for default/holder to end (1 core on node a)",
        ),
    ];
    for (change, reason, sentence, remedy) in rows {
        let (mut node, mut shape) = (node("a"), cpu(1000));
        change(&mut node, &mut shape);
        let mut snapshot = cluster([node]);
        let mut holder = cpu(1000);
        holder.host_ports.insert((str(""), str("TCP"), 80));
        charge(&mut snapshot, "holder", "a", holder, CardAllocation::Unshared);
        says(&snapshot, &gang("g", [shape]), reason, sentence, remedy);
    }
    says(&cluster([]), &app(), Reason::NoNodes, "the cluster has no nodes", "add a node to the cluster");
}

#[test]
fn a_search_at_its_step_limit_is_explained() {
    // Bin packing that is hard by construction: forty different sizes on cards that they nearly fill.
    let sizes: Vec<Shape> = (0..40_u64).map(|index| vram(1009 + (index * 7919) % 1500)).collect();
    let total: u64 = sizes.iter().map(|s| s.share.map_or(0, |share| share.on_card(VramMib(0)).0)).sum();
    let why = why(&cluster([shared_node("a", 13, total.div_ceil(13))]), &gang("g", sizes));
    assert_eq!(why.reason, Reason::SearchExhausted);
    assert!(why.message.starts_with("the search stopped at its step limit"), "{}", why.message);
}
