//! Reports, word for word: what a person reads at 3 a.m.

use super::*;
use crate::model::Reason;
use crate::planner::{Explanation, Refusal, Verdict, plan};

fn why(snapshot: &Snapshot, request: &GangRequest) -> Explanation {
    let (_, report) = plan(snapshot, std::slice::from_ref(request));
    match &report.verdicts[&request.gang] {
        Verdict::Waiting(why) | Verdict::Placed { left: Some(why), .. } => why.clone(),
        verdict => panic!("everything has a place: {verdict:?}"),
    }
}

/// The reason, the sentence and the remedy ("" for none).
fn says(snapshot: &Snapshot, request: &GangRequest, reason: Reason, sentence: &str, remedy: &str) {
    let why = why(snapshot, request);
    let got = (why.reason, &*why.sentence, why.remedy.as_deref().unwrap_or(""));
    assert_eq!(got, (reason, sentence, remedy));
    let refused: u32 = why.refusals.values().sum();
    assert!(refused <= why.nodes, "{refused} refusals of {} nodes", why.nodes);
}

fn app() -> GangRequest {
    gang("app", [vram(4000), vram(8000), vram(8000)])
}

#[test]
fn print_all() {
    let show = |what: &str, snapshot: &Snapshot, request: &GangRequest| {
        let why = why(snapshot, request);
        println!(
            "{what}\n  {}\n  {}\n  -> {}\n  {:?}",
            why.reason,
            why.sentence,
            why.remedy.as_deref().unwrap_or("-"),
            why.refusals
        );
    };
    let mut s = cluster([shared_node("gpu-1", 1, 32_768)]);
    charge(&mut s, "large-job", "gpu-1", vram(25_768), Cards::Known(vec![0]));
    show("A2", &s, &app());
    let mut s = cluster([shared_node("gpu-1", 1, 32_768)]);
    charge(&mut s, "large-job", "gpu-1", vram(17_768), Cards::Known(vec![0]));
    show("A3", &s, &app());
    show("spread", &cluster([shared_node("gpu-1", 3, 6667)]), &app());
    show(
        "fragmented",
        &cluster([shared_node("gpu-1", 2, 10_000)]),
        &gang("g", [vram(6000), vram(6000), vram(6000)]),
    );
    show("too large", &cluster([shared_node("gpu-1", 2, 81_559)]), &gang("g", [vram(90_000)]));
    show("no shared", &cluster([gpu_node("gpu-1", 2, 81_559), node("cpu-1")]), &app());
    show("no gpu", &cluster([node("cpu-1")]), &app());
    show("no nodes", &cluster([]), &app());
    let mut n = shared_node("gpu-1", 2, 81_559);
    n.gpus.vram_each = None;
    show("no label", &cluster([n]), &app());
    let mut n = gpu_node("gpu-1", 2, 81_559);
    n.gpus.sharing = Sharing::LabelOnly;
    show("label only", &cluster([n, gpu_node("gpu-2", 1, 1)]), &app());
    let mut s = cluster([shared_node("gpu-1", 2, 81_559)]);
    charge(&mut s, "foreign", "gpu-1", gpus(1), Cards::Unshared);
    show("unknown cards", &s, &app());
    // D2
    let mut nodes = vec![node("control-plane"), node("w1"), node("w2"), node("w3")];
    for n in &mut nodes {
        n.allocatable.cpu = MilliCpu(16_000);
    }
    nodes[3].allocatable.cpu = MilliCpu(4000);
    nodes[0].taints.push(taint("node-role.kubernetes.io/control-plane", "", Effect::NoSchedule));
    nodes[1].taints.push(taint("test", "blocked", Effect::NoSchedule));
    nodes[2].taints.push(taint("test", "blocked", Effect::NoSchedule));
    let mut s = cluster(nodes);
    charge(&mut s, "agent", "w3", cpu(1000), Cards::Unshared);
    show("D2", &s, &gang("constrained", vec![cpu(4000); 4]));
    let mut s = cluster([gpu_node("a", 8, 1), gpu_node("b", 8, 1), node("c")]);
    charge(&mut s, "x", "a", gpus(6), Cards::Unshared);
    charge(&mut s, "y", "b", gpus(3), Cards::Unshared);
    show("whole", &s, &gang("g", vec![gpus(4), gpus(4)]));
    show("whole alone", &s, &gang("g", vec![gpus(8)]));
    show("whole never", &s, &gang("g", vec![gpus(16)]));
    let mut r = gang("g", vec![gpus(4), gpus(4)]);
    r.quorum = Quorum::Count(1);
    show("partial", &s, &r);
    r.quorum = Quorum::Count(3);
    show("gathering", &s, &r);
    show(
        "memory",
        &cluster([node("a")]),
        &gang("g", vec![Shape { requests: resources(1, 257 << 30, 0), ..Shape::default() }]),
    );
    let mut n = node("a");
    n.unschedulable = true;
    show("cordon", &cluster([n]), &gang("g", [cpu(1)]));
    show(
        "two cards",
        &cluster([shared_node("a", 1, 8000), shared_node("b", 1, 8000)]),
        &gang("g", [vram_on(4000, 2)]),
    );
    let mut n = node("a");
    n.max_pods = 2;
    show("pods", &cluster([n]), &gang("g", vec![cpu(1); 3]));
    show("many", &cluster([shared_node("a", 8, 81_559)]), &gang("g", vec![vram(40_000); 20]));
}
