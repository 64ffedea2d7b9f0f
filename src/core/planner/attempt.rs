//! The attempt to place one gang: which kinds of members it has, which nodes are candidates, and the
//! assignments.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::candidates::{CandidateNodes, NodeRanking, ResolvedShapes};
use super::min_resources;
use super::overlay::SnapshotOverlay;
use super::pod_rules::GangPodRules;
use super::requirements::{CardOrder, PodRequirements};
use super::search;
use super::shortage;
use super::tie_break::TieBreak;
use super::types::{MembersByRole, PlanningRequest};
use crate::dialect::Quorum;
use crate::model::Str;

/// Members that differ only in their names: same shape, same role.
#[derive(Clone)]
pub(super) struct MemberKind {
    /// Index into [`PlacementAttempt::shapes`].
    pub(super) shape: usize,
    pub(super) role: Option<Str>,
    /// Indexes into the request's members, in their order.
    pub(super) members: Vec<usize>,
}

/// An assignment on the overlay, by indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TentativeAssignment {
    /// Index into the request's members.
    pub(super) member: usize,
    /// Index into [`PlacementAttempt::shapes`].
    pub(super) shape: usize,
    pub(super) node: u32,
    pub(super) cards: Vec<u32>,
}

/// A gang, prepared for placement.
#[derive(Clone)]
pub(super) struct PlacementAttempt<'a> {
    pub(super) request: &'a PlanningRequest,
    pub(super) shapes: Vec<CandidateNodes>,
    /// The hardest to place first.
    pub(super) kinds: Vec<MemberKind>,
    /// The shape of each member; `None` for the second occurrence of a pod.
    pub(super) shape_of: Vec<Option<usize>>,
    /// Rules about other pods that bear on the gang.
    pub(super) pod_rules: Option<Arc<GangPodRules<'a>>>,
}

/// The outcome of an attempt.
pub(super) struct AttemptOutcome {
    /// The assignments, by member, which are on the overlay: enough for the quorum, or none.
    pub(super) assignments: Vec<TentativeAssignment>,
    /// The assignments possible without regard to the quorum. On the overlay only as far as they are
    /// `assignments`.
    pub(super) best_effort: Vec<TentativeAssignment>,
    /// The search reached its step limit: more members may fit.
    pub(super) exhausted: bool,
    /// The members fit, and `minResources` of the group are not free.
    pub(super) below_min_resources: bool,
}

impl AttemptOutcome {
    /// An outcome without a search or a quorum.
    fn of(assignments: Vec<TentativeAssignment>) -> Self {
        let best_effort = assignments.clone();
        Self { assignments, best_effort, exhausted: false, below_min_resources: false }
    }
}

impl<'a> PlacementAttempt<'a> {
    pub(super) fn new(
        request: &'a PlanningRequest,
        shapes: &mut ResolvedShapes<'a>,
        overlay: &SnapshotOverlay<'a>,
        tie_break: TieBreak,
    ) -> Self {
        let mut attempt = Self {
            request,
            shapes: Vec::new(),
            kinds: Vec::new(),
            shape_of: Vec::new(),
            pod_rules: GangPodRules::new(request, overlay).map(Arc::new),
        };
        attempt.group_members(shapes, overlay);
        for candidates in &mut attempt.shapes {
            candidates.scan(shapes.need(candidates.need), overlay, request.members.len(), tie_break);
        }
        attempt.sort_kinds(shapes, overlay);
        attempt
    }

    /// Fills `shapes`, `kinds` and `shape_of` from the request.
    fn group_members(&mut self, shapes: &mut ResolvedShapes<'a>, overlay: &SnapshotOverlay<'a>) {
        let mut shape_indexes: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut kind_indexes: BTreeMap<(usize, Option<&Str>), usize> = BTreeMap::new();
        let mut last = None;
        let mut seen = BTreeSet::new();
        self.shape_of.reserve(self.request.members.len());
        for (index, member) in self.request.members.iter().enumerate() {
            if !seen.insert(&member.uid) {
                self.shape_of.push(None);
                continue;
            }
            let number = shapes.number(member, overlay.snapshot(), last);
            last = Some((member, number));
            let profile = self.pod_rules.as_ref().map_or(0, |rules| rules.profile_of(index));
            let shape = *shape_indexes.entry((number, profile)).or_insert_with(|| {
                self.shapes.push(CandidateNodes::new(number, profile));
                self.shapes.len() - 1
            });
            self.shapes[shape].members += 1;
            self.shape_of.push(Some(shape));
            let kind = *kind_indexes.entry((shape, member.role.as_ref())).or_insert_with(|| {
                self.kinds.push(MemberKind { shape, role: member.role.clone(), members: Vec::new() });
                self.kinds.len() - 1
            });
            self.kinds[kind].members.push(index);
        }
    }

    /// Sorts the kinds: fewest candidate nodes first, then the largest requests, then the first member.
    fn sort_kinds(&mut self, shapes: &ResolvedShapes<'a>, overlay: &SnapshotOverlay<'a>) {
        let candidates = &self.shapes;
        self.kinds.sort_by_cached_key(|kind| {
            let shape = &candidates[kind.shape];
            let need = shapes.need(shape.need);
            let vram = need.share.map_or(0, |share| {
                let largest = shape
                    .nodes
                    .iter()
                    .filter_map(|node| overlay.state(*node as usize).node.gpus.vram_each)
                    .max();
                share.on_card(largest.unwrap_or_default()).0
            });
            let devices = need.share.map_or(0, |share| share.devices);
            let requests = (need.gpus, devices, vram, need.cpu, need.memory);
            (shape.nodes.len(), Reverse(requests), kind.members[0])
        });
    }

    /// The same gang with no other candidates than `nodes` (ascending); `None` when a shape surely does not
    /// fit there.
    ///
    /// There may be as many domains as nodes, so the cost depends on `nodes` only, and members are copied
    /// last.
    pub(super) fn within(
        &self,
        nodes: &[u32],
        shapes: &ResolvedShapes<'a>,
        overlay: &SnapshotOverlay<'a>,
        tie_break: TieBreak,
    ) -> Option<Self> {
        let narrowed =
            self.shapes.iter().map(|shape| shape.within(nodes, shapes.need(shape.need), overlay, tie_break));
        Some(Self {
            request: self.request,
            shapes: narrowed.collect::<Option<_>>()?,
            kinds: self.kinds.clone(),
            shape_of: self.shape_of.clone(),
            pod_rules: self.pod_rules.clone(),
        })
    }

    /// The same gang on an overlay with one node that has more free resources than at the scan.
    pub(super) fn with_freed_node(
        &self,
        node: u32,
        shapes: &ResolvedShapes<'a>,
        overlay: &SnapshotOverlay<'a>,
    ) -> Self {
        let mut changed = self.clone();
        for candidates in &mut changed.shapes {
            candidates.add_freed_node(node, shapes.need(candidates.need), overlay);
        }
        if changed.pod_rules.is_some() {
            changed.pod_rules = GangPodRules::new(self.request, overlay).map(Arc::new);
        }
        changed
    }

    /// Whether the active members and this number of placed members of each kind meet the quorum.
    pub(super) fn quorum_met(&self, placed: impl Iterator<Item = (usize, u64)>) -> bool {
        let mut counts: MembersByRole = self.request.active.clone();
        for (kind, number) in placed {
            let count = counts.entry(self.kinds[kind].role.clone()).or_default();
            *count = count.saturating_add(u32::try_from(number).unwrap_or(u32::MAX));
        }
        self.request.quorum.is_satisfied(&counts)
    }

    /// Places as many members as fit if they meet the quorum with the active ones, else none. `steps` limits
    /// the search.
    pub(super) fn place(
        &self,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
        steps: u32,
    ) -> AttemptOutcome {
        if self.request.quorum.is_satisfied(&self.request.active) {
            return self.place_individually(shapes, overlay, tie_break);
        }
        if let Some(outcome) = self.place_near_gang(shapes, overlay, tie_break) {
            return outcome;
        }
        let (best_effort, mut best, exhausted) = if let Some(rules) = self.pod_rules.clone() {
            self.place_by_rules(&rules, shapes, overlay, tie_break, steps)
        } else {
            let best_effort = self.place_greedily(shapes, overlay, tie_break);
            let (best, exhausted) = self.meet_quorum(&best_effort, shapes, overlay, steps);
            (best_effort, best, exhausted)
        };
        if !best.is_empty() && !min_resources::shortages(self.request, overlay).is_empty() {
            return AttemptOutcome {
                assignments: Vec::new(),
                best_effort: best,
                exhausted: false,
                below_min_resources: true,
            };
        }
        self.assign_all(&best, shapes, overlay);
        best.sort_by_key(|assignment| assignment.member);
        AttemptOutcome { assignments: best, best_effort, exhausted, below_min_resources: false }
    }

    /// Places all missing members of a started gang near the others; `None` when not all fit that way.
    fn place_near_gang(
        &self,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
    ) -> Option<AttemptOutcome> {
        if self.request.gang_nodes.is_empty() || !min_resources::shortages(self.request, overlay).is_empty() {
            return None;
        }
        let mut trial = overlay.fork();
        let outcome = self.place_individually(shapes, &mut trial, tie_break);
        let complete = outcome.assignments.len() == self.waiting()
            && self.quorum_met(self.count_by_kind(&outcome.assignments));
        complete.then(|| {
            *overlay = trial;
            outcome
        })
    }

    /// The greedy assignments without regard to the quorum; leaves the overlay as it was.
    fn place_greedily(
        &self,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
    ) -> Vec<TentativeAssignment> {
        let best = self.greedy(shapes, overlay, tie_break, CardOrder::Tightest, &[]);
        let shares_several = |shape: &CandidateNodes| shares_several_cards(shapes.need(shape.need));
        if (best.len() as u64) < self.max_alone() && self.shapes.iter().any(shares_several) {
            // For a pod that needs several cards at once, the tightest cards can be the wrong ones.
            let loosest = self.greedy(shapes, overlay, tie_break, CardOrder::Loosest, &best);
            if loosest.len() > best.len() {
                return loosest;
            }
        }
        best
    }

    /// The best assignments that meet the quorum, or none; and whether the search reached its step limit.
    fn meet_quorum(
        &self,
        greedy: &[TentativeAssignment],
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        steps: u32,
    ) -> (Vec<TentativeAssignment>, bool) {
        let most = self.max_alone().min(self.waiting() as u64);
        let enough = self.quorum_met(self.count_by_kind(greedy));
        let impossible = !self.quorum_met(self.upper_bounds());
        // Members of one kind fill each node independently, so greedy is exact for one kind. Several kinds
        // compete.
        if impossible || (self.kinds.len() == 1 && !enough) {
            return (Vec::new(), false);
        }
        if self.kinds.len() <= 1 || (enough && greedy.len() as u64 == most) {
            return (greedy.to_vec(), false);
        }
        if !enough && shortage::is_surely_short(self, shapes, overlay) {
            return (Vec::new(), false);
        }
        let known = if enough { greedy.to_vec() } else { Vec::new() };
        let result = search::find_most(self, shapes, overlay, known, most, steps);
        (result.assignments, result.exhausted)
    }

    /// Number of waiting members.
    pub(super) fn waiting(&self) -> usize {
        self.kinds.iter().map(|kind| kind.members.len()).sum()
    }

    /// Number of waiting members that have to start for the quorum. All of them when subgroups have quorums:
    /// then no number alone decides.
    pub(super) fn min_needed(&self) -> usize {
        let active: u64 = self.request.active.values().map(|number| u64::from(*number)).sum();
        match &self.request.quorum {
            Quorum::Count(least) => {
                let missing = u64::from(*least).saturating_sub(active);
                usize::try_from(missing).unwrap_or(usize::MAX).clamp(1, self.waiting().max(1))
            }
            Quorum::Groups { .. } | Quorum::Total { .. } => self.waiting(),
        }
    }

    /// Applies assignments to the overlay.
    pub(super) fn assign_all(
        &self,
        assignments: &[TentativeAssignment],
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
    ) {
        for assignment in assignments {
            let need = shapes.need(self.shapes[assignment.shape].need);
            overlay.assign(assignment.node as usize, need, &assignment.cards);
        }
    }

    /// Undoes [`Self::assign_all`].
    pub(super) fn unassign_all(
        &self,
        assignments: &[TentativeAssignment],
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
    ) {
        for assignment in assignments {
            let need = shapes.need(self.shapes[assignment.shape].need);
            overlay.unassign(assignment.node as usize, need, &assignment.cards);
        }
    }

    /// Sum over the shapes of the pods that fit when no other shape is placed.
    pub(super) fn max_alone(&self) -> u64 {
        self.shapes.iter().map(|shape| shape.max_alone).sum()
    }

    /// Upper bounds of placed members by kind: each shape alone.
    pub(super) fn upper_bounds(&self) -> impl Iterator<Item = (usize, u64)> {
        self.kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| (index, (kind.members.len() as u64).min(self.shapes[kind.shape].max_alone)))
    }

    pub(super) fn count_by_kind(
        &self,
        assignments: &[TentativeAssignment],
    ) -> impl Iterator<Item = (usize, u64)> {
        let placed: BTreeSet<usize> = assignments.iter().map(|assignment| assignment.member).collect();
        self.kinds.iter().enumerate().map(move |(index, kind)| {
            (index, kind.members.iter().filter(|member| placed.contains(member)).count() as u64)
        })
    }

    /// Places each member independently, in the order of the request: near its gang, else on the best node.
    fn place_individually(
        &self,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
    ) -> AttemptOutcome {
        if let Some(rules) = self.pod_rules.clone() {
            let assignments = self.place_individually_by_rules(&rules, shapes, overlay, tie_break);
            self.assign_all(&assignments, shapes, overlay);
            return AttemptOutcome::of(assignments);
        }
        let mut assignments = self.place_near(shapes, overlay, tie_break);
        let near: BTreeSet<usize> = assignments.iter().map(|assignment| assignment.member).collect();
        let mut ranking = NodeRanking::new(self.shapes.len(), &assignments);
        for (member, shape) in self.shape_of.iter().enumerate() {
            let Some(shape) = shape.filter(|_| !near.contains(&member)) else { continue };
            let order = CardOrder::Tightest;
            assignments.extend(self.assign_next(
                shapes,
                overlay,
                tie_break,
                order,
                &mut ranking,
                shape,
                member,
            ));
        }
        assignments.sort_by_key(|assignment| assignment.member);
        AttemptOutcome::of(assignments)
    }

    /// Assigns the hardest members first, each to its best node; leaves the overlay as it was. `earlier` was
    /// assigned and unassigned since the scan.
    fn greedy(
        &self,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
        order: CardOrder,
        earlier: &[TentativeAssignment],
    ) -> Vec<TentativeAssignment> {
        let mut ranking = NodeRanking::new(self.shapes.len(), earlier);
        let mut assignments = Vec::new();
        for kind in &self.kinds {
            for member in &kind.members {
                match self.assign_next(shapes, overlay, tie_break, order, &mut ranking, kind.shape, *member) {
                    Some(assignment) => assignments.push(assignment),
                    None => break,
                }
            }
        }
        self.unassign_all(&assignments, shapes, overlay);
        assignments
    }

    /// Assigns one member to the best node; `None` when it fits on no node.
    #[expect(clippy::too_many_arguments, reason = "one step of two loops that share all of it")]
    fn assign_next(
        &self,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
        order: CardOrder,
        ranking: &mut NodeRanking,
        shape: usize,
        member: usize,
    ) -> Option<TentativeAssignment> {
        let need = shapes.need(self.shapes[shape].need);
        let node = ranking.best(shape, &self.shapes[shape], need, overlay, tie_break)?;
        let index = node as usize;
        let cards = need.choose_cards(&overlay.state(index).node, overlay.free_resources(index), order);
        overlay.assign(index, need, &cards);
        ranking.update(node, &self.shapes, shapes, overlay, tie_break);
        Some(TentativeAssignment { member, shape, node, cards })
    }
}

fn shares_several_cards(need: &PodRequirements<'_>) -> bool {
    need.share.is_some_and(|share| share.devices > 1)
}
