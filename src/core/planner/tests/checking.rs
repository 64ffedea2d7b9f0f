//! The second opinion has to refuse: one broken plan for each rule, made by hand from one that holds.

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

/// Two shares of 4000 MiB and one pod with two whole GPUs, all in place.
fn holds() -> Case {
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

/// Breaks the plan, or what it stands on, and expects a sentence with `rule` in it.
#[track_caller]
fn refuses(rule: &str, break_it: impl FnOnce(&mut Case)) {
    let mut case = holds();
    assert_eq!(check(&case.snapshot, &case.gangs, &case.plan), Ok(()));
    break_it(&mut case);
    let wrong = check(&case.snapshot, &case.gangs, &case.plan).expect_err(rule);
    assert!(wrong.iter().any(|sentence| sentence.contains(rule)), "{rule}: {wrong:?}");
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
fn gangs_as_a_whole() {
    refuses("is torn", |c| drop(places(c).pop()));
    refuses("is placed twice", |c| {
        let again = places(c)[0].clone();
        places(c).push(again);
    });
    refuses("is planned twice", |c| {
        c.plan.gangs.push(PlannedGang { gang: gang_id("g"), assignments: Vec::new() });
    });
    refuses("was never asked for", |c| c.plan.gangs[0].gang = gang_id("other"));
    refuses("is no waiting member", |c| places(c)[0].uid = "stranger".into());
    refuses("is torn", |c| {
        for member in &mut c.gangs[0].members {
            member.role = Some(str("worker"));
        }
        let children = BTreeMap::from([(str("leader"), Quorum::Count(1)), (str("worker"), Quorum::Count(1))]);
        c.gangs[0].quorum = Quorum::Groups { min: 2, children };
    });
}

#[test]
fn rules_of_placement() {
    refuses("there is no such node", |c| places(c)[0].node = "nowhere".into());
    refuses("not ready", |c| change_node(c, "w", |n| n.ready = false));
    refuses("cordoned", |c| change_node(c, "w", |n| n.unschedulable = true));
    refuses("does not tolerate the taint {test: x}", |c| {
        change_node(c, "w", |n| n.taints.push(taint("test", "x", TaintEffect::NoExecute)));
    });
    refuses("selector or affinity", |c| {
        change_shape(c, 2, |s| s.node_affinity.selector.extend([(str("zone"), str("z"))]));
    });
    refuses("host port", |c| {
        for member in 0..2 {
            change_shape(c, member, |s| s.host_ports.extend([(str(""), str("TCP"), 80)]));
        }
    });
}

#[test]
fn amounts_in_sum() {
    refuses("pods, and it takes", |c| change_node(c, "s", |n| n.max_pods = 2));
    refuses("of cpu in all", |c| change_shape(c, 0, |s| s.requests.cpu = MilliCpu(64_001)));
    refuses("of memory in all", |c| change_shape(c, 0, |s| s.requests.memory = Bytes(u64::MAX)));
    refuses("of ephemeral-storage in all", |c| {
        change_shape(c, 0, |s| s.requests.ephemeral_storage = Bytes(u64::MAX));
    });
    refuses("of nvidia.com/gpu in all", |c| change_shape(c, 2, |s| s.requests = gpus(3).requests));
    refuses("of example.com/fpga in all", |c| {
        change_shape(c, 2, |s| s.requests.extended.extend([(str("example.com/fpga"), 1)]));
    });
}

#[test]
fn cards() {
    refuses("MiB on card 0", |c| {
        charge(&mut c.snapshot, "more", "s", vram(1), CardAllocation::Known(vec![0]))
    });
    refuses("MiB on card 0", |c| places(c)[1].cards = vec![0]);
    refuses("there is no card 7", |c| places(c)[0].cards = vec![7]);
    refuses("is given []", |c| places(c)[0].cards.clear());
    refuses("is given [0, 1]", |c| places(c)[0].cards = vec![0, 1]);
    refuses("different and ascending", |c| {
        change_shape(c, 0, |s| *s = vram_on(4000, 2));
        places(c)[0].cards = vec![1, 1];
    });
    refuses("shares none", |c| places(c)[2].cards = vec![0]);
    refuses("not a shared node", |c| places(c)[1].node = "w".into());
    refuses("MIG", |c| change_node(c, "s", |n| n.gpus.mig = true));
    refuses("how much memory", |c| change_node(c, "s", |n| n.gpus.vram_each = None));
    refuses("nobody knows which", |c| charge(&mut c.snapshot, "old", "s", vram(1), CardAllocation::Unknown));
    refuses("whole GPUs on a shared node", |c| {
        places(c)[2].node = "s".into();
        change_shape(c, 2, |s| s.tolerations.push(toleration("")));
    });
    refuses("whole GPUs meet", |c| charge(&mut c.snapshot, "whole", "s", gpus(1), CardAllocation::Unshared));
    refuses("whole GPUs meet", |c| {
        charge(&mut c.snapshot, "share", "w", vram(1), CardAllocation::Known(vec![0]))
    });
    refuses("whole GPUs and a share", |c| {
        change_shape(c, 0, |s| s.requests = gpus(1).requests);
    });
}
