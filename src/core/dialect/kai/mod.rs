//! KAI: `scheduling.run.ai/v2alpha2 PodGroup`. The annotation `pod-group-name` and the label
//! `kai.scheduler/podgroup` name it.

mod pod_group;
mod status;

use serde_json::Value;

use super::dialect_trait::Dialect;
use super::group::{GroupKind, GroupResource, StatusWrite};
use super::group_event::{GroupEvent, GroupEventContext};
use super::group_reader::GroupReader;
use super::group_status::GroupStatus;
use super::membership::{LinkStrength, Membership, PodDeclaration, ends_in_uid};
use super::membership_review::{
    MAX_LABEL_VALUE_BYTES, MembershipReview, MetadataMap, MetadataRepair, is_label_value,
};
use crate::model::{DialectId, Finding, FindingRule, GangId, quoted, str};
use crate::objects::names;
use crate::objects::view::PodView;

pub(super) struct Kai;

const ANNOTATION: (MetadataMap, &str) = (MetadataMap::Annotations, names::KAI_GROUP_ANNOTATION);
const LABEL: (MetadataMap, &str) = (MetadataMap::Labels, names::KAI_GROUP_LABEL);

/// KAI reads the annotation. Without it KAI creates another group for the pod, so the user gets a warning.
fn annotation_from_label(label: &str, review: &mut MembershipReview) {
    let (map, key) = ANNOTATION;
    review.repairs.push(MetadataRepair { map, key, value: label.to_owned(), source: Some(LABEL) });
    review.warnings.push(format!("{key} was missing; set to {} from the label {}", quoted(label), LABEL.1));
}

/// The label only serves to select pods. It is left out where the name of the group is not a legal label
/// value.
fn label_from_annotation(annotation: &str, review: &mut MembershipReview) {
    let (map, key) = LABEL;
    if is_label_value(annotation) {
        review.repairs.push(MetadataRepair {
            map,
            key,
            value: annotation.to_owned(),
            source: Some(ANNOTATION),
        });
        return;
    }
    let length = annotation.chars().count();
    review.warnings.push(if length > MAX_LABEL_VALUE_BYTES {
        format!(
            "label {key} was not set: {} has {length} characters, a label value at most {MAX_LABEL_VALUE_BYTES}",
            ANNOTATION.1
        )
    } else {
        format!("label {key} was not set: the value of {} has characters a label cannot hold", ANNOTATION.1)
    });
}

fn groups_differ(annotation: &str, label: &str) -> Finding {
    let (label_key, annotation_key) = (LABEL.1, ANNOTATION.1);
    let near = crate::model::closest(label, std::iter::once(annotation)).is_some();
    let suggestion = if near { format!("Did you mean {}? ", quoted(annotation)) } else { String::new() };
    Finding {
        field: format!("metadata.labels[{label_key}]"),
        value: label.to_owned(),
        rule: FindingRule::GroupsDiffer,
        message: format!(
            "{} is not the group in the annotation {annotation_key} ({}). {suggestion}Give both the name of one PodGroup, \
             or remove one of them: the other is then filled in.",
            quoted(label),
            quoted(annotation)
        ),
    }
}

impl Dialect for Kai {
    fn id(&self) -> DialectId {
        DialectId::Kai
    }

    fn field(&self) -> &'static str {
        "metadata.annotations[pod-group-name]"
    }

    fn role_field(&self) -> &'static str {
        "metadata.labels[kai.scheduler/subgroup-name]"
    }

    fn group_resources(&self) -> &'static [GroupResource] {
        const { &[GroupResource::pod_groups(names::KAI_API_GROUP, "v2alpha2", StatusWrite::Subresource)] }
    }

    fn review(&self, pod: &PodView<'_>) -> MembershipReview {
        let meta = &pod.metadata;
        let annotation = meta.annotations.non_empty(names::KAI_GROUP_ANNOTATION);
        let label = meta.labels.non_empty(names::KAI_GROUP_LABEL);
        let mut review = MembershipReview::default();
        match (annotation, label) {
            (None, None) => return review,
            (Some(annotation), None) => label_from_annotation(annotation, &mut review),
            (None, Some(label)) => annotation_from_label(label, &mut review),
            (Some(annotation), Some(label)) if annotation != label => {
                review.faults.push(groups_differ(annotation, label));
            }
            (Some(_), Some(_)) => {}
        }
        review.membership = self.membership(pod);
        review
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let meta = &pod.metadata;
        let annotation = meta.annotations.non_empty(names::KAI_GROUP_ANNOTATION);
        let name = annotation.or_else(|| meta.labels.non_empty(names::KAI_GROUP_LABEL))?;
        Some(Membership {
            gang: GangId::new(DialectId::Kai, meta.namespace.as_str(), name),
            role: meta.labels.non_empty(names::KAI_SUBGROUP_LABEL).map(str),
            declared: PodDeclaration::read(pod, None),
        })
    }

    /// KAI's pod-grouper creates a group for every pod of its scheduler, after the pod was created. Its name
    /// is `pg-`, the owner, and the UID of the owner.
    fn link_strength(&self, gang: &GangId) -> LinkStrength {
        if gang.name.starts_with("pg-") && ends_in_uid(&gang.name) {
            LinkStrength::Generated
        } else {
            LinkStrength::Explicit
        }
    }

    fn read_group(&self, reader: &mut GroupReader<'_, '_>) -> Result<(), String> {
        pod_group::read(reader)
    }

    fn status(&self, _: GroupKind, status: &GroupStatus) -> Option<Value> {
        Some(status::status(status))
    }

    fn event(&self, _: GroupKind, context: &GroupEventContext<'_>) -> Option<GroupEvent> {
        status::event(context)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::{membership, review_membership};

    const A: &str = names::KAI_GROUP_ANNOTATION;
    const L: &str = names::KAI_GROUP_LABEL;

    #[expect(clippy::needless_pass_by_value, reason = "tables read better with json!() than with &json!()")]
    fn check(
        annotations: Value,
        labels: Value,
        group: Option<&str>,
        repair: Option<(&str, &str)>,
        messages: &[&str],
    ) {
        let metadata = json!({ "namespace": "ml", "annotations": annotations, "labels": labels });
        let pod = json!({ "metadata": metadata }).to_string();
        let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
        let review = review_membership(&view);
        let gang = group.map(|name| GangId::new(DialectId::Kai, "ml", name));
        assert_eq!(review.membership.as_ref().map(|m| &m.gang), gang.as_ref(), "{pod}");
        assert_eq!(review.membership, membership(&view), "{pod}");
        let repairs: Vec<_> = review.repairs.iter().map(|r| (r.key, r.value.as_str())).collect();
        assert_eq!(repairs, Vec::from_iter(repair), "{pod}");
        let faults = review.faults.iter().map(|f| &f.message);
        let found: Vec<_> = review.warnings.iter().chain(faults).map(String::as_str).collect();
        assert_eq!(found, messages, "{pod}");
    }

    #[test]
    fn annotation_and_label_complete_each_other() {
        let long = "g".repeat(64);
        check(json!({ A: "app" }), json!({}), Some("app"), Some((L, "app")), &[]);
        check(
            json!(null),
            json!({ L: "app-with-models" }),
            Some("app-with-models"),
            Some((A, "app-with-models")),
            &[
                r#"pod-group-name was missing; set to "app-with-models" from the label kai.scheduler/podgroup"#,
            ],
        );
        check(json!({ A: "app" }), json!({ L: "app" }), Some("app"), None, &[]);
        check(
            json!({ A: "app-with-models" }),
            json!({ L: "app-with-model" }),
            Some("app-with-models"),
            None,
            &[
                r#""app-with-model" is not the group in the annotation pod-group-name ("app-with-models"). Did you mean "app-with-models"? Give both the name of one PodGroup, or remove one of them: the other is then filled in."#,
            ],
        );
        check(
            json!({ A: "training" }),
            json!({ L: "serving" }),
            Some("training"),
            None,
            &[
                r#""serving" is not the group in the annotation pod-group-name ("training"). Give both the name of one PodGroup, or remove one of them: the other is then filled in."#,
            ],
        );
        check(json!({}), json!({ "app": "x" }), None, None, &[]);
        check(json!({ A: "" }), json!({ L: "" }), None, None, &[]);
        check(
            json!({ A: "" }),
            json!({ L: "app" }),
            Some("app"),
            Some((A, "app")),
            &[r#"pod-group-name was missing; set to "app" from the label kai.scheduler/podgroup"#],
        );
        check(json!({ A: "app" }), json!({ L: "" }), Some("app"), Some((L, "app")), &[]);
        check(
            json!({ A: long }),
            json!({}),
            Some(&long),
            None,
            &[
                "label kai.scheduler/podgroup was not set: pod-group-name has 64 characters, a label value at most 63",
            ],
        );
        check(
            json!({ A: "app." }),
            json!({}),
            Some("app."),
            None,
            &[
                "label kai.scheduler/podgroup was not set: the value of pod-group-name has characters a label cannot hold",
            ],
        );
    }

    #[test]
    fn the_subgroup_label_is_the_role() {
        let role = |labels: Value| {
            let pod = json!({ "metadata": { "annotations": { A: "app" }, "labels": labels } }).to_string();
            let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
            review_membership(&view).membership.unwrap().role.map(|r| r.to_string())
        };
        assert_eq!(role(json!({ names::KAI_SUBGROUP_LABEL: "workers" })).as_deref(), Some("workers"));
        assert_eq!(role(json!({ names::KAI_SUBGROUP_LABEL: "" })), None);
        assert_eq!(role(json!({})), None);
    }
}
