//! The search that improves on the greedy placement. For a small gang of different pods it finds the most
//! members that fit at once, or proves that no more fit. It stops at its step limit and reports that.
//!
//! Members of one kind are interchangeable, so they are assigned to nodes in ascending order. Nodes in the
//! same state, and cards with the same free VRAM, are interchangeable too, so only the first of them is
//! tried.

use super::attempt::{PlacementAttempt, TentativeAssignment};
use super::candidates::ResolvedShapes;
use super::overlay::SnapshotOverlay;
use super::requirements::PodRequirements;
use crate::snapshot::NodeState;

/// Step limit of a search; a step looks at one node for one member. Exact for gangs of a few different pods
/// on a few nodes, and done within milliseconds.
pub(super) const MAX_SEARCH_STEPS: u32 = 60_000;

/// Upper bound of members. The recursion is one level deep per member, and larger gangs exceed the step limit
/// anyway.
pub(super) const MAX_SEARCHED_MEMBERS: usize = 256;

/// Upper bound of card choices per node and member. With more choices the search reaches its step limit.
const MAX_CARD_CHOICES: usize = 4096;

/// The best assignments found.
pub(super) struct SearchResult {
    pub(super) assignments: Vec<TentativeAssignment>,
    /// The step limit was reached: better assignments may exist.
    pub(super) exhausted: bool,
}

/// Finds the most members that fit at once and meet the quorum. `known` meets it or is empty; `most` is an
/// upper bound. Leaves the overlay as it was.
pub(super) fn find_most<'a>(
    attempt: &PlacementAttempt<'a>,
    shapes: &ResolvedShapes<'a>,
    overlay: &mut SnapshotOverlay<'a>,
    known: Vec<TentativeAssignment>,
    most: u64,
    steps: u32,
) -> SearchResult {
    if attempt.waiting() > MAX_SEARCHED_MEMBERS {
        return SearchResult { exhausted: (known.len() as u64) < most, assignments: known };
    }
    // Nodes are interchangeable only if no shape of the gang selects nodes by name.
    let by_name = attempt.shapes.iter().any(|shape| shapes.need(shape.need).selects_by_node);
    let mut search = PlacementSearch {
        attempt,
        shapes,
        overlay,
        most,
        best: known,
        placed: Vec::new(),
        counts: vec![0; attempt.kinds.len()],
        steps,
        interchangeable: !by_name,
    };
    search.place_kind(0);
    SearchResult {
        exhausted: search.steps == 0 && (search.best.len() as u64) < most,
        assignments: search.best,
    }
}

struct PlacementSearch<'s, 'a> {
    attempt: &'s PlacementAttempt<'a>,
    shapes: &'s ResolvedShapes<'a>,
    overlay: &'s mut SnapshotOverlay<'a>,
    most: u64,
    best: Vec<TentativeAssignment>,
    placed: Vec<TentativeAssignment>,
    /// Number of placed members by kind.
    counts: Vec<u64>,
    /// Steps left.
    steps: u32,
    interchangeable: bool,
}

impl<'a> PlacementSearch<'_, 'a> {
    fn is_done(&self) -> bool {
        self.steps == 0 || self.best.len() as u64 == self.most
    }

    /// Takes a step; false when none is left.
    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    fn need(&self, kind: usize) -> &PodRequirements<'a> {
        self.shapes.need(self.attempt.shapes[self.attempt.kinds[kind].shape].need)
    }

    /// Places the members of a kind and of the kinds after it. After the last kind, keeps the placement if it
    /// is the best.
    fn place_kind(&mut self, kind: usize) {
        if kind == self.attempt.kinds.len() {
            let counts = self.counts.iter().copied().enumerate();
            if self.placed.len() > self.best.len() && self.attempt.quorum_met(counts) {
                self.best.clone_from(&self.placed);
            }
            return;
        }
        if self.can_improve(kind) {
            self.place_member(kind, 0, None);
        }
    }

    /// Whether the kinds from this one on, each by itself, have enough capacity to improve on the best.
    fn can_improve(&mut self, from: usize) -> bool {
        let mut upper_bounds: Vec<(usize, u64)> =
            self.counts.iter().copied().enumerate().take(from).collect();
        let mut total = self.placed.len() as u64;
        for kind in from..self.attempt.kinds.len() {
            let members = self.attempt.kinds[kind].members.len() as u64;
            let shape = &self.attempt.shapes[self.attempt.kinds[kind].shape];
            let need = self.shapes.need(shape.need);
            let mut fit = 0;
            for node in &shape.nodes {
                if fit >= members {
                    break;
                }
                self.steps = self.steps.saturating_sub(1);
                let index = *node as usize;
                let node = &self.overlay.state(index).node;
                fit += need.max_fitting(node, self.overlay.free_resources(index), members - fit);
            }
            total += fit;
            upper_bounds.push((kind, fit));
        }
        self.steps > 0 && total > self.best.len() as u64 && self.attempt.quorum_met(upper_bounds.into_iter())
    }

    /// Tries every node for the next member of a kind, from the node of the previous member on; then leaves
    /// the member out.
    fn place_member(&mut self, kind: usize, from: usize, last_card: Option<u32>) {
        let attempt = self.attempt;
        let count = usize::try_from(self.counts[kind]).unwrap_or(usize::MAX);
        if let Some(member) = attempt.kinds[kind].members.get(count) {
            let candidates = &attempt.shapes[attempt.kinds[kind].shape].nodes;
            let mut tried: Vec<u32> = Vec::new();
            for (position, node) in candidates.iter().enumerate().skip(from) {
                if self.is_done() || !self.step() {
                    return;
                }
                let index = *node as usize;
                let state = self.overlay.state(index);
                if self.need(kind).fits(&state.node, self.overlay.free_resources(index)).is_err() {
                    continue;
                }
                // On the node of the previous member of the kind, the order of cards is given: it is not
                // interchangeable with other nodes.
                let first_on_node = position > from || last_card.is_none();
                if self.interchangeable && first_on_node {
                    self.steps =
                        self.steps.saturating_sub(u32::try_from(tried.len() / 8).unwrap_or(u32::MAX));
                    if tried.iter().any(|other| is_same_state(self.overlay, *other as usize, index)) {
                        continue;
                    }
                    tried.push(*node);
                }
                let card_from = if first_on_node { None } else { last_card };
                if !self.place_on_node(kind, *member, position, *node, card_from) {
                    return;
                }
            }
        }
        if !self.is_done() {
            self.place_kind(kind + 1);
        }
    }

    /// Tries every choice of cards for a member on one node, and for each the following members. False when
    /// the search is done.
    fn place_on_node(
        &mut self,
        kind: usize,
        member: usize,
        position: usize,
        node: u32,
        card_from: Option<u32>,
    ) -> bool {
        let (shapes, shape) = (self.shapes, self.attempt.kinds[kind].shape);
        let need = shapes.need(self.attempt.shapes[shape].need);
        let index = node as usize;
        for cards in card_choices(need, self.overlay.state(index), self.overlay, index, card_from) {
            if self.is_done() || !self.step() {
                return false;
            }
            self.overlay.assign(index, need, &cards);
            let first_card = cards.first().copied().or(Some(0));
            self.placed.push(TentativeAssignment { member, shape, node, cards: cards.clone() });
            self.counts[kind] += 1;
            self.place_member(kind, position, first_card);
            self.counts[kind] -= 1;
            self.placed.pop();
            self.overlay.unassign(index, need, &cards);
        }
        true
    }
}

/// The different choices of cards for one share: cards with the same free VRAM are interchangeable. For a
/// share of one card, cards before `from` were tried for the previous member of the kind.
pub(super) fn card_choices(
    need: &PodRequirements<'_>,
    state: &NodeState,
    overlay: &SnapshotOverlay<'_>,
    node: usize,
    from: Option<u32>,
) -> Vec<Vec<u32>> {
    let Some(share) = need.share else { return vec![Vec::new()] };
    let each = need.on_card(&state.node);
    let one = share.devices == 1;
    let mut fitting: Vec<(u64, u32)> = overlay.free_resources(node).cards.iter().copied().zip(0..).collect();
    fitting.retain(|(free, card)| *free >= each && !(one && from.is_some_and(|from| *card < from)));
    fitting.sort_unstable();
    let mut choices = Vec::new();
    add_choices(&fitting, share.devices as usize, &mut Vec::new(), &mut choices);
    choices
}

/// Adds all choices of `number` cards that differ in free VRAM, each by ascending index.
fn add_choices(fitting: &[(u64, u32)], number: usize, chosen: &mut Vec<u32>, choices: &mut Vec<Vec<u32>>) {
    if number == 0 {
        let mut choice = chosen.clone();
        choice.sort_unstable();
        choices.push(choice);
        return;
    }
    let mut index = 0;
    while index + number <= fitting.len() && choices.len() < MAX_CARD_CHOICES {
        chosen.push(fitting[index].1);
        add_choices(&fitting[index + 1..], number - 1, chosen, choices);
        chosen.pop();
        // Without this card, the cards with the same free VRAM are left out too.
        let free = fitting[index].0;
        index += fitting[index..].iter().take_while(|(other, _)| *other == free).count();
    }
}

/// Whether two nodes are in the same state for every shape that does not select nodes by name.
pub(super) fn is_same_state(overlay: &SnapshotOverlay<'_>, a: usize, b: usize) -> bool {
    let (state_a, state_b) = (overlay.state(a), overlay.state(b));
    let (free_a, free_b) = (overlay.free_resources(a), overlay.free_resources(b));
    let sorted = |cards: &[u64]| {
        let mut cards = cards.to_vec();
        cards.sort_unstable();
        cards
    };
    state_a.class == state_b.class
        && state_a.node.gpus.vram_each == state_b.node.gpus.vram_each
        && state_a.node.gpus.sharing == state_b.node.gpus.sharing
        && free_a.cpu == free_b.cpu
        && free_a.memory == free_b.memory
        && free_a.ephemeral_storage == free_b.ephemeral_storage
        && free_a.pods == free_b.pods
        && free_a.gpus == free_b.gpus
        && free_a.card_state == free_b.card_state
        && free_a.shares == free_b.shares
        && free_a.whole == free_b.whole
        && free_a.extended == free_b.extended
        && free_a.ports == free_b.ports
        && (free_a.cards == free_b.cards || sorted(&free_a.cards) == sorted(&free_b.cards))
}
