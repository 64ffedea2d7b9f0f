//! Volcano: `scheduling.volcano.sh/v1beta1 PodGroup`. Pods name their group and their task by annotations.

mod status;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::dialect_trait::Dialect;
use super::group::{GroupKind, GroupResource, StatusWrite};
use super::group_event::{GroupEvent, GroupEventContext};
use super::group_reader::{GroupReader, non_empty, read_count, read_min_resources};
use super::group_status::GroupStatus;
use super::membership::{LinkStrength, Membership, PodDeclaration, ends_in_uid};
use super::quorum::Quorum;
use crate::model::{DialectId, GangId, str};
use crate::objects::names;
use crate::objects::text::{Entries, Scalar, Text};
use crate::objects::view::PodView;

pub(super) struct Volcano;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct VolcanoSpec<'a> {
    #[serde(default, borrow)]
    min_member: Option<&'a RawValue>,
    #[serde(default)]
    min_resources: Entries<'a, Scalar<'a>>,
    #[serde(default, borrow)]
    min_task_member: Option<BTreeMap<Text<'a>, &'a RawValue>>,
    #[serde(default)]
    queue: Option<Text<'a>>,
    #[serde(default)]
    priority_class_name: Option<Text<'a>>,
}

/// The quorum: `minMember` members in total, and `minTaskMember` of each task. Where the sum of the tasks is
/// larger than `minMember`, only `minMember` counts, as in Volcano's gang plugin (`CheckTaskValid`).
fn quorum(spec: &VolcanoSpec<'_>) -> Result<Quorum, String> {
    let min_members = read_count(spec.min_member, "spec.minMember")?;
    let mut tasks = BTreeMap::new();
    for (name, raw) in spec.min_task_member.iter().flatten() {
        let field = format!("spec.minTaskMember[{}]", name.as_str());
        if let Some(count) = read_count(Some(raw), &field)?.filter(|count| *count > 0) {
            tasks.insert(str(name.as_str()), Quorum::Count(count));
        }
    }
    if tasks.is_empty() {
        return Ok(Quorum::Count(min_members.unwrap_or(1)));
    }
    let min = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
    let tasks = Quorum::Groups { min, children: tasks };
    let sum = tasks.min_members();
    Ok(match min_members.filter(|min_members| *min_members > 0) {
        Some(min_members) if min_members < sum => Quorum::Count(min_members),
        Some(min_members) if min_members > sum => Quorum::Total { min_members, quorum: Box::new(tasks) },
        _ => tasks,
    })
}

impl Dialect for Volcano {
    fn id(&self) -> DialectId {
        DialectId::Volcano
    }

    fn field(&self) -> &'static str {
        "metadata.annotations[scheduling.k8s.io/group-name]"
    }

    fn role_field(&self) -> &'static str {
        "metadata.annotations[volcano.sh/task-spec]"
    }

    fn group_resources(&self) -> &'static [GroupResource] {
        const { &[GroupResource::pod_groups(names::VOLCANO_API_GROUP, "v1beta1", StatusWrite::Object)] }
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let meta = &pod.metadata;
        let name = meta.annotations.non_empty(names::VOLCANO_GROUP_ANNOTATION)?;
        let task = meta.annotations.non_empty(names::VOLCANO_TASK_KEY);
        let task = task.or_else(|| meta.labels.non_empty(names::VOLCANO_TASK_KEY));
        Some(Membership {
            gang: GangId::new(DialectId::Volcano, meta.namespace.as_str(), name),
            role: task.map(str),
            declared: PodDeclaration::read(pod, None),
        })
    }

    /// Volcano's controller creates a group for every pod of its scheduler, after the pod was created. Its
    /// name is `podgroup-` and a UID.
    fn link_strength(&self, gang: &GangId) -> LinkStrength {
        let generated = gang.name.starts_with("podgroup-") && ends_in_uid(&gang.name);
        if generated { LinkStrength::Generated } else { LinkStrength::Explicit }
    }

    fn read_group(&self, reader: &mut GroupReader<'_, '_>) -> Result<(), String> {
        let spec: VolcanoSpec<'_> = reader.spec()?;
        let quorum = quorum(&spec)?;
        let timeout = reader.timeout_annotation(names::VOLCANO_WAITING_TIME);
        let name = reader.key.name.clone();
        let group = reader.add_gang(&name, quorum);
        group.timeout = timeout;
        let (min_resources, warning) = read_min_resources(&spec.min_resources);
        group.min_resources = min_resources;
        group.warnings.extend(warning);
        group.priority_class = non_empty(spec.priority_class_name.as_ref());
        group.queue = non_empty(spec.queue.as_ref());
        Ok(())
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

    #[test]
    fn min_member_and_tasks_make_the_quorum() {
        let groups = |tasks: &[(&str, u32)]| {
            let children = tasks.iter().map(|(name, count)| (str(name), Quorum::Count(*count))).collect();
            Quorum::Groups { min: u32::try_from(tasks.len()).unwrap(), children }
        };
        for (spec, expected) in [
            (json!({}), Ok(Quorum::Count(1))),
            (json!({ "minMember": 0 }), Ok(Quorum::Count(0))),
            (json!({ "minMember": 4 }), Ok(Quorum::Count(4))),
            (json!({ "minMember": 4, "minTaskMember": {} }), Ok(Quorum::Count(4))),
            (json!({ "minTaskMember": { "ps": 1, "worker": 3 } }), Ok(groups(&[("ps", 1), ("worker", 3)]))),
            (
                json!({ "minMember": 4, "minTaskMember": { "ps": 1, "worker": 3, "idle": 0 } }),
                Ok(groups(&[("ps", 1), ("worker", 3)])),
            ),
            (
                json!({ "minMember": 5, "minTaskMember": { "ps": 1, "worker": 3 } }),
                Ok(Quorum::Total { min_members: 5, quorum: Box::new(groups(&[("ps", 1), ("worker", 3)])) }),
            ),
            (json!({ "minMember": 2, "minTaskMember": { "ps": 1, "worker": 3 } }), Ok(Quorum::Count(2))),
            (
                json!({ "minTaskMember": { "ps": "1" } }),
                Err("spec.minTaskMember[ps] is \"1\"; it must be a whole number from 0 to 2147483647"
                    .to_owned()),
            ),
        ] {
            let text = spec.to_string();
            let read: VolcanoSpec<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(quorum(&read), expected, "{spec}");
        }
    }
}
