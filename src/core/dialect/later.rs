//! Members that are made only after others of their gang have started: who says so, and what they will ask for.
//!
//! A gang whose members come one after the other never gathers. Where it is known what those to come will ask for, it is
//! planned with them, and their room is held until they are here. Three things say so: a pod that was made in order (those
//! after it are copies of it), a driver that carries the task groups of its application, and a LeaderWorkerSet whose leaders
//! go first. What asks for an unknown amount is never waited for here: it gathers as everybody does.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::group::count;
use crate::model::{DialectId, GangId, Str};
use crate::objects::affinity::Toleration;
use crate::objects::view::PodView;
use crate::objects::{Shape, names};

/// What a pod says of members of its gang that are made only after it has started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Later {
    /// They are made like itself.
    Copies,
    /// What a member of each role asks for.
    Roles(BTreeMap<Str, Arc<Shape>>),
    /// It is one pod of a replica of this size; the group object of the set says whether its leader goes first, and what
    /// its workers ask for.
    Replica {
        /// The set.
        set: GangId,
        /// The leader and its workers.
        size: u32,
    },
}

/// The workers of a set whose leaders go first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workers {
    /// With their leader.
    pub size: u32,
    /// What each asks for.
    pub shape: Arc<Shape>,
}

impl Later {
    /// What the keys say that mean the same in every stack.
    pub(super) fn of(pod: &PodView<'_>) -> Option<Self> {
        let meta = &pod.metadata;
        if keeps_order(pod) {
            return Some(Self::Copies);
        }
        let set = meta.labels.text(names::LWS_NAME_LABEL).filter(|set| !set.is_empty())?;
        let size = meta.annotations.text(names::LWS_SIZE_ANNOTATION).and_then(count)?;
        Some(Self::Replica { set: GangId::new(DialectId::Lws, meta.namespace.as_str(), set), size })
    }
}

/// Whether the pod is one of those that are made one after the other.
pub(super) fn keeps_order(pod: &PodView<'_>) -> bool {
    pod.metadata.annotations.text(names::ORDERED_ANNOTATION) == Some(names::ORDERED_KEEP)
}

/// What a pod of this template asks for, as admission will have it.
pub(super) fn shape_of(template: &PodView<'_>) -> Result<Arc<Shape>, String> {
    let mut shape = Shape::of(template)?;
    let shared = Toleration::of_shared_nodes();
    if shape.share.is_some() && !shape.tolerations.contains(&shared) {
        shape.tolerations.push(shared);
    }
    Ok(Arc::new(shape))
}

/// What a pod asks for that is described by requests and a few fields of a pod's spec beside them.
pub(super) fn shape_of_parts(requests: &Value, spec: &BTreeMap<&str, &Value>) -> Result<Arc<Shape>, String> {
    let mut pod =
        json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": requests } }] } });
    for (field, value) in spec {
        pod["spec"][*field] = (*value).clone();
    }
    let text = pod.to_string();
    let view: PodView<'_> = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    shape_of(&view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{GroupObject, Quorum, group_kinds, membership};
    use crate::model::MilliCpu;

    fn said(metadata: &Value) -> Option<Later> {
        let pod = json!({ "metadata": metadata }).to_string();
        let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
        membership(&view)?.declared?.later
    }

    #[test]
    fn a_pod_says_who_comes_after_it() {
        let keep = json!({ "portcullis.dev/gang": "g", "portcullis.dev/ordered": "keep" });
        assert_eq!(said(&json!({ "annotations": keep })), Some(Later::Copies));
        let other = json!({ "portcullis.dev/gang": "g", "portcullis.dev/ordered": "no" });
        assert_eq!(said(&json!({ "annotations": other })), None);
        let set = GangId::new(DialectId::Lws, "ml", "vllm");
        let labels = json!({ "leaderworkerset.sigs.k8s.io/name": "vllm" });
        let mut annotations = json!({ "leaderworkerset.sigs.k8s.io/size": "4" });
        for group in [None, Some("vllm-0-c4864")] {
            if let Some(group) = group {
                annotations["scheduling.k8s.io/group-name"] = json!(group);
            }
            let pod =
                json!({ "name": "vllm-0", "namespace": "ml", "labels": labels, "annotations": annotations });
            assert_eq!(said(&pod), Some(Later::Replica { set: set.clone(), size: 4 }));
        }
    }

    #[test]
    fn a_driver_says_what_its_executors_ask_for() {
        let check = |labels: &Value, groups: &Value, cpu: Option<u64>| {
            let annotations = json!({
                "yunikorn.apache.org/task-group-name": "driver",
                "yunikorn.apache.org/task-groups": groups.to_string(),
            });
            let found = said(&json!({ "labels": labels, "annotations": annotations }));
            let executor = match &found {
                Some(Later::Roles(roles)) => roles.get("executor"),
                _ => None,
            };
            assert_eq!(executor.map(|shape| shape.requests.cpu), cpu.map(MilliCpu), "{groups} {found:?}");
            assert_eq!(executor.map(|shape| shape.tolerations.len()), cpu.map(|_| 1), "{groups}");
        };
        let driver = json!({ "applicationId": "a", "spark-role": "driver" });
        let groups = json!([
            { "name": "driver", "minMember": 1, "minResource": { "cpu": 1 } },
            {
                "name": "executor", "minMember": 2, "MinResource": { "cpu": "2500m" }, "nodeSelector": { "a": "b" },
                "tolerations": [{ "key": "spot", "operator": "Exists" }],
            },
        ]);
        check(&driver, &groups, Some(2500));
        // Whoever makes all its pods at once waits for them.
        check(&json!({ "applicationId": "a" }), &groups, None);
        let silent = json!([{ "name": "driver", "minMember": 1 }, { "name": "executor", "minMember": 2 }]);
        check(&driver, &silent, None);
        let mut wrong = groups;
        wrong[1]["MinResource"]["cpu"] = json!("many");
        check(&driver, &wrong, None);
    }

    #[test]
    fn a_set_says_what_its_workers_ask_for() {
        let kind = group_kinds().find(|kind| kind.dialect() == DialectId::Lws).unwrap();
        let check = |spec: &Value, annotations: &Value, least: u32, cpu: Option<u64>, doubts: usize| {
            let set = json!({ "metadata": { "name": "vllm", "namespace": "ml", "annotations": annotations }, "spec": spec });
            let GroupObject { groups, .. } = kind.read(&set.to_string()).unwrap();
            let workers = groups[0].workers.as_ref();
            assert_eq!(groups[0].quorum, Quorum::Count(least), "{set}");
            assert_eq!(workers.map(|workers| workers.shape.requests.cpu), cpu.map(MilliCpu), "{set}");
            assert_eq!(workers.map(|workers| workers.size), cpu.map(|_| 4), "{set}");
            assert_eq!(groups[0].doubts.len(), doubts, "{:?}", groups[0].doubts);
        };
        let spec = |policy: &str, cpu: &str| {
            let containers = json!([{ "name": "main", "resources": { "requests": { "cpu": cpu } } }]);
            let template = json!({ "spec": { "containers": containers } });
            json!({ "startupPolicy": policy, "leaderWorkerTemplate": { "size": 4, "workerTemplate": template } })
        };
        let (none, own) = (json!({}), json!({ "leaderworkerset.sigs.k8s.io/exclusive-topology": "rack" }));
        check(&spec("LeaderReady", "2"), &none, 4, Some(2000), 0);
        check(&spec("LeaderCreated", "2"), &none, 4, None, 0);
        check(&spec("LeaderReady", "2"), &own, 1, None, 0);
        check(&spec("LeaderReady", "x"), &none, 1, None, 1);
        check(
            &json!({ "startupPolicy": "LeaderReady", "leaderWorkerTemplate": { "size": 4 } }),
            &none,
            1,
            None,
            0,
        );
    }
}
