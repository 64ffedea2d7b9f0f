//! Objects to requests, and what is told of a world to a [`ClusterData`].

use portcullis_core::dialect;
use serde_json::{Value as Json, json};

use super::{CaseClusterData, CaseRequest};
use crate::input::ClusterData;
use crate::schema::served_resources;

fn text<'j>(json: &'j Json, pointer: &str) -> &'j str {
    json.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

/// The group and version of an `apiVersion`.
fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The plural of a kind and whether its objects are in namespaces: as it is known, else as English has it.
fn resource(group: &str, version: &str, kind: &str) -> (String, bool) {
    let same = |one: &&crate::schema::ServedResource| {
        one.kind == kind && one.group == group && !one.resource.contains('/')
    };
    let known = served_resources().iter().filter(same);
    if let Some(one) = known.clone().find(|one| one.version == version).or_else(|| known.clone().next()) {
        return (one.resource.to_owned(), one.namespaced);
    }
    if let Some((_, one)) = dialect::group_resources().find(|(_, one)| one.group == group && one.kind == kind)
    {
        return (one.plural.to_owned(), true);
    }
    let lower = kind.to_lowercase();
    let plural = match lower.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if lower.ends_with('s') || lower.ends_with('x') => format!("{lower}es"),
        _ => format!("{lower}s"),
    };
    (plural, true)
}

/// The request about an object; that of an `AdmissionReview` as it is.
pub(super) fn request(object: &Json, asked: &CaseRequest) -> Json {
    if text(object, "/kind") == "AdmissionReview" {
        return object.get("request").cloned().unwrap_or_default();
    }
    let ((group, version), kind) = (split(text(object, "/apiVersion")), text(object, "/kind"));
    let (plural, namespaced) = resource(group, version, kind);
    let namespace = match (namespaced, text(object, "/metadata/namespace"), asked.namespace.as_str()) {
        (false, ..) => "",
        (true, "", "") => "default",
        (true, "", named) => named,
        (true, own, _) => own,
    };
    let mut new = object.clone();
    if namespaced {
        new["metadata"]["namespace"] = namespace.into();
    }
    let old = match asked.operation.as_str() {
        "CREATE" | "CONNECT" => Json::Null,
        "DELETE" => std::mem::take(&mut new),
        _ => {
            let mut old = asked.old.clone().unwrap_or_else(|| new.clone());
            if namespaced {
                old["metadata"]["namespace"] = namespace.into();
            }
            old
        }
    };
    let kinds = json!({ "group": group, "version": version, "kind": kind });
    let resources = json!({ "group": group, "version": version, "resource": plural });
    let user = asked.user.clone().unwrap_or_else(
        || json!({ "username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"] }),
    );
    let mut request = json!({
        "uid": "00000000-0000-0000-0000-000000000000", "kind": kinds, "resource": resources,
        "requestKind": kinds, "requestResource": resources,
        "name": text(object, "/metadata/name"), "operation": asked.operation, "userInfo": user,
        "object": new, "oldObject": old, "dryRun": false, "options": null,
    });
    if namespaced {
        request["namespace"] = namespace.into();
    }
    if !asked.sub_resource.is_empty() {
        request["subResource"] = asked.sub_resource.as_str().into();
        request["requestSubResource"] = asked.sub_resource.as_str().into();
    }
    request
}

/// What is told of the world.
pub(super) fn cluster(told: &CaseClusterData, now: i64) -> ClusterData {
    let mut cluster = ClusterData {
        capacity: told.capacity.clone(),
        priority_classes: told.priority_classes.clone(),
        runtime_classes: told.runtime_classes.clone(),
        now: told.now.unwrap_or(now),
        ..ClusterData::default()
    };
    for object in &told.objects {
        learn(&mut cluster, object, "default");
    }
    cluster
}

/// Takes up an object of a kind that policies ask about.
pub(super) fn learn(cluster: &mut ClusterData, object: &Json, namespace: &str) {
    let ((group, _), kind, name) =
        (split(text(object, "/apiVersion")), text(object, "/kind"), text(object, "/metadata/name"));
    let namespace = match text(object, "/metadata/namespace") {
        "" => namespace,
        own => own,
    };
    let key = format!("{namespace}/{name}");
    match (group, kind) {
        ("", "Namespace") => {
            let mut object = object.clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
            cluster.namespaces.insert(name.to_owned(), object);
        }
        ("portcullis.dev", "Gang") => {
            cluster.gangs.insert(key, object.clone());
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            cluster.priority_classes.get_or_insert_default().insert(name.to_owned(), object.clone());
        }
        ("node.k8s.io", "RuntimeClass") => {
            cluster.runtime_classes.get_or_insert_default().insert(name.to_owned(), object.clone());
        }
        _ if dialect::group_resources().any(|(_, one)| one.group == group && one.kind == kind) => {
            cluster.groups.insert(format!("{kind}.{group}/{key}"), object.clone());
        }
        _ => {}
    }
}

/// A namespace that nobody has told of has its name for a label, as every one has.
pub(super) fn ensure_namespace(cluster: &mut ClusterData, name: &str) {
    if !name.is_empty() && !cluster.namespaces.contains_key(name) {
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        learn(cluster, &object, "");
    }
}
