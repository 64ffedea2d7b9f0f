//! Workload controllers: Deployments and ReplicaSets make pods, replace what is lost, and take theirs with them.

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
}

/// A pod that has an owner.
struct Owned {
    key: ObjectKey,
    uid: Str,
    owner: Str,
    live: bool,
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
        let owners: Vec<Owner> = [Kind::Deployment, Kind::ReplicaSet]
            .into_iter()
            .flat_map(|kind| self.api.list(kind))
            .map(|(key, stored)| Owner {
                key: key.clone(),
                uid: stored.uid.clone(),
                replicas: stored.object["spec"]["replicas"].as_u64().unwrap_or(1),
                template: stored.object["spec"]["template"].clone(),
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
                    live: stored.pod().is_some_and(|pod| !pod.terminating && !pod.finished()),
                    keep: (stored.object["spec"].get("nodeName").is_some(), u64::MAX - stored.version),
                })
            })
            .collect();
        for pod in owned.iter().filter(|pod| pod.live && !owners.iter().any(|owner| owner.uid == pod.owner)) {
            // Its owner is gone: the garbage collector follows.
            let _ = self.api.delete(&Actor::Controller, &pod.key, Some(&pod.uid), None);
        }
        for owner in &owners {
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
