//! The wire format of a review: `admission.k8s.io/v1 AdmissionReview`, read without copying.
//!
//! Only the envelope and the fields of the pod that matter are decoded; `managedFields` and everything else
//! is skipped.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::ReviewError;
use crate::dialect::{self, GroupObject, GroupResource};
use crate::objects::ReadError;
use crate::objects::text::Text;
use crate::objects::view::{PodView, StatefulSetView};

/// API version of the supported reviews.
pub const API_VERSION: &str = "admission.k8s.io/v1";
/// Kind of the supported reviews.
pub const KIND: &str = "AdmissionReview";

/// One review: the request, with its object if that is a pod, a StatefulSet or a group object.
#[derive(Clone, Debug)]
pub struct AdmissionReview<'a> {
    /// `request.uid`, never empty.
    pub uid: Text<'a>,
    /// The operation.
    pub operation: Operation,
    /// `request.operation` as it was sent.
    pub operation_text: Text<'a>,
    /// Namespace of the request, else of the object.
    pub namespace: Text<'a>,
    /// `request.name`; empty on a CREATE with `generateName`.
    pub name: Text<'a>,
    /// The API server stores nothing. It has no influence on the decision, because admission has no side
    /// effects.
    pub dry_run: bool,
    /// The pod, on CREATE or UPDATE of a pod (not of a subresource).
    pub pod: Option<ReviewedPod<'a>>,
    /// The StatefulSet, on CREATE or UPDATE of one (not of a subresource).
    pub stateful_set: Option<StatefulSetView<'a>>,
    /// The old StatefulSet, on UPDATE.
    pub old_stateful_set: Option<StatefulSetView<'a>>,
    /// The old pod, on UPDATE.
    pub old_pod: Option<PodView<'a>>,
    /// The group object or its read error, on CREATE or UPDATE of one (not of a subresource).
    pub group: Option<Result<GroupObject, ReadError>>,
}

/// The pod of a review.
#[derive(Clone, Debug)]
pub struct ReviewedPod<'a> {
    /// Its JSON as sent.
    pub raw: &'a str,
    /// The decoded fields; the namespace is that of the request if the object has none.
    pub view: PodView<'a>,
}

/// `request.operation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// `CREATE`.
    Create,
    /// `UPDATE`.
    Update,
    /// Any other operation (`DELETE`, `CONNECT`): always allowed.
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ReviewEnvelope<'a> {
    #[serde(default)]
    api_version: Option<Text<'a>>,
    #[serde(default)]
    kind: Option<Text<'a>>,
    #[serde(default)]
    request: Option<ReviewRequest<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ReviewRequest<'a> {
    #[serde(default)]
    uid: Option<Text<'a>>,
    #[serde(default)]
    kind: Option<ObjectKind<'a>>,
    #[serde(default)]
    sub_resource: Option<Text<'a>>,
    #[serde(default)]
    name: Option<Text<'a>>,
    #[serde(default)]
    namespace: Option<Text<'a>>,
    #[serde(default)]
    operation: Option<Text<'a>>,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default, borrow)]
    object: Option<&'a RawValue>,
    #[serde(default, borrow)]
    old_object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ObjectKind<'a> {
    #[serde(default)]
    group: Option<Text<'a>>,
    #[serde(default)]
    version: Option<Text<'a>>,
    #[serde(default)]
    kind: Option<Text<'a>>,
}

impl<'a> AdmissionReview<'a> {
    /// Decodes a review.
    ///
    /// # Errors
    /// [`ReviewError`] when the body is not JSON, has another kind or version, has no request or uid, or has
    /// a pod or StatefulSet with fields of the wrong types.
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        let malformed = |problem: String| ReviewError::Malformed(problem);
        let text = std::str::from_utf8(body).map_err(|e| malformed(e.to_string()))?;
        let envelope: ReviewEnvelope<'a> =
            serde_json::from_str(text).map_err(|e| malformed(e.to_string()))?;
        let api_version = envelope.api_version.unwrap_or_default();
        let kind = envelope.kind.unwrap_or_default();
        if api_version.as_str() != API_VERSION || kind.as_str() != KIND {
            return Err(ReviewError::WrongVersion {
                api_version: api_version.chars().take(100).collect(),
                kind: kind.chars().take(100).collect(),
            });
        }
        let request = envelope.request.ok_or(ReviewError::NoRequest)?;
        let uid = request.uid.filter(|uid| !uid.is_empty()).ok_or(ReviewError::NoRequest)?;
        let operation_text = request.operation.unwrap_or_default();
        let operation = match operation_text.as_str() {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            _ => Operation::Other,
        };
        let mut review = Self {
            uid,
            operation,
            operation_text,
            namespace: request.namespace.unwrap_or_default(),
            name: request.name.unwrap_or_default(),
            dry_run: request.dry_run.unwrap_or(false),
            pod: None,
            stateful_set: None,
            old_stateful_set: None,
            old_pod: None,
            group: None,
        };
        let kind = request.kind.as_ref();
        let (api_group, version, kind) = kind.map_or(("", "", ""), |k| {
            (
                k.group.as_deref().unwrap_or_default(),
                k.version.as_deref().unwrap_or_default(),
                k.kind.as_deref().unwrap_or_default(),
            )
        });
        let is_pod = kind == "Pod" && api_group.is_empty();
        let is_stateful_set = kind == "StatefulSet" && api_group == "apps";
        let subresource = request.sub_resource.is_some_and(|s| !s.is_empty());
        if subresource || operation == Operation::Other {
            return Ok(review);
        }
        let is_group = |r: &GroupResource| r.group == api_group && r.kind == kind;
        let same_version = |r: &GroupResource| is_group(r) && r.version == version;
        // An unknown version is decoded as the first known one.
        let kind = dialect::group_kinds().find(|kind| same_version(kind.resource()));
        if let Some(kind) = kind.or_else(|| dialect::group_kinds().find(|kind| is_group(kind.resource()))) {
            review.group = request.object.map(|object| kind.read(object.get()));
        }
        if is_stateful_set {
            let mut read = |set: Option<&'a RawValue>| {
                set.map(|set| read_stateful_set(set.get(), &mut review.namespace)).transpose()
            };
            let (set, old) = (read(request.object)?, read(request.old_object)?);
            (review.stateful_set, review.old_stateful_set) = (set, old);
        }
        if !is_pod {
            return Ok(review);
        }
        let Some(object) = request.object else {
            return Err(malformed(format!("request.object is missing from a {}", review.operation_text)));
        };
        let view = read_pod(object.get(), "request.object", &mut review.namespace)?;
        review.pod = Some(ReviewedPod { raw: object.get(), view });
        if operation == Operation::Update {
            let Some(old) = request.old_object else {
                return Err(malformed("request.oldObject is missing from an UPDATE".to_owned()));
            };
            review.old_pod = Some(read_pod(old.get(), "request.oldObject", &mut review.namespace)?);
        }
        Ok(review)
    }

    /// The display name of the object: its name, or `generateName` with a `*`.
    pub fn display_name(&self) -> String {
        let set = self.stateful_set.as_ref().map(|set| &set.metadata);
        let meta = self.pod.as_ref().map(|pod| &pod.view.metadata).or(set);
        match meta {
            Some(meta) if !meta.name.is_empty() => meta.name.to_string(),
            Some(meta) if self.name.is_empty() && !meta.generate_name.is_empty() => {
                format!("{}*", meta.generate_name)
            }
            _ => self.name.to_string(),
        }
    }
}

fn read_stateful_set<'a>(raw: &'a str, namespace: &mut Text<'a>) -> Result<StatefulSetView<'a>, ReviewError> {
    let mut view: StatefulSetView<'a> =
        serde_json::from_str(raw).map_err(|e| ReviewError::Malformed(format!("request.object: {e}")))?;
    if namespace.is_empty() {
        *namespace = view.metadata.namespace.clone();
    }
    view.spec.template.metadata.namespace = namespace.clone();
    Ok(view)
}

fn read_pod<'a>(raw: &'a str, place: &str, namespace: &mut Text<'a>) -> Result<PodView<'a>, ReviewError> {
    let mut view: PodView<'a> =
        serde_json::from_str(raw).map_err(|e| ReviewError::Malformed(format!("{place}: {e}")))?;
    if namespace.is_empty() {
        *namespace = view.metadata.namespace.clone();
    }
    view.metadata.namespace = namespace.clone();
    Ok(view)
}
