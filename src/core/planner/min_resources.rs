//! The resources that a group requires to be free in total before any of its members starts (`minResources`).
//!
//! They are a sum over the nodes and nothing else, as in Coscheduling (its `PreFilter`) and at Volcano's
//! enqueue: they reserve nothing and do not restrict assignments. The planner checks them after it has found
//! assignments, so a gang without assignments gets the explanation for those.

use std::collections::BTreeMap;

use super::attempt::PlacementAttempt;
use super::candidates::ResolvedShapes;
use super::overlay::SnapshotOverlay;
use super::report::Explanation;
use super::resource_kind::ResourceKind;
use super::tie_break::TieBreak;
use super::types::PlanningRequest;
use crate::model::{Reason, Resources};
use crate::objects::{GpuSharing, Node, names};
use crate::snapshot::{Charge, FreeResources};

/// Upper bound of pods tried as a remedy.
const MAX_TRIALS: usize = 6;
/// Upper bound of search steps per trial.
const MAX_TRIAL_STEPS: u32 = 2000;

/// A resource of `minResources` with too little free in total.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MinResourceShortage<'a> {
    pub(super) resource: ResourceKind<'a>,
    pub(super) requested: u64,
    /// Free in total on schedulable nodes.
    free: u64,
    /// Number of nodes with a free amount above zero.
    nodes: u32,
    /// Allocatable in total on schedulable nodes.
    allocatable: u64,
}

/// The resources that are short; empty when the group sets no `minResources` or its quorum is already active.
pub(super) fn shortages<'a>(
    request: &'a PlanningRequest,
    overlay: &SnapshotOverlay<'_>,
) -> Vec<MinResourceShortage<'a>> {
    if request.min_resources == Resources::default() || request.quorum.is_satisfied(&request.active) {
        return Vec::new();
    }
    let requested = requested_by_priority(&request.min_resources);
    let shortages = requested.into_iter().map(|(resource, requested)| {
        let mut shortage = MinResourceShortage { resource, requested, free: 0, nodes: 0, allocatable: 0 };
        for (index, state) in overlay.snapshot().states().iter().enumerate() {
            let node = &state.node;
            if !node.ready || node.unschedulable {
                continue;
            }
            let free = free_on(resource, node, overlay.free_resources(index));
            shortage.free = shortage.free.saturating_add(free);
            shortage.nodes += u32::from(free > 0);
            let allocatable = amount_of(resource, &node.allocatable);
            shortage.allocatable = shortage.allocatable.saturating_add(allocatable);
        }
        shortage
    });
    shortages.filter(|shortage| shortage.free < shortage.requested).collect()
}

/// The requested amounts above zero, scarce resources first.
fn requested_by_priority(min_resources: &Resources) -> Vec<(ResourceKind<'_>, u64)> {
    let gpus = (ResourceKind::Gpus, min_resources.extended(names::NVIDIA_GPU));
    let others = min_resources.extended.iter().filter(|(name, _)| &***name != names::NVIDIA_GPU);
    let others = others.map(|(name, requested)| (ResourceKind::Extended(name), *requested));
    let common = [
        (ResourceKind::Cpu, min_resources.cpu.0),
        (ResourceKind::Memory, min_resources.memory.0),
        (ResourceKind::EphemeralStorage, min_resources.ephemeral_storage.0),
    ];
    std::iter::once(gpus).chain(others).chain(common).filter(|(_, requested)| *requested > 0).collect()
}

fn free_on(resource: ResourceKind<'_>, node: &Node, free: &FreeResources) -> u64 {
    match resource {
        ResourceKind::Cpu => free.cpu,
        ResourceKind::Memory => free.memory,
        ResourceKind::EphemeralStorage => free.ephemeral_storage,
        // No pod gets whole GPUs on a node with shared cards.
        ResourceKind::Gpus if node.gpus.sharing == GpuSharing::Vram || free.shares > 0 => 0,
        ResourceKind::Gpus => free.gpus,
        ResourceKind::Extended(name) => free.extended.get(name).copied().unwrap_or(0),
        ResourceKind::Vram => 0,
    }
}

fn amount_of(resource: ResourceKind<'_>, resources: &Resources) -> u64 {
    match resource {
        ResourceKind::Cpu => resources.cpu.0,
        ResourceKind::Memory => resources.memory.0,
        ResourceKind::EphemeralStorage => resources.ephemeral_storage.0,
        ResourceKind::Gpus => resources.extended(names::NVIDIA_GPU),
        ResourceKind::Extended(name) => resources.extended(name),
        ResourceKind::Vram => 0,
    }
}

impl MinResourceShortage<'_> {
    /// `minResources asks for 16 GPUs, 8 GPUs free on 2 nodes`.
    pub(super) fn describe(&self) -> String {
        let requested = self.resource.format_with_name(self.requested);
        let free = self.resource.format(self.free);
        let s = if self.nodes == 1 { "" } else { "s" };
        format!("minResources asks for {requested}, {free} free on {} node{s}", self.nodes)
    }
}

/// The explanation for a gang whose members all fit; `None` without a shortage.
pub(super) fn explain<'a>(
    attempt: &PlacementAttempt<'a>,
    shapes: &ResolvedShapes<'a>,
    overlay: &SnapshotOverlay<'a>,
    shortages: &[MinResourceShortage<'a>],
) -> Option<Explanation> {
    let first = shortages.first()?;
    let reason = match first.resource {
        ResourceKind::Cpu => Reason::InsufficientCpu,
        ResourceKind::Memory => Reason::InsufficientMemory,
        ResourceKind::EphemeralStorage => Reason::InsufficientEphemeralStorage,
        ResourceKind::Gpus | ResourceKind::Extended(_) => Reason::InsufficientExtended,
        ResourceKind::Vram => Reason::InsufficientVram,
    };
    let describe = |shortage: &MinResourceShortage<'_>| {
        let missing = shortage.resource.format_with_name(shortage.requested - shortage.free);
        format!("short of {missing}: {}", shortage.describe())
    };
    let parts: Vec<String> = shortages.iter().map(describe).collect();
    let part = first.resource.format_part(first.free, first.requested);
    let missing = first.resource.format_missing(first.requested - first.free);
    Some(Explanation {
        reason,
        message: format!("{}; the members themselves fit", parts.join("; ")),
        waiting_for: format!("{missing} ({part} free)"),
        remedy: Some(remedy(attempt, shapes, overlay, shortages)),
        nodes: u32::try_from(overlay.snapshot().states().len()).unwrap_or(u32::MAX),
        infeasible_nodes: BTreeMap::new(),
    })
}

fn remedy<'a>(
    attempt: &PlacementAttempt<'a>,
    shapes: &ResolvedShapes<'a>,
    overlay: &SnapshotOverlay<'a>,
    shortages: &[MinResourceShortage<'a>],
) -> String {
    let beyond_cluster = shortages.iter().find(|shortage| shortage.allocatable < shortage.requested);
    if let Some(MinResourceShortage { resource, allocatable, .. }) = beyond_cluster {
        let most = resource.format_with_name(*allocatable);
        return format!("lower minResources to at most {most}, which is all the cluster has, or add nodes");
    }
    let first = &shortages[0];
    if let Some(remedy) = wait_for_pod(attempt, shapes, overlay, first) {
        return remedy;
    }
    let missing = first.resource.format_missing(first.requested - first.free);
    format!("free {missing}, or lower minResources")
}

/// The pod with the smallest request after whose end the gang starts.
fn wait_for_pod<'a>(
    attempt: &PlacementAttempt<'a>,
    shapes: &ResolvedShapes<'a>,
    overlay: &SnapshotOverlay<'a>,
    shortage: &MinResourceShortage<'_>,
) -> Option<String> {
    let snapshot = overlay.snapshot();
    let missing = shortage.requested - shortage.free;
    let mut pods: Vec<(u64, usize, _, &Charge)> = Vec::new();
    for (index, state) in snapshot.states().iter().enumerate() {
        let held = |charge: &Charge| amount_of(shortage.resource, &charge.shape.requests);
        let charged = snapshot.charged_to(&state.node.name);
        let enough = charged.filter(|(_, charge)| held(charge) >= missing);
        pods.extend(enough.map(|(uid, charge)| (held(charge), index, uid, charge)));
    }
    pods.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
    for (held, index, uid, charge) in pods.into_iter().take(MAX_TRIALS) {
        let mut freed = overlay.fork();
        freed.release_charges(index, &[charge]);
        let node = u32::try_from(index).ok()?;
        let attempt = attempt.with_freed_node(node, shapes, &freed);
        let outcome = attempt.place(shapes, &mut freed, TieBreak::Stable, MAX_TRIAL_STEPS);
        if !outcome.assignments.is_empty() {
            let pod =
                charge.key.as_ref().map_or_else(|| format!("the pod with uid {uid}"), ToString::to_string);
            let name = &snapshot.states()[index].node.name;
            let held = shortage.resource.format(held);
            return Some(format!("wait for {pod} to end ({held} on node {name})"));
        }
    }
    None
}

/// The texts to add to the explanation of a gang without assignments. `described` is the resource and the
/// amount that the explanation already covers.
pub(super) fn additional_shortages(
    request: &PlanningRequest,
    overlay: &SnapshotOverlay<'_>,
    described: Option<(ResourceKind<'_>, u64)>,
) -> Vec<String> {
    let is_described = |shortage: &MinResourceShortage<'_>| {
        described
            .is_some_and(|(resource, amount)| resource == shortage.resource && amount >= shortage.requested)
    };
    let shortages = shortages(request, overlay);
    shortages.iter().filter(|shortage| !is_described(shortage)).map(MinResourceShortage::describe).collect()
}
