//! Members that come later go near their gang.

use super::*;
use crate::planner::plan;

/// A node with GPUs in a clique, under a leaf switch, in a zone.
fn place(name: &str, gpus: u32, clique: &str, leaf: &str, zone: &str) -> Node {
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

/// Where so many members of one GPU each go beside nodes of their gang, whose quorum is met or lacks `missing`.
fn beside(nodes: Vec<Node>, gang_on: &[&str], members: usize, missing: u32) -> Vec<String> {
    let mut request = gang("g", (0..members).map(|_| gpus(1)));
    request.active = BTreeMap::from([(None, 2)]);
    request.quorum = Quorum::Count(2 + missing);
    request.gang_nodes = gang_on.iter().map(|name| (*name).into()).collect();
    let snapshot = cluster(nodes);
    lines(&plan(&snapshot, std::slice::from_ref(&request)).0)
}

#[test]
fn a_member_that_comes_later_goes_to_the_nearest_node_with_room() {
    let full = |name: &str, clique: &str| place(name, 0, clique, "leaf-1", "zone-1");
    // By itself it would go to the fullest node that has room, and by name after that.
    for (what, nodes, expected) in [
        (
            "where its gang is",
            vec![place("a", 1, "c-2", "leaf-2", "zone-2"), place("z", 4, "c-1", "leaf-1", "zone-1")],
            "g-0 -> z",
        ),
        (
            "the clique",
            vec![
                full("z", "c-1"),
                place("a", 1, "c-2", "leaf-1", "zone-1"),
                place("y", 4, "c-1", "leaf-2", "zone-1"),
            ],
            "g-0 -> y",
        ),
        (
            "the switch",
            vec![
                full("z", "c-1"),
                place("a", 1, "c-2", "leaf-2", "zone-1"),
                place("y", 4, "", "leaf-1", "zone-2"),
            ],
            "g-0 -> y",
        ),
        (
            "the zone",
            vec![full("z", "c-1"), place("a", 1, "c-2", "leaf-2", "zone-2"), place("y", 4, "", "", "zone-1")],
            "g-0 -> y",
        ),
        ("anywhere", vec![full("z", "c-1"), place("a", 1, "c-2", "leaf-2", "zone-2")], "g-0 -> a"),
        ("no labels", vec![full("z", ""), place("a", 1, "", "", ""), place("b", 4, "", "", "")], "g-0 -> a"),
    ] {
        for missing in [0, 1] {
            assert_eq!(beside(nodes.clone(), &["z"], 1, missing), [expected], "{what}, {missing} missing");
        }
    }
}

#[test]
fn what_has_no_room_near_goes_further_and_what_is_missing_goes_together_or_not_at_all() {
    let nodes = || {
        vec![
            place("z", 0, "c-1", "leaf-1", "zone-1"),
            place("y", 1, "c-1", "leaf-1", "zone-1"),
            place("a", 1, "c-2", "leaf-2", "zone-2"),
        ]
    };
    assert_eq!(beside(nodes(), &["z"], 2, 0), ["g-0 -> y", "g-1 -> a"]);
    assert_eq!(beside(nodes(), &["z"], 2, 2), ["g-0 -> y", "g-1 -> a"]);
    assert_eq!(beside(nodes(), &["z"], 3, 0), ["g-0 -> y", "g-1 -> a"]);
    assert_eq!(beside(nodes(), &["z"], 3, 3), Vec::<String>::new());
}

#[test]
fn the_gang_comes_together_before_it_is_near() {
    // One member wants two GPUs; near, the other one would take one of them.
    let nodes = vec![place("z", 2, "c-1", "", ""), place("a", 1, "c-2", "", "")];
    let mut request = gang("g", [gpus(1), gpus(2)]);
    request.active = BTreeMap::from([(None, 1)]);
    request.quorum = Quorum::Count(3);
    request.gang_nodes = BTreeSet::from(["z".into()]);
    let (made, _) = plan(&cluster(nodes), std::slice::from_ref(&request));
    assert_eq!(lines(&made), ["g-0 -> a", "g-1 -> z"]);
}
