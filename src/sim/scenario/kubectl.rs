//! The commands of `kubectl` that scenarios use (apply, delete, scale, taint, cordon), with their output.

use serde_json::{Value, json};

use super::node_spec::taint;
use crate::api::{Actor, ApiStatus, ObjectKey, ObjectKind, Subresource};
use crate::cluster::Cluster;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The result of one command for one object.
pub(super) struct CommandOutcome {
    /// Output of kubectl, warnings first.
    pub(super) lines: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) refused: Option<(ObjectKey, ApiStatus)>,
}

/// `kubectl apply`: creates, or changes what the manifest changes since it was last applied.
pub(super) fn apply(cluster: &mut Cluster, manifest: &Value) -> CommandOutcome {
    let mut manifest = manifest.clone();
    let key = key_of(&manifest);
    if !manifest["metadata"].is_object() {
        manifest["metadata"] = json!({});
    }
    if key.kind.namespaced() && manifest["metadata"].get("namespace").is_none() {
        manifest["metadata"]["namespace"] = json!("default");
    }
    let bare = manifest.to_string();
    let annotations = &mut manifest["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[LAST_APPLIED] = json!(bare);
    let known = cluster.api.get(&key).map(|stored| stored.object.clone());
    let done = match &known {
        None => cluster.api.create(&Actor::User, manifest).map(|applied| (applied, "created")),
        Some(live) => {
            let last = live["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap_or("null");
            let last: Value = serde_json::from_str(last).unwrap_or_default();
            let wanted: Value = serde_json::from_str(&bare).unwrap_or_default();
            match changes(&last, &wanted) {
                None => Ok(None),
                Some(mut patch) => {
                    patch["metadata"]["annotations"][LAST_APPLIED] = json!(bare);
                    cluster.api.merge_patch(&Actor::User, &key, Subresource::None, &patch).map(Some)
                }
            }
            .map(|applied| match applied {
                Some(applied) => {
                    let word = if applied.changed { "configured" } else { "unchanged" };
                    (applied, word)
                }
                None => {
                    let object = live.clone();
                    (crate::api::WriteOutcome { object, changed: false, warnings: Vec::new() }, "unchanged")
                }
            })
        }
    };
    cluster.settle_writes();
    match done {
        Ok((applied, word)) => {
            let mut lines: Vec<String> = applied.warnings.iter().map(|w| format!("Warning: {w}")).collect();
            lines.push(format!("{key} {word}"));
            CommandOutcome { lines, warnings: applied.warnings, refused: None }
        }
        Err(status) => CommandOutcome {
            lines: status.kubectl().lines().map(str::to_owned).collect(),
            warnings: Vec::new(),
            refused: Some((key, status)),
        },
    }
}

/// `kubectl delete`: `pod/name` or `pod/namespace/name`.
pub(super) fn delete(cluster: &mut Cluster, target: &str) -> Result<CommandOutcome, String> {
    let key = target_key(target)?;
    let done = cluster.api.delete(&Actor::User, &key, None, None);
    cluster.settle_writes();
    Ok(match done {
        Ok(_) => {
            let line = format!("{} \"{}\" deleted", key.kind.kubectl_name(), key.name);
            CommandOutcome { lines: vec![line], warnings: Vec::new(), refused: None }
        }
        Err(status) => CommandOutcome {
            lines: vec![status.kubectl()],
            warnings: Vec::new(),
            refused: Some((key, status)),
        },
    })
}

/// `kubectl scale` of a Deployment, or of another kind: `statefulset/workers`. For a Job it sets the
/// parallelism.
pub(super) fn scale(cluster: &mut Cluster, name: &str, replicas: u64) -> Result<Vec<String>, String> {
    let kind = name.split_once('/').and_then(|(kind, _)| ObjectKind::named(kind));
    let key = match name.split_once('/') {
        Some(_) if kind.is_some() => target_key(name)?,
        Some((namespace, bare)) => ObjectKey::new(ObjectKind::Deployment, namespace, bare),
        None => ObjectKey::new(ObjectKind::Deployment, "default", name),
    };
    let field = if key.kind == ObjectKind::Job { "parallelism" } else { "replicas" };
    let patch = json!({"spec": {field: replicas}});
    let done = cluster.api.merge_patch(&Actor::User, &key, Subresource::None, &patch);
    cluster.settle_writes();
    done.map(|_| vec![format!("{key} scaled")]).map_err(|status| status.kubectl())
}

/// `kubectl taint node`; a `-` at the end removes the taint.
pub(super) fn set_taint(cluster: &mut Cluster, node: &str, text: &str) -> Result<Vec<String>, String> {
    let wanted = taint(text.trim_end_matches('-'))?;
    let removing = text.ends_with('-');
    let found = cluster.change_node(node, |object| {
        if !object["spec"]["taints"].is_array() {
            object["spec"]["taints"] = json!([]);
        }
        if let Some(list) = object["spec"]["taints"].as_array_mut() {
            list.retain(|known| (&known["key"], &known["effect"]) != (&wanted["key"], &wanted["effect"]));
            if !removing {
                list.push(wanted);
            }
        }
    });
    let word = if removing { "untainted" } else { "tainted" };
    if found { Ok(vec![format!("node/{node} {word}")]) } else { Err(format!("nodes \"{node}\" not found")) }
}

/// `kubectl cordon` and `uncordon`.
pub(super) fn cordon(cluster: &mut Cluster, node: &str, cordoned: bool) -> Result<Vec<String>, String> {
    let word = if cordoned { "cordoned" } else { "uncordoned" };
    let found = cluster.cordon(node, cordoned);
    if found { Ok(vec![format!("node/{node} {word}")]) } else { Err(format!("nodes \"{node}\" not found")) }
}

/// Another controller removes its own gate from a pod.
pub(super) fn ungate(cluster: &mut Cluster, pod: &str, gate: &str) -> Result<Vec<String>, String> {
    let key = target_key(&format!("pod/{pod}"))?;
    let stored = cluster.api.get(&key).ok_or_else(|| format!("pods \"{pod}\" not found"))?;
    let mut object = (*stored.object).clone();
    if let Some(list) = object.pointer_mut("/spec/schedulingGates").and_then(Value::as_array_mut) {
        list.retain(|known| known["name"] != gate);
    }
    let done = cluster.api.update(&Actor::Controller, &key, Subresource::None, object);
    cluster.settle_writes();
    done.map(|_| vec![format!("{key} patched")]).map_err(|status| status.kubectl())
}

/// `pod/name` or `pod/namespace/name`.
pub(super) fn target_key(target: &str) -> Result<ObjectKey, String> {
    let parts: Vec<&str> = target.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] => (kind, "default", name),
        [kind, namespace, name] => (kind, *namespace, name),
        _ => return Err(format!("{target:?} is not an object: write pod/name or pod/namespace/name")),
    };
    let kind = ObjectKind::named(kind).ok_or_else(|| format!("{target:?}: there is no kind {kind:?}"))?;
    Ok(ObjectKey::new(kind, namespace, name))
}

fn key_of(manifest: &Value) -> ObjectKey {
    let text = |key: &str| manifest["metadata"][key].as_str().unwrap_or("");
    let namespace = if text("namespace").is_empty() { "default" } else { text("namespace") };
    let kind = ObjectKind::of(manifest).expect("unknown kinds are rejected when the scenario is read");
    ObjectKey::new(kind, namespace, text("name"))
}

/// The merge patch from `old` to `new`; `None` when they are equal.
fn changes(old: &Value, new: &Value) -> Option<Value> {
    let (Some(old_map), Some(new_map)) = (old.as_object(), new.as_object()) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = serde_json::Map::new();
    for key in old_map.keys().filter(|key| !new_map.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new_map {
        match old_map.get(key) {
            None => {
                patch.insert(key.clone(), value.clone());
            }
            Some(old) => {
                if let Some(changed) = changes(old, value) {
                    patch.insert(key.clone(), changed);
                }
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}
