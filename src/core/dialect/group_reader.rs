//! Reads a group object: the fields that all stacks share, and helpers for the fields of one stack.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::duration;
use super::gang_policies::GangPolicies;
use super::group::{Group, GroupKey, GroupKind, GroupObject};
use super::group_status::read_stored_status;
use super::quorum::Quorum;
use crate::model::{GangId, Resources, Str, Time, quoted, str};
use crate::objects::text::{Entries, Scalar, Text};
use crate::objects::view::Meta;
use crate::objects::{ReadError, names, read_resources};

/// A group object while it is being read. The dialect adds one [`Group`] for each gang that the object
/// describes.
pub(crate) struct GroupReader<'s, 'a> {
    pub(super) key: &'s GroupKey,
    pub(super) meta: &'s Meta<'a>,
    spec: Option<&'a RawValue>,
    groups: Vec<Group>,
    warnings: Vec<String>,
}

impl<'a> GroupReader<'_, 'a> {
    /// The spec; the default where the object has none.
    pub(super) fn spec<S: Default + Deserialize<'a>>(&self) -> Result<S, String> {
        let Some(spec) = self.spec.filter(|spec| spec.get() != "null") else { return Ok(S::default()) };
        serde_json::from_str(spec.get()).map_err(|e| format!("spec: {e}"))
    }

    /// Adds a gang of this name, and returns it so that the dialect can set more fields.
    pub(super) fn add_gang(&mut self, name: &str, quorum: Quorum) -> &mut Group {
        let gang = GangId::new(self.key.kind.dialect(), &self.key.namespace, name);
        self.groups.push(Group {
            object: Some(self.key.clone()),
            uid: str(self.meta.uid.as_str()),
            created: Time::parse_rfc3339(&self.meta.creation_timestamp).unwrap_or_default(),
            ..Group::new(gang, quorum)
        });
        self.groups.last_mut().expect("the group was pushed in the line above")
    }

    /// The timeout in this annotation. A value that cannot be read becomes a warning.
    pub(super) fn timeout_annotation(&mut self, key: &str) -> Option<Duration> {
        let text = self.meta.annotations.text(key)?;
        let read = duration::parse(text);
        if read.is_none() {
            self.warnings.push(duration::invalid_duration(key, text));
        }
        read
    }
}

/// Reads a group object of `kind`. `read_spec` is
/// [`Dialect::read_group`](super::dialect_trait::Dialect::read_group) of the dialect of this kind. The
/// annotations of Portcullis override the fields of the stack.
pub(super) fn read_group_object(
    kind: GroupKind,
    json: &str,
    read_spec: impl FnOnce(&mut GroupReader<'_, '_>) -> Result<(), String>,
) -> Result<GroupObject, ReadError> {
    let kind_name = kind.resource().kind;
    let fail = |name: String, problem: String| ReadError { kind: kind_name, name, problem };
    let view: GroupView<'_> = serde_json::from_str(json).map_err(|e| fail("?".to_owned(), e.to_string()))?;
    let meta = &view.metadata;
    let key = GroupKey { kind, namespace: str(meta.namespace.as_str()), name: str(meta.name.as_str()) };
    let mut reader =
        GroupReader { key: &key, meta, spec: view.spec, groups: Vec::new(), warnings: Vec::new() };
    let timeout = reader.timeout_annotation(names::TIMEOUT_ANNOTATION);
    let policies = GangPolicies::read(meta, &mut reader.warnings);
    read_spec(&mut reader).map_err(|problem| fail(format!("{}/{}", meta.namespace, meta.name), problem))?;
    let GroupReader { mut groups, warnings, .. } = reader;
    let stored_status = read_stored_status(json);
    for group in &mut groups {
        group.timeout = timeout.or(group.timeout);
        group.policies = policies.clone().or(&group.policies);
        group.warnings.extend(warnings.iter().cloned());
        group.stored_status = stored_status.clone();
    }
    Ok(GroupObject { key, groups })
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct GroupView<'a> {
    #[serde(default)]
    metadata: Meta<'a>,
    #[serde(default, borrow)]
    spec: Option<&'a RawValue>,
}

/// Reads a non-negative `int32`, the type of counts in the API types. `field` names it in the error.
pub(super) fn read_count(raw: Option<&RawValue>, field: &str) -> Result<Option<u32>, String> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    let text = raw.get();
    let read = text.parse::<i32>().ok().and_then(|n| u32::try_from(n).ok());
    match read {
        Some(number) => Ok(Some(number)),
        None => {
            Err(format!("{field} is {}; it must be a whole number from 0 to {}", shorten(text), i32::MAX))
        }
    }
}

/// Reads a number of seconds above 0; `None` where it is absent or not such a number.
pub(super) fn read_seconds(raw: Option<&RawValue>) -> Option<Duration> {
    duration::parse(raw?.get().trim_matches('"'))
}

/// Reads `spec.minResources`, with a warning where a quantity cannot be read.
///
/// Names that are not resources of a node are dropped: `pods`, and names of quotas such as `requests.cpu`,
/// which Volcano writes beside `cpu`.
pub(super) fn read_min_resources(list: &Entries<'_, Scalar<'_>>) -> (Resources, Option<String>) {
    match read_resources(list, "spec.minResources") {
        Ok(mut min_resources) => {
            let is_quota = |name: &str| name.starts_with("requests.") || name.starts_with("limits.");
            min_resources.extended.retain(|name, _| {
                !is_quota(name)
                    && !name.starts_with("count/")
                    && (name.contains('/') || name.starts_with("hugepages-"))
            });
            (min_resources, None)
        }
        Err(problem) => (Resources::default(), Some(format!("{problem}; spec.minResources is ignored"))),
    }
}

/// The text, where it is not empty.
pub(super) fn non_empty(text: Option<&Text<'_>>) -> Option<Str> {
    text.filter(|t| !t.is_empty()).map(|t| str(t.as_str()))
}

/// The first 40 characters of a value, for messages.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Parses the number of members in a label or annotation: a whole number of at least 1.
pub(super) fn parse_member_count(text: &str) -> Option<u32> {
    text.trim().parse::<u32>().ok().filter(|n| *n > 0 && i32::try_from(*n).is_ok())
}

/// The message for a text that [`parse_member_count`] rejects.
pub(super) fn invalid_member_count(text: &str) -> String {
    format!("{} is not a number of members. Write a whole number of at least 1, in quotes.", quoted(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::dialect::group_kinds;

    /// Minimum resources by name, and warnings.
    fn read(api_version: &str, min_resources: &Value) -> (Value, Vec<String>) {
        let kind = group_kinds().find(|kind| kind.resource().api_version() == api_version).unwrap();
        let object = json!({ "metadata": { "namespace": "ml", "name": "g", "uid": "u" },
            "spec": { "minMember": 4, "minResources": min_resources } });
        let group = kind.read(&object.to_string()).unwrap().groups.remove(0);
        let min = &group.min_resources;
        let plain =
            [("cpu", min.cpu.0), ("memory", min.memory.0)].into_iter().filter(|(_, amount)| *amount > 0);
        let extended = min.extended.iter().map(|(name, amount)| (&**name, *amount));
        let all = plain.chain(extended).map(|(name, amount)| (name.to_owned(), json!(amount)));
        (Value::Object(all.collect()), group.warnings)
    }

    #[test]
    fn min_resources_are_read_in_the_stacks_that_have_them() {
        for api_version in [
            "scheduling.x-k8s.io/v1alpha1",
            "scheduling.sigs.k8s.io/v1alpha1",
            "scheduling.volcano.sh/v1beta1",
        ] {
            let check = |min_resources: &Value, expected: Value, warnings: &[&str]| {
                let warnings = warnings.iter().map(|warning| (*warning).to_owned()).collect();
                assert_eq!(
                    read(api_version, min_resources),
                    (expected, warnings),
                    "{api_version}: {min_resources}"
                );
            };
            check(&json!(null), json!({}), &[]);
            check(
                &json!({ "cpu": 16, "memory": "64Gi", "nvidia.com/gpu": "4" }),
                json!({ "cpu": 16_000, "memory": 64_u64 << 30, "nvidia.com/gpu": 4 }),
                &[],
            );
            // Names of quotas are not resources of a node.
            check(
                &json!({ "cpu": "500m", "pods": "4", "count/pods": "4", "requests.cpu": "1", "limits.nvidia.com/gpu": 4 }),
                json!({ "cpu": 500 }),
                &[],
            );
            check(
                &json!({ "cpu": "much" }),
                json!({}),
                &[
                    "spec.minResources[cpu]: \"much\" is not a quantity: expected a number such as 2, 0.5, 100m, 4Gi or 1e3; spec.minResources is ignored",
                ],
            );
        }
        // KAI has no such field.
        assert_eq!(read("scheduling.run.ai/v2alpha2", &json!({ "cpu": 16 })), (json!({}), Vec::new()));
    }
}
