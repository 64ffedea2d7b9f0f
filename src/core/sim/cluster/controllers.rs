//! Workload controllers: Deployments, ReplicaSets and StatefulSets make pods, replace what is lost, and take theirs with
//! them; a StatefulSet in its default order makes one only when all before it are ready.

use serde_json::{Value, json};

use super::{Cluster, Happening};
use crate::model::Str;
use crate::sim::api::{Actor, Kind, ObjectKey};
use crate::sim::random::Random;

/// An owner of pods and how many it wants.
struct Owner {
    key: ObjectKey,
    uid: Str,
    replicas: u64,
    template: Value,
    /// Of a StatefulSet: its first ordinal, and whether it makes its pods one after the other.
    ordinals: Option<(u64, bool)>,
}

/// A pod that has an owner.
struct Owned {
    key: ObjectKey,
    uid: Str,
    owner: Str,
    live: bool,
    /// It runs: there are no readiness probes here.
    ready: bool,
    /// Pods without a node are given up first, then the youngest.
    keep: (bool, u64),
}

impl Cluster {
    pub(super) fn wake_controllers(&mut self) {
        if !self.reconciling {
            self.reconciling = true;
            self.push(self.options.timing.reconcile, Happening::Reconcile);
        }
    }

    pub(super) fn reconcile(&mut self) {
        self.reconciling = false;
        let owners: Vec<Owner> = [Kind::Deployment, Kind::ReplicaSet, Kind::StatefulSet]
            .into_iter()
            .flat_map(|kind| self.api.list(kind))
            .map(|(key, stored)| Owner {
                key: key.clone(),
                uid: stored.uid.clone(),
                replicas: stored.object["spec"]["replicas"].as_u64().unwrap_or(1),
                template: stored.object["spec"]["template"].clone(),
                ordinals: (key.kind == Kind::StatefulSet).then(|| {
                    let first = stored.object["spec"]["ordinals"]["start"].as_u64().unwrap_or(0);
                    (first, stored.object["spec"]["podManagementPolicy"] != "Parallel")
                }),
            })
            .collect();
        let owned: Vec<Owned> = self
            .api
            .list(Kind::Pod)
            .filter_map(|(key, stored)| {
                Some(Owned {
                    key: key.clone(),
                    uid: stored.uid.clone(),
                    owner: stored.object["metadata"]["ownerReferences"][0]["uid"].as_str()?.into(),
                    ready: stored.pod().is_some_and(|pod| pod.phase == crate::objects::PodPhase::Running),
                    live: stored.pod().is_some_and(|pod| !pod.terminating && !pod.finished()),
                    keep: (stored.object["spec"].get("nodeName").is_some(), u64::MAX - stored.version),
                })
            })
            .collect();
        for pod in owned.iter().filter(|pod| pod.live && !owners.iter().any(|owner| owner.uid == pod.owner)) {
            // Its owner is gone: the garbage collector follows.
            let _ = self.api.delete(&Actor::Controller, &pod.key, Some(&pod.uid), None);
        }
        for (owner, (first, in_order)) in owners.iter().filter_map(|owner| Some((owner, owner.ordinals?))) {
            self.reconcile_set(owner, first, in_order, &owned);
        }
        for owner in owners.iter().filter(|owner| owner.ordinals.is_none()) {
            let mut mine: Vec<&Owned> =
                owned.iter().filter(|pod| pod.owner == owner.uid && pod.live).collect();
            mine.sort_by(|a, b| (a.keep, &a.key).cmp(&(b.keep, &b.key)));
            let wanted = usize::try_from(owner.replicas).unwrap_or(usize::MAX);
            for _ in mine.len()..wanted {
                if let Err(status) = self.api.create(&Actor::Controller, owner.pod()) {
                    self.controller_lines.push(format!("{}: Error creating: {}", owner.key, status.message));
                    break;
                }
            }
            for pod in mine.iter().take(mine.len().saturating_sub(wanted)) {
                let _ = self.api.delete(&Actor::Controller, &pod.key, Some(&pod.uid), None);
            }
        }
    }
}

impl Cluster {
    /// Makes what a StatefulSet lacks, in its order, and takes away what it has too much, the last first.
    fn reconcile_set(&mut self, owner: &Owner, first: u64, in_order: bool, owned: &[Owned]) {
        let name = |ordinal: u64| format!("{}-{ordinal}", owner.key.name);
        for ordinal in first..first.saturating_add(owner.replicas) {
            let key = ObjectKey::new(Kind::Pod, &owner.key.namespace, name(ordinal));
            match owned.iter().find(|pod| pod.key == key) {
                Some(pod) if pod.ready && pod.live => continue,
                // What has ended is made anew; what is on its way out has to be gone first.
                Some(pod) if pod.owner == owner.uid && !pod.live => {
                    let ended = self.api.get(&key).and_then(|s| s.pod()).is_some_and(|pod| pod.finished());
                    if ended {
                        let _ = self.api.delete(&Actor::Controller, &key, Some(&pod.uid), None);
                    }
                }
                Some(_) => {}
                None => {
                    let mut pod = owner.pod();
                    pod["metadata"]["name"] = json!(name(ordinal));
                    pod["metadata"]["ownerReferences"][0]["kind"] = json!("StatefulSet");
                    pod["metadata"].as_object_mut().map(|metadata| metadata.remove("generateName"));
                    if let Err(status) = self.api.create(&Actor::Controller, pod) {
                        let line =
                            format!("{}: create Pod {} failed: {}", owner.key, name(ordinal), status.message);
                        self.controller_lines.push(line);
                    }
                }
            }
            if in_order {
                return;
            }
        }
        let wanted = |key: &ObjectKey| {
            (first..first.saturating_add(owner.replicas)).any(|ordinal| *key.name == *name(ordinal))
        };
        let surplus = owned.iter().filter(|pod| pod.owner == owner.uid && pod.live && !wanted(&pod.key));
        for pod in surplus {
            let _ = self.api.delete(&Actor::Controller, &pod.key, Some(&pod.uid), None);
        }
    }
}

impl Owner {
    /// A pod by the template, its name and owner as a ReplicaSet makes them.
    fn pod(&self) -> Value {
        let set = match self.key.kind {
            Kind::Deployment => format!("{}-{}", self.key.name, self.hash()),
            _ => self.key.name.to_string(),
        };
        let mut metadata = self.template["metadata"].clone();
        if !metadata.is_object() {
            metadata = json!({});
        }
        metadata["generateName"] = json!(format!("{set}-"));
        metadata["namespace"] = json!(&*self.key.namespace);
        metadata["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": &*self.uid,
            "controller": true, "blockOwnerDeletion": true,
        }]);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self.template["spec"]})
    }

    /// The hash of the template that Deployments put into names; any fixed function of it will do.
    fn hash(&self) -> String {
        let text = self.template.to_string();
        let seed = text.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        format!("{:010x}", Random::new(seed).draw() >> 24)
    }
}
