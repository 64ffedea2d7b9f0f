//! What the engine remembers of each gang and of each member.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::members::elastic::ElasticState;
use super::members::stale::StaleState;
use super::protocol::plan_progress::Progress;
use super::protocol::{GangStatus, Phase, Placeholder};
use super::queue::QueueRank;
use super::queue::timeout::TimeoutState;
use super::status::conditions::{ConditionStatus, ConditionType};
use super::status::group_status_sync::GroupStatusSync;
use crate::model::{Epoch, NodeName, PodUid, Reason, ResourceVersion, Str, Time};
use crate::planner::Explanation;
use crate::pod::Pod;

/// The leadership state of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Leadership {
    /// This replica does not hold the lease.
    Follower,
    /// This replica holds the lease and reads all objects.
    Listing(Epoch),
    /// All objects are known. The engine fences the still-gated members of plans of older epochs.
    Fencing(Epoch),
    /// The engine plans and lifts.
    Leading(Epoch),
}

/// A pod that belongs to a gang.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MemberState {
    /// The newest version of the pod that the engine has read.
    pub pod: Pod,
    /// The request about the pod that has no answer yet.
    pub request: Option<PodRequest>,
    /// The lift permit: the gate may be removed at this version of the pod. A read of the lease grants it. Any change
    /// of the pod or of its plan revokes it.
    pub permit: Option<ResourceVersion>,
    /// The pod must be fenced, because an earlier lift may still arrive at the API server.
    pub must_fence: bool,
    /// The pod must be read again, because it has changed since the engine read it.
    pub must_read: bool,
    /// The node of the last nomination, successful or not. No decision depends on it.
    pub nominated: Option<NodeName>,
    /// Delay after refused requests.
    pub backoff: Backoff,
}

impl MemberState {
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

    /// Whether the pod has no gate of this project, is not being deleted and has not failed.
    pub(super) fn active(&self) -> bool {
        !self.pod.gated() && !self.pod.terminating && self.pod.phase != crate::pod::PodPhase::Failed
    }

    /// Whether the gate of this project is the only thing that holds the pod back.
    pub(super) fn ready(&self) -> bool {
        self.pod.gated() && self.pod.gates.len() == 1 && !self.pod.terminating && !self.pod.finished()
    }

    /// Whether the pod has not ended and is not being deleted.
    pub(super) fn live(&self) -> bool {
        !self.pod.terminating && !self.pod.finished()
    }

    /// Whether the pod is lifted, has not ended and is not bound to a node.
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

/// A gang, grouped by subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct GangState {
    /// UIDs of the pods of the gang.
    pub members: BTreeSet<PodUid>,
    /// A member that declares the size of its gang was added, changed or removed since the last evaluation.
    pub declarations_changed: bool,
    /// What the engine knows of the owners of the pods. `None` for a gang that is not elastic.
    pub elastic_state: Option<Box<ElasticState>>,
    pub lifecycle: Lifecycle,
    pub record: ObjectSync,
    pub queueing: Queueing,
    pub timers: Timers,
    pub reported: Reported,
}

/// How far a gang is, from its first member to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lifecycle {
    /// The plan and how far it is carried out. Only `Engine::apply_transition` assigns it.
    pub progress: Progress,
    /// Reservations that the next plan gives up. They stay charged until the plan without them is durable.
    pub released_placeholders: Vec<Placeholder>,
    /// Pods that the engine deletes, because the gang timed out or went stale. Durable, or in the next status write.
    pub expired: BTreeSet<PodUid>,
    /// The number of members when the gang was last complete. `None` before the first evaluation.
    pub started_with: Option<u32>,
    /// Set while a gang that was complete lacks members.
    pub stale: Option<StaleState>,
    /// The start timeout. `None` for a gang without one.
    pub timeout: Option<TimeoutState>,
}

/// The `Gang` object and the requests about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ObjectSync {
    /// The object as last read.
    pub object: GangObject,
    /// `metadata.generation` of the object.
    pub generation: u64,
    /// The request about the object that has no answer yet.
    pub request: Option<GangObjectRequest>,
    /// The object must be read again, because it has changed since the engine read it.
    pub must_read: bool,
    /// Delay after refused requests.
    pub backoff: Backoff,
    /// The last refusal of the API server, for the gang or one of its pods.
    pub api_error: Option<Str>,
}

/// The gang in the planning queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Queueing {
    /// Its place in the queue. `None` while it is not queued.
    pub rank: Option<QueueRank>,
    /// Why the planner did not place the gang, or a part of it, at the last attempt.
    pub wait_reason: Option<Explanation>,
}

/// When the engine acts on a gang, or acted last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Timers {
    /// When the timer of the gang fires. The entry in `Engine::timers` has the same time.
    pub next: Option<Time>,
    /// When the planner was last asked about the gang.
    pub last_planned: Option<Time>,
    /// When the engine last deleted members.
    pub last_eviction: Option<Time>,
    /// When the engine last wrote the status.
    pub last_status_write: Option<Time>,
}

/// What the engine has told users about a gang, or is about to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reported {
    /// A new status that is not written before it has been stable for a while.
    pub pending_status: Option<PendingStatus>,
    /// The event `Lifted` is recorded for the current plan.
    pub lifted_event_recorded: bool,
    /// The status of the group object.
    pub group_status: GroupStatusSync,
}

/// A status that waits to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingStatus {
    /// The part of the status that has to be stable.
    pub digest: StatusDigest,
    /// Since when the digest is unchanged.
    pub since: Time,
    /// How long the digest has to be unchanged.
    pub wait: Duration,
}

/// The part of a status whose change is news. Everything else in a status is numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StatusDigest {
    phase: Phase,
    reason: Option<Reason>,
    /// Ready and live members while the gang gathers. After the start they are numbers like others.
    gathered: Option<(String, u32)>,
    conditions: Vec<(ConditionType, ConditionStatus)>,
}

impl StatusDigest {
    pub(super) fn of(status: &GangStatus) -> Self {
        Self {
            phase: status.phase,
            reason: status.reason,
            gathered: (status.phase == Phase::Gathering).then(|| (status.ready.clone(), status.members)),
            conditions: status.conditions.iter().map(|c| (c.kind, c.status)).collect(),
        }
    }

    /// Whether both are equal, apart from the members that have gathered.
    pub(super) fn differs_only_in_members(&self, other: &Self) -> bool {
        let Self { phase, reason, gathered: _, conditions } = self;
        (phase, reason, conditions) == (&other.phase, &other.reason, &other.conditions)
    }
}

/// The `Gang` object as the engine knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum GangObject {
    /// The engine knows of no object.
    #[default]
    Absent,
    /// Version and status of the last reading.
    Known(ResourceVersion, Arc<GangStatus>),
}

/// A request about a `Gang` object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum GangObjectRequest {
    Create,
    Read,
    Write,
    Delete,
}

/// Exponential delay after failed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Time>,
}

impl Backoff {
    const FIRST_DELAY: Duration = Duration::from_millis(50);
    const MAX_DELAY: Duration = Duration::from_secs(5);

    pub(super) fn fail(&mut self, now: Time) {
        let wait = Self::FIRST_DELAY.saturating_mul(1 << self.failures.min(10)).min(Self::MAX_DELAY);
        self.failures = self.failures.saturating_add(1).min(10);
        self.until = Some(now.after(wait));
    }

    pub(super) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// Forgets a delay that is over, so that it sets no timer again. The number of failures stays.
    pub(super) fn pass(&mut self, now: Time) {
        if self.waits(now).is_none() {
            self.until = None;
        }
    }

    /// The end of the delay, also when it is in the past.
    pub(super) fn until(&self) -> Option<Time> {
        self.until
    }

    /// The end of the delay, if it is in the future. An end further away than `MAX_DELAY` comes from a clock that jumped
    /// back and is ignored.
    pub(super) fn waits(&self, now: Time) -> Option<Time> {
        self.until.filter(|until| *until > now && until.since(now) <= Self::MAX_DELAY)
    }
}
