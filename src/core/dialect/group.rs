//! Group objects: their kinds, their identity, and what one states about its gangs.
//!
//! One object can describe several gangs. Objects of several kinds can describe one gang; then the first kind
//! of the dialect takes precedence.

use std::time::Duration;

use super::future_members::WorkerTemplate;
use super::gang_policies::GangPolicies;
use super::group_status::StoredStatus;
use super::quorum::Quorum;
use crate::model::{DialectId, GangId, Resources, Str, Time, str};
use crate::objects::ObjectRef;

/// The API resource of one kind of group object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// API group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural.
    pub plural: &'static str,
    /// How the engine writes its status.
    pub status: StatusWrite,
}

impl GroupResource {
    /// The resource `podgroups` of an API group.
    pub(super) const fn pod_groups(group: &'static str, version: &'static str, status: StatusWrite) -> Self {
        Self { group, version, kind: "PodGroup", plural: "podgroups", status }
    }

    /// `group/version`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

/// How the engine writes the status of a group object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusWrite {
    /// The engine does not write it.
    Never,
    /// Through the `status` subresource.
    Subresource,
    /// With the whole object, because its definition has no `status` subresource.
    Object,
}

/// A kind of group object that a dialect reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    pub(super) dialect: DialectId,
    /// Index in [`Dialect::group_resources`](super::dialect_trait::Dialect::group_resources). A lower rank
    /// takes precedence.
    pub(super) rank: usize,
    pub(super) resource: &'static GroupResource,
}

impl GroupKind {
    /// The API resource of this kind.
    pub fn resource(self) -> &'static GroupResource {
        self.resource
    }

    /// The dialect that reads this kind.
    pub fn dialect(self) -> DialectId {
        self.dialect
    }
}

/// The identity of a group object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// Kind.
    pub kind: GroupKind,
    /// Namespace.
    pub namespace: Str,
    /// Name.
    pub name: Str,
}

/// A group object after reading.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupObject {
    /// Its identity.
    pub key: GroupKey,
    /// What it states about each of its gangs.
    pub groups: Vec<Group>,
}

/// The properties of a gang, in the types that all dialects share. They come from a group object, or from the
/// members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The gang, or the template of several gangs (see [`super::template_group`]).
    pub gang: GangId,
    /// The object that states it; `None` where the members state it.
    pub object: Option<GroupKey>,
    /// UID of the object; a recreated group with the same name has another UID. Empty without an object.
    pub uid: Str,
    /// When the object was created.
    pub created: Time,
    /// When the gang is complete.
    pub quorum: Quorum,
    /// The resources that must be free in total before the gang starts (`minResources`). Empty where not
    /// stated.
    pub min_resources: Resources,
    /// How long the gang may wait for its start.
    pub timeout: Option<Duration>,
    /// Policies of the gang.
    pub policies: GangPolicies,
    /// The workers, where the stack creates them only after their leader has started.
    pub workers: Option<WorkerTemplate>,
    /// The PriorityClass that the group names.
    pub priority_class: Option<Str>,
    /// The queue that the group names. It is passed through.
    pub queue: Option<Str>,
    /// Optional fields that could not be read, one sentence each.
    pub warnings: Vec<String>,
    /// What is stored in its status. No decision depends on it.
    pub stored_status: StoredStatus,
}

impl Group {
    /// A group with a quorum and no other properties.
    pub fn new(gang: GangId, quorum: Quorum) -> Self {
        Self {
            gang,
            object: None,
            uid: str(""),
            created: Time::default(),
            quorum,
            min_resources: Resources::default(),
            timeout: None,
            policies: GangPolicies::default(),
            workers: None,
            priority_class: None,
            queue: None,
            warnings: Vec::new(),
            stored_status: StoredStatus::Absent,
        }
    }

    /// A reference to the group object, for owner references and events; `None` where there is no object.
    pub fn object_ref(&self) -> Option<ObjectRef> {
        let key = self.object.as_ref().filter(|_| !self.uid.is_empty())?;
        let resource = key.kind.resource();
        Some(ObjectRef {
            api_version: str(resource.api_version()),
            kind: str(resource.kind),
            name: key.name.clone(),
            uid: self.uid.clone(),
        })
    }

    /// Whether both groups are equal in everything that decisions depend on.
    pub(crate) fn equals_ignoring_status(&self, other: &Self) -> bool {
        Self { stored_status: other.stored_status.clone(), ..self.clone() } == *other
    }
}
