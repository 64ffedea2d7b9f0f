//! Stored objects, their writers and the results of writes: plain values, without rules of the API server.

use std::sync::Arc;

use serde_json::Value;

use super::{ObjectKey, ObjectKind};
use portcullis_core::dialect::GroupObject;
use portcullis_core::engine::GangRecord;
use portcullis_core::engine::wire;
use portcullis_core::model::Str;
use portcullis_core::objects::{Namespace, Node, PriorityClass};
use portcullis_core::pod::Pod;
use portcullis_edge::LeaseReading;

/// The client that writes an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// A person with kubectl.
    User,
    /// The engine of this replica.
    Engine(usize),
    /// kube-scheduler.
    Scheduler,
    /// A kubelet, or the garbage collector for pods of a deleted node.
    Kubelet,
    /// A workload controller.
    Controller,
    /// The API server itself, while it handles a request.
    ApiServer,
}

impl Actor {
    pub(super) fn user_name(&self) -> &'static str {
        match self {
            Self::User => "kubernetes-admin",
            Self::Engine(_) => "system:serviceaccount:portcullis:portcullis",
            Self::Scheduler => "system:kube-scheduler",
            Self::Kubelet => "system:node",
            Self::Controller => "system:serviceaccount:kube-system:replicaset-controller",
            Self::ApiServer => "system:apiserver",
        }
    }
}

/// An object as the core reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum TypedObject {
    /// A node.
    Node(Arc<Node>),
    /// A pod.
    Pod(Arc<Pod>),
    /// A group object.
    Group(Arc<GroupObject>),
    /// A `Gang` object.
    Gang(Arc<GangRecord>),
    /// A priority class.
    PriorityClass(Arc<PriorityClass>),
    /// A namespace.
    Namespace(Arc<Namespace>),
    /// The lease of the leader.
    Lease(Arc<LeaseReading>),
    /// An object of these kinds that cannot be read, with the error.
    Unreadable(String),
    /// An object of a kind that the core does not read.
    Other,
}

impl TypedObject {
    pub(super) fn read(kind: ObjectKind, object: &Value) -> Self {
        let problem = |problem: String| Self::Unreadable(problem);
        match kind {
            ObjectKind::Pod => Pod::read(&object.to_string())
                .map_or_else(|e| problem(e.to_string()), |pod| Self::Pod(Arc::new(pod))),
            ObjectKind::Node => Node::read(&object.to_string())
                .map_or_else(|e| problem(e.to_string()), |node| Self::Node(Arc::new(node))),
            ObjectKind::Group(kind) => kind
                .read(&object.to_string())
                .map_or_else(|e| problem(e.to_string()), |group| Self::Group(Arc::new(group))),
            ObjectKind::Gang => {
                wire::read_gang(&object.to_string()).map_or_else(problem, |gang| Self::Gang(Arc::new(gang)))
            }
            ObjectKind::PriorityClass => PriorityClass::read(&object.to_string())
                .map_or_else(|e| problem(e.to_string()), |class| Self::PriorityClass(Arc::new(class))),
            ObjectKind::Namespace => Namespace::read(&object.to_string())
                .map_or_else(|e| problem(e.to_string()), |namespace| Self::Namespace(Arc::new(namespace))),
            ObjectKind::Lease => LeaseReading::parse(object.to_string().as_bytes())
                .map_or_else(|e| problem(e.to_string()), |lease| Self::Lease(Arc::new(lease))),
            ObjectKind::Deployment | ObjectKind::ReplicaSet | ObjectKind::StatefulSet | ObjectKind::Job => {
                Self::Other
            }
        }
    }
}

/// An object in the store.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// Its JSON.
    pub object: Arc<Value>,
    /// As the core reads it.
    pub typed: TypedObject,
    /// UID.
    pub uid: Str,
    /// Resource version.
    pub version: u64,
}

impl StoredObject {
    /// The pod, where it can be read.
    pub fn pod(&self) -> Option<&Arc<Pod>> {
        match &self.typed {
            TypedObject::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    /// The node, where it can be read.
    pub fn node(&self) -> Option<&Arc<Node>> {
        match &self.typed {
            TypedObject::Node(node) => Some(node),
            _ => None,
        }
    }

    /// The group object, where it can be read.
    pub fn group(&self) -> Option<&Arc<GroupObject>> {
        match &self.typed {
            TypedObject::Group(group) => Some(group),
            _ => None,
        }
    }

    /// The `Gang` object, where it can be read.
    pub fn gang(&self) -> Option<&Arc<GangRecord>> {
        match &self.typed {
            TypedObject::Gang(gang) => Some(gang),
            _ => None,
        }
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct WriteRecord {
    /// The object.
    pub key: ObjectKey,
    /// The client that wrote it.
    pub actor: Actor,
    /// The resource version that the write made.
    pub version: u64,
    /// Before the write; `None` for a new object.
    pub before: Option<StoredObject>,
    /// After the write; `None` for a deleted object.
    pub after: Option<StoredObject>,
}

/// The result of a successful write.
#[derive(Clone, Debug)]
pub struct WriteOutcome {
    /// The object after the write.
    pub object: Arc<Value>,
    /// Whether anything changed.
    pub changed: bool,
    /// Warnings of the webhook.
    pub warnings: Vec<String>,
}

/// The part of an object that a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// Everything but the status.
    None,
    /// Only the status.
    Status,
}
