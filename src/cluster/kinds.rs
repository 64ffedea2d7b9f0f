//! What is watched, where it lives, and how it is read.
//!
//! Objects are read with the lean views of the core, straight from the bytes of a list or watch.

use portcullis_core::admission::KnownClasses;
use portcullis_core::api::{ApiResource, PODS};
use portcullis_core::dialect::{self, GroupKey, GroupKind, GroupObject};
use portcullis_core::engine::wire;
use portcullis_core::engine::{Change, Event, GangRecord, ListedObjects};
use portcullis_core::model::{DialectId, GangId, NodeName, PodUid, Str, str};
use portcullis_core::objects::text::Text;
use portcullis_core::objects::{Node, PriorityClass, ReadError};
use portcullis_core::pod::Pod;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::announce::Regarding;

/// A kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Our own objects.
    Gangs,
    /// Pods of all namespaces. Finished ones too: to a gang, a member that has ended well is not a member that is gone.
    Pods,
    /// Nodes.
    Nodes,
    /// One kind of the group objects of a dialect.
    Groups(GroupKind),
    /// PriorityClasses.
    PriorityClasses,
    /// RuntimeClasses.
    RuntimeClasses,
    /// Kept whole, for policies.
    Whole(Whole),
}

/// A kind whose objects policies may ask for: they are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whole {
    /// Namespaces.
    Namespaces,
    /// Our own objects.
    Gangs,
    /// One kind of the group objects of a dialect.
    Groups(GroupKind),
    /// PriorityClasses.
    PriorityClasses,
    /// RuntimeClasses.
    RuntimeClasses,
}

impl Whole {
    fn plain(self) -> Option<Kind> {
        match self {
            Self::Namespaces => None,
            Self::Gangs => Some(Kind::Gangs),
            Self::Groups(kind) => Some(Kind::Groups(kind)),
            Self::PriorityClasses => Some(Kind::PriorityClasses),
            Self::RuntimeClasses => Some(Kind::RuntimeClasses),
        }
    }
}

/// An object that was read.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// One of ours, with its UID.
    Gang(GangRecord, Str),
    Pod(Pod),
    Node(Node),
    Group(GroupObject),
    PriorityClass(PriorityClass),
    RuntimeClass(Str),
    /// Namespace (empty for none), name, and all of it but `managedFields`.
    Whole(Str, Str, Value),
}

/// What an object is known by as long as it is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Gang(GangId),
    Pod(PodUid),
    Node(NodeName),
    Group(GroupKey),
    PriorityClass(Str),
    RuntimeClass(Str),
    /// Namespace and name.
    Whole(Str, Str),
}

impl Object {
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Gang(record, _) => Key::Gang(record.gang.clone()),
            Self::Pod(pod) => Key::Pod(pod.uid.clone()),
            Self::Node(node) => Key::Node(node.name.clone()),
            Self::Group(group) => Key::Group(group.key.clone()),
            Self::PriorityClass(class) => Key::PriorityClass(class.name.clone()),
            Self::RuntimeClass(name) => Key::RuntimeClass(name.clone()),
            Self::Whole(namespace, name, _) => Key::Whole(namespace.clone(), name.clone()),
        }
    }

    /// Puts it where a consistent read of everything keeps it.
    pub(super) fn add_to(self, world: &mut ListedObjects) {
        match self {
            Self::Gang(record, _) => world.gangs.get_or_insert_default().push(record),
            Self::Pod(pod) => world.pods.get_or_insert_default().push(pod),
            Self::Node(node) => world.nodes.get_or_insert_default().push(node),
            Self::Group(group) => world.groups.entry(group.key.kind).or_default().push(group),
            Self::PriorityClass(class) => world.priority_classes.get_or_insert_default().push(class),
            Self::RuntimeClass(_) | Self::Whole(..) => {}
        }
    }
}

/// What the engine is told of a change; it does not ask for RuntimeClasses, nor for what is kept whole.
pub(super) fn event(change: Change<Object, Key>) -> Option<Event> {
    Some(match change {
        Change::Set(Object::Gang(record, _)) => Event::Gang(Change::Set(record)),
        Change::Set(Object::Pod(pod)) => Event::Pod(Change::Set(pod)),
        Change::Set(Object::Node(node)) => Event::Node(Change::Set(node)),
        Change::Set(Object::Group(group)) => Event::Group(Change::Set(group)),
        Change::Set(Object::PriorityClass(class)) => Event::PriorityClass(Change::Set(class)),
        Change::Gone(Key::Gang(gang)) => Event::Gang(Change::Gone(gang)),
        Change::Gone(Key::Pod(uid)) => Event::Pod(Change::Gone(uid)),
        Change::Gone(Key::Node(name)) => Event::Node(Change::Gone(name)),
        Change::Gone(Key::Group(key)) => Event::Group(Change::Gone(key)),
        Change::Gone(Key::PriorityClass(name)) => Event::PriorityClass(Change::Gone(name)),
        Change::Set(Object::RuntimeClass(_) | Object::Whole(..))
        | Change::Gone(Key::RuntimeClass(_) | Key::Whole(..)) => return None,
    })
}

/// Follows a change of a class that reviews ask for.
pub(super) fn note_fact(facts: &mut KnownClasses, change: &Change<Object, Key>) {
    match change {
        Change::Set(Object::PriorityClass(class)) => {
            facts.priority_classes.get_or_insert_default().insert(class.name.clone());
        }
        Change::Set(Object::RuntimeClass(name)) => {
            facts.runtime_classes.get_or_insert_default().insert(name.clone());
        }
        Change::Gone(Key::PriorityClass(name)) => {
            facts.priority_classes.get_or_insert_default().remove(name);
        }
        Change::Gone(Key::RuntimeClass(name)) => {
            facts.runtime_classes.get_or_insert_default().remove(name);
        }
        _ => {}
    }
}

impl Kind {
    /// What the engine has to know, in the order in which it has to be read: the plans before the pods, so that every
    /// lift of a plan that is not in the list comes after the list of pods.
    pub(super) fn of_the_engine() -> Vec<Self> {
        let groups = dialect::group_kinds().map(Self::Groups);
        [Self::Gangs, Self::Pods, Self::Nodes]
            .into_iter()
            .chain(groups)
            .chain([Self::PriorityClasses])
            .collect()
    }

    pub(super) fn resource(self) -> ApiResource {
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
            Self::Whole(whole) => match whole.plain() {
                Some(kind) => kind.resource(),
                None => ApiResource { group: "", version: "v1", plural: "namespaces" },
            },
        }
    }

    /// The name by which RBAC and people know it.
    pub(super) fn name(self) -> String {
        let ApiResource { group, plural, .. } = self.resource();
        if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
    }

    /// Its name in metrics, out of a fixed set.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Groups(kind) | Self::Whole(Whole::Groups(kind)) => kind.dialect().as_str(),
            other => other.resource().plural,
        }
    }

    /// Whether a cluster may do without it: then an absent kind is an empty list.
    pub(super) fn optional(self) -> bool {
        match self {
            Self::Groups(..) | Self::PriorityClasses | Self::RuntimeClasses => true,
            Self::Whole(whole) => whole.plain().is_some_and(Self::optional),
            Self::Gangs | Self::Pods | Self::Nodes => false,
        }
    }

    /// Reads an object.
    pub(super) fn read(self, json: &str) -> Result<Object, ReadError> {
        Ok(match self {
            Self::Pods => Object::Pod(Pod::read(json)?),
            Self::Nodes => Object::Node(Node::read(json)?),
            Self::Groups(kind) => Object::Group(kind.read(json)?),
            Self::PriorityClasses => Object::PriorityClass(PriorityClass::read(json)?),
            Self::RuntimeClasses => Object::RuntimeClass(self.identity(json)?.name()),
            Self::Whole(_) => {
                let mut value: Value = serde_json::from_str(json)
                    .map_err(|error| self.unreadable("?".to_owned(), &error.to_string()))?;
                if let Some(metadata) = value["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                // Lists leave out what all their items are.
                if value["kind"].is_null() {
                    let ApiResource { group, version, .. } = self.resource();
                    let dot = if group.is_empty() { "" } else { "/" };
                    value["apiVersion"] = format!("{group}{dot}{version}").into();
                    value["kind"] = self.kind().into();
                }
                let identity = self.identity(json)?;
                Object::Whole(str(identity.metadata.namespace.as_str()), identity.name(), value)
            }
            Self::Gangs => {
                let fail = |problem| ReadError { kind: "Gang", name: "?".to_owned(), problem };
                let record = wire::read_gang(json).map_err(fail)?;
                Object::Gang(record, str(self.identity(json)?.metadata.uid.as_str()))
            }
        })
    }

    /// What an object is known by that need not be readable otherwise.
    pub(super) fn key(self, json: &str) -> Result<Key, ReadError> {
        let identity = self.identity(json)?;
        let Metadata { namespace, name, uid, .. } = &identity.metadata;
        Ok(match self {
            Self::Pods => Key::Pod(PodUid(str(uid.as_str()))),
            Self::Nodes => Key::Node(NodeName(identity.name())),
            Self::Groups(kind) => {
                Key::Group(GroupKey { kind, namespace: str(namespace.as_str()), name: str(name.as_str()) })
            }
            Self::Gangs => {
                let missing = |field| {
                    self.unreadable(format!("{namespace}/{name}"), &format!("spec.{field} is missing"))
                };
                let spec = identity.spec.as_ref().ok_or_else(|| missing("dialect"))?;
                let dialect = spec.dialect.ok_or_else(|| missing("dialect"))?;
                let group = spec.group.as_ref().ok_or_else(|| missing("group"))?;
                Key::Gang(GangId::new(dialect, namespace.as_str(), group.as_str()))
            }
            Self::PriorityClasses => Key::PriorityClass(identity.name()),
            Self::RuntimeClasses => Key::RuntimeClass(identity.name()),
            Self::Whole(_) => Key::Whole(str(namespace.as_str()), str(name.as_str())),
        })
    }

    /// The object in the words of an event about it, if at least its name can be read.
    pub(super) fn regarding(self, json: &str) -> Option<Regarding> {
        let Metadata { namespace, name, uid, .. } = self.identity(json).ok()?.metadata;
        let ApiResource { group, version, .. } = self.resource();
        let uid = Some(str(uid.as_str())).filter(|uid| !uid.is_empty());
        Some(Regarding {
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
            Self::Whole(whole) => whole.plain().map_or("Namespace", Self::kind),
        }
    }

    fn identity(self, json: &str) -> Result<Identity<'_>, ReadError> {
        let identity: Identity<'_> =
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

/// The part of any object by which it is known.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Identity<'a> {
    metadata: Metadata<'a>,
    #[serde(default)]
    spec: Option<GangSpec<'a>>,
}

impl Identity<'_> {
    fn name(&self) -> Str {
        str(self.metadata.name.as_str())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct Metadata<'a> {
    namespace: Text<'a>,
    name: Text<'a>,
    uid: Text<'a>,
    resource_version: Text<'a>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct GangSpec<'a> {
    #[serde(default)]
    dialect: Option<DialectId>,
    #[serde(default)]
    group: Option<Text<'a>>,
}

/// One page of a list.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct Page<'a> {
    #[serde(default)]
    pub metadata: PageMetadata<'a>,
    /// Objects as they came.
    #[serde(default, borrow)]
    pub items: Option<Vec<&'a RawValue>>,
}

/// `metadata` of a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
pub(super) struct PageMetadata<'a> {
    /// The version at which the whole list was read: a watch goes on from here.
    pub resource_version: Text<'a>,
    /// Asks for the next page; empty on the last one.
    pub r#continue: Text<'a>,
}

/// One line of a watch.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct WatchLine<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK`, `ERROR`.
    pub r#type: Text<'a>,
    /// The object, or a `Status`.
    #[serde(borrow)]
    pub object: &'a RawValue,
}

/// `metadata.resourceVersion` of any object.
pub(super) fn version(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(bound(deserialize = "'de: 'a"))]
    struct Versioned<'a> {
        metadata: Metadata<'a>,
    }
    let read: Versioned<'_> = serde_json::from_str(json).ok()?;
    let version = read.metadata.resource_version.as_str();
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_still_known_by_its_identity() {
        let of_kai = |kind: &GroupKind| kind.dialect() == DialectId::Kai;
        let kai = dialect::group_kinds().find(of_kai).expect("KAI has a group object");
        let group_key = GroupKey { kind: kai, namespace: str("ns"), name: str("a") };
        let kai = Kind::Groups(kai);
        let gang = || GangId::new(DialectId::Volcano, "ns", "g");
        let pod = r#"{"metadata":{"namespace":"ns","name":"a","uid":"u"},"spec":{"containers":7}}"#;
        let group = r#"{"metadata":{"namespace":"ns","name":"a","uid":"u"},"spec":{"minMember":"many"}}"#;
        let ours = r#"{"metadata":{"namespace":"ns","name":"a"},"spec":{"dialect":"volcano","group":"g"},"status":7}"#;
        for (kind, json, expected) in [
            (Kind::Pods, pod, Key::Pod("u".into())),
            (kai, group, Key::Group(group_key)),
            (Kind::Gangs, ours, Key::Gang(gang())),
        ] {
            assert!(kind.read(json).is_err(), "{json}");
            assert_eq!(kind.key(json).ok(), Some(expected), "{json}");
            let about = kind.regarding(json).expect("it has a name");
            assert_eq!((&*about.namespace, &*about.name), ("ns", "a"), "{json}");
        }
        assert!(Kind::Pods.key("{}").is_err());
    }

    #[test]
    fn plans_are_read_before_the_pods_they_are_about() {
        let kinds = Kind::of_the_engine();
        assert_eq!(kinds[..3], [Kind::Gangs, Kind::Pods, Kind::Nodes]);
        assert_eq!(kinds.last(), Some(&Kind::PriorityClasses));
    }

    #[test]
    fn facts_follow_the_watches() {
        let mut facts = KnownClasses::default();
        note_fact(&mut facts, &Change::Set(Object::RuntimeClass(str("nvidia"))));
        assert_eq!(facts.runtime_classes.as_ref().map(std::collections::BTreeSet::len), Some(1));
        note_fact(&mut facts, &Change::Gone(Key::RuntimeClass(str("nvidia"))));
        assert_eq!(facts.runtime_classes.as_ref().map(std::collections::BTreeSet::len), Some(0));
        assert_eq!(facts.priority_classes, None);
    }
}
