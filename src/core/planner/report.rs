//! Why gangs were placed or not: typed, counted, and readable as one sentence.

use std::collections::BTreeMap;

use crate::model::{GangId, Reason};

/// A verdict for every gang that was asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By gang.
    pub verdicts: BTreeMap<GangId, Verdict>,
}

/// What came of one gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// So many of its waiting members have a place; `left` explains those that have none.
    Placed {
        /// How many.
        members: u32,
        /// Why the rest, beyond the quorum, has to wait.
        left: Option<Explanation>,
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
    pub sentence: String,
    /// The nearest thing that would unblock it, as a sentence.
    pub remedy: Option<String>,
    /// How many nodes were looked at.
    pub nodes: u32,
    /// How many of them refused, by reason, for the member that could not be placed.
    pub refusals: BTreeMap<Refusal, u32>,
}

/// Why one node refuses one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// A plain reason.
    Because(Reason),
    /// A reason with what it is about: a taint, a resource name.
    About(Reason, String),
}
