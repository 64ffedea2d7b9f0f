//! Builds requests from objects, and [`ClusterData`] from declarations.

use portcullis_core::dialect;
use serde_json::{Value as Json, json};

use super::{CaseClusterData, CaseRequest};
use crate::input::ClusterData;
use crate::schema::served_resources;

fn text<'j>(json: &'j Json, pointer: &str) -> &'j str {
    json.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

/// Returns group and version of an `apiVersion`.
fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Returns the plural of a kind and whether it is namespaced. Unknown kinds get the English plural.
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

/// Returns the request for an object. An `AdmissionReview` already contains its request.
pub(super) fn request(object: &Json, request_attributes: &CaseRequest) -> Json {
    if text(object, "/kind") == "AdmissionReview" {
        return object.get("request").cloned().unwrap_or_default();
    }
    let ((group, version), kind) = (split(text(object, "/apiVersion")), text(object, "/kind"));
    let (plural, namespaced) = resource(group, version, kind);
    let namespace =
        match (namespaced, text(object, "/metadata/namespace"), request_attributes.namespace.as_str()) {
            (false, ..) => "",
            (true, "", "") => "default",
            (true, "", named) => named,
            (true, own, _) => own,
        };
    let mut new = object.clone();
    if namespaced {
        new["metadata"]["namespace"] = namespace.into();
    }
    let old_object = match request_attributes.operation.as_str() {
        "CREATE" | "CONNECT" => Json::Null,
        "DELETE" => std::mem::take(&mut new),
        _ => {
            let mut old_object = request_attributes.old_object.clone().unwrap_or_else(|| new.clone());
            if namespaced {
                old_object["metadata"]["namespace"] = namespace.into();
            }
            old_object
        }
    };
    let kinds = json!({ "group": group, "version": version, "kind": kind });
    let resources = json!({ "group": group, "version": version, "resource": plural });
    let user = request_attributes.user.clone().unwrap_or_else(
        || json!({ "username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"] }),
    );
    let mut request = json!({
        "uid": "00000000-0000-0000-0000-000000000000", "kind": kinds, "resource": resources,
        "requestKind": kinds, "requestResource": resources,
        "name": text(object, "/metadata/name"), "operation": request_attributes.operation, "userInfo": user,
        "object": new, "oldObject": old_object, "dryRun": false, "options": null,
    });
    if namespaced {
        request["namespace"] = namespace.into();
    }
    if !request_attributes.sub_resource.is_empty() {
        request["subResource"] = request_attributes.sub_resource.as_str().into();
        request["requestSubResource"] = request_attributes.sub_resource.as_str().into();
    }
    request
}

/// Returns the declared cluster data.
pub(super) fn cluster(declared: &CaseClusterData, now: i64) -> ClusterData {
    let mut cluster = ClusterData {
        capacity: declared.capacity.clone(),
        priority_classes: declared.priority_classes.clone(),
        runtime_classes: declared.runtime_classes.clone(),
        now: declared.now.unwrap_or(now),
        ..ClusterData::default()
    };
    for object in &declared.objects {
        add_object(&mut cluster, object, "default");
    }
    cluster
}

/// Adds an object to the cluster data, if policies can use its kind.
pub(super) fn add_object(cluster: &mut ClusterData, object: &Json, namespace: &str) {
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

/// Adds a namespace that is not declared, with the name label that every namespace has.
pub(super) fn ensure_namespace(cluster: &mut ClusterData, name: &str) {
    if !name.is_empty() && !cluster.namespaces.contains_key(name) {
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        add_object(cluster, &object, "");
    }
}
