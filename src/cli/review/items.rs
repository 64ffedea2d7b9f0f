//! Finds the objects in a document: pods, pod templates of workloads, pod groups, reviews and others.
//!
//! It finds templates by their shape (a `spec` with a list of `containers`), so unknown kinds are covered
//! too.

use portcullis_core::dialect::{self, GroupKind, Quorum};
use serde_json::{Value, json};

use super::super::manifest::Document;

/// An object in a document.
#[derive(Debug)]
pub(super) struct ReviewItem {
    /// Kind of the enclosing object.
    pub(super) kind: String,
    /// Namespace of the object, or the default namespace.
    pub(super) namespace: String,
    /// Name, or `generateName` with a `*`.
    pub(super) name: String,
    /// JSON pointer of the object in the document.
    pub(super) pointer: String,
    /// Field path of the pod template within the object, for a workload.
    pub(super) template: Option<String>,
    /// The content.
    pub(super) what: ItemContent,
}

impl ReviewItem {
    /// Returns the JSON pointer of the pod within the document.
    pub(super) fn place(&self) -> String {
        let mut pointer = self.pointer.clone();
        if let Some(template) = &self.template {
            for step in template.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
                pointer.push('/');
                pointer.push_str(&portcullis_text::pointer::escape(step));
            }
        }
        pointer
    }
}

/// The content of an item.
#[derive(Debug)]
pub(super) enum ItemContent {
    /// A pod, or a pod of a template as its controller would create it.
    Pod(PodItem),
    /// A pod group of a known dialect, or the error in it.
    Group(Result<GroupSummary, String>),
    /// An object without pods, and why it is skipped.
    Other(String),
    /// Not a valid object, and why.
    Unreadable(String),
}

/// A pod to review.
#[derive(Debug)]
pub(super) struct PodItem {
    /// The pod.
    pub(super) pod: Value,
    /// The AdmissionReview that contains the pod; it is sent unchanged.
    pub(super) review: Option<Value>,
    /// The StatefulSet that owns the pod; admission reviews it as well.
    pub(super) owner: Option<Value>,
}

/// Summary of a pod group.
#[derive(Clone, Debug)]
pub(super) struct GroupSummary {
    /// Key of the gang: `namespace/name`.
    pub(super) gang: String,
    /// Description of the quorum.
    pub(super) needs: String,
    /// Minimum number of members.
    pub(super) min_member: u32,
    /// Queue, priority class and timeout, if set.
    pub(super) more: Vec<String>,
}

/// Returns all objects of a document.
pub(super) fn objects(document: &Document, namespace: &str) -> Vec<ReviewItem> {
    let mut found = Vec::new();
    walk(&document.value, "", namespace, &mut found);
    found
}

fn walk(value: &Value, pointer: &str, namespace: &str, found: &mut Vec<ReviewItem>) {
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let namespace = match text("/metadata/namespace") {
        "" => namespace,
        own => own,
    };
    let mut push = |name: String, template: Option<String>, what: ItemContent| {
        found.push(ReviewItem {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name,
            pointer: pointer.to_owned(),
            template,
            what,
        });
    };
    let name = name_of(value);
    if !value.is_object() {
        push(
            String::new(),
            None,
            ItemContent::Unreadable("expected an object with apiVersion and kind".to_owned()),
        );
    } else if kind.is_empty() || api_version.is_empty() {
        let missing = if kind.is_empty() { "kind" } else { "apiVersion" };
        push(
            name,
            None,
            ItemContent::Unreadable(format!("{missing} is missing: it states the type of the object")),
        );
    } else if let Some(items) =
        value.get("items").and_then(Value::as_array).filter(|_| kind.ends_with("List") || kind == "List")
    {
        for (index, item) in items.iter().enumerate() {
            walk(item, &format!("{pointer}/items/{index}"), namespace, found);
        }
    } else if kind == "AdmissionReview" {
        review(value, pointer, namespace, found);
    } else if (api_version, kind) == ("v1", "Pod") {
        let mut pod = value.clone();
        pod["metadata"]["namespace"] = json!(namespace);
        push(name, None, ItemContent::Pod(PodItem { pod, review: None, owner: None }));
    } else {
        // An object may be both: a LeaderWorkerSet is a group and has templates.
        let of = group_kind(api_version, kind);
        if let Some(of) = of {
            let mut group = value.clone();
            group["metadata"]["namespace"] = json!(namespace);
            match of.read(&group.to_string()) {
                Ok(object) => {
                    for group in &object.groups {
                        push(name.clone(), None, ItemContent::Group(Ok(facts(group))));
                    }
                }
                Err(error) => {
                    push(name.clone(), None, ItemContent::Group(Err(without_place(&error.problem))));
                }
            }
        }
        let mut templates = Vec::new();
        pod_templates(value, &mut Vec::new(), &mut templates);
        if templates.is_empty() && of.is_none() {
            push(name.clone(), None, ItemContent::Other("has no pods in it".to_owned()));
        }
        let owner = ((api_version, kind) == ("apps/v1", "StatefulSet")).then(|| value.clone());
        for (path, template) in templates {
            let pod = pod_of(template, value, kind, namespace);
            push(
                name.clone(),
                Some(path),
                ItemContent::Pod(PodItem { pod, review: None, owner: owner.clone() }),
            );
        }
    }
}

/// Returns the group kind of an object. An unknown version gets the first known version.
fn group_kind(api_version: &str, kind: &str) -> Option<GroupKind> {
    let (group, _) = api_version.split_once('/')?;
    let alike =
        || dialect::group_kinds().filter(|k| k.resource().group == group && k.resource().kind == kind);
    alike().find(|k| k.resource().api_version() == api_version).or_else(|| alike().next())
}

/// Removes the position from a serde_json message: it refers to internal JSON that the user has not seen.
fn without_place(problem: &str) -> String {
    problem.split(" at line ").next().unwrap_or(problem).to_owned()
}

fn name_of(value: &Value) -> String {
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    match (text("/metadata/name"), text("/metadata/generateName")) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => format!("{prefix}*"),
        (None, None) => "(unnamed)".to_owned(),
    }
}

/// Adds an AdmissionReview. It is sent unchanged; its object only provides the name.
fn review(value: &Value, pointer: &str, namespace: &str, found: &mut Vec<ReviewItem>) {
    let request = &value["request"];
    let text = |path: &str| request.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let object = &request["object"];
    let kind = text("/kind/kind");
    let name = match text("/name") {
        "" => name_of(object),
        name => name.to_owned(),
    };
    let namespace = match text("/namespace") {
        "" => namespace,
        own => own,
    };
    let what = if kind.is_empty() {
        ItemContent::Unreadable(
            "request.kind.kind is missing: it states the kind of the reviewed object".to_owned(),
        )
    } else {
        ItemContent::Pod(PodItem { pod: object.clone(), review: Some(value.clone()), owner: None })
    };
    found.push(ReviewItem {
        kind: if kind.is_empty() { "AdmissionReview".to_owned() } else { kind.to_owned() },
        namespace: namespace.to_owned(),
        name,
        pointer: format!("{pointer}/request/object"),
        template: None,
        what,
    });
}

/// Collects the field paths of everything below `value` with the shape of a pod template.
fn pod_templates<'v>(value: &'v Value, path: &mut Vec<String>, found: &mut Vec<(String, &'v Value)>) {
    match value {
        Value::Object(map) => {
            if !path.is_empty() && value.pointer("/spec/containers").is_some_and(Value::is_array) {
                found.push((path.concat().trim_start_matches('.').to_owned(), value));
                return;
            }
            for (key, child) in map {
                path.push(format!(".{key}"));
                pod_templates(child, path, found);
                path.pop();
            }
        }
        Value::Array(items) => {
            for (index, child) in items.iter().enumerate() {
                path.push(format!("[{index}]"));
                pod_templates(child, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Returns the pod that a controller would create from a template, with its name prefix and owner.
fn pod_of(template: &Value, owner: &Value, kind: &str, namespace: &str) -> Value {
    let name = owner.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("unnamed");
    // The owner of a Deployment's pod is a ReplicaSet, that of a CronJob's pod a Job. Admission reads the
    // owner's kind.
    let (api_version, kind) = match kind {
        "Deployment" => ("apps/v1", "ReplicaSet"),
        "CronJob" => ("batch/v1", "Job"),
        other => (owner["apiVersion"].as_str().unwrap_or_default(), other),
    };
    let mut metadata =
        template.get("metadata").filter(|m| m.is_object()).cloned().unwrap_or_else(|| json!({}));
    metadata["generateName"] = json!(format!("{name}-"));
    metadata["namespace"] = json!(namespace);
    metadata["ownerReferences"] = json!([{
        "apiVersion": api_version, "kind": kind, "name": name, "controller": true, "blockOwnerDeletion": true,
        "uid": "00000000-0000-0000-0000-000000000000",
    }]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

fn facts(group: &dialect::Group) -> GroupSummary {
    let mut more = Vec::new();
    if let Some(queue) = &group.queue {
        more.push(format!("queue {queue}"));
    }
    if let Some(class) = &group.priority_class {
        more.push(format!("priority class {class}"));
    }
    if let Some(timeout) = group.timeout {
        more.push(format!("timeout {} s", timeout.as_secs()));
    }
    GroupSummary {
        gang: group.gang.to_string(),
        needs: needs(&group.quorum),
        min_member: group.quorum.min_members(),
        more,
    }
}

fn needs(quorum: &Quorum) -> String {
    match quorum {
        Quorum::Count(1) => "1 pod".to_owned(),
        Quorum::Count(count) => format!("{count} pods"),
        Quorum::Groups { min, children } => {
            let inner: Vec<String> =
                children.iter().map(|(name, quorum)| format!("{name}: {}", needs(quorum))).collect();
            format!("{min} of {} subgroups ({})", children.len(), inner.join(", "))
        }
        Quorum::Total { min_members: least, quorum } => format!("{least} pods, {} among them", needs(quorum)),
    }
}
