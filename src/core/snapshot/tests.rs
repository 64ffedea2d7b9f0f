//! Compares running totals with a recount, and covers overbooked nodes, deleted nodes and unknown cards.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::*;
use crate::gpu::{GpuShare, ShareSize};
use crate::model::random::Random;
use crate::model::{Bytes, MilliCpu, Resources, VramMib, str};
use crate::objects::{GpuInventory, GpuSharing, PodLabels};

fn shared(name: &str, cards: u32, mib: u64) -> Node {
    Node {
        name: name.into(),
        labels: BTreeMap::from([(str("kubernetes.io/hostname"), str(name)), (str("zone"), str("a"))]),
        taints: Vec::new(),
        unschedulable: false,
        ready: true,
        allocatable: Resources {
            cpu: MilliCpu(8000),
            memory: Bytes(64 << 30),
            ephemeral_storage: Bytes(0),
            extended: BTreeMap::from([(str("nvidia.com/gpu"), u64::from(cards))]),
        },
        max_pods: 10,
        gpus: GpuInventory { cards, vram_each: Some(VramMib(mib)), mig: false, sharing: GpuSharing::Vram },
    }
}

fn share(mib: u64) -> Shape {
    let mut shape = Shape {
        share: Some(GpuShare { size: ShareSize::Vram(VramMib(mib)), devices: 1 }),
        ..Shape::default()
    };
    shape.requests.cpu = MilliCpu(1000);
    shape
}

fn whole(gpus: u64) -> Shape {
    let mut shape = Shape::default();
    shape.requests.extended.insert(str("nvidia.com/gpu"), gpus);
    shape
}

fn on(node: &str, shape: Shape, cards: CardAllocation) -> Charge {
    Charge {
        key: None,
        node: node.into(),
        labels: PodLabels::new("ml", [("app", "a")]),
        terminating: false,
        shape: Arc::new(shape),
        cards,
        state: ChargeState::Bound,
    }
}

fn free(snapshot: &Snapshot, node: &str) -> Vec<u64> {
    snapshot.node_usage(&node.into()).expect("it is there").cards().map(|card| card.free.0).collect()
}

fn state(snapshot: &Snapshot, node: &str) -> CardState {
    snapshot.node_usage(&node.into()).expect("it is there").card_state
}

fn hash(snapshot: &Snapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    snapshot.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn a_charge_uses_resources_and_a_release_frees_them() {
    let mut snapshot = Snapshot::new(SharingMode::Labelled);
    assert!(snapshot.set_node(shared("a", 2, 8000)));
    assert!(!snapshot.set_node(shared("a", 2, 8000)), "nothing new");
    let empty = snapshot.clone();
    assert!(snapshot.charge(&"p".into(), on("a", share(3000), CardAllocation::Known(vec![1]))));
    assert!(
        !snapshot.charge(&"p".into(), on("a", share(3000), CardAllocation::Known(vec![1]))),
        "nothing new"
    );
    assert_eq!(free(&snapshot, "a"), [8000, 5000]);
    let view = snapshot.node_usage(&"a".into()).expect("it is there");
    assert_eq!((view.cpu_free, view.pods_free, view.extended_free("nvidia.com/gpu")), (7000, 9, 2));
    assert_eq!(view.holders(1).map(|(uid, _)| uid.as_str()).collect::<Vec<_>>(), ["p"]);
    assert_eq!(view.holders(0).count(), 0);
    assert!(
        snapshot.charge(&"p".into(), on("a", share(1000), CardAllocation::Known(vec![0]))),
        "in place of the old one"
    );
    assert_eq!(free(&snapshot, "a"), [7000, 8000]);
    snapshot.assert_consistent();
    assert!(snapshot.release(&"p".into()));
    assert!(!snapshot.release(&"p".into()));
    snapshot.assert_consistent();
    assert_eq!((&snapshot, hash(&snapshot)), (&empty, hash(&empty)), "no trace is left");
}

#[test]
fn a_charge_applies_again_when_its_node_rejoins() {
    let mut snapshot = Snapshot::new(SharingMode::Labelled);
    snapshot.charge(&"p".into(), on("a", share(3000), CardAllocation::Known(vec![0])));
    snapshot.set_node(shared("a", 1, 8000));
    assert_eq!(free(&snapshot, "a"), [5000]);
    assert!(snapshot.remove_node(&"a".into()));
    assert!(!snapshot.remove_node(&"a".into()));
    assert!(snapshot.node(&"a".into()).is_none());
    assert!(snapshot.charged(&"p".into()).is_some());
    snapshot.set_node(shared("a", 1, 4000));
    assert_eq!(free(&snapshot, "a"), [1000], "by the size that it has now");
    snapshot.assert_consistent();
}

#[test]
fn an_overbooked_node_has_nothing_free_and_recovers_exactly() {
    let mut snapshot = Snapshot::new(SharingMode::Labelled);
    snapshot.set_node(shared("a", 1, 8000));
    let mut absurd = share(u64::MAX);
    absurd.requests.cpu = MilliCpu(u64::MAX);
    for name in ["p", "q"] {
        snapshot.charge(&name.into(), on("a", absurd.clone(), CardAllocation::Known(vec![0])));
    }
    let view = snapshot.node_usage(&"a".into()).expect("it is there");
    assert_eq!((view.cpu_free, free(&snapshot, "a")), (0, vec![0]));
    snapshot.release(&"p".into());
    snapshot.release(&"q".into());
    assert_eq!(free(&snapshot, "a"), [8000]);
    snapshot.assert_consistent();
}

#[test]
fn a_node_with_unknown_cards_in_use_cannot_share_cards() {
    let after = |shape: Shape, cards: CardAllocation| {
        let mut snapshot = Snapshot::new(SharingMode::Labelled);
        snapshot.set_node(shared("a", 2, 8000));
        snapshot.charge(&"p".into(), on("a", shape, cards));
        snapshot.assert_consistent();
        let seen = state(&snapshot, "a");
        snapshot.release(&"p".into());
        assert_eq!(state(&snapshot, "a"), CardState::Open, "until that pod ends");
        seen
    };
    assert_eq!(after(share(1), CardAllocation::Known(vec![1])), CardState::Open);
    assert_eq!(after(share(1), CardAllocation::Known(vec![2])), CardState::UnknownShare, "no such card");
    assert_eq!(
        after(share(1), CardAllocation::Known(vec![0, 1])),
        CardState::UnknownShare,
        "more than it asked for"
    );
    assert_eq!(after(share(1), CardAllocation::Known(vec![])), CardState::UnknownShare);
    assert_eq!(after(share(1), CardAllocation::Unshared), CardState::UnknownShare);
    assert_eq!(after(share(1), CardAllocation::Unknown), CardState::UnknownShare);
    assert_eq!(after(whole(1), CardAllocation::Unshared), CardState::WholeGpusHeld);
    assert_eq!(after(whole(0), CardAllocation::Unshared), CardState::Open);
}

#[test]
fn card_state_follows_labels_taints_and_sharing_mode() {
    let seen = |mode, change: &dyn Fn(&mut GpuInventory)| {
        let mut node = shared("a", 2, 8000);
        change(&mut node.gpus);
        let mut snapshot = Snapshot::new(mode);
        snapshot.set_node(node);
        state(&snapshot, "a")
    };
    use SharingMode::{Any, Labelled};
    assert_eq!(seen(Labelled, &|_| {}), CardState::Open);
    assert_eq!(seen(Labelled, &|g| g.sharing = GpuSharing::No), CardState::NotShared);
    assert_eq!(seen(Labelled, &|g| g.sharing = GpuSharing::LabelOnly), CardState::LabelOnly);
    assert_eq!(seen(Labelled, &|g| g.sharing = GpuSharing::TaintOnly), CardState::TaintOnly);
    assert_eq!(seen(Labelled, &|g| g.mig = true), CardState::Mig);
    assert_eq!(seen(Labelled, &|g| g.vram_each = None), CardState::MissingVramLabel);
    assert_eq!(seen(Labelled, &|g| g.cards = 0), CardState::NoCards);
    assert_eq!(seen(Any, &|g| g.sharing = GpuSharing::No), CardState::Open);
    assert_eq!(seen(Any, &|g| g.mig = true), CardState::Mig);
}

#[test]
fn snapshots_with_the_same_nodes_and_charges_are_equal_whatever_their_history() {
    for seed in 0..200_u64 {
        let mut random = Random::new(seed);
        let mut below = |end: u64| random.below(end);
        let mut snapshot = Snapshot::new(SharingMode::Labelled);
        let (mut nodes, mut charges) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..120 {
            let name = format!("n{}", below(5));
            let pod = PodUid(str(format!("p{}", below(12))));
            match below(6) {
                0 => {
                    snapshot.remove_node(&name.as_str().into());
                    nodes.remove(&name);
                }
                1 | 2 => {
                    let mut node =
                        shared(&name, 1 + u32::try_from(below(3)).expect("small"), 4000 + below(3) * 1000);
                    node.ready = below(3) > 0;
                    node.labels.insert(str("zone"), str(format!("{}", below(2))));
                    snapshot.set_node(node.clone());
                    nodes.insert(name, node);
                }
                3 => {
                    snapshot.release(&pod);
                    charges.remove(&pod);
                }
                _ => {
                    let card = u32::try_from(below(4)).expect("small");
                    let mut shape = if below(4) == 0 { whole(1) } else { share(1000 * below(9)) };
                    if below(3) == 0 {
                        shape.host_ports.insert((str(""), str("TCP"), 80));
                    }
                    let charge = on(&name, shape, CardAllocation::Known(vec![card]));
                    snapshot.charge(&pod, charge.clone());
                    charges.insert(pod, charge);
                }
            }
            snapshot.assert_consistent();
        }
        let mut direct = Snapshot::new(SharingMode::Labelled);
        for (pod, charge) in charges {
            direct.charge(&pod, charge);
        }
        for node in nodes.into_values() {
            direct.set_node(node);
        }
        assert_eq!((&snapshot, hash(&snapshot)), (&direct, hash(&direct)), "seed {seed}");
        let first = direct.nodes().next().map(|node| node.node.name.clone());
        if let Some(name) = first {
            direct.remove_node(&name);
            assert_ne!(snapshot, direct, "seed {seed}");
        }
    }
}
