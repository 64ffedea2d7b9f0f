//! Reading Kubernetes objects.
//!
//! Objects are read as JSON into lean views, not as one release's typed structs: fields come and go between releases,
//! and a small borrowed view is several times faster to decode. Unknown fields are skipped unread; a field we need that
//! has the wrong type is an error that names the object, and stops nothing else.

pub mod affinity;
pub mod names;
mod node;
mod owner;
mod pod;
mod priority;
mod requests;
pub mod text;
pub mod view;

pub use node::{GpuInventory, Node, Sharing};
pub use owner::{Owner, OwnerKind, OwnerReading};
pub use pod::{AffinityLayout, HostPort, Pod, PodPhase, Shape, TermLayout};
pub use priority::{PriorityClass, class_not_found};
pub(crate) use requests::amounts;
pub use requests::effective_requests;

/// An object that could not be read. The sentence names the object and the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name}: {problem}")]
pub struct ReadError {
    /// Kind of the object.
    pub kind: &'static str,
    /// `namespace/name`, as far as it could be read.
    pub name: String,
    /// What is wrong, with the place.
    pub problem: String,
}
