//! The cases in their short form, with defaults for everything usual. Each case has its own namespace, and
//! its bindings select the label `case` of the namespace.

use serde_json::{Map, Value as Json, json};

/// A case: policies, the objects that they need, and requests.
pub(crate) struct Case {
    pub(crate) topic: String,
    pub(crate) name: String,
    /// The policies and bindings to create.
    pub(crate) documents: Vec<Json>,
    pub(crate) params: Vec<Json>,
    /// More labels of the namespace.
    pub(crate) labels: Map<String, Json>,
    pub(crate) requests: Vec<Request>,
}

/// A request.
pub(crate) struct Request {
    pub(crate) operation: String,
    /// The path of the collection.
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) sub: String,
    pub(crate) object: Json,
    /// The object that exists before an update or a deletion.
    pub(crate) old: Option<Json>,
}

impl Request {
    /// The path of the object.
    pub(crate) fn place(&self) -> String {
        format!("{}/{}{}", self.path, self.name, self.sub)
    }
}

fn merged(base: Json, more: &Json) -> Json {
    let mut base = base;
    for (key, value) in more.as_object().into_iter().flatten() {
        base[key] = value.clone();
    }
    base
}

fn list(json: &Json, key: &str) -> Vec<Json> {
    match &json[key] {
        Json::Null => Vec::new(),
        Json::Array(items) => items.clone(),
        one => vec![one.clone()],
    }
}

const API: &str = "admissionregistration.k8s.io/v1";

fn config_maps() -> Json {
    json!({ "resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps", "pods"],
    }] })
}

impl Case {
    pub(crate) fn new(topic: &str, written: &Json) -> Self {
        let name = written["case"].as_str().unwrap_or_else(|| panic!("{topic}: {written}")).to_owned();
        let mut documents = Vec::new();
        let policies = match &written["policies"] {
            Json::Array(several) => several.clone(),
            _ => vec![written.clone()],
        };
        for (index, policy) in policies.iter().enumerate() {
            documents.extend(Self::policy(&name, policy, policies.len() > 1, index));
        }
        let namespace = namespace(&name);
        let params = list(written, "params").iter().map(|param| object(param, &namespace)).collect();
        let requests = list(written, "requests")
            .into_iter()
            .enumerate()
            .map(|(index, request)| Self::request(&namespace, &request, index));
        Self {
            topic: topic.to_owned(),
            documents,
            params,
            labels: written["namespaceLabels"].as_object().cloned().unwrap_or_default(),
            requests: requests.collect(),
            name,
        }
    }

    fn policy(case: &str, policy: &Json, several: bool, index: usize) -> Vec<Json> {
        let name = match policy["name"].as_str() {
            Some(name) => name.to_owned(),
            None if several => format!("{case}-{index}"),
            None => case.to_owned(),
        };
        let mutates = !policy["mutations"].is_null();
        let mut spec = json!({ "matchConstraints": config_maps() });
        if mutates {
            let mutations: Vec<Json> = list(policy, "mutations").iter().map(mutation).collect();
            spec["mutations"] = mutations.into();
            spec["reinvocationPolicy"] = json!("Never");
        } else {
            let rules: Vec<Json> = list(policy, "rules").iter().map(rule).collect();
            if !rules.is_empty() {
                spec["validations"] = rules.into();
            }
        }
        let named = |key: &str| -> Vec<Json> {
            match &policy[key] {
                Json::Array(given) => given
                    .iter()
                    .map(|one| {
                        let (name, expression) = one.as_object().unwrap().iter().next().unwrap();
                        json!({ "name": name, "expression": expression })
                    })
                    .collect(),
                _ => Vec::new(),
            }
        };
        for (key, field) in [("variables", "variables"), ("conditions", "matchConditions")] {
            let given = named(key);
            if !given.is_empty() {
                spec[field] = given.into();
            }
        }
        let kind = if mutates { "MutatingAdmissionPolicy" } else { "ValidatingAdmissionPolicy" };
        let mut documents = vec![json!({
            "apiVersion": API, "kind": kind, "metadata": { "name": name }, "spec": merged(spec, &policy["spec"]),
        })];
        let bindings = match list(policy, "bindings") {
            none if none.is_empty() => vec![json!({})],
            given => given,
        };
        for (number, given) in bindings.iter().enumerate() {
            let binding = match given["name"].as_str() {
                Some(name) => name.to_owned(),
                None if bindings.len() > 1 => format!("{name}-{number}"),
                None => name.clone(),
            };
            let mut resources = json!({ "namespaceSelector": { "matchLabels": { "case": case } } });
            resources = merged(resources, &given["matchResources"]);
            let mut spec = json!({ "policyName": name, "matchResources": resources });
            if !mutates {
                spec["validationActions"] = json!(["Deny"]);
            }
            for (key, value) in given.as_object().into_iter().flatten() {
                if key != "name" && key != "matchResources" {
                    spec[key] = value.clone();
                }
            }
            documents.push(json!({
                "apiVersion": API, "kind": format!("{kind}Binding"), "metadata": { "name": binding }, "spec": spec,
            }));
        }
        documents
    }

    fn request(namespace: &str, written: &Json, index: usize) -> Request {
        let text = |key: &str, otherwise: &str| written[key].as_str().unwrap_or(otherwise).to_owned();
        let mut object = object(written, namespace);
        let operation = text("operation", if written["old"].is_null() { "CREATE" } else { "UPDATE" });
        if object["metadata"]["name"].is_null() && object["metadata"]["generateName"].is_null() {
            object["metadata"]["name"] = json!(format!("r{index}"));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let old = match (&written["old"], operation.as_str()) {
            (Json::Null, "DELETE") => Some(object.clone()),
            (Json::Null, _) => None,
            (old, _) => {
                let mut old = self::object(old, namespace);
                old["metadata"]["name"] = json!(name);
                Some(old)
            }
        };
        Request { path: collection(&object, namespace), sub: text("sub", ""), operation, name, object, old }
    }
}

pub(crate) fn namespace(case: &str) -> String {
    format!("d-{case}")
}

fn rule(written: &Json) -> Json {
    match written {
        Json::String(expression) => json!({ "expression": expression }),
        other => other.clone(),
    }
}

fn mutation(written: &Json) -> Json {
    match written {
        Json::String(expression) if expression.contains("JSONPatch{") || expression.starts_with('[') => {
            json!({ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } })
        }
        Json::String(expression) => {
            json!({ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } })
        }
        other => other.clone(),
    }
}

/// Reads an object: a whole object, a pod by `pod` with labels and annotations, or a ConfigMap by its given
/// fields.
fn object(written: &Json, namespace: &str) -> Json {
    if let Json::Object(_) = &written["object"] {
        let mut object = written["object"].clone();
        if namespaced(&object) && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        return object;
    }
    let mut metadata = json!({ "namespace": namespace });
    for key in ["name", "generateName", "labels", "annotations"] {
        if !written[key].is_null() {
            metadata[key] = written[key].clone();
        }
    }
    if let Json::Object(_) = &written["pod"] {
        let spec = merged(
            json!({ "containers": [{ "name": "main", "image": "example.com/a:1" }] }),
            &written["pod"],
        );
        return json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
    }
    let mut map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
    for key in ["data", "binaryData", "immutable"] {
        if !written[key].is_null() {
            map[key] = written[key].clone();
        }
    }
    map
}

fn namespaced(object: &Json) -> bool {
    !matches!(object["kind"].as_str(), Some("Namespace" | "PriorityClass" | "Node" | "StorageClass"))
}

/// The path of the collection of a kind.
pub(crate) fn collection(object: &Json, namespace: &str) -> String {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let base = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let plural = match kind.as_str() {
        "priorityclass" | "storageclass" => format!("{kind}es"),
        _ => match kind.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{kind}s"),
        },
    };
    if namespaced(object) {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
        format!("{base}/namespaces/{namespace}/{plural}")
    } else {
        format!("{base}/{plural}")
    }
}
