//! Assignments of the exercises, and of each placement rule.

use super::*;
use crate::planner::{PlanningOutcome, check, plan};

/// Plans one gang twice with the same result, and checks the plan.
fn placed(snapshot: &Snapshot, request: &PlanningRequest) -> Vec<String> {
    let gangs = std::slice::from_ref(request);
    let (made, report) = plan(snapshot, gangs);
    assert_eq!(check(snapshot, gangs, &made), Ok(()));
    assert_eq!(plan(snapshot, gangs), (made.clone(), report.clone()), "planning again changes nothing");
    let lines = lines(&made);
    let waits = matches!(report.outcomes[&request.gang], PlanningOutcome::Waiting(_));
    assert_eq!(waits, lines.is_empty() && !request.members.is_empty(), "{report:?}");
    lines
}

fn app_with_models() -> PlanningRequest {
    gang("app", [vram(4000), vram(8000), vram(8000)])
}

/// One card of 32768 MiB, sliced in four for the device plugin.
fn time_sliced() -> Node {
    let mut node = shared_node("gpu-1", 1, 32_768);
    node.allocatable.extended.insert(str(names::NVIDIA_GPU), 4);
    node
}

#[test]
fn a1_an_app_with_two_models_shares_one_time_sliced_card() {
    let lines = placed(&cluster([time_sliced()]), &app_with_models());
    assert_eq!(lines, ["app-0 -> gpu-1[0]", "app-1 -> gpu-1[0]", "app-2 -> gpu-1[0]"]);
}

#[test]
fn a1_an_app_with_two_models_goes_to_three_cards_on_three_nodes() {
    let nodes = [("a", 4000), ("b", 8000), ("c", 8000)].map(|(name, mib)| shared_node(name, 1, mib));
    let lines = placed(&cluster(nodes), &app_with_models());
    assert_eq!(lines, ["app-0 -> a[0]", "app-1 -> b[0]", "app-2 -> c[0]"]);
}

#[test]
fn a2_a3_a4_no_member_starts_while_a_card_is_in_use_and_all_start_when_it_is_free() {
    for used in [25_000, 17_768] {
        let mut snapshot = cluster([time_sliced()]);
        charge(&mut snapshot, "large-job", "gpu-1", vram(used), CardAllocation::Known(vec![0]));
        assert_eq!(placed(&snapshot, &app_with_models()), Vec::<String>::new(), "{used} MiB in use");
        snapshot.release(&PodUid::from("uid-large-job"));
        assert_eq!(placed(&snapshot, &app_with_models()).len(), 3);
    }
}

#[test]
fn vram_is_counted_per_card_and_to_the_mib() {
    for (what, nodes, shapes, fits) in [
        (
            "20 GB on one card",
            vec![shared_node("a", 1, 20_000)],
            vec![vram(4000), vram(8000), vram(8000)],
            true,
        ),
        (
            "20 GB spread, no card of 8000",
            vec![shared_node("a", 3, 6667)],
            vec![vram(4000), vram(8000), vram(8000)],
            false,
        ),
        ("the whole card", vec![shared_node("a", 1, 81_559)], vec![vram(81_559)], true),
        ("one MiB more than the card", vec![shared_node("a", 1, 81_559)], vec![vram(81_560)], false),
        ("two cards' worth on one", vec![shared_node("a", 2, 81_559)], vec![vram(163_118)], false),
        ("23 of 2000 on 46068", vec![shared_node("a", 1, 46_068)], vec![vram(2000); 23], true),
        ("24 of 2000 on 46068", vec![shared_node("a", 1, 46_068)], vec![vram(2000); 24], false),
        ("five of 8000 on 32600", vec![shared_node("a", 1, 32_600)], vec![vram(8000); 5], false),
        ("four of 8000 on 32600", vec![shared_node("a", 1, 32_600)], vec![vram(8000); 4], true),
        ("two cards of one node", vec![shared_node("a", 2, 8000)], vec![vram_on(8000, 2)], true),
        (
            "two cards of two nodes",
            vec![shared_node("a", 1, 8000), shared_node("b", 1, 8000)],
            vec![vram_on(8000, 2)],
            false,
        ),
        ("halves", vec![shared_node("a", 1, 10_001)], vec![fraction(500_000_000); 2], false),
        ("halves of an even card", vec![shared_node("a", 1, 10_000)], vec![fraction(500_000_000); 2], true),
        (
            "pairs of cards, the tightest first is wrong",
            vec![shared_node("a", 3, 8000)],
            vec![vram_on(4000, 2); 3],
            true,
        ),
    ] {
        let request = gang("g", shapes);
        let lines = placed(&cluster(nodes), &request);
        assert_eq!(lines.len(), if fits { request.members.len() } else { 0 }, "{what}");
    }
}

#[test]
fn cards_of_unknown_size_or_use_are_not_shared() {
    let fits = |change: &dyn Fn(&mut Node), holder: Option<(Shape, CardAllocation)>| {
        let mut node = shared_node("a", 2, 8000);
        change(&mut node);
        let mut snapshot = cluster([node]);
        if let Some((shape, cards)) = holder {
            charge(&mut snapshot, "holder", "a", shape, cards);
        }
        !placed(&snapshot, &gang("g", [vram(1000)])).is_empty()
    };
    assert!(fits(&|_| {}, None));
    assert!(!fits(&|n| n.gpus.vram_each = None, None), "no label nvidia.com/gpu.memory");
    assert!(!fits(&|n| n.gpus.mig = true, None), "MIG");
    assert!(!fits(&|n| n.gpus.cards = 0, None), "no cards");
    for sharing in [GpuSharing::No, GpuSharing::LabelOnly, GpuSharing::TaintOnly] {
        assert!(!fits(&|n| n.gpus.sharing = sharing, None), "{sharing:?}");
    }
    assert!(fits(&|_| {}, Some((vram(1000), CardAllocation::Known(vec![1])))));
    assert!(!fits(&|_| {}, Some((vram(1000), CardAllocation::Unknown))), "the card is unknown");
    assert!(!fits(&|_| {}, Some((vram(1000), CardAllocation::Known(vec![7])))), "there is no card 7");
    assert!(!fits(&|_| {}, Some((gpus(1), CardAllocation::Unshared))), "a whole GPU on a shared node");
}

#[test]
fn whole_gpus_and_shares_never_mix() {
    let mut tolerating = gpus(1);
    tolerating.tolerations.push(toleration(""));
    let on = |mode, node: Node, holder: Option<Shape>, shape: &Shape| {
        let mut snapshot = Snapshot::new(mode);
        snapshot.set_node(node);
        if let Some(shape) = holder {
            let cards =
                if shape.share.is_some() { CardAllocation::Known(vec![0]) } else { CardAllocation::Unshared };
            charge(&mut snapshot, "holder", "a", shape, cards);
        }
        !placed(&snapshot, &gang("g", [shape.clone()])).is_empty()
    };
    let (plain, shared) = (gpu_node("a", 4, 8000), shared_node("a", 4, 8000));
    use SharingMode::{Any, Labelled};
    assert!(on(Labelled, plain.clone(), None, &gpus(1)));
    assert!(!on(Labelled, shared.clone(), None, &tolerating), "tolerating the taint is not enough");
    assert!(on(Any, plain.clone(), None, &vram(1000)));
    assert!(!on(Any, plain.clone(), Some(gpus(1)), &vram(1000)));
    assert!(!on(Any, plain.clone(), Some(vram(1000)), &gpus(1)));
    assert!(on(Any, plain.clone(), Some(vram(1000)), &vram(1000)));
    assert!(!on(Any, shared, None, &tolerating));
    let mut snapshot = Snapshot::new(Any);
    snapshot.set_node(plain);
    assert!(placed(&snapshot, &gang("both", [gpus(1), vram(1000)])).is_empty(), "within one gang neither");
}

#[test]
fn taints_selectors_and_readiness_are_respected() {
    let check = |what: &str, change: &dyn Fn(&mut Node, &mut Shape), fits: bool| {
        let (mut node, mut shape) = (node("a"), cpu(1000));
        change(&mut node, &mut shape);
        assert_eq!(!placed(&cluster([node]), &gang("g", [shape])).is_empty(), fits, "{what}");
    };
    let blocked = |effect| taint("test", "blocked", effect);
    check("a plain node", &|_, _| {}, true);
    check("not ready", &|n, _| n.ready = false, false);
    check("cordoned", &|n, _| n.unschedulable = true, false);
    check(
        "cordoned and tolerated",
        &|n, s| {
            n.unschedulable = true;
            s.tolerations.push(toleration(names::TAINT_UNSCHEDULABLE));
        },
        true,
    );
    check("NoSchedule", &|n, _| n.taints.push(blocked(TaintEffect::NoSchedule)), false);
    check("NoExecute", &|n, _| n.taints.push(blocked(TaintEffect::NoExecute)), false);
    check("PreferNoSchedule", &|n, _| n.taints.push(blocked(TaintEffect::PreferNoSchedule)), true);
    check(
        "tolerated",
        &|n, s| {
            n.taints.push(blocked(TaintEffect::NoSchedule));
            s.tolerations.push(toleration("test"));
        },
        true,
    );
    check(
        "selector",
        &|_, s| {
            s.node_affinity.selector.insert(str("zone"), str("a"));
        },
        false,
    );
    check(
        "selector met",
        &|n, s| {
            n.labels.insert(str("zone"), str("a"));
            s.node_affinity.selector.insert(str("zone"), str("a"));
        },
        true,
    );
    for (host, fits) in [("a", true), ("b", false)] {
        check(
            "host name",
            &|_, s| {
                s.node_affinity.selector.insert(str(names::HOSTNAME_LABEL), str(host));
            },
            fits,
        );
        use crate::objects::affinity::{AffinityTerm, Operator, Requirement};
        check(
            "pinned by name",
            &|_, s| {
                let pin = Requirement { key: str("metadata.name"), operator: Operator::In(vec![str(host)]) };
                s.node_affinity.terms =
                    Some(vec![AffinityTerm { expressions: Vec::new(), fields: vec![pin] }]);
            },
            fits,
        );
    }
    check("no capacity for pods", &|n, _| n.max_pods = 0, false);
    check("cpu to the last", &|n, _| n.allocatable.cpu = MilliCpu(1000), true);
    check("cpu", &|n, _| n.allocatable.cpu = MilliCpu(999), false);
    check("memory", &|_, s| s.requests.memory = Bytes((256 << 30) + 1), false);
    check("ephemeral storage", &|_, s| s.requests.ephemeral_storage = Bytes((100 << 30) + 1), false);
    check(
        "an extended resource of no node",
        &|_, s| {
            s.requests.extended.insert(str("example.com/fpga"), 1);
        },
        false,
    );
}

#[test]
fn host_ports_conflict_as_in_kube_scheduler() {
    let port = |address: &str, protocol: &str, number| {
        let mut shape = cpu(100);
        shape.host_ports.insert((str(address), str(protocol), number));
        shape
    };
    for (held, wanted, fits) in [
        (port("", "TCP", 80), port("", "TCP", 80), false),
        (port("", "TCP", 80), port("10.0.0.1", "TCP", 80), false),
        (port("10.0.0.2", "TCP", 80), port("10.0.0.1", "TCP", 80), true),
        (port("", "TCP", 80), port("", "UDP", 80), true),
        (port("", "TCP", 80), port("", "TCP", 81), true),
    ] {
        let mut snapshot = cluster([node("a")]);
        charge(&mut snapshot, "holder", "a", held.clone(), CardAllocation::Unshared);
        assert_eq!(
            placed(&snapshot, &gang("g", [wanted.clone()])).len(),
            usize::from(fits),
            "{held:?} {wanted:?}"
        );
        assert_eq!(placed(&cluster([node("a")]), &gang("g", [held, wanted])).len(), 2 * usize::from(fits));
    }
}

#[test]
fn a_gang_gets_as_many_as_fit_when_its_quorum_is_met_and_none_otherwise() {
    // Capacity for three of four pods.
    let mut small = node("a");
    small.max_pods = 3;
    let snapshot = cluster([small]);
    for (quorum, active, expected) in
        [(4, 0, 0), (3, 0, 3), (1, 0, 3), (4, 1, 3), (4, 4, 3), (5, 1, 0), (5, 2, 3)]
    {
        let mut request = gang("g", vec![cpu(100); 4]);
        request.quorum = Quorum::Count(quorum);
        request.active.insert(None, active);
        assert_eq!(placed(&snapshot, &request).len(), expected, "quorum {quorum}, active {active}");
    }
}

#[test]
fn each_subgroup_has_its_quorum() {
    let mut small = node("a");
    small.max_pods = 3;
    let snapshot = cluster([small]);
    let request = |leaders: u32, workers: u32| {
        let mut request = gang("g", vec![cpu(100); 5]);
        for (index, member) in request.members.iter_mut().enumerate() {
            member.role = Some(str(if index < 3 { "worker" } else { "leader" }));
        }
        let children = BTreeMap::from([
            (str("leader"), Quorum::Count(leaders)),
            (str("worker"), Quorum::Count(workers)),
        ]);
        request.quorum = Quorum::Groups { min: 2, children };
        request
    };
    assert_eq!(placed(&snapshot, &request(1, 2)).len(), 3);
    assert_eq!(placed(&snapshot, &request(2, 1)).len(), 3, "the workers leave capacity for both leaders");
    assert_eq!(placed(&snapshot, &request(2, 2)).len(), 0);
}

#[test]
fn the_hardest_member_is_first_and_the_tightest_card_is_used() {
    // Greedy placement in request order would put the small pod on the large card.
    let nodes = [shared_node("a", 1, 8000), shared_node("b", 1, 5000)];
    assert_eq!(placed(&cluster(nodes), &gang("g", [vram(4000), vram(8000)])), ["g-0 -> b[0]", "g-1 -> a[0]"]);
    // Best fit alone fails here (6 + 4 | 5 + 5 on two cards of 10). The search finds the placement.
    let two = [shared_node("a", 1, 10), shared_node("b", 1, 10)];
    for order in [[5, 6, 4, 5], [6, 5, 5, 4], [4, 5, 5, 6]] {
        assert_eq!(placed(&cluster(two.clone()), &gang("g", order.map(vram))).len(), 4, "{order:?}");
    }
    // Largest first fails here: 7 + 3 | 4 + 4 + 2 after 7, 4 | ... needs the search.
    let snapshot = cluster([shared_node("a", 1, 12), shared_node("b", 1, 12)]);
    assert_eq!(placed(&snapshot, &gang("g", [6, 6, 4, 4, 4].map(vram))).len(), 5);
    // Whole GPUs are packed: the fuller node is first.
    let mut snapshot = cluster([gpu_node("a", 8, 1), gpu_node("b", 8, 1)]);
    charge(&mut snapshot, "holder", "b", gpus(6), CardAllocation::Unshared);
    assert_eq!(placed(&snapshot, &gang("g", [gpus(2)])), ["g-0 -> b"]);
    // Pods without GPUs avoid nodes with GPUs.
    assert_eq!(placed(&cluster([gpu_node("a", 8, 1), node("b")]), &gang("g", [cpu(100)])), ["g-0 -> b"]);
}

#[test]
fn later_gangs_see_the_assignments_of_earlier_ones() {
    let snapshot = cluster([gpu_node("a", 4, 1)]);
    let gangs = [gang("first", vec![gpus(1); 3]), gang("second", vec![gpus(1); 2]), gang("third", [gpus(1)])];
    let (made, _) = plan(&snapshot, &gangs);
    let names: Vec<&str> = made.gangs.iter().map(|gang| &*gang.gang.name).collect();
    assert_eq!(names, ["first", "third"]);
}

#[test]
fn a_large_gang_of_equal_pods_is_counted_and_not_searched() {
    let snapshot = cluster((0..300).map(|index| gpu_node(&format!("n{index:03}"), 8, 1)));
    assert_eq!(placed(&snapshot, &gang("fits", vec![gpus(1); 2400])).len(), 2400);
    assert_eq!(placed(&snapshot, &gang("not", vec![gpus(1); 2401])).len(), 0);
}

#[cfg(feature = "sabotage")]
#[test]
fn scrambled_ties_are_detected_by_planning_twice() {
    use crate::planner::sabotage::scramble_ties;
    let snapshot = cluster((0..20).map(|index| node(&format!("n{index:02}"))));
    let gangs = [gang("g", vec![cpu(100)])];
    assert_eq!(plan(&snapshot, &gangs), plan(&snapshot, &gangs));
    scramble_ties(Some(1));
    let plans: BTreeSet<Vec<String>> = (0..10).map(|_| lines(&plan(&snapshot, &gangs).0)).collect();
    scramble_ties(None);
    assert!(plans.len() > 1, "{plans:?}");
    assert_eq!(plan(&snapshot, &gangs), plan(&snapshot, &gangs));
}
