//! An API server in memory, with the rules of Kubernetes 1.36 for the kinds that gangs use.
//!
//! Owns every object, its versions, and the record of every write. It never acts without a request:
//! schedulers, kubelets and controllers are clients. Invariants: one global resource version, which only a
//! write that changes an object raises; UIDs are unique.

mod admission;
mod lift_policy;
mod object_kind;
mod pod_validation;
mod requests;
mod status;
mod store;
mod stored_object;
mod watch_cache;

pub use admission::{AdmissionWebhook, WebhookCall};
pub use lift_policy::LiftPolicy;
pub use object_kind::{ObjectKey, ObjectKind};
pub use status::ApiStatus;
pub use store::ApiServer;
pub use stored_object::{Actor, StoredObject, Subresource, TypedObject, WriteOutcome, WriteRecord};
pub use watch_cache::{LEASE_NAME, LEASE_NAMESPACE};
