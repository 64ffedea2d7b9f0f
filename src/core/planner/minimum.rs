//! What a group wants to be free in all before any of its members starts (`minResources`).
//!
//! A sum over the nodes and nothing else, as in Coscheduling (its `PreFilter`) and at Volcano's enqueue: it reserves
//! nothing, and says nothing of where members go. It is looked at once the members have found their places, so a gang that
//! has none is told about those.

use super::board::Board;
use super::gang::{Attempt, Shapes};
use super::report::Explanation;
use super::tie::Tie;
use super::types::PlanningRequest;
use super::words::Amount;
use crate::model::{Reason, Resources};
use crate::objects::{GpuSharing, Node, names};
use crate::snapshot::{Charge, FreeResources};

/// Pods that are tried, for one of them may be all that is in the way.
const MOST_TRIES: usize = 6;
/// Steps of search for one try.
const STEPS: u32 = 2000;

/// Something of which too little is free in all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lack<'a> {
    pub(super) amount: Amount<'a>,
    pub(super) asked: u64,
    free: u64,
    /// On so many nodes.
    nodes: u32,
    /// What these nodes and the full ones have.
    has: u64,
}

/// What is short; empty where the gang asks for no sum, or is complete by what has started.
pub(super) fn lacking<'a>(request: &'a PlanningRequest, board: &Board<'_>) -> Vec<Lack<'a>> {
    if request.min_resources == Resources::default() || request.quorum.is_satisfied(&request.active) {
        return Vec::new();
    }
    let asks = asks(&request.min_resources);
    let lacks = asks.into_iter().map(|(amount, asked)| {
        let mut lack = Lack { amount, asked, free: 0, nodes: 0, has: 0 };
        for (place, state) in board.snapshot().states().iter().enumerate() {
            let node = &state.node;
            if !node.ready || node.unschedulable {
                continue;
            }
            let free = free(amount, node, board.room(place));
            lack.free = lack.free.saturating_add(free);
            lack.nodes += u32::from(free > 0);
            lack.has = lack.has.saturating_add(amount_of(amount, &node.allocatable));
        }
        lack
    });
    lacks.filter(|lack| lack.free < lack.asked).collect()
}

/// Scarce things first.
fn asks(minimum: &Resources) -> Vec<(Amount<'_>, u64)> {
    let gpus = (Amount::Gpus, minimum.extended(names::NVIDIA_GPU));
    let others = minimum.extended.iter().filter(|(name, _)| &***name != names::NVIDIA_GPU);
    let others = others.map(|(name, asked)| (Amount::Extended(name), *asked));
    let plain = [
        (Amount::Cpu, minimum.cpu.0),
        (Amount::Memory, minimum.memory.0),
        (Amount::EphemeralStorage, minimum.ephemeral_storage.0),
    ];
    std::iter::once(gpus).chain(others).chain(plain).filter(|(_, asked)| *asked > 0).collect()
}

fn free(amount: Amount<'_>, node: &Node, room: &FreeResources) -> u64 {
    match amount {
        Amount::Cpu => room.cpu,
        Amount::Memory => room.memory,
        Amount::EphemeralStorage => room.ephemeral_storage,
        // Where cards are shared nobody gets a whole one.
        Amount::Gpus if node.gpus.sharing == GpuSharing::Vram || room.shares > 0 => 0,
        Amount::Gpus => room.gpus,
        Amount::Extended(name) => room.extended.get(name).copied().unwrap_or(0),
        Amount::Vram => 0,
    }
}

fn amount_of(amount: Amount<'_>, resources: &Resources) -> u64 {
    match amount {
        Amount::Cpu => resources.cpu.0,
        Amount::Memory => resources.memory.0,
        Amount::EphemeralStorage => resources.ephemeral_storage.0,
        Amount::Gpus => resources.extended(names::NVIDIA_GPU),
        Amount::Extended(name) => resources.extended(name),
        Amount::Vram => 0,
    }
}

impl Lack<'_> {
    /// `minResources asks for 16 GPUs, 8 GPUs free on 2 nodes`.
    pub(super) fn says(&self) -> String {
        let (asked, free) = (self.amount.name(self.asked), self.amount.say(self.free));
        let s = if self.nodes == 1 { "" } else { "s" };
        format!("minResources asks for {asked}, {free} free on {} node{s}", self.nodes)
    }
}

/// Why a gang waits whose members would all have a place.
pub(super) fn explain<'a>(
    attempt: &Attempt<'a>,
    shapes: &Shapes<'a>,
    board: &mut Board<'a>,
    lacks: &[Lack<'a>],
) -> Option<Explanation> {
    let first = lacks.first()?;
    let reason = match first.amount {
        Amount::Cpu => Reason::InsufficientCpu,
        Amount::Memory => Reason::InsufficientMemory,
        Amount::EphemeralStorage => Reason::InsufficientEphemeralStorage,
        Amount::Gpus | Amount::Extended(_) => Reason::InsufficientExtended,
        Amount::Vram => Reason::InsufficientVram,
    };
    let short =
        |lack: &Lack<'_>| format!("short of {}: {}", lack.amount.name(lack.asked - lack.free), lack.says());
    let sentence: Vec<String> = lacks.iter().map(short).collect();
    let part = first.amount.part(first.free, first.asked);
    let nodes = u32::try_from(board.snapshot().states().len()).unwrap_or(u32::MAX);
    Some(Explanation {
        reason,
        message: format!("{}; its members would have places", sentence.join("; ")),
        waiting_for: format!("{} ({part} free)", first.amount.more(first.asked - first.free)),
        remedy: Some(remedy(attempt, shapes, board, lacks)),
        nodes,
        infeasible_nodes: std::collections::BTreeMap::new(),
    })
}

fn remedy<'a>(
    attempt: &Attempt<'a>,
    shapes: &Shapes<'a>,
    board: &mut Board<'a>,
    lacks: &[Lack<'a>],
) -> String {
    let beyond = lacks.iter().find(|lack| lack.has < lack.asked);
    if let Some(Lack { amount, has, .. }) = beyond {
        let most = amount.name(*has);
        return format!("ask for at most {most} in minResources, which is all there is, or add nodes");
    }
    let first = &lacks[0];
    if let Some(way) = pod_that_ends(attempt, shapes, board, first) {
        return way;
    }
    format!("when {} are free, or with a smaller minResources", first.amount.more(first.asked - first.free))
}

/// The pod that holds least and whose end is enough.
fn pod_that_ends<'a>(
    attempt: &Attempt<'a>,
    shapes: &Shapes<'a>,
    board: &mut Board<'a>,
    lack: &Lack<'_>,
) -> Option<String> {
    let snapshot = board.snapshot();
    let missing = lack.asked - lack.free;
    let mut pods: Vec<(u64, usize, _, &Charge)> = Vec::new();
    for (place, state) in snapshot.states().iter().enumerate() {
        let held = |charge: &Charge| amount_of(lack.amount, &charge.shape.requests);
        let charged = snapshot.charged_to(&state.node.name);
        let enough = charged.filter(|(_, charge)| held(charge) >= missing);
        pods.extend(enough.map(|(uid, charge)| (held(charge), place, uid, charge)));
    }
    pods.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
    for (held, place, uid, charge) in pods.into_iter().take(MOST_TRIES) {
        let mut freed = board.fork();
        freed.free(place, &[charge]);
        let index = u32::try_from(place).ok()?;
        let changed = attempt.with_room_on(index, shapes, &freed);
        if !changed.place(shapes, &mut freed, Tie::Stable, STEPS).spots.is_empty() {
            let pod =
                charge.key.as_ref().map_or_else(|| format!("the pod with uid {uid}"), ToString::to_string);
            let node = &snapshot.states()[place].node.name;
            return Some(format!("when {pod} ends ({} on node {node})", lack.amount.say(held)));
        }
    }
    None
}

/// What is to be added where the members have no places either: only what is not `told` already, an amount and its sum.
pub(super) fn beside(
    request: &PlanningRequest,
    board: &Board<'_>,
    told: Option<(Amount<'_>, u64)>,
) -> Vec<String> {
    let is_told =
        |lack: &Lack<'_>| told.is_some_and(|(amount, sum)| amount == lack.amount && sum >= lack.asked);
    lacking(request, board).iter().filter(|lack| !is_told(lack)).map(Lack::says).collect()
}
