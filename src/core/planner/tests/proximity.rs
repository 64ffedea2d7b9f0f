//! Members that start later are placed near their gang.

use super::*;
use crate::planner::plan;

/// A node with GPUs in a clique, under a leaf switch, in a zone.
fn topology_node(name: &str, gpus: u32, clique: &str, leaf: &str, zone: &str) -> Node {
    let mut node = gpu_node(name, gpus, 80_000);
    for (key, value) in [
        ("nvidia.com/gpu.clique", clique),
        ("network.topology.nvidia.com/leaf", leaf),
        ("topology.kubernetes.io/zone", zone),
    ] {
        if !value.is_empty() {
            node.labels.insert(str(key), str(value));
        }
    }
    node
}

/// Assignments of members with one GPU each to a gang on `gang_on` whose quorum is met or lacks `missing`
/// members.
fn place_near(nodes: Vec<Node>, gang_on: &[&str], members: usize, missing: u32) -> Vec<String> {
    let mut request = gang("g", (0..members).map(|_| gpus(1)));
    request.active = BTreeMap::from([(None, 2)]);
    request.quorum = Quorum::Count(2 + missing);
    request.gang_nodes = gang_on.iter().map(|name| (*name).into()).collect();
    let snapshot = cluster(nodes);
    lines(&plan(&snapshot, std::slice::from_ref(&request)).0)
}

#[test]
fn a_later_member_is_placed_on_the_nearest_node_with_capacity() {
    let full = |name: &str, clique: &str| topology_node(name, 0, clique, "leaf-1", "zone-1");
    // Without proximity it would be placed on the fullest node with capacity, then by name.
    for (what, nodes, expected) in [
        (
            "where its gang is",
            vec![
                topology_node("a", 1, "c-2", "leaf-2", "zone-2"),
                topology_node("z", 4, "c-1", "leaf-1", "zone-1"),
            ],
            "g-0 -> z",
        ),
        (
            "the clique",
            vec![
                full("z", "c-1"),
                topology_node("a", 1, "c-2", "leaf-1", "zone-1"),
                topology_node("y", 4, "c-1", "leaf-2", "zone-1"),
            ],
            "g-0 -> y",
        ),
        (
            "the switch",
            vec![
                full("z", "c-1"),
                topology_node("a", 1, "c-2", "leaf-2", "zone-1"),
                topology_node("y", 4, "", "leaf-1", "zone-2"),
            ],
            "g-0 -> y",
        ),
        (
            "the zone",
            vec![
                full("z", "c-1"),
                topology_node("a", 1, "c-2", "leaf-2", "zone-2"),
                topology_node("y", 4, "", "", "zone-1"),
            ],
            "g-0 -> y",
        ),
        ("anywhere", vec![full("z", "c-1"), topology_node("a", 1, "c-2", "leaf-2", "zone-2")], "g-0 -> a"),
        (
            "no labels",
            vec![full("z", ""), topology_node("a", 1, "", "", ""), topology_node("b", 4, "", "", "")],
            "g-0 -> a",
        ),
    ] {
        for missing in [0, 1] {
            assert_eq!(
                place_near(nodes.clone(), &["z"], 1, missing),
                [expected],
                "{what}, {missing} missing"
            );
        }
    }
}

#[test]
fn members_without_capacity_nearby_are_placed_farther_and_a_missing_quorum_stays_all_or_none() {
    let nodes = || {
        vec![
            topology_node("z", 0, "c-1", "leaf-1", "zone-1"),
            topology_node("y", 1, "c-1", "leaf-1", "zone-1"),
            topology_node("a", 1, "c-2", "leaf-2", "zone-2"),
        ]
    };
    assert_eq!(place_near(nodes(), &["z"], 2, 0), ["g-0 -> y", "g-1 -> a"]);
    assert_eq!(place_near(nodes(), &["z"], 2, 2), ["g-0 -> y", "g-1 -> a"]);
    assert_eq!(place_near(nodes(), &["z"], 3, 0), ["g-0 -> y", "g-1 -> a"]);
    assert_eq!(place_near(nodes(), &["z"], 3, 3), Vec::<String>::new());
}

#[test]
fn a_complete_gang_has_priority_over_proximity() {
    // One member requests two GPUs. Near the gang, the other member would take one of them.
    let nodes = vec![topology_node("z", 2, "c-1", "", ""), topology_node("a", 1, "c-2", "", "")];
    let mut request = gang("g", [gpus(1), gpus(2)]);
    request.active = BTreeMap::from([(None, 1)]);
    request.quorum = Quorum::Count(3);
    request.gang_nodes = BTreeSet::from(["z".into()]);
    let (made, _) = plan(&cluster(nodes), std::slice::from_ref(&request));
    assert_eq!(lines(&made), ["g-0 -> a", "g-1 -> z"]);
}
