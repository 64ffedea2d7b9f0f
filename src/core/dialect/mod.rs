//! Which gang a pod belongs to. One file for each dialect, one line here to register it.

mod kai;
mod kai_group;
mod kai_status;
mod link;
mod quorum;
mod status;

pub use link::{LABEL_VALUE_LONGEST, Link, MetadataMap, Repair, is_label_value};
pub use quorum::Quorum;
pub use status::{GroupPhase, GroupStatus, Said};

use serde_json::Value;

use crate::model::{DialectId, GangId, Str, Time, str};
use crate::objects::view::PodView;
use crate::objects::{Owner, ReadError};

/// A pod's place in a gang.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    /// The gang.
    pub gang: GangId,
    /// The subgroup or role within it; `None` where the pod names none.
    pub role: Option<Str>,
}

/// A group object, in the words every dialect shares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The gang it describes.
    pub gang: GangId,
    /// UID of the object: the same name may come back as another group.
    pub uid: Str,
    /// When it was created.
    pub created: Time,
    /// Who has to be there before anybody starts.
    pub quorum: Quorum,
    /// The PriorityClass it names.
    pub priority_class: Option<Str>,
    /// The queue it names; passed through.
    pub queue: Option<Str>,
    /// What its status says, and by whom. Nothing is decided by it.
    pub said: Said,
}

impl Group {
    /// The group object as the owner of what is made for it; `None` where its dialect has no group objects.
    pub fn owner(&self) -> Option<Owner> {
        let resource = dialect(self.gang.dialect).group_resource().filter(|_| !self.uid.is_empty())?;
        Some(Owner {
            api_version: str(format!("{}/{}", resource.group, resource.version)),
            kind: str(resource.kind),
            name: self.gang.name.clone(),
            uid: self.uid.clone(),
        })
    }

    /// The same group as far as anything is decided by it, whatever its status says.
    pub(crate) fn same_but_said(&self, other: &Self) -> bool {
        let Self { gang, uid, created, quorum, priority_class, queue, said: _ } = self;
        (gang, uid, created, quorum, priority_class, queue)
            == (&other.gang, &other.uid, &other.created, &other.quorum, &other.priority_class, &other.queue)
    }
}

/// How one stack names its groups.
pub(crate) trait Dialect: Sync {
    /// Which one.
    fn id(&self) -> DialectId;
    /// API group, version, kind and plural of the group object; `None` where there is none.
    fn group_resource(&self) -> Option<GroupResource>;
    /// The gang this pod belongs to by this dialect's own keys, repaired as admission would repair them.
    fn membership(&self, pod: &PodView<'_>) -> Option<Membership>;
    /// The same with everything admission has to say about the keys; its membership equals [`Dialect::membership`].
    fn link(&self, pod: &PodView<'_>) -> Link;
    /// Reads the group object.
    fn read_group(&self, json: &str) -> Result<Group, ReadError>;
    /// `status` of the group object in this stack's words; `None` where there is no group object, or none is written.
    fn status(&self, status: &GroupStatus) -> Option<Value>;
}

/// Where group objects of a dialect live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupResource {
    /// API group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural.
    pub plural: &'static str,
}

/// Every dialect, in the order in which they are asked.
const DIALECTS: &[&dyn Dialect] = &[&kai::Kai];

fn dialect(id: DialectId) -> &'static dyn Dialect {
    *DIALECTS.iter().find(|d| d.id() == id).expect("every DialectId is registered, see the test")
}

/// The gang a pod belongs to, by the first dialect that knows it.
pub fn membership(pod: &PodView<'_>) -> Option<Membership> {
    DIALECTS.iter().find_map(|d| d.membership(pod))
}

/// The keys by which a pod names its gang, judged by the first dialect that finds any.
pub fn link(pod: &PodView<'_>) -> Link {
    DIALECTS.iter().map(|d| d.link(pod)).find(|link| link.membership.is_some()).unwrap_or_default()
}

/// Where the group objects of every dialect live.
pub fn group_resources() -> impl Iterator<Item = (DialectId, GroupResource)> {
    DIALECTS.iter().filter_map(|d| d.group_resource().map(|r| (d.id(), r)))
}

/// Reads a group object of a dialect.
///
/// # Errors
/// When a field we need is missing or has the wrong type.
pub fn read_group(id: DialectId, json: &str) -> Result<Group, ReadError> {
    dialect(id).read_group(json)
}

/// `status` of a group object in the words of its stack; `None` where we write none.
pub fn group_status(id: DialectId, status: &GroupStatus) -> Option<Value> {
    dialect(id).status(status)
}

/// Where the group objects of a dialect live; `None` where it has none.
pub fn group_resource(id: DialectId) -> Option<GroupResource> {
    dialect(id).group_resource()
}
