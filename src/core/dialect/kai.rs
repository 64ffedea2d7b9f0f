//! KAI: `scheduling.run.ai/v2alpha2 PodGroup`; annotation `pod-group-name` and label `kai.scheduler/podgroup` as a pair.

use super::{Dialect, Group, GroupResource, Membership, Quorum};
use crate::model::{DialectId, GangId, Time, str};
use crate::objects::text::Text;
use crate::objects::view::{Meta, PodView};
use crate::objects::{ReadError, names};

pub(super) struct Kai;

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
