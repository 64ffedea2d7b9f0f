//! What an object of ours belongs to, for `metadata.ownerReferences`.

use super::view::Meta;
use crate::model::{Str, str};

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

impl Owner {
    /// The owner that has made an object and takes care of it; `None` where there is none.
    pub(crate) fn controlling(meta: &Meta<'_>) -> Option<Self> {
        let found = meta.owner_references.iter().find(|owner| owner.controller)?;
        Some(Self {
            api_version: str(found.api_version.as_str()),
            kind: str(found.kind.as_str()),
            name: str(found.name.as_str()),
            uid: str(found.uid.as_str()),
        })
    }
}
