//! Places members that start later near the started members of their gang.
//!
//! The nearest nodes are those of the gang; then those that share a topology domain with one of them, from
//! the innermost level of domains outwards. This is a preference: a member without capacity nearby is placed
//! on any node.

use std::collections::BTreeSet;

use super::attempt::{PlacementAttempt, TentativeAssignment};
use super::candidates::{ResolvedShapes, score};
use super::overlay::SnapshotOverlay;
use super::requirements::CardOrder;
use super::tie_break::TieBreak;
use crate::model::NodeName;
use crate::objects::names;
use crate::snapshot::Snapshot;

/// Node indexes in groups of equal distance to the gang's nodes, nearest first. Nodes without a common domain
/// are in no group.
pub(super) fn nodes_by_distance(snapshot: &Snapshot, gang_nodes: &BTreeSet<NodeName>) -> Vec<Vec<u32>> {
    let mut remaining: Vec<u32> = Vec::new();
    let (mut own, mut nodes) = (Vec::new(), Vec::new());
    for (index, state) in (0_u32..).zip(snapshot.states()) {
        if gang_nodes.contains(&state.node.name) {
            own.push(index);
            nodes.push(&state.node);
        } else {
            remaining.push(index);
        }
    }
    let mut groups = vec![own];
    for level in names::TOPOLOGY_LEVELS {
        let domains: BTreeSet<_> = nodes.iter().filter_map(|node| node.labels.get(*level)).collect();
        if domains.is_empty() {
            continue;
        }
        let in_domain = |index: &u32| {
            let node = &snapshot.states()[*index as usize].node;
            node.labels.get(*level).is_some_and(|domain| domains.contains(domain))
        };
        let (group, farther): (Vec<u32>, Vec<u32>) = remaining.into_iter().partition(in_domain);
        groups.push(group);
        remaining = farther;
    }
    groups
}

impl<'a> PlacementAttempt<'a> {
    /// Places members near their gang in the order of the request, and leaves out those that do not fit
    /// there.
    pub(super) fn place_near(
        &self,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
    ) -> Vec<TentativeAssignment> {
        let mut assignments: Vec<TentativeAssignment> = Vec::new();
        if self.request.gang_nodes.is_empty() {
            return assignments;
        }
        let mut remaining: Vec<(usize, usize)> = self
            .shape_of
            .iter()
            .enumerate()
            .filter_map(|(member, shape)| Some((member, (*shape)?)))
            .collect();
        for group in nodes_by_distance(overlay.snapshot(), &self.request.gang_nodes) {
            remaining.retain(|(member, shape)| {
                let need = shapes.need(self.shapes[*shape].need);
                let ranked =
                    |node: &u32| Some((score(need, overlay, *node as usize)?, tie_break.key(*node), *node));
                let Some((_, _, node)) = group.iter().filter_map(ranked).min() else { return true };
                let index = node as usize;
                let cards = need.choose_cards(
                    &overlay.state(index).node,
                    overlay.free_resources(index),
                    CardOrder::Tightest,
                );
                overlay.assign(index, need, &cards);
                assignments.push(TentativeAssignment { member: *member, shape: *shape, node, cards });
                false
            });
        }
        assignments
    }
}
