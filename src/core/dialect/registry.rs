//! The list of all dialects, and functions that call the dialect of a gang or kind.

use std::collections::BTreeMap;

use serde_json::Value;

use super::dialect_trait::Dialect;
use super::group::{Group, GroupKey, GroupKind, GroupObject, GroupResource, StatusWrite};
use super::group_event::{GroupEvent, GroupEventContext};
use super::group_reader::read_group_object;
use super::group_status::GroupStatus;
use super::membership::{LinkStrength, Membership};
use super::membership_review::MembershipReview;
use super::quorum::Quorum;
use super::{coscheduling, kai, lws, native, plain, volcano, yunikorn};
use crate::model::{DialectId, Finding, FindingRule, GangId, Reason, quoted, str};
use crate::objects::ReadError;
use crate::objects::view::PodView;

/// Every dialect, in order of precedence.
const DIALECTS: &[&dyn Dialect] = &[
    &kai::Kai,
    &coscheduling::Coscheduling,
    &volcano::Volcano,
    &native::Native,
    &yunikorn::Yunikorn,
    &plain::Plain,
    &lws::Lws,
];

pub(super) fn dialect(id: DialectId) -> &'static dyn Dialect {
    *DIALECTS.iter().find(|d| d.id() == id).expect("a test checks that every DialectId is registered")
}

/// The gang and role of a pod. The dialect with the strongest link decides; among equals the first in the
/// list.
pub fn membership(pod: &PodView<'_>) -> Option<Membership> {
    let found = DIALECTS.iter().filter_map(|d| d.membership(pod).map(|m| (d.link_strength(&m.gang), m)));
    found.min_by_key(|(strength, _)| *strength).map(|(_, membership)| membership)
}

/// The same membership, with repairs, warnings and contradictions for admission. A pod that names gangs
/// explicitly in two dialects gets a finding, because it can only be in one.
pub fn review_membership(pod: &PodView<'_>) -> MembershipReview {
    let found =
        DIALECTS.iter().filter_map(|d| d.membership(pod).map(|m| (d.link_strength(&m.gang), *d, m.gang)));
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|(strength, ..)| *strength);
    let Some((_, first, gang)) = found.first() else { return MembershipReview::default() };
    let mut review = first.review(pod);
    for (strength, other, named) in &found[1..] {
        if *strength == LinkStrength::Explicit {
            review.faults.push(two_groups(*first, gang, *other, named));
        }
    }
    review
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

/// The pod field that names the gang in this dialect.
pub fn field(id: DialectId) -> &'static str {
    dialect(id).field()
}

/// The pod field that names the subgroup or role in this dialect.
pub(crate) fn role_field(id: DialectId) -> &'static str {
    dialect(id).role_field()
}

/// Every kind of group object, in the order of the dialects.
pub fn group_kinds() -> impl Iterator<Item = GroupKind> {
    DIALECTS.iter().flat_map(|d| {
        let resources = d.group_resources().iter().enumerate();
        resources.map(|(rank, resource)| GroupKind { dialect: d.id(), rank, resource })
    })
}

/// The API resources of the group objects of all dialects.
pub fn group_resources() -> impl Iterator<Item = (DialectId, &'static GroupResource)> {
    group_kinds().map(|kind| (kind.dialect(), kind.resource()))
}

/// The group that serves as template of this gang, where no group object has the name of the gang itself.
/// Examples are the replicas of a LeaderWorkerSet and of a Workload.
pub fn template_group(gang: &GangId) -> Option<GangId> {
    let name = dialect(gang.dialect).template_group(&gang.name)?;
    Some(GangId::new(gang.dialect, &gang.namespace, name))
}

/// Whether the quorum of a group object contradicts the quorum that a pod declares.
pub(crate) fn contradicts(group: &Group, pod: &Quorum) -> bool {
    dialect(group.gang.dialect).contradicts(&group.quorum, pod)
}

/// The pod key that declares the number of members; `None` where only a group object can.
pub(crate) fn size_key(id: DialectId) -> Option<&'static str> {
    dialect(id).size_key()
}

/// Whether a dialect has group objects.
pub(crate) fn has_group_objects(id: DialectId) -> bool {
    !dialect(id).group_resources().is_empty()
}

/// `status` for the object of a group, in the words of its stack; `None` where nothing is written.
pub fn group_status(group: &Group, status: &GroupStatus) -> Option<Value> {
    let kind = group.object.as_ref()?.kind;
    status_of(kind, status)
}

/// `status` for an object of this kind; `None` where nothing is written.
pub(crate) fn status_of(kind: GroupKind, status: &GroupStatus) -> Option<Value> {
    if kind.resource().status == StatusWrite::Never {
        return None;
    }
    let mut written = dialect(kind.dialect()).status(kind, status)?;
    // No stack has a word of its own for a timeout. The guides of several stacks use the reason
    // `SchedulingTimeout`.
    if status.reason == Reason::SchedulingTimeout.as_str()
        && let Some(conditions) = written.get_mut("conditions").and_then(Value::as_array_mut)
    {
        conditions.push(status.condition(status.reason, "True"));
    }
    Some(written)
}

/// The event to record on the object of a group, in the words of its stack; `None` where the stack has no
/// such event.
pub(crate) fn group_event(group: &Group, context: &GroupEventContext<'_>) -> Option<GroupEvent> {
    let kind = group.object.as_ref()?.kind;
    dialect(kind.dialect()).event(kind, context)
}

/// Whether the stored status of a group must stay as it is.
pub(crate) fn is_status_final(group: &Group) -> bool {
    dialect(group.gang.dialect).is_status_final(&group.stored_status)
}

/// Group objects by kind, with an empty list for each kind that has none: the form of a complete list of the
/// cluster.
pub fn objects_by_kind<G: Into<GroupObject>>(
    groups: impl IntoIterator<Item = G>,
) -> BTreeMap<GroupKind, Vec<GroupObject>> {
    let mut by_kind: BTreeMap<_, Vec<_>> = group_kinds().map(|kind| (kind, Vec::new())).collect();
    for object in groups.into_iter().map(Into::into) {
        by_kind.entry(object.key.kind).or_default().push(object);
    }
    by_kind
}

impl GroupKind {
    /// Reads an object of this kind.
    ///
    /// # Errors
    /// When a required field is missing or a field has the wrong type.
    pub fn read(self, json: &str) -> Result<GroupObject, ReadError> {
        read_group_object(self, json, |reader| dialect(self.dialect()).read_group(reader))
    }
}

impl Group {
    /// The same group, stated by an object with the name of the gang, of the first kind of its dialect.
    #[must_use]
    pub fn with_object(self, uid: &str) -> Self {
        let kind = group_kinds().find(|kind| kind.dialect() == self.gang.dialect);
        let kind = kind.expect("the dialect has group objects");
        let key = GroupKey { kind, namespace: self.gang.namespace.clone(), name: self.gang.name.clone() };
        Self { object: Some(key), uid: str(uid), ..self }
    }
}

impl From<Group> for GroupObject {
    /// A group object that describes one gang.
    fn from(group: Group) -> Self {
        let key = group.object.clone().or_else(|| group.clone().with_object("").object);
        Self { key: key.expect("with_object sets the object"), groups: vec![group] }
    }
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
