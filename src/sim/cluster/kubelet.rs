//! Kubelets, the node lifecycle controller, and the pod garbage collector.

use serde_json::json;

use super::{Cluster, SimEvent};
use crate::api::{Actor, ObjectKey, ObjectKind, WriteRecord};
use portcullis_core::model::{NodeName, Str};

/// How the containers of a pod end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodEnd {
    /// All containers succeed.
    Succeeded,
    /// At least one container fails and is not restarted.
    Failed,
    /// A container crashes and is restarted.
    Crashed,
}

impl Cluster {
    /// Reacts to a write of a pod: its kubelet may have to start or stop it.
    pub(super) fn on_pod(&mut self, write: &WriteRecord) {
        let Some(after) = &write.after else { return };
        let Some(pod) = after.pod() else { return };
        if pod.node.is_none() {
            return;
        }
        let before = write.before.as_ref().and_then(|before| before.pod());
        let newly_bound = before.is_none_or(|before| before.node.is_none());
        let newly_ending = pod.terminating && before.is_none_or(|before| !before.terminating);
        if newly_bound {
            self.push(self.options.timing.start, SimEvent::Start(write.key.clone(), after.uid.clone()));
        }
        if newly_ending {
            let stop = SimEvent::Stop(write.key.clone(), after.uid.clone());
            match pod.grace_end.filter(|end| *end > self.now()) {
                Some(end) => self.push_at(end, stop),
                None => self.push(self.options.timing.grace, stop),
            }
        }
    }

    /// Reacts to a write of a node. The kubelet of a node that is back catches up. Pods of a deleted node are
    /// deleted.
    pub(super) fn on_node(&mut self, write: &WriteRecord) {
        let node = NodeName(write.key.name.clone());
        let ready = |stored: &crate::api::StoredObject| stored.node().is_some_and(|node| node.ready);
        let was_ready = write.before.as_ref().is_some_and(ready);
        let Some(after) = &write.after else {
            // The pod garbage collector deletes pods that are bound to a node that does not exist.
            self.each_pod_on(&node, |cluster, key, uid| {
                cluster.push(cluster.options.timing.grace, SimEvent::Stop(key, uid));
            });
            return;
        };
        if was_ready && !ready(after) {
            let at = self.now().after(self.options.timing.give_up);
            self.push_at(at, SimEvent::GiveUp(node));
        } else if !was_ready && ready(after) {
            self.each_pod_on(&node, |cluster, key, uid| {
                let ending = cluster.api.get(&key).and_then(|s| s.pod()).is_some_and(|pod| pod.terminating);
                if ending {
                    cluster.push(cluster.options.timing.grace, SimEvent::Stop(key, uid));
                } else {
                    cluster.push(cluster.options.timing.start, SimEvent::Start(key, uid));
                }
            });
        }
    }

    /// Sets the condition `Ready` of a node.
    pub fn set_ready(&mut self, node: &str, ready: bool) -> bool {
        let status = if ready { "True" } else { "Unknown" };
        let key = ObjectKey::new(ObjectKind::Node, "", node);
        let Some(stored) = self.api.get(&key) else { return false };
        let uid = stored.uid.clone();
        let condition = json!({"type": "Ready", "status": status});
        self.api.set_condition(&Actor::Kubelet, &key, &uid, &condition);
        self.settle_writes();
        true
    }

    /// Ends the containers of a pod; false when it does not run.
    pub fn end_pod(&mut self, namespace: &str, name: &str, end: PodEnd) -> bool {
        let key = ObjectKey::new(ObjectKind::Pod, namespace, name);
        let Some(stored) = self.api.get(&key) else { return false };
        if stored.pod().is_none_or(|pod| pod.node.is_none() || pod.finished()) {
            return false;
        }
        let uid = stored.uid.clone();
        self.api.set_status(&Actor::Kubelet, &key, &uid, |pod| match end {
            PodEnd::Succeeded => pod["status"]["phase"] = json!("Succeeded"),
            PodEnd::Failed => pod["status"]["phase"] = json!("Failed"),
            PodEnd::Crashed => {
                let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0);
                pod["status"]["containerStatuses"] = json!([{
                    "name": pod["spec"]["containers"][0]["name"], "ready": false, "restartCount": restarts + 1,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                }]);
            }
        });
        self.settle_writes();
        true
    }

    pub(super) fn start_pod(&mut self, key: &ObjectKey, uid: &Str) {
        if !self.kubelet_is_there(key) {
            return;
        }
        self.api.set_status(&Actor::Kubelet, key, uid, |pod| {
            if pod["status"]["phase"] == "Pending" {
                pod["status"]["phase"] = json!("Running");
            }
        });
    }

    pub(super) fn stop_pod(&mut self, key: &ObjectKey, uid: &Str) {
        if self.kubelet_is_there(key) || !self.node_exists(key) {
            self.api.remove(&Actor::Kubelet, key, uid);
        }
    }

    /// The node lifecycle controller marks the pods of a node that stays not ready. They stay until the node
    /// is ready or deleted.
    pub(super) fn give_up(&mut self, node: &NodeName) {
        let stored = self.api.get(&ObjectKey::new(ObjectKind::Node, "", &node.0));
        if stored.and_then(|stored| stored.node()).is_none_or(|node| node.ready) {
            return;
        }
        self.each_pod_on(node, |cluster, key, uid| {
            // The pod may already be gone.
            let _ = cluster.api.delete(&Actor::Controller, &key, Some(&uid), None);
        });
    }

    fn each_pod_on(&mut self, node: &NodeName, mut then: impl FnMut(&mut Self, ObjectKey, Str)) {
        let pods: Vec<(ObjectKey, Str)> = self
            .api
            .list(ObjectKind::Pod)
            .filter(|(_, stored)| stored.object["spec"]["nodeName"].as_str() == Some(node.as_str()))
            .map(|(key, stored)| (key.clone(), stored.uid.clone()))
            .collect();
        for (key, uid) in pods {
            then(self, key, uid);
        }
    }

    fn node_of(&self, key: &ObjectKey) -> Option<ObjectKey> {
        let name = self.api.get(key)?.object["spec"]["nodeName"].as_str()?;
        Some(ObjectKey::new(ObjectKind::Node, "", name))
    }

    fn node_exists(&self, key: &ObjectKey) -> bool {
        self.node_of(key).is_some_and(|node| self.api.get(&node).is_some())
    }

    fn kubelet_is_there(&self, key: &ObjectKey) -> bool {
        let node = self.node_of(key);
        node.and_then(|node| self.api.get(&node)?.node().map(|node| node.ready)).unwrap_or(false)
    }
}
