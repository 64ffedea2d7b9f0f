//! One scan of all nodes for one pod: which are infeasible, for which reason, and how close the nearest ones
//! are.
//!
//! The survey counts. Texts are made afterwards, once per reason and not once per node.

use std::collections::BTreeMap;

use super::overlay::SnapshotOverlay;
use super::pod_rules::{GangPodRules, PodCounts};
use super::report::UnschedulableReason;
use super::requirements::{InfeasibleReason, PodRequirements};
use crate::objects::affinity::Taint;
use crate::objects::names;
use crate::snapshot::{CardState, NodeCapacity, PackedNode, Snapshot};

/// The rules about other pods for the surveyed pod.
pub(super) struct SurveyedRules<'r, 'a> {
    pub(super) rules: &'r GangPodRules<'a>,
    pub(super) counts: PodCounts,
    pub(super) profile: usize,
}

/// Nodes kept per reason for the remedy.
const MAX_NEAREST_NODES: usize = 4;

/// What the nodes that are infeasible for one reason have in common. Nodes and cards are given by index.
#[derive(Clone, Debug, Default)]
pub(super) struct ReasonStats {
    /// Number of these nodes.
    pub(super) nodes: u32,
    /// Number of these nodes that could hold the pod if they were empty.
    pub(super) usable: u32,
    /// The largest free amount of the resource that is short.
    pub(super) free: u64,
    /// What the node with that free amount has in total.
    pub(super) of: u64,
    /// The node with that free amount.
    pub(super) node: u32,
    /// The card with that free amount, when VRAM is short.
    pub(super) card: u32,
    /// The largest total of any of these nodes, and that node. Set only when no node is usable.
    pub(super) largest: (u64, u32),
    /// The usable nodes with the most free: free amount and node, most first.
    pub(super) nearest: Vec<(u64, u32)>,
}

/// All infeasible nodes by reason.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeSurvey {
    pub(super) by_reason: BTreeMap<InfeasibleReason, ReasonStats>,
    /// Number of feasible nodes.
    pub(super) feasible: u32,
    /// The taints that [`InfeasibleReason::Taint`] in `by_reason` refers to by index.
    pub(super) taints: Vec<Taint>,
}

impl InfeasibleReason {
    /// Whether the end of other pods can make the node feasible. Otherwise an administrator has to change the
    /// node.
    pub(super) fn is_transient(self) -> bool {
        match self {
            Self::NotReady
            | Self::Cordoned
            | Self::Taint { .. }
            | Self::NodeAffinity
            | Self::Refused(_)
            | Self::SpreadLabelMissing
            | Self::PodAffinity
            | Self::SharedByVram => false,
            Self::CardsUnavailable(state) => {
                matches!(state, CardState::WholeGpusHeld | CardState::UnknownShare)
            }
            _ => true,
        }
    }

    /// How specific the reason is about what is missing: the last tie-break between reasons without usable
    /// nodes.
    fn specificity(self) -> u8 {
        match self {
            Self::CardsUnavailable(CardState::NoCards) => 0,
            Self::CardsUnavailable(CardState::NotShared | CardState::Mig) => 2,
            Self::CardsUnavailable(CardState::LabelOnly | CardState::TaintOnly) => 3,
            Self::CardsUnavailable(_) => 4,
            Self::Refused(_) => 6,
            reason if reason.is_transient() => 5,
            _ => 1,
        }
    }
}

impl NodeSurvey {
    /// `pod_rules` are those of the pod, with the pods that are placed.
    pub(super) fn new(
        need: &PodRequirements<'_>,
        overlay: &SnapshotOverlay<'_>,
        pod_rules: Option<&SurveyedRules<'_, '_>>,
    ) -> Self {
        let mut survey = Self::default();
        let snapshot = overlay.snapshot();
        let sharing = snapshot.sharing();
        let fits_empty =
            |capacity: Option<&NodeCapacity>| capacity.is_some_and(|c| need.fits_empty_node(c, sharing));
        let usable: Vec<bool> = snapshot.classes().capacities().map(fits_empty).collect();
        // There are few reasons: a list is faster to search than a map.
        let mut by_reason: Vec<(InfeasibleReason, ReasonStats)> = Vec::new();
        for (index, packed) in (0_u32..).zip(snapshot.packed_nodes()) {
            let check = check_node(need, overlay, index as usize, packed, pod_rules);
            let Err(reason) = check.result else {
                survey.feasible += 1;
                continue;
            };
            let (free, card) = if check.from_packed {
                (packed_free(reason, packed), 0)
            } else {
                free_on(need, reason, overlay, index)
            };
            let position = by_reason.iter().position(|(other, _)| *other == reason).unwrap_or_else(|| {
                by_reason.push((reason, ReasonStats::default()));
                by_reason.len() - 1
            });
            let stats = &mut by_reason[position].1;
            if stats.nodes == 0 || free > stats.free {
                (stats.free, stats.node, stats.card) = (free, index, card);
            }
            stats.nodes += 1;
            if usable[packed.capacity as usize] {
                stats.usable += 1;
                if reason.is_transient() {
                    stats.keep_nearest(free, index);
                }
            }
        }
        survey.by_reason.extend(by_reason);
        for (reason, stats) in &mut survey.by_reason {
            let node = &overlay.state(stats.node as usize).node;
            stats.of = total_of(need, *reason, &NodeCapacity::of(node));
            (_, stats.card) = free_on(need, *reason, overlay, stats.node);
        }
        survey.find_largest(need, overlay, pod_rules);
        survey.resolve_taints(overlay.snapshot());
        survey
    }

    /// Sets [`ReasonStats::largest`] when no node could hold the pod even if it were empty.
    fn find_largest(
        &mut self,
        need: &PodRequirements<'_>,
        overlay: &SnapshotOverlay<'_>,
        pod_rules: Option<&SurveyedRules<'_, '_>>,
    ) {
        if self.by_reason.values().any(|stats| stats.usable > 0) {
            return;
        }
        let snapshot = overlay.snapshot();
        for (reason, stats) in self.by_reason.iter_mut().filter(|(reason, _)| reason.is_transient()) {
            let total = |capacity: Option<&NodeCapacity>| {
                capacity.map_or(0, |capacity| total_of(need, *reason, capacity))
            };
            let totals: Vec<u64> = snapshot.classes().capacities().map(total).collect();
            for (index, packed) in (0_u32..).zip(snapshot.packed_nodes()) {
                let total = totals[packed.capacity as usize];
                if total > stats.largest.0
                    && check_node(need, overlay, index as usize, packed, pod_rules).result == Err(*reason)
                {
                    stats.largest = (total, index);
                }
            }
        }
    }

    /// Replaces class numbers, which depend on the order in which nodes joined, by the taints themselves in
    /// their order.
    fn resolve_taints(&mut self, snapshot: &Snapshot) {
        let mut by_taint: BTreeMap<Taint, ReasonStats> = BTreeMap::new();
        self.by_reason.retain(|reason, stats| {
            let InfeasibleReason::Taint { class, index } = *reason else { return true };
            let taint = snapshot.classes().class(class).and_then(|class| class.taints.get(index as usize));
            let taint = taint.expect("the infeasible class has this taint").clone();
            let sum = by_taint
                .entry(taint)
                .or_insert_with(|| ReasonStats { node: stats.node, ..ReasonStats::default() });
            sum.nodes += stats.nodes;
            sum.usable += stats.usable;
            sum.node = sum.node.min(stats.node);
            false
        });
        for (index, (taint, stats)) in (0..).zip(by_taint) {
            self.taints.push(taint);
            self.by_reason.insert(InfeasibleReason::Taint { class: 0, index }, stats);
        }
    }

    /// The main reason: first a transient one on usable nodes, because the pod waits for that; then the one
    /// with the most usable nodes.
    pub(super) fn main_reason(&self) -> Option<(InfeasibleReason, &ReasonStats)> {
        let weight = |(reason, stats): &(&InfeasibleReason, &ReasonStats)| {
            let waits = reason.is_transient() && stats.usable > 0;
            (waits, stats.usable, reason.specificity(), stats.nodes, **reason)
        };
        self.by_reason.iter().max_by_key(weight).map(|(reason, stats)| (*reason, stats))
    }

    /// The reason as reports count it.
    pub(super) fn unschedulable_reason(
        &self,
        reason: InfeasibleReason,
        need: &PodRequirements<'_>,
    ) -> UnschedulableReason {
        match reason {
            InfeasibleReason::NotReady => UnschedulableReason::NotReady,
            InfeasibleReason::Cordoned => UnschedulableReason::Cordoned,
            InfeasibleReason::Taint { index, .. } => {
                UnschedulableReason::UntoleratedTaint(self.taints[index as usize].to_string())
            }
            InfeasibleReason::NodeAffinity => UnschedulableReason::NodeAffinityMismatch,
            InfeasibleReason::Refused(index) => {
                UnschedulableReason::RefusedByScheduler(need.refusal_message(index).to_string())
            }
            InfeasibleReason::CardsUnavailable(state) => match state {
                CardState::NoCards => UnschedulableReason::NoGpu,
                CardState::Open | CardState::NotShared => UnschedulableReason::NotShared,
                CardState::LabelOnly => UnschedulableReason::SharingLabelWithoutTaint,
                CardState::TaintOnly => UnschedulableReason::SharingTaintWithoutLabel,
                CardState::Mig => UnschedulableReason::MigEnabled,
                CardState::MissingVramLabel => UnschedulableReason::MissingVramLabel,
                CardState::WholeGpusHeld => UnschedulableReason::WholeGpusInUse,
                CardState::UnknownShare => UnschedulableReason::UnknownCardsInUse,
            },
            InfeasibleReason::SharedByVram => UnschedulableReason::SharedByVram,
            InfeasibleReason::TooManyPods => UnschedulableReason::TooManyPods,
            InfeasibleReason::HostPort => {
                let ports = need.shape.host_ports.iter();
                let ports: Vec<String> =
                    ports.map(|(_, protocol, port)| format!("{port}/{protocol}")).collect();
                UnschedulableReason::HostPorts(ports.join(", "))
            }
            InfeasibleReason::Vram => UnschedulableReason::Vram,
            InfeasibleReason::Gpus => UnschedulableReason::Extended(names::NVIDIA_GPU.to_owned()),
            InfeasibleReason::Extended(index) => {
                UnschedulableReason::Extended(need.extended_name(index).to_string())
            }
            InfeasibleReason::Cpu => UnschedulableReason::Cpu,
            InfeasibleReason::Memory => UnschedulableReason::Memory,
            InfeasibleReason::EphemeralStorage => UnschedulableReason::EphemeralStorage,
            InfeasibleReason::SpreadLabelMissing => UnschedulableReason::SpreadLabelMissing,
            InfeasibleReason::TopologySpread => UnschedulableReason::TopologySpread,
            InfeasibleReason::PodAffinity => UnschedulableReason::PodAffinity,
            InfeasibleReason::PodAntiAffinity => UnschedulableReason::PodAntiAffinity,
            InfeasibleReason::ExistingPodAntiAffinity => UnschedulableReason::ExistingPodAntiAffinity,
        }
    }
}

impl ReasonStats {
    fn keep_nearest(&mut self, free: u64, node: u32) {
        if self.nearest.len() == MAX_NEAREST_NODES
            && self.nearest.last().is_some_and(|(least, _)| *least >= free)
        {
            return;
        }
        let position = self.nearest.iter().position(|(other, _)| *other < free).unwrap_or(self.nearest.len());
        self.nearest.insert(position, (free, node));
        self.nearest.truncate(MAX_NEAREST_NODES);
    }
}

/// What a node has free of the resource that is short, and on which card.
fn free_on(
    need: &PodRequirements<'_>,
    reason: InfeasibleReason,
    overlay: &SnapshotOverlay<'_>,
    node: u32,
) -> (u64, u32) {
    let free = overlay.free_resources(node as usize);
    match reason {
        InfeasibleReason::Cpu => (free.cpu, 0),
        InfeasibleReason::Memory => (free.memory, 0),
        InfeasibleReason::EphemeralStorage => (free.ephemeral_storage, 0),
        InfeasibleReason::Gpus => (free.gpus, 0),
        InfeasibleReason::Extended(index) => {
            (free.extended.get(need.extended_name(index)).copied().unwrap_or(0), 0)
        }
        InfeasibleReason::Vram => {
            let emptiest =
                free.cards.iter().zip(0_u32..).max_by_key(|(free, card)| (**free, u32::MAX - card));
            emptiest.map_or((0, 0), |(free, card)| (*free, card))
        }
        _ => (0, 0),
    }
}

/// The same amount from packed numbers, for the reasons that [`PodRequirements::check_packed`] gives.
fn packed_free(reason: InfeasibleReason, packed: &PackedNode) -> u64 {
    match reason {
        InfeasibleReason::Cpu => packed.cpu,
        InfeasibleReason::Memory => packed.memory,
        InfeasibleReason::EphemeralStorage => packed.ephemeral_storage,
        InfeasibleReason::Gpus => u64::from(packed.gpus),
        InfeasibleReason::Vram => packed.best_card,
        _ => 0,
    }
}

/// What a node has in total of the resource that is short.
fn total_of(need: &PodRequirements<'_>, reason: InfeasibleReason, capacity: &NodeCapacity) -> u64 {
    let allocatable = &capacity.allocatable;
    match reason {
        InfeasibleReason::Cpu => allocatable.cpu.0,
        InfeasibleReason::Memory => allocatable.memory.0,
        InfeasibleReason::EphemeralStorage => allocatable.ephemeral_storage.0,
        InfeasibleReason::Gpus => allocatable.extended(names::NVIDIA_GPU),
        InfeasibleReason::Extended(index) => allocatable.extended(need.extended_name(index)),
        InfeasibleReason::TooManyPods => capacity.max_pods,
        InfeasibleReason::Vram => capacity.gpus.vram_each.map_or(0, |mib| mib.0),
        _ => 0,
    }
}

/// The feasibility of one node.
struct NodeCheck {
    result: Result<(), InfeasibleReason>,
    /// Packed numbers were enough.
    from_packed: bool,
}

fn check_node(
    need: &PodRequirements<'_>,
    overlay: &SnapshotOverlay<'_>,
    index: usize,
    packed: &PackedNode,
    pod_rules: Option<&SurveyedRules<'_, '_>>,
) -> NodeCheck {
    // Packed numbers are those of the snapshot: they do not apply to a node that the overlay has modified.
    let from_packed = if overlay.is_modified(index) { None } else { need.check_packed(packed) };
    let check = match from_packed {
        Some(result) => NodeCheck { result, from_packed: true },
        None => {
            let state = overlay.state(index);
            let result =
                need.check_class(state).and_then(|_| need.fits(&state.node, overlay.free_resources(index)));
            NodeCheck { result, from_packed: false }
        }
    };
    match pod_rules {
        Some(rules) if check.result.is_ok() => {
            let node = u32::try_from(index).expect("fewer than 2^32 nodes");
            NodeCheck { result: rules.rules.check(&rules.counts, rules.profile, node), ..check }
        }
        _ => check,
    }
}
