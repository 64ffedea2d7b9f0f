//! KAI: `scheduling.run.ai/v2alpha2 PodGroup`; annotation `pod-group-name` and label `kai.scheduler/podgroup` as a pair.

use super::link::{LABEL_VALUE_LONGEST, Link, MetadataMap, Repair, is_label_value};
use super::{Dialect, Group, GroupResource, Membership, Quorum};
use crate::model::{DialectId, Finding, GangId, Rule, Time, quoted, str};
use crate::objects::text::Text;
use crate::objects::view::{Meta, PodView};
use crate::objects::{ReadError, names};

pub(super) struct Kai;

const ANNOTATION: (MetadataMap, &str) = (MetadataMap::Annotations, names::KAI_GROUP_ANNOTATION);
const LABEL: (MetadataMap, &str) = (MetadataMap::Labels, names::KAI_GROUP_LABEL);

/// The annotation is the link; without it KAI makes a group of its own for the pod, so the user is told.
fn annotation_from_label(label: &str, link: &mut Link) {
    let (map, key) = ANNOTATION;
    link.repairs.push(Repair { map, key, value: label.to_owned(), source: LABEL });
    link.warnings.push(format!("{key} was missing; set to {} from the label {}", quoted(label), LABEL.1));
}

/// The label only serves to select pods; a group whose name cannot be a label value goes without it.
fn label_from_annotation(annotation: &str, link: &mut Link) {
    let (map, key) = LABEL;
    if is_label_value(annotation) {
        link.repairs.push(Repair { map, key, value: annotation.to_owned(), source: ANNOTATION });
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
        rule: Rule::GroupsDiffer,
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

    fn group_resource(&self) -> Option<GroupResource> {
        Some(GroupResource {
            group: names::KAI_API_GROUP,
            version: "v2alpha2",
            kind: "PodGroup",
            plural: "podgroups",
        })
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
        })
    }

    fn read_group(&self, json: &str) -> Result<Group, ReadError> {
        #[derive(serde::Deserialize)]
        #[serde(bound(deserialize = "'de: 'a"))]
        struct View<'a> {
            #[serde(default)]
            metadata: Meta<'a>,
            #[serde(default)]
            spec: Spec<'a>,
        }
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
        struct Spec<'a> {
            min_member: Option<u32>,
            queue: Option<Text<'a>>,
            priority_class_name: Option<Text<'a>>,
        }
        let fail =
            |name: &str, problem: String| ReadError { kind: "PodGroup", name: name.to_owned(), problem };
        let view: View<'_> = serde_json::from_str(json).map_err(|e| fail("?", e.to_string()))?;
        let (meta, spec) = (view.metadata, view.spec);
        let text = |t: Option<Text<'_>>| t.filter(|t| !t.is_empty()).map(|t| str(t.as_str()));
        Ok(Group {
            gang: GangId::new(DialectId::Kai, meta.namespace.as_str(), meta.name.as_str()),
            uid: str(meta.uid.as_str()),
            created: Time::parse_rfc3339(&meta.creation_timestamp).unwrap_or_default(),
            quorum: Quorum::Count(spec.min_member.unwrap_or(1)),
            priority_class: text(spec.priority_class_name),
            queue: text(spec.queue),
        })
    }
}
