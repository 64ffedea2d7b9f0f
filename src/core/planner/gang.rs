//! One gang on the board: who its members are, which nodes are in question, and where they go.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::board::Board;
use super::need::{CardOrder, Need};
use super::quorum::{self, Counts};
use super::search;
use super::tie::Tie;
use super::types::{GangRequest, Member};
use crate::dialect::Quorum;
use crate::model::Str;
use crate::objects::Shape;
use crate::snapshot::Snapshot;

/// Shapes of one planning round, resolved once.
#[derive(Default)]
pub(super) struct Shapes<'a> {
    needs: Vec<Need<'a>>,
    numbers: BTreeMap<&'a Shape, usize>,
}

impl<'a> Shapes<'a> {
    /// The number of a shape. Members of one template mostly share one allocation, which `last` makes quick to see.
    fn number(
        &mut self,
        member: &'a Member,
        snapshot: &Snapshot,
        last: Option<(&'a Member, usize)>,
    ) -> usize {
        if let Some((other, number)) = last
            && Arc::ptr_eq(&other.shape, &member.shape)
        {
            return number;
        }
        let shape = &*member.shape;
        *self.numbers.entry(shape).or_insert_with(|| {
            self.needs.push(Need::new(shape, snapshot));
            self.needs.len() - 1
        })
    }

    pub(super) fn need(&self, number: usize) -> &Need<'a> {
        &self.needs[number]
    }
}

/// Members that nothing tells apart but their names.
pub(super) struct Kind {
    /// Index into [`Attempt::shapes`].
    pub(super) shape: usize,
    pub(super) role: Option<Str>,
    /// Indexes into the request's members, in their order.
    pub(super) members: Vec<usize>,
}

/// A shape of this gang, and the nodes that have room for one of it.
pub(super) struct Candidates {
    /// Number in [`Shapes`].
    pub(super) need: usize,
    /// Ascending.
    pub(super) nodes: Vec<u32>,
    /// How many of it fit by themselves, at most as many as there are members of it.
    pub(super) cap: u64,
    /// Members of this shape.
    pub(super) members: u64,
}

/// Where a member goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Index into the request's members.
    pub(super) member: usize,
    /// Index into [`Attempt::shapes`].
    pub(super) shape: usize,
    pub(super) node: u32,
    pub(super) cards: Vec<u32>,
}

/// A gang, prepared for placing.
pub(super) struct Attempt<'a> {
    pub(super) request: &'a GangRequest,
    pub(super) shapes: Vec<Candidates>,
    /// Hardest first.
    pub(super) kinds: Vec<Kind>,
    /// The shape of each member; `None` for one that is named twice.
    pub(super) shape_of: Vec<Option<usize>>,
}

/// What came of an attempt.
pub(super) struct Outcome {
    /// Placed on the board, ordered by member: enough for the quorum, or none.
    pub(super) spots: Vec<Spot>,
    /// What could be placed at once when the quorum is left aside; not on the board unless it is in `spots`.
    pub(super) reach: Vec<Spot>,
    /// Whether the search stopped before it could be sure that no more fit.
    pub(super) exhausted: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(request: &'a GangRequest, shapes: &mut Shapes<'a>, board: &Board<'a>) -> Self {
        let mut local: BTreeMap<usize, usize> = BTreeMap::new();
        let mut candidates: Vec<Candidates> = Vec::new();
        let mut kinds: BTreeMap<(usize, Option<&Str>), usize> = BTreeMap::new();
        let mut list: Vec<Kind> = Vec::new();
        let mut shape_of = Vec::with_capacity(request.members.len());
        let mut last = None;
        let mut seen = std::collections::BTreeSet::new();
        for (index, member) in request.members.iter().enumerate() {
            if !seen.insert(&member.uid) {
                shape_of.push(None);
                continue;
            }
            let number = shapes.number(member, board.snapshot(), last);
            last = Some((member, number));
            let shape = *local.entry(number).or_insert_with(|| {
                candidates.push(Candidates { need: number, nodes: Vec::new(), cap: 0, members: 0 });
                candidates.len() - 1
            });
            candidates[shape].members += 1;
            shape_of.push(Some(shape));
            let kind = *kinds.entry((shape, member.role.as_ref())).or_insert_with(|| {
                list.push(Kind { shape, role: member.role.clone(), members: Vec::new() });
                list.len() - 1
            });
            list[kind].members.push(index);
        }
        for shape in &mut candidates {
            shape.scan(shapes.need(shape.need), board);
        }
        list.sort_by_cached_key(|kind| {
            let shape = &candidates[kind.shape];
            let need = shapes.need(shape.need);
            let vram = need.share.map_or(0, |share| {
                let largest = shape
                    .nodes
                    .iter()
                    .filter_map(|node| board.state(*node as usize).node.gpus.vram_each)
                    .max();
                share.on_card(largest.unwrap_or_default()).0
            });
            let devices = need.share.map_or(0, |share| share.devices);
            let hard = (need.gpus, devices, vram, need.cpu, need.memory);
            (shape.nodes.len(), std::cmp::Reverse(hard), kind.members[0])
        });
        Self { request, shapes: candidates, kinds: list, shape_of }
    }

    /// Whether the quorum is met with so many of each kind placed, and those that are active.
    pub(super) fn quorum_met(&self, placed: impl Iterator<Item = (usize, u64)>) -> bool {
        let mut counts: Counts = self.request.active.clone();
        for (kind, number) in placed {
            let count = counts.entry(self.kinds[kind].role.clone()).or_default();
            *count = count.saturating_add(u32::try_from(number).unwrap_or(u32::MAX));
        }
        quorum::met(&self.request.quorum, &counts)
    }

    /// Places as many members as can be, all or none with regard to the quorum.
    /// `steps` bounds the search.
    pub(super) fn place(&self, shapes: &Shapes<'a>, board: &mut Board<'a>, tie: Tie, steps: u32) -> Outcome {
        if quorum::met(&self.request.quorum, &self.request.active) {
            return self.place_each(shapes, board, tie);
        }
        let wanted: u64 = self.kinds.iter().map(|kind| kind.members.len() as u64).sum();
        let hopeless = !self.quorum_met(self.optimistic());
        let mut most = self.shapes.iter().map(|shape| shape.cap).sum::<u64>();
        let mut best = self.greedy(shapes, board, tie, CardOrder::Tightest);
        if (best.len() as u64) < most && self.shapes.iter().any(|s| shares_many(shapes.need(s.need))) {
            // The tightest cards are the wrong ones when a pod needs several at once.
            let loosest = self.greedy(shapes, board, tie, CardOrder::Loosest);
            if loosest.len() > best.len() {
                best = loosest;
            }
        }
        most = most.min(wanted);
        let reach = best.clone();
        let enough = self.quorum_met(self.by_kind(&best));
        let mut exhausted = false;
        if hopeless || (self.kinds.len() == 1 && !enough) {
            best.clear();
        } else if self.kinds.len() > 1 && !(enough && reach.len() as u64 == most) {
            // Members of one kind fill each node independently of the others, so greedy is exact for them. Several kinds
            // can be in each other's way.
            let known = if enough { best } else { Vec::new() };
            let found = search::most(self, shapes, board, known, most, steps);
            best = found.spots;
            exhausted = found.exhausted;
        }
        self.put(&best, shapes, board);
        best.sort_by_key(|spot| spot.member);
        Outcome { spots: best, reach, exhausted }
    }

    /// How many members wait.
    pub(super) fn waiting(&self) -> usize {
        self.kinds.iter().map(|kind| kind.members.len()).sum()
    }

    /// How many of them have to start for the quorum, as far as a number can say it: all, where subgroups count.
    pub(super) fn needed(&self) -> usize {
        let active: u64 = self.request.active.values().map(|number| u64::from(*number)).sum();
        match &self.request.quorum {
            Quorum::Count(least) => {
                let missing = u64::from(*least).saturating_sub(active);
                usize::try_from(missing).unwrap_or(usize::MAX).clamp(1, self.waiting().max(1))
            }
            Quorum::Groups { .. } => self.waiting(),
        }
    }

    /// Puts spots on the board.
    pub(super) fn put(&self, spots: &[Spot], shapes: &Shapes<'a>, board: &mut Board<'a>) {
        for spot in spots {
            board.place(spot.node as usize, shapes.need(self.shapes[spot.shape].need), &spot.cards);
        }
    }

    /// Takes spots off the board.
    pub(super) fn take_back(&self, spots: &[Spot], shapes: &Shapes<'a>, board: &mut Board<'a>) {
        for spot in spots {
            board.take_back(spot.node as usize, shapes.need(self.shapes[spot.shape].need), &spot.cards);
        }
    }

    /// How many of each kind fit at the very best: each shape by itself.
    fn optimistic(&self) -> impl Iterator<Item = (usize, u64)> {
        self.kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| (index, (kind.members.len() as u64).min(self.shapes[kind.shape].cap)))
    }

    fn by_kind(&self, spots: &[Spot]) -> impl Iterator<Item = (usize, u64)> {
        let placed: std::collections::BTreeSet<usize> = spots.iter().map(|spot| spot.member).collect();
        self.kinds.iter().enumerate().map(move |(index, kind)| {
            (index, kind.members.iter().filter(|member| placed.contains(member)).count() as u64)
        })
    }

    /// Each member by itself, first come first served.
    fn place_each(&self, shapes: &Shapes<'a>, board: &mut Board<'a>, tie: Tie) -> Outcome {
        let mut ranks = Ranks::new(self.shapes.len());
        let mut spots = Vec::new();
        for (member, shape) in self.shape_of.iter().enumerate() {
            let Some(shape) = *shape else { continue };
            if let Some(spot) = self.next(shapes, board, tie, CardOrder::Tightest, &mut ranks, shape, member)
            {
                spots.push(spot);
            }
        }
        Outcome { reach: spots.clone(), spots, exhausted: false }
    }

    /// Hardest first, each where it fits best; leaves the board as it was.
    fn greedy(&self, shapes: &Shapes<'a>, board: &mut Board<'a>, tie: Tie, order: CardOrder) -> Vec<Spot> {
        let mut ranks = Ranks::new(self.shapes.len());
        let mut spots = Vec::new();
        for kind in &self.kinds {
            for member in &kind.members {
                match self.next(shapes, board, tie, order, &mut ranks, kind.shape, *member) {
                    Some(spot) => spots.push(spot),
                    None => break,
                }
            }
        }
        self.take_back(&spots, shapes, board);
        spots
    }

    #[expect(clippy::too_many_arguments, reason = "one step of two loops that share all of it")]
    fn next(
        &self,
        shapes: &Shapes<'a>,
        board: &mut Board<'a>,
        tie: Tie,
        order: CardOrder,
        ranks: &mut Ranks,
        shape: usize,
        member: usize,
    ) -> Option<Spot> {
        let need = shapes.need(self.shapes[shape].need);
        let node = ranks.best(shape, &self.shapes[shape], need, board, tie)?;
        let place = node as usize;
        let cards = need.cards(&board.state(place).node, board.room(place), order);
        board.place(place, need, &cards);
        ranks.touched(node, &self.shapes, shapes, board, tie);
        Some(Spot { member, shape, node, cards })
    }
}

fn shares_many(need: &Need<'_>) -> bool {
    need.share.is_some_and(|share| share.devices > 1)
}

impl Candidates {
    fn scan<'a>(&mut self, need: &Need<'_>, board: &Board<'a>) {
        let snapshot = board.snapshot();
        for (index, (hot, state)) in (0_u32..).zip(snapshot.hot().iter().zip(snapshot.states())) {
            // What is touched may also have been freed, for trying what that would change.
            if !board.is_touched(index as usize) && !need.may_fit(hot) {
                continue;
            }
            let room = board.room(index as usize);
            if need.admitted(state).is_ok() && need.fits(&state.node, room).is_ok() {
                self.nodes.push(index);
                if self.cap < self.members {
                    self.cap += need.count(&state.node, room, self.members - self.cap);
                }
            }
        }
    }
}

type Score = (bool, u64, u64, u64);

/// Nodes in question for each shape of a gang, by how well they suit now.
struct Ranks {
    scores: Vec<Option<Vec<Option<Score>>>>,
}

impl Ranks {
    fn new(shapes: usize) -> Self {
        Self { scores: vec![None; shapes] }
    }

    fn score(need: &Need<'_>, board: &Board<'_>, node: u32, tie: Tie) -> Option<Score> {
        let state = board.state(node as usize);
        let room = board.room(node as usize);
        let avoid = need.admitted(state).ok()?;
        need.fits(&state.node, room).ok()?;
        let (avoid, first, second) = need.score(state, room, avoid);
        Some((avoid, first, second, tie.key(node)))
    }

    /// The node that suits best; `None` when none has room any more.
    fn best(
        &mut self,
        shape: usize,
        candidates: &Candidates,
        need: &Need<'_>,
        board: &Board<'_>,
        tie: Tie,
    ) -> Option<u32> {
        let scores = self.scores[shape].get_or_insert_with(|| {
            candidates.nodes.iter().map(|node| Self::score(need, board, *node, tie)).collect()
        });
        let (_, node) = scores
            .iter()
            .zip(&candidates.nodes)
            .filter_map(|(score, node)| score.map(|score| (score, *node)))
            .min()?;
        Some(node)
    }

    /// Scores a node anew for every shape.
    fn touched(
        &mut self,
        node: u32,
        candidates: &[Candidates],
        shapes: &Shapes<'_>,
        board: &Board<'_>,
        tie: Tie,
    ) {
        for (scores, candidates) in self.scores.iter_mut().zip(candidates) {
            if let (Some(scores), Ok(index)) = (scores, candidates.nodes.binary_search(&node)) {
                scores[index] = Self::score(shapes.need(candidates.need), board, node, tie);
            }
        }
    }
}
