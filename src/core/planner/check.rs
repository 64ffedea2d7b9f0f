//! The independent check of a plan, from nodes and charges alone.
//!
//! It uses no code of the planner, and none of the packed numbers that the planner reads. It adds the members
//! to what is used on each node, which [`Snapshot::assert_consistent`] recounts, and applies the rules in the
//! opposite direction, from the assignments to the nodes. It looks at the nodes of the plan only, so that it
//! costs less than the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::check_pod_rules::check_pod_rules;
use super::types::{Assignment, Plan, PlanningRequest, WaitingMember};
use crate::dialect::Quorum;
use crate::model::{GangId, NodeName, PodUid, Resources, Str};
use crate::objects::GpuSharing;
use crate::objects::affinity::TaintEffect;
use crate::shape::{HostPort, Shape};
use crate::snapshot::{NodeState, SharingMode, Snapshot};

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
        if let Ok(index) = snapshot.position(name) {
            check_node(&snapshot.states()[index], &guests, &mut wrong);
        }
    }
    check_min_resources(snapshot, gangs, plan, &mut wrong);
    check_pod_rules(snapshot, gangs, plan, &mut wrong);
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Checks `minResources`: when a gang starts, they are free in total beside the gangs planned before it.
fn check_min_resources(snapshot: &Snapshot, gangs: &[PlanningRequest], plan: &Plan, wrong: &mut Vec<String>) {
    let mut before: BTreeMap<&NodeName, Vec<&Shape>> = BTreeMap::new();
    for planned in &plan.gangs {
        let Some(request) = gangs.iter().find(|request| request.gang == planned.gang) else { continue };
        let started = request.active.iter().map(|(role, number)| (role.as_ref(), u64::from(*number)));
        let starts = !complete(&request.quorum, None, &started.collect());
        let least = &request.min_resources;
        for what in ResourceName::all_of([least]).filter(|what| starts && what.of(least) > 0) {
            let (asked, mut free) = (what.of(least), 0_u64);
            for state in snapshot.states() {
                let planned = before.get(&state.node.name).map_or(&[][..], Vec::as_slice);
                free = free.saturating_add(free_on(state, planned, what));
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
        if plan.gangs.len() > 1 {
            for placement in &planned.assignments {
                let member = request.members.iter().find(|member| member.uid == placement.uid);
                before.entry(&placement.node).or_default().extend(member.map(|member| &*member.shape));
            }
        }
    }
}

/// A resource that is a sum over pods.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ResourceName<'a> {
    Cpu,
    Memory,
    EphemeralStorage,
    Extended(&'a Str),
}

impl<'a> ResourceName<'a> {
    /// Every resource of these amounts, once.
    fn all_of(amounts: impl IntoIterator<Item = &'a Resources>) -> impl Iterator<Item = Self> {
        let extended: BTreeSet<&Str> =
            amounts.into_iter().flat_map(|amount| amount.extended.keys()).collect();
        [Self::Cpu, Self::Memory, Self::EphemeralStorage]
            .into_iter()
            .chain(extended.into_iter().map(Self::Extended))
    }

    fn of(self, resources: &Resources) -> u64 {
        match self {
            Self::Cpu => resources.cpu.0,
            Self::Memory => resources.memory.0,
            Self::EphemeralStorage => resources.ephemeral_storage.0,
            Self::Extended(name) => resources.extended(name),
        }
    }

    fn used(self, state: &NodeState) -> u128 {
        match self {
            Self::Cpu => state.used.cpu,
            Self::Memory => state.used.memory,
            Self::EphemeralStorage => state.used.ephemeral_storage,
            Self::Extended(name) => state.used.extended.get(name).copied().unwrap_or(0),
        }
    }
}

impl fmt::Display for ResourceName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Extended(name) => name,
        })
    }
}

/// What is free of a resource on a schedulable node beside its pods and the ones `planned` before; else zero.
fn free_on(state: &NodeState, planned: &[&Shape], what: ResourceName<'_>) -> u64 {
    let node = &state.node;
    let shared = node.gpus.sharing == GpuSharing::Vram
        || state.used.shares > 0
        || planned.iter().any(|shape| shape.share.is_some());
    let is_gpu = matches!(what, ResourceName::Extended(name) if &**name == "nvidia.com/gpu");
    if !node.ready || node.unschedulable || (is_gpu && shared) {
        return 0;
    }
    let used: u128 = planned.iter().map(|shape| u128::from(what.of(&shape.requests))).sum();
    let used = used + what.used(state);
    u64::try_from(u128::from(what.of(&node.allocatable)).saturating_sub(used)).unwrap_or(0)
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
fn check_node(state: &NodeState, guests: &[(&WaitingMember, &Assignment)], wrong: &mut Vec<String>) {
    let (node, used) = (&state.node, &state.used);
    let name = &node.name;
    let pods = used.pods + guests.len() as u64;
    if pods > node.max_pods {
        wrong.push(format!("node {name}: {pods} pods, and it allows {}", node.max_pods));
    }
    for what in ResourceName::all_of(guests.iter().map(|(member, _)| &member.shape.requests)) {
        let new: u128 = guests.iter().map(|(member, _)| u128::from(what.of(&member.shape.requests))).sum();
        // Pods outside of Portcullis's control may overbook a resource that no new pod requests.
        if new > 0 {
            let sum = what.used(state) + new;
            let has = what.of(&node.allocatable);
            if sum > u128::from(has) {
                wrong.push(format!("node {name}: {sum} of {what} in total, and it has {has}"));
            }
        }
    }
    check_ports(state, guests, wrong);
    check_cards(state, guests, wrong);
}

/// Checks that no port of a new pod is in use by another pod.
fn check_ports(state: &NodeState, guests: &[(&WaitingMember, &Assignment)], wrong: &mut Vec<String>) {
    let conflict = |a: &HostPort, b: &HostPort| {
        let same_address = a.0.is_empty() || b.0.is_empty() || a.0 == b.0;
        same_address && a.1 == b.1 && a.2 == b.2
    };
    for (index, (member, _)) in guests.iter().enumerate() {
        let later = guests[index + 1..].iter().flat_map(|(other, _)| &other.shape.host_ports);
        for port in &member.shape.host_ports {
            if state.used.ports.keys().chain(later.clone()).any(|other| conflict(port, other)) {
                wrong.push(format!("node {}: two pods use host port {} {}", state.node.name, port.1, port.2));
            }
        }
    }
}

/// Checks that no card is overbooked, and that shares and whole GPUs do not mix.
fn check_cards(state: &NodeState, guests: &[(&WaitingMember, &Assignment)], wrong: &mut Vec<String>) {
    let (node, used) = (&state.node, &state.used);
    let name = &node.name;
    let new_share = guests.iter().any(|(member, _)| member.shape.share.is_some());
    let new_whole = guests.iter().any(|(member, _)| whole_gpus(&member.shape.requests));
    if (new_share && (used.whole > 0 || new_whole)) || (new_whole && used.shares > 0) {
        wrong.push(format!("node {name}: shares of cards and whole GPUs mix"));
    }
    let Some(each) = node.gpus.vram_each.filter(|_| new_share) else { return };
    if used.unknown_shares > 0 {
        wrong.push(format!("node {name}: a pod shares unknown cards"));
    }
    let mut new: BTreeMap<u32, u128> = BTreeMap::new();
    for (member, placement) in guests {
        if let Some(share) = &member.shape.share {
            for card in &placement.cards {
                *new.entry(*card).or_default() += u128::from(share.on_card(each).0);
            }
        }
    }
    // Pods outside of Portcullis's control may overbook a card without new pods.
    for (card, new) in new {
        let used = new + used.cards.get(card as usize).copied().unwrap_or(0);
        if used > u128::from(each.0) {
            wrong.push(format!("node {name}: {used} MiB on card {card}, and it has {each}"));
        }
    }
}
