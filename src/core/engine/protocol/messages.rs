//! What goes into the engine and what comes out of it.

use std::collections::BTreeMap;

use portcullis_text::truncate;

use crate::dialect::{GroupEvent, GroupKey, GroupKind, GroupObject, GroupStatus};
use crate::model::{Epoch, GangId, NodeName, PodKey, PodUid, Reason, ResourceVersion, Str, str};
use crate::objects::{Namespace, Node, ObjectRef, PriorityClass};
use crate::pod::{OwnerState, Pod};

use super::{GangRecord, GangStatus};

/// An input of the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// This replica holds the lease. The epoch is the number of lease transitions.
    LeaseAcquired(Epoch),
    /// This replica does not hold the lease any more, or cannot renew it.
    LeaseLost,
    /// The answer to [`Action::List`] of this epoch: a read of all objects that began after that effect was
    /// sent.
    Listed(Epoch, ListedObjects),
    /// A watch event about a node.
    Node(Change<Node, NodeName>),
    /// A watch event about a pod.
    Pod(Change<Pod, PodUid>),
    /// A watch event about a group object.
    Group(Change<GroupObject, GroupKey>),
    /// A watch event about a PriorityClass.
    PriorityClass(Change<PriorityClass, Str>),
    /// A watch event about a namespace.
    Namespace(Change<Namespace, Str>),
    /// A watch event about a `Gang` object.
    Gang(Change<GangRecord, GangId>),
    /// The result of an effect. Every effect whose action asks for an answer (see [`Action`]) gets exactly
    /// one. A lost request is answered with [`RequestOutcome::Unknown`].
    Answer {
        /// The epoch of the effect.
        epoch: Epoch,
        /// The target of the request. Each target has at most one unanswered request.
        subject: RequestTarget,
        /// The result of the request.
        outcome: RequestOutcome,
    },
    /// No more events are waiting: the engine plans and looks at its timers.
    Tick,
}

/// The new state of an object, or its deletion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change<T, K> {
    /// The object exists in this state.
    Set(T),
    /// The object with this key is deleted.
    Gone(K),
}

/// A consistent read of all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListedObjects {
    /// All nodes.
    pub nodes: Option<Vec<Node>>,
    /// All pods.
    pub pods: Option<Vec<Pod>>,
    /// All group objects of each kind that was read.
    pub groups: BTreeMap<GroupKind, Vec<GroupObject>>,
    /// All `Gang` objects.
    pub gangs: Option<Vec<GangRecord>>,
    /// All PriorityClasses. `None` in [`Event::Listed`] if RBAC forbids the read: then the engine knows none.
    pub priority_classes: Option<Vec<PriorityClass>>,
    /// All namespaces.
    pub namespaces: Option<Vec<Namespace>>,
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestTarget {
    /// The lease.
    Lease,
    /// The `Gang` object of a gang.
    Gang(GangId),
    /// A pod.
    Pod(PodUid),
    /// The status of the group object of a gang.
    Group(GangId),
    /// An owner of pods of an elastic gang.
    Owner(GangId, ObjectRef),
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    /// The lease was read.
    Lease {
        /// The lease names this replica, with the number of transitions of the effect's epoch.
        ours: bool,
    },
    /// The `Gang` object after the write, or as it was read.
    Gang(Box<GangRecord>),
    /// The pod after the write, or as it was read.
    Pod(Box<Pod>),
    /// The owner of pods as it was read.
    Owner(Box<OwnerState>),
    /// The request succeeded, and the engine does not need the object.
    Done,
    /// The object does not exist, or another object has its name.
    Gone,
    /// The object has changed since the version the engine knows: HTTP 409, or 422 for a failed `test` of a
    /// patch.
    Conflict,
    /// The API server refused the request. It refuses the same request again until a policy, a quota, a
    /// permission or the object changes.
    Refused(Refusal),
    /// The request failed, with this message, and had no effect. The same request may succeed soon: the API
    /// server is overloaded, or a part of it fails.
    Failed(String),
    /// The request has no answer: the API server may have carried it out, and may still do so.
    Unknown,
}

/// The response to a request that the API server refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Refusal {
    /// HTTP status code.
    pub code: u16,
    /// `message` of the returned `Status`. It names the policy or the webhook that refused the request.
    pub message: Str,
}

impl Refusal {
    /// Upper bound for the characters of a message that status and events repeat. A webhook chooses its own.
    const MAX_MESSAGE_CHARS: usize = 500;

    /// A refusal with the start of this message.
    pub fn new(code: u16, message: &str) -> Self {
        Self { code, message: str(truncate::first_chars(message.trim(), Self::MAX_MESSAGE_CHARS)) }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// An action that the engine wants carried out, with its epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Effect {
    /// The epoch under which the engine decided on the action.
    pub epoch: Epoch,
    /// The action.
    pub action: Action,
}

/// An action that the engine wants carried out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read all objects consistently. The answer is [`Event::Listed`].
    List,
    /// Read the lease. The answer is [`RequestOutcome::Lease`] about [`RequestTarget::Lease`].
    ReadLease,
    /// Release the lease, or stop renewing it: another replica has a newer epoch. No answer.
    StepDown,
    /// Create the `Gang` object without a status. The answer is about [`RequestTarget::Gang`].
    CreateGang {
        /// The gang.
        gang: GangId,
        /// The group object, as owner of the `Gang` object. `None` if the group object does not exist (yet):
        /// then the engine deletes the `Gang` object after the last pod.
        owner: Option<ObjectRef>,
    },
    /// Read the `Gang` object. The answer is about [`RequestTarget::Gang`].
    ReadGang {
        /// The gang.
        gang: GangId,
    },
    /// Replace the status of the `Gang` object by compare-and-swap. The answer is about
    /// [`RequestTarget::Gang`].
    WriteGang {
        /// The gang.
        gang: GangId,
        /// The version that the object must have.
        expected: ResourceVersion,
        /// The whole status.
        status: GangStatus,
    },
    /// Delete the `Gang` object. The answer is about [`RequestTarget::Gang`]; [`RequestOutcome::Gone`] is
    /// success.
    DeleteGang {
        /// The gang.
        gang: GangId,
        /// The version that the object must have.
        expected: ResourceVersion,
    },
    /// Write the status of the group object, best effort. The write is not fenced, because no other part of
    /// the engine depends on it and the next write replaces a late one. The answer is about
    /// [`RequestTarget::Group`]; [`RequestOutcome::Done`] is success.
    WriteGroup {
        /// The gang.
        gang: GangId,
        /// The kind of the group object.
        kind: GroupKind,
        /// The group object.
        group: ObjectRef,
        /// The content of the status.
        status: GroupStatus,
    },
    /// Read an owner of pods of an elastic gang, of a kind in [`crate::objects::OwnerKind`]. The answer is
    /// about [`RequestTarget::Owner`].
    ReadOwner {
        /// The gang of the pods.
        gang: GangId,
        /// The owner.
        owner: ObjectRef,
    },
    /// Read a pod. The answer is about [`RequestTarget::Pod`].
    ReadPod {
        /// The pod.
        pod: PodRef,
    },
    /// Fence a pod: write its annotation `portcullis.dev/epoch`, so that no patch that tests an older version
    /// of the pod can be applied. The answer is about [`RequestTarget::Pod`].
    Fence {
        /// The pod.
        pod: PodRef,
        /// The value of the annotation. It differs from every value written before, so that the version
        /// changes.
        token: Str,
    },
    /// Set or clear `status.nominatedNodeName`. The answer is about [`RequestTarget::Pod`].
    Nominate {
        /// The pod.
        pod: PodRef,
        /// The planned node. `None` clears an earlier nomination.
        node: Option<NodeName>,
    },
    /// Send the patch of [`Action::Lift`] as a dry run: it is admitted and validated, and not stored. It
    /// tests the version of the pod. The answer is about [`RequestTarget::Pod`]; [`RequestOutcome::Done`] is
    /// success.
    TryLift {
        /// The pod as the engine knows it.
        pod: Box<Pod>,
        /// The planned node.
        node: NodeName,
        /// How the pod is tied to the node.
        pin: NodePinning,
        /// The planned cards.
        cards: Vec<u32>,
    },
    /// Remove the gate, pin the pod to its node and write its cards, in one patch that tests the version of
    /// the pod. The answer is about [`RequestTarget::Pod`].
    Lift {
        /// The pod as the engine knows it. The patch depends on its gates and its affinity.
        pod: Box<Pod>,
        /// The version that the pod must have. `None` only if a test has disabled
        /// [`crate::engine::SafetyRule::LiftPermit`].
        permit: Option<ResourceVersion>,
        /// The planned node.
        node: NodeName,
        /// How the pod is tied to the node.
        pin: NodePinning,
        /// The planned cards.
        cards: Vec<u32>,
    },
    /// Delete a pod with this UID. No answer: the watch reports the deletion.
    Evict {
        /// The pod.
        pod: PodRef,
        /// The reason, for the log.
        message: String,
    },
    /// Record a Kubernetes event and log it. No answer.
    RecordEvent(GangEvent),
}

/// A pod by name and UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// Namespace and name.
    pub key: PodKey,
    /// UID.
    pub uid: PodUid,
}

impl PodRef {
    /// The reference to `pod`.
    pub fn of(pod: &Pod) -> Self {
        Self { key: pod.key.clone(), uid: pod.uid.clone() }
    }
}

/// A Kubernetes event about a gang. The cluster edge records it on the `Gang` object, on the group object if
/// there is one, and on the listed pods, and writes a log line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GangEvent {
    /// The gang.
    pub gang: GangId,
    /// The reason code.
    pub reason: Reason,
    /// The message. Event, condition and log have the same one.
    pub message: String,
    /// The event has type `Warning`.
    pub warning: bool,
    /// The group object, if there is one.
    pub group: Option<ObjectRef>,
    /// The event for the group object, if its stack has an event of its own for this news.
    pub group_event: Option<GroupEvent>,
    /// Pods that get the event too. At most `MAX_PODS_PER_EVENT`, and none if nothing is wrong.
    pub pods: Vec<PodRef>,
}

/// How a lifted pod is tied to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodePinning {
    /// Required node affinity. For shares of cards, which no scheduler checks.
    Required,
    /// Preferred node affinity.
    Preferred,
    /// No node affinity: the scheduler of the pod places whole gangs itself.
    None,
}
