//! The search behind the greedy placement: for a small gang it finds the most members that fit at once, or proves that
//! no more do; past its budget of steps it says so.
//!
//! Members of one kind are alike, so they go to nodes in ascending order; nodes in the same state, and cards with the
//! same room, are alike, so only the first of them is tried.

use super::board::Board;
use super::gang::{Attempt, Shapes, Spot};
use super::need::Need;
use crate::snapshot::NodeState;

/// Looks at a node for a member. Enough to be exact for gangs of a few different pods on a few nodes, and over in some
/// milliseconds.
pub(super) const STEPS: u32 = 60_000;

/// The search goes one level deeper for each member, and more members than this are out of its reach anyway.
const MOST_MEMBERS: usize = 256;

/// The best that was found.
pub(super) struct Found {
    pub(super) spots: Vec<Spot>,
    /// Out of steps: there may be better.
    pub(super) exhausted: bool,
}

/// Finds the most members that fit at once with the quorum met. `known` is a placement that does (or empty), `most` is
/// more than can be beaten. Leaves the board as it was.
pub(super) fn most<'a>(
    attempt: &Attempt<'a>,
    shapes: &Shapes<'a>,
    board: &mut Board<'a>,
    known: Vec<Spot>,
    most: u64,
    steps: u32,
) -> Found {
    let members: usize = attempt.kinds.iter().map(|kind| kind.members.len()).sum();
    if members > MOST_MEMBERS {
        return Found { exhausted: (known.len() as u64) < most, spots: known };
    }
    // A node may stand for another only where no shape of the gang asks for nodes by name.
    let by_name = attempt.shapes.iter().any(|shape| shapes.need(shape.need).choice_by_node);
    let mut search = Search {
        attempt,
        shapes,
        board,
        most,
        best: known,
        placed: Vec::new(),
        counts: vec![0; attempt.kinds.len()],
        steps,
        interchangeable: !by_name,
    };
    search.kind(0);
    Found { exhausted: search.steps == 0 && (search.best.len() as u64) < most, spots: search.best }
}

struct Search<'s, 'a> {
    attempt: &'s Attempt<'a>,
    shapes: &'s Shapes<'a>,
    board: &'s mut Board<'a>,
    most: u64,
    best: Vec<Spot>,
    placed: Vec<Spot>,
    /// Placed of each kind.
    counts: Vec<u64>,
    steps: u32,
    interchangeable: bool,
}

impl<'a> Search<'_, 'a> {
    fn done(&self) -> bool {
        self.steps == 0 || self.best.len() as u64 == self.most
    }

    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    fn need(&self, kind: usize) -> &Need<'a> {
        self.shapes.need(self.attempt.shapes[self.attempt.kinds[kind].shape].need)
    }

    /// Starts placing members of a kind; past the last one, a placement is complete.
    fn kind(&mut self, kind: usize) {
        if kind == self.attempt.kinds.len() {
            let counts = self.counts.iter().copied().enumerate();
            if self.placed.len() > self.best.len() && self.attempt.quorum_met(counts) {
                self.best.clone_from(&self.placed);
            }
            return;
        }
        if self.promising(kind) {
            self.member(kind, 0, None);
        }
    }

    /// Whether the kinds from this one on, each by itself, have room enough to beat the best.
    fn promising(&mut self, from: usize) -> bool {
        let mut hope: Vec<(usize, u64)> = self.counts.iter().copied().enumerate().take(from).collect();
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
                let node = *node as usize;
                fit += need.count(&self.board.state(node).node, self.board.room(node), members - fit);
            }
            total += fit;
            hope.push((kind, fit));
        }
        self.steps > 0 && total > self.best.len() as u64 && self.attempt.quorum_met(hope.into_iter())
    }

    /// Tries every place for the next member of a kind, from where the last one went on, then goes on without it.
    fn member(&mut self, kind: usize, from: usize, last_card: Option<u32>) {
        let attempt = self.attempt;
        let count = usize::try_from(self.counts[kind]).unwrap_or(usize::MAX);
        let members = &attempt.kinds[kind].members;
        if count < members.len() {
            let shape = attempt.kinds[kind].shape;
            let candidates = &attempt.shapes[shape].nodes;
            let mut tried: Vec<u32> = Vec::new();
            for (position, node) in candidates.iter().enumerate().skip(from) {
                if self.done() || !self.step() {
                    return;
                }
                let place = *node as usize;
                let state = self.board.state(place);
                if self.need(kind).fits(&state.node, self.board.room(place)).is_err() {
                    continue;
                }
                // Where the last one of its kind went, the order of cards is already given: not the same as elsewhere.
                let first_here = position > from || last_card.is_none();
                if self.interchangeable && first_here {
                    self.steps =
                        self.steps.saturating_sub(u32::try_from(tried.len() / 8).unwrap_or(u32::MAX));
                    if tried.iter().any(|other| alike(self.board, *other as usize, place)) {
                        continue;
                    }
                    tried.push(*node);
                }
                let card_from = if first_here { None } else { last_card };
                for cards in card_choices(self.need(kind), state, self.board, place, card_from) {
                    if self.done() || !self.step() {
                        return;
                    }
                    let shapes = self.shapes;
                    let need = shapes.need(attempt.shapes[shape].need);
                    self.board.place(place, need, &cards);
                    let first = cards.first().copied().or(Some(0));
                    self.placed.push(Spot {
                        member: members[count],
                        shape,
                        node: *node,
                        cards: cards.clone(),
                    });
                    self.counts[kind] += 1;
                    self.member(kind, position, first);
                    self.counts[kind] -= 1;
                    self.placed.pop();
                    self.board.take_back(place, need, &cards);
                }
            }
        }
        if !self.done() {
            self.kind(kind + 1);
        }
    }
}

/// The different ways to choose cards for one share: cards with the same room are alike. For a share of one card, those
/// before `from` were tried for an equal member before.
fn card_choices(
    need: &Need<'_>,
    state: &NodeState,
    board: &Board<'_>,
    node: usize,
    from: Option<u32>,
) -> Vec<Vec<u32>> {
    let Some(share) = need.share else { return vec![Vec::new()] };
    let each = need.on_card(&state.node);
    let one = share.devices == 1;
    let mut fitting: Vec<(u64, u32)> = board.room(node).cards.iter().copied().zip(0..).collect();
    fitting.retain(|(free, card)| *free >= each && !(one && from.is_some_and(|from| *card < from)));
    fitting.sort_unstable();
    let mut choices = Vec::new();
    choose(&fitting, share.devices as usize, &mut Vec::new(), &mut choices);
    choices
}

/// All choices of `number` cards that differ in the room they have; each ascending by index.
fn choose(fitting: &[(u64, u32)], number: usize, chosen: &mut Vec<u32>, choices: &mut Vec<Vec<u32>>) {
    /// More ways than anybody can try: the search is out of steps by then.
    const MOST_CHOICES: usize = 4096;
    if number == 0 {
        let mut choice = chosen.clone();
        choice.sort_unstable();
        choices.push(choice);
        return;
    }
    let mut index = 0;
    while index + number <= fitting.len() && choices.len() < MOST_CHOICES {
        chosen.push(fitting[index].1);
        choose(&fitting[index + 1..], number - 1, chosen, choices);
        chosen.pop();
        // Not this card: then none that is like it either.
        let free = fitting[index].0;
        index += fitting[index..].iter().take_while(|(other, _)| *other == free).count();
    }
}

/// Whether two nodes are in the same state for every shape that asks for no names.
fn alike(board: &Board<'_>, a: usize, b: usize) -> bool {
    let (state_a, state_b) = (board.state(a), board.state(b));
    let (room_a, room_b) = (board.room(a), board.room(b));
    let sorted = |cards: &[u64]| {
        let mut cards = cards.to_vec();
        cards.sort_unstable();
        cards
    };
    state_a.class == state_b.class
        && state_a.node.gpus.vram_each == state_b.node.gpus.vram_each
        && state_a.node.gpus.sharing == state_b.node.gpus.sharing
        && room_a.cpu == room_b.cpu
        && room_a.memory == room_b.memory
        && room_a.ephemeral_storage == room_b.ephemeral_storage
        && room_a.pods == room_b.pods
        && room_a.gpus == room_b.gpus
        && room_a.card_state == room_b.card_state
        && room_a.shares == room_b.shares
        && room_a.whole == room_b.whole
        && room_a.extended == room_b.extended
        && room_a.ports == room_b.ports
        && (room_a.cards == room_b.cards || sorted(&room_a.cards) == sorted(&room_b.cards))
}
