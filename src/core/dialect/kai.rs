//! KAI: `scheduling.run.ai/v2alpha2 PodGroup`; annotation `pod-group-name` and label `kai.scheduler/podgroup` as a pair.

use serde_json::Value;

use super::group::Source;
use super::link::{LABEL_VALUE_LONGEST, Link, MetadataMap, Repair, is_label_value};
use super::{
    Declared, Dialect, GroupEvent, GroupKind, GroupNews, GroupResource, GroupStatus, Membership, StatusDoor,
    Strength,
};
use crate::model::{DialectId, Finding, FindingRule, GangId, quoted, str};
use crate::objects::names;
use crate::objects::view::PodView;

pub(super) struct Kai;

const ANNOTATION: (MetadataMap, &str) = (MetadataMap::Annotations, names::KAI_GROUP_ANNOTATION);
const LABEL: (MetadataMap, &str) = (MetadataMap::Labels, names::KAI_GROUP_LABEL);

/// The annotation is the link; without it KAI makes a group of its own for the pod, so the user is told.
fn annotation_from_label(label: &str, link: &mut Link) {
    let (map, key) = ANNOTATION;
    link.repairs.push(Repair { map, key, value: label.to_owned(), source: Some(LABEL) });
    link.warnings.push(format!("{key} was missing; set to {} from the label {}", quoted(label), LABEL.1));
}

/// The label only serves to select pods; a group whose name cannot be a label value goes without it.
fn label_from_annotation(annotation: &str, link: &mut Link) {
    let (map, key) = LABEL;
    if is_label_value(annotation) {
        link.repairs.push(Repair { map, key, value: annotation.to_owned(), source: Some(ANNOTATION) });
        return;
    }
    let length = annotation.chars().count();
    link.warnings.push(if length > LABEL_VALUE_LONGEST {
        format!(
            "label {key} was not set: {} has {length} characters, a label value at most {LABEL_VALUE_LONGEST}",
            ANNOTATION.1
        )
    } else {
        format!("label {key} was not set: the value of {} has characters a label cannot hold", ANNOTATION.1)
    });
}

fn groups_differ(annotation: &str, label: &str) -> Finding {
    let (label_key, annotation_key) = (LABEL.1, ANNOTATION.1);
    let near = crate::model::closest(label, std::iter::once(annotation)).is_some();
    let mend = if near { format!("Did you mean {}? ", quoted(annotation)) } else { String::new() };
    Finding {
        field: format!("metadata.labels[{label_key}]"),
        value: label.to_owned(),
        rule: FindingRule::GroupsDiffer,
        message: format!(
            "{} is not the group that the annotation {annotation_key} says ({}). {mend}Give both the name of one PodGroup, \
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
        &[GroupResource {
            group: names::KAI_API_GROUP,
            version: "v2alpha2",
            kind: "PodGroup",
            plural: "podgroups",
            status: StatusDoor::Subresource,
        }]
    }

    fn link(&self, pod: &PodView<'_>) -> Link {
        let meta = &pod.metadata;
        let annotation = meta.annotations.text(names::KAI_GROUP_ANNOTATION).filter(|t| !t.is_empty());
        let label = meta.labels.text(names::KAI_GROUP_LABEL).filter(|t| !t.is_empty());
        let mut link = Link::default();
        match (annotation, label) {
            (None, None) => return link,
            (Some(annotation), None) => label_from_annotation(annotation, &mut link),
            (None, Some(label)) => annotation_from_label(label, &mut link),
            (Some(annotation), Some(label)) if annotation != label => {
                link.faults.push(groups_differ(annotation, label));
            }
            (Some(_), Some(_)) => {}
        }
        link.membership = self.membership(pod);
        link
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let meta = &pod.metadata;
        let named = |text: Option<&str>| text.filter(|t| !t.is_empty()).map(str);
        let name = named(meta.annotations.text(names::KAI_GROUP_ANNOTATION))
            .or_else(|| named(meta.labels.text(names::KAI_GROUP_LABEL)))?;
        Some(Membership {
            gang: GangId::new(DialectId::Kai, meta.namespace.as_str(), name),
            role: named(meta.labels.text(names::KAI_SUBGROUP_LABEL)),
            declared: Declared::by(pod, None),
        })
    }

    /// KAI's pod-grouper gives every pod of its scheduler a group, some time after it was made: `pg-`, the owner, its UID.
    fn strength(&self, gang: &GangId) -> Strength {
        if gang.name.starts_with("pg-") && super::ends_in_uid(&gang.name) {
            Strength::Added
        } else {
            Strength::Named
        }
    }

    fn read_group(&self, source: &mut Source<'_, '_>) -> Result<(), String> {
        super::kai_group::read(source)
    }

    fn status(&self, _: GroupKind, status: &GroupStatus) -> Option<Value> {
        Some(super::kai_status::status(status))
    }

    fn event(&self, _: GroupKind, news: &GroupNews<'_>) -> Option<GroupEvent> {
        super::kai_status::event(news)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::{link, membership};

    const A: &str = names::KAI_GROUP_ANNOTATION;
    const L: &str = names::KAI_GROUP_LABEL;

    #[expect(clippy::needless_pass_by_value, reason = "tables read better with json!() than with &json!()")]
    fn check(
        annotations: Value,
        labels: Value,
        group: Option<&str>,
        repair: Option<(&str, &str)>,
        said: &[&str],
    ) {
        let metadata = json!({ "namespace": "ml", "annotations": annotations, "labels": labels });
        let pod = json!({ "metadata": metadata }).to_string();
        let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
        let made = link(&view);
        let gang = group.map(|name| GangId::new(DialectId::Kai, "ml", name));
        assert_eq!(made.membership.as_ref().map(|m| &m.gang), gang.as_ref(), "{pod}");
        assert_eq!(made.membership, membership(&view), "{pod}");
        let repairs: Vec<_> = made.repairs.iter().map(|r| (r.key, r.value.as_str())).collect();
        assert_eq!(repairs, Vec::from_iter(repair), "{pod}");
        let faults = made.faults.iter().map(|f| &f.message);
        let messages: Vec<_> = made.warnings.iter().chain(faults).map(String::as_str).collect();
        assert_eq!(messages, said, "{pod}");
    }

    #[test]
    fn annotation_and_label_are_a_pair() {
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
                r#""app-with-model" is not the group that the annotation pod-group-name says ("app-with-models"). Did you mean "app-with-models"? Give both the name of one PodGroup, or remove one of them: the other is then filled in."#,
            ],
        );
        check(
            json!({ A: "training" }),
            json!({ L: "serving" }),
            Some("training"),
            None,
            &[
                r#""serving" is not the group that the annotation pod-group-name says ("training"). Give both the name of one PodGroup, or remove one of them: the other is then filled in."#,
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
            link(&view).membership.unwrap().role.map(|r| r.to_string())
        };
        assert_eq!(role(json!({ names::KAI_SUBGROUP_LABEL: "workers" })).as_deref(), Some("workers"));
        assert_eq!(role(json!({ names::KAI_SUBGROUP_LABEL: "" })), None);
        assert_eq!(role(json!({})), None);
    }
}
