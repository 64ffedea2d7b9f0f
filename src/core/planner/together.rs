//! A gang in one place: all members on nodes that have one value of a label, such as a zone, a rack or an `NVLink` domain.
//!
//! Owns in which domain. A preference only: where none has room for all, the gang goes wherever there is room.

use std::collections::BTreeMap;

use super::board::Board;
use super::gang::{Attempt, Outcome, Shapes};
use super::search;
use super::tie::Tie;
use crate::model::Str;

/// Places the whole gang within one domain: the one with the fewest nodes in question that has room for all, so that the large ones
/// stay whole for large gangs. `None` where nothing of this is asked for, or no domain has room.
pub(super) fn place<'a>(
    attempt: &Attempt<'a>,
    shapes: &Shapes<'a>,
    board: &mut Board<'a>,
    tie: Tie,
) -> Option<Outcome> {
    let label = attempt.request.topology_key.as_ref()?;
    let mut domains: BTreeMap<&Str, Vec<u32>> = BTreeMap::new();
    let mut nodes: Vec<u32> = attempt.shapes.iter().flat_map(|shape| shape.nodes.iter().copied()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for node in nodes {
        if let Some(domain) = board.snapshot().states()[node as usize].node.labels.get(label) {
            domains.entry(domain).or_default().push(node);
        }
    }
    let mut domains: Vec<(usize, &Str, Vec<u32>)> =
        domains.into_iter().map(|(domain, nodes)| (nodes.len(), domain, nodes)).collect();
    domains.sort_unstable();
    for (_, _, nodes) in domains {
        let Some(narrowed) = attempt.within(&nodes, shapes, board, tie) else { continue };
        let mut tried = board.fork();
        let outcome = narrowed.place(shapes, &mut tried, tie, search::STEPS);
        if outcome.spots.len() == attempt.waiting() {
            *board = tried;
            return Some(outcome);
        }
    }
    None
}
