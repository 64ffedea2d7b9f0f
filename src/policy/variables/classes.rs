//! The variables `priorityClasses` and `runtimeClasses`.

use std::collections::BTreeMap;

use portcullis_cel::{Error, Value};
use serde_json::Value as Json;

use super::{FieldResult, map};

type ClassesByName<'w> = Option<&'w BTreeMap<String, Json>>;

/// Returns the PriorityClasses by name.
pub(super) fn priority(classes: ClassesByName<'_>) -> FieldResult {
    of(classes, "PriorityClasses", |class| {
        let text = |key: &str| class.get(key).and_then(Json::as_str);
        vec![
            ("value", Value::Int(class.get("value").and_then(Json::as_i64).unwrap_or_default())),
            ("globalDefault", Value::Bool(class.get("globalDefault").and_then(Json::as_bool) == Some(true))),
            ("preemptionPolicy", Value::string(text("preemptionPolicy").unwrap_or("PreemptLowerPriority"))),
        ]
    })
}

/// Returns the RuntimeClasses by name.
pub(super) fn runtime(classes: ClassesByName<'_>) -> FieldResult {
    of(classes, "RuntimeClasses", |class| {
        vec![("handler", Value::string(class.get("handler").and_then(Json::as_str).unwrap_or_default()))]
    })
}

fn of(
    classes: ClassesByName<'_>,
    what: &str,
    fields: fn(&Json) -> Vec<(&'static str, Value<'static>)>,
) -> FieldResult {
    let classes =
        classes.ok_or_else(|| Error::new(format!("the {what} of the cluster are not known here yet")))?;
    let one = |class: &Json| map(fields(class).into_iter().map(|(name, value)| (name.to_owned(), value)));
    Ok(map(classes.iter().map(|(name, class)| (name.clone(), one(class)))))
}
