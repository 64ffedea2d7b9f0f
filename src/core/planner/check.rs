//! The independent check of a plan, from nodes and charges alone.
//!
//! It uses no code of the planner and no free amounts of the snapshot. It adds everything up itself, and
//! applies the rules in the opposite direction, from the assignments to the nodes. It looks at the nodes of
//! the plan only, so that it costs less than the plan.

use std::collections::{BTreeMap, BTreeSet};

use super::check_pod_rules::check_pod_rules;
use super::types::{Assignment, Plan, PlanningRequest, WaitingMember};
use crate::dialect::Quorum;
use crate::gpu::GpuShare;
use crate::model::{GangId, NodeName, PodUid, Resources, Str};
use crate::objects::affinity::TaintEffect;
use crate::objects::{GpuSharing, Node};
use crate::shape::{HostPort, Shape};
use crate::snapshot::{CardAllocation, SharingMode, Snapshot};

/// Checks that a plan is all-or-none, overbooks nothing and follows every placement rule.
///
/// # Errors
/// One sentence per violation.
pub fn check(snapshot: &Snapshot, gangs: &[PlanningRequest], plan: &Plan) -> Result<(), Vec<String>> {
    let mut wrong = Vec::new();
    let placed = match_assignments(gangs, plan, &mut wrong);
    for (member, placement) in &placed {
        check_pod(snapshot, member, placement, &mut wrong);
    }
    let mut by_node: BTreeMap<&NodeName, Vec<(&WaitingMember, &Assignment)>> = BTreeMap::new();
    for (member, placement) in &placed {
        by_node.entry(&placement.node).or_default().push((*member, *placement));
    }
    for (name, guests) in by_node {
        if let Some(node) = snapshot.node(name) {
            check_node(snapshot, node, &guests, &mut wrong);
        }
    }
    check_min_resources(snapshot, gangs, plan, &mut wrong);
    check_pod_rules(snapshot, gangs, plan, &mut wrong);
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Checks `minResources`: when a gang starts, they are free in total beside the gangs planned before it.
fn check_min_resources(snapshot: &Snapshot, gangs: &[PlanningRequest], plan: &Plan, wrong: &mut Vec<String>) {
    let mut before: Vec<(&NodeName, &Shape)> = Vec::new();
    for planned in &plan.gangs {
        let Some(request) = gangs.iter().find(|request| request.gang == planned.gang) else { continue };
        let started = request.active.iter().map(|(role, number)| (role.as_ref(), u64::from(*number)));
        let starts = !complete(&request.quorum, None, &started.collect());
        let least = &request.min_resources;
        let extended = least.extended.keys().map(|name| (&**name, least.extended(name)));
        let plain = [
            ("cpu", least.cpu.0),
            ("memory", least.memory.0),
            ("ephemeral-storage", least.ephemeral_storage.0),
        ];
        for (what, asked) in plain.into_iter().chain(extended).filter(|(_, asked)| starts && *asked > 0) {
            let mut free = 0_u64;
            for node in snapshot.states().iter().map(|state| &state.node) {
                free = free.saturating_add(free_on(snapshot, node, &before, what));
                if free >= asked {
                    break;
                }
            }
            if free < asked {
                wrong.push(format!(
                    "gang {}: minResources needs {asked} of {what}, and {free} are free",
                    planned.gang
                ));
            }
        }
        before.extend(planned.assignments.iter().filter_map(|placement| {
            let member = request.members.iter().find(|member| member.uid == placement.uid)?;
            Some((&placement.node, &*member.shape))
        }));
    }
}

/// What is free of a resource on a schedulable node beside its pods and the ones planned `before`; else zero.
fn free_on(snapshot: &Snapshot, node: &Node, before: &[(&NodeName, &Shape)], what: &str) -> u64 {
    let held = snapshot.charged_to(&node.name).map(|(_, charge)| &*charge.shape);
    let planned = before.iter().filter(|(name, _)| **name == node.name).map(|(_, shape)| *shape);
    let there: Vec<&Shape> = held.chain(planned).collect();
    let shared = node.gpus.sharing == GpuSharing::Vram || there.iter().any(|shape| shape.share.is_some());
    if !node.ready || node.unschedulable || (what == "nvidia.com/gpu" && shared) {
        return 0;
    }
    let of = |resources: &Resources| match what {
        "cpu" => resources.cpu.0,
        "memory" => resources.memory.0,
        "ephemeral-storage" => resources.ephemeral_storage.0,
        name => resources.extended(name),
    };
    let used: u128 = there.iter().map(|shape| u128::from(of(&shape.requests))).sum();
    u64::try_from(u128::from(of(&node.allocatable)).saturating_sub(used)).unwrap_or(0)
}

/// Finds the member of each assignment, and checks each gang as a whole.
fn match_assignments<'a>(
    gangs: &'a [PlanningRequest],
    plan: &'a Plan,
    wrong: &mut Vec<String>,
) -> Vec<(&'a WaitingMember, &'a Assignment)> {
    let mut all = Vec::new();
    let mut pods: BTreeSet<&PodUid> = BTreeSet::new();
    let mut seen: BTreeSet<&GangId> = BTreeSet::new();
    for planned in &plan.gangs {
        let gang = &planned.gang;
        if !seen.insert(gang) {
            wrong.push(format!("gang {gang} is planned twice"));
        }
        let Some(request) = gangs.iter().find(|request| request.gang == *gang) else {
            wrong.push(format!("gang {gang} is planned without a request"));
            continue;
        };
        let members: BTreeMap<&PodUid, &WaitingMember> =
            request.members.iter().map(|m| (&m.uid, m)).collect();
        let mut started: BTreeMap<Option<&Str>, u64> = BTreeMap::new();
        for (role, number) in &request.active {
            *started.entry(role.as_ref()).or_default() += u64::from(*number);
        }
        for placement in &planned.assignments {
            if !pods.insert(&placement.uid) {
                wrong.push(format!("pod {} is assigned twice", placement.key));
            }
            match members.get(&placement.uid) {
                None => wrong.push(format!("pod {} is not a waiting member of gang {gang}", placement.key)),
                Some(member) => {
                    *started.entry(member.role.as_ref()).or_default() += 1;
                    all.push((*member, placement));
                }
            }
        }
        if !complete(&request.quorum, None, &started) {
            let number = planned.assignments.len();
            wrong.push(format!(
                "gang {gang} is torn: {number} members are assigned and its quorum is not met"
            ));
        }
    }
    all
}

/// Whether the started members meet a quorum. Below the top, only members of the subgroup `group` count.
fn complete(quorum: &Quorum, group: Option<&Str>, started: &BTreeMap<Option<&Str>, u64>) -> bool {
    match quorum {
        Quorum::Count(least) => {
            let counts = started.iter().filter(|(role, _)| match (group, role) {
                (None, _) => true,
                (Some(group), Some(role)) => group == *role,
                // A pod without a subgroup is in the subgroup "default".
                (Some(group), None) => &**group == "default",
            });
            counts.map(|(_, number)| number).sum::<u64>() >= u64::from(*least)
        }
        Quorum::Groups { min, children } => {
            let mut met = 0;
            for (name, child) in children {
                met += u32::from(complete(child, Some(name), started));
            }
            met >= *min
        }
        Quorum::Total { min_members: least, quorum } => {
            started.values().sum::<u64>() >= u64::from(*least) && complete(quorum, group, started)
        }
    }
}

/// Checks one assignment by itself.
fn check_pod(snapshot: &Snapshot, member: &WaitingMember, placement: &Assignment, wrong: &mut Vec<String>) {
    let (pod, name, shape) = (&placement.key, &placement.node, &*member.shape);
    let mut fail = |what: String| wrong.push(format!("pod {pod} on node {name}: {what}"));
    let Some(node) = snapshot.node(name) else {
        fail("the node does not exist".to_owned());
        return;
    };
    if !node.ready {
        fail("the node is not ready".to_owned());
    }
    let tolerates = |key: &str, value: &str, effect: TaintEffect| {
        shape.tolerations.iter().any(|toleration| {
            let covers_key =
                &*toleration.key == key || (toleration.key.is_empty() && toleration.value.is_none());
            let covers_value = match &toleration.value {
                None => true,
                Some(wanted) => &**wanted == value,
            };
            covers_key && covers_value && (toleration.effect.is_none() || toleration.effect == Some(effect))
        })
    };
    if node.unschedulable && !tolerates("node.kubernetes.io/unschedulable", "", TaintEffect::NoSchedule) {
        fail("the node is cordoned".to_owned());
    }
    for taint in &node.taints {
        let hard = matches!(taint.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute);
        if hard && !tolerates(&taint.key, &taint.value, taint.effect) {
            fail(format!("the pod does not tolerate the taint {taint}"));
        }
    }
    if !shape.node_affinity.matches(&node.name, &node.labels) {
        fail("node selector or affinity does not match".to_owned());
    }
    if let Some((_, message)) = snapshot.refusals_of(shape).find(|(refusing, _)| *refusing == name) {
        fail(format!("the scheduler refused an equal pod: {message}"));
    }
    match &shape.share {
        None if !placement.cards.is_empty() => fail("it has cards assigned and shares none".to_owned()),
        None => {}
        Some(share) => {
            let distinct: BTreeSet<u32> = placement.cards.iter().copied().collect();
            if distinct.len() != placement.cards.len() || !placement.cards.is_sorted() {
                fail(format!("cards {:?} are not distinct and ascending", placement.cards));
            }
            if u32::try_from(distinct.len()) != Ok(share.devices) {
                fail(format!("it shares {} cards and has {:?} assigned", share.devices, placement.cards));
            }
            if let Some(card) = distinct.iter().find(|card| **card >= node.gpus.cards) {
                fail(format!("card {card} does not exist"));
            }
            let shared = node.gpus.sharing == GpuSharing::Vram || snapshot.sharing() == SharingMode::Any;
            if !shared {
                fail("the node is not shared".to_owned());
            }
            if node.gpus.mig {
                fail("the node has MIG enabled".to_owned());
            }
            if node.gpus.vram_each.is_none() {
                fail("the VRAM of its cards is unknown".to_owned());
            }
        }
    }
    if whole_gpus(&shape.requests) {
        if node.gpus.sharing == GpuSharing::Vram {
            fail("it requests whole GPUs on a shared node".to_owned());
        }
        if shape.share.is_some() {
            fail("it requests whole GPUs and a share".to_owned());
        }
    }
}

fn whole_gpus(requests: &Resources) -> bool {
    requests.extended.iter().any(|(name, amount)| {
        let device = matches!(&**name, "nvidia.com/gpu" | "nvidia.com/gpu.shared")
            || name.starts_with("nvidia.com/mig-");
        device && *amount > 0
    })
}

/// Checks all pods of a node together.
fn check_node(
    snapshot: &Snapshot,
    node: &Node,
    guests: &[(&WaitingMember, &Assignment)],
    wrong: &mut Vec<String>,
) {
    let name = &node.name;
    let residents: Vec<(&Shape, &CardAllocation)> =
        snapshot.charged_to(name).map(|(_, charge)| (&*charge.shape, &charge.cards)).collect();
    let all = || residents.iter().map(|(shape, _)| *shape).chain(guests.iter().map(|(m, _)| &*m.shape));

    let pods = (residents.len() + guests.len()) as u64;
    if pods > node.max_pods {
        wrong.push(format!("node {name}: {pods} pods, and it allows {}", node.max_pods));
    }
    type AmountOf = fn(&Resources) -> u64;
    let plain: [(&str, AmountOf); 3] =
        [("cpu", |r| r.cpu.0), ("memory", |r| r.memory.0), ("ephemeral-storage", |r| r.ephemeral_storage.0)];
    let mut sum_up = |what: &str, amount: &dyn Fn(&Resources) -> u64| {
        // Pods outside of Portcullis's control may overbook a resource that no new pod requests.
        if guests.iter().any(|(member, _)| amount(&member.shape.requests) > 0) {
            let sum: u128 = all().map(|shape| u128::from(amount(&shape.requests))).sum();
            let has = amount(&node.allocatable);
            if sum > u128::from(has) {
                wrong.push(format!("node {name}: {sum} of {what} in total, and it has {has}"));
            }
        }
    };
    for (what, amount) in plain {
        sum_up(what, &amount);
    }
    let names: BTreeSet<&Str> = guests.iter().flat_map(|(m, _)| m.shape.requests.extended.keys()).collect();
    for what in names {
        sum_up(what, &|r| r.extended.get(what).copied().unwrap_or(0));
    }

    let ports: Vec<(usize, &HostPort)> = all()
        .enumerate()
        .flat_map(|(pod, shape)| shape.host_ports.iter().map(move |port| (pod, port)))
        .collect();
    for (index, (pod, a)) in ports.iter().enumerate() {
        for (other, b) in &ports[index + 1..] {
            let new = *pod >= residents.len() || *other >= residents.len();
            let same_address = a.0.is_empty() || b.0.is_empty() || a.0 == b.0;
            if new && pod != other && same_address && a.1 == b.1 && a.2 == b.2 {
                wrong.push(format!("node {name}: two pods use host port {} {}", a.1, a.2));
            }
        }
    }
    check_cards(node, &residents, guests, wrong);
}

/// Checks that no card is overbooked, and that shares and whole GPUs do not mix.
fn check_cards(
    node: &Node,
    residents: &[(&Shape, &CardAllocation)],
    guests: &[(&WaitingMember, &Assignment)],
    wrong: &mut Vec<String>,
) {
    let name = &node.name;
    let new_share = guests.iter().any(|(member, _)| member.shape.share.is_some());
    let new_whole = guests.iter().any(|(member, _)| whole_gpus(&member.shape.requests));
    let old_share = residents.iter().any(|(shape, _)| shape.share.is_some());
    let old_whole = residents.iter().any(|(shape, _)| whole_gpus(&shape.requests));
    if (new_share && (old_whole || new_whole)) || (new_whole && old_share) {
        wrong.push(format!("node {name}: shares of cards and whole GPUs mix"));
    }
    let Some(each) = node.gpus.vram_each.filter(|_| new_share) else { return };
    let takes = |share: &GpuShare| u128::from(share.on_card(each).0);
    let mut used: BTreeMap<u32, u128> = BTreeMap::new();
    for (shape, cards) in residents {
        let Some(share) = &shape.share else { continue };
        let known = match cards {
            CardAllocation::Known(list) => {
                let distinct: BTreeSet<&u32> = list.iter().collect();
                (distinct.len() == share.devices as usize
                    && list.len() == distinct.len()
                    && list.iter().all(|card| *card < node.gpus.cards))
                .then_some(list)
            }
            CardAllocation::Unshared | CardAllocation::Unknown => None,
        };
        match known {
            None => wrong.push(format!("node {name}: a pod shares unknown cards")),
            Some(list) => list.iter().for_each(|card| *used.entry(*card).or_default() += takes(share)),
        }
    }
    let mut new = BTreeSet::new();
    for (member, placement) in guests {
        if let Some(share) = &member.shape.share {
            for card in &placement.cards {
                *used.entry(*card).or_default() += takes(share);
                new.insert(*card);
            }
        }
    }
    for (card, used) in used {
        // Pods outside of Portcullis's control may overbook a card without new pods.
        if new.contains(&card) && used > u128::from(each.0) {
            wrong.push(format!("node {name}: {used} MiB on card {card}, and it has {each}"));
        }
    }
}
