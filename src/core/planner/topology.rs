//! Places a gang in one topology domain: all members on nodes with one value of a label, such as a zone, a
//! rack or an `NVLink` domain.
//!
//! This is a preference: when no domain has capacity for all members, the gang is placed on any nodes.

use std::collections::BTreeMap;

use super::attempt::{AttemptOutcome, PlacementAttempt};
use super::candidates::ResolvedShapes;
use super::overlay::SnapshotOverlay;
use super::search;
use super::tie_break::TieBreak;
use crate::model::Str;

/// Places the whole gang in the smallest domain, by number of feasible nodes, with capacity for all of it.
/// Large domains stay free for large gangs. `None` when the request has no topology key or no domain has the
/// capacity.
pub(super) fn place_in_one_domain<'a>(
    attempt: &PlacementAttempt<'a>,
    shapes: &ResolvedShapes<'a>,
    overlay: &mut SnapshotOverlay<'a>,
    tie_break: TieBreak,
) -> Option<AttemptOutcome> {
    let label = attempt.request.topology_key.as_ref()?;
    let mut nodes: Vec<u32> = attempt.shapes.iter().flat_map(|shape| shape.nodes.iter().copied()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut nodes_by_domain: BTreeMap<&Str, Vec<u32>> = BTreeMap::new();
    for node in nodes {
        if let Some(domain) = overlay.snapshot().states()[node as usize].node.labels.get(label) {
            nodes_by_domain.entry(domain).or_default().push(node);
        }
    }
    let mut domains: Vec<(usize, &Str, Vec<u32>)> =
        nodes_by_domain.into_iter().map(|(domain, nodes)| (nodes.len(), domain, nodes)).collect();
    domains.sort_unstable();
    for (_, _, nodes) in domains {
        let Some(narrowed) = attempt.within(&nodes, shapes, overlay, tie_break) else { continue };
        let mut trial = overlay.fork();
        let outcome = narrowed.place(shapes, &mut trial, tie_break, search::MAX_SEARCH_STEPS);
        if outcome.assignments.len() == attempt.waiting() {
            *overlay = trial;
            return Some(outcome);
        }
    }
    None
}
