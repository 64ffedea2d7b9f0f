//! The planner's report: for each gang, whether it is placed, and otherwise why not and what would make it
//! fit.

use std::collections::BTreeMap;
use std::fmt;

use super::types::Plan;
use crate::model::{GangId, Reason};
use crate::snapshot::Snapshot;

/// The outcome of every gang of one planning round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanningReport {
    /// By gang.
    pub outcomes: BTreeMap<GangId, PlanningOutcome>,
    /// The plan of this round, when [`super::check()`] refuted it. Its gangs wait.
    pub refuted: Option<RefutedPlan>,
}

/// A plan that breaks a rule: a defect of the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefutedPlan {
    /// The plan.
    pub plan: Plan,
    /// One sentence per broken rule.
    pub violations: Vec<String>,
}

impl PlanningReport {
    /// Reports the gangs of a refuted plan as waiting.
    pub(super) fn withhold(&mut self, plan: Plan, violations: Vec<String>, snapshot: &Snapshot) {
        let first = violations.first().map_or("", String::as_str);
        let explanation = Explanation {
            reason: Reason::PlanRefuted,
            message: format!("the plan was withheld, because the check of plans refuted it: {first}"),
            waiting_for: "a plan that passes the check of plans".to_owned(),
            remedy: Some(
                "report a defect of Portcullis, with the planning case from the leader's path /refuted-plan"
                    .to_owned(),
            ),
            nodes: u32::try_from(snapshot.states().len()).unwrap_or(u32::MAX),
            infeasible_nodes: BTreeMap::new(),
        };
        for planned in &plan.gangs {
            let outcome = PlanningOutcome::Waiting(explanation.clone());
            self.outcomes.insert(planned.gang.clone(), outcome);
        }
        self.refuted = Some(RefutedPlan { plan, violations });
    }
}

/// The outcome of planning one gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanningOutcome {
    /// The gang is in the plan.
    Placed {
        /// Number of waiting members with an assignment.
        members: u32,
        /// Why the other waiting members, beyond the quorum, stay unplaced; `None` when all are placed.
        unplaced: Option<Explanation>,
    },
    /// No waiting member of the gang is in the plan.
    Waiting(Explanation),
}

/// Why a gang or a part of it waits, and what would make it fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Explanation {
    /// The main reason.
    pub reason: Reason,
    /// The message for condition and event, with numbers: what is short, how much, on how many nodes.
    pub message: String,
    /// A noun phrase that completes "waiting for": `5000 MiB more VRAM (15000 of 20000 MiB free)`,
    /// `8000 MiB on one card (most free 7000 MiB, node gpu-1)`.
    pub waiting_for: String,
    /// The remedy: the smallest change found that makes the gang fit.
    pub remedy: Option<String>,
    /// Number of nodes in the snapshot.
    pub nodes: u32,
    /// Number of infeasible nodes by reason, for the member that could not be placed.
    pub infeasible_nodes: BTreeMap<UnschedulableReason, u32>,
}

/// Why a node is infeasible for a pod, as reports count it.
///
/// `Display` gives the text that stands after a number of nodes in kube-scheduler's message
/// `0/5 nodes are available: 3 Insufficient cpu`. [`Self::short`] gives the text for table cells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnschedulableReason {
    /// The node is not ready.
    NotReady,
    /// The node is cordoned and the pod does not tolerate that.
    Cordoned,
    /// The node has this taint and the pod does not tolerate it.
    UntoleratedTaint(String),
    /// The node selector or the required node affinity does not match.
    NodeAffinityMismatch,
    /// A scheduler refused an equal pod there, with this message.
    RefusedByScheduler(String),
    /// The node has GPUs, and they are not shared by VRAM.
    NotShared,
    /// The node has no GPU.
    NoGpu,
    /// The node has the label of shared nodes without the taint.
    SharingLabelWithoutTaint,
    /// The node has the taint of shared nodes without the label.
    SharingTaintWithoutLabel,
    /// The GPUs of the node are partitioned by MIG.
    MigEnabled,
    /// The label `nvidia.com/gpu.memory` is missing or not a number.
    MissingVramLabel,
    /// A pod on the node holds whole GPUs, and kubelet does not report which.
    WholeGpusInUse,
    /// A pod on the node shares GPUs and does not report which.
    UnknownCardsInUse,
    /// The pod requests whole GPUs and the node shares its GPUs by VRAM.
    SharedByVram,
    /// The node runs as many pods as it allows.
    TooManyPods,
    /// These host ports are in use, as `80/TCP, 443/TCP`.
    HostPorts(String),
    /// Not enough VRAM is free.
    Vram,
    /// Not enough of this extended resource is free.
    Extended(String),
    /// Not enough cpu is free.
    Cpu,
    /// Not enough memory is free.
    Memory,
    /// Not enough ephemeral storage is free.
    EphemeralStorage,
    /// The node lacks the topology label of a spread constraint.
    SpreadLabelMissing,
    /// A topology spread constraint forbids the node.
    TopologySpread,
    /// The required affinity to other pods is not met.
    PodAffinity,
    /// The required anti-affinity to other pods forbids the node.
    PodAntiAffinity,
    /// The required anti-affinity of another pod forbids the node.
    ExistingPodAntiAffinity,
}

impl UnschedulableReason {
    /// The reason code of conditions and events.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotReady | Self::Cordoned => Reason::NodeUnavailable,
            Self::UntoleratedTaint(_) => Reason::UntoleratedTaint,
            Self::NodeAffinityMismatch => Reason::NodeAffinityMismatch,
            Self::RefusedByScheduler(_) => Reason::RefusedByScheduler,
            Self::NotShared
            | Self::NoGpu
            | Self::SharingLabelWithoutTaint
            | Self::SharingTaintWithoutLabel
            | Self::MigEnabled => Reason::NoSharedNode,
            Self::MissingVramLabel => Reason::MissingVramLabel,
            Self::WholeGpusInUse | Self::UnknownCardsInUse | Self::Vram => Reason::InsufficientVram,
            Self::SharedByVram | Self::Extended(_) => Reason::InsufficientExtended,
            Self::TooManyPods => Reason::TooManyPods,
            Self::HostPorts(_) => Reason::HostPortConflict,
            Self::Cpu => Reason::InsufficientCpu,
            Self::Memory => Reason::InsufficientMemory,
            Self::EphemeralStorage => Reason::InsufficientEphemeralStorage,
            Self::SpreadLabelMissing | Self::TopologySpread => Reason::TopologySpread,
            Self::PodAffinity | Self::PodAntiAffinity | Self::ExistingPodAntiAffinity => {
                Reason::PodAffinityMismatch
            }
        }
    }

    /// The reason in few words, for table cells: `cordoned`, `not shared`, `insufficient cpu`.
    pub fn short(&self) -> String {
        match self {
            Self::NotReady => "not ready".to_owned(),
            Self::Cordoned => "cordoned".to_owned(),
            Self::UntoleratedTaint(taint) => format!("untolerated taint {taint}"),
            Self::NodeAffinityMismatch => "node affinity/selector mismatch".to_owned(),
            Self::RefusedByScheduler(_) => "refused by the scheduler".to_owned(),
            Self::NotShared => "not shared".to_owned(),
            Self::NoGpu => "no GPU".to_owned(),
            Self::SharingLabelWithoutTaint => "sharing label without the taint".to_owned(),
            Self::SharingTaintWithoutLabel => "sharing taint without the label".to_owned(),
            Self::MigEnabled => "MIG enabled".to_owned(),
            Self::MissingVramLabel => "label nvidia.com/gpu.memory missing".to_owned(),
            Self::WholeGpusInUse => "whole GPUs in use".to_owned(),
            Self::UnknownCardsInUse => "unknown cards in use".to_owned(),
            Self::SharedByVram => "GPUs shared by VRAM".to_owned(),
            Self::TooManyPods => "too many pods".to_owned(),
            Self::HostPorts(ports) => format!("host ports in use: {ports}"),
            Self::Vram => "insufficient VRAM".to_owned(),
            Self::Extended(name) => format!("insufficient {name}"),
            Self::Cpu => "insufficient cpu".to_owned(),
            Self::Memory => "insufficient memory".to_owned(),
            Self::EphemeralStorage => "insufficient ephemeral-storage".to_owned(),
            Self::SpreadLabelMissing => "topology label of a spread constraint missing".to_owned(),
            Self::TopologySpread => "topology spread constraint".to_owned(),
            Self::PodAffinity => "pod affinity mismatch".to_owned(),
            Self::PodAntiAffinity => "pod anti-affinity".to_owned(),
            Self::ExistingPodAntiAffinity => "anti-affinity of an existing pod".to_owned(),
        }
    }
}

impl fmt::Display for UnschedulableReason {
    /// Where kube-scheduler has a text for the reason, this is that text (pkg/scheduler/framework/plugins).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("node(s) were not ready"),
            Self::Cordoned => f.write_str("node(s) were unschedulable (cordoned)"),
            Self::UntoleratedTaint(taint) => write!(f, "node(s) had untolerated taint {taint}"),
            Self::NodeAffinityMismatch => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::RefusedByScheduler(message) => {
                write!(f, "node(s) where the scheduler refused an equal pod: {message}")
            }
            Self::NotShared => f.write_str("node(s) were not shared"),
            Self::NoGpu => f.write_str("node(s) had no GPU"),
            Self::SharingLabelWithoutTaint => {
                f.write_str("node(s) had label portcullis.dev/gpu-sharing=vram without the taint")
            }
            Self::SharingTaintWithoutLabel => {
                f.write_str("node(s) had taint portcullis.dev/gpu-sharing=vram without the label")
            }
            Self::MigEnabled => f.write_str("node(s) had MIG enabled"),
            Self::MissingVramLabel => f.write_str("node(s) had no valid label nvidia.com/gpu.memory"),
            Self::WholeGpusInUse => f.write_str("node(s) had a pod with nvidia.com/gpu on unknown cards"),
            Self::UnknownCardsInUse => f.write_str("node(s) had a pod that shares unknown cards"),
            Self::SharedByVram => f.write_str("Insufficient nvidia.com/gpu (GPUs are shared by VRAM)"),
            Self::TooManyPods => f.write_str("Too many pods"),
            Self::HostPorts(ports) => {
                write!(f, "node(s) didn't have free ports for the requested pod ports ({ports})")
            }
            Self::Vram => f.write_str("Insufficient VRAM"),
            Self::Extended(name) => write!(f, "Insufficient {name}"),
            Self::Cpu => f.write_str("Insufficient cpu"),
            Self::Memory => f.write_str("Insufficient memory"),
            Self::EphemeralStorage => f.write_str("Insufficient ephemeral-storage"),
            Self::SpreadLabelMissing => {
                f.write_str("node(s) didn't match pod topology spread constraints (missing required label)")
            }
            Self::TopologySpread => f.write_str("node(s) didn't match pod topology spread constraints"),
            Self::PodAffinity => f.write_str("node(s) didn't match pod affinity rules"),
            Self::PodAntiAffinity => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::ExistingPodAntiAffinity => {
                f.write_str("node(s) didn't satisfy existing pods anti-affinity rules")
            }
        }
    }
}
