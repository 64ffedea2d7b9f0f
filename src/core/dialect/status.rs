//! What the group object itself says of its gang, so that the commands of everybody's tutorials show something true.
//!
//! Owns the words that all stacks share, and the question whose status it is. Each dialect makes its own fields of it in
//! its own file. A courtesy: nothing is ever decided by what stands there.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::model::Time;
use crate::objects::names;
use crate::objects::text::Text;

/// What is to be said of a gang, in the words all dialects share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupStatus {
    /// Where it stands.
    pub phase: GroupPhase,
    /// How many live pods it has.
    pub members: u32,
    /// How many have to be there.
    pub least: u32,
    /// How many of its live pods are on a node.
    pub scheduled: u32,
    /// How many of its pods run.
    pub running: u32,
    /// How many have ended well.
    pub succeeded: u32,
    /// How many have ended badly.
    pub failed: u32,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, in a sentence with numbers.
    pub message: String,
    /// Since when it is in this phase.
    pub since: Time,
}

impl GroupStatus {
    /// A condition of this type, in the form all stacks share.
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

/// Where a gang stands, as far as stacks tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupPhase {
    /// Nothing is started: members are missing.
    Gathering,
    /// Nothing is started: there is no room.
    Waiting,
    /// It has its places and is being started.
    Starting,
    /// All that were to start are on their nodes.
    Running,
    /// All its pods have ended well.
    Finished,
    /// Some are started, and the others could not be.
    Torn,
}

/// What stands in the status of a group object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Said {
    /// Nothing.
    #[default]
    Nothing,
    /// What somebody else's controller, or a person, wrote: it is theirs, and we keep our hands off.
    ByOthers,
    /// What we wrote.
    ByUs(Arc<Value>),
}

impl Said {
    /// Whether it is theirs to say.
    pub fn by_others(&self) -> bool {
        *self == Self::ByOthers
    }

    /// Whether a status that we would write stands there already; `None` where that cannot be told, because there is
    /// nothing that tells it.
    ///
    /// A definition may drop fields that it does not know, and no answer says so: a field counts only where there is one.
    pub fn says(&self, wanted: &Value) -> Option<bool> {
        let Self::ByUs(found) = self else { return None };
        let fields = wanted.as_object()?;
        let mut there = fields.iter().filter_map(|(key, value)| found.get(key).map(|found| found == value));
        let first = there.next()?;
        Some(first && there.all(|same| same))
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct View<'a> {
    #[serde(default)]
    metadata: Metadata<'a>,
    #[serde(default, borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Metadata<'a> {
    #[serde(default)]
    managed_fields: Option<Vec<Managed<'a>>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Managed<'a> {
    #[serde(default)]
    manager: Text<'a>,
    #[serde(default)]
    subresource: Text<'a>,
    #[serde(default, rename = "fieldsV1", borrow)]
    fields: Option<&'a RawValue>,
}

impl Managed<'_> {
    /// Whether it has written fields of the status.
    fn writes_status(&self) -> bool {
        self.subresource.as_str() == "status" || self.fields.is_some_and(|fields| names_status(fields.get()))
    }
}

/// Whether these fields are some of the status. Whoever creates an object with an empty one has said nothing.
fn names_status(fields: &str) -> bool {
    if !fields.contains("\"f:status\"") {
        return false;
    }
    let Ok(fields) = serde_json::from_str::<Value>(fields) else { return true };
    let status = fields.get("f:status").and_then(Value::as_object);
    status.is_some_and(|status| status.keys().any(|key| key != "."))
}

/// What the status of a group object says, and by whom. Whatever cannot be read is taken for somebody else's.
pub(super) fn said(json: &str) -> Said {
    let Ok(view) = serde_json::from_str::<View<'_>>(json) else { return Said::ByOthers };
    let managed = view.metadata.managed_fields.as_deref().unwrap_or_default();
    if managed.iter().any(|m| m.manager.as_str() != names::FIELD_MANAGER && m.writes_status()) {
        return Said::ByOthers;
    }
    let ours = managed.iter().any(Managed::writes_status);
    match view.status.map(|status| serde_json::from_str::<Value>(status.get())) {
        Some(Ok(Value::Object(fields))) if ours => Said::ByUs(Arc::new(Value::Object(fields))),
        _ => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whoever_writes_the_status_owns_it() {
        let entry = |manager: &str, subresource: &str, fields: &Value| json!({"manager": manager, "subresource": subresource, "operation": "Update", "fieldsV1": fields});
        let spec = json!({"f:spec": {"f:minMember": {}}});
        let status = json!({"f:status": {"f:phase": {}}});
        let applied = entry("kubectl-client-side-apply", "", &spec);
        let ours = entry("portcullis", "status", &status);
        let found = json!({"phase": "Running"});
        for (managed, expected) in [
            (json!(null), Said::Nothing),
            (json!([applied]), Said::Nothing),
            (json!([applied, ours]), Said::ByUs(Arc::new(found.clone()))),
            (json!([applied, ours, entry("kai-scheduler", "status", &status)]), Said::ByOthers),
            (json!([entry("volcano", "", &status)]), Said::ByOthers),
            (json!([entry("lws", "", &json!({"f:status": {}}))]), Said::Nothing),
            (json!([entry("lws", "", &json!({"f:spec": {"f:status": {}}}))]), Said::Nothing),
        ] {
            let object = json!({"metadata": {"name": "g", "managedFields": managed}, "status": found});
            assert_eq!(said(&object.to_string()), expected, "{object}");
        }
        assert_eq!(said("{\"metadata\": {}}"), Said::Nothing);
        assert_eq!(said("{\"metadata\": {\"managedFields\": 7}}"), Said::ByOthers);
    }

    #[test]
    fn what_a_crd_dropped_is_not_missed() {
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
            assert_eq!(Said::ByUs(Arc::new(found.clone())).says(&wanted), expected, "{found}");
        }
        assert_eq!(Said::Nothing.says(&wanted), None);
    }
}
