//! One gang on the board: who its members are, which nodes are in question, and where they go.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use super::board::Board;
use super::explain;
use super::minimum;
use super::need::{CardOrder, Need, Score};
use super::search;
use super::tie::Tie;
use super::types::Counts;
use super::types::{PlanningRequest, WaitingMember};
use crate::dialect::Quorum;
use crate::model::Str;
use crate::shape::Shape;
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
        member: &'a WaitingMember,
        snapshot: &Snapshot,
        last: Option<(&'a WaitingMember, usize)>,
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
#[derive(Clone)]
pub(super) struct Kind {
    /// Index into [`Attempt::shapes`].
    pub(super) shape: usize,
    pub(super) role: Option<Str>,
    /// Indexes into the request's members, in their order.
    pub(super) members: Vec<usize>,
}

/// A shape of this gang, and the nodes that have room for one of it.
#[derive(Clone)]
pub(super) struct Candidates {
    /// Number in [`Shapes`].
    pub(super) need: usize,
    /// Ascending.
    pub(super) nodes: Vec<u32>,
    /// Those that suit best, as many as the gang has members: whatever the others take, the best one left is among these
    /// or among the nodes that were touched.
    best: Vec<Ranked>,
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
#[derive(Clone)]
pub(super) struct Attempt<'a> {
    pub(super) request: &'a PlanningRequest,
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
    /// They would have places, and too little is free in all.
    pub(super) below_minimum: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        request: &'a PlanningRequest,
        shapes: &mut Shapes<'a>,
        board: &Board<'a>,
        tie: Tie,
    ) -> Self {
        let mut local: BTreeMap<usize, usize> = BTreeMap::new();
        let mut candidates: Vec<Candidates> = Vec::new();
        let mut kinds: BTreeMap<(usize, Option<&Str>), usize> = BTreeMap::new();
        let mut list: Vec<Kind> = Vec::new();
        let mut shape_of = Vec::with_capacity(request.members.len());
        let mut last = None;
        let mut seen = BTreeSet::new();
        for (index, member) in request.members.iter().enumerate() {
            if !seen.insert(&member.uid) {
                shape_of.push(None);
                continue;
            }
            let number = shapes.number(member, board.snapshot(), last);
            last = Some((member, number));
            let shape = *local.entry(number).or_insert_with(|| {
                candidates.push(Candidates {
                    need: number,
                    nodes: Vec::new(),
                    best: Vec::new(),
                    cap: 0,
                    members: 0,
                });
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
            shape.scan(shapes.need(shape.need), board, request.members.len(), tie);
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
            (shape.nodes.len(), Reverse(hard), kind.members[0])
        });
        Self { request, shapes: candidates, kinds: list, shape_of }
    }

    /// The same gang where no nodes but `inside` (ascending) are in question; `None` when some member surely has no place then.
    ///
    /// Made from these nodes alone, and members are copied last: there may be as many domains as nodes.
    pub(super) fn within(
        &self,
        inside: &[u32],
        shapes: &Shapes<'a>,
        board: &Board<'a>,
        tie: Tie,
    ) -> Option<Self> {
        let narrowed = self.shapes.iter().map(|shape| shape.within(inside, shapes, board, tie));
        Some(Self {
            request: self.request,
            shapes: narrowed.collect::<Option<_>>()?,
            kinds: self.kinds.clone(),
            shape_of: self.shape_of.clone(),
        })
    }

    /// The same gang where one node has more room than when it was prepared.
    pub(super) fn with_room_on(&self, node: u32, shapes: &Shapes<'a>, board: &Board<'a>) -> Self {
        let mut changed = self.clone();
        for shape in &mut changed.shapes {
            let need = shapes.need(shape.need);
            let place = node as usize;
            let Some(score) = rank(need, board, place) else { continue };
            if let Err(index) = shape.nodes.binary_search(&node) {
                shape.nodes.insert(index, node);
            }
            shape.best.push((score, Tie::Stable.key(node), node, board.stamp(place)));
            // No less than fits, which is all that is asked of it.
            let more = need.count(&board.state(place).node, board.room(place), shape.members);
            shape.cap = shape.cap.saturating_add(more).min(shape.members);
        }
        changed
    }

    /// Whether the quorum is met with so many of each kind placed, and those that are active.
    pub(super) fn quorum_met(&self, placed: impl Iterator<Item = (usize, u64)>) -> bool {
        let mut counts: Counts = self.request.active.clone();
        for (kind, number) in placed {
            let count = counts.entry(self.kinds[kind].role.clone()).or_default();
            *count = count.saturating_add(u32::try_from(number).unwrap_or(u32::MAX));
        }
        self.request.quorum.is_satisfied(&counts)
    }

    /// Places as many members as can be, all or none with regard to the quorum.
    /// `steps` bounds the search.
    pub(super) fn place(&self, shapes: &Shapes<'a>, board: &mut Board<'a>, tie: Tie, steps: u32) -> Outcome {
        if self.request.quorum.is_satisfied(&self.request.active) {
            return self.place_each(shapes, board, tie);
        }
        if !self.request.gang_nodes.is_empty() && minimum::lacking(self.request, board).is_empty() {
            // What a started gang lacks goes near the rest of it, if all of that has room there.
            let mut tried = board.fork();
            let outcome = self.place_each(shapes, &mut tried, tie);
            if outcome.spots.len() == self.waiting() && self.quorum_met(self.by_kind(&outcome.spots)) {
                *board = tried;
                return outcome;
            }
        }
        let wanted: u64 = self.kinds.iter().map(|kind| kind.members.len() as u64).sum();
        let is_unschedulable = !self.quorum_met(self.optimistic());
        let mut most = self.shapes.iter().map(|shape| shape.cap).sum::<u64>();
        let mut best = self.greedy(shapes, board, tie, CardOrder::Tightest, &[]);
        if (best.len() as u64) < most && self.shapes.iter().any(|s| shares_many(shapes.need(s.need))) {
            // The tightest cards are the wrong ones when a pod needs several at once.
            let loosest = self.greedy(shapes, board, tie, CardOrder::Loosest, &best);
            if loosest.len() > best.len() {
                best = loosest;
            }
        }
        most = most.min(wanted);
        let reach = best.clone();
        let enough = self.quorum_met(self.by_kind(&best));
        let mut exhausted = false;
        if is_unschedulable || (self.kinds.len() == 1 && !enough) {
            best.clear();
        } else if self.kinds.len() > 1 && !enough && explain::surely_short(self, shapes, board) {
            // No search is needed to see that there is too little in all.
            best.clear();
        } else if self.kinds.len() > 1 && !(enough && reach.len() as u64 == most) {
            // Members of one kind fill each node independently of the others, so greedy is exact for them. Several kinds
            // can be in each other's way.
            let known = if enough { best } else { Vec::new() };
            let found = search::most(self, shapes, board, known, most, steps);
            best = found.spots;
            exhausted = found.exhausted;
        }
        if !best.is_empty() && !minimum::lacking(self.request, board).is_empty() {
            return Outcome { spots: Vec::new(), reach: best, exhausted: false, below_minimum: true };
        }
        self.put(&best, shapes, board);
        best.sort_by_key(|spot| spot.member);
        Outcome { spots: best, reach, exhausted, below_minimum: false }
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
            Quorum::Groups { .. } | Quorum::Total { .. } => self.waiting(),
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
        let placed: BTreeSet<usize> = spots.iter().map(|spot| spot.member).collect();
        self.kinds.iter().enumerate().map(move |(index, kind)| {
            (index, kind.members.iter().filter(|member| placed.contains(member)).count() as u64)
        })
    }

    /// Each member by itself, first come first served: near its gang, or else anywhere.
    fn place_each(&self, shapes: &Shapes<'a>, board: &mut Board<'a>, tie: Tie) -> Outcome {
        let mut spots = self.place_near(shapes, board, tie);
        let near: BTreeSet<usize> = spots.iter().map(|spot| spot.member).collect();
        let mut ranks = Ranks::new(self.shapes.len(), &spots);
        for (member, shape) in self.shape_of.iter().enumerate() {
            let Some(shape) = shape.filter(|_| !near.contains(&member)) else { continue };
            if let Some(spot) = self.next(shapes, board, tie, CardOrder::Tightest, &mut ranks, shape, member)
            {
                spots.push(spot);
            }
        }
        spots.sort_by_key(|spot| spot.member);
        Outcome { reach: spots.clone(), spots, exhausted: false, below_minimum: false }
    }

    /// Hardest first, each where it fits best; leaves the board as it was.
    fn greedy(
        &self,
        shapes: &Shapes<'a>,
        board: &mut Board<'a>,
        tie: Tie,
        order: CardOrder,
        earlier: &[Spot],
    ) -> Vec<Spot> {
        let mut ranks = Ranks::new(self.shapes.len(), earlier);
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

/// A node with how well it suits a shape: score, tie-break, node, and the stamp of its room.
type Ranked = (Score, u64, u32, u32);

impl Candidates {
    fn scan(&mut self, need: &Need<'_>, board: &Board<'_>, most: usize, tie: Tie) {
        let snapshot = board.snapshot();
        let mut best: BinaryHeap<Ranked> = BinaryHeap::with_capacity(most.min(1024) + 1);
        for (index, (hot, row)) in (0_u32..).zip(snapshot.hot().iter().zip(snapshot.rows())) {
            let place = index as usize;
            // Packed numbers are of the snapshot; what is touched differs.
            let decided = if board.is_touched(place) { None } else { need.decide(hot, row) };
            let Some(score) = decided.unwrap_or_else(|| rank(need, board, place)) else { continue };
            self.nodes.push(index);
            if self.cap < self.members {
                self.cap += need.count(&board.state(place).node, board.room(place), self.members - self.cap);
            }
            if best.len() == most {
                let worst = best.peek().map(|worst| (worst.0, worst.1));
                if worst.is_none_or(|worst| (score, tie.key(index)) >= worst) {
                    continue;
                }
                best.pop();
            }
            best.push((score, tie.key(index), index, board.stamp(place)));
        }
        self.best = best.into_vec();
    }

    /// See [`Attempt::within`].
    fn within<'a>(&self, inside: &[u32], shapes: &Shapes<'a>, board: &Board<'a>, tie: Tie) -> Option<Self> {
        let need = shapes.need(self.need);
        let mut narrowed = Self { nodes: Vec::new(), best: Vec::new(), cap: 0, ..*self };
        for node in inside.iter().filter(|node| self.nodes.binary_search(node).is_ok()) {
            narrowed.nodes.push(*node);
            let place = *node as usize;
            let Some(score) = rank(need, board, place) else { continue };
            narrowed.best.push((score, tie.key(*node), *node, board.stamp(place)));
            if narrowed.cap < narrowed.members {
                let more = narrowed.members - narrowed.cap;
                narrowed.cap += need.count(&board.state(place).node, board.room(place), more);
            }
        }
        (narrowed.cap >= narrowed.members).then_some(narrowed)
    }
}

/// How well a node suits now; `None` when it does not take the pod.
pub(super) fn rank(need: &Need<'_>, board: &Board<'_>, place: usize) -> Option<Score> {
    let (state, room) = (board.state(place), board.room(place));
    let avoid = need.admitted(state).ok()?;
    need.fits(&state.node, room).ok()?;
    Some(need.score(state, room, avoid))
}

/// Nodes in question for each shape of a gang, best first. Entries of touched nodes go stale, and are told by their
/// stamp.
struct Ranks {
    heaps: Vec<Option<BinaryHeap<Reverse<Ranked>>>>,
    touched: Vec<u32>,
}

impl Ranks {
    /// `earlier` was placed and taken back since the scan: the entries of its nodes are stale.
    fn new(shapes: usize, earlier: &[Spot]) -> Self {
        let touched: BTreeSet<u32> = earlier.iter().map(|spot| spot.node).collect();
        Self { heaps: vec![None; shapes], touched: touched.into_iter().collect() }
    }

    fn entry(need: &Need<'_>, board: &Board<'_>, node: u32, tie: Tie) -> Option<Reverse<Ranked>> {
        let place = node as usize;
        Some(Reverse((rank(need, board, place)?, tie.key(node), node, board.stamp(place))))
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
        let touched = &self.touched;
        let heap = self.heaps[shape].get_or_insert_with(|| {
            let mut heap: BinaryHeap<_> = candidates.best.iter().copied().map(Reverse).collect();
            heap.extend(touched.iter().filter_map(|node| Self::entry(need, board, *node, tie)));
            heap
        });
        while let Some(Reverse((_, _, node, stamp))) = heap.peek() {
            if *stamp == board.stamp(*node as usize) {
                return Some(*node);
            }
            heap.pop();
        }
        None
    }

    /// Ranks a node anew for every shape.
    fn touched(
        &mut self,
        node: u32,
        candidates: &[Candidates],
        shapes: &Shapes<'_>,
        board: &Board<'_>,
        tie: Tie,
    ) {
        if !self.touched.contains(&node) {
            self.touched.push(node);
        }
        for (heap, candidates) in self.heaps.iter_mut().zip(candidates) {
            if let Some(heap) = heap {
                heap.extend(Self::entry(shapes.need(candidates.need), board, node, tie));
            }
        }
    }
}
