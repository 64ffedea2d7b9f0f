//! Describes what a patch changes, by comparing the pod before and after it.

use portcullis_core::objects::names;
use serde_json::Value;

/// Returns one sentence per change.
pub(super) fn in_words(before: &Value, after: &Value) -> Vec<String> {
    let mut words = Vec::new();
    compare("", before, after, &mut words);
    // The gate comes first, because it is what users notice first in the cluster.
    words.sort_by_key(|line| !line.starts_with("scheduling gate"));
    words
}

fn compare(field: &str, before: &Value, after: &Value, words: &mut Vec<String>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(_) | Value::Null, Value::Object(new)) => {
            for (key, value) in new {
                compare(&join(field, key), &before[key], value, words);
            }
            for key in before.as_object().into_iter().flat_map(|old| old.keys()) {
                if !new.contains_key(key) {
                    words.push(format!("{} is removed", join(field, key)));
                }
            }
        }
        (Value::Array(_) | Value::Null, Value::Array(new)) => {
            let none = Vec::new();
            lists(field, before.as_array().unwrap_or(&none), new, words);
        }
        (Value::Null, value) => words.push(added(field, value)),
        (old, new) => words.push(format!("{field} is changed from {old} to {new}")),
    }
}

/// Compares two lists: by name if their items have one (containers, variables), by value otherwise.
fn lists(field: &str, before: &[Value], after: &[Value], words: &mut Vec<String>) {
    for (index, value) in after.iter().enumerate() {
        let same = match value.get("name") {
            Some(name) => before.iter().find(|old| old.get("name") == Some(name)),
            None => before.iter().find(|old| *old == value),
        };
        match same {
            Some(old) => compare(&format!("{field}[{index}]"), old, value, words),
            None => words.push(added_to(field, value)),
        }
    }
    for old in before {
        let kept = after.iter().any(|new| match old.get("name") {
            Some(name) => new.get("name") == Some(name),
            None => new == old,
        });
        if !kept {
            words.push(format!("{} is removed from {field}", brief(old)));
        }
    }
}

fn added(field: &str, value: &Value) -> String {
    for (map, what) in [("metadata.annotations[", "annotation"), ("metadata.labels[", "label")] {
        if let Some(key) = field.strip_prefix(map) {
            return format!("{what} {} is added: {value}", key.trim_end_matches(']'));
        }
    }
    format!("{field} is set to {value}")
}

fn added_to(field: &str, value: &Value) -> String {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    match field.rsplit('.').next().unwrap_or(field) {
        "schedulingGates" if text("name") == names::GATE => {
            format!("scheduling gate {} is added: the pod waits until its whole gang fits", names::GATE)
        }
        "schedulingGates" => format!("scheduling gate {} is added", text("name")),
        "tolerations" => {
            let equals = if text("value").is_empty() { String::new() } else { format!("={}", text("value")) };
            let why = if text("key") == names::SHARING {
                ": it may run where cards are shared by memory"
            } else {
                ""
            };
            format!("toleration of the taint {}{equals}:{} is added{why}", text("key"), text("effect"))
        }
        "env" => {
            let from = value.pointer("/valueFrom/fieldRef/fieldPath").and_then(Value::as_str);
            let what = match from {
                Some(path) => format!("read from {path} when the container starts"),
                None => value["value"].to_string(),
            };
            format!("environment variable {} is added to {}: {what}", text("name"), container(field))
        }
        _ => format!("{} is added to {field}", brief(value)),
    }
}

/// Returns the container of a field: `spec.containers[0]` for `spec.containers[0].env`.
fn container(field: &str) -> &str {
    field.strip_suffix(".env").unwrap_or(field)
}

fn brief(value: &Value) -> String {
    match value.get("name").and_then(Value::as_str) {
        Some(name) => format!("\"{name}\""),
        None => value.to_string(),
    }
}

/// Joins a field path and a key like Kubernetes: keys of maps are in brackets.
fn join(field: &str, key: &str) -> String {
    match field {
        "" => key.to_owned(),
        "metadata.annotations" | "metadata.labels" => format!("{field}[{key}]"),
        _ if key.contains(['.', '/']) => format!("{field}[{key}]"),
        _ => format!("{field}.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_change_has_a_description() {
        let before = json!({"metadata": {"labels": {"kai.scheduler/podgroup": "a"}},
            "spec": {"containers": [{"name": "c", "image": "x"}], "tolerations": [{"key": "t", "operator": "Exists"}]}});
        let after = json!({"metadata": {"labels": {"kai.scheduler/podgroup": "a"}, "annotations": {"pod-group-name": "a"}},
            "spec": {"containers": [{"name": "c", "image": "y", "env": [{"name": "E", "value": "1"}, {"name": "F",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['portcullis.dev/gpus']"}}}]}],
                "tolerations": [{"key": "t", "operator": "Exists"},
                    {"key": "portcullis.dev/gpu-sharing", "value": "vram", "effect": "NoSchedule"}],
                "schedulingGates": [{"name": "portcullis.dev/gang"}], "schedulerName": "x"}});
        let mut words = in_words(&before, &after);
        words.sort();
        assert_eq!(
            words,
            [
                "annotation pod-group-name is added: \"a\"",
                "environment variable E is added to spec.containers[0]: \"1\"",
                "environment variable F is added to spec.containers[0]: read from \
                 metadata.annotations['portcullis.dev/gpus'] when the container starts",
                "scheduling gate portcullis.dev/gang is added: the pod waits until its whole gang fits",
                "spec.containers[0].image is changed from \"x\" to \"y\"",
                "spec.schedulerName is set to \"x\"",
                "toleration of the taint portcullis.dev/gpu-sharing=vram:NoSchedule is added: it may run where cards \
                 are shared by memory",
            ]
        );
        assert_eq!(in_words(&after, &after), Vec::<String>::new());
        assert_eq!(in_words(&json!({"a": 1}), &json!({})), ["a is removed"]);
    }
}
