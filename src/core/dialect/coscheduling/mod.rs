//! Coscheduling (scheduler-plugins): PodGroups. Pods name their group by a label.
//!
//! Old guides use another API group and other labels. Their labels also declare the number of members, so
//! that a gang needs no group object.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::dialect_trait::Dialect;
use super::group::{GroupKind, GroupResource, StatusWrite};
use super::group_reader::{
    GroupReader, invalid_member_count, non_empty, parse_member_count, read_count, read_min_resources,
    read_seconds,
};
use super::group_status::{GroupPhase, GroupStatus};
use super::membership::{Membership, PodDeclaration};
use super::membership_review::MembershipReview;
use super::quorum::Quorum;
use crate::model::{DialectId, Finding, FindingRule, GangId, Reason, quoted, str};
use crate::objects::names;
use crate::objects::text::{Entries, Scalar, Text};
use crate::objects::view::PodView;

pub(super) struct Coscheduling;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct CoschedulingSpec<'a> {
    #[serde(default, borrow)]
    min_member: Option<&'a RawValue>,
    #[serde(default)]
    min_resources: Entries<'a, Scalar<'a>>,
    #[serde(default, borrow)]
    schedule_timeout_seconds: Option<&'a RawValue>,
    /// Not in the definition, but in many guides.
    #[serde(default)]
    priority_class_name: Option<Text<'a>>,
}

/// The value of a label, where it is not empty.
fn label<'p>(pod: &'p PodView<'_>, key: &str) -> Option<&'p str> {
    pod.metadata.labels.non_empty(key)
}

const fn resource(group: &'static str) -> GroupResource {
    GroupResource::pod_groups(group, "v1alpha1", StatusWrite::Subresource)
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
        let min_members = label(pod, names::COSCHEDULING_OLD_MIN_LABEL).and_then(parse_member_count);
        Some(Membership {
            gang: GangId::new(DialectId::Coscheduling, pod.metadata.namespace.as_str(), name),
            role: label(pod, names::MPI_ROLE_LABEL).filter(|role| *role == names::MPI_LAUNCHER).map(str),
            declared: PodDeclaration::read(pod, min_members.map(Quorum::Count)),
        })
    }

    fn review(&self, pod: &PodView<'_>) -> MembershipReview {
        let mut review = MembershipReview { membership: self.membership(pod), ..MembershipReview::default() };
        let (new, old) = (label(pod, names::COSCHEDULING_LABEL), label(pod, names::COSCHEDULING_OLD_LABEL));
        if let (Some(new), Some(old)) = (new, old)
            && new != old
        {
            review.faults.push(Finding {
                field: format!("metadata.labels[{}]", names::COSCHEDULING_OLD_LABEL),
                value: old.to_owned(),
                rule: FindingRule::GroupsDiffer,
                message: format!(
                    "{} is not the group in the label {} ({}). Give both the name of one PodGroup, or remove one of them.",
                    quoted(old),
                    names::COSCHEDULING_LABEL,
                    quoted(new)
                ),
            });
        }
        if let Some(text) =
            label(pod, names::COSCHEDULING_OLD_MIN_LABEL).filter(|text| parse_member_count(text).is_none())
        {
            review.faults.push(Finding {
                field: format!("metadata.labels[{}]", names::COSCHEDULING_OLD_MIN_LABEL),
                value: text.to_owned(),
                rule: FindingRule::SizeValue,
                message: invalid_member_count(text),
            });
        }
        review
    }

    fn size_key(&self) -> Option<&'static str> {
        Some(names::COSCHEDULING_OLD_MIN_LABEL)
    }

    fn read_group(&self, reader: &mut GroupReader<'_, '_>) -> Result<(), String> {
        let spec: CoschedulingSpec<'_> = reader.spec()?;
        let min_members = read_count(spec.min_member, "spec.minMember")?.unwrap_or(1);
        let name = reader.key.name.clone();
        let group = reader.add_gang(&name, Quorum::Count(min_members));
        group.timeout = read_seconds(spec.schedule_timeout_seconds);
        let (min_resources, warning) = read_min_resources(&spec.min_resources);
        group.min_resources = min_resources;
        group.warnings.extend(warning);
        group.priority_class = non_empty(spec.priority_class_name.as_ref());
        Ok(())
    }

    /// The definition has `phase` and the counters. It does not have conditions: where the original
    /// definition is installed, the API server drops the condition, and events state the reason.
    fn status(&self, _: GroupKind, status: &GroupStatus) -> Option<Value> {
        let phase = match status.phase {
            GroupPhase::Gathering => "Pending",
            // The definition: the group was accepted, and the scheduler cannot allocate enough resources to
            // it.
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
    use crate::dialect::{membership, review_membership};

    const NEW: &str = names::COSCHEDULING_LABEL;
    const OLD: &str = names::COSCHEDULING_OLD_LABEL;
    const MIN: &str = names::COSCHEDULING_OLD_MIN_LABEL;

    #[test]
    fn only_the_launcher_has_a_role() {
        for (role, expected) in [("launcher", Some("launcher")), ("worker", None), ("", None)] {
            let labels = json!({ NEW: "g", names::MPI_ROLE_LABEL: role });
            let pod = json!({ "metadata": { "namespace": "ml", "labels": labels } }).to_string();
            let membership = membership(&serde_json::from_str(&pod).unwrap()).unwrap();
            assert_eq!(membership.role.as_deref(), expected, "{role}");
        }
    }

    #[test]
    fn current_and_old_labels_name_the_group() {
        let check = |labels: &Value, group: Option<&str>, min_members: Option<u32>, faults: &[&str]| {
            let pod = json!({ "metadata": { "namespace": "ml", "labels": labels } }).to_string();
            let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
            let review = review_membership(&view);
            assert_eq!(review.membership, membership(&view), "{labels}");
            assert_eq!(review.membership.as_ref().map(|m| &*m.gang.name), group, "{labels}");
            let declared = review.membership.and_then(|m| m.declared?.quorum);
            assert_eq!(declared, min_members.map(Quorum::Count), "{labels}");
            let found: Vec<_> = review.faults.iter().map(|f| format!("{}: {}", f.field, f.message)).collect();
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
                r#"metadata.labels[pod-group.scheduling.sigs.k8s.io/name]: "h" is not the group in the label scheduling.x-k8s.io/pod-group ("g"). Give both the name of one PodGroup, or remove one of them."#,
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
