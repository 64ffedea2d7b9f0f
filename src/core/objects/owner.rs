//! References to other objects, and the kinds of controller that state how many pods they want.

use super::names;
use super::view::Meta;
use crate::model::{Str, str};

/// A reference to an object by kind, name and UID. Used for owner references and for the subject of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// `group/version`.
    pub api_version: Str,
    /// Kind.
    pub kind: Str,
    /// Name. The namespace is that of the object which holds the reference.
    pub name: Str,
    /// UID. An object that is created later under the same name is another object.
    pub uid: Str,
}

impl ObjectRef {
    /// The owner with `controller: true`; `None` where there is none.
    pub(crate) fn controller_of(meta: &Meta<'_>) -> Option<Self> {
        let found = meta.owner_references.iter().find(|owner| owner.controller)?;
        Some(Self {
            api_version: str(found.api_version.as_str()),
            kind: str(found.kind.as_str()),
            name: str(found.name.as_str()),
            uid: str(found.uid.as_str()),
        })
    }
}

/// The kinds of owner that state a number of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerKind {
    /// `apps/v1 Deployment`. It owns ReplicaSets, which own the pods.
    Deployment,
    /// `apps/v1 ReplicaSet`.
    ReplicaSet,
    /// `apps/v1 StatefulSet`.
    StatefulSet,
    /// `batch/v1 Job`.
    Job,
}

impl OwnerKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Deployment, Self::ReplicaSet, Self::StatefulSet, Self::Job];

    /// The kind of this owner, whatever version the reference names; `None` for other kinds.
    pub fn of(owner: &ObjectRef) -> Option<Self> {
        let (group, _) = owner.api_version.split_once('/')?;
        Self::ALL.into_iter().find(|kind| kind.group() == group && kind.as_str() == &*owner.kind)
    }

    /// `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::Job => "Job",
        }
    }

    /// API group. All of them are read at version `v1`.
    pub fn group(self) -> &'static str {
        match self {
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet => names::APPS_API_GROUP,
            Self::Job => names::BATCH_API_GROUP,
        }
    }

    /// Plural.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::ReplicaSet => "replicasets",
            Self::StatefulSet => "statefulsets",
            Self::Job => "jobs",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_owner_does_not_depend_on_the_version() {
        let check = |api_version: &str, kind: &str, expected: Option<OwnerKind>| {
            let (api_version, kind) = (str(api_version), str(kind));
            let owner = ObjectRef { api_version, kind, name: str("a"), uid: str("u") };
            assert_eq!(OwnerKind::of(&owner), expected);
        };
        check("apps/v1", "ReplicaSet", Some(OwnerKind::ReplicaSet));
        check("apps/v1beta2", "StatefulSet", Some(OwnerKind::StatefulSet));
        check("batch/v1", "Job", Some(OwnerKind::Job));
        check("batch.volcano.sh/v1alpha1", "Job", None);
        check("v1", "ReplicationController", None);
    }
}
