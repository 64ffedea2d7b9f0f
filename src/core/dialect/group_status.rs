//! The status of a group object, so that the commands of a stack's guides show the state of the gang.
//!
//! Owns the input that all stacks share, and the decision whether another controller owns the status. Each
//! dialect writes its own fields. The engine decides nothing from the stored status.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::model::Time;
use crate::objects::names;
use crate::objects::text::Text;

/// The state of a gang, in the terms that all dialects share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupStatus {
    /// Phase.
    pub phase: GroupPhase,
    /// Number of live pods.
    pub members: u32,
    /// Number of members that the gang needs.
    pub min_members: u32,
    /// Number of live pods that are on a node.
    pub scheduled: u32,
    /// Number of pods that are running.
    pub running: u32,
    /// Number of pods that have succeeded.
    pub succeeded: u32,
    /// Number of pods that have failed.
    pub failed: u32,
    /// Reason code.
    pub reason: &'static str,
    /// Message with numbers.
    pub message: String,
    /// When the gang entered this phase.
    pub since: Time,
}

impl GroupStatus {
    /// A condition of this type, in the form that all stacks share.
    pub(super) fn condition(&self, kind: &str, holds: &str) -> Value {
        json!({
            "type": kind,
            "status": holds,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": Time(self.since.0 / 1000 * 1000).to_string(),
        })
    }
}

/// The phase of a gang, as far as the stacks distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupPhase {
    /// No member has started: members are missing.
    Gathering,
    /// No member has started: there is no capacity.
    Waiting,
    /// The gang is planned, and its gates are being lifted.
    Starting,
    /// All planned members are on their nodes.
    Running,
    /// All pods have succeeded.
    Finished,
    /// Some members have started, and the others could not.
    Torn,
}

/// What is stored in the status of a group object, and which controller wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoredStatus {
    /// The status is empty.
    #[default]
    Absent,
    /// Another controller or a user wrote it. The engine does not overwrite it.
    Foreign,
    /// Portcullis wrote it.
    Own(Arc<Value>),
}

impl StoredStatus {
    /// Whether another controller or a user wrote it.
    pub fn is_foreign(&self) -> bool {
        *self == Self::Foreign
    }

    /// Whether the stored status equals `wanted`; `None` where no field of `wanted` is stored.
    ///
    /// The API server drops fields that the definition does not have, without an error. So a field is
    /// compared only where it is stored.
    pub fn matches(&self, wanted: &Value) -> Option<bool> {
        let Self::Own(found) = self else { return None };
        let fields = wanted.as_object()?;
        let mut stored = fields.iter().filter_map(|(key, value)| found.get(key).map(|found| found == value));
        let first = stored.next()?;
        Some(first && stored.all(|same| same))
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct StatusView<'a> {
    #[serde(default)]
    metadata: ManagedMetadata<'a>,
    #[serde(default, borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ManagedMetadata<'a> {
    #[serde(default)]
    managed_fields: Option<Vec<ManagedFieldsEntry<'a>>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ManagedFieldsEntry<'a> {
    #[serde(default)]
    manager: Text<'a>,
    #[serde(default)]
    subresource: Text<'a>,
    #[serde(default, rename = "fieldsV1", borrow)]
    fields: Option<&'a RawValue>,
}

impl ManagedFieldsEntry<'_> {
    /// Whether this manager has written fields of the status.
    fn writes_status(&self) -> bool {
        self.subresource.as_str() == "status"
            || self.fields.is_some_and(|fields| contains_status(fields.get()))
    }
}

/// Whether `fieldsV1` contains fields of the status. An empty status, as some controllers create it, does not
/// count.
fn contains_status(fields: &str) -> bool {
    if !fields.contains("\"f:status\"") {
        return false;
    }
    let Ok(fields) = serde_json::from_str::<Value>(fields) else { return true };
    let status = fields.get("f:status").and_then(Value::as_object);
    status.is_some_and(|status| status.keys().any(|key| key != "."))
}

/// Reads the status of a group object and its manager. A status that cannot be read counts as foreign.
pub(super) fn read_stored_status(json: &str) -> StoredStatus {
    let Ok(view) = serde_json::from_str::<StatusView<'_>>(json) else { return StoredStatus::Foreign };
    let managed = view.metadata.managed_fields.as_deref().unwrap_or_default();
    if managed.iter().any(|m| m.manager.as_str() != names::FIELD_MANAGER && m.writes_status()) {
        return StoredStatus::Foreign;
    }
    let own = managed.iter().any(ManagedFieldsEntry::writes_status);
    match view.status.map(|status| serde_json::from_str::<Value>(status.get())) {
        Some(Ok(Value::Object(fields))) if own => StoredStatus::Own(Arc::new(Value::Object(fields))),
        _ => StoredStatus::Absent,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_belongs_to_the_manager_that_wrote_it() {
        let entry = |manager: &str, subresource: &str, fields: &Value| json!({"manager": manager, "subresource": subresource, "operation": "Update", "fieldsV1": fields});
        let spec = json!({"f:spec": {"f:minMember": {}}});
        let status = json!({"f:status": {"f:phase": {}}});
        let applied = entry("kubectl-client-side-apply", "", &spec);
        let ours = entry("portcullis", "status", &status);
        let found = json!({"phase": "Running"});
        for (managed, expected) in [
            (json!(null), StoredStatus::Absent),
            (json!([applied]), StoredStatus::Absent),
            (json!([applied, ours]), StoredStatus::Own(Arc::new(found.clone()))),
            (json!([applied, ours, entry("kai-scheduler", "status", &status)]), StoredStatus::Foreign),
            (json!([entry("volcano", "", &status)]), StoredStatus::Foreign),
            (json!([entry("lws", "", &json!({"f:status": {}}))]), StoredStatus::Absent),
            (json!([entry("lws", "", &json!({"f:spec": {"f:status": {}}}))]), StoredStatus::Absent),
        ] {
            let object = json!({"metadata": {"name": "g", "managedFields": managed}, "status": found});
            assert_eq!(read_stored_status(&object.to_string()), expected, "{object}");
        }
        assert_eq!(read_stored_status("{\"metadata\": {}}"), StoredStatus::Absent);
        assert_eq!(read_stored_status("{\"metadata\": {\"managedFields\": 7}}"), StoredStatus::Foreign);
    }

    #[test]
    fn fields_that_the_definition_drops_are_not_compared() {
        let wanted = json!({"phase": "Running", "scheduled": 3, "conditions": [{"type": "Scheduled"}]});
        for (found, expected) in [
            (wanted.clone(), Some(true)),
            (json!({"conditions": [{"type": "Scheduled"}]}), Some(true)),
            (json!({"scheduled": 2, "conditions": [{"type": "Scheduled"}]}), Some(false)),
            (json!({"conditions": [{"type": "Unschedulable"}]}), Some(false)),
            (json!({"scheduled": 3}), Some(true)),
            (json!({"scheduled": 3, "phase": "Pending"}), Some(false)),
            (json!({"occupiedBy": "x"}), None),
        ] {
            assert_eq!(StoredStatus::Own(Arc::new(found.clone())).matches(&wanted), expected, "{found}");
        }
        assert_eq!(StoredStatus::Absent.matches(&wanted), None);
    }
}
