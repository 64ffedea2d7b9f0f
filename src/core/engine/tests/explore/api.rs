//! The API server of the search: it carries out the requests of both replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CARD_MIB, NOW};
use crate::dialect::{Group, Quorum, objects_by_kind};
use crate::engine::{
    Action, Effect, Event, GangRecord, GangStatus, ListedObjects, RequestOutcome, RequestTarget,
};
use crate::model::{DialectId, Epoch, GangId, PodUid, ResourceVersion, VramMib};
use crate::objects::Node;
use crate::pod::Pod;

/// The objects of the API server. Each object counts its own versions, so that equal contents are equal
/// states.
#[derive(Clone, Debug, Hash)]
pub(super) struct Api {
    pub(super) holder: usize,
    pub(super) epoch: Epoch,
    pub(super) gangs: BTreeMap<GangId, (ResourceVersion, Arc<GangStatus>)>,
    pub(super) pods: BTreeMap<PodUid, Arc<Pod>>,
    /// The gang that is first in the queue and is created later.
    pub(super) late: Vec<Arc<Pod>>,
}

impl Api {
    pub(super) fn carry_out(&mut self, replica: usize, effect: &Effect) -> Event {
        let (subject, outcome) = match &effect.action {
            Action::ReadLease => {
                let ours = self.holder == replica && self.epoch == effect.epoch;
                (RequestTarget::Lease, RequestOutcome::Lease { ours })
            }
            Action::ReadGang { gang } => (RequestTarget::Gang(gang.clone()), self.gang(gang)),
            Action::WriteGang { gang, expected, status } => {
                let outcome = match self.gangs.get_mut(gang) {
                    Some((version, stored)) if version == expected => {
                        *version = ResourceVersion(version.0 + 1);
                        *stored = Arc::new(status.clone());
                        self.gang(gang)
                    }
                    Some(_) => RequestOutcome::Conflict,
                    None => RequestOutcome::Gone,
                };
                (RequestTarget::Gang(gang.clone()), outcome)
            }
            // Both `Gang` objects exist all the time. If a new object started with a new version, the search
            // would see a lag that no API server has.
            Action::CreateGang { gang, .. } | Action::DeleteGang { gang, .. } => {
                (RequestTarget::Gang(gang.clone()), RequestOutcome::Failed("not in this world".to_owned()))
            }
            Action::ReadPod { pod } => (RequestTarget::Pod(pod.uid.clone()), self.pod(&pod.uid)),
            Action::Fence { pod, .. } => {
                self.write(&pod.uid, |_| {});
                (RequestTarget::Pod(pod.uid.clone()), self.pod(&pod.uid))
            }
            Action::TryLift { pod, .. } => {
                let stored = self.pods.get(&pod.uid);
                let outcome = match stored {
                    None => RequestOutcome::Gone,
                    Some(stored) if pod.resource_version != stored.resource_version => {
                        RequestOutcome::Conflict
                    }
                    Some(_) => RequestOutcome::Done,
                };
                (RequestTarget::Pod(pod.uid.clone()), outcome)
            }
            Action::Lift { pod, permit, node, cards, .. } => {
                let stored = self.pods.get(&pod.uid);
                let outcome = match stored {
                    None => RequestOutcome::Gone,
                    Some(stored) if permit.is_some_and(|l| l != stored.resource_version) => {
                        RequestOutcome::Conflict
                    }
                    Some(stored) if !stored.gated() => RequestOutcome::Conflict,
                    Some(_) => {
                        self.write(&pod.uid, |pod| {
                            pod.gates.clear();
                            pod.nominated = Some(node.clone());
                            pod.gpus = Some(cards.clone());
                        });
                        self.pod(&pod.uid)
                    }
                };
                (RequestTarget::Pod(pod.uid.clone()), outcome)
            }
            Action::List
            | Action::StepDown
            | Action::Nominate { .. }
            | Action::Evict { .. }
            | Action::RecordEvent(_)
            | Action::ReadOwner { .. }
            | Action::WriteGroup { .. } => {
                unreachable!("not sent in this world")
            }
        };
        Event::Answer { epoch: effect.epoch, subject, outcome }
    }

    fn write(&mut self, uid: &PodUid, change: impl Fn(&mut Pod)) {
        if let Some(pod) = self.pods.get_mut(uid) {
            let mut changed = (**pod).clone();
            change(&mut changed);
            changed.resource_version = ResourceVersion(pod.resource_version.0 + 1);
            *pod = Arc::new(changed);
        }
    }

    fn pod(&self, uid: &PodUid) -> RequestOutcome {
        self.pods.get(uid).map_or(RequestOutcome::Gone, |pod| RequestOutcome::Pod(Box::new((**pod).clone())))
    }

    fn gang(&self, id: &GangId) -> RequestOutcome {
        self.gangs.get(id).map_or(RequestOutcome::Gone, |(version, status)| {
            RequestOutcome::Gang(Box::new(record(id, *version, status)))
        })
    }

    pub(super) fn everything(&self) -> ListedObjects {
        let node = format!(
            r#"{{"metadata":{{"name":"gpu-1","labels":{{"nvidia.com/gpu.count":"1","nvidia.com/gpu.memory":"{CARD_MIB}",
                "portcullis.dev/gpu-sharing":"vram"}}}},
                "spec":{{"taints":[{{"key":"portcullis.dev/gpu-sharing","value":"vram","effect":"NoSchedule"}}]}},
                "status":{{"allocatable":{{"cpu":"8","memory":"16Gi","pods":"110","nvidia.com/gpu":"1"}},
                "conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
        );
        let members = u32::try_from(self.members()).unwrap_or(0);
        let groups = self.gangs.keys().map(|id| Group {
            created: NOW,
            ..Group::new(id.clone(), Quorum::Count(members)).with_object(&id.name)
        });
        ListedObjects {
            nodes: Some(vec![Node::read(&node).expect("the node above can be read")]),
            pods: Some(self.pods.values().map(|pod| (**pod).clone()).collect()),
            groups: objects_by_kind(groups),
            gangs: Some(
                self.gangs.iter().map(|(id, (version, status))| record(id, *version, status)).collect(),
            ),
            ..ListedObjects::default()
        }
    }

    fn members(&self) -> usize {
        let any = self.pods.values().chain(&self.late).next();
        any.and_then(|p| p.shape.share)
            .map_or(1, |share| usize::try_from(CARD_MIB / share.on_card(VramMib(CARD_MIB)).0).unwrap_or(1))
    }
}

pub(super) fn record(id: &GangId, version: ResourceVersion, status: &GangStatus) -> GangRecord {
    GangRecord { gang: id.clone(), resource_version: version, generation: 1, status: status.clone() }
}

pub(super) fn gang(name: &str) -> GangId {
    GangId::new(DialectId::Kai, "default", name)
}

/// The members of a gang. The older gang is planned first.
pub(super) fn pods(group: &str, second: usize, members: usize) -> Vec<Arc<Pod>> {
    let each = CARD_MIB / members as u64;
    (0..members)
        .map(|index| {
            let json = format!(
                r#"{{"metadata":{{"namespace":"default","name":"{group}-{index}","uid":"{group}-{index}",
                    "resourceVersion":"1","creationTimestamp":"1970-01-01T00:00:0{second}Z",
                    "annotations":{{"pod-group-name":"{group}","gpu-memory":"{each}"}}}},
                    "spec":{{"schedulingGates":[{{"name":"portcullis.dev/gang"}}],"containers":[{{"name":"main"}}],
                    "tolerations":[{{"key":"portcullis.dev/gpu-sharing","operator":"Exists"}}]}}}}"#
            );
            Arc::new(Pod::read(&json).expect("the pod above can be read"))
        })
        .collect()
}
