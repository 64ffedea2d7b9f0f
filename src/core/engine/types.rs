//! What goes into the engine and what comes out of it, and what it keeps in the `Gang` object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::conditions::Condition;
use super::held::Placeholder;
use crate::dialect::{GroupEvent, GroupKey, GroupKind, GroupObject, GroupStatus};
use crate::model::{Epoch, GangId, NodeName, PodKey, PodUid, Reason, ResourceVersion, Str, Time};
use crate::objects::{Node, ObjectRef, PriorityClass};
use crate::pod::{OwnerState, Pod};

/// Something the engine is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The lease is ours, with this many transitions.
    LeaseAcquired(Epoch),
    /// The lease is not ours any more, or cannot be renewed.
    LeaseLost,
    /// Answer to [`Action::List`] of this epoch: a read of everything that was begun after that effect was sent.
    Listed(Epoch, ListedObjects),
    /// A watch was broken: everything of one kind, from a consistent read. Objects not in it are gone.
    Relisted(ListedObjects),
    /// A watch told of a node.
    Node(Change<Node, NodeName>),
    /// A watch told of a pod.
    Pod(Change<Pod, PodUid>),
    /// A watch told of a group object.
    Group(Change<GroupObject, GroupKey>),
    /// A watch told of a PriorityClass.
    PriorityClass(Change<PriorityClass, Str>),
    /// A watch told of one of our own `Gang` objects.
    Gang(Change<GangRecord, GangId>),
    /// An effect that was sent out has come to an end. Exactly one answer for each effect whose action asks for one
    /// (see [`Action`]), also when the request was lost: then [`RequestOutcome::Unknown`].
    Answer {
        /// The epoch of the effect that is answered.
        epoch: Epoch,
        /// What it was about. At most one request is under way for each subject.
        subject: RequestTarget,
        /// What came of it.
        outcome: RequestOutcome,
    },
    /// Nothing more is waiting to be told: time to plan, and to look at deadlines.
    Tick,
}

/// An object as it is now, or its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change<T, K> {
    /// It exists and looks like this.
    Set(T),
    /// It is gone.
    Gone(K),
}

/// A consistent read. In [`Event::Relisted`] only the kinds that were read are `Some`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListedObjects {
    /// All nodes.
    pub nodes: Option<Vec<Node>>,
    /// All pods.
    pub pods: Option<Vec<Pod>>,
    /// All group objects of each kind that was read.
    pub groups: BTreeMap<GroupKind, Vec<GroupObject>>,
    /// All our `Gang` objects.
    pub gangs: Option<Vec<GangRecord>>,
    /// All PriorityClasses. `None` in [`Event::Listed`] where they may not be read: then nothing is known of them.
    pub priority_classes: Option<Vec<PriorityClass>>,
}

/// What a request and its answer are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestTarget {
    /// The lease.
    Lease,
    /// A `Gang` object.
    Gang(GangId),
    /// A pod.
    Pod(PodUid),
    /// The status of a group object.
    Group(GangId),
    /// An owner of pods of an elastic gang.
    Owner(GangId, ObjectRef),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    /// The lease was read: whether it names us, under the epoch of the effect.
    Lease {
        /// Still ours, with the same number of transitions.
        ours: bool,
    },
    /// The gang object as it is after the write, or as it was read.
    Gang(Box<GangRecord>),
    /// The pod as it is after the write, or as it was read.
    Pod(Box<Pod>),
    /// The owner of pods as it was read.
    Owner(Box<OwnerState>),
    /// It is done, and what the object looks like now is of no concern.
    Done,
    /// The object is not there, or it is another one by the same name.
    Gone,
    /// The object has changed since the version we know (HTTP 409, or a failed `test` of a patch: 422).
    Conflict,
    /// The API server says no and means it for now: what it said. Worth trying again later.
    Refused(String),
    /// Sent, and no answer: it may have been done, may not, and may still be.
    Unknown,
}

/// Something the engine wants done, under the epoch it believes in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Effect {
    /// The epoch under which it was decided.
    pub epoch: Epoch,
    /// What is to be done.
    pub action: Action,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read everything consistently; answered by [`Event::Listed`].
    List,
    /// Read the lease; answered with [`RequestOutcome::Lease`] about [`RequestTarget::Lease`].
    ReadLease,
    /// Give the lease up, or do not renew it: somebody newer is there. Not answered.
    StepDown,
    /// Create the `Gang` object, without a status. Answered about [`RequestTarget::Gang`].
    CreateGang {
        /// Which gang.
        gang: GangId,
        /// Its group object, to own it; `None` where there is none, or none yet: then it goes with its last pod.
        owner: Option<ObjectRef>,
    },
    /// Read the `Gang` object. Answered about [`RequestTarget::Gang`].
    ReadGang {
        /// Which gang.
        gang: GangId,
    },
    /// Compare-and-swap of the status of the `Gang` object. Answered about [`RequestTarget::Gang`].
    WriteGang {
        /// Which gang.
        gang: GangId,
        /// Only if it is still at this version.
        expected: ResourceVersion,
        /// The whole status.
        status: GangStatus,
    },
    /// Delete the `Gang` object, only at this version. Answered about [`RequestTarget::Gang`] ([`RequestOutcome::Gone`] is success).
    DeleteGang {
        /// Which gang.
        gang: GangId,
        /// Only if it is still at this version.
        expected: ResourceVersion,
    },
    /// Say in the status of the group object itself how its gang stands. A courtesy: nothing rests on it, so it is not
    /// fenced, and a late one is written over by the next. Answered about [`RequestTarget::Group`] ([`RequestOutcome::Done`] is success).
    WriteGroup {
        /// Which gang.
        gang: GangId,
        /// The kind of its group object.
        kind: GroupKind,
        /// That object.
        group: ObjectRef,
        /// What is said.
        status: GroupStatus,
    },
    /// Read an owner of pods of an elastic gang, one of a kind in [`crate::objects::OwnerKind`]. Answered about
    /// [`RequestTarget::Owner`].
    ReadOwner {
        /// Whose pods.
        gang: GangId,
        /// Which owner.
        owner: ObjectRef,
    },
    /// Read a pod. Answered about [`RequestTarget::Pod`].
    ReadPod {
        /// Which one.
        pod: PodRef,
    },
    /// Write something harmless to a pod (annotation `portcullis.dev/epoch`), so that no patch that tests an older
    /// version can still be applied to it. Answered about [`RequestTarget::Pod`].
    Fence {
        /// Which one.
        pod: PodRef,
        /// What is written: unlike anything that was written there before.
        token: Str,
    },
    /// Set `status.nominatedNodeName`, or clear it. Answered about [`RequestTarget::Pod`].
    Nominate {
        /// Which one.
        pod: PodRef,
        /// Where it is to go; `None` takes an earlier nomination back.
        node: Option<NodeName>,
    },
    /// Remove our gate, pin, and hand out cards, in one patch that applies only to this very version. Answered about
    /// [`RequestTarget::Pod`].
    Lift {
        /// Which one, as we know it: the patch depends on its gates and affinity.
        pod: Box<Pod>,
        /// Only if it is still at this version; `None` only where a test has taken that rule away.
        permit: Option<ResourceVersion>,
        /// Where it goes.
        node: NodeName,
        /// How strictly.
        pin: NodePinning,
        /// Its cards.
        cards: Vec<u32>,
    },
    /// Delete a pod, only this very one. Not answered: the watch tells.
    Evict {
        /// Which one.
        pod: PodRef,
        /// Why, for the log.
        message: String,
    },
    /// Tell people: an event on the gang's objects and a log line. Not answered.
    RecordEvent(GangEvent),
}

/// A pod by name and identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// Namespace and name.
    pub key: PodKey,
    /// Identity.
    pub uid: PodUid,
}

impl PodRef {
    /// Names `pod`.
    pub fn of(pod: &Pod) -> Self {
        Self { key: pod.key.clone(), uid: pod.uid.clone() }
    }
}

/// Something worth telling: an event on the `Gang` object, on the group object where there is one, and on each of a few
/// pods; and a log line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GangEvent {
    /// About which gang.
    pub gang: GangId,
    /// Its code.
    pub reason: Reason,
    /// The sentence, the same in event, condition and log.
    pub message: String,
    /// Whether somebody should worry.
    pub warning: bool,
    /// The group object, where there is one.
    pub group: Option<ObjectRef>,
    /// What the group object is told instead, where its stack has words of its own for it.
    pub group_event: Option<GroupEvent>,
    /// The pods that are told as well: the engine keeps this list short, and empty where all is well.
    pub pods: Vec<PodRef>,
}

/// How a lifted pod is tied to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodePinning {
    /// Required node affinity: this node or none. For VRAM, which no scheduler checks.
    Required,
    /// Preferred node affinity: this node if it still can be.
    Preferred,
    /// Not at all: its own scheduler places it.
    None,
}

/// Our own object as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GangRecord {
    /// Which gang it is about.
    pub gang: GangId,
    /// Version of this reading.
    pub resource_version: ResourceVersion,
    /// `metadata.generation`: counts changes of its spec.
    pub generation: u64,
    /// Its status.
    pub status: GangStatus,
}

/// Where a gang stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Members are missing.
    #[default]
    Gathering,
    /// Complete, and it does not fit.
    Waiting,
    /// A plan is durable.
    Planned,
    /// Gates are being removed; all of them will be.
    Lifting,
    /// Every planned member is bound.
    Admitted,
    /// Lifted, and past its deadline not all bound.
    Torn,
}

impl Phase {
    /// As users see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gathering => "Gathering",
            Self::Waiting => "Waiting",
            Self::Planned => "Planned",
            Self::Lifting => "Lifting",
            Self::Admitted => "Admitted",
            Self::Torn => "Torn",
        }
    }
}

/// `status` of a `Gang` object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangStatus {
    /// The leader that wrote this, by its epoch: who sees a newer one than its own steps down.
    pub epoch: Epoch,
    /// Where it stands.
    pub phase: Phase,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Why, in a sentence with numbers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What would change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// How many members must be there.
    pub min_member: u32,
    /// Ready or started members of those that must be there: `3/3`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ready: String,
    /// What is missing, in a few words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
    /// How many live members there are.
    pub members: u32,
    /// How many of them are bound.
    pub bound: u32,
    /// What all members together ask for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub needs: String,
    /// Place in the queue, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Since when it is in this phase.
    pub since: Time,
    /// What holds and what does not, for `kubectl wait` and for tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// With how many members it last was whole; none while it has not been, and once members of it have ended well: then
    /// it is on its way to its end.
    #[serde(skip_serializing_if = "is_zero")]
    pub started_with: u32,
    /// Pods that are to be deleted, because the gang has not started in time or is not whole any more. None of them is
    /// ever lifted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expired: Vec<PodUid>,
    /// The decision. Its presence is what makes lifting allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanRecord>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A durable decision: these pods, these places, by this leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRecord {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// Until when every member should be bound.
    pub deadline: Time,
    /// Who goes where.
    pub members: Vec<PlannedMember>,
    /// Room that is held for members that are made only after others have started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placeholders: Vec<Placeholder>,
    /// Until when it is held, if none of them comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_until: Option<Time>,
    /// How many places were let go before somebody came to take them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub released: u32,
}

/// One member of a durable decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedMember {
    /// Name of the pod, in the gang's namespace.
    pub pod: Str,
    /// Identity of the pod.
    pub uid: PodUid,
    /// Where it goes.
    pub node: NodeName,
    /// Its cards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
}
