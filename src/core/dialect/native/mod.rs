//! Kubernetes itself: `spec.schedulingGroup` names a PodGroup (1.36 and later), `spec.workloadRef` a group of
//! a Workload (1.35).
//!
//! A gang of a Workload is named `workload/group`, or `workload/group/replica`: each replica is a gang.
//!
//! An API server with this feature off drops the field without an error, some of them after the mutating
//! webhooks. So admission copies the value into an annotation, which is kept.

mod group_objects;

use std::borrow::Cow;

use serde_json::Value;

use super::dialect_trait::Dialect;
use super::group::{GroupKind, GroupResource, StatusWrite};
use super::group_event::{GroupEvent, GroupEventContext};
use super::group_reader::GroupReader;
use super::group_status::{GroupStatus, StoredStatus};
use super::membership::{Membership, PodDeclaration};
use super::membership_review::{MembershipReview, MetadataMap, MetadataRepair};
use crate::model::{DialectId, GangId};
use crate::objects::names;
use crate::objects::view::PodView;

pub(super) struct Native;

/// The gang that the fields of the spec name.
fn gang_in_spec<'p>(pod: &'p PodView<'_>) -> Option<Cow<'p, str>> {
    if let Some(group) = &pod.spec.scheduling_group
        && !group.pod_group_name.is_empty()
    {
        return Some(Cow::Borrowed(group.pod_group_name.as_str()));
    }
    let workload = pod.spec.workload_ref.as_ref()?;
    let (name, group, replica) = (&workload.name, &workload.pod_group, &workload.pod_group_replica_key);
    if name.is_empty() || group.is_empty() {
        return None;
    }
    Some(Cow::Owned(if replica.is_empty() {
        format!("{name}/{group}")
    } else {
        format!("{name}/{group}/{replica}")
    }))
}

/// The gang that the annotation names.
fn gang_in_annotation<'p>(pod: &'p PodView<'_>) -> Option<&'p str> {
    pod.metadata.annotations.non_empty(names::SCHEDULING_GROUP_ANNOTATION)
}

impl Dialect for Native {
    fn id(&self) -> DialectId {
        DialectId::Native
    }

    fn field(&self) -> &'static str {
        "spec.schedulingGroup.podGroupName"
    }

    fn group_resources(&self) -> &'static [GroupResource] {
        group_objects::RESOURCES
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let name = gang_in_spec(pod).or_else(|| gang_in_annotation(pod).map(Cow::Borrowed))?;
        Some(Membership {
            gang: GangId::new(DialectId::Native, pod.metadata.namespace.as_str(), name),
            role: None,
            declared: PodDeclaration::read(pod, None),
        })
    }

    fn review(&self, pod: &PodView<'_>) -> MembershipReview {
        let mut review = MembershipReview { membership: self.membership(pod), ..MembershipReview::default() };
        if let Some(gang) = gang_in_spec(pod)
            && gang_in_annotation(pod) != Some(&gang)
        {
            let (map, key) = (MetadataMap::Annotations, names::SCHEDULING_GROUP_ANNOTATION);
            review.repairs.push(MetadataRepair { map, key, value: gang.into_owned(), source: None });
        }
        review
    }

    /// A group of a Workload describes all its replicas.
    fn template_group<'g>(&self, gang: &'g str) -> Option<&'g str> {
        let (group, _) = gang.rsplit_once('/')?;
        group.contains('/').then_some(group)
    }

    fn read_group(&self, reader: &mut GroupReader<'_, '_>) -> Result<(), String> {
        group_objects::read(reader)
    }

    fn status(&self, kind: GroupKind, status: &GroupStatus) -> Option<Value> {
        group_objects::status(kind, status)
    }

    /// A Workload of 1.35 has no status. The event has the name of the condition that guides look for.
    fn event(&self, kind: GroupKind, context: &GroupEventContext<'_>) -> Option<GroupEvent> {
        let event = context.event()?;
        let is_scheduled = kind.resource().status == StatusWrite::Never && event.reason == "Scheduled";
        Some(if is_scheduled { GroupEvent { reason: "GangScheduled", ..event } } else { event })
    }

    fn is_status_final(&self, said: &StoredStatus) -> bool {
        group_objects::is_scheduled(said)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::{membership, review_membership};

    #[test]
    fn the_fields_of_every_release_are_copied_to_the_annotation() {
        let key = names::SCHEDULING_GROUP_ANNOTATION;
        let workload = json!({ "workloadRef": { "name": "job", "podGroup": "workers" } });
        let replica =
            json!({ "workloadRef": { "name": "job", "podGroup": "workers", "podGroupReplicaKey": "1" } });
        let group = json!({ "schedulingGroup": { "podGroupName": "gang" } });
        for (spec, annotation, gang, copied) in [
            (json!({}), None, None, None),
            (json!({ "schedulingGroup": null, "workloadRef": null }), None, None, None),
            (json!({ "schedulingGroup": {}, "workloadRef": { "name": "job" } }), None, None, None),
            (group.clone(), None, Some("gang"), Some("gang")),
            (group.clone(), Some("gang"), Some("gang"), None),
            (group, Some("another"), Some("gang"), Some("gang")),
            (workload, None, Some("job/workers"), Some("job/workers")),
            (replica, None, Some("job/workers/1"), Some("job/workers/1")),
            (json!({}), Some("gang"), Some("gang"), None),
        ] {
            let annotations = annotation.map(|text| json!({ key: text }));
            let pod = json!({ "metadata": { "namespace": "ml", "annotations": annotations }, "spec": spec });
            let pod = pod.to_string();
            let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
            let review = review_membership(&view);
            assert_eq!(review.membership, membership(&view), "{pod}");
            assert_eq!(review.membership.as_ref().map(|m| &*m.gang.name), gang, "{pod}");
            let repairs: Vec<_> = review.repairs.iter().map(|r| (r.key, &*r.value)).collect();
            assert_eq!(repairs, Vec::from_iter(copied.map(|value| (key, value))), "{pod}");
        }
    }
}
