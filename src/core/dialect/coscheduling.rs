//! Coscheduling (scheduler-plugins): PodGroups, and pods that name theirs by a label.
//!
//! Old guides use another API group and other labels, which also say how many members it takes: then a gang needs no
//! group object.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::group::{Source, count, minimum, no_count, number, seconds, text};
use super::{
    Declared, Dialect, GroupKind, GroupPhase, GroupResource, GroupStatus, Link, Membership, Quorum,
    StatusDoor,
};
use crate::model::{DialectId, Finding, FindingRule, GangId, Reason, quoted, str};
use crate::objects::names;
use crate::objects::text::{Entries, Scalar, Text};
use crate::objects::view::PodView;

pub(super) struct Coscheduling;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Spec<'a> {
    #[serde(default, borrow)]
    min_member: Option<&'a RawValue>,
    #[serde(default)]
    min_resources: Entries<'a, Scalar<'a>>,
    #[serde(default, borrow)]
    schedule_timeout_seconds: Option<&'a RawValue>,
    /// Not in its definition, but in many guides.
    #[serde(default)]
    priority_class_name: Option<Text<'a>>,
}

/// A label that says something.
fn label<'p>(pod: &'p PodView<'_>, key: &str) -> Option<&'p str> {
    pod.metadata.labels.text(key).filter(|text| !text.is_empty())
}

const fn resource(group: &'static str) -> GroupResource {
    GroupResource {
        group,
        version: "v1alpha1",
        kind: "PodGroup",
        plural: "podgroups",
        status: StatusDoor::Subresource,
    }
}

impl Dialect for Coscheduling {
    fn id(&self) -> DialectId {
        DialectId::Coscheduling
    }

    fn field(&self) -> &'static str {
        "metadata.labels[scheduling.x-k8s.io/pod-group]"
    }

    fn role_field(&self) -> &'static str {
        "metadata.labels[training.kubeflow.org/job-role]"
    }

    fn group_resources(&self) -> &'static [GroupResource] {
        const { &[resource(names::COSCHEDULING_API_GROUP), resource(names::COSCHEDULING_OLD_API_GROUP)] }
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let name =
            label(pod, names::COSCHEDULING_LABEL).or_else(|| label(pod, names::COSCHEDULING_OLD_LABEL))?;
        let least = label(pod, names::COSCHEDULING_OLD_MIN_LABEL).and_then(count);
        Some(Membership {
            gang: GangId::new(DialectId::Coscheduling, pod.metadata.namespace.as_str(), name),
            role: label(pod, names::MPI_ROLE_LABEL).filter(|role| *role == names::MPI_LAUNCHER).map(str),
            declared: Declared::by(pod, least.map(Quorum::Count)),
        })
    }

    fn link(&self, pod: &PodView<'_>) -> Link {
        let mut link = Link { membership: self.membership(pod), ..Link::default() };
        let (new, old) = (label(pod, names::COSCHEDULING_LABEL), label(pod, names::COSCHEDULING_OLD_LABEL));
        if let (Some(new), Some(old)) = (new, old)
            && new != old
        {
            link.faults.push(Finding {
                field: format!("metadata.labels[{}]", names::COSCHEDULING_OLD_LABEL),
                value: old.to_owned(),
                rule: FindingRule::GroupsDiffer,
                message: format!(
                    "{} is not the group that the label {} says ({}). Give both the name of one PodGroup, or remove one of them.",
                    quoted(old),
                    names::COSCHEDULING_LABEL,
                    quoted(new)
                ),
            });
        }
        if let Some(least) =
            label(pod, names::COSCHEDULING_OLD_MIN_LABEL).filter(|text| count(text).is_none())
        {
            link.faults.push(Finding {
                field: format!("metadata.labels[{}]", names::COSCHEDULING_OLD_MIN_LABEL),
                value: least.to_owned(),
                rule: FindingRule::SizeValue,
                message: no_count(least),
            });
        }
        link
    }

    fn declares_by(&self) -> Option<&'static str> {
        Some(names::COSCHEDULING_OLD_MIN_LABEL)
    }

    fn read_group(&self, source: &mut Source<'_, '_>) -> Result<(), String> {
        let spec: Spec<'_> = source.spec()?;
        let least = number(spec.min_member, "spec.minMember")?.unwrap_or(1);
        let name = source.key.name.clone();
        let group = source.say(&name, Quorum::Count(least));
        group.timeout = seconds(spec.schedule_timeout_seconds);
        let (minimum, doubt) = minimum(&spec.min_resources);
        group.minimum = minimum;
        group.doubts.extend(doubt);
        group.priority_class = text(spec.priority_class_name.as_ref());
        Ok(())
    }

    /// `phase` and the counters are what its definition has. The condition is not in it, and dropped where the original is
    /// installed: there events tell why.
    fn status(&self, _: GroupKind, status: &GroupStatus) -> Option<Value> {
        let phase = match status.phase {
            GroupPhase::Gathering => "Pending",
            // By its definition: accepted, and the scheduler cannot allocate enough resources to it.
            GroupPhase::Waiting if status.reason == Reason::SchedulingTimeout.as_str() => "Pending",
            GroupPhase::Waiting | GroupPhase::Starting => "Scheduling",
            GroupPhase::Running => "Running",
            GroupPhase::Finished => "Finished",
            GroupPhase::Torn => "Unknown",
        };
        let (kind, holds) = match status.phase {
            GroupPhase::Gathering | GroupPhase::Waiting | GroupPhase::Torn => ("Unschedulable", "True"),
            GroupPhase::Starting => ("Scheduled", "False"),
            GroupPhase::Running | GroupPhase::Finished => ("Scheduled", "True"),
        };
        Some(json!({
            "phase": phase,
            "scheduled": status.scheduled,
            "running": status.running,
            "succeeded": status.succeeded,
            "failed": status.failed,
            "conditions": [status.condition(kind, holds)],
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{link, membership};

    const NEW: &str = names::COSCHEDULING_LABEL;
    const OLD: &str = names::COSCHEDULING_OLD_LABEL;
    const MIN: &str = names::COSCHEDULING_OLD_MIN_LABEL;

    #[test]
    fn a_launcher_is_told_from_workers() {
        for (role, expected) in [("launcher", Some("launcher")), ("worker", None), ("", None)] {
            let labels = json!({ NEW: "g", names::MPI_ROLE_LABEL: role });
            let pod = json!({ "metadata": { "namespace": "ml", "labels": labels } }).to_string();
            let membership = membership(&serde_json::from_str(&pod).unwrap()).unwrap();
            assert_eq!(membership.role.as_deref(), expected, "{role}");
        }
    }

    #[test]
    fn labels_of_today_and_of_old_guides_name_the_group() {
        let check = |labels: &Value, group: Option<&str>, least: Option<u32>, faults: &[&str]| {
            let pod = json!({ "metadata": { "namespace": "ml", "labels": labels } }).to_string();
            let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
            let made = link(&view);
            assert_eq!(made.membership, membership(&view), "{labels}");
            assert_eq!(made.membership.as_ref().map(|m| &*m.gang.name), group, "{labels}");
            let declared = made.membership.and_then(|m| m.declared?.quorum);
            assert_eq!(declared, least.map(Quorum::Count), "{labels}");
            let found: Vec<_> = made.faults.iter().map(|f| format!("{}: {}", f.field, f.message)).collect();
            assert_eq!(found, faults, "{labels}");
        };
        check(&json!({}), None, None, &[]);
        check(&json!({ NEW: "" }), None, None, &[]);
        check(&json!({ MIN: "4" }), None, None, &[]);
        check(&json!({ NEW: "g" }), Some("g"), None, &[]);
        check(&json!({ OLD: "g" }), Some("g"), None, &[]);
        check(&json!({ OLD: "g", MIN: "4" }), Some("g"), Some(4), &[]);
        check(&json!({ NEW: "g", OLD: "g", MIN: "4" }), Some("g"), Some(4), &[]);
        check(
            &json!({ NEW: "g", OLD: "h" }),
            Some("g"),
            None,
            &[
                r#"metadata.labels[pod-group.scheduling.sigs.k8s.io/name]: "h" is not the group that the label scheduling.x-k8s.io/pod-group says ("g"). Give both the name of one PodGroup, or remove one of them."#,
            ],
        );
        for bad in ["0", "-1", "four", "4.0", "2147483648"] {
            check(
                &json!({ OLD: "g", MIN: bad }),
                Some("g"),
                None,
                &[&format!(
                    "metadata.labels[pod-group.scheduling.sigs.k8s.io/min-available]: {bad:?} is not a number of members. Write a whole number of at least 1, in quotes."
                )],
            );
        }
    }
}
