//! Members that are created only after other members have started.
//!
//! A gang whose members are created one after the other never gathers. Where the requests of the later
//! members are known, the engine plans the gang with placeholders for them and keeps their reservations until
//! the pods exist. Three sources state the requests:
//!
//! - a pod of an ordered StatefulSet: the pods after it are copies of it;
//! - a driver that carries the task groups of its application;
//! - a LeaderWorkerSet whose leaders start first.
//!
//! Where the requests are unknown, there are no placeholders: the gang gathers like any other.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::group_reader::parse_member_count;
use crate::model::{DialectId, GangId, Str};
use crate::objects::affinity::Toleration;
use crate::objects::names;
use crate::objects::view::PodView;
use crate::shape::Shape;

/// The members that are created only after this pod has started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FutureMembers {
    /// Copies of this pod.
    Copies,
    /// Members with a role; their shape by role.
    Roles(BTreeMap<Str, Arc<Shape>>),
    /// The other pods of a LeaderWorkerSet replica. The group object of the set states whether the leader
    /// starts first, and the shape of the workers.
    Replica {
        /// The LeaderWorkerSet.
        set: GangId,
        /// Number of pods of the replica, including the leader.
        size: u32,
    },
}

/// The workers of a LeaderWorkerSet whose leaders start first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerTemplate {
    /// Number of pods of a replica, including the leader.
    pub size: u32,
    /// Shape of each worker.
    pub shape: Arc<Shape>,
}

impl FutureMembers {
    /// Reads the keys that have the same meaning in every stack.
    pub(super) fn read(pod: &PodView<'_>) -> Option<Self> {
        let meta = &pod.metadata;
        if is_ordered(pod) {
            return Some(Self::Copies);
        }
        let set = meta.labels.non_empty(names::LWS_NAME_LABEL)?;
        let size = meta.annotations.text(names::LWS_SIZE_ANNOTATION).and_then(parse_member_count)?;
        Some(Self::Replica { set: GangId::new(DialectId::Lws, meta.namespace.as_str(), set), size })
    }
}

/// Whether the owner of the pod creates its pods one after the other.
pub(super) fn is_ordered(pod: &PodView<'_>) -> bool {
    pod.metadata.annotations.text(names::ORDERED_ANNOTATION) == Some(names::ORDERED_KEEP)
}

/// The shape of a pod with this template, including the toleration that admission adds.
pub(super) fn shape_of(template: &PodView<'_>) -> Result<Arc<Shape>, String> {
    let mut shape = Shape::of(template)?;
    let shared = Toleration::of_shared_nodes();
    if shape.share.is_some() && !shape.tolerations.contains(&shared) {
        shape.tolerations.push(shared);
    }
    Ok(Arc::new(shape))
}

/// The shape of a pod that is described by requests and some fields of a pod spec.
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

    fn future_members(metadata: &Value) -> Option<FutureMembers> {
        let pod = json!({ "metadata": metadata }).to_string();
        let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
        membership(&view)?.declared?.future_members
    }

    #[test]
    fn the_keys_of_a_pod_state_its_future_members() {
        let keep = json!({ "portcullis.dev/gang": "g", "portcullis.dev/ordered": "keep" });
        assert_eq!(future_members(&json!({ "annotations": keep })), Some(FutureMembers::Copies));
        let other = json!({ "portcullis.dev/gang": "g", "portcullis.dev/ordered": "no" });
        assert_eq!(future_members(&json!({ "annotations": other })), None);
        let set = GangId::new(DialectId::Lws, "ml", "vllm");
        let labels = json!({ "leaderworkerset.sigs.k8s.io/name": "vllm" });
        let mut annotations = json!({ "leaderworkerset.sigs.k8s.io/size": "4" });
        for group in [None, Some("vllm-0-c4864")] {
            if let Some(group) = group {
                annotations["scheduling.k8s.io/group-name"] = json!(group);
            }
            let pod =
                json!({ "name": "vllm-0", "namespace": "ml", "labels": labels, "annotations": annotations });
            assert_eq!(future_members(&pod), Some(FutureMembers::Replica { set: set.clone(), size: 4 }));
        }
    }

    #[test]
    fn a_driver_states_the_shape_of_its_executors() {
        let check = |labels: &Value, groups: &Value, cpu: Option<u64>| {
            let annotations = json!({
                "yunikorn.apache.org/task-group-name": "driver",
                "yunikorn.apache.org/task-groups": groups.to_string(),
            });
            let found = future_members(&json!({ "labels": labels, "annotations": annotations }));
            let executor = match &found {
                Some(FutureMembers::Roles(roles)) => roles.get("executor"),
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
        // An application that creates all pods at once has no future members.
        check(&json!({ "applicationId": "a" }), &groups, None);
        let without_requests =
            json!([{ "name": "driver", "minMember": 1 }, { "name": "executor", "minMember": 2 }]);
        check(&driver, &without_requests, None);
        let mut wrong = groups;
        wrong[1]["MinResource"]["cpu"] = json!("many");
        check(&driver, &wrong, None);
    }

    #[test]
    fn a_set_whose_leaders_start_first_states_the_shape_of_its_workers() {
        let kind = group_kinds().find(|kind| kind.dialect() == DialectId::Lws).unwrap();
        let check = |spec: &Value,
                     annotations: &Value,
                     min_members: u32,
                     cpu: Option<u64>,
                     warnings: usize| {
            let set = json!({ "metadata": { "name": "vllm", "namespace": "ml", "annotations": annotations }, "spec": spec });
            let GroupObject { groups, .. } = kind.read(&set.to_string()).unwrap();
            let workers = groups[0].workers.as_ref();
            assert_eq!(groups[0].quorum, Quorum::Count(min_members), "{set}");
            assert_eq!(workers.map(|workers| workers.shape.requests.cpu), cpu.map(MilliCpu), "{set}");
            assert_eq!(workers.map(|workers| workers.size), cpu.map(|_| 4), "{set}");
            assert_eq!(groups[0].warnings.len(), warnings, "{:?}", groups[0].warnings);
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
