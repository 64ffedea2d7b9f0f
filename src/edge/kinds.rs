//! The kinds that are watched: their resources, how an object is read, and its key.
//!
//! Objects are read with the lean views of the core, straight from the bytes of a list or watch.

use portcullis_core::api::{ApiResource, PODS};
use portcullis_core::dialect::{self, GroupKey, GroupKind, GroupObject};
use portcullis_core::engine::wire;
use portcullis_core::engine::{Change, Event, GangRecord, ListedObjects};
use portcullis_core::model::{DialectId, GangId, NodeName, PodUid, Str, str};
use portcullis_core::objects::text::Text;
use portcullis_core::objects::{Namespace, Node, PriorityClass, ReadError};
use portcullis_core::pod::Pod;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedKind {
    /// `Gang` objects.
    Gangs,
    /// Pods of all namespaces, finished ones too: a member that succeeded is not a deleted member.
    Pods,
    /// Nodes.
    Nodes,
    /// One kind of the group objects of a dialect.
    Groups(GroupKind),
    /// PriorityClasses.
    PriorityClasses,
    /// Namespaces.
    Namespaces,
    /// RuntimeClasses.
    RuntimeClasses,
    /// A kind whose objects are kept as JSON, for policies.
    ForPolicies(PolicyKind),
}

/// A kind whose objects policies may use. Objects are kept as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyKind {
    /// Namespaces.
    Namespaces,
    /// `Gang` objects.
    Gangs,
    /// One kind of the group objects of a dialect.
    Groups(GroupKind),
    /// PriorityClasses.
    PriorityClasses,
    /// RuntimeClasses.
    RuntimeClasses,
}

impl PolicyKind {
    fn plain(self) -> WatchedKind {
        match self {
            Self::Namespaces => WatchedKind::Namespaces,
            Self::Gangs => WatchedKind::Gangs,
            Self::Groups(kind) => WatchedKind::Groups(kind),
            Self::PriorityClasses => WatchedKind::PriorityClasses,
            Self::RuntimeClasses => WatchedKind::RuntimeClasses,
        }
    }
}

/// An object that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchedObject {
    /// A `Gang` object with its UID.
    Gang(GangRecord, Str),
    /// A pod.
    Pod(Pod),
    /// A node.
    Node(Node),
    /// A group object.
    Group(GroupObject),
    /// A PriorityClass.
    PriorityClass(PriorityClass),
    /// A namespace.
    Namespace(Namespace),
    /// The name of a RuntimeClass.
    RuntimeClass(Str),
    /// An object for policies: namespace (empty for cluster-scoped kinds), name, and its JSON without
    /// `managedFields`.
    ForPolicies(Str, Str, Value),
}

/// The identity of an object for as long as it exists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedKey {
    /// A gang.
    Gang(GangId),
    /// The UID of a pod.
    Pod(PodUid),
    /// The name of a node.
    Node(NodeName),
    /// A group object.
    Group(GroupKey),
    /// The name of a PriorityClass.
    PriorityClass(Str),
    /// The name of a namespace.
    Namespace(Str),
    /// The name of a RuntimeClass.
    RuntimeClass(Str),
    /// Namespace and name of an object for policies.
    ForPolicies(Str, Str),
}

impl WatchedObject {
    /// The key of the object.
    pub fn key(&self) -> WatchedKey {
        match self {
            Self::Gang(record, _) => WatchedKey::Gang(record.gang.clone()),
            Self::Pod(pod) => WatchedKey::Pod(pod.uid.clone()),
            Self::Node(node) => WatchedKey::Node(node.name.clone()),
            Self::Group(group) => WatchedKey::Group(group.key.clone()),
            Self::PriorityClass(class) => WatchedKey::PriorityClass(class.name.clone()),
            Self::Namespace(namespace) => WatchedKey::Namespace(namespace.name.clone()),
            Self::RuntimeClass(name) => WatchedKey::RuntimeClass(name.clone()),
            Self::ForPolicies(namespace, name, _) => WatchedKey::ForPolicies(namespace.clone(), name.clone()),
        }
    }

    /// Adds the object to the lists for the engine. Kinds that the engine does not use are dropped.
    pub fn add_to(self, world: &mut ListedObjects) {
        match self {
            Self::Gang(record, _) => world.gangs.get_or_insert_default().push(record),
            Self::Pod(pod) => world.pods.get_or_insert_default().push(pod),
            Self::Node(node) => world.nodes.get_or_insert_default().push(node),
            Self::Group(group) => world.groups.entry(group.key.kind).or_default().push(group),
            Self::PriorityClass(class) => world.priority_classes.get_or_insert_default().push(class),
            Self::Namespace(namespace) => world.namespaces.get_or_insert_default().push(namespace),
            Self::RuntimeClass(_) | Self::ForPolicies(..) => {}
        }
    }
}

/// The engine's event for a change. `None` for kinds that the engine does not use: RuntimeClasses, and kinds
/// for policies.
pub fn engine_event(change: Change<WatchedObject, WatchedKey>) -> Option<Event> {
    Some(match change {
        Change::Set(WatchedObject::Gang(record, _)) => Event::Gang(Change::Set(record)),
        Change::Set(WatchedObject::Pod(pod)) => Event::Pod(Change::Set(pod)),
        Change::Set(WatchedObject::Node(node)) => Event::Node(Change::Set(node)),
        Change::Set(WatchedObject::Group(group)) => Event::Group(Change::Set(group)),
        Change::Set(WatchedObject::PriorityClass(class)) => Event::PriorityClass(Change::Set(class)),
        Change::Set(WatchedObject::Namespace(namespace)) => Event::Namespace(Change::Set(namespace)),
        Change::Gone(WatchedKey::Gang(gang)) => Event::Gang(Change::Gone(gang)),
        Change::Gone(WatchedKey::Pod(uid)) => Event::Pod(Change::Gone(uid)),
        Change::Gone(WatchedKey::Node(name)) => Event::Node(Change::Gone(name)),
        Change::Gone(WatchedKey::Group(key)) => Event::Group(Change::Gone(key)),
        Change::Gone(WatchedKey::PriorityClass(name)) => Event::PriorityClass(Change::Gone(name)),
        Change::Gone(WatchedKey::Namespace(name)) => Event::Namespace(Change::Gone(name)),
        Change::Set(WatchedObject::RuntimeClass(_) | WatchedObject::ForPolicies(..))
        | Change::Gone(WatchedKey::RuntimeClass(_) | WatchedKey::ForPolicies(..)) => return None,
    })
}

impl WatchedKind {
    /// The kinds of the engine in the order in which a takeover lists them. Plans come before pods: so a pod
    /// that was lifted by a plan that is missing in the list was lifted after the list of pods started.
    pub fn engine_kinds() -> Vec<Self> {
        let groups = dialect::group_kinds().map(Self::Groups);
        [Self::Gangs, Self::Pods, Self::Nodes]
            .into_iter()
            .chain(groups)
            .chain([Self::PriorityClasses, Self::Namespaces])
            .collect()
    }

    /// The resource of the API server.
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Gangs => wire::GANGS,
            Self::Pods => PODS,
            Self::Nodes => ApiResource { group: "", version: "v1", plural: "nodes" },
            Self::Groups(kind) => {
                let resource = kind.resource();
                ApiResource { group: resource.group, version: resource.version, plural: resource.plural }
            }
            Self::PriorityClasses => {
                ApiResource { group: "scheduling.k8s.io", version: "v1", plural: "priorityclasses" }
            }
            Self::RuntimeClasses => {
                ApiResource { group: "node.k8s.io", version: "v1", plural: "runtimeclasses" }
            }
            Self::Namespaces => ApiResource { group: "", version: "v1", plural: "namespaces" },
            Self::ForPolicies(whole) => whole.plain().resource(),
        }
    }

    /// The resource as RBAC names it: `pods`, `podgroups.scheduling.run.ai`.
    pub fn name(self) -> String {
        let ApiResource { group, plural, .. } = self.resource();
        if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
    }

    /// The label of the kind in metrics, out of a fixed set.
    pub fn label(self) -> &'static str {
        match self {
            Self::Groups(kind) | Self::ForPolicies(PolicyKind::Groups(kind)) => kind.dialect().as_str(),
            other => other.resource().plural,
        }
    }

    /// Whether the kind may be missing in a cluster. An absent optional kind counts as an empty list.
    pub fn optional(self) -> bool {
        match self {
            Self::Groups(..) | Self::PriorityClasses | Self::RuntimeClasses => true,
            Self::ForPolicies(whole) => whole.plain().optional(),
            Self::Gangs | Self::Pods | Self::Nodes | Self::Namespaces => false,
        }
    }

    /// Reads an object.
    ///
    /// # Errors
    /// When a field that is used has the wrong type, or a required one is missing.
    pub fn read(self, json: &str) -> Result<WatchedObject, ReadError> {
        Ok(match self {
            Self::Pods => WatchedObject::Pod(Pod::read(json)?),
            Self::Nodes => WatchedObject::Node(Node::read(json)?),
            Self::Groups(kind) => WatchedObject::Group(kind.read(json)?),
            Self::PriorityClasses => WatchedObject::PriorityClass(PriorityClass::read(json)?),
            Self::Namespaces => WatchedObject::Namespace(Namespace::read(json)?),
            Self::RuntimeClasses => WatchedObject::RuntimeClass(self.identity(json)?.name()),
            Self::ForPolicies(_) => {
                let mut value: Value = serde_json::from_str(json)
                    .map_err(|error| self.unreadable("?".to_owned(), &error.to_string()))?;
                if let Some(metadata) = value["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                // Items of a list have no `apiVersion` and `kind`.
                if value["kind"].is_null() {
                    let ApiResource { group, version, .. } = self.resource();
                    let dot = if group.is_empty() { "" } else { "/" };
                    value["apiVersion"] = format!("{group}{dot}{version}").into();
                    value["kind"] = self.kind().into();
                }
                let identity = self.identity(json)?;
                WatchedObject::ForPolicies(str(identity.metadata.namespace.as_str()), identity.name(), value)
            }
            Self::Gangs => {
                let fail = |problem| ReadError { kind: "Gang", name: "?".to_owned(), problem };
                let record = wire::read_gang(json).map_err(fail)?;
                WatchedObject::Gang(record, str(self.identity(json)?.metadata.uid.as_str()))
            }
        })
    }

    /// The key of an object. The rest of the object need not be readable.
    ///
    /// # Errors
    /// When the identifying fields cannot be read.
    pub fn key(self, json: &str) -> Result<WatchedKey, ReadError> {
        let identity = self.identity(json)?;
        let IdentityMetadata { namespace, name, uid, .. } = &identity.metadata;
        Ok(match self {
            Self::Pods => WatchedKey::Pod(PodUid(str(uid.as_str()))),
            Self::Nodes => WatchedKey::Node(NodeName(identity.name())),
            Self::Groups(kind) => WatchedKey::Group(GroupKey {
                kind,
                namespace: str(namespace.as_str()),
                name: str(name.as_str()),
            }),
            Self::Gangs => {
                let missing = |field| {
                    self.unreadable(format!("{namespace}/{name}"), &format!("spec.{field} is missing"))
                };
                let spec = identity.spec.as_ref().ok_or_else(|| missing("dialect"))?;
                let dialect = spec.dialect.ok_or_else(|| missing("dialect"))?;
                let group = spec.group.as_ref().ok_or_else(|| missing("group"))?;
                WatchedKey::Gang(GangId::new(dialect, namespace.as_str(), group.as_str()))
            }
            Self::PriorityClasses => WatchedKey::PriorityClass(identity.name()),
            Self::Namespaces => WatchedKey::Namespace(identity.name()),
            Self::RuntimeClasses => WatchedKey::RuntimeClass(identity.name()),
            Self::ForPolicies(_) => WatchedKey::ForPolicies(str(namespace.as_str()), str(name.as_str())),
        })
    }

    /// A reference to the object, for events about it; `None` when even its name cannot be read.
    pub fn reference(self, json: &str) -> Option<ObjectReference> {
        let IdentityMetadata { namespace, name, uid, .. } = self.identity(json).ok()?.metadata;
        let ApiResource { group, version, .. } = self.resource();
        let uid = Some(str(uid.as_str())).filter(|uid| !uid.is_empty());
        Some(ObjectReference {
            api_version: str(if group.is_empty() {
                version.to_owned()
            } else {
                format!("{group}/{version}")
            }),
            kind: str(self.kind()),
            namespace: str(namespace.as_str()),
            name: str(name.as_str()),
            uid,
        })
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Pods => "Pod",
            Self::Nodes => "Node",
            Self::Gangs => "Gang",
            Self::Groups(kind) => kind.resource().kind,
            Self::PriorityClasses => "PriorityClass",
            Self::RuntimeClasses => "RuntimeClass",
            Self::Namespaces => "Namespace",
            Self::ForPolicies(whole) => whole.plain().kind(),
        }
    }

    fn identity(self, json: &str) -> Result<ObjectIdentity<'_>, ReadError> {
        let identity: ObjectIdentity<'_> =
            serde_json::from_str(json).map_err(|e| self.unreadable("?".to_owned(), &e.to_string()))?;
        if identity.metadata.name.is_empty() {
            return Err(self.unreadable("?".to_owned(), "metadata.name is missing"));
        }
        Ok(identity)
    }

    fn unreadable(self, name: String, problem: &str) -> ReadError {
        ReadError { kind: self.resource().plural, name, problem: problem.to_owned() }
    }
}

/// An object that an event is about, or that a log line names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectReference {
    /// Group and version.
    pub api_version: Str,
    /// Kind.
    pub kind: Str,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Str,
    /// Name.
    pub name: Str,
    /// UID, where it is known.
    pub uid: Option<Str>,
}

/// The identifying fields of any object.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ObjectIdentity<'a> {
    metadata: IdentityMetadata<'a>,
    #[serde(default)]
    spec: Option<IdentitySpec<'a>>,
}

impl ObjectIdentity<'_> {
    fn name(&self) -> Str {
        str(self.metadata.name.as_str())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct IdentityMetadata<'a> {
    namespace: Text<'a>,
    name: Text<'a>,
    uid: Text<'a>,
    resource_version: Text<'a>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct IdentitySpec<'a> {
    #[serde(default)]
    dialect: Option<DialectId>,
    #[serde(default)]
    group: Option<Text<'a>>,
}

/// One page of a list.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(crate) struct ListPage<'a> {
    #[serde(default)]
    pub metadata: ListMetadata<'a>,
    /// The objects as raw JSON.
    #[serde(default, borrow)]
    pub items: Option<Vec<&'a RawValue>>,
}

/// `metadata` of a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
pub(crate) struct ListMetadata<'a> {
    /// The version of the whole list. A watch resumes here.
    pub resource_version: Text<'a>,
    /// The token of the next page; empty on the last page.
    pub r#continue: Text<'a>,
}

/// One line of a watch.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(crate) struct WatchLine<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK`, `ERROR`.
    pub r#type: Text<'a>,
    /// The object, or a `Status`.
    #[serde(borrow)]
    pub object: &'a RawValue,
}

/// `metadata.resourceVersion` of any object.
pub(crate) fn resource_version(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(bound(deserialize = "'de: 'a"))]
    struct VersionedObject<'a> {
        metadata: IdentityMetadata<'a>,
    }
    let read: VersionedObject<'_> = serde_json::from_str(json).ok()?;
    let version = read.metadata.resource_version.as_str();
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_object_has_a_key() {
        let of_kai = |kind: &GroupKind| kind.dialect() == DialectId::Kai;
        let kai = dialect::group_kinds().find(of_kai).expect("KAI has a group object");
        let group_key = GroupKey { kind: kai, namespace: str("ns"), name: str("a") };
        let kai = WatchedKind::Groups(kai);
        let gang = || GangId::new(DialectId::Volcano, "ns", "g");
        let pod = r#"{"metadata":{"namespace":"ns","name":"a","uid":"u"},"spec":{"containers":7}}"#;
        let group = r#"{"metadata":{"namespace":"ns","name":"a","uid":"u"},"spec":{"minMember":"many"}}"#;
        let ours = r#"{"metadata":{"namespace":"ns","name":"a"},"spec":{"dialect":"volcano","group":"g"},"status":7}"#;
        for (kind, json, expected) in [
            (WatchedKind::Pods, pod, WatchedKey::Pod("u".into())),
            (kai, group, WatchedKey::Group(group_key)),
            (WatchedKind::Gangs, ours, WatchedKey::Gang(gang())),
        ] {
            assert!(kind.read(json).is_err(), "{json}");
            assert_eq!(kind.key(json).ok(), Some(expected), "{json}");
            let about = kind.reference(json).expect("it has a name");
            assert_eq!((&*about.namespace, &*about.name), ("ns", "a"), "{json}");
        }
        assert!(WatchedKind::Pods.key("{}").is_err());
    }

    #[test]
    fn plans_are_read_before_the_pods_they_are_about() {
        let kinds = WatchedKind::engine_kinds();
        assert_eq!(kinds[..3], [WatchedKind::Gangs, WatchedKind::Pods, WatchedKind::Nodes]);
        assert_eq!(kinds.last(), Some(&WatchedKind::Namespaces));
    }
}
