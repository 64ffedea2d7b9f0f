//! The nearest thing that would unblock a gang. Nothing is guessed: each proposal about pods, taints and cordons is tried
//! on the board, and told only when the gang then fits.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::board::Board;
use super::explain::{Focus, list, wanted};
use super::gang::{Attempt, Outcome, Shapes, Spot};
use super::need::Denial;
use super::survey::{Fact, Survey};
use super::tie::Tie;
use super::types::{PlanningRequest, WaitingMember};
use super::words::Amount;
use crate::dialect::Quorum;
use crate::model::{NodeName, PodUid, Str, str};
use crate::objects::affinity::{Taint, TaintEffect, Toleration};
use crate::objects::names;
use crate::shape::Shape;
use crate::snapshot::{CardState, Charge};

/// Tries for one gang: each is a whole planning round, though a small one.
const MOST_TRIES: usize = 12;
/// Steps of search for one try.
const STEPS: u32 = 2000;
/// Pods named together.
const MOST_PODS: usize = 4;

/// The nearest thing that would unblock the gang, as a sentence; `None` when nothing near does.
pub(super) fn find<'a>(
    attempt: &Attempt<'a>,
    shapes: &Shapes<'a>,
    board: &mut Board<'a>,
    outcome: &Outcome,
    focus: &Focus,
    survey: &Survey,
    never: bool,
) -> Option<String> {
    let (denial, fact) = survey.main()?;
    let need = shapes.need(attempt.shapes[focus.shape].need);
    if let Denial::Cards(state) = denial
        && let Some(told) = cards(state, fact, board)
    {
        return Some(told);
    }
    let amount = Amount::of(denial, need);
    if never {
        let amount = amount?;
        let most = amount.say(fact.largest.0);
        if let Some(share) = need.share
            && amount == Amount::Vram
            && wanted(amount, need, board, fact.largest.1) <= fact.largest.0
        {
            return Some(format!(
                "ask for fewer than {} cards, or add a shared node with so many",
                share.devices
            ));
        }
        return Some(match amount {
            Amount::Vram => {
                format!("ask for at most {most} on one card, or add a shared node with larger cards")
            }
            _ => format!("ask for at most {most} in one pod, or add a larger node"),
        });
    }
    let rest = rest(attempt, outcome);
    let mut tries = MOST_TRIES;
    let mut ways = Vec::new();
    if let Some(way) = pods_that_end(&rest, board, survey, amount, &mut tries) {
        ways.push(way);
    }
    if ways.is_empty()
        && let Some(way) = without_taint(&rest, board, survey, &mut tries)
    {
        ways.push(way);
    }
    if denial == Denial::Vram
        && let Some(way) = another_card(attempt, shapes, board, outcome)
    {
        ways.push(way);
    }
    if ways.is_empty()
        && let Some(amount) = amount
    {
        ways.push(more_room(attempt, shapes, board, outcome, amount, fact.node)?);
    }
    (!ways.is_empty()).then(|| ways.join(", or "))
}

/// What the members without a place ask for: true whatever else is in the way.
fn more_room(
    attempt: &Attempt<'_>,
    shapes: &Shapes<'_>,
    board: &Board<'_>,
    outcome: &Outcome,
    amount: Amount<'_>,
    node: u32,
) -> Option<String> {
    let placed = if outcome.spots.is_empty() { &outcome.reach } else { &outcome.spots };
    let missing = attempt.needed().saturating_sub(placed.len()).max(1);
    let placed: BTreeSet<usize> = placed.iter().map(|spot| spot.member).collect();
    let left = attempt.shape_of.iter().enumerate().filter(|(member, _)| !placed.contains(member));
    let mut needs: Vec<u64> = left
        .filter_map(|(_, shape)| shape.map(|shape| shapes.need(attempt.shapes[shape].need)))
        .map(|need| wanted(amount, need, board, node))
        .collect();
    needs.sort_unstable();
    needs.truncate(missing);
    let (members, list) = (needs.len(), list(&needs, amount));
    let s = if members == 1 { "" } else { "s" };
    (!needs.is_empty()).then(|| format!("when there is room for {members} more member{s} ({list})"))
}

/// The gang as it is to be tried again: whole, or what is left of it when a part has its place.
fn rest(attempt: &Attempt<'_>, outcome: &Outcome) -> PlanningRequest {
    let mut request = attempt.request.clone();
    if !outcome.spots.is_empty() {
        let placed: BTreeSet<usize> = outcome.spots.iter().map(|spot| spot.member).collect();
        let members = request.members.into_iter().enumerate();
        request.members =
            members.filter(|(index, _)| !placed.contains(index)).map(|(_, member)| member).collect();
        request.quorum = Quorum::Count(0);
    }
    request
}

/// Where the gang would go on the board as it is now; empty when it would not. Leaves the board as it was.
fn try_again(request: &PlanningRequest, board: &mut Board<'_>) -> Vec<Spot> {
    let mut board = board.fork();
    let mut shapes = Shapes::default();
    let attempt = Attempt::new(request, &mut shapes, &board, Tie::Stable);
    attempt.place(&shapes, &mut board, Tie::Stable, STEPS).spots
}

/// Pods on the nearest nodes whose end lets the gang in: the one that holds least; or, on the nearest node, several.
fn pods_that_end(
    rest: &PlanningRequest,
    board: &mut Board<'_>,
    survey: &Survey,
    amount: Option<Amount<'_>>,
    tries: &mut usize,
) -> Option<String> {
    let near: BTreeSet<(u64, u32)> = survey
        .facts
        .values()
        .flat_map(|fact| fact.nearest.iter().map(|(free, node)| (u64::MAX - free, *node)))
        .collect();
    let mut singles: Vec<(u64, u32, PodUid, &Charge)> = Vec::new();
    for (_, node) in &near {
        singles.extend(holders(board, *node, amount).into_iter().map(|(held, uid, c)| (held, *node, uid, c)));
    }
    if singles.is_empty() {
        return None;
    }
    singles.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
    // The cluster is scanned once; each try looks again only at the node where something ends.
    let mut shapes = Shapes::default();
    let attempt = Attempt::new(rest, &mut shapes, board, Tie::Stable);
    let fits_without = |node: u32, charges: &[&Charge]| {
        let mut freed = board.fork();
        freed.free(node as usize, charges);
        let attempt = attempt.with_room_on(node, &shapes, &freed);
        !attempt.place(&shapes, &mut freed, Tie::Stable, STEPS).spots.is_empty()
    };
    // Where there are too many to try, those that hold most are the likelier ones.
    let skip = singles.len().saturating_sub(*tries / 2);
    for (held, node, uid, charge) in singles.into_iter().skip(skip) {
        *tries -= 1;
        if fits_without(node, &[charge]) {
            return Some(format!(
                "when {} ends{}",
                pod_name(&uid, charge),
                held_text(board, node, held, amount)
            ));
        }
    }
    // No single pod does: the largest ones of one node together.
    for (_, node) in near.into_iter().take(2) {
        let pods = holders(board, node, amount);
        for number in 2..=pods.len().min(MOST_PODS) {
            if *tries == 0 {
                return None;
            }
            *tries -= 1;
            let charges: Vec<&Charge> = pods[..number].iter().map(|(_, _, charge)| *charge).collect();
            if fits_without(node, &charges) {
                let held = pods[..number].iter().fold(0_u64, |sum, (held, ..)| sum.saturating_add(*held));
                let mut said: Vec<String> =
                    pods[..number].iter().map(|(_, uid, c)| pod_name(uid, c)).collect();
                let last = said.pop().unwrap_or_default();
                let text = held_text(board, node, held, amount);
                return Some(format!("when {} and {last} end{text}", said.join(", ")));
            }
        }
    }
    None
}

/// Who holds what is short on a node, most first.
fn holders<'a>(board: &Board<'a>, node: u32, amount: Option<Amount<'_>>) -> Vec<(u64, PodUid, &'a Charge)> {
    /// The ones that hold most are the ones worth naming.
    const MOST: usize = 6;
    let state = board.state(node as usize);
    let mut pods: Vec<(u64, PodUid, &Charge)> = board
        .snapshot()
        .charged_to(&state.node.name)
        .map(|(uid, charge)| {
            let requests = &charge.shape.requests;
            let held = match amount {
                Some(Amount::Cpu) => requests.cpu.0,
                Some(Amount::Memory) => requests.memory.0,
                Some(Amount::EphemeralStorage) => requests.ephemeral_storage.0,
                Some(Amount::Gpus) => requests.extended(names::NVIDIA_GPU),
                Some(Amount::Extended(name)) => requests.extended(name),
                Some(Amount::Vram) => charge.shape.share.map_or(0, |share| {
                    let each = share.on_card(state.node.gpus.vram_each.unwrap_or_default()).0;
                    each.saturating_mul(u64::from(share.devices))
                }),
                None => 1,
            };
            (held, uid.clone(), charge)
        })
        .filter(|(held, ..)| *held > 0)
        .collect();
    pods.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
    pods.truncate(MOST);
    pods
}

fn pod_name(uid: &PodUid, charge: &Charge) -> String {
    charge.key.as_ref().map_or_else(|| format!("the pod with uid {uid}"), ToString::to_string)
}

fn held_text(board: &Board<'_>, node: u32, held: u64, amount: Option<Amount<'_>>) -> String {
    let name: &NodeName = &board.state(node as usize).node.name;
    amount
        .map_or_else(|| format!(" (node {name})"), |amount| format!(" ({} on node {name})", amount.say(held)))
}

/// A taint or a cordon whose end lets the gang in, with the nodes that it would use and the command.
fn without_taint(
    rest: &PlanningRequest,
    board: &mut Board<'_>,
    survey: &Survey,
    tries: &mut usize,
) -> Option<String> {
    let mut taints: Vec<(u32, Taint)> = Vec::new();
    let mut add = |fact: &Fact, taint: Taint| match taints.iter_mut().find(|(_, other)| *other == taint) {
        Some((nodes, _)) => *nodes += fact.usable,
        None => taints.push((fact.usable, taint)),
    };
    for (denial, fact) in survey.facts.iter().filter(|(_, fact)| fact.usable > 0) {
        match denial {
            Denial::Cordoned => add(fact, cordon()),
            Denial::Taint { index, .. } => add(fact, survey.taints[*index as usize].clone()),
            _ => {}
        }
    }
    taints.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
    for (_, taint) in taints {
        if *tries == 0 {
            return None;
        }
        *tries -= 1;
        let tolerant = tolerating(rest, &taint);
        let spots = try_again(&tolerant, board);
        let is_cordon = taint == cordon();
        let used: BTreeSet<&Str> = spots
            .iter()
            .map(|spot| &board.state(spot.node as usize).node)
            .filter(|node| if is_cordon { node.unschedulable } else { node.taints.contains(&taint) })
            .map(|node| &node.name.0)
            .collect();
        if used.is_empty() {
            continue;
        }
        let nodes: Vec<&str> = used.iter().map(|name| &***name).collect();
        let nodes = nodes.join(" ");
        return Some(if is_cordon {
            format!("when node {nodes} takes pods again: kubectl uncordon {nodes}")
        } else {
            let effect = match taint.effect {
                TaintEffect::NoSchedule => "NoSchedule",
                TaintEffect::PreferNoSchedule => "PreferNoSchedule",
                TaintEffect::NoExecute => "NoExecute",
            };
            let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
            let spelled = format!("{}{value}:{effect}", taint.key);
            format!("when the taint {spelled} is gone: kubectl taint node {nodes} {spelled}-")
        });
    }
    None
}

fn cordon() -> Taint {
    Taint { key: str(names::TAINT_UNSCHEDULABLE), value: str(""), effect: TaintEffect::NoSchedule }
}

/// The gang, if its pods tolerated a taint.
fn tolerating(request: &PlanningRequest, taint: &Taint) -> PlanningRequest {
    let toleration =
        Toleration { key: taint.key.clone(), value: Some(taint.value.clone()), effect: Some(taint.effect) };
    let mut changed: Vec<(Arc<Shape>, Arc<Shape>)> = Vec::new();
    let mut shape_of = |shape: &Arc<Shape>| {
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
        request.members.iter().map(|m| WaitingMember { shape: shape_of(&m.shape), ..m.clone() }).collect();
    PlanningRequest { members, ..request.clone() }
}

/// One more card that would hold all that have no place, each of which shares one card.
fn another_card(
    attempt: &Attempt<'_>,
    shapes: &Shapes<'_>,
    board: &Board<'_>,
    outcome: &Outcome,
) -> Option<String> {
    let placed = if outcome.spots.is_empty() { &outcome.reach } else { &outcome.spots };
    let placed: BTreeSet<usize> = placed.iter().map(|spot| spot.member).collect();
    let mut sum = 0_u64;
    for (member, shape) in attempt.shape_of.iter().enumerate() {
        let Some(shape) = *shape else { continue };
        if placed.contains(&member) {
            continue;
        }
        let need = shapes.need(attempt.shapes[shape].need);
        let share = need.share.filter(|share| share.devices == 1)?;
        let crate::gpu::ShareSize::Vram(mib) = share.size else { return None };
        sum = sum.checked_add(mib.0)?;
    }
    let largest = board.snapshot().states().iter().filter_map(|state| state.node.gpus.vram_each).max()?;
    let needed = attempt.needed() == attempt.waiting();
    (sum > 0 && needed && sum <= largest.0).then(|| format!("with one more shared card of {sum} MiB"))
}

/// What makes a node a shared node with known cards, as commands.
fn cards(state: CardState, fact: &Fact, board: &Board<'_>) -> Option<String> {
    let (label, vram) = (names::SHARING, names::SHARING_VRAM);
    let name = &board.state(fact.node as usize).node.name;
    Some(match state {
        CardState::NotShared | CardState::NoCards => {
            // A node that would do as it is; else the reader has to choose one.
            let candidate = board.snapshot().states().iter().find(|state| {
                state.room.card_state == CardState::NotShared
                    && state.node.gpus.vram_each.is_some()
                    && !state.node.gpus.mig
                    && state.node.gpus.cards > 0
                    && state.room.whole == 0
            });
            if state == CardState::NoCards && candidate.is_none() {
                return Some("when a node with GPUs joins the cluster".to_owned());
            }
            let name = candidate.map_or("NAME", |state| state.node.name.as_str());
            format!(
                "make a node with GPUs a shared node: kubectl label node {name} {label}={vram} && kubectl taint node {name} {label}={vram}:NoSchedule"
            )
        }
        CardState::LabelOnly => format!(
            "node {name} has the label {label}={vram} but not the taint: kubectl taint node {name} {label}={vram}:NoSchedule"
        ),
        CardState::TaintOnly => format!(
            "node {name} has the taint {label}={vram} but not the label: kubectl label node {name} {label}={vram}"
        ),
        CardState::MissingVramLabel => format!(
            "node {name} does not say how much memory its cards have: run GPU feature discovery there, or kubectl label node {name} {}=MIB",
            names::NVIDIA_GPU_MEMORY
        ),
        CardState::Mig => format!(
            "node {name} has its cards cut into MIG slices: turn MIG off there, or share another node"
        ),
        CardState::Open | CardState::WholeGpusHeld | CardState::UnknownShare => return None,
    })
}
