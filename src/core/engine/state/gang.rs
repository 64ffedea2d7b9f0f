//! A gang: its members and everything that the engine remembers of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::dialect::Group;
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::protocol::{
    ConditionStatus, ConditionType, GangStatus, Phase, Placeholder, PlanRecord, PlannedMember, TornRecord,
};
use crate::engine::queue::QueueRank;
use crate::engine::state::{
    ElasticState, EngineView, GroupObjects, GroupStatusSync, LiftTrial, MemberState, RefusedLift, RetryTimer,
    TimeoutState,
};
use crate::model::{GangId, PodUid, Reason, ResourceVersion, Str, Time};

/// A gang, grouped by subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Gang {
    pub id: GangId,
    /// The pods of the gang.
    pub members: BTreeMap<PodUid, MemberState>,
    /// A member that declares the size of its gang was added, changed or removed since the last evaluation.
    pub declarations_changed: bool,
    /// The group that members declare, or the sentence about their contradiction. `None` if no member
    /// declares anything.
    pub declared_group: Option<Result<Group, Str>>,
    /// The group with the number of members that the owners want. `None` for a gang that is not elastic.
    pub elastic_group: Option<Group>,
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
pub(in crate::engine) struct Lifecycle {
    /// The plan and how far it is carried out. Only `Gang::advance_plan` assigns it.
    pub progress: Progress,
    /// How far the lifts of the plan are tried.
    pub lift_trial: LiftTrial,
    /// The lift that the API server refused last. The gang is not planned while it is set.
    pub refused_lift: Option<Box<RefusedLift>>,
    /// The member whose lift was refused although its trial was accepted. It is lifted before the others, so
    /// that a further refusal is one request.
    pub first_lift: Option<PodUid>,
    /// When the gang is planned again after a refused lift.
    pub lift_retry: RetryTimer,
    /// Reservations that the next plan gives up. They stay charged until the plan without them is durable.
    pub released_placeholders: Vec<Placeholder>,
    /// Pods that the engine evicts, because the gang timed out or went stale. Durable, or in the next status
    /// write.
    pub expired: BTreeSet<PodUid>,
    /// The number of members when the gang was last complete. `None` before the first evaluation.
    pub started_with: Option<u32>,
    /// Set while a gang that was complete lacks members.
    pub stale: Option<StaleState>,
    /// The retries of a torn gang. `None` unless the policy is to retry.
    pub torn: Option<TornRecord>,
    /// The start timeout. `None` for a gang without one.
    pub timeout: Option<TimeoutState>,
}

/// State of a stale gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct StaleState {
    /// Since when the gang is stale.
    pub since: Time,
    /// The grace period is over, and the event is recorded.
    pub event_recorded: bool,
}

/// The `Gang` object and the requests about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct ObjectSync {
    /// The object as last read.
    pub object: GangObject,
    /// `metadata.generation` of the object.
    pub generation: u64,
    /// The request about the object that has no answer yet.
    pub request: Option<GangObjectRequest>,
    /// The object must be read again, because it has changed since the engine read it.
    pub must_read: bool,
    /// Delay after refused requests.
    pub retry: RetryTimer,
    /// The last refusal of the API server, for the gang or one of its pods.
    pub api_error: Option<Str>,
}

/// The gang in the planning queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Queueing {
    /// Its place in the queue. `None` while it is not queued.
    pub rank: Option<QueueRank>,
    /// Why the planner did not place the gang, or a part of it, at the last attempt.
    pub wait_reason: Option<crate::planner::Explanation>,
}

/// When the engine acts on a gang, or acted last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Timers {
    /// When the timer of the gang fires. The entry in `Engine::timers` has the same time.
    pub next: Option<Time>,
    /// When the planner was last asked about the gang.
    pub last_planned: Option<Time>,
    /// When the engine last evicted members.
    pub last_eviction: Option<Time>,
    /// When the engine last wrote the status.
    pub last_status_write: Option<Time>,
}

/// What the engine has reported to users about a gang, or is about to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Reported {
    /// A new status that is not written before it has been stable for a while.
    pub pending_status: Option<PendingStatus>,
    /// The event `Lifted` is recorded for the current plan.
    pub lifted_event_recorded: bool,
    /// The status of the group object.
    pub group_status: GroupStatusSync,
}

/// A status that waits to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct PendingStatus {
    /// The part of the status that has to be stable.
    pub digest: StatusDigest,
    /// Since when the digest is unchanged.
    pub since: Time,
    /// How long the digest has to be unchanged.
    pub wait: Duration,
}

/// The part of a status whose change is news. Everything else in a status is numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct StatusDigest {
    phase: Phase,
    reason: Option<Reason>,
    /// Ready and live members while the gang gathers. After the start they are numbers like others.
    gathered: Option<(String, u32)>,
    conditions: Vec<(ConditionType, ConditionStatus)>,
}

impl StatusDigest {
    pub(in crate::engine) fn of(status: &GangStatus) -> Self {
        Self {
            phase: status.phase,
            reason: status.reason,
            gathered: (status.phase == Phase::Gathering).then(|| (status.ready.clone(), status.members)),
            conditions: status.conditions.iter().map(|c| (c.kind, c.status)).collect(),
        }
    }

    /// Whether both are equal, apart from the members that have gathered.
    pub(in crate::engine) fn differs_only_in_members(&self, other: &Self) -> bool {
        let Self { phase, reason, gathered: _, conditions } = self;
        (phase, reason, conditions) == (&other.phase, &other.reason, &other.conditions)
    }
}

/// The `Gang` object as the engine knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) enum GangObject {
    /// The engine knows of no object.
    #[default]
    Absent,
    /// Version and status of the last reading.
    Known(ResourceVersion, Arc<GangStatus>),
}

impl GangObject {
    /// The stored status. `None` if the engine knows of no object.
    pub(in crate::engine) fn status(&self) -> Option<&Arc<GangStatus>> {
        match self {
            Self::Absent => None,
            Self::Known(_, status) => Some(status),
        }
    }
}

/// A request about a `Gang` object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum GangObjectRequest {
    Create,
    Read,
    Write,
    Delete,
}

impl Gang {
    /// A gang without members.
    pub(in crate::engine) fn new(id: GangId) -> Self {
        Self {
            id,
            members: BTreeMap::new(),
            declarations_changed: false,
            declared_group: None,
            elastic_group: None,
            elastic_state: None,
            lifecycle: Lifecycle::default(),
            record: ObjectSync::default(),
            queueing: Queueing::default(),
            timers: Timers::default(),
            reported: Reported::default(),
        }
    }

    /// The group that applies to the gang: by its group object, its members or the owners of its pods.
    pub(in crate::engine) fn group<'a>(&'a self, view: &EngineView<'a>) -> Option<&'a Group> {
        self.group_among(view.group_objects)
    }

    /// The same, with these group objects.
    pub(in crate::engine) fn group_among<'a>(&'a self, objects: &'a GroupObjects) -> Option<&'a Group> {
        self.elastic_group.as_ref().or_else(|| self.own_group(objects))
    }

    /// The group by group object or members, without the number of owners.
    pub(in crate::engine) fn own_group<'a>(&'a self, objects: &'a GroupObjects) -> Option<&'a Group> {
        objects.get(&self.id).or_else(|| self.declared_group.as_ref()?.as_ref().ok())
    }

    /// The plan whose members are charged to their nodes.
    pub(in crate::engine) fn plan(&self) -> Option<&PlanRecord> {
        self.lifecycle.progress.plan()
    }

    /// The placeholders in the plan.
    pub(in crate::engine) fn placeholders(&self) -> &[Placeholder] {
        self.plan().map_or(&[], |plan| &plan.placeholders)
    }

    /// The members of a plan that exist, with their assignments.
    pub(in crate::engine) fn present<'a>(
        &'a self,
        plan: &'a PlanRecord,
    ) -> impl Iterator<Item = (&'a PlannedMember, &'a MemberState)> {
        plan.members.iter().filter_map(|planned| Some((planned, self.members.get(&planned.uid)?)))
    }

    /// Whether a member of the plan is lifted.
    pub(in crate::engine) fn has_started(&self, plan: &PlanRecord) -> bool {
        self.present(plan).any(|(_, member)| !member.pod.gated())
    }

    /// Whether a member of the plan is gated.
    pub(in crate::engine) fn has_gated(&self, plan: &PlanRecord) -> bool {
        self.present(plan).any(|(_, member)| member.pod.gated())
    }

    /// Whether the engine deleted members so recently that it waits before it deletes them again. A clock
    /// that jumped back does not prolong the wait.
    pub(in crate::engine) fn evicted_recently(&self, interval: Duration, now: Time) -> bool {
        self.timers.last_eviction.is_some_and(|at| now.since(at) < interval && now >= at)
    }
}
