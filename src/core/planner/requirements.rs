//! What a pod of one shape requires, and whether a node is feasible for it: kube-scheduler's filters, plus
//! cards.
//!
//! The same rules exist twice. [`PodRequirements::check_class`] and [`PodRequirements::fits`] use the full
//! state of a node. [`PodRequirements::check_packed`] and [`PodRequirements::score_packed`] use the packed
//! numbers that a scan over all nodes reads; they answer only where those numbers are exact, and tests
//! compare both.

use crate::gpu::{GpuShare, ShareSize};
use crate::model::{NodeName, Str, VramMib, str};
use crate::objects::affinity::{RequiredNodeAffinity, Taint, TaintEffect};
use crate::objects::{GpuSharing, Node, names};
use crate::shape::Shape;
use crate::snapshot::{
    CardState, FreeResources, NodeCapacity, NodeClass, NodeState, PackedCards, PackedNode, SharingMode,
    Snapshot, holds_whole_gpus, port_conflict,
};

/// Why a node is infeasible for a pod, in the order of the checks. The first one that applies is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InfeasibleReason {
    NotReady,
    Cordoned,
    /// The taint with that index in that node class.
    Taint {
        class: u32,
        index: u32,
    },
    NodeAffinity,
    /// A scheduler refused an equal pod there, with the message of that index in
    /// [`PodRequirements::refused`].
    Refused(u32),
    /// The pod shares cards and the node has none to share.
    CardsUnavailable(CardState),
    /// The pod requests whole GPUs and the node shares its cards.
    SharedByVram,
    TooManyPods,
    HostPort,
    Vram,
    Gpus,
    /// The extended resource with that index in [`PodRequirements::extended`].
    Extended(u32),
    Cpu,
    Memory,
    EphemeralStorage,
    /// The node lacks the topology label of a spread constraint.
    SpreadLabelMissing,
    /// A spread constraint of the pod forbids the node.
    TopologySpread,
    /// The pod's required affinity to other pods is not met.
    PodAffinity,
    /// The pod's own required anti-affinity forbids the node.
    PodAntiAffinity,
    /// The required anti-affinity of another pod forbids the node.
    ExistingPodAntiAffinity,
}

/// The feasibility of a node class for a shape.
#[derive(Clone, Copy, Debug)]
enum ClassFeasibility {
    /// `avoid`: a `PreferNoSchedule` taint is not tolerated.
    Feasible {
        avoid: bool,
    },
    Infeasible(InfeasibleReason),
}

/// In which order cards are chosen: the tightest keep other cards whole, the loosest keep most free on each
/// card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CardOrder {
    Tightest,
    Loosest,
}

/// The score of a node for a pod; the smallest is the best. An untolerated `PreferNoSchedule` taint, then
/// what stays free on the chosen cards or of whole GPUs, then how much of cpu and memory is free.
pub(super) type NodeScore = (bool, u64, u32);

/// A pod shape, resolved against the node classes of a snapshot.
#[derive(Debug)]
pub(super) struct PodRequirements<'a> {
    pub(super) shape: &'a Shape,
    pub(super) cpu: u64,
    pub(super) memory: u64,
    pub(super) ephemeral_storage: u64,
    /// `nvidia.com/gpu`.
    pub(super) gpus: u64,
    /// The other extended resources with an amount above zero.
    pub(super) extended: Vec<(&'a Str, u64)>,
    pub(super) share: Option<GpuShare>,
    uses_whole_gpus: bool,
    /// By class number.
    class_feasibility: Vec<ClassFeasibility>,
    /// Packed numbers are exact for this shape.
    packed_is_exact: bool,
    /// MiB of the one card that the pod shares by size, when packed numbers are exact; zero when it shares
    /// none.
    packed_vram: u32,
    /// The node selector or affinity uses something that node classes do not have, or a scheduler refused
    /// the shape on some nodes: nodes are evaluated one by one.
    pub(super) selects_by_node: bool,
    /// The nodes where a scheduler refused the shape, with its message.
    refused: Vec<(NodeName, Str)>,
}

impl<'a> PodRequirements<'a> {
    pub(super) fn new(shape: &'a Shape, snapshot: &Snapshot) -> Self {
        let requests = &shape.requests;
        let classes = snapshot.classes();
        let refused: Vec<(NodeName, Str)> =
            (snapshot.refusals_of(shape)).map(|(node, message)| (node.clone(), message.clone())).collect();
        let selects_by_node =
            !refused.is_empty() || selects_by_node(&shape.node_affinity, |key| classes.is_node_specific(key));
        let class_feasibility = (0_u32..).zip(0..classes.len()).map(|(number, _)| {
            let Some(class) = classes.class(number) else {
                return ClassFeasibility::Infeasible(InfeasibleReason::NotReady);
            };
            class_feasibility(shape, class, number, selects_by_node)
        });
        let uses_whole_gpus = holds_whole_gpus(requests);
        let gpus = requests.extended(names::NVIDIA_GPU);
        let others = requests.extended.iter().any(|(name, n)| *n > 0 && &**name != names::NVIDIA_GPU);
        let packed_vram = match shape.share {
            None => Some(0),
            Some(GpuShare { size: ShareSize::Vram(mib), devices: 1 }) => u32::try_from(mib.0).ok(),
            Some(_) => None,
        };
        let fits_packed = packed_vram.is_some_and(|mib| mib < u32::MAX) && gpus < u64::from(u32::MAX);
        Self {
            packed_is_exact: fits_packed
                && !others
                && !selects_by_node
                && shape.host_ports.is_empty()
                && !(uses_whole_gpus && shape.share.is_some()),
            packed_vram: packed_vram.unwrap_or(0),
            shape,
            cpu: requests.cpu.0,
            memory: requests.memory.0,
            ephemeral_storage: requests.ephemeral_storage.0,
            gpus,
            extended: requests
                .extended
                .iter()
                .filter(|(name, amount)| **amount > 0 && &***name != names::NVIDIA_GPU)
                .map(|(name, amount)| (name, *amount))
                .collect(),
            share: shape.share,
            uses_whole_gpus,
            class_feasibility: class_feasibility.collect(),
            selects_by_node,
            refused,
        }
    }

    /// Checks what no other pod changes: readiness, cordon, taints, node selector and affinity. `Ok(true)`
    /// when the node has an untolerated `PreferNoSchedule` taint.
    pub(super) fn check_class(&self, state: &NodeState) -> Result<bool, InfeasibleReason> {
        match self.class_feasibility[state.class as usize] {
            ClassFeasibility::Infeasible(reason) => Err(reason),
            ClassFeasibility::Feasible { avoid } => {
                if self.selects_by_node
                    && !self.shape.node_affinity.matches(&state.node.name, &state.node.labels)
                {
                    return Err(InfeasibleReason::NodeAffinity);
                }
                match self.refusal(&state.node.name) {
                    Some(index) => Err(InfeasibleReason::Refused(index)),
                    None => Ok(avoid),
                }
            }
        }
    }

    /// The index of the message with which a scheduler refused the shape on a node. Equal messages have one
    /// index.
    fn refusal(&self, node: &NodeName) -> Option<u32> {
        let (_, message) = self.refused.iter().find(|(name, _)| name == node)?;
        let first = self.refused.iter().position(|(_, other)| other == message)?;
        u32::try_from(first).ok()
    }

    /// The message of [`InfeasibleReason::Refused`].
    pub(super) fn refusal_message(&self, index: u32) -> &Str {
        &self.refused[index as usize].1
    }

    /// Whether the class of a node is feasible. A selector by node is not evaluated.
    pub(super) fn class_is_feasible(&self, packed: &PackedNode) -> bool {
        matches!(self.class_feasibility[packed.class as usize], ClassFeasibility::Feasible { .. })
    }

    /// Whether the packed numbers of a node leave it possible that the pod fits; `false` is certain.
    pub(super) fn may_fit(&self, packed: &PackedNode) -> bool {
        let share = match self.share {
            Some(GpuShare { size: ShareSize::Vram(mib), .. }) => mib.0,
            Some(_) => 1,
            None => 0,
        };
        (packed.cpu >= self.cpu)
            & (packed.memory >= self.memory)
            & (u64::from(packed.gpus) >= self.gpus.min(u64::from(u32::MAX)))
            & (packed.best_card >= share)
            & (packed.pods > 0)
            & (packed.ephemeral_storage >= self.ephemeral_storage)
            && self.class_is_feasible(packed)
    }

    /// MiB that the pod takes of each card that it shares on this node.
    pub(super) fn on_card(&self, node: &Node) -> u64 {
        let card = node.gpus.vram_each.unwrap_or(VramMib::ZERO);
        self.share.map_or(0, |share| share.on_card(card).0)
    }

    /// Checks whether a node of a feasible class has capacity for one more pod.
    pub(super) fn fits(&self, node: &Node, free: &FreeResources) -> Result<(), InfeasibleReason> {
        if let Some(share) = &self.share {
            if free.card_state != CardState::Open {
                return Err(InfeasibleReason::CardsUnavailable(free.card_state));
            }
            if free.whole > 0 {
                return Err(InfeasibleReason::CardsUnavailable(CardState::WholeGpusHeld));
            }
            let each = self.on_card(node);
            let fitting = free.cards.iter().filter(|free| **free >= each).count();
            if fitting < share.devices as usize {
                return Err(InfeasibleReason::Vram);
            }
        }
        if self.uses_whole_gpus && (node.gpus.sharing == GpuSharing::Vram || free.shares > 0) {
            return Err(InfeasibleReason::SharedByVram);
        }
        if self.share.is_some() && self.uses_whole_gpus {
            // Admission rejects such a pod. A pod that bypassed it gets no node: shares and whole GPUs never
            // mix.
            return Err(InfeasibleReason::SharedByVram);
        }
        if free.pods == 0 {
            return Err(InfeasibleReason::TooManyPods);
        }
        if !self.shape.host_ports.is_empty() && !free.ports.is_empty() {
            let in_use = |port| free.ports.iter().any(|used| port_conflict(port, used));
            if self.shape.host_ports.iter().any(in_use) {
                return Err(InfeasibleReason::HostPort);
            }
        }
        if self.gpus > free.gpus {
            return Err(InfeasibleReason::Gpus);
        }
        for (index, (name, amount)) in (0_u32..).zip(&self.extended) {
            if *amount > free.extended.get(*name).copied().unwrap_or(0) {
                return Err(InfeasibleReason::Extended(index));
            }
        }
        if self.cpu > free.cpu {
            return Err(InfeasibleReason::Cpu);
        }
        if self.memory > free.memory {
            return Err(InfeasibleReason::Memory);
        }
        if self.ephemeral_storage > free.ephemeral_storage {
            return Err(InfeasibleReason::EphemeralStorage);
        }
        Ok(())
    }

    /// Number of pods of this shape that fit on a node of a feasible class, at most `limit`.
    pub(super) fn max_fitting(&self, node: &Node, free: &FreeResources, limit: u64) -> u64 {
        if self.fits(node, free).is_err() {
            return 0;
        }
        let times = |free: u64, need: u64| free.checked_div(need).unwrap_or(u64::MAX);
        let mut most = limit.min(free.pods);
        if !self.shape.host_ports.is_empty() {
            most = most.min(1);
        }
        most = most.min(times(free.gpus, self.gpus));
        for (name, amount) in &self.extended {
            most = most.min(times(free.extended.get(*name).copied().unwrap_or(0), *amount));
        }
        most = most.min(times(free.cpu, self.cpu));
        most = most.min(times(free.memory, self.memory));
        most = most.min(times(free.ephemeral_storage, self.ephemeral_storage));
        if let Some(share) = &self.share {
            most = most.min(max_shares(&free.cards, self.on_card(node), share.devices, most));
        }
        most
    }

    /// The cards for the pod on a node on which it fits, by ascending index; empty when it shares none.
    pub(super) fn choose_cards(&self, node: &Node, free: &FreeResources, order: CardOrder) -> Vec<u32> {
        let Some(share) = &self.share else { return Vec::new() };
        let each = self.on_card(node);
        let mut fitting: Vec<(u64, u32)> =
            free.cards.iter().copied().zip(0..).filter(|(free, _)| *free >= each).collect();
        match order {
            CardOrder::Tightest => fitting.sort_unstable(),
            CardOrder::Loosest => fitting.sort_unstable_by_key(|(free, card)| (u64::MAX - free, *card)),
        }
        let mut cards: Vec<u32> =
            fitting.iter().take(share.devices as usize).map(|(_, card)| *card).collect();
        cards.sort_unstable();
        cards
    }

    /// Feasibility and score from packed numbers. `None`: the numbers are not exact. `Some(None)`:
    /// infeasible.
    pub(super) fn score_packed(&self, packed: &PackedNode, cards: &PackedCards) -> Option<Option<NodeScore>> {
        if !self.may_fit(packed) {
            return Some(None);
        }
        if !self.packed_is_exact || (self.packed_vram > 0 && packed.cards_not_packed) {
            return None;
        }
        if self.uses_whole_gpus && !packed.allows_whole_gpus {
            return Some(None);
        }
        let remaining = if self.packed_vram > 0 {
            let remaining_on = |free: &u32| free.checked_sub(self.packed_vram).unwrap_or(u32::MAX);
            u64::from(cards.iter().map(remaining_on).min().unwrap_or(u32::MAX))
        } else if self.gpus > 0 {
            u64::from(packed.gpus) - self.gpus
        } else {
            u64::from(packed.has_cards)
        };
        let ClassFeasibility::Feasible { avoid } = self.class_feasibility[packed.class as usize] else {
            return Some(None);
        };
        Some(Some((avoid, remaining, packed.free_permille)))
    }

    /// The score of a node on which the pod fits. A pod without GPUs prefers nodes without GPUs.
    pub(super) fn score(&self, state: &NodeState, free: &FreeResources, avoid: bool) -> NodeScore {
        let node = &state.node;
        let remaining = if let Some(share) = &self.share {
            let each = self.on_card(node);
            if share.devices == 1 {
                let tightest = free.cards.iter().filter(|free| **free >= each).min();
                tightest.map_or(u64::MAX, |free| free - each)
            } else {
                let mut fitting: Vec<u64> = free.cards.iter().copied().filter(|free| *free >= each).collect();
                fitting.sort_unstable();
                fitting
                    .iter()
                    .take(share.devices as usize)
                    .fold(0_u64, |sum, free| sum.saturating_add(free - each))
            }
        } else if self.gpus > 0 {
            free.gpus.saturating_sub(self.gpus)
        } else {
            u64::from(node.gpus.cards > 0)
        };
        (avoid, remaining, free.free_permille(node))
    }

    /// Feasibility from packed numbers, with the same reason as [`Self::check_class`] and [`Self::fits`];
    /// `None` when the numbers are not exact.
    pub(super) fn check_packed(&self, packed: &PackedNode) -> Option<Result<(), InfeasibleReason>> {
        if let ClassFeasibility::Infeasible(reason) = self.class_feasibility[packed.class as usize] {
            return Some(Err(reason));
        }
        if !self.packed_is_exact {
            return None;
        }
        Some(if self.packed_vram > 0 && packed.card_state != CardState::Open {
            Err(InfeasibleReason::CardsUnavailable(packed.card_state))
        } else if u64::from(self.packed_vram) > packed.best_card {
            Err(InfeasibleReason::Vram)
        } else if self.uses_whole_gpus && !packed.allows_whole_gpus {
            Err(InfeasibleReason::SharedByVram)
        } else if packed.pods == 0 {
            Err(InfeasibleReason::TooManyPods)
        } else if self.gpus > u64::from(packed.gpus) {
            Err(InfeasibleReason::Gpus)
        } else if self.cpu > packed.cpu {
            Err(InfeasibleReason::Cpu)
        } else if self.memory > packed.memory {
            Err(InfeasibleReason::Memory)
        } else if self.ephemeral_storage > packed.ephemeral_storage {
            Err(InfeasibleReason::EphemeralStorage)
        } else {
            Ok(())
        })
    }

    /// Whether an empty node of a feasible class could hold the pod.
    pub(super) fn fits_empty_node(&self, capacity: &NodeCapacity, sharing: SharingMode) -> bool {
        let (gpus, allocatable) = (&capacity.gpus, &capacity.allocatable);
        let share_fits = self.share.is_none_or(|share| {
            (gpus.sharing == GpuSharing::Vram || sharing == SharingMode::Any)
                && !gpus.mig
                && share.devices <= gpus.cards
                && gpus.vram_each.is_some_and(|each| share.on_card(each) <= each)
        });
        share_fits
            && !(self.uses_whole_gpus && (self.share.is_some() || gpus.sharing == GpuSharing::Vram))
            && capacity.max_pods > 0
            && self.gpus <= allocatable.extended(names::NVIDIA_GPU)
            && self.extended.iter().all(|(name, amount)| *amount <= allocatable.extended(name))
            && self.cpu <= allocatable.cpu.0
            && self.memory <= allocatable.memory.0
            && self.ephemeral_storage <= allocatable.ephemeral_storage.0
    }

    /// The name of the resource that [`InfeasibleReason::Extended`] refers to.
    pub(super) fn extended_name(&self, index: u32) -> &'a Str {
        self.extended[index as usize].0
    }

    /// Whether the pod holds whole GPUs, or MIG slices, that kubelet assigns.
    pub(super) fn uses_whole_gpus(&self) -> bool {
        self.uses_whole_gpus
    }
}

/// Number of shares of `each` MiB on `devices` different cards that fit.
///
/// `t` shares fit when the cards have `devices * t` slots, counting at most `t` slots per card: no share uses
/// a card twice.
fn max_shares(cards: &[u64], each: u64, devices: u32, limit: u64) -> u64 {
    let slots = |at_most: u64| -> u128 {
        cards.iter().map(|free| u128::from(free.checked_div(each).unwrap_or(u64::MAX).min(at_most))).sum()
    };
    let fits = |t: u64| slots(t) >= u128::from(devices) * u128::from(t);
    // One share fits, as the caller has checked. The largest number that fits is between one and the limit.
    let (mut low, mut high) = (1, limit.max(1));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

fn class_feasibility(
    shape: &Shape,
    class: &NodeClass,
    number: u32,
    selects_by_node: bool,
) -> ClassFeasibility {
    let tolerated = |taint: &Taint| shape.tolerations.iter().any(|t| t.tolerates(taint));
    if !class.ready {
        return ClassFeasibility::Infeasible(InfeasibleReason::NotReady);
    }
    if class.unschedulable {
        let cordon =
            Taint { key: str(names::TAINT_UNSCHEDULABLE), value: str(""), effect: TaintEffect::NoSchedule };
        if !tolerated(&cordon) {
            return ClassFeasibility::Infeasible(InfeasibleReason::Cordoned);
        }
    }
    for (index, taint) in (0..).zip(&class.taints) {
        if taint.forbids() && !tolerated(taint) {
            return ClassFeasibility::Infeasible(InfeasibleReason::Taint { class: number, index });
        }
    }
    // Without a selector by node, neither the name nor node-specific labels matter.
    if !selects_by_node && !shape.node_affinity.matches(&"".into(), &class.labels) {
        return ClassFeasibility::Infeasible(InfeasibleReason::NodeAffinity);
    }
    let avoid = class.taints.iter().any(|taint| !taint.forbids() && !tolerated(taint));
    ClassFeasibility::Feasible { avoid }
}

/// Whether the node selector or affinity uses a node's name or a node-specific label.
pub(super) fn selects_by_node(
    node_affinity: &RequiredNodeAffinity,
    is_node_specific: impl Fn(&str) -> bool,
) -> bool {
    node_affinity.selector.keys().any(|key| is_node_specific(key))
        || node_affinity
            .terms
            .iter()
            .flatten()
            .any(|term| !term.fields.is_empty() || term.expressions.iter().any(|r| is_node_specific(&r.key)))
}
