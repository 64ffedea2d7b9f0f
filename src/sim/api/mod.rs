//! An API server in memory: the rules of Kubernetes 1.36 for the kinds that a gang touches.
//!
//! Owns every object, its versions and the record of every write. It never starts anything by itself: schedulers,
//! kubelets and controllers are clients like everybody else. Invariant: one global resource version, raised by every
//! write that changes something and by nothing else; a UID is never given twice.

mod admission;
mod object_kind;
mod pod_validation;
mod status;
mod store;
mod stored_object;

pub use admission::{AdmissionWebhook, WebhookCall};
pub use object_kind::{ObjectKey, ObjectKind};
pub use status::ApiStatus;
pub use store::ApiServer;
pub use stored_object::{
    Actor, LeaseRecord, StoredObject, Subresource, TypedObject, WriteOutcome, WriteRecord,
};
