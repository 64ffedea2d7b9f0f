//! The store of objects: how they are created, replaced and deleted. `requests.rs` has the patches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::admission::{AdmissionWebhook, ReviewInput};
use super::lift_policy::LiftPolicy;
use super::stored_object::{Actor, StoredObject, Subresource, TypedObject, WriteOutcome, WriteRecord};
use super::watch_cache::{LEASE_NAME, LEASE_NAMESPACE, OpenList};
use super::{ApiStatus, ObjectKey, ObjectKind, pod_validation};
use portcullis_core::model::{ResourceVersion, Time, str};
use portcullis_core::objects::{Namespace, Node};
use portcullis_core::pod::Pod;

/// The simulated API server.
pub struct ApiServer {
    pub(super) objects: BTreeMap<ObjectKey, StoredObject>,
    writes: Vec<WriteRecord>,
    pub(super) version: u64,
    uids: u64,
    /// Current time.
    pub now: Time,
    /// The admission webhook.
    pub webhook: AdmissionWebhook,
    /// Whether updates by the engine skip the webhook, as the `matchConditions` of its registration define.
    pub engine_skips_webhook: bool,
    /// A ValidatingAdmissionPolicy of another team that refuses to lift some pods.
    pub lift_policy: Option<LiftPolicy>,
    /// Writes that are kept for watches that resume; older ones are compacted.
    pub history_limit: usize,
    pub(super) history: VecDeque<WriteRecord>,
    /// The newest version that is compacted.
    pub(super) compacted: u64,
    /// Lists whose later pages were not read yet, by the number in their continue token.
    pub(super) open_lists: BTreeMap<u64, OpenList>,
    pub(super) lists: u64,
    pub(super) lease_key: ObjectKey,
}

impl ApiServer {
    /// An empty cluster. `now` is the start time.
    pub fn new(now: Time, webhook: AdmissionWebhook) -> Self {
        Self {
            objects: BTreeMap::new(),
            writes: Vec::new(),
            version: 0,
            uids: 0,
            now,
            webhook,
            engine_skips_webhook: true,
            lift_policy: None,
            history_limit: 10_000,
            history: VecDeque::new(),
            compacted: 0,
            open_lists: BTreeMap::new(),
            lists: 0,
            lease_key: ObjectKey::new(ObjectKind::Lease, LEASE_NAMESPACE, LEASE_NAME),
        }
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&StoredObject> {
        self.objects.get(key)
    }

    /// All objects of a kind, sorted by namespace and name.
    pub fn list(&self, kind: ObjectKind) -> impl Iterator<Item = (&ObjectKey, &StoredObject)> {
        let first = ObjectKey { kind, namespace: str(""), name: str("") };
        self.objects.range(first..).take_while(move |(key, _)| key.kind == kind)
    }

    /// All pods that can be read.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.list(ObjectKind::Pod).filter_map(|(_, stored)| stored.pod())
    }

    /// All nodes that can be read.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.list(ObjectKind::Node).filter_map(|(_, stored)| stored.node())
    }

    /// All namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.list(ObjectKind::Namespace).filter_map(|(_, stored)| match &stored.typed {
            TypedObject::Namespace(namespace) => Some(namespace),
            _ => None,
        })
    }

    /// The current resource version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the writes since the last call, in order.
    pub fn take_writes(&mut self) -> Vec<WriteRecord> {
        std::mem::take(&mut self.writes)
    }

    /// Creates an object: defaults, mutating webhook, name, validation, validating webhook, store.
    ///
    /// # Errors
    /// The `Status` of a real API server.
    pub fn create(&mut self, actor: &Actor, mut object: Value) -> Result<WriteOutcome, ApiStatus> {
        let kind = ObjectKind::of(&object)?;
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let text = |object: &Value, key: &str| {
            object["metadata"].get(key).and_then(Value::as_str).unwrap_or("").to_owned()
        };
        let mut namespace = text(&object, "namespace");
        if kind.namespaced() && namespace.is_empty() {
            "default".clone_into(&mut namespace);
            object["metadata"]["namespace"] = json!("default");
        }
        let mut warnings = Vec::new();
        if kind == ObjectKind::Pod {
            pod_validation::default(&mut object);
            self.resolve_priority(&mut object)?;
            let name = text(&object, "name");
            let review = ReviewInput {
                user: actor.user_name(),
                name: &name,
                namespace: &namespace,
                object: &object,
                old: None,
            };
            let (mutated, returned) = self.webhook.mutate(&review)?;
            object = mutated;
            warnings = returned;
        }
        let mut name = text(&object, "name");
        if name.is_empty() {
            let prefix = text(&object, "generateName");
            if prefix.is_empty() {
                let problem = "Required value: name or generateName is required";
                return Err(ApiStatus::invalid(kind.as_str(), "", "metadata.name", problem));
            }
            name = format!("{prefix}{}", suffix(self.uids));
            object["metadata"]["name"] = json!(name);
        }
        let key = ObjectKey::new(kind, &namespace, &name);
        if self.objects.contains_key(&key) {
            let message = format!("{} \"{name}\" already exists", kind.qualified_plural());
            return Err(ApiStatus::new(409, "AlreadyExists", message));
        }
        if kind == ObjectKind::Pod {
            pod_validation::validate_create(&name, &object)?;
            object["status"] = pod_validation::first_status(&object);
        } else if kind.isolates_status() {
            remove(&mut object, "status");
        }
        if kind == ObjectKind::Lease {
            // UIDs decide generated names. How often leases are created must not.
            object["metadata"]["uid"] = json!(format!("lease-{}", self.version));
        } else {
            self.uids += 1;
            object["metadata"]["uid"] = json!(format!("{:08x}-0000-4000-8000-{:012x}", self.uids, self.uids));
        }
        object["metadata"]["creationTimestamp"] = json!(self.now.to_string());
        if kind == ObjectKind::Gang {
            object["metadata"]["generation"] = json!(1);
        }
        if kind == ObjectKind::Pod {
            let review = ReviewInput {
                user: actor.user_name(),
                name: &name,
                namespace: &namespace,
                object: &object,
                old: None,
            };
            warnings.extend(self.webhook.validate(&review)?);
        }
        let object = self.commit(actor, key, object);
        Ok(WriteOutcome { object, changed: true, warnings })
    }

    /// Stores an object without defaults, webhook or validation, as an older release or a bug may have stored
    /// it.
    pub fn inject(&mut self, mut object: Value) -> Result<(), ApiStatus> {
        let kind = ObjectKind::of(&object)?;
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or("").to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
        if kind.namespaced() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        self.uids += 1;
        object["metadata"]["uid"] = json!(format!("{:08x}-0000-4000-8000-{:012x}", self.uids, self.uids));
        object["metadata"]["creationTimestamp"] = json!(self.now.to_string());
        self.commit(&Actor::User, ObjectKey::new(kind, namespace, name), object);
        Ok(())
    }

    /// Replaces an existing object by `new`. A resource version in `new` must be the current one.
    ///
    /// # Errors
    /// The `Status` of a real API server: 404, 409, 422, or the denial of the webhook.
    pub fn update(
        &mut self,
        actor: &Actor,
        key: &ObjectKey,
        subresource: Subresource,
        new: Value,
    ) -> Result<WriteOutcome, ApiStatus> {
        let old = self.found(key)?.object.clone();
        let (new, warnings) = self.admit_update(actor, key, subresource, new)?;
        if new == *old {
            return Ok(WriteOutcome { object: old, changed: false, warnings });
        }
        let object = self.commit(actor, key.clone(), new);
        Ok(WriteOutcome { object, changed: true, warnings })
    }

    /// Admits and validates an update. Returns the object that would be stored, and warnings.
    pub(super) fn admit_update(
        &mut self,
        actor: &Actor,
        key: &ObjectKey,
        subresource: Subresource,
        mut new: Value,
    ) -> Result<(Value, Vec<String>), ApiStatus> {
        let old = self.found(key)?.clone();
        let meta = |object: &Value, field: &str| object["metadata"].get(field).cloned();
        let version = new["metadata"].get("resourceVersion").and_then(Value::as_str).unwrap_or("");
        if !version.is_empty() && version != old.version.to_string() {
            return Err(ApiStatus::conflict(format!(
                "Operation cannot be fulfilled on {} \"{}\": the object has been modified; please apply your changes to the latest version and try again",
                key.kind.qualified_plural(),
                key.name
            )));
        }
        let uid = new["metadata"].get("uid").and_then(Value::as_str).unwrap_or("");
        if !uid.is_empty() && uid != &*old.uid {
            return Err(precondition(key, uid, &old.uid));
        }
        if subresource == Subresource::Status {
            let status = new.get_mut("status").map(Value::take).unwrap_or_default();
            new = (*old.object).clone();
            new["status"] = status;
        } else {
            if !new["metadata"].is_object() {
                return Err(ApiStatus::invalid(key.kind.as_str(), &key.name, "metadata", "Required value"));
            }
            for field in
                ["uid", "creationTimestamp", "name", "namespace", "deletionTimestamp", "resourceVersion"]
            {
                match meta(&old.object, field) {
                    Some(value) => new["metadata"][field] = value,
                    None => remove(&mut new["metadata"], field),
                }
            }
            if key.kind.isolates_status() {
                match old.object.get("status") {
                    Some(status) => new["status"] = status.clone(),
                    None => remove(&mut new, "status"),
                }
            }
        }
        let mut warnings = Vec::new();
        if key.kind == ObjectKind::Pod && subresource == Subresource::None {
            let skipped = self.engine_skips_webhook && matches!(actor, Actor::Engine(_));
            let user = actor.user_name();
            let (name, namespace) = (&*key.name, &*key.namespace);
            let before = &*old.object;
            let old = Some(before);
            if !skipped {
                let (mutated, returned) =
                    self.webhook.mutate(&ReviewInput { user, name, namespace, object: &new, old })?;
                new = mutated;
                warnings = returned;
            }
            pod_validation::validate_update(&key.name, before, &new)?;
            if !skipped {
                let returned =
                    self.webhook.validate(&ReviewInput { user, name, namespace, object: &new, old })?;
                warnings.extend(returned);
            }
            if let Some(policy) = &self.lift_policy {
                policy.check(&key.name, before, &new)?;
            }
        }
        Ok((new, warnings))
    }

    /// Deletes an object. A bound pod that has not ended is only marked, because its kubelet stops it first.
    ///
    /// # Errors
    /// 404, or 409 when a precondition does not hold.
    pub fn delete(
        &mut self,
        actor: &Actor,
        key: &ObjectKey,
        uid: Option<&str>,
        version: Option<&str>,
    ) -> Result<WriteOutcome, ApiStatus> {
        let old = self.found(key)?.clone();
        if let Some(uid) = uid.filter(|uid| **uid != *old.uid) {
            return Err(precondition(key, uid, &old.uid));
        }
        if let Some(version) = version.filter(|version| **version != old.version.to_string()) {
            return Err(ApiStatus::conflict(format!(
                "Operation cannot be fulfilled on {} \"{}\": the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
                key.kind.qualified_plural(),
                key.name,
                old.version
            )));
        }
        let text = |pointer: &str| old.object.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        let ended = matches!(text("/status/phase"), "Succeeded" | "Failed");
        if key.kind == ObjectKind::Pod && !text("/spec/nodeName").is_empty() && !ended {
            if !text("/metadata/deletionTimestamp").is_empty() {
                return Ok(WriteOutcome { object: old.object, changed: false, warnings: Vec::new() });
            }
            let mut new = (*old.object).clone();
            // Pods end at once unless they have more than the default grace period.
            let seconds =
                new["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(DEFAULT_GRACE_SECONDS);
            let grace = Duration::from_secs(seconds.saturating_sub(DEFAULT_GRACE_SECONDS));
            new["metadata"]["deletionTimestamp"] = json!(self.now.after(grace).to_string());
            let object = self.commit(actor, key.clone(), new);
            return Ok(WriteOutcome { object, changed: true, warnings: Vec::new() });
        }
        self.remove(actor, key, &old.uid);
        Ok(WriteOutcome { object: old.object, changed: true, warnings: Vec::new() })
    }

    /// Evicts a pod with this UID. There are no PodDisruptionBudgets.
    ///
    /// # Errors
    /// 404, and 409 for another UID.
    pub(super) fn evict(
        &mut self,
        actor: &Actor,
        key: &ObjectKey,
        uid: &str,
    ) -> Result<WriteOutcome, ApiStatus> {
        let found = &self.found(key)?.uid;
        if **found != *uid {
            return Err(precondition(key, uid, found));
        }
        let message = "Eviction API: evicting";
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": message,
        });
        self.set_condition(&Actor::ApiServer, key, uid, &condition);
        self.delete(actor, key, Some(uid), None)
    }

    /// Removes an object from the store at once, if it has this UID. Returns whether it did.
    pub fn remove(&mut self, actor: &Actor, key: &ObjectKey, uid: &str) -> bool {
        if self.objects.get(key).is_none_or(|stored| &*stored.uid != uid) {
            return false;
        }
        let before = self.objects.remove(key);
        self.version += 1;
        self.record(WriteRecord {
            key: key.clone(),
            actor: actor.clone(),
            version: self.version,
            before,
            after: None,
        });
        true
    }

    /// Binds a pod to a node, as the `binding` subresource does.
    ///
    /// # Errors
    /// 404, or 409 when the pod is gated, bound, being deleted, or has another UID.
    pub fn bind(&mut self, key: &ObjectKey, uid: &str, node: &str) -> Result<(), ApiStatus> {
        let old = self.found(key)?.clone();
        let problem = |problem: &str| {
            let message =
                format!("Operation cannot be fulfilled on pods/binding \"{}\": {problem}", key.name);
            Err(ApiStatus::conflict(message))
        };
        if &*old.uid != uid {
            return Err(precondition(key, uid, &old.uid));
        }
        if old.object["metadata"].get("deletionTimestamp").is_some() {
            return problem("pod is being deleted, cannot be assigned to a host");
        }
        if old.object["spec"].get("nodeName").is_some() {
            return problem("pod is already assigned to a node");
        }
        if pod_validation::gates(&old.object).next().is_some() {
            return problem("pod has non-empty .spec.schedulingGates");
        }
        let mut new = (*old.object).clone();
        new["spec"]["nodeName"] = json!(node);
        set_condition(&mut new, &json!({"type": "PodScheduled", "status": "True"}));
        self.commit(&Actor::Scheduler, key.clone(), new);
        Ok(())
    }

    /// Sets one condition in the status of an object with this UID.
    pub fn set_condition(&mut self, actor: &Actor, key: &ObjectKey, uid: &str, condition: &Value) {
        self.set_status(actor, key, uid, |object| set_condition(object, condition));
    }

    /// Changes the status of an object with this UID.
    pub fn set_status(&mut self, actor: &Actor, key: &ObjectKey, uid: &str, change: impl FnOnce(&mut Value)) {
        let Some(old) = self.objects.get(key).filter(|stored| &*stored.uid == uid) else { return };
        let mut new = (*old.object).clone();
        change(&mut new);
        if new != *old.object {
            self.commit(actor, key.clone(), new);
        }
    }

    pub(super) fn found(&self, key: &ObjectKey) -> Result<&StoredObject, ApiStatus> {
        self.objects.get(key).ok_or_else(|| {
            let message = format!("{} \"{}\" not found", key.kind.qualified_plural(), key.name);
            ApiStatus::new(404, "NotFound", message)
        })
    }

    /// Sets the priority as the Priority admission plugin does. An unknown class is rejected.
    fn resolve_priority(&self, pod: &mut Value) -> Result<(), ApiStatus> {
        let class = pod.pointer("/spec/priorityClassName").and_then(Value::as_str).unwrap_or("").to_owned();
        if class.is_empty() || !pod["spec"].is_object() {
            return Ok(());
        }
        let Some(found) = self.get(&ObjectKey::new(ObjectKind::PriorityClass, "", &class)) else {
            let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
            let message =
                format!("pods \"{name}\" is forbidden: no PriorityClass with name {class} was found");
            return Err(ApiStatus::new(403, "Forbidden", message));
        };
        pod["spec"]["priority"] = found.object.get("value").cloned().unwrap_or_else(|| json!(0));
        Ok(())
    }

    fn record(&mut self, write: WriteRecord) {
        if write.key.kind != ObjectKind::Lease {
            self.history.push_back(write.clone());
            while self.history.len() > self.history_limit {
                if let Some(write) = self.history.pop_front() {
                    self.compacted = self.compacted.max(write.version);
                }
            }
        }
        self.writes.push(write);
    }

    /// Stores an object under a new version.
    pub(super) fn commit(&mut self, actor: &Actor, key: ObjectKey, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(ResourceVersion(self.version).to_string());
        let stored = StoredObject {
            typed: TypedObject::read(key.kind, &object),
            uid: str(object["metadata"]["uid"].as_str().unwrap_or("")),
            version: self.version,
            object: Arc::new(object),
        };
        let object = stored.object.clone();
        let before = self.objects.insert(key.clone(), stored.clone());
        self.record(WriteRecord {
            key,
            actor: actor.clone(),
            version: self.version,
            before,
            after: Some(stored),
        });
        object
    }
}

/// `spec.terminationGracePeriodSeconds` of a pod that sets none.
const DEFAULT_GRACE_SECONDS: u64 = 30;

fn precondition(key: &ObjectKey, wanted: &str, found: &str) -> ApiStatus {
    ApiStatus::conflict(format!(
        "Operation cannot be fulfilled on {} \"{}\": Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
        key.kind.qualified_plural(),
        key.name
    ))
}

fn remove(object: &mut Value, field: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(field);
    }
}

fn set_condition(object: &mut Value, condition: &Value) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let status = &mut object["status"];
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    if let Some(list) = status["conditions"].as_array_mut() {
        match list.iter_mut().find(|known| known["type"] == condition["type"]) {
            Some(known) => *known = condition.clone(),
            None => list.push(condition.clone()),
        }
    }
}

/// Five letters as `generateName` appends them, from its alphabet without vowels. Different for every count.
fn suffix(count: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut mixed = portcullis_core::model::random::Random::new(count).draw();
    (0..5)
        .map(|_| {
            let letter = usize::try_from(mixed % 27).unwrap_or(0);
            mixed /= 27;
            char::from(LETTERS[letter])
        })
        .collect()
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
