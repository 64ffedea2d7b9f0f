//! Random small clusters compared with a brute-force search that shares no code with the planner: plans are
//! valid, and gangs without a plan do not fit.

use super::*;
use crate::model::Reason;
use crate::planner::{PlanningOutcome, check, plan};
use crate::shape::HostPort;
use crate::snapshot::port_conflict;

/// The oracle's state of a node.
#[derive(Clone)]
struct Free {
    node: Node,
    cpu: i128,
    memory: i128,
    pods: i128,
    gpus: i128,
    cards: Vec<i128>,
    ports: Vec<HostPort>,
    shares: bool,
    unknown: bool,
    whole: bool,
}

fn gpus_of(shape: &Shape) -> i128 {
    i128::from(shape.requests.extended(names::NVIDIA_GPU))
}

fn world(snapshot: &Snapshot) -> Vec<Free> {
    let mut all = Vec::new();
    for name in names_of(snapshot) {
        let node = snapshot.node(&name).expect("just listed").clone();
        let each = node.gpus.vram_each.map_or(0, |mib| i128::from(mib.0));
        let mut free = Free {
            cpu: i128::from(node.allocatable.cpu.0),
            memory: i128::from(node.allocatable.memory.0),
            pods: i128::from(node.max_pods),
            gpus: i128::from(node.allocatable.extended(names::NVIDIA_GPU)),
            cards: vec![each; node.gpus.cards as usize],
            ports: Vec::new(),
            shares: false,
            unknown: false,
            whole: false,
            node,
        };
        for (_, charge) in snapshot.charges().filter(|(_, charge)| charge.node == name) {
            take(
                &mut free,
                &charge.shape,
                match &charge.cards {
                    CardAllocation::Known(cards) => Some(cards),
                    _ => None,
                },
            );
        }
        all.push(free);
    }
    all
}

fn take(free: &mut Free, shape: &Shape, cards: Option<&Vec<u32>>) {
    free.cpu -= i128::from(shape.requests.cpu.0);
    free.memory -= i128::from(shape.requests.memory.0);
    free.pods -= 1;
    free.gpus -= gpus_of(shape);
    free.whole |= gpus_of(shape) > 0;
    free.ports.extend(shape.host_ports.iter().cloned());
    if let Some(share) = &shape.share {
        free.shares = true;
        let each = free.node.gpus.vram_each.map_or(0, |mib| i128::from(share.on_card(mib).0));
        match cards {
            Some(cards) if cards.iter().all(|card| (*card as usize) < free.cards.len()) => {
                cards.iter().for_each(|card| free.cards[*card as usize] -= each);
            }
            _ => free.unknown = true,
        }
    }
}

/// Every choice of cards for a pod on a node.
fn ways(free: &Free, shape: &Shape, mode: SharingMode) -> Vec<Vec<u32>> {
    let node = &free.node;
    let needs = |need: i128, has: i128| need == 0 || need <= has;
    let cordon = taint(names::TAINT_UNSCHEDULABLE, "", TaintEffect::NoSchedule);
    let tolerated = node.taints.iter().all(|taint| {
        taint.effect == TaintEffect::PreferNoSchedule || shape.tolerations.iter().any(|t| t.tolerates(taint))
    });
    let ports = shape.host_ports.iter().all(|port| free.ports.iter().all(|held| !port_conflict(port, held)));
    let fits = node.ready
        && (!node.unschedulable || shape.tolerations.iter().any(|t| t.tolerates(&cordon)))
        && tolerated
        && shape.node_affinity.matches(&node.name, &node.labels)
        && ports
        && free.pods >= 1
        && needs(i128::from(shape.requests.cpu.0), free.cpu)
        && needs(i128::from(shape.requests.memory.0), free.memory)
        && needs(gpus_of(shape), free.gpus);
    let shared = node.gpus.sharing == GpuSharing::Vram;
    if !fits || (gpus_of(shape) > 0 && (shared || free.shares)) {
        return Vec::new();
    }
    let Some(share) = &shape.share else { return vec![Vec::new()] };
    let open = (shared || mode == SharingMode::Any) && !free.whole && !free.unknown && !node.gpus.mig;
    let Some(each) = node.gpus.vram_each.filter(|_| open) else { return Vec::new() };
    let each = i128::from(share.on_card(each).0);
    let mut ways = Vec::new();
    for mask in 0_u32..1 << free.cards.len() {
        let cards: Vec<u32> =
            (0..32).filter(|card| (*card as usize) < free.cards.len() && mask & (1 << card) != 0).collect();
        if cards.len() == share.devices as usize
            && cards.iter().all(|card| free.cards[*card as usize] >= each)
        {
            ways.push(cards);
        }
    }
    ways
}

fn complete(quorum: &Quorum, roles: &BTreeMap<Option<crate::model::Str>, u32>) -> bool {
    match quorum {
        Quorum::Count(least) => roles.values().sum::<u32>() >= *least,
        Quorum::Groups { min, children } => {
            let met = children.iter().filter(|(name, child)| {
                let Quorum::Count(least) = child else { unreachable!("the generator makes flat trees") };
                roles.get(&Some((*name).clone())).copied().unwrap_or(0) >= *least
            });
            met.count() >= *min as usize
        }
        Quorum::Total { min_members: least, quorum } => {
            roles.values().sum::<u32>() >= *least && complete(quorum, roles)
        }
    }
}

/// The most members that can start together, by exhaustive search; 0 when the quorum cannot be met.
fn most(
    world: &mut Vec<Free>,
    request: &PlanningRequest,
    from: usize,
    roles: &mut BTreeMap<Option<crate::model::Str>, u32>,
    placed: usize,
    mode: SharingMode,
    best: &mut usize,
) {
    let left = request.members.len() - from;
    if placed + left <= *best {
        return;
    }
    if left == 0 {
        if complete(&request.quorum, roles) {
            *best = placed;
        }
        return;
    }
    let member = &request.members[from];
    for index in 0..world.len() {
        for cards in ways(&world[index], &member.shape, mode) {
            let before = world[index].clone();
            take(&mut world[index], &member.shape, Some(&cards));
            *roles.entry(member.role.clone()).or_default() += 1;
            most(world, request, from + 1, roles, placed + 1, mode, best);
            *roles.get_mut(&member.role).expect("just there") -= 1;
            world[index] = before;
        }
    }
    most(world, request, from + 1, roles, placed, mode, best);
}

fn random_shape(random: &mut Random) -> Shape {
    let mut shape = match random.below(8) {
        0 => gpus(1 + random.below(2)),
        1 => cpu(1000 * (1 + random.below(4))),
        2 => vram_on(1000 * (1 + random.below(6)), 2),
        3 => fraction(pick(random, &[250_000_000, 500_000_000, 333_333_333])),
        _ => vram(1000 * (1 + random.below(8))),
    };
    shape.requests.cpu = MilliCpu(pick(random, &[0, 0, 500, 1000]) + shape.requests.cpu.0);
    if random.one_in(8) {
        shape.host_ports.insert((str(pick(random, &["", "10.0.0.1"])), str("TCP"), 80));
    }
    if random.one_in(6) {
        shape.node_affinity.selector.insert(str("zone"), str(pick(random, &["a", "b"])));
    }
    if random.one_in(10) {
        shape.node_affinity.selector.insert(str(names::HOSTNAME_LABEL), str(pick(random, &["n0", "n1"])));
    }
    if random.one_in(8) {
        shape.tolerations.push(toleration("test"));
    }
    if random.one_in(12) {
        shape.tolerations.push(toleration(""));
    }
    shape
}

fn random_node(random: &mut Random, index: u64) -> Node {
    let name = format!("n{index}");
    let cards = u32::try_from(random.below(4)).expect("small");
    let mut made = match random.below(5) {
        0 => node(&name),
        1 => gpu_node(&name, cards, 8000),
        _ => shared_node(&name, cards.max(1), 1000 * (4 + random.below(9))),
    };
    made.allocatable.cpu = MilliCpu(1000 * (1 + random.below(5)));
    made.max_pods = 1 + random.below(5);
    made.labels.insert(str("zone"), str(pick(random, &["a", "b"])));
    if random.one_in(8) {
        made.taints.push(taint(
            "test",
            "blocked",
            pick(random, &[TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule]),
        ));
    }
    made.ready = !random.one_in(20);
    made.unschedulable = random.one_in(20);
    made.gpus.mig = random.one_in(20);
    if random.one_in(20) {
        made.gpus.vram_each = None;
    }
    made
}

fn random_world(random: &mut Random) -> (Vec<Node>, Vec<(String, Shape, CardAllocation)>, SharingMode) {
    let nodes: Vec<Node> = (0..1 + random.below(4)).map(|index| random_node(random, index)).collect();
    let charges = (0..random.below(4))
        .map(|_| {
            let shape = random_shape(random);
            let cards = match &shape.share {
                None => CardAllocation::Unshared,
                Some(share) if !random.one_in(10) => CardAllocation::Known((0..share.devices).collect()),
                Some(_) => CardAllocation::Unknown,
            };
            (format!("n{}", random.below(4)), shape, cards)
        })
        .collect();
    (nodes, charges, if random.one_in(4) { SharingMode::Any } else { SharingMode::Labelled })
}

fn build(
    nodes: &[Node],
    charges: &[(String, Shape, CardAllocation)],
    mode: SharingMode,
    order: impl Iterator<Item = usize>,
) -> Snapshot {
    let mut snapshot = Snapshot::new(mode);
    for index in order {
        snapshot.set_node(nodes[index].clone());
    }
    for (index, (node, shape, cards)) in charges.iter().enumerate() {
        charge(&mut snapshot, &format!("held-{index}"), node, shape.clone(), cards.clone());
    }
    snapshot
}

fn random_gang(random: &mut Random, name: &str, most_members: u64) -> PlanningRequest {
    let kinds: Vec<Shape> = (0..1 + random.below(3)).map(|_| random_shape(random)).collect();
    let members = 1 + random.below(most_members);
    let mut request = gang(name, (0..members).map(|_| pick(random, &kinds)).collect::<Vec<_>>());
    let members = u32::try_from(members).expect("small");
    if random.one_in(2) {
        request.quorum =
            Quorum::Count(1 + u32::try_from(random.below(u64::from(members) + 1)).expect("small"));
    }
    if random.one_in(4) {
        for member in &mut request.members {
            member.role = Some(str(pick(random, &["x", "y"])));
        }
        let min = 1 + u32::try_from(random.below(2)).expect("small");
        let mut least = || Quorum::Count(u32::try_from(random.below(3)).expect("small"));
        request.quorum =
            Quorum::Groups { min, children: BTreeMap::from([(str("x"), least()), (str("y"), least())]) };
        if random.one_in(3) {
            let least = u32::try_from(random.below(u64::from(members) + 2)).expect("small");
            request.quorum = Quorum::Total { min_members: least, quorum: Box::new(request.quorum) };
        }
    }
    if random.one_in(5) {
        request.active.insert(request.members[0].role.clone(), 1);
        if random.one_in(2) {
            request.gang_nodes.insert(pick(random, &["n0", "n1", "n7"]).into());
        }
    }
    if random.one_in(5) {
        request.min_resources.cpu = MilliCpu(1000 * random.below(9));
        let gpus = random.below(4);
        request.min_resources.extended =
            (gpus > 0).then(|| (str(names::NVIDIA_GPU), gpus)).into_iter().collect();
    }
    request
}

/// Whether `minResources` of the group are free in total.
fn enough(world: &[Free], request: &PlanningRequest) -> bool {
    let open = || world.iter().filter(|free| free.node.ready && !free.node.unschedulable);
    let whole = |free: &&Free| free.node.gpus.sharing != GpuSharing::Vram && !free.shares;
    let cpu: i128 = open().map(|free| free.cpu.max(0)).sum();
    let gpus: i128 = open().filter(whole).map(|free| free.gpus.max(0)).sum();
    let asked = request.min_resources.extended(names::NVIDIA_GPU);
    cpu >= i128::from(request.min_resources.cpu.0) && gpus >= i128::from(asked)
}

#[test]
fn plans_are_valid_and_unplanned_gangs_do_not_fit() {
    let (mut placed, mut refused, mut unsure, mut short) = (0, 0, 0, 0);
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let (nodes, charges, mode) = random_world(&mut random);
        let snapshot = build(&nodes, &charges, mode, 0..nodes.len());
        snapshot.assert_consistent();
        let request = random_gang(&mut random, "g", 4);
        let gangs = [request];
        let (made, report) = plan(&snapshot, &gangs);
        assert_eq!(check(&snapshot, &gangs, &made), Ok(()), "seed {seed}");
        let request = &gangs[0];
        let got = made.gangs.first().map_or(0, |gang| gang.assignments.len());
        let exhausted = match &report.outcomes[&request.gang] {
            PlanningOutcome::Placed { members, unplaced: left } => {
                assert_eq!(*members as usize, got, "seed {seed}");
                assert_eq!(left.is_none(), got == request.members.len(), "seed {seed}");
                left.as_ref().is_some_and(|left| left.reason == Reason::SearchExhausted)
            }
            PlanningOutcome::Waiting(why) => {
                assert_eq!(got, 0, "seed {seed}");
                assert!(!why.message.is_empty(), "seed {seed}");
                why.reason == Reason::SearchExhausted
            }
        };
        let refuted = crate::planner::is_unschedulable(&snapshot, request);
        assert!(if refuted { got == 0 } else { got > 0 || exhausted }, "seed {seed}: {refuted}");
        let mut best = 0;
        let mut roles = request.active.clone();
        let each_alone = complete(&request.quorum, &roles);
        let held_back = !each_alone && !enough(&world(&snapshot), request);
        most(&mut world(&snapshot), request, 0, &mut roles, 0, mode, &mut best);
        if held_back {
            short += u32::from(best > 0);
            best = 0;
        }
        if each_alone {
            // Members are independent and placed in order: as many as fit that way, which may be fewer.
            assert!(got <= best && (got > 0 || best == 0), "seed {seed}: {got} of {best}");
        } else if exhausted {
            unsure += 1;
        } else {
            assert_eq!(got, best, "seed {seed}: {report:?}\n{request:?}");
        }
        if got > 0 { placed += 1 } else { refused += 1 }
    }
    assert!(placed > 500 && refused > 500, "both happen: {placed} placed, {refused} refused");
    assert!(short > 20, "{short} gangs fit while minResources are not free");
    assert!(unsure < 20, "{unsure} searches gave up on small clusters");
}

#[test]
fn the_order_of_nodes_and_charges_does_not_matter() {
    for seed in 10_000..10_500 {
        let mut random = Random::new(seed);
        let (nodes, charges, mode) = random_world(&mut random);
        let gangs: Vec<PlanningRequest> =
            (0..3).map(|index| random_gang(&mut random, &format!("g{index}"), 4)).collect();
        let forward = build(&nodes, &charges, mode, 0..nodes.len());
        let mut backward = build(&nodes, &charges, mode, (0..nodes.len()).rev());
        // Nodes join and leave. That leaves no trace.
        for node in &nodes {
            backward.remove_node(&node.name);
            backward.set_node(random_node(&mut random, 0));
            backward.set_node(node.clone());
        }
        let wanted: BTreeSet<NodeName> = nodes.iter().map(|n| n.name.clone()).collect();
        for name in names_of(&backward).difference(&wanted) {
            backward.remove_node(name);
        }
        for node in &nodes {
            backward.set_node(node.clone());
        }
        backward.assert_consistent();
        assert_eq!(forward, backward, "seed {seed}");
        let (first, second) = (plan(&forward, &gangs), plan(&backward, &gangs));
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(format!("{first:?}"), format!("{:?}", plan(&forward, &gangs)), "seed {seed}");
    }
}

#[test]
fn packed_and_full_numbers_give_the_same_result() {
    use crate::planner::requirements::PodRequirements;
    let mut decided = 0;
    for seed in 20_000..22_000 {
        let mut random = Random::new(seed);
        let (nodes, charges, mode) = random_world(&mut random);
        let snapshot = build(&nodes, &charges, mode, 0..nodes.len());
        for _ in 0..4 {
            let shape = random_shape(&mut random);
            let need = PodRequirements::new(&shape, &snapshot);
            for ((state, hot), row) in
                snapshot.states().iter().zip(snapshot.packed_nodes()).zip(snapshot.packed_cards())
            {
                let name = &state.node.name;
                let full = need
                    .check_class(state)
                    .and_then(|avoid| need.fits(&state.node, &state.free_resources).map(|()| avoid));
                if let Some(refused) = need.check_packed(hot) {
                    assert_eq!(refused.err(), full.err(), "seed {seed}, node {name}: {shape:?}");
                    decided += 1;
                }
                if let Some(score) = need.score_packed(hot, row) {
                    let full = full.ok().map(|avoid| need.score(state, &state.free_resources, avoid));
                    assert_eq!(score, full, "seed {seed}, node {name}: {shape:?}");
                }
                // The count equals the number of pods that fit one after the other.
                let mut alone = Snapshot::new(mode);
                alone.set_node(state.node.clone());
                for (uid, charge) in snapshot.charged_to(name) {
                    alone.charge(uid, charge.clone());
                }
                if full.is_ok() && need.max_fitting(&state.node, &state.free_resources, 9) <= 5 {
                    let mut request = gang("g", vec![shape.clone(); 6]);
                    request.quorum = Quorum::Count(1);
                    let (made, _) = plan(&alone, &[request]);
                    let placed = made.gangs.first().map_or(0, |gang| gang.assignments.len());
                    assert_eq!(
                        placed as u64,
                        need.max_fitting(&state.node, &state.free_resources, 6),
                        "seed {seed}, node {name}"
                    );
                }
            }
        }
    }
    assert!(decided > 1000, "packed numbers are mostly exact: {decided}");
}

#[test]
fn the_end_of_the_pod_in_the_remedy_lets_the_gang_fit() {
    let (mut named, mut waiting) = (0, 0);
    for seed in 30_000..34_000 {
        let mut random = Random::new(seed);
        let (nodes, charges, mode) = random_world(&mut random);
        let mut snapshot = build(&nodes, &charges, mode, 0..nodes.len());
        let gangs = [random_gang(&mut random, "g", 4)];
        let (made, report) = plan(&snapshot, &gangs);
        let (PlanningOutcome::Waiting(why) | PlanningOutcome::Placed { unplaced: Some(why), .. }) =
            &report.outcomes[&gangs[0].gang]
        else {
            continue;
        };
        waiting += 1;
        // A remedy that names several pods says "a and b".
        let single = |remedy: &String| {
            let (pod, _) = remedy.strip_prefix("wait for default/")?.split_once(" to end")?;
            (!pod.contains(' ')).then(|| pod.to_owned())
        };
        let Some(pod) = why.remedy.as_ref().and_then(single) else { continue };
        named += 1;
        let before = lines(&made).len();
        assert!(snapshot.release(&PodUid(str(format!("uid-{pod}")))), "seed {seed}: {why:?}");
        let after = lines(&plan(&snapshot, &gangs).0).len();
        assert!(after > before, "seed {seed}: {before} placed, {after} without {pod}");
    }
    assert!(named > 50, "{named} remedies for {waiting} waiting gangs");
}
