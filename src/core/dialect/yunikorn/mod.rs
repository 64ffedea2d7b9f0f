//! YuniKorn: no group object. The first pod of an application has all task groups in an annotation, as JSON.
//! Each member names its own task group.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::dialect_trait::Dialect;
use super::duration;
use super::future_members::{FutureMembers, is_ordered, shape_of_parts};
use super::membership::{Membership, PodDeclaration};
use super::membership_review::MembershipReview;
use super::quorum::Quorum;
use crate::model::{DialectId, Finding, FindingRule, GangId, Str, quoted, str};
use crate::objects::names;
use crate::objects::view::PodView;

pub(super) struct Yunikorn;

/// The application, by the keys that YuniKorn reads, in its order.
fn application<'p>(pod: &'p PodView<'_>) -> Option<&'p str> {
    let meta = &pod.metadata;
    let label = |key: &str| meta.labels.non_empty(key);
    label(names::YUNIKORN_APP_ID)
        .or_else(|| meta.annotations.non_empty(names::YUNIKORN_APP_ID))
        .or_else(|| label(names::YUNIKORN_OLD_APP_ID))
        .or_else(|| label(names::SPARK_APP_SELECTOR))
}

/// The quorum: every task group with its `minMember`.
fn task_groups(text: &str) -> Result<Quorum, String> {
    let groups: Vec<Value> =
        serde_json::from_str(text).map_err(|e| format!("it is not a JSON list of task groups: {e}"))?;
    let mut children: BTreeMap<Str, Quorum> = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        let field = |wanted: &str| field(group, wanted);
        let name = field("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| format!("[{index}].name is missing"))?;
        let min_members = field("minMember").ok_or_else(|| format!("[{index}].minMember is missing"))?;
        let min_members = min_members
            .as_i64()
            .and_then(|min_members| i32::try_from(min_members).ok())
            .and_then(|n| u32::try_from(n).ok());
        let min_members = min_members
            .ok_or_else(|| format!("[{index}].minMember must be a whole number from 0 to {}", i32::MAX))?;
        if children.insert(str(name), Quorum::Count(min_members)).is_some() {
            return Err(format!("[{index}].name: task group {} is defined twice", quoted(name)));
        }
    }
    if children.is_empty() {
        return Err("it is an empty list".to_owned());
    }
    let min = u32::try_from(children.len()).unwrap_or(u32::MAX);
    Ok(Quorum::Groups { min, children })
}

/// The shapes of all task groups, where the first pod creates the other members when it runs: a Spark driver,
/// or an ordered pod. `None` where a task group does not state its requests.
fn future_members(pod: &PodView<'_>, text: &str) -> Option<FutureMembers> {
    let driver = pod.metadata.labels.text(names::SPARK_ROLE_LABEL) == Some(names::SPARK_DRIVER);
    if !driver && !is_ordered(pod) {
        return None;
    }
    let groups: Vec<Value> = serde_json::from_str(text).ok()?;
    let mut roles = BTreeMap::new();
    for group in &groups {
        let requests = field(group, "minResource")?;
        let spec = ["nodeSelector", "tolerations", "affinity"];
        let spec = spec.into_iter().filter_map(|name| Some((name, field(group, name)?))).collect();
        let name = field(group, "name")?.as_str()?;
        roles.insert(str(name), shape_of_parts(requests, &spec).ok()?);
    }
    Some(FutureMembers::Roles(roles))
}

/// A field of a task group. Keys are compared without case, as in YuniKorn.
fn field<'v>(group: &'v Value, wanted: &str) -> Option<&'v Value> {
    let mut fields = group.as_object().into_iter().flatten();
    fields.find(|(key, value)| key.eq_ignore_ascii_case(wanted) && !value.is_null()).map(|(_, value)| value)
}

/// The timeout in `placeholderTimeoutInSeconds=60 gangSchedulingStyle=Hard`. Unknown parts are skipped, as in
/// YuniKorn.
fn timeout(pod: &PodView<'_>) -> Option<Duration> {
    let parameters = pod.metadata.annotations.text(names::YUNIKORN_POLICY_PARAMETERS)?;
    let value = |part: &str| duration::parse(part.strip_prefix("placeholderTimeoutInSeconds=")?);
    parameters.split_whitespace().find_map(value)
}

impl Dialect for Yunikorn {
    fn id(&self) -> DialectId {
        DialectId::Yunikorn
    }

    fn field(&self) -> &'static str {
        "metadata.annotations[yunikorn.apache.org/task-group-name]"
    }

    fn role_field(&self) -> &'static str {
        self.field()
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let annotations = &pod.metadata.annotations;
        let role = annotations.non_empty(names::YUNIKORN_TASK_GROUP_NAME);
        let groups = annotations.non_empty(names::YUNIKORN_TASK_GROUPS);
        if role.is_none() && groups.is_none() {
            return None;
        }
        let quorum = groups.and_then(|groups| task_groups(groups).ok());
        let mut declared = PodDeclaration::read(pod, quorum);
        if let Some(declared) = &mut declared {
            declared.timeout = declared.timeout.or_else(|| timeout(pod));
            // Task groups state the shape of each member, so the members are not copies of the first pod.
            declared.future_members = groups.and_then(|groups| future_members(pod, groups));
        }
        Some(Membership {
            gang: GangId::new(DialectId::Yunikorn, pod.metadata.namespace.as_str(), application(pod)?),
            role: role.map(str),
            declared,
        })
    }

    fn review(&self, pod: &PodView<'_>) -> MembershipReview {
        let mut review = MembershipReview { membership: self.membership(pod), ..MembershipReview::default() };
        if let Some(text) = pod.metadata.annotations.non_empty(names::YUNIKORN_TASK_GROUPS)
            && let Err(problem) = task_groups(text)
        {
            review.faults.push(Finding {
                field: format!("metadata.annotations[{}]", names::YUNIKORN_TASK_GROUPS),
                value: text.to_owned(),
                rule: FindingRule::SizeValue,
                message: format!(
                    "the task groups cannot be read: {problem}. Write a list such as [{{\"name\": \"workers\", \"minMember\": 4}}]."
                ),
            });
        }
        review
    }

    fn size_key(&self) -> Option<&'static str> {
        Some(names::YUNIKORN_TASK_GROUPS)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::{membership, review_membership};

    #[test]
    fn an_application_is_a_gang_of_its_task_groups() {
        let app = json!({ "applicationId": "spark-1" });
        let groups = |tasks: &[(&str, u32)]| {
            let children = tasks.iter().map(|(name, count)| (str(name), Quorum::Count(*count))).collect();
            Quorum::Groups { min: u32::try_from(tasks.len()).unwrap(), children }
        };
        type Expected = Option<(&'static str, Option<&'static str>, Option<Quorum>, Option<u64>)>;
        let check = |labels: &Value, annotations: &Value, expected: Expected| {
            let pod =
                json!({ "metadata": { "namespace": "ml", "labels": labels, "annotations": annotations } });
            let pod = pod.to_string();
            let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
            let made = membership(&view);
            let found = made.as_ref().map(|m| {
                let declared = m.declared.as_ref();
                (
                    &*m.gang.name,
                    m.role.as_deref(),
                    declared.and_then(|d| d.quorum.clone()),
                    declared.and_then(|d| d.timeout).map(|t| t.as_secs()),
                )
            });
            assert_eq!(found, expected, "{pod}");
        };
        let (name, all) = (names::YUNIKORN_TASK_GROUP_NAME, names::YUNIKORN_TASK_GROUPS);
        let parameters = names::YUNIKORN_POLICY_PARAMETERS;
        check(&app, &json!({}), None);
        check(&app, &json!({ name: "" }), None);
        check(&json!({}), &json!({ name: "executors" }), None);
        check(&app, &json!({ name: "executors" }), Some(("spark-1", Some("executors"), None, None)));
        let both = json!({ names::YUNIKORN_APP_ID: "first", "applicationId": "second" });
        check(&both, &json!({ name: "executors" }), Some(("first", Some("executors"), None, None)));
        check(
            &app,
            &json!({
                all: r#"[{"name": "driver", "minMember": 1, "minResource": {"cpu": 1}}, {"Name": "executors", "MINMEMBER": 4}]"#,
                name: "driver",
                parameters: "gangSchedulingStyle=Hard placeholderTimeoutInSeconds=60 nonsense",
            }),
            Some(("spark-1", Some("driver"), Some(groups(&[("driver", 1), ("executors", 4)])), Some(60))),
        );
        for (text, problem) in [
            ("[]", "it is an empty list"),
            (r#"[{"minMember": 1}]"#, "[0].name is missing"),
            (r#"[{"name": "a"}]"#, "[0].minMember is missing"),
            (
                r#"[{"name": "a", "minMember": -1}]"#,
                "[0].minMember must be a whole number from 0 to 2147483647",
            ),
            (
                r#"[{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]"#,
                "[1].name: task group \"a\" is defined twice",
            ),
        ] {
            let pod = json!({ "metadata": { "labels": app, "annotations": { all: text } } }).to_string();
            let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
            let review = review_membership(&view);
            assert_eq!(review.membership.map(|m| m.declared), Some(None), "{text}");
            let message = format!(
                "the task groups cannot be read: {problem}. Write a list such as [{{\"name\": \"workers\", \"minMember\": 4}}]."
            );
            assert_eq!(review.faults.iter().map(|f| &*f.message).collect::<Vec<_>>(), [message], "{text}");
        }
    }
}
