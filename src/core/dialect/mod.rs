//! Which gang a pod belongs to. One file for each dialect, one line here to register it.

mod coscheduling;
mod duration;
mod event;
mod group;
mod kai;
mod kai_group;
mod kai_status;
mod later;
mod link;
mod lws;
mod native;
mod native_group;
mod plain;
mod policy;
mod quorum;
mod status;
mod volcano;
mod volcano_status;
mod yunikorn;

pub use event::{GroupEvent, GroupNews};
pub use group::{Declared, Group, GroupKey, GroupKind, GroupObject, GroupResource, StatusDoor, by_kind};
pub use later::{Later, Workers};
pub use link::{LABEL_VALUE_LONGEST, Link, MetadataMap, Repair, is_label_value};
pub use policy::{OnStale, OnTimeout, OnTorn, Policies};
pub use quorum::Quorum;
pub use status::{GroupPhase, GroupStatus, Said};

use serde_json::Value;

use crate::model::{DialectId, Finding, FindingRule, GangId, Reason, Str, quoted};
use crate::objects::view::PodView;
use group::Source;

/// A pod's place in a gang.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    /// The gang.
    pub gang: GangId,
    /// The subgroup or role within it; `None` where the pod names none.
    pub role: Option<Str>,
    /// What the pod itself says of the gang. A group object, where there is one, counts for more.
    pub declared: Option<Declared>,
}

impl Membership {
    /// Whether it is the same place in the same gang, whatever the pod says of the gang.
    pub fn same_place(&self, other: &Self) -> bool {
        (&self.gang, &self.role) == (&other.gang, &other.role)
    }
}

/// How one stack names its groups.
pub(crate) trait Dialect: Sync {
    /// Which one.
    fn id(&self) -> DialectId;
    /// The field of a pod that names its gang, for messages.
    fn field(&self) -> &'static str;
    /// The field that names its subgroup or role; the same where there is none.
    fn role_field(&self) -> &'static str {
        self.field()
    }
    /// The kinds of group object, the one that counts first before the others; none where there are none.
    fn group_resources(&self) -> &'static [GroupResource] {
        &[]
    }
    /// The gang this pod belongs to by this dialect's own keys, repaired as admission would repair them.
    fn membership(&self, pod: &PodView<'_>) -> Option<Membership>;
    /// The same with everything admission has to say about the keys; its membership equals [`Dialect::membership`].
    fn link(&self, pod: &PodView<'_>) -> Link {
        Link { membership: self.membership(pod), ..Link::default() }
    }
    /// Whether a pod names this gang because somebody wrote so.
    fn strength(&self, gang: &GangId) -> Strength {
        let _ = gang;
        Strength::Named
    }
    /// The name of the group that describes this gang, where several gangs are described by one.
    fn template<'g>(&self, gang: &'g str) -> Option<&'g str> {
        let _ = gang;
        None
    }
    /// Reads a group object: says what it says of each of its gangs.
    fn read_group(&self, source: &mut Source<'_, '_>) -> Result<(), String> {
        let _ = source;
        Ok(())
    }
    /// Whether a group object and a pod that say different things of a gang contradict each other.
    fn contradicts(&self, group: &Quorum, pod: &Quorum) -> bool {
        group != pod
    }
    /// How to say, in a pod, how many members it takes; `None` where only a group object can.
    fn declares_by(&self) -> Option<&'static str> {
        None
    }
    /// `status` of the group object in this stack's words; `None` where there is no group object, or none is written.
    fn status(&self, kind: GroupKind, status: &GroupStatus) -> Option<Value> {
        let _ = (kind, status);
        None
    }
    /// The event that tells the group object of news, in this stack's words; `None` where it has none for them.
    fn event(&self, kind: GroupKind, news: &GroupNews<'_>) -> Option<GroupEvent> {
        let _ = kind;
        news.event()
    }
    /// Whether what we have said in a status must stay, whatever happens to the gang after that.
    fn has_said_the_last(&self, said: &Said) -> bool {
        let _ = said;
        false
    }
}

/// How sure it is that a pod is meant to be in a gang: the surest dialect has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strength {
    /// Somebody named it.
    Named,
    /// It follows from what the pod is.
    Implied,
    /// The controller of a gang scheduler gave the pod a group of its own, after it was made.
    Added,
}

/// Every dialect, in the order in which they are asked.
const DIALECTS: &[&dyn Dialect] = &[
    &kai::Kai,
    &coscheduling::Coscheduling,
    &volcano::Volcano,
    &native::Native,
    &yunikorn::Yunikorn,
    &plain::Plain,
    &lws::Lws,
];

fn dialect(id: DialectId) -> &'static dyn Dialect {
    *DIALECTS.iter().find(|d| d.id() == id).expect("every DialectId is registered, see the test")
}

/// The gang a pod belongs to: by the dialect that is surest of it, among those by the first.
pub fn membership(pod: &PodView<'_>) -> Option<Membership> {
    let found = DIALECTS.iter().filter_map(|d| d.membership(pod).map(|m| (d.strength(&m.gang), m)));
    found.min_by_key(|(strength, _)| *strength).map(|(_, membership)| membership)
}

/// The keys by which a pod names its gang, judged by the dialect that has it. A pod for which somebody has named gangs in
/// two dialects cannot be in both.
pub fn link(pod: &PodView<'_>) -> Link {
    let found = DIALECTS.iter().filter_map(|d| d.membership(pod).map(|m| (d.strength(&m.gang), *d, m.gang)));
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|(strength, ..)| *strength);
    let Some((_, first, gang)) = found.first() else { return Link::default() };
    let mut link = first.link(pod);
    for (strength, other, named) in &found[1..] {
        if *strength == Strength::Named {
            link.faults.push(two_groups(*first, gang, *other, named));
        }
    }
    link
}

fn two_groups(first: &dyn Dialect, gang: &GangId, other: &dyn Dialect, named: &GangId) -> Finding {
    Finding {
        field: other.field().to_owned(),
        value: named.name.to_string(),
        rule: FindingRule::TwoGroups,
        message: format!(
            "the pod names two groups: {} of {} by {}, and {} of {} by {}. A pod is in one gang: remove the keys of one of them.",
            quoted(&gang.name),
            first.id(),
            first.field(),
            quoted(&named.name),
            other.id(),
            other.field()
        ),
    }
}

/// The field of a pod that names its gang in this dialect.
pub fn field(id: DialectId) -> &'static str {
    dialect(id).field()
}

/// The field of a pod that names its subgroup or role in this dialect.
pub(crate) fn role_field(id: DialectId) -> &'static str {
    dialect(id).role_field()
}

/// Every kind of group object, dialect by dialect.
pub fn group_kinds() -> impl Iterator<Item = GroupKind> {
    DIALECTS.iter().flat_map(|d| {
        let ranks = 0..d.group_resources().len();
        ranks.map(|rank| GroupKind { dialect: d.id(), rank })
    })
}

/// Where the group objects of every dialect live.
pub fn group_resources() -> impl Iterator<Item = (DialectId, &'static GroupResource)> {
    group_kinds().map(|kind| (kind.dialect(), kind.resource()))
}

/// The group that describes a gang for which no group object has its very name: several gangs may be made alike.
pub fn template(gang: &GangId) -> Option<GangId> {
    let name = dialect(gang.dialect).template(&gang.name)?;
    Some(GangId::new(gang.dialect, &gang.namespace, name))
}

/// Whether a group object and what a pod says of its gang contradict each other.
pub(crate) fn contradicts(group: &Group, pod: &Quorum) -> bool {
    dialect(group.gang.dialect).contradicts(&group.quorum, pod)
}

/// The key by which a pod can say how many members its gang takes; `None` where only a group object can.
pub(crate) fn declares_by(id: DialectId) -> Option<&'static str> {
    dialect(id).declares_by()
}

/// Whether a dialect has group objects at all.
pub(crate) fn has_group_objects(id: DialectId) -> bool {
    !dialect(id).group_resources().is_empty()
}

/// `status` of the object of a group in the words of its stack; `None` where we write none.
pub fn group_status(group: &Group, status: &GroupStatus) -> Option<Value> {
    let kind = group.object.as_ref()?.kind;
    status_of(kind, status)
}

/// The same for an object of this kind.
pub(crate) fn status_of(kind: GroupKind, status: &GroupStatus) -> Option<Value> {
    if kind.resource().status == StatusDoor::Closed {
        return None;
    }
    let mut said = dialect(kind.dialect).status(kind, status)?;
    // No stack has a word of its own for it; guides of several have this one.
    if status.reason == Reason::SchedulingTimeout.as_str()
        && let Some(conditions) = said.get_mut("conditions").and_then(Value::as_array_mut)
    {
        conditions.push(status.condition(status.reason, "True"));
    }
    Some(said)
}

/// The event that tells the object of a group of news, in the words of its stack; `None` where it has none for them.
pub(crate) fn group_event(group: &Group, news: &GroupNews<'_>) -> Option<GroupEvent> {
    let kind = group.object.as_ref()?.kind;
    dialect(kind.dialect).event(kind, news)
}

/// Whether what we have said in the status of the object of a group must stay.
pub(crate) fn has_said_the_last(group: &Group) -> bool {
    dialect(group.gang.dialect).has_said_the_last(&group.said)
}

/// Whether a name ends in a UID, as controllers make names.
fn ends_in_uid(name: &str) -> bool {
    const UID: usize = 36;
    let Some(start) = name.len().checked_sub(UID) else { return false };
    let Some(uid) = name.get(start..) else { return false };
    uid.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_is_registered_once() {
        for id in DialectId::ALL {
            let registered = DIALECTS.iter().filter(|d| d.id() == *id).count();
            assert_eq!(registered, 1, "{id}");
        }
        assert_eq!(DIALECTS.len(), DialectId::ALL.len());
    }
}
