//! Parameter objects that bindings pass to policies. They come from the same files as the policies.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::selector::LabelMatcher;
use crate::api::{ParamKind, ParamRef};
use crate::json::text;

/// Cluster-scoped built-in kinds that are plausible as parameters.
const CLUSTER_SCOPED_KINDS: [&str; 6] =
    ["Namespace", "Node", "PriorityClass", "RuntimeClass", "StorageClass", "CustomResourceDefinition"];

/// Parameter objects by kind, namespace and name.
#[derive(Debug, Default)]
pub struct ParamStore {
    kinds: BTreeMap<ParamKind, BTreeMap<(String, String), Json>>,
}

impl ParamStore {
    /// Adds an object of the files.
    pub fn add(&mut self, object: Json) {
        let kind = ParamKind {
            api_version: text(&object, "/apiVersion").into(),
            kind: text(&object, "/kind").into(),
        };
        let key = (Self::namespace_of(&object).to_owned(), text(&object, "/metadata/name").to_owned());
        self.kinds.entry(kind).or_default().insert(key, object);
    }

    /// Returns the namespace of an object in the files: `default` if it names none, empty for cluster-scoped
    /// kinds.
    pub(crate) fn namespace_of(object: &Json) -> &str {
        match text(object, "/metadata/namespace") {
            _ if CLUSTER_SCOPED_KINDS.contains(&text(object, "/kind")) => "",
            "" if is_builtin(text(object, "/apiVersion")) => "default",
            namespace => namespace,
        }
    }

    /// Whether a kind is namespaced. A custom kind is, if one of its objects has a namespace.
    fn is_namespaced(&self, kind: &ParamKind) -> bool {
        if is_builtin(&kind.api_version) {
            return !CLUSTER_SCOPED_KINDS.contains(&kind.kind.as_str());
        }
        self.kinds.get(kind).is_none_or(|all| all.keys().any(|(namespace, _)| !namespace.is_empty()))
    }

    /// Returns the parameters of a binding: one evaluation for each entry, `None` for an evaluation without
    /// parameters.
    ///
    /// # Errors
    /// The API server's message.
    pub(crate) fn of<'a>(
        &'a self,
        kind: Option<&ParamKind>,
        reference: Option<&ParamReference>,
        namespace: &str,
    ) -> Result<Vec<Option<&'a Json>>, String> {
        let (Some(kind), Some(reference)) = (kind, reference) else { return Ok(vec![None]) };
        let namespaced = self.is_namespaced(kind);
        let namespace = match (namespaced, reference.namespace.as_str(), namespace) {
            (true, "", "") => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                        .into(),
                );
            }
            (true, "", of_request) => of_request,
            (true, given, _) => given,
            (false, "", _) => "",
            (false, ..) => {
                return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
            }
        };
        let all = self.kinds.get(kind).into_iter().flatten();
        let found: Vec<Option<&Json>> = all
            .filter(|((place, name), object)| {
                place == namespace
                    && match (&reference.name, &reference.selector) {
                        (Some(wanted), _) => wanted == name,
                        (None, Some(selector)) => selector.matches(object),
                        (None, None) => false,
                    }
            })
            .map(|(_, object)| Some(object))
            .collect();
        if found.is_empty() && reference.denies {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
        }
        Ok(found)
    }
}

fn is_builtin(api_version: &str) -> bool {
    match api_version.split_once('/') {
        None => true,
        Some((group, _)) => !group.contains('.') || group.ends_with(".k8s.io"),
    }
}

/// A compiled `paramRef`.
#[derive(Clone, Debug)]
pub(crate) struct ParamReference {
    name: Option<String>,
    namespace: String,
    selector: Option<LabelMatcher>,
    denies: bool,
}

impl ParamReference {
    pub(crate) fn new(spec: &ParamRef) -> Self {
        Self {
            name: spec.name.clone().filter(|name| !name.is_empty()),
            namespace: spec.namespace.clone().unwrap_or_default(),
            selector: spec.selector.as_ref().map(|selector| LabelMatcher::new(Some(selector))),
            denies: spec.parameter_not_found_action.as_deref() == Some("Deny"),
        }
    }
}
