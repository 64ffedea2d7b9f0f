//! How far the lifts of a plan are tried, and the one that the API server refused.

use std::collections::BTreeSet;

use crate::engine::protocol::Refusal;
use crate::model::{PodUid, Str};

/// How far the lifts of a plan are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) enum LiftTrial {
    /// Not begun.
    #[default]
    Open,
    /// These members are tried, each for all that are alike. None of them is accepted yet.
    Trying(BTreeSet<PodUid>),
    /// The API server accepts the lift of every member.
    Passed,
}

/// The members of a plan that may be lifted, apart from their lift permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Liftable {
    /// No member: the lifts are not tried yet, or one is refused.
    None,
    /// This member, whose lift was refused before.
    Only(PodUid),
    /// All members: every lift is tried, or a member is already lifted.
    All,
}

impl Liftable {
    /// Whether this member may be lifted.
    pub(in crate::engine) fn contains(&self, member: &PodUid) -> bool {
        match self {
            Self::None => false,
            Self::Only(uid) => uid == member,
            Self::All => true,
        }
    }
}

/// A lift that the API server refused, in a dry run or not. No member of the plan was lifted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct RefusedLift {
    /// Name of the pod.
    pub pod: Str,
    /// The response.
    pub refusal: Refusal,
}
