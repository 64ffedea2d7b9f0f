//! The check finds violations: one broken plan per rule, made from a valid one.

use super::*;
use crate::planner::{Assignment, PlannedGang, check};

struct Case {
    snapshot: Snapshot,
    gangs: Vec<PlanningRequest>,
    plan: Plan,
}

fn placement(pod: &str, node: &str, cards: &[u32]) -> Assignment {
    Assignment { uid: pod.into(), key: PodKey::new("default", pod), node: node.into(), cards: cards.to_vec() }
}

/// A valid plan: two shares of 4000 MiB and one pod with two whole GPUs.
fn valid_case() -> Case {
    let mut snapshot = cluster([shared_node("s", 2, 8000), gpu_node("w", 2, 8000)]);
    charge(&mut snapshot, "old", "s", vram(4000), CardAllocation::Known(vec![0]));
    let placements =
        vec![placement("g-0", "s", &[0]), placement("g-1", "s", &[1]), placement("g-2", "w", &[])];
    Case {
        snapshot,
        gangs: vec![gang("g", [vram(4000), vram(4000), gpus(2)])],
        plan: Plan { gangs: vec![PlannedGang { gang: gang_id("g"), assignments: placements }] },
    }
}

/// Breaks the plan, the request or the snapshot, and expects a violation that contains `rule`.
#[track_caller]
fn finds(rule: &str, break_it: impl FnOnce(&mut Case)) {
    let mut case = valid_case();
    assert_eq!(check(&case.snapshot, &case.gangs, &case.plan), Ok(()));
    break_it(&mut case);
    let wrong = check(&case.snapshot, &case.gangs, &case.plan).expect_err(rule);
    assert!(wrong.iter().any(|violation| violation.contains(rule)), "{rule}: {wrong:?}");
}

fn change_node(case: &mut Case, name: &str, change: impl FnOnce(&mut Node)) {
    let mut node = case.snapshot.node(&name.into()).expect("it is there").clone();
    change(&mut node);
    case.snapshot.set_node(node);
}

fn change_shape(case: &mut Case, member: usize, change: impl FnOnce(&mut Shape)) {
    change(Arc::make_mut(&mut case.gangs[0].members[member].shape));
}

fn places(case: &mut Case) -> &mut Vec<Assignment> {
    &mut case.plan.gangs[0].assignments
}

#[test]
fn violations_of_the_gang_are_found() {
    finds("is torn", |c| drop(places(c).pop()));
    finds("is assigned twice", |c| {
        let again = places(c)[0].clone();
        places(c).push(again);
    });
    finds("is planned twice", |c| {
        c.plan.gangs.push(PlannedGang { gang: gang_id("g"), assignments: Vec::new() });
    });
    finds("without a request", |c| c.plan.gangs[0].gang = gang_id("other"));
    finds("is not a waiting member", |c| places(c)[0].uid = "stranger".into());
    finds("is torn", |c| {
        for member in &mut c.gangs[0].members {
            member.role = Some(str("worker"));
        }
        let children = BTreeMap::from([(str("leader"), Quorum::Count(1)), (str("worker"), Quorum::Count(1))]);
        c.gangs[0].quorum = Quorum::Groups { min: 2, children };
    });
}

#[test]
fn violations_of_placement_rules_are_found() {
    finds("the node does not exist", |c| places(c)[0].node = "nowhere".into());
    finds("not ready", |c| change_node(c, "w", |n| n.ready = false));
    finds("cordoned", |c| change_node(c, "w", |n| n.unschedulable = true));
    finds("does not tolerate the taint {test: x}", |c| {
        change_node(c, "w", |n| n.taints.push(taint("test", "x", TaintEffect::NoExecute)));
    });
    finds("selector or affinity", |c| {
        change_shape(c, 2, |s| s.node_affinity.selector.extend([(str("zone"), str("z"))]));
    });
    finds("host port", |c| {
        for member in 0..2 {
            change_shape(c, member, |s| s.host_ports.extend([(str(""), str("TCP"), 80)]));
        }
    });
}

#[test]
fn overbooked_nodes_are_found() {
    finds("pods, and it allows", |c| change_node(c, "s", |n| n.max_pods = 2));
    finds("of cpu in total", |c| change_shape(c, 0, |s| s.requests.cpu = MilliCpu(64_001)));
    finds("of memory in total", |c| change_shape(c, 0, |s| s.requests.memory = Bytes(u64::MAX)));
    finds("of ephemeral-storage in total", |c| {
        change_shape(c, 0, |s| s.requests.ephemeral_storage = Bytes(u64::MAX));
    });
    finds("of nvidia.com/gpu in total", |c| change_shape(c, 2, |s| s.requests = gpus(3).requests));
    finds("of example.com/fpga in total", |c| {
        change_shape(c, 2, |s| s.requests.extended.extend([(str("example.com/fpga"), 1)]));
    });
}

#[test]
fn violations_of_card_rules_are_found() {
    finds("MiB on card 0", |c| charge(&mut c.snapshot, "more", "s", vram(1), CardAllocation::Known(vec![0])));
    finds("MiB on card 0", |c| places(c)[1].cards = vec![0]);
    finds("card 7 does not exist", |c| places(c)[0].cards = vec![7]);
    finds("has [] assigned", |c| places(c)[0].cards.clear());
    finds("has [0, 1] assigned", |c| places(c)[0].cards = vec![0, 1]);
    finds("distinct and ascending", |c| {
        change_shape(c, 0, |s| *s = vram_on(4000, 2));
        places(c)[0].cards = vec![1, 1];
    });
    finds("shares none", |c| places(c)[2].cards = vec![0]);
    finds("the node is not shared", |c| places(c)[1].node = "w".into());
    finds("MIG", |c| change_node(c, "s", |n| n.gpus.mig = true));
    finds("VRAM of its cards is unknown", |c| change_node(c, "s", |n| n.gpus.vram_each = None));
    finds("unknown cards", |c| charge(&mut c.snapshot, "old", "s", vram(1), CardAllocation::Unknown));
    finds("whole GPUs on a shared node", |c| {
        places(c)[2].node = "s".into();
        change_shape(c, 2, |s| s.tolerations.push(toleration("")));
    });
    finds("whole GPUs mix", |c| charge(&mut c.snapshot, "whole", "s", gpus(1), CardAllocation::Unshared));
    finds("whole GPUs mix", |c| {
        charge(&mut c.snapshot, "share", "w", vram(1), CardAllocation::Known(vec![0]));
    });
    finds("whole GPUs and a share", |c| {
        change_shape(c, 0, |s| s.requests = gpus(1).requests);
    });
}
