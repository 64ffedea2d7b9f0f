//! The remedy: the smallest change found that makes a gang fit.
//!
//! Every proposal about pods, taints and cordons is tried on a copy of the overlay, and given only when the
//! gang then fits.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::attempt::{AttemptOutcome, PlacementAttempt, TentativeAssignment};
use super::candidates::ResolvedShapes;
use super::explain::UnplacedMember;
use super::overlay::SnapshotOverlay;
use super::requirements::{InfeasibleReason, PodRequirements};
use super::resource_kind::ResourceKind;
use super::shortage::requested;
use super::survey::{NodeSurvey, ReasonStats};
use super::tie_break::TieBreak;
use super::types::{PlanningRequest, WaitingMember};
use crate::dialect::Quorum;
use crate::gpu::ShareSize;
use crate::model::{PodUid, Str, str};
use crate::objects::affinity::{Taint, TaintEffect, Toleration};
use crate::objects::names;
use crate::shape::Shape;
use crate::snapshot::{CardState, Charge, ChargeState};

/// Upper bound of trials per gang. Each trial is a planning round for one gang.
const MAX_TRIALS: usize = 12;
/// Upper bound of search steps per trial.
const MAX_TRIAL_STEPS: u32 = 2000;
/// Upper bound of pods in one proposal.
const MAX_PODS_PER_PROPOSAL: usize = 4;
/// Nodes on which several pods are tried together.
const MAX_NODES_WITH_SEVERAL_PODS: usize = 2;
/// Pods per node that are considered: those with the largest requests.
const MAX_PODS_PER_NODE: usize = 6;

/// The remedy for the unplaced members; `None` when no trial succeeds and no amount is short.
pub(super) fn find<'a>(
    attempt: &PlacementAttempt<'a>,
    shapes: &ResolvedShapes<'a>,
    overlay: &SnapshotOverlay<'a>,
    outcome: &AttemptOutcome,
    unplaced: &UnplacedMember,
    survey: &NodeSurvey,
    never_fits: bool,
) -> Option<String> {
    let (reason, stats) = survey.main_reason()?;
    let need = shapes.need(attempt.shapes[unplaced.shape].need);
    if let InfeasibleReason::CardsUnavailable(state) = reason
        && let Some(commands) = make_cards_available(state, stats, overlay)
    {
        return Some(commands);
    }
    let resource = ResourceKind::of(reason, need);
    if never_fits {
        return Some(request_less(resource?, need, stats, overlay));
    }
    let request = unplaced_request(attempt, outcome);
    let mut trials = MAX_TRIALS;
    let mut remedies = Vec::new();
    if let Some(remedy) = wait_for_pods(&request, overlay, survey, resource, &mut trials) {
        remedies.push(remedy);
    }
    if remedies.is_empty()
        && let Some(remedy) = remove_taint(&request, overlay, survey, &mut trials)
    {
        remedies.push(remedy);
    }
    if reason == InfeasibleReason::Vram
        && let Some(remedy) = add_card(attempt, shapes, overlay, outcome)
    {
        remedies.push(remedy);
    }
    if remedies.is_empty()
        && let Some(resource) = resource
    {
        remedies.push(free_capacity(attempt, shapes, overlay, outcome, resource, stats.node)?);
    }
    (!remedies.is_empty()).then(|| remedies.join(", or "))
}

/// The remedy for a request that no node could hold even if the node were empty.
fn request_less(
    resource: ResourceKind<'_>,
    need: &PodRequirements<'_>,
    stats: &ReasonStats,
    overlay: &SnapshotOverlay<'_>,
) -> String {
    let (largest, node) = stats.largest;
    let most = resource.format(largest);
    if let Some(share) = need.share
        && resource == ResourceKind::Vram
        && requested(resource, need, overlay, node) <= largest
    {
        let devices = share.devices;
        return format!("request fewer than {devices} cards, or add a shared node with {devices} cards");
    }
    match resource {
        ResourceKind::Vram => {
            format!("request at most {most} on one card, or add a shared node with larger cards")
        }
        _ => format!("request at most {most} in one pod, or add a larger node"),
    }
}

/// Members of the request, by index, that have an assignment in the outcome or in its best effort.
fn placed_members(outcome: &AttemptOutcome) -> BTreeSet<usize> {
    let placed = if outcome.assignments.is_empty() { &outcome.best_effort } else { &outcome.assignments };
    placed.iter().map(|assignment| assignment.member).collect()
}

/// What the unplaced members request: the remedy when no trial succeeds.
fn free_capacity(
    attempt: &PlacementAttempt<'_>,
    shapes: &ResolvedShapes<'_>,
    overlay: &SnapshotOverlay<'_>,
    outcome: &AttemptOutcome,
    resource: ResourceKind<'_>,
    node: u32,
) -> Option<String> {
    let placed = placed_members(outcome);
    let missing = attempt.min_needed().saturating_sub(placed.len()).max(1);
    let unplaced = attempt.shape_of.iter().enumerate().filter(|(member, _)| !placed.contains(member));
    let mut requests: Vec<u64> = unplaced
        .filter_map(|(_, shape)| shape.map(|shape| shapes.need(attempt.shapes[shape].need)))
        .map(|need| requested(resource, need, overlay, node))
        .collect();
    requests.sort_unstable();
    requests.truncate(missing);
    let (members, sum) = (requests.len(), resource.format_sum(&requests));
    let s = if members == 1 { "" } else { "s" };
    (!requests.is_empty()).then(|| format!("free capacity for {members} more member{s} ({sum})"))
}

/// The request to try again: the whole gang, or its unplaced members one by one when the others are placed.
fn unplaced_request(attempt: &PlacementAttempt<'_>, outcome: &AttemptOutcome) -> PlanningRequest {
    let mut request = attempt.request.clone();
    if !outcome.assignments.is_empty() {
        let placed: BTreeSet<usize> =
            outcome.assignments.iter().map(|assignment| assignment.member).collect();
        let members = request.members.into_iter().enumerate();
        request.members =
            members.filter(|(index, _)| !placed.contains(index)).map(|(_, member)| member).collect();
        request.quorum = Quorum::Count(0);
    }
    request
}

/// The assignments of the gang on a copy of the overlay; empty when it does not fit.
fn try_again(request: &PlanningRequest, overlay: &SnapshotOverlay<'_>) -> Vec<TentativeAssignment> {
    let mut overlay = overlay.fork();
    let mut shapes = ResolvedShapes::default();
    let attempt = PlacementAttempt::new(request, &mut shapes, &overlay, TieBreak::Stable);
    attempt.place(&shapes, &mut overlay, TieBreak::Stable, MAX_TRIAL_STEPS).assignments
}

/// A pod that holds some of the resource that is short.
struct Holder<'a> {
    /// The amount that its requests hold; 1 when the reason is not about an amount.
    held: u64,
    node: u32,
    uid: PodUid,
    charge: &'a Charge,
}

impl Holder<'_> {
    fn name(&self) -> String {
        self.charge.key.as_ref().map_or_else(|| format!("the pod with uid {}", self.uid), ToString::to_string)
    }
}

/// Pods on the nearest nodes after whose end the gang fits: the one that holds least, else several of one
/// node.
fn wait_for_pods(
    request: &PlanningRequest,
    overlay: &SnapshotOverlay<'_>,
    survey: &NodeSurvey,
    resource: Option<ResourceKind<'_>>,
    trials: &mut usize,
) -> Option<String> {
    let nearest: BTreeSet<(u64, u32)> = survey
        .by_reason
        .values()
        .flat_map(|stats| stats.nearest.iter().map(|(free, node)| (u64::MAX - free, *node)))
        .collect();
    let mut holders: Vec<Holder<'_>> = Vec::new();
    for (_, node) in &nearest {
        holders.extend(holders_on(overlay, *node, resource));
    }
    if holders.is_empty() {
        return None;
    }
    holders.sort_by(|a, b| (a.held, a.node, &a.uid).cmp(&(b.held, b.node, &b.uid)));
    // The cluster is scanned once. Each trial scans only the node on which pods end.
    let mut shapes = ResolvedShapes::default();
    let attempt = PlacementAttempt::new(request, &mut shapes, overlay, TieBreak::Stable);
    let fits_without = |node: u32, charges: &[&Charge]| {
        let mut freed = overlay.fork();
        freed.release_charges(node as usize, charges);
        let attempt = attempt.with_freed_node(node, &shapes, &freed);
        !attempt.place(&shapes, &mut freed, TieBreak::Stable, MAX_TRIAL_STEPS).assignments.is_empty()
    };
    // With too many pods to try, those that hold most are tried: they are the likelier ones.
    let skip = holders.len().saturating_sub(*trials / 2);
    for holder in holders.into_iter().skip(skip) {
        *trials -= 1;
        if fits_without(holder.node, &[holder.charge]) {
            let held = held_on(overlay, holder.node, holder.held, resource);
            return Some(format!("wait for {} to end{held}", holder.name()));
        }
    }
    for (_, node) in nearest.into_iter().take(MAX_NODES_WITH_SEVERAL_PODS) {
        let holders = holders_on(overlay, node, resource);
        for number in 2..=holders.len().min(MAX_PODS_PER_PROPOSAL) {
            if *trials == 0 {
                return None;
            }
            *trials -= 1;
            let ending = &holders[..number];
            let charges: Vec<&Charge> = ending.iter().map(|holder| holder.charge).collect();
            if fits_without(node, &charges) {
                let held = ending.iter().fold(0_u64, |sum, holder| sum.saturating_add(holder.held));
                let mut pods: Vec<String> = ending.iter().map(Holder::name).collect();
                let last = pods.pop().unwrap_or_default();
                let held = held_on(overlay, node, held, resource);
                return Some(format!("wait for {} and {last} to end{held}", pods.join(", ")));
            }
        }
    }
    None
}

/// The pods on a node that hold the resource, largest first, at most [`MAX_PODS_PER_NODE`].
fn holders_on<'a>(
    overlay: &SnapshotOverlay<'a>,
    node: u32,
    resource: Option<ResourceKind<'_>>,
) -> Vec<Holder<'a>> {
    let state = overlay.state(node as usize);
    let held_by = |charge: &Charge| {
        let requests = &charge.shape.requests;
        match resource {
            Some(ResourceKind::Cpu) => requests.cpu.0,
            Some(ResourceKind::Memory) => requests.memory.0,
            Some(ResourceKind::EphemeralStorage) => requests.ephemeral_storage.0,
            Some(ResourceKind::Gpus) => requests.extended(names::NVIDIA_GPU),
            Some(ResourceKind::Extended(name)) => requests.extended(name),
            Some(ResourceKind::Vram) => charge.shape.share.map_or(0, |share| {
                let each = share.on_card(state.node.gpus.vram_each.unwrap_or_default()).0;
                each.saturating_mul(u64::from(share.devices))
            }),
            None => 1,
        }
    };
    let charges = overlay.snapshot().charged_to(&state.node.name);
    let mut holders: Vec<Holder<'a>> = charges
        .map(|(uid, charge)| Holder { held: held_by(charge), node, uid: uid.clone(), charge })
        .filter(|holder| holder.held > 0 && holder.charge.state != ChargeState::NodeBound)
        .collect();
    holders.sort_by(|a, b| (b.held, &a.uid).cmp(&(a.held, &b.uid)));
    holders.truncate(MAX_PODS_PER_NODE);
    holders
}

/// ` (3 GPUs on node b)`.
fn held_on(
    overlay: &SnapshotOverlay<'_>,
    node: u32,
    held: u64,
    resource: Option<ResourceKind<'_>>,
) -> String {
    let name = &overlay.state(node as usize).node.name;
    match resource {
        None => format!(" (node {name})"),
        Some(resource) => format!(" ({} on node {name})", resource.format(held)),
    }
}

/// A taint or a cordon without which the gang fits, with the nodes that the gang would use and the command.
fn remove_taint(
    request: &PlanningRequest,
    overlay: &SnapshotOverlay<'_>,
    survey: &NodeSurvey,
    trials: &mut usize,
) -> Option<String> {
    for taint in untolerated_taints(survey) {
        if *trials == 0 {
            return None;
        }
        *trials -= 1;
        let assignments = try_again(&tolerating(request, &taint), overlay);
        let is_cordon = taint == cordon();
        let used: BTreeSet<&Str> = assignments
            .iter()
            .map(|assignment| &overlay.state(assignment.node as usize).node)
            .filter(|node| if is_cordon { node.unschedulable } else { node.taints.contains(&taint) })
            .map(|node| &node.name.0)
            .collect();
        if used.is_empty() {
            continue;
        }
        let nodes: Vec<&str> = used.iter().map(|name| &***name).collect();
        let nodes = nodes.join(" ");
        return Some(if is_cordon {
            format!("uncordon node {nodes}: kubectl uncordon {nodes}")
        } else {
            let effect = match taint.effect {
                TaintEffect::NoSchedule => "NoSchedule",
                TaintEffect::PreferNoSchedule => "PreferNoSchedule",
                TaintEffect::NoExecute => "NoExecute",
            };
            let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
            let taint = format!("{}{value}:{effect}", taint.key);
            format!("remove taint {taint}: kubectl taint node {nodes} {taint}-")
        });
    }
    None
}

/// The taints of nodes that could hold the pod, by number of such nodes, most first. A cordon counts as its
/// taint.
fn untolerated_taints(survey: &NodeSurvey) -> Vec<Taint> {
    let mut taints: Vec<(u32, Taint)> = Vec::new();
    let mut add =
        |stats: &ReasonStats, taint: Taint| match taints.iter_mut().find(|(_, other)| *other == taint) {
            Some((nodes, _)) => *nodes += stats.usable,
            None => taints.push((stats.usable, taint)),
        };
    for (reason, stats) in survey.by_reason.iter().filter(|(_, stats)| stats.usable > 0) {
        match reason {
            InfeasibleReason::Cordoned => add(stats, cordon()),
            InfeasibleReason::Taint { index, .. } => add(stats, survey.taints[*index as usize].clone()),
            _ => {}
        }
    }
    taints.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
    taints.into_iter().map(|(_, taint)| taint).collect()
}

fn cordon() -> Taint {
    Taint { key: str(names::TAINT_UNSCHEDULABLE), value: str(""), effect: TaintEffect::NoSchedule }
}

/// The same request with pods that tolerate a taint.
fn tolerating(request: &PlanningRequest, taint: &Taint) -> PlanningRequest {
    let toleration =
        Toleration { key: taint.key.clone(), value: Some(taint.value.clone()), effect: Some(taint.effect) };
    let mut changed: Vec<(Arc<Shape>, Arc<Shape>)> = Vec::new();
    let mut tolerant = |shape: &Arc<Shape>| {
        if let Some((_, new)) = changed.iter().find(|(old, _)| Arc::ptr_eq(old, shape)) {
            return new.clone();
        }
        let mut new = (**shape).clone();
        new.tolerations.push(toleration.clone());
        let new = Arc::new(new);
        changed.push((shape.clone(), new.clone()));
        new
    };
    let members =
        request.members.iter().map(|m| WaitingMember { shape: tolerant(&m.shape), ..m.clone() }).collect();
    PlanningRequest { members, ..request.clone() }
}

/// One more card that would hold all unplaced members, when each of them shares one card by size.
fn add_card(
    attempt: &PlacementAttempt<'_>,
    shapes: &ResolvedShapes<'_>,
    overlay: &SnapshotOverlay<'_>,
    outcome: &AttemptOutcome,
) -> Option<String> {
    let placed = placed_members(outcome);
    let mut sum = 0_u64;
    for (member, shape) in attempt.shape_of.iter().enumerate() {
        let Some(shape) = *shape else { continue };
        if placed.contains(&member) {
            continue;
        }
        let need = shapes.need(attempt.shapes[shape].need);
        let share = need.share.filter(|share| share.devices == 1)?;
        let ShareSize::Vram(mib) = share.size else { return None };
        sum = sum.checked_add(mib.0)?;
    }
    let largest = overlay.snapshot().states().iter().filter_map(|state| state.node.gpus.vram_each).max()?;
    let needs_all = attempt.min_needed() == attempt.waiting();
    (sum > 0 && needs_all && sum <= largest.0).then(|| format!("add a shared card of {sum} MiB"))
}

/// The commands that make a node shared with cards of known size; `None` when pods hold the cards.
fn make_cards_available(
    state: CardState,
    stats: &ReasonStats,
    overlay: &SnapshotOverlay<'_>,
) -> Option<String> {
    let (label, vram) = (names::SHARING, names::SHARING_VRAM);
    let name = &overlay.state(stats.node as usize).node.name;
    Some(match state {
        CardState::NotShared | CardState::NoCards => {
            // A node that needs only label and taint; else the user chooses one.
            let candidate = overlay.snapshot().states().iter().find(|state| {
                state.free_resources.card_state == CardState::NotShared
                    && state.node.gpus.vram_each.is_some()
                    && !state.node.gpus.mig
                    && state.node.gpus.cards > 0
                    && state.free_resources.whole == 0
            });
            if state == CardState::NoCards && candidate.is_none() {
                return Some("add a node with GPUs to the cluster".to_owned());
            }
            let name = candidate.map_or("NAME", |state| state.node.name.as_str());
            format!(
                "make a node with GPUs a shared node: kubectl label node {name} {label}={vram} && kubectl taint node {name} {label}={vram}:NoSchedule"
            )
        }
        CardState::LabelOnly => format!(
            "taint node {name}, which has only the label {label}={vram}: kubectl taint node {name} {label}={vram}:NoSchedule"
        ),
        CardState::TaintOnly => format!(
            "label node {name}, which has only the taint {label}={vram}: kubectl label node {name} {label}={vram}"
        ),
        CardState::MissingVramLabel => format!(
            "set the GPU memory of node {name}: run GPU feature discovery on it, or kubectl label node {name} {}=MIB",
            names::NVIDIA_GPU_MEMORY
        ),
        CardState::Mig => format!("disable MIG on node {name}, or share another node"),
        CardState::Open | CardState::WholeGpusHeld | CardState::UnknownShare => return None,
    })
}
