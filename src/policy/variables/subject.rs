//! The subject of a request for gangs and GPUs: a pod, the pod template of a workload, or a group object.

use std::borrow::Cow;

use portcullis_core::dialect::{self, GroupKind, GroupObject};
use portcullis_core::objects::text::Text;
use portcullis_core::objects::view::PodView;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::input::AdmissionRequest;

/// The subject of a request.
#[derive(Debug)]
pub(super) enum RequestSubject<'r> {
    /// A pod, or the single pod template of a workload. Boxed because it is large.
    Pod {
        /// The pod, in the namespace of the request.
        pod: Box<PodView<'r>>,
        /// How many copies there will be; 1 for a pod.
        copies: u64,
        /// Whether the pod is new, so that the capacity report does not count it yet.
        new: bool,
    },
    /// A readable group object.
    Group {
        /// The parsed group object.
        object: Box<GroupObject>,
        /// Whether the group object is new.
        new: bool,
    },
    /// Anything else, including unreadable objects, which the gang admission reports.
    Other,
}

impl<'r> RequestSubject<'r> {
    /// Returns the subject of a request; on DELETE the deleted object.
    pub(super) fn of(request: &AdmissionRequest<'r>) -> Self {
        let Some(object) = request.object().or_else(|| request.old_object()) else { return Self::Other };
        let text = |pointer: &str| request.json.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
        let (group, version, kind) = (text("/kind/group"), text("/kind/version"), request.kind());
        let new = request.operation() == "CREATE" && request.sub_resource().is_empty();
        if let Some(known) = group_kind(group, version, kind) {
            return match known.read(&with_namespace(object, request.namespace())) {
                Ok(object) => Self::Group { object: Box::new(object), new },
                Err(_) => Self::Other,
            };
        }
        let (pod, copies) = match (group, kind) {
            ("", "Pod") => (Some(object), 1),
            _ => (template(object), copies(object)),
        };
        let Some(mut pod) = pod.and_then(|pod| PodView::deserialize(pod).ok()) else { return Self::Other };
        pod.metadata.namespace = Text(Cow::Borrowed(request.namespace()));
        Self::Pod { pod: Box::new(pod), copies, new }
    }
}

/// Returns an object as JSON text with its namespace, which reviews and files can omit.
pub(super) fn with_namespace(object: &Json, namespace: &str) -> String {
    if object.pointer("/metadata/namespace").and_then(Json::as_str) == Some(namespace) {
        return object.to_string();
    }
    let mut object = object.clone();
    object["metadata"]["namespace"] = namespace.into();
    object.to_string()
}

/// Returns the group kind of this name, in this version or else in the first known version.
pub(super) fn group_kind(group: &str, version: &str, kind: &str) -> Option<GroupKind> {
    let alike = || {
        dialect::group_kinds()
            .filter(|known| known.resource().group == group && known.resource().kind == kind)
    };
    alike().find(|known| known.resource().version == version).or_else(|| alike().next())
}

/// Returns the only pod template of a workload, or `None` if there are several. It is found by its shape,
/// which covers unknown kinds.
fn template(object: &Json) -> Option<&Json> {
    let mut found = None;
    // Deep enough for CronJob's `spec.jobTemplate.spec.template`, and for a replica in a list in a map.
    search(object.get("spec")?, 6, &mut found).ok()?;
    found
}

fn search<'j>(value: &'j Json, depth: usize, found: &mut Option<&'j Json>) -> Result<(), ()> {
    if depth == 0 {
        return Ok(());
    }
    match value {
        Json::Object(_) if value.pointer("/spec/containers").is_some_and(Json::is_array) => {
            if found.replace(value).is_some() { Err(()) } else { Ok(()) }
        }
        Json::Object(map) => map.values().try_for_each(|value| search(value, depth - 1, found)),
        Json::Array(items) => items.iter().try_for_each(|value| search(value, depth - 1, found)),
        _ => Ok(()),
    }
}

/// Returns how many pods a workload runs at the same time.
fn copies(object: &Json) -> u64 {
    let number = |pointer: &str| object.pointer(pointer).and_then(Json::as_u64);
    ["/spec/replicas", "/spec/parallelism", "/spec/jobTemplate/spec/parallelism"]
        .into_iter()
        .find_map(number)
        .unwrap_or(1)
}
