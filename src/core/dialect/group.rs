//! Group objects: which kinds there are, and what one says of its gangs in the words every dialect shares.
//!
//! Owns the identity of a group object, and what reading any of them has in common. One object can describe several
//! gangs, and one gang can be described by objects of several kinds: then the first kind of its dialect counts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Later, Policies, Quorum, Said, Workers, dialect, duration};
use crate::model::{DialectId, GangId, Resources, Str, Time, quoted, str};
use crate::objects::text::{Entries, Scalar, Text};
use crate::objects::view::{Meta, PodView};
use crate::objects::{Owner, ReadError, amounts, names};

/// Where group objects of one kind live.
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
    /// Whether and how its status is written by us.
    pub status: StatusDoor,
}

impl GroupResource {
    /// `group/version`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

/// How the status of a group object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusDoor {
    /// Never by us.
    Closed,
    /// Through the `status` subresource.
    Subresource,
    /// With the object itself: its definition has no such subresource.
    Object,
}

/// A kind of group object: one of those that a dialect reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    pub(super) dialect: DialectId,
    /// Place in the list of its dialect: the first comes first.
    pub(super) rank: usize,
}

impl GroupKind {
    /// Where its objects live.
    pub fn resource(self) -> &'static GroupResource {
        &dialect(self.dialect).group_resources()[self.rank]
    }

    /// The dialect that reads it.
    pub fn dialect(self) -> DialectId {
        self.dialect
    }

    /// Reads an object of this kind.
    ///
    /// # Errors
    /// When a field we need is missing or has the wrong type.
    pub fn read(self, json: &str) -> Result<GroupObject, ReadError> {
        let kind = self.resource().kind;
        let fail = |name: String, problem: String| ReadError { kind, name, problem };
        let view: View<'_> = serde_json::from_str(json).map_err(|e| fail("?".to_owned(), e.to_string()))?;
        let meta = &view.metadata;
        let key =
            GroupKey { kind: self, namespace: str(meta.namespace.as_str()), name: str(meta.name.as_str()) };
        let mut doubts = Vec::new();
        let timeout = meta.annotations.text(names::TIMEOUT_ANNOTATION).and_then(|text| {
            let read = duration::parse(text);
            if read.is_none() {
                doubts.push(duration::doubt(names::TIMEOUT_ANNOTATION, text));
            }
            read
        });
        let policies = Policies::read(meta, &mut doubts);
        let mut source = Source { key: &key, meta, spec: view.spec, groups: Vec::new(), timeout, doubts };
        let spoken = dialect(self.dialect).read_group(&mut source);
        spoken.map_err(|problem| fail(format!("{}/{}", meta.namespace, meta.name), problem))?;
        let Source { mut groups, timeout, doubts, .. } = source;
        let said = super::status::said(json);
        for group in &mut groups {
            group.timeout = timeout.or(group.timeout);
            group.policies = policies.clone().or(&group.policies);
            group.doubts.extend(doubts.iter().cloned());
            group.said = said.clone();
        }
        Ok(GroupObject { key, groups })
    }
}

/// Which group object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// Its kind.
    pub kind: GroupKind,
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
}

/// A group object as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupObject {
    /// Which one.
    pub key: GroupKey,
    /// What it says of each of its gangs.
    pub groups: Vec<Group>,
}

/// What is known of a group, in the words every dialect shares: from a group object, or from what the members say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The gang it describes, or the template of several (see [`super::template`]).
    pub gang: GangId,
    /// The object that says it; `None` where its members do.
    pub object: Option<GroupKey>,
    /// UID of the object: the same name may come back as another group. Empty where there is no object.
    pub uid: Str,
    /// When it was created.
    pub created: Time,
    /// Who has to be there before anybody starts.
    pub quorum: Quorum,
    /// What has to be free in all before anybody starts (`minResources`); nothing where it does not say.
    pub minimum: Resources,
    /// How long it may wait for its start.
    pub timeout: Option<Duration>,
    /// What becomes of it when it does not start in time, or falls apart.
    pub policies: Policies,
    /// Its workers, where they are made only after their leader has started.
    pub workers: Option<Workers>,
    /// The PriorityClass it names.
    pub priority_class: Option<Str>,
    /// The queue it names; passed through.
    pub queue: Option<Str>,
    /// What could not be understood and is not needed, one sentence each.
    pub doubts: Vec<String>,
    /// What its status says, and by whom. Nothing is decided by it.
    pub said: Said,
}

impl Group {
    /// A group of which nothing is known but its quorum.
    pub fn new(gang: GangId, quorum: Quorum) -> Self {
        Self {
            gang,
            object: None,
            uid: str(""),
            created: Time::default(),
            quorum,
            minimum: Resources::default(),
            timeout: None,
            policies: Policies::default(),
            workers: None,
            priority_class: None,
            queue: None,
            doubts: Vec::new(),
            said: Said::Nothing,
        }
    }

    /// The same, as said by an object of the first kind of its dialect, of the name of its gang.
    #[must_use]
    pub fn of_object(self, uid: &str) -> Self {
        let kind = GroupKind { dialect: self.gang.dialect, rank: 0 };
        let key = GroupKey { kind, namespace: self.gang.namespace.clone(), name: self.gang.name.clone() };
        Self { object: Some(key), uid: str(uid), ..self }
    }

    /// The group object as the owner of what is made for it; `None` where there is none.
    pub fn owner(&self) -> Option<Owner> {
        let key = self.object.as_ref().filter(|_| !self.uid.is_empty())?;
        let resource = key.kind.resource();
        Some(Owner {
            api_version: str(resource.api_version()),
            kind: str(resource.kind),
            name: key.name.clone(),
            uid: self.uid.clone(),
        })
    }

    /// The same group as far as anything is decided by it, whatever its status says.
    pub(crate) fn same_but_said(&self, other: &Self) -> bool {
        Self { said: other.said.clone(), ..self.clone() } == *other
    }
}

impl From<Group> for GroupObject {
    /// A group object that describes one gang.
    fn from(group: Group) -> Self {
        let key = group.object.clone().or_else(|| group.clone().of_object("").object);
        Self { key: key.expect("of_object names one"), groups: vec![group] }
    }
}

/// Group objects by their kinds, as a consistent read of all of them has them.
pub fn by_kind<G: Into<GroupObject>>(
    groups: impl IntoIterator<Item = G>,
) -> BTreeMap<GroupKind, Vec<GroupObject>> {
    let mut by_kind: BTreeMap<_, Vec<_>> = super::group_kinds().map(|kind| (kind, Vec::new())).collect();
    for object in groups.into_iter().map(Into::into) {
        by_kind.entry(object.key.kind).or_default().push(object);
    }
    by_kind
}

/// What a pod says of its gang by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Declared {
    /// Who has to be there before anybody starts; `None` where it does not say.
    pub quorum: Option<Quorum>,
    /// How long the gang may wait for its start.
    pub timeout: Option<Duration>,
    /// What becomes of it when it does not start in time, or falls apart.
    pub policies: Policies,
    /// Who is made only after this pod has started.
    pub later: Option<Later>,
}

impl Declared {
    /// What a pod says, with the quorum that its stack's keys give; `None` when it says nothing.
    pub(super) fn by(pod: &PodView<'_>, quorum: Option<Quorum>) -> Option<Self> {
        let timeout = pod.metadata.annotations.text(names::TIMEOUT_ANNOTATION).and_then(duration::parse);
        let policies = Policies::read(&pod.metadata, &mut Vec::new());
        let later = Later::of(pod);
        let speaks = quorum.is_some() || timeout.is_some() || !policies.silent() || later.is_some();
        speaks.then_some(Self { quorum, timeout, policies, later })
    }
}

/// A group object that is being read.
pub(crate) struct Source<'s, 'a> {
    pub(super) key: &'s GroupKey,
    pub(super) meta: &'s Meta<'a>,
    spec: Option<&'a RawValue>,
    groups: Vec<Group>,
    /// Of all its gangs, by our own annotation.
    timeout: Option<Duration>,
    doubts: Vec<String>,
}

impl<'a> Source<'_, 'a> {
    /// Its spec; the default where there is none.
    pub(super) fn spec<S: Default + Deserialize<'a>>(&self) -> Result<S, String> {
        let Some(spec) = self.spec.filter(|spec| spec.get() != "null") else { return Ok(S::default()) };
        serde_json::from_str(spec.get()).map_err(|e| format!("spec: {e}"))
    }

    /// Says something of the gang of this name.
    pub(super) fn say(&mut self, name: &str, quorum: Quorum) -> &mut Group {
        let gang = GangId::new(self.key.kind.dialect, &self.key.namespace, name);
        self.groups.push(Group {
            object: Some(self.key.clone()),
            uid: str(self.meta.uid.as_str()),
            created: Time::parse_rfc3339(&self.meta.creation_timestamp).unwrap_or_default(),
            ..Group::new(gang, quorum)
        });
        self.groups.last_mut().expect("it was just put there")
    }

    /// The timeout that an annotation of its stack gives.
    pub(super) fn annotated_timeout(&mut self, key: &str) -> Option<Duration> {
        let text = self.meta.annotations.text(key)?;
        let read = duration::parse(text);
        if read.is_none() {
            let doubt = duration::doubt(key, text);
            self.doubts.push(doubt);
        }
        read
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct View<'a> {
    #[serde(default)]
    metadata: Meta<'a>,
    #[serde(default, borrow)]
    spec: Option<&'a RawValue>,
}

/// A whole number from 0 up, as the API types have it (`int32`).
pub(super) fn number(raw: Option<&RawValue>, field: &str) -> Result<Option<u32>, String> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    let text = raw.get();
    let read = text.parse::<i32>().ok().and_then(|n| u32::try_from(n).ok());
    match read {
        Some(number) => Ok(Some(number)),
        None => Err(format!("{field} is {}, and has to be a whole number from 0 to {}", cut(text), i32::MAX)),
    }
}

/// A number of seconds above 0; `None` where it is not said, or is none.
pub(super) fn seconds(raw: Option<&RawValue>) -> Option<Duration> {
    duration::parse(raw?.get().trim_matches('"'))
}

/// `spec.minResources`, with a doubt where it cannot be read. Names that are none of a node's resources (`pods`, and the
/// `requests.cpu` of a quota, which Volcano writes beside `cpu`) say nothing of a node.
pub(super) fn minimum(list: &Entries<'_, Scalar<'_>>) -> (Resources, Option<String>) {
    match amounts(list, "spec.minResources") {
        Ok(mut minimum) => {
            let quota = |name: &str| name.starts_with("requests.") || name.starts_with("limits.");
            minimum.extended.retain(|name, _| {
                !quota(name)
                    && !name.starts_with("count/")
                    && (name.contains('/') || name.starts_with("hugepages-"))
            });
            (minimum, None)
        }
        Err(problem) => (Resources::default(), Some(format!("{problem}; it is not counted"))),
    }
}

/// Text that says something.
pub(super) fn text(text: Option<&Text<'_>>) -> Option<Str> {
    text.filter(|t| !t.is_empty()).map(|t| str(t.as_str()))
}

/// As much of a value as fits into a sentence.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

/// A count of members that stands in a label or annotation.
pub(super) fn count(text: &str) -> Option<u32> {
    text.trim().parse::<u32>().ok().filter(|n| *n > 0 && i32::try_from(*n).is_ok())
}

/// Why a text is no count of members.
pub(super) fn no_count(text: &str) -> String {
    format!("{} is not a number of members. Write a whole number of at least 1, in quotes.", quoted(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    /// What has to be free in all, by name, and what is doubted.
    fn read(api_version: &str, minimum: &Value) -> (Value, Vec<String>) {
        let mut kinds = super::super::group_kinds();
        let kind = kinds.find(|kind| kind.resource().api_version() == api_version).unwrap();
        let object = json!({ "metadata": { "namespace": "ml", "name": "g", "uid": "u" },
            "spec": { "minMember": 4, "minResources": minimum } });
        let group = kind.read(&object.to_string()).unwrap().groups.remove(0);
        let plain = [("cpu", group.minimum.cpu.0), ("memory", group.minimum.memory.0)];
        let plain = plain.into_iter().filter(|(_, amount)| *amount > 0);
        let extended = group.minimum.extended.iter().map(|(name, amount)| (&**name, *amount));
        let all = plain.chain(extended).map(|(name, amount)| (name.to_owned(), json!(amount)));
        (Value::Object(all.collect()), group.doubts)
    }

    #[test]
    fn the_least_that_has_to_be_free_is_read_where_a_stack_knows_it() {
        for api_version in [
            "scheduling.x-k8s.io/v1alpha1",
            "scheduling.sigs.k8s.io/v1alpha1",
            "scheduling.volcano.sh/v1beta1",
        ] {
            let check = |minimum: &Value, expected: Value, doubts: &[&str]| {
                let doubts = doubts.iter().map(|doubt| (*doubt).to_owned()).collect();
                assert_eq!(read(api_version, minimum), (expected, doubts), "{api_version}: {minimum}");
            };
            check(&json!(null), json!({}), &[]);
            check(
                &json!({ "cpu": 16, "memory": "64Gi", "nvidia.com/gpu": "4" }),
                json!({ "cpu": 16_000, "memory": 64_u64 << 30, "nvidia.com/gpu": 4 }),
                &[],
            );
            // What a quota counts is nothing of a node.
            check(
                &json!({ "cpu": "500m", "pods": "4", "count/pods": "4", "requests.cpu": "1", "limits.nvidia.com/gpu": 4 }),
                json!({ "cpu": 500 }),
                &[],
            );
            check(
                &json!({ "cpu": "much" }),
                json!({}),
                &[
                    "spec.minResources[cpu]: \"much\" is not a quantity: expected a number such as 2, 0.5, 100m, 4Gi or 1e3; it is not counted",
                ],
            );
        }
        // KAI has no such field.
        assert_eq!(read("scheduling.run.ai/v2alpha2", &json!({ "cpu": 16 })), (json!({}), Vec::new()));
    }
}
