//! Workload controllers. Deployments create ReplicaSets and roll from one to the next. ReplicaSets,
//! StatefulSets and Jobs create pods, replace lost ones, and delete their pods when they are deleted. An
//! ordered StatefulSet creates a pod only when all pods before it are ready.

use serde_json::{Value, json};

use super::{Cluster, SimEvent};
use crate::api::{Actor, ObjectKey, ObjectKind, Subresource};
use portcullis_core::model::Str;
use portcullis_core::model::random::Random;
use portcullis_core::pod::PodPhase;

/// An owner of pods.
struct PodOwner {
    key: ObjectKey,
    uid: Str,
    /// UID of its owner.
    owner: Option<Str>,
    replicas: u64,
    object: std::sync::Arc<Value>,
}

/// A pod with an owner.
struct OwnedPod {
    key: ObjectKey,
    uid: Str,
    owner: Str,
    live: bool,
    phase: PodPhase,
    /// Hash of its template, for pods of a StatefulSet.
    revision: String,
    /// Order for scale-down: pods without a node first, then the youngest.
    keep: (bool, u64),
}

impl Cluster {
    pub(super) fn wake_controllers(&mut self) {
        if !self.reconciling {
            self.reconciling = true;
            self.push(self.options.timing.reconcile, SimEvent::Reconcile);
        }
    }

    pub(super) fn reconcile(&mut self) {
        self.reconciling = false;
        let owned = self.owned();
        let owners: Vec<PodOwner> =
            [ObjectKind::Deployment, ObjectKind::ReplicaSet, ObjectKind::StatefulSet, ObjectKind::Job]
                .into_iter()
                .flat_map(|kind| self.owners(kind))
                .collect();
        let gone = |owner: &Str| !owners.iter().any(|known| known.uid == *owner);
        // Objects whose owner is gone are deleted.
        for set in owners.iter().filter(|set| set.owner.as_ref().is_some_and(gone)) {
            let _ = self.api.delete(&Actor::Controller, &set.key, Some(&set.uid), None);
        }
        for pod in owned.iter().filter(|pod| pod.live && gone(&pod.owner)) {
            let _ = self.api.delete(&Actor::Controller, &pod.key, Some(&pod.uid), None);
        }
        for owner in &owners {
            let mine: Vec<&OwnedPod> = owned.iter().filter(|pod| pod.owner == owner.uid).collect();
            match owner.key.kind {
                ObjectKind::Deployment => {
                    let sets: Vec<&PodOwner> =
                        owners.iter().filter(|set| set.owner.as_ref() == Some(&owner.uid)).collect();
                    self.roll(owner, &sets, &owned);
                }
                ObjectKind::ReplicaSet if owner.owner.as_ref().is_some_and(gone) => {}
                ObjectKind::StatefulSet => self.keep_ordinals(owner, &mine),
                ObjectKind::Job => self.keep_job(owner, &mine),
                _ => self.keep_number(owner, &mine, owner.replicas),
            }
        }
    }

    fn owners(&self, kind: ObjectKind) -> Vec<PodOwner> {
        let all = self.api.list(kind).map(|(key, stored)| PodOwner {
            key: key.clone(),
            uid: stored.uid.clone(),
            owner: stored.object["metadata"]["ownerReferences"][0]["uid"].as_str().map(Into::into),
            replicas: stored.object["spec"]["replicas"].as_u64().unwrap_or(1),
            object: stored.object.clone(),
        });
        all.collect()
    }

    fn owned(&self) -> Vec<OwnedPod> {
        let pods = self.api.list(ObjectKind::Pod).filter_map(|(key, stored)| {
            let metadata = &stored.object["metadata"];
            // There are no objects of DaemonSets here.
            if metadata["ownerReferences"][0]["kind"] == "DaemonSet" {
                return None;
            }
            Some(OwnedPod {
                key: key.clone(),
                uid: stored.uid.clone(),
                owner: metadata["ownerReferences"][0]["uid"].as_str()?.into(),
                live: stored.pod().is_some_and(|pod| !pod.terminating && !pod.finished()),
                phase: stored.pod().map_or(PodPhase::Pending, |pod| pod.phase),
                revision: metadata["labels"][REVISION].as_str().unwrap_or("").to_owned(),
                keep: (stored.object["spec"].get("nodeName").is_some(), u64::MAX - stored.version),
            })
        });
        pods.collect()
    }

    /// Creates or deletes pods until the owner has this number.
    fn keep_number(&mut self, owner: &PodOwner, mine: &[&OwnedPod], wanted: u64) {
        let mut live: Vec<&&OwnedPod> = mine.iter().filter(|pod| pod.live).collect();
        live.sort_by(|a, b| (a.keep, &a.key).cmp(&(b.keep, &b.key)));
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        for _ in live.len()..wanted {
            if !self.create_object(owner, owner.pod()) {
                break;
            }
        }
        for pod in live.iter().take(live.len().saturating_sub(wanted)) {
            let _ = self.api.delete(&Actor::Controller, &pod.key, Some(&pod.uid), None);
        }
    }

    fn create_object(&mut self, owner: &PodOwner, object: Value) -> bool {
        let made = self.api.create(&Actor::Controller, object);
        if let Err(status) = &made {
            self.controller_lines.push(format!("{}: Error creating: {}", owner.key, status.message));
        }
        made.is_ok()
    }

    /// Keeps one ReplicaSet for each template, and moves pods from old ones to the new one within surge and
    /// unavailability.
    fn roll(&mut self, owner: &PodOwner, sets: &[&PodOwner], owned: &[OwnedPod]) {
        let name = format!("{}-{}", owner.key.name, hash(&owner.object["spec"]["template"]));
        let wanted = owner.replicas;
        let Some(new) = sets.iter().find(|set| *set.key.name == *name) else {
            let first = if sets.is_empty() { wanted } else { 0 };
            self.create_object(owner, owner.replica_set(&name, first));
            return;
        };
        let old: Vec<&&PodOwner> = sets.iter().filter(|set| set.uid != new.uid && set.replicas > 0).collect();
        let of = |set: &PodOwner| owned.iter().filter(|pod| pod.owner == set.uid).collect::<Vec<_>>();
        let strategy = &owner.object["spec"]["strategy"];
        if strategy["type"] == "Recreate" {
            for set in &old {
                self.resize(set, 0);
            }
            let left = sets.iter().any(|set| set.uid != new.uid && !of(set).is_empty());
            if old.is_empty() && !left {
                self.resize(new, wanted);
            }
            return;
        }
        let (surge, missing) = allowances(&strategy["rollingUpdate"], wanted);
        let total: u64 = sets.iter().map(|set| set.replicas).sum();
        if old.is_empty() {
            return self.resize(new, wanted);
        }
        let more = (wanted + surge).saturating_sub(total);
        let scaled = new.replicas.saturating_add(more).min(wanted);
        if scaled != new.replicas {
            return self.resize(new, scaled);
        }
        let available = |set: &PodOwner| {
            of(set).iter().filter(|pod| pod.live && pod.phase == PodPhase::Running).count() as u64
        };
        // More pods than allowed: the Deployment was scaled down during the rollout.
        let mut excess = total.saturating_sub(wanted + surge);
        let fewest = wanted.saturating_sub(missing);
        let unready = new.replicas.saturating_sub(available(new));
        let mut unhealthy = total.saturating_sub(fewest + unready);
        let mut healthy = sets.iter().map(|set| available(set)).sum::<u64>().saturating_sub(fewest);
        for set in &old {
            let dead = set.replicas.saturating_sub(available(set)).min(unhealthy.max(excess));
            unhealthy = unhealthy.saturating_sub(dead);
            let more = (set.replicas - dead).min(healthy.max(excess.saturating_sub(dead)));
            healthy = healthy.saturating_sub(more);
            excess = excess.saturating_sub(dead + more);
            self.resize(set, set.replicas - dead - more);
        }
    }

    fn resize(&mut self, set: &PodOwner, replicas: u64) {
        if set.replicas != replicas {
            let patch = json!({"spec": {"replicas": replicas}});
            let _ = self.api.merge_patch(&Actor::Controller, &set.key, Subresource::None, &patch);
        }
    }

    /// Creates `name-0`, `name-1`, ...: one after the other unless the policy is `Parallel`. Updates one pod
    /// at a time.
    fn keep_ordinals(&mut self, owner: &PodOwner, mine: &[&OwnedPod]) {
        let parallel = owner.object["spec"]["podManagementPolicy"] == "Parallel";
        let revision = hash(&owner.object["spec"]["template"]);
        let first = owner.object["spec"]["ordinals"]["start"].as_u64().unwrap_or(0);
        let ordinals = first..first.saturating_add(owner.replicas);
        let named = |ordinal: u64| {
            let name = format!("{}-{ordinal}", owner.key.name);
            mine.iter().find(move |pod| *pod.key.name == *name)
        };
        for ordinal in ordinals.clone() {
            match named(ordinal) {
                None => {
                    let mut pod = owner.pod();
                    pod["metadata"]["name"] = json!(format!("{}-{ordinal}", owner.key.name));
                    pod["metadata"]["labels"][REVISION] = json!(revision);
                    if !self.create_object(owner, pod) || !parallel {
                        break;
                    }
                }
                Some(pod) if !pod.live && matches!(pod.phase, PodPhase::Failed | PodPhase::Succeeded) => {
                    let _ = self.api.delete(&Actor::Controller, &pod.key, Some(&pod.uid), None);
                    break;
                }
                Some(pod) if !parallel && (!pod.live || pod.phase != PodPhase::Running) => break,
                Some(_) => {}
            }
        }
        let wanted = |pod: &&&OwnedPod| {
            ordinals.clone().any(|ordinal| named(ordinal).is_some_and(|p| p.uid == pod.uid))
        };
        for pod in mine.iter().filter(|pod| pod.live && !wanted(pod)) {
            let _ = self.api.delete(&Actor::Controller, &pod.key, Some(&pod.uid), None);
        }
        let ready = mine.iter().filter(|pod| pod.live && pod.phase == PodPhase::Running).count() as u64;
        let old = mine.iter().filter(|pod| pod.live && pod.revision != revision).max_by_key(|pod| &pod.key);
        if let Some(pod) = old.filter(|_| ready >= owner.replicas) {
            let _ = self.api.delete(&Actor::Controller, &pod.key, Some(&pod.uid), None);
        }
    }

    /// Runs `parallelism` pods at once, until enough of them have succeeded.
    fn keep_job(&mut self, owner: &PodOwner, mine: &[&OwnedPod]) {
        let spec = &owner.object["spec"];
        let at_once = spec["parallelism"].as_u64().unwrap_or(1);
        let ended = mine.iter().filter(|pod| pod.phase == PodPhase::Succeeded).count() as u64;
        let left = spec["completions"].as_u64().unwrap_or(at_once).saturating_sub(ended);
        self.keep_number(owner, mine, at_once.min(left));
        if owner.object["status"]["succeeded"].as_u64().unwrap_or(0) < ended {
            let over = left == 0;
            self.api.set_status(&Actor::Controller, &owner.key, &owner.uid, |object| {
                object["status"]["succeeded"] = json!(ended);
                if over {
                    object["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
                }
            });
        }
    }
}

/// The label with the hash of the template of a StatefulSet pod.
const REVISION: &str = "controller-revision-hash";

impl PodOwner {
    /// A pod of the template, with name and owner as the controller sets them.
    fn pod(&self) -> Value {
        let template = &self.object["spec"]["template"];
        let mut metadata = template["metadata"].clone();
        if !metadata.is_object() {
            metadata = json!({});
        }
        metadata["generateName"] = json!(format!("{}-", self.key.name));
        metadata["namespace"] = json!(&*self.key.namespace);
        metadata["ownerReferences"] = json!([self.reference()]);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    }

    fn reference(&self) -> Value {
        json!({
            "apiVersion": self.object["apiVersion"], "kind": self.key.kind.as_str(), "name": &*self.key.name,
            "uid": &*self.uid, "controller": true, "blockOwnerDeletion": true,
        })
    }

    fn replica_set(&self, name: &str, replicas: u64) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": name, "namespace": &*self.key.namespace, "ownerReferences": [self.reference()],
            },
            "spec": {"replicas": replicas, "template": self.object["spec"]["template"]},
        })
    }
}

/// `maxSurge` and `maxUnavailable` of a rollout. Default 25 % each.
fn allowances(rolling: &Value, wanted: u64) -> (u64, u64) {
    let number = |value: &Value, up: bool| match value {
        Value::Number(number) => number.as_u64().unwrap_or(0),
        other => {
            let percent =
                other.as_str().and_then(|text| text.strip_suffix('%')?.parse::<u64>().ok()).unwrap_or(25);
            if up { (wanted * percent).div_ceil(100) } else { wanted * percent / 100 }
        }
    };
    match (number(&rolling["maxSurge"], true), number(&rolling["maxUnavailable"], false)) {
        (0, 0) => (0, 1),
        found => found,
    }
}

/// The template hash in names of ReplicaSets. Any fixed function works.
fn hash(template: &Value) -> String {
    let text = template.to_string();
    let seed = text.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("{:010x}", Random::new(seed).draw() >> 24)
}
