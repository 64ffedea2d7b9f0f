//! What the engine keeps of each gang and member.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::conditions::{ConditionStatus, ConditionType};
use super::courtesy::Courtesy;
use super::elastic::Following;
use super::held::Placeholder;
use super::queue::Rank;
use super::stale::Stale;
use super::timeout::Lapse;
use super::types::{GangStatus, Phase, PlanRecord};
use crate::model::{Epoch, NodeName, PodUid, Reason, ResourceVersion, Str, Time};
use crate::planner::Explanation;
use crate::pod::Pod;

/// Whether this replica leads, and how far it has come with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// Somebody else leads, or nobody.
    Following,
    /// The lease is ours; everything is being read.
    Listing(Epoch),
    /// Everything is known; still-gated members of older plans are being fenced.
    Fencing(Epoch),
    /// Plans and lifts.
    Leading(Epoch),
}

/// A pod that belongs to a gang.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    /// The newest reading.
    pub pod: Pod,
    /// The request about it that is under way.
    pub request: Option<PodRequest>,
    /// It may be lifted at this version: set by a read of the lease, cleared by any change of the pod or of its plan.
    pub permit: Option<ResourceVersion>,
    /// Nothing about it is sure until it has been written: a lift may still be on its way.
    pub must_fence: bool,
    /// It has changed behind our back.
    pub must_read: bool,
    /// The node it was last nominated to by us, whether or not that worked: a nomination helps, nothing rests on it.
    pub nominated: Option<NodeName>,
    /// After refusals.
    pub backoff: Backoff,
}

impl Member {
    pub(super) fn new(pod: Pod) -> Self {
        Self {
            pod,
            request: None,
            permit: None,
            must_fence: false,
            must_read: false,
            nominated: None,
            backoff: Backoff::default(),
        }
    }

    /// Lifted or never gated, and on its way or running.
    pub(super) fn active(&self) -> bool {
        !self.pod.gated() && !self.pod.terminating && self.pod.phase != crate::pod::PodPhase::Failed
    }

    /// Waits behind our gate alone.
    pub(super) fn ready(&self) -> bool {
        self.pod.gated() && self.pod.gates.len() == 1 && !self.pod.terminating && !self.pod.finished()
    }

    /// Still there and not on its way out.
    pub(super) fn live(&self) -> bool {
        !self.pod.terminating && !self.pod.finished()
    }

    /// Lifted, not ended, and on no node yet.
    pub(super) fn unbound(&self) -> bool {
        !self.pod.gated() && self.pod.node.is_none() && !self.pod.finished()
    }
}

/// A request about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PodRequest {
    Read,
    Fence,
    Nominate,
    Lift,
}

/// A gang, as far as anything is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Gang {
    /// Its pods.
    pub members: BTreeSet<PodUid>,
    /// What is decided.
    pub progress: Progress,
    /// Our object about it.
    pub object: Object,
    /// `metadata.generation` of that object.
    pub generation: u64,
    /// The request about that object that is under way.
    pub request: Option<GangRequest>,
    /// It has changed behind our back.
    pub must_read: bool,
    /// After refusals.
    pub backoff: Backoff,
    /// Why it could not be planned when it last was looked at.
    pub verdict: Option<Waiting>,
    /// Its place in the queue, while it is in it.
    pub rank: Option<Rank>,
    /// When it was last asked whether it fits.
    pub looked: Option<Time>,
    /// What it would say of itself, and since when: written once it has been so for a while.
    pub pending: Option<Pending>,
    /// When its status was last written.
    pub written: Option<Time>,
    /// When its alarm is set for.
    pub alarm: Option<Time>,
    /// What the API server last refused to do for it.
    pub trouble: Option<Str>,
    /// People have been told that the plan of now is lifted.
    pub told_lifted: bool,
    /// How far it is with its tries, where it may not wait for ever.
    pub lapse: Option<Lapse>,
    /// Pods that are to be deleted, because it has not started in time or is not whole any more: decided, and durable or
    /// about to be.
    pub expired: BTreeSet<PodUid>,
    /// Room that was held for members to come and is let go: charged until the plan without it is durable.
    pub letting_go: Vec<Placeholder>,
    /// With how many members it last was whole; `None` before that was looked at.
    pub started_with: Option<u32>,
    /// It was whole, and is not any more.
    pub stale: Option<Stale>,
    /// When its members were last asked to leave.
    pub evicted: Option<Time>,
    /// What its group object says.
    pub courtesy: Courtesy,
    /// A member that says something of it came, changed or went, and what they say is not looked at yet.
    pub spoken_of: bool,
    /// What is known of the owners of its pods, where it takes as many members as they want.
    pub following: Option<Box<Following>>,
}

/// A status that is not written yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    /// What of it is news.
    pub gist: Gist,
    /// Since when its gist is this.
    pub since: Time,
    /// How long it has to be so.
    pub wait: Duration,
}

/// What of a status is news by itself; the rest is numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Gist {
    phase: Phase,
    reason: Option<Reason>,
    /// Who is there, while it gathers; of a gang that has started it is a number like others.
    here: Option<(String, u32)>,
    conditions: Vec<(ConditionType, ConditionStatus)>,
}

impl Gist {
    pub(super) fn of(status: &GangStatus) -> Self {
        Self {
            phase: status.phase,
            reason: status.reason,
            here: (status.phase == Phase::Gathering).then(|| (status.ready.clone(), status.members)),
            conditions: status.conditions.iter().map(|c| (c.kind, c.status)).collect(),
        }
    }

    /// Whether both say the same but for who is there.
    pub(super) fn differs_by_who_is_here(&self, other: &Self) -> bool {
        let Self { phase, reason, here: _, conditions } = self;
        (phase, reason, conditions) == (&other.phase, &other.reason, &other.conditions)
    }
}

/// Why a complete gang has no plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    pub explanation: Explanation,
}

/// What is decided about a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Progress {
    /// Nothing, or everything that was is done.
    #[default]
    Undecided,
    /// Decided, and not known to be durable yet.
    Recording(PlanRecord),
    /// Durable under our epoch: it is being carried out, or was.
    Recorded(PlanRecord),
    /// Durable under our epoch, and being taken back before anything is lifted.
    Dropping(PlanRecord, Str),
}

impl Progress {
    /// The plan whose members hold their place.
    pub(super) fn plan(&self) -> Option<&PlanRecord> {
        match self {
            Self::Undecided => None,
            Self::Recording(plan) | Self::Recorded(plan) | Self::Dropping(plan, _) => Some(plan),
        }
    }
}

/// Our own object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Object {
    /// There is none, as far as we know.
    #[default]
    Absent,
    /// It looked like this.
    Known(ResourceVersion, Arc<GangStatus>),
}

/// A request about a `Gang` object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum GangRequest {
    Create,
    Read,
    Write,
    Delete,
}

/// How long to leave something alone that was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Time>,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(5);

    pub(super) fn fail(&mut self, now: Time) {
        let wait = Self::FIRST.saturating_mul(1 << self.failures.min(10)).min(Self::LONGEST);
        self.failures = self.failures.saturating_add(1).min(10);
        self.until = Some(now.after(wait));
    }

    pub(super) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// Forgets a wait that is over, so that nothing is woken by it again; how often it failed stays.
    pub(super) fn pass(&mut self, now: Time) {
        if self.waits(now).is_none() {
            self.until = None;
        }
    }

    /// Until when to wait.
    pub(super) fn until(&self) -> Option<Time> {
        self.until
    }

    /// Until when to wait, if that is still ahead. A clock that jumped back far does not make it wait for ever.
    pub(super) fn waits(&self, now: Time) -> Option<Time> {
        self.until.filter(|until| *until > now && until.since(now) <= Self::LONGEST)
    }
}
