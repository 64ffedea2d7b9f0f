//! Requests of clients: the patches, and the requests of the engine as the client of the cluster sends them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::admission::apply;
use super::stored_object::{Actor, Subresource, WriteOutcome};
use super::{ApiServer, ApiStatus, ObjectKey, ObjectKind};
use portcullis_core::api::{ApiRequest, ApiResource, ApiResponse, ApiVerb};
use portcullis_core::objects::names;

impl ApiServer {
    /// Handles a request of the engine.
    pub fn handle(&mut self, actor: &Actor, request: &ApiRequest) -> ApiResponse {
        let kind = kind_of(request.resource);
        let key = ObjectKey::new(kind, &request.namespace, &request.name);
        let subresource = match request.subresource {
            Some(_) => Subresource::Status,
            None => Subresource::None,
        };
        let done = match &request.verb {
            ApiVerb::Get => self.found(&key).map(|stored| stored.object.clone()),
            ApiVerb::Create(object) => self.create(actor, object.clone()).map(|applied| applied.object),
            ApiVerb::Update(object) => {
                self.update(actor, &key, subresource, object.clone()).map(|applied| applied.object)
            }
            ApiVerb::JsonPatch(patch) => {
                self.json_patch(actor, &key, subresource, patch).map(|applied| applied.object)
            }
            ApiVerb::DryRunJsonPatch(patch) => self.dry_run_json_patch(actor, &key, subresource, patch),
            ApiVerb::MergePatch(patch) => {
                self.merge_patch(actor, &key, subresource, patch).map(|applied| applied.object)
            }
            ApiVerb::Apply(object) => {
                self.apply(actor, &key, subresource, object).map(|applied| applied.object)
            }
            ApiVerb::Evict { uid } => self.evict(actor, &key, uid).map(|applied| applied.object),
            ApiVerb::Delete { uid, resource_version } => self
                .delete(actor, &key, uid.as_deref(), resource_version.as_deref())
                .map(|applied| applied.object),
        };
        match done {
            Ok(object) => ApiResponse::Object(object.to_string()),
            Err(status) => ApiResponse::rejected(status.into()),
        }
    }

    /// Applies a JSON patch.
    ///
    /// # Errors
    /// 422 when it does not apply (for example a failed `test`), and the errors of [`Self::update`].
    pub fn json_patch(
        &mut self,
        actor: &Actor,
        key: &ObjectKey,
        subresource: Subresource,
        patch: &Value,
    ) -> Result<WriteOutcome, ApiStatus> {
        let new = self.patched(key, patch)?;
        self.update(actor, key, subresource, new)
    }

    /// The response to a JSON patch with `dryRun=All`. Nothing is stored.
    fn dry_run_json_patch(
        &mut self,
        actor: &Actor,
        key: &ObjectKey,
        subresource: Subresource,
        patch: &Value,
    ) -> Result<Arc<Value>, ApiStatus> {
        let new = self.patched(key, patch)?;
        self.admit_update(actor, key, subresource, new).map(|(new, _)| Arc::new(new))
    }

    fn patched(&self, key: &ObjectKey, patch: &Value) -> Result<Value, ApiStatus> {
        let mut new = (*self.found(key)?.object).clone();
        apply(&mut new, patch).map_err(|problem| {
            let message =
                format!("the server rejected our request due to an error in our request: {problem}");
            ApiStatus { about: None, causes: Vec::new(), ..ApiStatus::new(422, "Invalid", message) }
        })?;
        Ok(new)
    }

    /// Applies a merge patch (RFC 7386).
    ///
    /// # Errors
    /// The errors of [`Self::update`].
    pub fn merge_patch(
        &mut self,
        actor: &Actor,
        key: &ObjectKey,
        subresource: Subresource,
        patch: &Value,
    ) -> Result<WriteOutcome, ApiStatus> {
        self.same_uid(key, patch)?;
        let mut new = (*self.found(key)?.object).clone();
        json_patch::merge(&mut new, patch);
        self.update(actor, key, subresource, new)
    }

    /// Server-side apply to an existing object, as far as the engine needs it. The fields of `object` replace
    /// the stored fields, and `managedFields` gets the manager. Fields that `object` does not have stay: no
    /// dialect omits a field that it has written before.
    ///
    /// # Errors
    /// 409 when another manager owns one of the fields, and the errors of [`Self::update`].
    pub(super) fn apply(
        &mut self,
        actor: &Actor,
        key: &ObjectKey,
        subresource: Subresource,
        object: &Value,
    ) -> Result<WriteOutcome, ApiStatus> {
        self.same_uid(key, object)?;
        let mut new = (*self.found(key)?.object).clone();
        let mut managers = new["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        // Where the definition has no status subresource, the status is written with the object.
        let entry = if subresource == Subresource::Status {
            json!({
                "manager": names::FIELD_MANAGER, "operation": "Apply", "subresource": "status", "fieldsType": "FieldsV1",
            })
        } else {
            json!({
                "manager": names::FIELD_MANAGER, "operation": "Apply", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": {"f:phase": {}}},
            })
        };
        let foreign =
            |known: &Value| known["subresource"] == "status" && known["manager"] != entry["manager"];
        if managers.iter().any(foreign) {
            return Err(ApiStatus::conflict("Apply failed with 1 conflict: .status.phase"));
        }
        if !managers.contains(&entry) {
            managers.push(entry);
        }
        json_patch::merge(&mut new, object);
        new["metadata"]["managedFields"] = Value::Array(managers.clone());
        let done = self.update(actor, key, subresource, new)?;
        if !done.changed {
            return Ok(done);
        }
        // A write to the status subresource does not change the metadata, so the managers are stored
        // separately.
        let mut noted = (*done.object).clone();
        noted["metadata"]["managedFields"] = Value::Array(managers);
        if noted == *done.object {
            return Ok(done);
        }
        let object = self.commit(actor, key.clone(), noted);
        Ok(WriteOutcome { object, ..done })
    }

    /// Checks the UID in a patch. Unlike in a PUT it is not a precondition: the patched object is validated,
    /// and its UID must not change (the response of 1.36).
    fn same_uid(&self, key: &ObjectKey, patch: &Value) -> Result<(), ApiStatus> {
        let found = &self.found(key)?.uid;
        match patch["metadata"]["uid"].as_str() {
            Some(uid) if uid != &**found => {
                let problem = format!("Invalid value: \"{uid}\": field is immutable");
                Err(ApiStatus::invalid(key.kind.as_str(), &key.name, "metadata.uid", &problem))
            }
            _ => Ok(()),
        }
    }
}

fn kind_of(resource: ApiResource) -> ObjectKind {
    let same = |kind: &ObjectKind| {
        kind.plural() == resource.plural && kind.group_version() == (resource.group, resource.version)
    };
    ObjectKind::all().find(same).unwrap_or(ObjectKind::Gang)
}
