//! What is in the store, who wrote it, and what a write came to: values, without a rule of the API server in them.

use std::sync::Arc;

use serde_json::Value;

use super::{ObjectKey, ObjectKind};
use portcullis_core::dialect::GroupObject;
use portcullis_core::engine::GangRecord;
use portcullis_core::engine::wire;
use portcullis_core::model::{Epoch, Str, Time};
use portcullis_core::objects::{Node, PriorityClass};
use portcullis_core::pod::Pod;

/// Who writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// A person with kubectl.
    User,
    /// The engine of this replica.
    Engine(usize),
    /// kube-scheduler.
    Scheduler,
    /// A kubelet, or what stands in for it when a node is gone.
    Kubelet,
    /// A workload controller.
    Controller,
}

impl Actor {
    pub(super) fn user_name(&self) -> &'static str {
        match self {
            Self::User => "kubernetes-admin",
            Self::Engine(_) => "system:serviceaccount:portcullis:portcullis",
            Self::Scheduler => "system:kube-scheduler",
            Self::Kubelet => "system:node",
            Self::Controller => "system:serviceaccount:kube-system:replicaset-controller",
        }
    }
}

/// An object as our own code reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum TypedObject {
    /// A node.
    Node(Arc<Node>),
    /// A pod.
    Pod(Arc<Pod>),
    /// A group object.
    Group(Arc<GroupObject>),
    /// One of our own.
    Gang(Arc<GangRecord>),
    /// A priority class.
    PriorityClass(Arc<PriorityClass>),
    /// Of one of those kinds, and unreadable; why.
    Unreadable(String),
    /// Of a kind that our code does not read.
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
            ObjectKind::Namespace
            | ObjectKind::Deployment
            | ObjectKind::ReplicaSet
            | ObjectKind::StatefulSet
            | ObjectKind::Job => Self::Other,
        }
    }
}

/// An object in the store.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// As it goes over the wire.
    pub object: Arc<Value>,
    /// As our code reads it.
    pub typed: TypedObject,
    /// Its UID.
    pub uid: Str,
    /// Its resource version.
    pub version: u64,
}

impl StoredObject {
    /// The pod, if it is a readable one.
    pub fn pod(&self) -> Option<&Arc<Pod>> {
        match &self.typed {
            TypedObject::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    /// The node, if it is a readable one.
    pub fn node(&self) -> Option<&Arc<Node>> {
        match &self.typed {
            TypedObject::Node(node) => Some(node),
            _ => None,
        }
    }

    /// The group, if it is a readable one.
    pub fn group(&self) -> Option<&Arc<GroupObject>> {
        match &self.typed {
            TypedObject::Group(group) => Some(group),
            _ => None,
        }
    }

    /// The priority class, if it is a readable one.
    pub fn priority_class(&self) -> Option<&Arc<PriorityClass>> {
        match &self.typed {
            TypedObject::PriorityClass(class) => Some(class),
            _ => None,
        }
    }

    /// Our own object, if it is a readable one.
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
    /// Which object.
    pub key: ObjectKey,
    /// By whom.
    pub actor: Actor,
    /// As it was; `None` when it is new.
    pub before: Option<StoredObject>,
    /// As it is; `None` when it is gone.
    pub after: Option<StoredObject>,
}

/// What a successful write came to.
#[derive(Clone, Debug)]
pub struct WriteOutcome {
    /// The object as it is now.
    pub object: Arc<Value>,
    /// Whether anything changed.
    pub changed: bool,
    /// Warnings of the webhook.
    pub warnings: Vec<String>,
}

/// A part of an object with a door of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// Everything but the status.
    None,
    /// The status alone.
    Status,
}

/// The lease of the leader (`coordination.k8s.io/v1 Lease`), as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who holds it.
    pub holder: Option<String>,
    /// How often it has changed hands.
    pub transitions: Epoch,
    /// When it was last renewed, by the holder's clock.
    pub renewed: Time,
}
