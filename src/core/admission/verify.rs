//! Verifies a patch before it is sent: applies it to the object, and reviews the result, which must need no
//! further patch.
//!
//! A patch that does not apply fails the user's request under any failure policy (the API server answers
//! 500). Only the fields that a patch can change are decoded here; the tests apply patches to whole objects.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Hook;
use super::ReviewError;
use super::decision::{Decision, decide};
use super::known_classes::KnownClasses;
use super::review::{AdmissionReview, ReviewedPod};
use super::settings::AdmissionSettings;
use crate::objects::view::PodView;

#[derive(Deserialize)]
struct PatchableObject {
    #[serde(default)]
    metadata: Option<PatchableMetadata>,
    #[serde(default)]
    spec: Option<PatchableSpec>,
}

macro_rules! parts {
    ($name:ident { $($field:ident : $json:literal),* $(,)? }) => {
        #[derive(Default, Deserialize)]
        struct $name { $(#[serde(default, rename = $json)] $field: Option<Value>,)* }

        impl $name {
            fn into_value(self) -> Value {
                let mut map = Map::new();
                $(if let Some(value) = self.$field { map.insert($json.to_owned(), value); })*
                Value::Object(map)
            }
        }
    };
}

parts!(PatchableMetadata {
    name: "name",
    generate_name: "generateName",
    namespace: "namespace",
    labels: "labels",
    annotations: "annotations",
});
parts!(PatchableContainer { name: "name", env: "env", resources: "resources" });
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PatchableSpec {
    containers: Option<Vec<PatchableContainer>>,
    init_containers: Option<Vec<PatchableContainer>>,
    scheduling_gates: Option<Value>,
    tolerations: Option<Value>,
    scheduler_name: Option<Value>,
    runtime_class_name: Option<Value>,
    resource_claims: Option<Value>,
}

impl PatchableSpec {
    fn into_value(self) -> Value {
        let list = |containers: Option<Vec<PatchableContainer>>| {
            containers
                .map(|list| Value::Array(list.into_iter().map(PatchableContainer::into_value).collect()))
        };
        let fields = [
            ("containers", list(self.containers)),
            ("initContainers", list(self.init_containers)),
            ("schedulingGates", self.scheduling_gates),
            ("tolerations", self.tolerations),
            ("schedulerName", self.scheduler_name),
            ("runtimeClassName", self.runtime_class_name),
            ("resourceClaims", self.resource_claims),
        ];
        let present = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(present.collect())
    }
}

fn reduced(raw: &str) -> Result<Value, String> {
    let object: PatchableObject = serde_json::from_str(raw).map_err(|e| e.to_string())?;
    let mut document = Map::new();
    document.insert("metadata".to_owned(), object.metadata.unwrap_or_default().into_value());
    document.insert("spec".to_owned(), object.spec.unwrap_or_default().into_value());
    Ok(Value::Object(document))
}

/// Applies the decision's patch and reviews the result.
///
/// # Errors
/// [`ReviewError::Unpatchable`], a bug of Portcullis: the patch does not apply, or the result would be
/// patched or denied.
pub(super) fn verify(
    settings: &AdmissionSettings,
    facts: &KnownClasses,
    review: &AdmissionReview<'_>,
    subject: &ReviewedPod<'_>,
    decision: &Decision,
) -> Result<(), ReviewError> {
    let fail = |problem: String| ReviewError::Unpatchable(problem);
    let mut document = reduced(subject.raw).map_err(fail)?;
    json_patch::patch(&mut document, &decision.patch).map_err(|e| fail(e.to_string()))?;
    let mut view = PodView::deserialize(&document).map_err(|e| fail(e.to_string()))?;
    view.metadata.namespace = review.namespace.clone();
    let again = AdmissionReview {
        uid: review.uid.clone(),
        operation: review.operation,
        operation_text: review.operation_text.clone(),
        namespace: review.namespace.clone(),
        name: review.name.clone(),
        dry_run: review.dry_run,
        pod: Some(ReviewedPod { raw: "", view }),
        stateful_set: None,
        old_stateful_set: None,
        old_pod: None,
        group: None,
    };
    let again = decide(settings, facts, Hook::Mutate, &again);
    if again.patch.is_empty() && again.causes.is_empty() {
        Ok(())
    } else {
        Err(fail("the patched pod would be patched or denied again".to_owned()))
    }
}
