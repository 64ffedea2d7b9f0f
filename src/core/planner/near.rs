//! Where a member that comes later goes: near the rest of its gang, as near as there is room.
//!
//! Owns which nodes are near: first those that its gang is on, then those that share a domain of the network or the place
//! with one of them, from the innermost kind of domain outwards. A preference only: who finds no room near goes anywhere.

use std::collections::BTreeSet;

use super::board::Board;
use super::gang::{Attempt, Shapes, Spot, rank};
use super::need::CardOrder;
use super::tie::Tie;
use crate::model::NodeName;
use crate::objects::names;
use crate::snapshot::Snapshot;

/// Nodes by how near they are to those of a gang, nearest first; nodes that share nothing with them are in none.
fn rings(snapshot: &Snapshot, gang: &BTreeSet<NodeName>) -> Vec<Vec<u32>> {
    let mut left: Vec<u32> = Vec::new();
    let (mut own, mut nodes) = (Vec::new(), Vec::new());
    for (index, state) in (0_u32..).zip(snapshot.states()) {
        if gang.contains(&state.node.name) {
            own.push(index);
            nodes.push(&state.node);
        } else {
            left.push(index);
        }
    }
    let mut rings = vec![own];
    for level in names::TOPOLOGY_LEVELS {
        let domains: BTreeSet<_> = nodes.iter().filter_map(|node| node.labels.get(*level)).collect();
        if domains.is_empty() {
            continue;
        }
        let within = |index: &u32| {
            let node = &snapshot.states()[*index as usize].node;
            node.labels.get(*level).is_some_and(|domain| domains.contains(domain))
        };
        let (ring, further): (Vec<u32>, Vec<u32>) = left.into_iter().partition(within);
        rings.push(ring);
        left = further;
    }
    rings
}

impl<'a> Attempt<'a> {
    /// Places members near their gang, first come first served, and leaves those out that have no room there.
    pub(super) fn place_near(&self, shapes: &Shapes<'a>, board: &mut Board<'a>, tie: Tie) -> Vec<Spot> {
        let mut spots: Vec<Spot> = Vec::new();
        if self.request.gang_nodes.is_empty() {
            return spots;
        }
        let mut left: Vec<(usize, usize)> = self
            .shape_of
            .iter()
            .enumerate()
            .filter_map(|(member, shape)| Some((member, (*shape)?)))
            .collect();
        for ring in rings(board.snapshot(), &self.request.gang_nodes) {
            left.retain(|(member, shape)| {
                let need = shapes.need(self.shapes[*shape].need);
                let score = |node: &u32| Some((rank(need, board, *node as usize)?, tie.key(*node), *node));
                let Some((_, _, node)) = ring.iter().filter_map(score).min() else { return true };
                let place = node as usize;
                let cards = need.cards(&board.state(place).node, board.room(place), CardOrder::Tightest);
                board.place(place, need, &cards);
                spots.push(Spot { member: *member, shape: *shape, node, cards });
                false
            });
        }
        spots
    }
}
