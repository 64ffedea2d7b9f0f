//! Kubernetes itself: `spec.schedulingGroup` of a pod names a PodGroup (1.36 and later), `spec.workloadRef` a group within a
//! Workload (1.35). The latter is called `workload/group`, or `workload/group/replica`: each replica is a gang of its own.
//!
//! An API server on which that feature is off drops the field without a word, some of them after the mutating webhooks:
//! so what it said is copied into an annotation, which stays.

use std::borrow::Cow;

use serde_json::Value;

use super::group::Source;
use super::{
    Declared, Dialect, GroupEvent, GroupKind, GroupNews, GroupResource, GroupStatus, Link, Membership,
    MetadataMap, Repair, Said, StatusDoor,
};
use crate::model::{DialectId, GangId};
use crate::objects::names;
use crate::objects::view::PodView;

pub(super) struct Native;

/// What the fields say.
fn said<'p>(pod: &'p PodView<'_>) -> Option<Cow<'p, str>> {
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

fn kept<'p>(pod: &'p PodView<'_>) -> Option<&'p str> {
    pod.metadata.annotations.text(names::SCHEDULING_GROUP_ANNOTATION).filter(|text| !text.is_empty())
}

impl Dialect for Native {
    fn id(&self) -> DialectId {
        DialectId::Native
    }

    fn field(&self) -> &'static str {
        "spec.schedulingGroup.podGroupName"
    }

    fn group_resources(&self) -> &'static [GroupResource] {
        super::native_group::RESOURCES
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let name = said(pod).or_else(|| kept(pod).map(Cow::Borrowed))?;
        Some(Membership {
            gang: GangId::new(DialectId::Native, pod.metadata.namespace.as_str(), name),
            role: None,
            declared: Declared::by(pod, None),
        })
    }

    fn link(&self, pod: &PodView<'_>) -> Link {
        let mut link = Link { membership: self.membership(pod), ..Link::default() };
        if let Some(said) = said(pod)
            && kept(pod) != Some(&said)
        {
            let (map, key) = (MetadataMap::Annotations, names::SCHEDULING_GROUP_ANNOTATION);
            link.repairs.push(Repair { map, key, value: said.into_owned(), source: None });
        }
        link
    }

    /// A group of a Workload describes all its replicas.
    fn template<'g>(&self, gang: &'g str) -> Option<&'g str> {
        let (group, _) = gang.rsplit_once('/')?;
        group.contains('/').then_some(group)
    }

    fn read_group(&self, source: &mut Source<'_, '_>) -> Result<(), String> {
        super::native_group::read(source)
    }

    fn status(&self, kind: GroupKind, status: &GroupStatus) -> Option<Value> {
        super::native_group::status(kind, status)
    }

    /// A Workload of 1.35 has no status: guides that look for a condition of this name find an event.
    fn event(&self, kind: GroupKind, news: &GroupNews<'_>) -> Option<GroupEvent> {
        let event = news.event()?;
        let is_done = kind.resource().status == StatusDoor::Closed && event.reason == "Scheduled";
        Some(if is_done { GroupEvent { reason: "GangScheduled", ..event } } else { event })
    }

    fn has_said_the_last(&self, said: &Said) -> bool {
        super::native_group::is_scheduled(said)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::{link, membership};

    #[test]
    fn fields_of_every_release_name_the_group_and_are_copied() {
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
            let made = link(&view);
            assert_eq!(made.membership, membership(&view), "{pod}");
            assert_eq!(made.membership.as_ref().map(|m| &*m.gang.name), gang, "{pod}");
            let repairs: Vec<_> = made.repairs.iter().map(|r| (r.key, &*r.value)).collect();
            assert_eq!(repairs, Vec::from_iter(copied.map(|value| (key, value))), "{pod}");
        }
    }
}
