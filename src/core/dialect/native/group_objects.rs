//! Workloads and PodGroups of three Kubernetes releases, and the one condition of their status.
//!
//! None of them has a field for a timeout. Guides of 1.35 write one nevertheless. The API server drops it,
//! but the last-applied annotation of `kubectl apply` keeps it.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::dialect::duration;
use crate::dialect::group::{GroupKind, GroupResource, StatusWrite};
use crate::dialect::group_reader::{GroupReader, non_empty, read_count};
use crate::dialect::group_status::{GroupPhase, GroupStatus, StoredStatus};
use crate::dialect::quorum::Quorum;
use crate::objects::names;
use crate::objects::text::Text;

const fn pod_groups(version: &'static str) -> GroupResource {
    GroupResource::pod_groups(names::NATIVE_API_GROUP, version, StatusWrite::Subresource)
}

/// The resources of 1.37, 1.36 and 1.35. The status of the last has no fields.
pub(super) const RESOURCES: &[GroupResource] = &[
    pod_groups("v1beta1"),
    pod_groups("v1alpha2"),
    GroupResource {
        group: names::NATIVE_API_GROUP,
        version: "v1alpha1",
        kind: "Workload",
        plural: "workloads",
        status: StatusWrite::Never,
    },
];

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct NativeSpec<'a> {
    #[serde(default)]
    scheduling_policy: Option<SchedulingPolicy<'a>>,
    #[serde(default)]
    priority_class_name: Option<Text<'a>>,
    #[serde(default)]
    pod_groups: Option<Vec<WorkloadPodGroup<'a>>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct WorkloadPodGroup<'a> {
    #[serde(default)]
    name: Option<Text<'a>>,
    #[serde(default)]
    policy: Option<SchedulingPolicy<'a>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct SchedulingPolicy<'a> {
    #[serde(default)]
    gang: Option<GangPolicySpec<'a>>,
    #[serde(default)]
    #[expect(dead_code, reason = "part of the API type; its pods are scheduled one by one")]
    basic: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct GangPolicySpec<'a> {
    #[serde(default, borrow)]
    min_count: Option<&'a RawValue>,
}

/// The quorum. With any other policy than `gang`, each pod starts alone.
fn quorum(policy: Option<&SchedulingPolicy<'_>>, field: &str) -> Result<Quorum, String> {
    let Some(gang) = policy.and_then(|policy| policy.gang.as_ref()) else { return Ok(Quorum::Count(1)) };
    Ok(Quorum::Count(read_count(gang.min_count, &format!("{field}.gang.minCount"))?.unwrap_or(1)))
}

/// The timeout in the last-applied manifest: of the pod group with this name, or of the PodGroup itself.
fn applied_timeout(applied: Option<&Value>, group: Option<&str>) -> Option<Duration> {
    let spec = &applied?["spec"];
    let policy = match group {
        None => &spec["schedulingPolicy"],
        Some(name) => &spec["podGroups"].as_array()?.iter().find(|group| group["name"] == name)?["policy"],
    };
    match &policy["gang"]["timeout"] {
        Value::String(text) => duration::parse(text),
        Value::Number(number) => duration::parse(&number.to_string()),
        _ => None,
    }
}

pub(super) fn read(reader: &mut GroupReader<'_, '_>) -> Result<(), String> {
    let spec: NativeSpec<'_> = reader.spec()?;
    let applied = reader.meta.annotations.text(names::LAST_APPLIED_ANNOTATION);
    let applied: Option<Value> = applied.and_then(|text| serde_json::from_str(text).ok());
    let name = reader.key.name.clone();
    if reader.key.kind.resource().kind == "PodGroup" {
        let quorum = quorum(spec.scheduling_policy.as_ref(), "spec.schedulingPolicy")?;
        let group = reader.add_gang(&name, quorum);
        group.priority_class = non_empty(spec.priority_class_name.as_ref());
        group.timeout = applied_timeout(applied.as_ref(), None);
        return Ok(());
    }
    for (index, of_pods) in spec.pod_groups.iter().flatten().enumerate() {
        let path = format!("spec.podGroups[{index}]");
        let Some(of) = of_pods.name.as_ref().filter(|name| !name.is_empty()) else {
            return Err(format!("{path}.name is missing"));
        };
        let quorum = quorum(of_pods.policy.as_ref(), &format!("{path}.policy"))?;
        let timeout = applied_timeout(applied.as_ref(), Some(of));
        reader.add_gang(&format!("{name}/{of}"), quorum).timeout = timeout;
    }
    Ok(())
}

/// The condition types of 1.37 and 1.36.
const CONDITIONS: [&str; 2] = ["PodGroupInitiallyScheduled", "PodGroupScheduled"];

/// The status with its one condition. Nothing is written while pods are being started: there is no reason for
/// it.
pub(super) fn status(kind: GroupKind, status: &GroupStatus) -> Option<Value> {
    let condition = CONDITIONS.get(kind.rank)?;
    let (holds, reason) = match status.phase {
        GroupPhase::Starting => return None,
        GroupPhase::Gathering | GroupPhase::Waiting | GroupPhase::Torn => ("False", "Unschedulable"),
        GroupPhase::Running | GroupPhase::Finished => ("True", "Scheduled"),
    };
    let mut condition = status.condition(condition, holds);
    condition["reason"] = json!(reason);
    Some(json!({ "conditions": [condition] }))
}

/// Whether the condition is `True`. It never becomes `False` again.
pub(super) fn is_scheduled(said: &StoredStatus) -> bool {
    let StoredStatus::Own(status) = said else { return false };
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        let kind = condition["type"].as_str().unwrap_or_default();
        CONDITIONS.contains(&kind) && condition["status"] == "True"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Group, group_kinds};
    use crate::model::{DialectId, GangId};

    fn read(kind: usize, object: &Value) -> Result<Vec<Group>, String> {
        let kind = group_kinds().filter(|kind| kind.dialect() == DialectId::Native).nth(kind).unwrap();
        kind.read(&object.to_string()).map(|object| object.groups).map_err(|e| e.to_string())
    }

    #[test]
    fn groups_of_every_release_are_read() {
        let policy = json!({ "gang": { "minCount": 4 } });
        let object = |spec: &Value| json!({ "metadata": { "namespace": "ml", "name": "w", "uid": "u" }, "spec": spec });
        for kind in [0, 1] {
            for (spec, min_members) in [
                (json!({ "schedulingPolicy": policy }), 4),
                (json!({ "schedulingPolicy": { "basic": {} } }), 1),
                (json!({}), 1),
            ] {
                let groups = read(kind, &object(&spec)).unwrap();
                let found: Vec<_> = groups.iter().map(|g| (&g.gang, &g.quorum)).collect();
                assert_eq!(
                    found,
                    [(&GangId::new(DialectId::Native, "ml", "w"), &Quorum::Count(min_members))]
                );
            }
        }
        let groups = json!({ "podGroups": [
            { "name": "leader", "policy": { "basic": {} } }, { "name": "workers", "policy": policy }
        ]});
        let groups = read(2, &object(&groups)).unwrap();
        let found: Vec<_> = groups.iter().map(|g| (&*g.gang.name, g.quorum.min_members())).collect();
        assert_eq!(found, [("w/leader", 1), ("w/workers", 4)]);
        let owner = groups[1].object_ref().unwrap();
        assert_eq!((&*owner.api_version, &*owner.name), ("scheduling.k8s.io/v1alpha1", "w"));
        assert_eq!(
            read(2, &object(&json!({ "podGroups": [{ "policy": policy }] }))).unwrap_err(),
            "Workload ml/w: spec.podGroups[0].name is missing"
        );
        let bad = json!({ "podGroups": [{ "name": "a", "policy": { "gang": { "minCount": "four" } } }] });
        assert_eq!(
            read(2, &object(&bad)).unwrap_err(),
            "Workload ml/w: spec.podGroups[0].policy.gang.minCount is \"four\"; it must be a whole number from 0 to 2147483647"
        );
    }

    #[test]
    fn the_timeout_is_read_from_the_last_applied_manifest() {
        let applied = |timeout: &Value| {
            let spec = json!({ "podGroups": [{ "name": "g", "policy": { "gang": { "minCount": 4, "timeout": timeout } } }] });
            json!({ "spec": spec }).to_string()
        };
        let own = names::TIMEOUT_ANNOTATION;
        let last = names::LAST_APPLIED_ANNOTATION;
        for (annotations, seconds) in [
            (json!({}), None),
            (json!({ last: applied(&json!(120)) }), Some(120)),
            (json!({ last: applied(&json!("2m")) }), Some(120)),
            (json!({ last: applied(&json!({})) }), None),
            (json!({ last: "not json" }), None),
            (json!({ own: "60", last: applied(&json!(120)) }), Some(60)),
            (json!({ own: "soon", last: applied(&json!(120)) }), Some(120)),
        ] {
            let object = json!({
                "metadata": { "namespace": "ml", "name": "w", "annotations": annotations },
                "spec": { "podGroups": [{ "name": "g", "policy": { "gang": { "minCount": 4 } } }] },
            });
            let groups = read(2, &object).unwrap();
            assert_eq!(groups[0].timeout.map(|t| t.as_secs()), seconds, "{annotations}");
            assert_eq!(groups[0].warnings.is_empty(), annotations[own] != "soon", "{:?}", groups[0].warnings);
        }
    }
}
