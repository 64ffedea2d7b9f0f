//! Why gangs were placed or not: typed, counted, and readable as one sentence.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::{GangId, Reason};

/// A verdict for every gang that was asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanningReport {
    /// By gang.
    pub outcomes: BTreeMap<GangId, PlanningOutcome>,
}

/// What came of one gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanningOutcome {
    /// So many of its waiting members have a place; `unplaced` explains those that have none.
    Placed {
        /// How many.
        members: u32,
        /// Why the rest, beyond the quorum, has to wait.
        unplaced: Option<Explanation>,
    },
    /// None has.
    Waiting(Explanation),
}

/// Why a gang waits and what would change it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Explanation {
    /// The reason that weighs most.
    pub reason: Reason,
    /// One sentence with the numbers, for condition and event: what is short, how much, on how many nodes.
    pub message: String,
    /// The same in a few words, to be put after "waiting for": `5000 MiB more VRAM (15000 of 20000 MiB free)`,
    /// `8000 MiB on one card (most free 7000 MiB, node gpu-1)`.
    pub waiting_for: String,
    /// The nearest thing that would unblock it, as a sentence.
    pub remedy: Option<String>,
    /// How many nodes were looked at.
    pub nodes: u32,
    /// How many of them refused, by reason, for the member that could not be placed.
    pub infeasible_nodes: BTreeMap<UnschedulableReason, u32>,
}

/// Why one node refuses one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnschedulableReason {
    /// A plain reason.
    Plain(Reason),
    /// A reason with what it is about: a taint, a resource name.
    Detailed(Reason, String),
}

impl UnschedulableReason {
    /// The reason, whatever it is about.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Plain(reason) | Self::Detailed(reason, _) => *reason,
        }
    }
}

impl fmt::Display for UnschedulableReason {
    /// As the stock scheduler would say it, to stand after a number of nodes: `insufficient cpu`,
    /// `untolerated taint {test: blocked}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(reason) => f.write_str(match reason {
                Reason::InsufficientVram => "insufficient VRAM",
                Reason::InsufficientExtended => "insufficient extended resources",
                Reason::InsufficientCpu => "insufficient cpu",
                Reason::InsufficientMemory => "insufficient memory",
                Reason::InsufficientEphemeralStorage => "insufficient ephemeral-storage",
                Reason::TooManyPods => "too many pods",
                Reason::HostPortConflict => "host port in use",
                Reason::NodeAffinityMismatch => "node selector or affinity mismatch",
                Reason::MissingVramLabel => "label nvidia.com/gpu.memory missing",
                Reason::NoSharedNode => "not a shared node",
                other => other.as_str(),
            }),
            Self::Detailed(Reason::UntoleratedTaint, taint) => write!(f, "untolerated taint {taint}"),
            Self::Detailed(Reason::InsufficientExtended, name) => write!(f, "insufficient {name}"),
            Self::Detailed(Reason::HostPortConflict, port) => write!(f, "host port {port} in use"),
            Self::Detailed(_, what) => f.write_str(what),
        }
    }
}
