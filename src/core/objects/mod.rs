//! Kubernetes objects: borrowed JSON views, names, nodes, namespaces, priority classes, owner references.
//!
//! Objects are read as JSON into lean views, not as the typed structs of one release. Fields come and go
//! between releases, and a small borrowed view decodes several times faster. Unknown fields are skipped. A
//! field that is needed and has the wrong type is a [`ReadError`] that names the object; other objects are
//! not affected.
//!
//! This room does not know gangs. Pods with their gang are in [`crate::pod`].

pub mod affinity;
pub mod names;
mod namespace;
mod node;
mod owner;
mod priority;
mod resource_list;
mod selector;
pub mod text;
pub mod view;

pub use namespace::Namespace;
pub use node::{GpuInventory, GpuSharing, Node};
pub use owner::{ObjectRef, OwnerKind};
pub use priority::{PriorityClass, class_not_found};
pub(crate) use resource_list::{read_resource, read_resources};
pub(crate) use selector::namespace_label;
pub use selector::{LabelSelector, PodLabels};

/// An object that could not be read. The message names the object and the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name}: {problem}")]
pub struct ReadError {
    /// Kind of the object.
    pub kind: &'static str,
    /// `namespace/name`, or `?` where it could not be read.
    pub name: String,
    /// What is wrong, with the path of the field.
    pub problem: String,
}
