//! What stands in a document: pods, pod templates inside workloads, groups, reviews, and what is none of these.
//!
//! Templates are found by their shape (a `spec` with a list of `containers`), so that kinds nobody has told us about
//! are covered too. Never looks at what a pod asks for.

use portcullis_core::dialect::{self, GroupKind, Quorum};
use serde_json::{Value, json};

use super::super::manifest::Document;

/// Something in a document that can be talked about.
#[derive(Debug)]
pub(super) struct ReviewItem {
    /// Kind of the object it stands in.
    pub(super) kind: String,
    /// Namespace, or the one assumed.
    pub(super) namespace: String,
    /// Name, or `generateName` with a `*`.
    pub(super) name: String,
    /// Where in the document the object lies: a JSON pointer.
    pub(super) pointer: String,
    /// Field path of the pod template within the object, for a workload.
    pub(super) template: Option<String>,
    /// What it is.
    pub(super) what: ItemContent,
}

impl ReviewItem {
    /// JSON pointer of the pod itself within the document.
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

/// What it is.
#[derive(Debug)]
pub(super) enum ItemContent {
    /// A pod, or one as its controller would create it.
    Pod(PodItem),
    /// A group object of a dialect we know.
    Group(Result<GroupSummary, String>),
    /// Nothing with pods in it: why it is passed over.
    Other(String),
    /// Not even an object: what is wrong with it.
    Unreadable(String),
}

/// A pod to ask about.
#[derive(Debug)]
pub(super) struct PodItem {
    /// The pod.
    pub(super) pod: Value,
    /// The review it came in, to be sent as it is.
    pub(super) review: Option<Value>,
    /// The StatefulSet that makes it: admission is asked about it as well.
    pub(super) owner: Option<Value>,
}

/// What a group object says, in our words.
#[derive(Clone, Debug)]
pub(super) struct GroupSummary {
    /// The gang, as members name it: `namespace/name`.
    pub(super) gang: String,
    /// What must be there before anybody starts.
    pub(super) needs: String,
    /// How many members that is at least.
    pub(super) min_member: u32,
    /// Queue and priority class, where it names them.
    pub(super) more: Vec<String>,
}

/// Everything in a document that can be talked about.
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
            ItemContent::Unreadable(format!("{missing} is missing: it says what the object is")),
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
        // A set of replicas is a group and has templates.
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
                    push(name.clone(), None, ItemContent::Group(Err(without_place(&error.problem))))
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

/// The kind of group object that this is; of an unknown version the first that is known.
fn group_kind(api_version: &str, kind: &str) -> Option<GroupKind> {
    let (group, _) = api_version.split_once('/')?;
    let alike =
        || dialect::group_kinds().filter(|k| k.resource().group == group && k.resource().kind == kind);
    alike().find(|k| k.resource().api_version() == api_version).or_else(|| alike().next())
}

/// serde_json names a place in the JSON we made, which the reader has never seen.
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

/// An AdmissionReview is sent as it is; the object inside it only gives it a name here.
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
        ItemContent::Unreadable("request.kind.kind is missing: it says what is being reviewed".to_owned())
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

/// Field paths of everything below `value` that has the shape of a pod template.
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

/// The pod a controller would create from a template: named by it, owned by it.
fn pod_of(template: &Value, owner: &Value, kind: &str, namespace: &str) -> Value {
    let name = owner.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("unnamed");
    // A Deployment's pods belong to its ReplicaSet and a CronJob's to its Job; what matters to admission is the kind.
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
