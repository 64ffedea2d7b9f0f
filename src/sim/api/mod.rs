//! An API server in memory: the rules of Kubernetes 1.36 for the kinds that a gang touches.
//!
//! Owns every object, its versions and the record of every write. It never starts anything by itself: schedulers,
//! kubelets and controllers are clients like everybody else. Invariant: one global resource version, raised by every
//! write that changes something and by nothing else; a UID is never given twice.

mod admit;
mod kinds;
mod pod_rules;
mod status;
mod store;
mod stored;

pub use admit::{Admit, AdmitHook};
pub use kinds::{Kind, ObjectKey};
pub use status::Status;
pub use store::ApiServer;
pub use stored::{Actor, Applied, LeaseRecord, Stored, Subresource, Typed, Write};
