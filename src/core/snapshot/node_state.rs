//! The state of one node: the sums of what is used and what is free.

use std::collections::{BTreeMap, BTreeSet};

use super::{CardAllocation, Charge, SharingMode};
use crate::gpu::GpuShare;
use crate::model::{Resources, Str, VramMib};
use crate::objects::{GpuSharing, Node, names};
use crate::shape::HostPort;

/// Whether the cards of a node can be shared by VRAM, and if not, why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CardState {
    /// They can.
    Open,
    /// The node has no GPU.
    #[default]
    NoCards,
    /// The node has GPUs and is not a shared node.
    NotShared,
    /// The node has the label `portcullis.dev/gpu-sharing=vram` without the taint.
    LabelOnly,
    /// The node has the taint `portcullis.dev/gpu-sharing=vram` without the label.
    TaintOnly,
    /// MIG partitions the cards.
    Mig,
    /// The label `nvidia.com/gpu.memory` is missing or not a number.
    MissingVramLabel,
    /// A pod holds whole GPUs, and kubelet does not report which.
    WholeGpusHeld,
    /// A pod shares cards, and its annotation does not say which.
    UnknownShare,
}

/// Sums of requests. 128 bits wide, so that any request is subtracted as exactly as it was added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsedResources {
    pub(crate) cpu: u128,
    pub(crate) memory: u128,
    pub(crate) ephemeral_storage: u128,
    /// No zeros.
    pub(crate) extended: BTreeMap<Str, u128>,
    pub(crate) pods: u64,
    /// Number of pods by port. No zeros.
    pub(crate) ports: BTreeMap<HostPort, u32>,
    /// MiB used by card.
    pub(crate) cards: Vec<u128>,
    /// Number of pods that hold whole GPUs.
    pub(crate) whole: u32,
    /// Number of pods that share cards.
    pub(crate) shares: u32,
    /// Number of pods that share unknown cards.
    pub(crate) unknown_shares: u32,
}

/// What is free on a node; zero when pods use more than it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FreeResources {
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
    pub(crate) ephemeral_storage: u64,
    pub(crate) pods: u64,
    /// `nvidia.com/gpu`.
    pub(crate) gpus: u64,
    /// The other extended resources of the node.
    pub(crate) extended: BTreeMap<Str, u64>,
    /// MiB free by card; empty when the size of the cards is unknown.
    pub(crate) cards: Vec<u64>,
    pub(crate) card_state: CardState,
    /// Host ports in use.
    pub(crate) ports: BTreeSet<HostPort>,
    /// Number of pods that hold whole GPUs. A node never has these and pods that share cards.
    pub(crate) whole: u32,
    /// Number of pods that share cards.
    pub(crate) shares: u32,
}

/// The numbers that decide feasibility for most pods, packed for fast scans over all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PackedNode {
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
    pub(crate) ephemeral_storage: u64,
    /// MiB free on the emptiest card; zero when cards cannot be shared.
    pub(crate) best_card: u64,
    /// Saturates at `u32::MAX`, as `pods` does.
    pub(crate) gpus: u32,
    pub(crate) pods: u32,
    /// Numbers of node class and capacity.
    pub(crate) class: u32,
    pub(crate) capacity: u32,
    /// See [`FreeResources::free_permille`].
    pub(crate) free_permille: u32,
    /// No pod shares cards of the node, and it is not a shared node.
    pub(crate) allows_whole_gpus: bool,
    pub(crate) has_cards: bool,
    pub(crate) card_state: CardState,
    /// The cards of the node do not fit into [`PackedCards`].
    pub(crate) cards_not_packed: bool,
}

/// MiB free by card of a node whose cards can be shared; zero for missing cards.
pub(crate) type PackedCards = [u32; 8];

impl PackedNode {
    pub(super) fn without_numbers(self) -> Self {
        Self { class: 0, capacity: 0, ..self }
    }
}

impl FreeResources {
    /// Free cpu and free memory, each in thousandths of allocatable, added up. The planner fills full nodes
    /// first.
    pub(crate) fn free_permille(&self, node: &Node) -> u32 {
        let part = |free: u64, all: u64| match free.checked_mul(1000) {
            Some(thousandfold) => thousandfold / all.max(1),
            None => free / (all / 1000).max(1),
        };
        let has = &node.allocatable;
        let sum = part(self.cpu, has.cpu.0).saturating_add(part(self.memory, has.memory.0));
        u32::try_from(sum).unwrap_or(u32::MAX)
    }
}

/// A node with what is used and what is free.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    pub(crate) node: Node,
    pub(crate) class: u32,
    pub(crate) capacity: u32,
    pub(crate) used: UsedResources,
    pub(crate) free_resources: FreeResources,
}

/// Whether a pod with these requests holds whole GPUs, or slices of them, that kubelet assigns.
///
/// The names are those of NVIDIA's device plugin. `nvidia.com/gpu.shared` is its name for time-sliced GPUs
/// when it is configured to rename them.
pub(crate) fn holds_whole_gpus(requests: &Resources) -> bool {
    requests.extended.iter().any(|(name, amount)| {
        *amount > 0
            && (&**name == names::NVIDIA_GPU
                || &**name == "nvidia.com/gpu.shared"
                || name.starts_with(names::NVIDIA_MIG_PREFIX))
    })
}

/// Whether two host ports conflict: same protocol and number, and equal addresses or a wildcard address
/// (kube-scheduler, framework `HostPortInfo.CheckConflict`).
pub fn port_conflict(a: &HostPort, b: &HostPort) -> bool {
    a.1 == b.1 && a.2 == b.2 && (a.0.is_empty() || b.0.is_empty() || a.0 == b.0)
}

fn saturated(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

fn remaining(allocatable: u64, used: u128) -> u64 {
    allocatable.saturating_sub(saturated(used))
}

impl NodeState {
    pub(super) fn new(node: Node, class: u32, capacity: u32) -> Self {
        let cards = vec![0; node.gpus.cards as usize];
        Self {
            node,
            class,
            capacity,
            used: UsedResources { cards, ..UsedResources::default() },
            free_resources: FreeResources::default(),
        }
    }

    /// The cards that a share uses on this node. `None` when they are unknown: none given, the wrong number,
    /// a duplicate, or a card that the node does not have.
    fn cards_of<'a>(&self, share: &GpuShare, cards: &'a CardAllocation) -> Option<&'a [u32]> {
        let CardAllocation::Known(list) = cards else { return None };
        let distinct: BTreeSet<u32> = list.iter().copied().collect();
        let plausible = distinct.len() == list.len()
            && u32::try_from(list.len()) == Ok(share.devices)
            && list.iter().all(|card| *card < self.node.gpus.cards);
        plausible.then_some(list)
    }

    /// Adds a charge to what is used.
    pub(super) fn add_charge(&mut self, charge: &Charge) {
        let requests = &charge.shape.requests;
        self.used.cpu += u128::from(requests.cpu.0);
        self.used.memory += u128::from(requests.memory.0);
        self.used.ephemeral_storage += u128::from(requests.ephemeral_storage.0);
        for (name, amount) in requests.extended.iter().filter(|(_, amount)| **amount > 0) {
            *self.used.extended.entry(name.clone()).or_default() += u128::from(*amount);
        }
        self.used.pods += 1;
        for port in &charge.shape.host_ports {
            *self.used.ports.entry(port.clone()).or_default() += 1;
        }
        self.used.whole += u32::from(holds_whole_gpus(requests));
        if let Some(share) = &charge.shape.share {
            self.used.shares += 1;
            let each = share.on_card(self.node.gpus.vram_each.unwrap_or(VramMib::ZERO));
            match self.cards_of(share, &charge.cards) {
                None => self.used.unknown_shares += 1,
                Some(cards) => {
                    for card in cards {
                        self.used.cards[*card as usize] += u128::from(each.0);
                    }
                }
            }
        }
    }

    /// Subtracts what [`Self::add_charge`] added.
    pub(super) fn remove_charge(&mut self, charge: &Charge) {
        let requests = &charge.shape.requests;
        self.used.cpu -= u128::from(requests.cpu.0);
        self.used.memory -= u128::from(requests.memory.0);
        self.used.ephemeral_storage -= u128::from(requests.ephemeral_storage.0);
        for (name, amount) in requests.extended.iter().filter(|(_, amount)| **amount > 0) {
            if let Some(used) = self.used.extended.get_mut(name) {
                *used -= u128::from(*amount);
                if *used == 0 {
                    self.used.extended.remove(name);
                }
            }
        }
        self.used.pods -= 1;
        for port in &charge.shape.host_ports {
            if let Some(pods) = self.used.ports.get_mut(port) {
                *pods -= 1;
                if *pods == 0 {
                    self.used.ports.remove(port);
                }
            }
        }
        self.used.whole -= u32::from(holds_whole_gpus(requests));
        if let Some(share) = &charge.shape.share {
            self.used.shares -= 1;
            let each = share.on_card(self.node.gpus.vram_each.unwrap_or(VramMib::ZERO));
            match self.cards_of(share, &charge.cards) {
                None => self.used.unknown_shares -= 1,
                Some(cards) => {
                    for card in cards {
                        self.used.cards[*card as usize] -= u128::from(each.0);
                    }
                }
            }
        }
    }

    /// Recomputes what is free from what is used.
    pub(super) fn recompute_free(&mut self, sharing: SharingMode) -> (PackedNode, PackedCards) {
        let Self { node, used, free_resources, class, capacity } = self;
        let has = &node.allocatable;
        free_resources.cpu = remaining(has.cpu.0, used.cpu);
        free_resources.memory = remaining(has.memory.0, used.memory);
        free_resources.ephemeral_storage = remaining(has.ephemeral_storage.0, used.ephemeral_storage);
        free_resources.pods = node.max_pods.saturating_sub(used.pods);
        free_resources.gpus = 0;
        free_resources.extended.retain(|name, _| has.extended.contains_key(name));
        for (name, amount) in &has.extended {
            let free = remaining(*amount, used.extended.get(name).copied().unwrap_or(0));
            if &**name == names::NVIDIA_GPU {
                free_resources.gpus = free;
            } else if let Some(free_resources) = free_resources.extended.get_mut(name) {
                *free_resources = free;
            } else {
                free_resources.extended.insert(name.clone(), free);
            }
        }
        free_resources.cards.clear();
        if let Some(each) = node.gpus.vram_each {
            free_resources.cards.extend(used.cards.iter().map(|used| remaining(each.0, *used)));
        }
        if !(free_resources.ports.is_empty() && used.ports.is_empty()) {
            free_resources.ports = used.ports.keys().cloned().collect();
        }
        free_resources.whole = used.whole;
        free_resources.shares = used.shares;
        free_resources.card_state = card_state(node, used, sharing);
        let open = free_resources.card_state == CardState::Open;
        let mut row = PackedCards::default();
        let mut cards_not_packed = false;
        if open {
            cards_not_packed = free_resources.cards.len() > row.len();
            for (place, free) in row.iter_mut().zip(&free_resources.cards) {
                *place = u32::try_from(*free).unwrap_or(u32::MAX);
                cards_not_packed |= *free >= u64::from(u32::MAX);
            }
        }
        let packed = PackedNode {
            cpu: free_resources.cpu,
            memory: free_resources.memory,
            ephemeral_storage: free_resources.ephemeral_storage,
            best_card: if open { free_resources.cards.iter().copied().max().unwrap_or(0) } else { 0 },
            gpus: u32::try_from(free_resources.gpus).unwrap_or(u32::MAX),
            pods: u32::try_from(free_resources.pods).unwrap_or(u32::MAX),
            class: *class,
            capacity: *capacity,
            free_permille: free_resources.free_permille(node),
            allows_whole_gpus: node.gpus.sharing != GpuSharing::Vram && free_resources.shares == 0,
            has_cards: node.gpus.cards > 0,
            card_state: free_resources.card_state,
            cards_not_packed,
        };
        (packed, row)
    }
}

fn card_state(node: &Node, used: &UsedResources, sharing: SharingMode) -> CardState {
    let gpus = &node.gpus;
    if gpus.cards == 0 && gpus.sharing == GpuSharing::No {
        return CardState::NoCards;
    }
    match (gpus.sharing, sharing) {
        (GpuSharing::Vram, _) | (_, SharingMode::Any) => {}
        (GpuSharing::No, SharingMode::Labelled) => return CardState::NotShared,
        (GpuSharing::LabelOnly, SharingMode::Labelled) => return CardState::LabelOnly,
        (GpuSharing::TaintOnly, SharingMode::Labelled) => return CardState::TaintOnly,
    }
    if gpus.cards == 0 {
        CardState::NoCards
    } else if gpus.mig {
        CardState::Mig
    } else if gpus.vram_each.is_none() {
        CardState::MissingVramLabel
    } else if used.whole > 0 {
        CardState::WholeGpusHeld
    } else if used.unknown_shares > 0 {
        CardState::UnknownShare
    } else {
        CardState::Open
    }
}
