//! What an object of ours belongs to, for `metadata.ownerReferences`.

use crate::model::Str;

/// An object by kind, name and identity: what an event is about, and whose end ends what it owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// `group/version`.
    pub api_version: Str,
    /// Kind.
    pub kind: Str,
    /// Name; in the namespace of what it owns.
    pub name: Str,
    /// Identity: an object by the same name that is made later is another owner.
    pub uid: Str,
}
