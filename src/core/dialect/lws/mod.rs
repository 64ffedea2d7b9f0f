//! LeaderWorkerSet: each replica, a leader and its workers, is a gang. Its name is the name of the leader:
//! set and index.
//!
//! No group object is needed: each pod has the size as an annotation. Before the webhook of LeaderWorkerSet
//! has run, a leader lacks the label with its index; then the end of its name is the index. Where
//! LeaderWorkerSet is configured to create Volcano PodGroups, its pods name them and belong to the Volcano
//! dialect.
//!
//! Some sets create their workers only after the leader has started, so the leader cannot wait for them.
//! Where the set can be read and has `startupPolicy: LeaderReady`, its template states the shape of the
//! workers. The leader then starts when there is capacity for all of them. With `exclusive-topology` the
//! nodes of the workers are unknown until the leader has a node. Then the leader does not wait, and there are
//! no reservations.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::dialect_trait::Dialect;
use super::future_members::{self, WorkerTemplate};
use super::group::{GroupResource, StatusWrite};
use super::group_reader::{GroupReader, invalid_member_count, parse_member_count, read_count};
use super::membership::{LinkStrength, Membership, PodDeclaration};
use super::membership_review::MembershipReview;
use super::quorum::Quorum;
use crate::model::{DialectId, Finding, FindingRule, GangId};
use crate::objects::names;
use crate::objects::text::Text;
use crate::objects::view::PodView;

pub(super) struct Lws;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct LeaderWorkerSetSpec<'a> {
    #[serde(default)]
    leader_worker_template: LeaderWorkerTemplate<'a>,
    #[serde(default)]
    startup_policy: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct LeaderWorkerTemplate<'a> {
    #[serde(default, borrow)]
    size: Option<&'a RawValue>,
    #[serde(default)]
    worker_template: Option<PodView<'a>>,
}

fn is_index(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The index of the replica, from the label or from the name of the leader.
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
            status: StatusWrite::Never,
        }]
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let meta = &pod.metadata;
        let set = meta.labels.non_empty(names::LWS_NAME_LABEL)?;
        let name = format!("{set}-{}", index(pod, set)?);
        let leader_first = meta.annotations.contains(names::LWS_EXCLUSIVE_ANNOTATION);
        let min_members = if leader_first { Some(1) } else { size(pod).and_then(parse_member_count) };
        Some(Membership {
            gang: GangId::new(DialectId::Lws, meta.namespace.as_str(), name),
            role: None,
            declared: PodDeclaration::read(pod, min_members.map(Quorum::Count)),
        })
    }

    fn review(&self, pod: &PodView<'_>) -> MembershipReview {
        let mut review = MembershipReview { membership: self.membership(pod), ..MembershipReview::default() };
        if let Some(size) = size(pod).filter(|size| parse_member_count(size).is_none()) {
            review.faults.push(Finding {
                field: format!("metadata.annotations[{}]", names::LWS_SIZE_ANNOTATION),
                value: size.to_owned(),
                rule: FindingRule::SizeValue,
                message: invalid_member_count(size),
            });
        }
        review
    }

    fn link_strength(&self, _: &GangId) -> LinkStrength {
        LinkStrength::Implied
    }

    fn size_key(&self) -> Option<&'static str> {
        Some(names::LWS_SIZE_ANNOTATION)
    }

    /// The set describes all its replicas.
    fn template_group<'g>(&self, gang: &'g str) -> Option<&'g str> {
        let (set, index) = gang.rsplit_once('-')?;
        is_index(index).then_some(set)
    }

    fn read_group(&self, reader: &mut GroupReader<'_, '_>) -> Result<(), String> {
        let spec: LeaderWorkerSetSpec<'_> = reader.spec()?;
        let size =
            read_count(spec.leader_worker_template.size, "spec.leaderWorkerTemplate.size")?.unwrap_or(1);
        let topology = reader.meta.annotations.contains(names::LWS_EXCLUSIVE_ANNOTATION);
        let leader_first = spec.startup_policy.as_deref() == Some("LeaderReady");
        let template = spec.leader_worker_template.worker_template;
        let workers = match template.filter(|_| leader_first && !topology && size > 1) {
            Some(template) => {
                future_members::shape_of(&template).map(|shape| Some(WorkerTemplate { size, shape }))
            }
            None => Ok(None),
        };
        let waits_for_workers = !topology && (!leader_first || matches!(workers, Ok(Some(_))));
        let name = reader.key.name.clone();
        let group = reader.add_gang(&name, Quorum::Count(if waits_for_workers { size } else { 1 }));
        match workers {
            Ok(workers) => group.workers = workers,
            Err(problem) => group.warnings.push(format!(
                "spec.leaderWorkerTemplate.workerTemplate cannot be read, so no capacity is reserved for the workers: {problem}"
            )),
        }
        Ok(())
    }

    /// A set whose leaders start first has quorum 1, while its pods declare the final size. This is no
    /// contradiction.
    fn contradicts(&self, _: &Quorum, _: &Quorum) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::{membership, review_membership};
    use crate::model::DialectId::{Kai, Lws, Volcano};

    const NAME: &str = names::LWS_NAME_LABEL;
    const INDEX: &str = names::LWS_GROUP_INDEX_LABEL;
    const WORKER: &str = names::LWS_WORKER_INDEX_LABEL;
    const SIZE: &str = names::LWS_SIZE_ANNOTATION;

    #[test]
    fn a_replica_is_a_gang_before_and_after_the_webhook_of_the_set() {
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
            let min_members = declared.map(Quorum::min_members);
            let found = made.as_ref().map(|m| (m.gang.dialect, &*m.gang.name, min_members));
            assert_eq!(found, gang, "{pod}");
            let review = review_membership(&view);
            assert_eq!((review.membership, review.faults), (made, vec![]), "{pod}");
        };
        // The leader before and after the webhook of LeaderWorkerSet, then a worker before and after it.
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
        // A Volcano group that LeaderWorkerSet created makes it a Volcano gang. A group that the controller
        // of Volcano or KAI generated changes nothing. A group that the user named counts.
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
