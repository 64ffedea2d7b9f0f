//! Volcano: `scheduling.volcano.sh/v1beta1 PodGroup`; pods name theirs by an annotation, and their task in its job by another.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::group::{Source, minimum, number, text};
use super::{
    Declared, Dialect, GroupEvent, GroupKind, GroupNews, GroupResource, GroupStatus, Membership, Quorum,
    StatusDoor, Strength,
};
use crate::model::{DialectId, GangId, str};
use crate::objects::names;
use crate::objects::text::{Entries, Scalar, Text};
use crate::objects::view::PodView;

pub(super) struct Volcano;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Spec<'a> {
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

/// `minMember` of all, and `minTaskMember` of each task. Where the tasks together ask for more than the whole, Volcano
/// looks at the whole alone (its gang plugin, `CheckTaskValid`).
fn quorum(spec: &Spec<'_>) -> Result<Quorum, String> {
    let least = number(spec.min_member, "spec.minMember")?;
    let mut tasks = BTreeMap::new();
    for (name, raw) in spec.min_task_member.iter().flatten() {
        let field = format!("spec.minTaskMember[{}]", name.as_str());
        if let Some(count) = number(Some(raw), &field)?.filter(|count| *count > 0) {
            tasks.insert(str(name.as_str()), Quorum::Count(count));
        }
    }
    if tasks.is_empty() {
        return Ok(Quorum::Count(least.unwrap_or(1)));
    }
    let min = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
    let tasks = Quorum::Groups { min, children: tasks };
    let sum = tasks.least();
    Ok(match least.filter(|least| *least > 0) {
        Some(least) if least < sum => Quorum::Count(least),
        Some(least) if least > sum => Quorum::Total { least, quorum: Box::new(tasks) },
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
        &[GroupResource {
            group: names::VOLCANO_API_GROUP,
            version: "v1beta1",
            kind: "PodGroup",
            plural: "podgroups",
            status: StatusDoor::Object,
        }]
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let meta = &pod.metadata;
        let said = |text: Option<&str>| text.filter(|t| !t.is_empty()).map(str);
        let name = said(meta.annotations.text(names::VOLCANO_GROUP_ANNOTATION))?;
        let task = said(meta.annotations.text(names::VOLCANO_TASK_KEY))
            .or_else(|| said(meta.labels.text(names::VOLCANO_TASK_KEY)));
        Some(Membership {
            gang: GangId::new(DialectId::Volcano, meta.namespace.as_str(), name),
            role: task,
            declared: Declared::by(pod, None),
        })
    }

    /// Volcano's controller gives every pod of its scheduler a group, some time after it was made: `podgroup-`, a UID.
    fn strength(&self, gang: &GangId) -> Strength {
        let added = gang.name.starts_with("podgroup-") && super::ends_in_uid(&gang.name);
        if added { Strength::Added } else { Strength::Named }
    }

    fn read_group(&self, source: &mut Source<'_, '_>) -> Result<(), String> {
        let spec: Spec<'_> = source.spec()?;
        let quorum = quorum(&spec)?;
        let timeout = source.annotated_timeout(names::VOLCANO_WAITING_TIME);
        let name = source.key.name.clone();
        let group = source.say(&name, quorum);
        group.timeout = timeout;
        let (minimum, doubt) = minimum(&spec.min_resources);
        group.minimum = minimum;
        group.doubts.extend(doubt);
        group.priority_class = text(spec.priority_class_name.as_ref());
        group.queue = text(spec.queue.as_ref());
        Ok(())
    }

    fn status(&self, _: GroupKind, status: &GroupStatus) -> Option<Value> {
        Some(super::volcano_status::status(status))
    }

    fn event(&self, _: GroupKind, news: &GroupNews<'_>) -> Option<GroupEvent> {
        super::volcano_status::event(news)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_whole_and_its_tasks_make_the_quorum() {
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
                Ok(Quorum::Total { least: 5, quorum: Box::new(groups(&[("ps", 1), ("worker", 3)])) }),
            ),
            (json!({ "minMember": 2, "minTaskMember": { "ps": 1, "worker": 3 } }), Ok(Quorum::Count(2))),
            (
                json!({ "minTaskMember": { "ps": "1" } }),
                Err("spec.minTaskMember[ps] is \"1\", and has to be a whole number from 0 to 2147483647"
                    .to_owned()),
            ),
        ] {
            let text = spec.to_string();
            let read: Spec<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(quorum(&read), expected, "{spec}");
        }
    }
}
