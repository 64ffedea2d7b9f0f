//! LeaderWorkerSet: each replica, a leader and its workers, is a gang, named like its leader: the set and the index.
//!
//! Needs no group object: the size stands on each pod. Before the webhook of LeaderWorkerSet has run a leader lacks the
//! label with its index, which is the end of its name. Where that project is told to make Volcano PodGroups, its pods
//! name them, and are Volcano's.
//!
//! Some sets make their workers only after the leader has started: a leader that waits for them waits for ever. Where the
//! set itself can be read and says `startupPolicy: LeaderReady`, its template says what the workers will ask for, and the
//! leader starts when there is room for all of them. Where the pods want a topology of their own, nobody knows where the
//! workers may go before the leader has a node: there nobody waits for anybody, and no room is held.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::group::{Source, count, no_count, number};
use super::{
    Declared, Dialect, GroupResource, Link, Membership, Quorum, StatusDoor, Strength, Workers, later,
};
use crate::model::{DialectId, Finding, FindingRule, GangId};
use crate::objects::names;
use crate::objects::text::Text;
use crate::objects::view::PodView;

pub(super) struct Lws;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Spec<'a> {
    #[serde(default)]
    leader_worker_template: Template<'a>,
    #[serde(default)]
    startup_policy: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Template<'a> {
    #[serde(default, borrow)]
    size: Option<&'a RawValue>,
    #[serde(default)]
    worker_template: Option<PodView<'a>>,
}

fn is_index(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The index of the replica: its label, or the end of the leader's name.
fn index<'p>(pod: &'p PodView<'_>, set: &str) -> Option<&'p str> {
    let meta = &pod.metadata;
    if let Some(index) = meta.labels.text(names::LWS_GROUP_INDEX_LABEL).filter(|index| is_index(index)) {
        return Some(index);
    }
    let rest = meta.name.strip_prefix(set)?.strip_prefix('-')?;
    let index = rest.split('-').next()?;
    is_index(index).then_some(index)
}

fn size<'p>(pod: &'p PodView<'_>) -> Option<&'p str> {
    pod.metadata.annotations.text(names::LWS_SIZE_ANNOTATION)
}

impl Dialect for Lws {
    fn id(&self) -> DialectId {
        DialectId::Lws
    }

    fn field(&self) -> &'static str {
        "metadata.labels[leaderworkerset.sigs.k8s.io/name]"
    }

    fn group_resources(&self) -> &'static [GroupResource] {
        &[GroupResource {
            group: names::LWS_API_GROUP,
            version: "v1",
            kind: "LeaderWorkerSet",
            plural: "leaderworkersets",
            status: StatusDoor::Closed,
        }]
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let meta = &pod.metadata;
        let set = meta.labels.text(names::LWS_NAME_LABEL).filter(|set| !set.is_empty())?;
        let name = format!("{set}-{}", index(pod, set)?);
        let leader_first = meta.annotations.contains(names::LWS_EXCLUSIVE_ANNOTATION);
        let least = if leader_first { Some(1) } else { size(pod).and_then(count) };
        Some(Membership {
            gang: GangId::new(DialectId::Lws, meta.namespace.as_str(), name),
            role: None,
            declared: Declared::by(pod, least.map(Quorum::Count)),
        })
    }

    fn link(&self, pod: &PodView<'_>) -> Link {
        let mut link = Link { membership: self.membership(pod), ..Link::default() };
        if let Some(size) = size(pod).filter(|size| count(size).is_none()) {
            link.faults.push(Finding {
                field: format!("metadata.annotations[{}]", names::LWS_SIZE_ANNOTATION),
                value: size.to_owned(),
                rule: FindingRule::SizeValue,
                message: no_count(size),
            });
        }
        link
    }

    fn strength(&self, _: &GangId) -> Strength {
        Strength::Implied
    }

    fn declares_by(&self) -> Option<&'static str> {
        Some(names::LWS_SIZE_ANNOTATION)
    }

    /// The set describes all its replicas.
    fn template<'g>(&self, gang: &'g str) -> Option<&'g str> {
        let (set, index) = gang.rsplit_once('-')?;
        is_index(index).then_some(set)
    }

    fn read_group(&self, source: &mut Source<'_, '_>) -> Result<(), String> {
        let spec: Spec<'_> = source.spec()?;
        let size = number(spec.leader_worker_template.size, "spec.leaderWorkerTemplate.size")?.unwrap_or(1);
        let topology = source.meta.annotations.contains(names::LWS_EXCLUSIVE_ANNOTATION);
        let leader_first = spec.startup_policy.as_deref() == Some("LeaderReady");
        let template = spec.leader_worker_template.worker_template;
        let workers = match template.filter(|_| leader_first && !topology && size > 1) {
            Some(template) => later::shape_of(&template).map(|shape| Some(Workers { size, shape })),
            None => Ok(None),
        };
        let waits = !topology && (!leader_first || matches!(workers, Ok(Some(_))));
        let name = source.key.name.clone();
        let group = source.say(&name, Quorum::Count(if waits { size } else { 1 }));
        match workers {
            Ok(workers) => group.workers = workers,
            Err(problem) => group.doubts.push(format!(
                "spec.leaderWorkerTemplate.workerTemplate cannot be read, so no room is held for the workers: {problem}"
            )),
        }
        Ok(())
    }

    /// A set whose leaders go first says 1, and its pods say how many there will be.
    fn contradicts(&self, _: &Quorum, _: &Quorum) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::{link, membership};
    use crate::model::DialectId::{Kai, Lws, Volcano};

    const NAME: &str = names::LWS_NAME_LABEL;
    const INDEX: &str = names::LWS_GROUP_INDEX_LABEL;
    const WORKER: &str = names::LWS_WORKER_INDEX_LABEL;
    const SIZE: &str = names::LWS_SIZE_ANNOTATION;

    #[test]
    fn a_replica_is_a_gang_before_and_after_their_webhook() {
        let uid = "2f9a3d52-62b5-4a3a-8f2e-1d0c7a9b1234";
        let check = |name: &str,
                     labels: &Value,
                     annotations: &Value,
                     gang: Option<(DialectId, &str, Option<u32>)>| {
            let metadata =
                json!({ "name": name, "namespace": "ml", "labels": labels, "annotations": annotations });
            let pod = json!({ "metadata": metadata }).to_string();
            let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
            let made = membership(&view);
            let declared = made.as_ref().and_then(|m| m.declared.as_ref()?.quorum.as_ref());
            let least = declared.map(Quorum::least);
            let found = made.as_ref().map(|m| (m.gang.dialect, &*m.gang.name, least));
            assert_eq!(found, gang, "{pod}");
            let linked = link(&view);
            assert_eq!((linked.membership, linked.faults), (made, vec![]), "{pod}");
        };
        // The leader as it enters admission, and as it is stored; then a worker, likewise.
        let size = json!({ SIZE: "4" });
        let replica = Some((Lws, "vllm-0", Some(4)));
        check("vllm-0", &json!({ NAME: "vllm", WORKER: "0" }), &size, replica);
        check("vllm-0", &json!({ NAME: "vllm", WORKER: "0", INDEX: "0" }), &size, replica);
        check("vllm-0-1", &json!({ NAME: "vllm", INDEX: "0" }), &size, replica);
        check("vllm-0-1", &json!({ NAME: "vllm", INDEX: "0", WORKER: "1" }), &size, replica);
        check("vllm-13-1", &json!({ NAME: "vllm" }), &size, Some((Lws, "vllm-13", Some(4))));
        check("a-1-0", &json!({ NAME: "a-1" }), &size, Some((Lws, "a-1-0", Some(4))));
        check("other", &json!({ NAME: "vllm" }), &size, None);
        check("vllm-x", &json!({ NAME: "vllm" }), &size, None);
        check("vllm-0", &json!({ NAME: "vllm" }), &json!({}), Some((Lws, "vllm-0", None)));
        let exclusive = json!({ SIZE: "4", names::LWS_EXCLUSIVE_ANNOTATION: "rack" });
        check("vllm-0", &json!({ NAME: "vllm" }), &exclusive, Some((Lws, "vllm-0", Some(1))));
        // With a group of Volcano's that LeaderWorkerSet made it is Volcano's; one that Volcano's or KAI's controller added
        // later changes nothing; one that somebody wrote counts.
        let group = "scheduling.k8s.io/group-name";
        let volcano = |name: &str| json!({ SIZE: "4", group: name });
        let labels = json!({ NAME: "vllm", INDEX: "0" });
        check("vllm-0", &labels, &volcano("vllm-0-c4864947c"), Some((Volcano, "vllm-0-c4864947c", None)));
        check("vllm-0", &labels, &volcano(&format!("podgroup-{uid}")), replica);
        let kai = |name: &str| json!({ SIZE: "4", "pod-group-name": name });
        let with_label = |name: &str| json!({ NAME: "vllm", INDEX: "0", "kai.scheduler/podgroup": name });
        check("vllm-0", &with_label("mine"), &kai("mine"), Some((Kai, "mine", None)));
        check("vllm-0", &labels, &kai(&format!("pg-vllm-{uid}")), replica);
    }
}
