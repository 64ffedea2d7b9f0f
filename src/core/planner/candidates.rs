//! Candidate nodes: the nodes on which a shape of a gang fits, and their ranking while members are assigned.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use super::attempt::TentativeAssignment;
use super::overlay::SnapshotOverlay;
use super::requirements::{NodeScore, PodRequirements};
use super::tie_break::TieBreak;
use super::types::WaitingMember;
use crate::shape::Shape;
use crate::snapshot::Snapshot;

/// The shapes of one planning round, each resolved once.
#[derive(Default)]
pub(super) struct ResolvedShapes<'a> {
    needs: Vec<PodRequirements<'a>>,
    numbers: BTreeMap<&'a Shape, usize>,
}

impl<'a> ResolvedShapes<'a> {
    /// The number of a member's shape. Members of one template mostly share one allocation: comparing with
    /// the `last` member is then a comparison of pointers.
    pub(super) fn number(
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
            self.needs.push(PodRequirements::new(shape, snapshot));
            self.needs.len() - 1
        })
    }

    pub(super) fn need(&self, number: usize) -> &PodRequirements<'a> {
        &self.needs[number]
    }
}

/// A node with its score for a shape: score, tie-break, node index, and the version of its free resources.
type RankedNode = (NodeScore, u64, u32, u32);

/// The score of a node on the overlay; `None` when the node is infeasible.
pub(super) fn score(
    need: &PodRequirements<'_>,
    overlay: &SnapshotOverlay<'_>,
    index: usize,
) -> Option<NodeScore> {
    let (state, free) = (overlay.state(index), overlay.free_resources(index));
    let avoid = need.check_class(state).ok()?;
    need.fits(&state.node, free).ok()?;
    Some(need.score(state, free, avoid))
}

fn ranked(
    need: &PodRequirements<'_>,
    overlay: &SnapshotOverlay<'_>,
    node: u32,
    tie_break: TieBreak,
) -> Option<RankedNode> {
    let index = node as usize;
    Some((score(need, overlay, index)?, tie_break.key(node), node, overlay.version(index)))
}

/// A shape of a gang with its feasible nodes.
#[derive(Clone)]
pub(super) struct CandidateNodes {
    /// Number in [`ResolvedShapes`].
    pub(super) need: usize,
    /// Profile in the rules of the gang about other pods; 0 for a gang without such rules.
    pub(super) profile: usize,
    /// Indexes of the feasible nodes, ascending.
    pub(super) nodes: Vec<u32>,
    /// The best nodes, as many as the gang has members. Whatever other members take, the best remaining node
    /// is one of these or a node that was modified since.
    best: Vec<RankedNode>,
    /// Number of pods of the shape that fit when no other shape is placed, at most `members`.
    pub(super) max_alone: u64,
    /// Number of members with this shape.
    pub(super) members: u64,
}

impl CandidateNodes {
    /// Candidates without nodes for the shape with this number.
    pub(super) fn new(need: usize, profile: usize) -> Self {
        Self { need, profile, nodes: Vec::new(), best: Vec::new(), max_alone: 0, members: 0 }
    }

    /// Scans all nodes and keeps the `most` best ones.
    pub(super) fn scan(
        &mut self,
        need: &PodRequirements<'_>,
        overlay: &SnapshotOverlay<'_>,
        most: usize,
        tie_break: TieBreak,
    ) {
        let snapshot = overlay.snapshot();
        let mut best: BinaryHeap<RankedNode> = BinaryHeap::with_capacity(most.min(1024) + 1);
        for (node, (packed, cards)) in
            (0_u32..).zip(snapshot.packed_nodes().iter().zip(snapshot.packed_cards()))
        {
            let index = node as usize;
            // Packed numbers are those of the snapshot: they do not apply to a modified node.
            let from_packed =
                if overlay.is_modified(index) { None } else { need.score_packed(packed, cards) };
            let Some(score) = from_packed.unwrap_or_else(|| score(need, overlay, index)) else { continue };
            self.nodes.push(node);
            self.count_capacity(need, overlay, index);
            if best.len() == most {
                let worst = best.peek().map(|worst| (worst.0, worst.1));
                if worst.is_none_or(|worst| (score, tie_break.key(node)) >= worst) {
                    continue;
                }
                best.pop();
            }
            best.push((score, tie_break.key(node), node, overlay.version(index)));
        }
        self.best = best.into_vec();
    }

    /// The same shape with no other nodes than `nodes` (ascending); `None` when not all members fit there.
    pub(super) fn within(
        &self,
        nodes: &[u32],
        need: &PodRequirements<'_>,
        overlay: &SnapshotOverlay<'_>,
        tie_break: TieBreak,
    ) -> Option<Self> {
        let mut narrowed = Self { nodes: Vec::new(), best: Vec::new(), max_alone: 0, ..*self };
        for node in nodes.iter().filter(|node| self.nodes.binary_search(node).is_ok()) {
            narrowed.nodes.push(*node);
            let Some(ranked) = ranked(need, overlay, *node, tie_break) else { continue };
            narrowed.best.push(ranked);
            narrowed.count_capacity(need, overlay, *node as usize);
        }
        (narrowed.max_alone >= narrowed.members).then_some(narrowed)
    }

    /// Adds a node on which resources were freed since the scan.
    pub(super) fn add_freed_node(
        &mut self,
        node: u32,
        need: &PodRequirements<'_>,
        overlay: &SnapshotOverlay<'_>,
    ) {
        let Some(ranked) = ranked(need, overlay, node, TieBreak::Stable) else { return };
        if let Err(position) = self.nodes.binary_search(&node) {
            self.nodes.insert(position, node);
        }
        self.best.push(ranked);
        // An upper bound is enough here.
        let index = node as usize;
        let more = need.max_fitting(&overlay.state(index).node, overlay.free_resources(index), self.members);
        self.max_alone = self.max_alone.saturating_add(more).min(self.members);
    }

    /// Adds the pods that fit on a node to `max_alone`, until all members fit.
    fn count_capacity(&mut self, need: &PodRequirements<'_>, overlay: &SnapshotOverlay<'_>, index: usize) {
        if self.max_alone < self.members {
            let missing = self.members - self.max_alone;
            self.max_alone +=
                need.max_fitting(&overlay.state(index).node, overlay.free_resources(index), missing);
        }
    }
}

/// The ranking of the candidate nodes of every shape of a gang. Entries of modified nodes are outdated; their
/// version tells.
pub(super) struct NodeRanking {
    /// By shape of the attempt; built when the first member of the shape is placed.
    heaps: Vec<Option<BinaryHeap<Reverse<RankedNode>>>>,
    modified: Vec<u32>,
}

impl NodeRanking {
    /// `earlier` was assigned and unassigned since the scan: the entries of its nodes are outdated.
    pub(super) fn new(shapes: usize, earlier: &[TentativeAssignment]) -> Self {
        let modified: BTreeSet<u32> = earlier.iter().map(|assignment| assignment.node).collect();
        Self { heaps: vec![None; shapes], modified: modified.into_iter().collect() }
    }

    /// The best node for a shape; `None` when the shape fits on no node any more.
    pub(super) fn best(
        &mut self,
        shape: usize,
        candidates: &CandidateNodes,
        need: &PodRequirements<'_>,
        overlay: &SnapshotOverlay<'_>,
        tie_break: TieBreak,
    ) -> Option<u32> {
        let modified = &self.modified;
        let heap = self.heaps[shape].get_or_insert_with(|| {
            let mut heap: BinaryHeap<_> = candidates.best.iter().copied().map(Reverse).collect();
            let modified = modified.iter().filter_map(|node| ranked(need, overlay, *node, tie_break));
            heap.extend(modified.map(Reverse));
            heap
        });
        while let Some(Reverse((_, _, node, version))) = heap.peek() {
            if *version == overlay.version(*node as usize) {
                return Some(*node);
            }
            heap.pop();
        }
        None
    }

    /// Ranks a modified node again for every shape.
    pub(super) fn update(
        &mut self,
        node: u32,
        candidates: &[CandidateNodes],
        shapes: &ResolvedShapes<'_>,
        overlay: &SnapshotOverlay<'_>,
        tie_break: TieBreak,
    ) {
        if !self.modified.contains(&node) {
            self.modified.push(node);
        }
        for (heap, candidates) in self.heaps.iter_mut().zip(candidates) {
            if let Some(heap) = heap {
                heap.extend(ranked(shapes.need(candidates.need), overlay, node, tie_break).map(Reverse));
            }
        }
    }
}
