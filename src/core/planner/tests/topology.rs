//! Gangs with a topology key.

use super::*;
use crate::planner::plan;

fn racks(nodes: &[(&str, &str, u32)]) -> Vec<Node> {
    let node = |(name, rack, gpus): &(&str, &str, u32)| {
        let mut node = gpu_node(name, *gpus, 80_000);
        if !rack.is_empty() {
            node.labels.insert(str("rack"), str(rack));
        }
        node
    };
    nodes.iter().map(node).collect()
}

/// Assignments of a gang of members with one GPU each that needs all of them.
fn start(nodes: &[(&str, &str, u32)], members: usize, together: Option<&str>) -> Vec<String> {
    let mut request = gang("g", (0..members).map(|_| gpus(1)));
    request.topology_key = together.map(str);
    let snapshot = cluster(racks(nodes));
    lines(&plan(&snapshot, std::slice::from_ref(&request)).0)
}

#[test]
fn a_gang_starts_in_one_rack_that_fits_all_of_it() {
    // Without a topology key they would fill the fullest nodes first: one of each rack.
    let nodes = [("a", "r1", 1), ("b", "r2", 2), ("c", "r2", 2), ("d", "r3", 8), ("e", "r3", 8)];
    for (what, members, together, expected) in [
        ("nothing is asked", 3, None, "g-0 -> a; g-1 -> b; g-2 -> b"),
        ("the smallest rack with capacity", 3, Some("rack"), "g-0 -> b; g-1 -> b; g-2 -> c"),
        ("only the large one fits", 5, Some("rack"), "g-0 -> d; g-1 -> d; g-2 -> d; g-3 -> d; g-4 -> d"),
        ("a label that no node has", 3, Some("zone"), "g-0 -> a; g-1 -> b; g-2 -> b"),
    ] {
        assert_eq!(start(&nodes, members, together).join("; "), expected, "{what}");
    }
}

#[test]
fn a_gang_that_fits_no_rack_starts_across_racks() {
    let nodes = [("a", "r1", 2), ("b", "r2", 2), ("c", "", 2)];
    assert_eq!(start(&nodes, 5, Some("rack")), start(&nodes, 5, None));
    assert_eq!(start(&nodes, 5, Some("rack")).len(), 5);
    assert_eq!(start(&nodes, 7, Some("rack")), Vec::<String>::new());
}

#[test]
fn a_partial_gang_is_not_limited_to_one_rack() {
    // Two of three may start, and all three fit only across racks.
    let mut request = gang("g", (0..3).map(|_| gpus(1)));
    request.quorum = Quorum::Count(2);
    request.topology_key = Some(str("rack"));
    let snapshot = cluster(racks(&[("a", "r1", 2), ("b", "r2", 1)]));
    assert_eq!(lines(&plan(&snapshot, std::slice::from_ref(&request)).0).len(), 3);
}
