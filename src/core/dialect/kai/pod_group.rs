//! The KAI PodGroup object: `minMember`, or a tree of `subGroups`, read into a [`Quorum`].
//!
//! With subgroups, `spec.minMember` is ignored. A leaf needs its `minMember` (default 0). An inner subgroup
//! and the top need `minSubGroup` of their children (default all). KAI's own webhook rejects inconsistent
//! objects. Where it is not installed, an inconsistent object is an error that names the subgroups.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::duration;
use crate::dialect::gang_policies::GangPolicies;
use crate::dialect::group_reader::{GroupReader, non_empty, read_count, shorten};
use crate::dialect::quorum::Quorum;
use crate::model::{Str, quoted, str};
use crate::objects::text::Text;

/// Maximum depth of the tree of subgroups. It bounds the recursion; real trees are far smaller.
const MAX_SUBGROUP_DEPTH: usize = 32;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PodGroupSpec<'a> {
    #[serde(default, borrow)]
    min_member: Option<&'a RawValue>,
    #[serde(default, borrow)]
    min_sub_group: Option<&'a RawValue>,
    #[serde(default)]
    sub_groups: Option<Vec<SubGroupSpec<'a>>>,
    #[serde(default)]
    queue: Option<Text<'a>>,
    #[serde(default)]
    priority_class_name: Option<Text<'a>>,
    #[serde(default)]
    staleness_grace_period: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct SubGroupSpec<'a> {
    #[serde(default)]
    name: Option<Text<'a>>,
    #[serde(default)]
    parent: Option<Text<'a>>,
    #[serde(default, borrow)]
    min_member: Option<&'a RawValue>,
    #[serde(default, borrow)]
    min_sub_group: Option<&'a RawValue>,
}

/// Reads a PodGroup and adds its gang.
pub(super) fn read(reader: &mut GroupReader<'_, '_>) -> Result<(), String> {
    let spec: PodGroupSpec<'_> = reader.spec()?;
    let quorum = quorum(&spec)?;
    let name = reader.key.name.clone();
    let group = reader.add_gang(&name, quorum);
    group.priority_class = non_empty(spec.priority_class_name.as_ref());
    group.queue = non_empty(spec.queue.as_ref());
    if let Some(text) = &spec.staleness_grace_period {
        match duration::grace_period(text) {
            Some(grace) => group.policies = GangPolicies::from_grace_period(grace),
            None => group.warnings.push(duration::invalid_duration("spec.stalenessGracePeriod", text)),
        }
    }
    Ok(())
}

/// One subgroup.
struct SubGroup {
    parent: Option<Str>,
    min_member: Option<u32>,
    min_sub_group: Option<u32>,
}

fn quorum(spec: &PodGroupSpec<'_>) -> Result<Quorum, String> {
    let min_member = read_count(spec.min_member, "spec.minMember")?;
    let min_sub_group = read_count(spec.min_sub_group, "spec.minSubGroup")?;
    let groups = spec.sub_groups.as_deref().unwrap_or_default();
    if groups.is_empty() {
        return Ok(Quorum::Count(min_member.unwrap_or(1)));
    }
    let mut nodes: BTreeMap<Str, SubGroup> = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        let place = format!("spec.subGroups[{index}]");
        let name = match &group.name {
            Some(name) if !name.is_empty() => str(name.as_str()),
            _ => return Err(format!("{place}.name is missing")),
        };
        let node = SubGroup {
            parent: group.parent.as_ref().filter(|p| !p.is_empty()).map(|p| str(p.as_str())),
            min_member: read_count(group.min_member, &format!("{place}.minMember"))?,
            min_sub_group: read_count(group.min_sub_group, &format!("{place}.minSubGroup"))?,
        };
        if nodes.insert(name.clone(), node).is_some() {
            return Err(format!("{place}.name: subgroup {} is defined twice", quoted(&name)));
        }
    }
    let mut children: BTreeMap<Option<Str>, Vec<Str>> = BTreeMap::new();
    for (name, node) in &nodes {
        check_ancestors(name, &nodes)?;
        children.entry(node.parent.clone()).or_default().push(name.clone());
    }
    Ok(build(None, min_sub_group, &nodes, &children))
}

/// Checks that the parents of a subgroup exist and lead to the top, so that building the tree terminates.
fn check_ancestors(name: &Str, nodes: &BTreeMap<Str, SubGroup>) -> Result<(), String> {
    let mut path = vec![name.clone()];
    let mut seen = BTreeSet::from([name.clone()]);
    while let Some(parent) = nodes.get(&path[path.len() - 1]).and_then(|node| node.parent.clone()) {
        let child = path[path.len() - 1].clone();
        if !nodes.contains_key(&parent) {
            let near = crate::model::closest(&parent, nodes.keys().map(|n| &**n));
            let suggestion = near.map(|n| format!(". Did you mean {}?", quoted(n))).unwrap_or_default();
            return Err(format!(
                "spec.subGroups: parent {} of {} was not found{suggestion}",
                quoted(&parent),
                quoted(&child)
            ));
        }
        path.push(parent.clone());
        if !seen.insert(parent) {
            let names = path.iter().map(|n| shorten(n)).collect::<Vec<_>>().join(" -> ");
            return Err(format!("spec.subGroups: cycle in the parents: {names}"));
        }
        if path.len() > MAX_SUBGROUP_DEPTH {
            return Err(format!(
                "spec.subGroups: {} is nested deeper than {MAX_SUBGROUP_DEPTH} levels",
                quoted(name)
            ));
        }
    }
    Ok(())
}

fn build(
    parent: Option<&Str>,
    min: Option<u32>,
    nodes: &BTreeMap<Str, SubGroup>,
    children: &BTreeMap<Option<Str>, Vec<Str>>,
) -> Quorum {
    let names = children.get(&parent.cloned()).map(Vec::as_slice).unwrap_or_default();
    let built = names.iter().map(|name| {
        let node = &nodes[name];
        let quorum = if children.contains_key(&Some(name.clone())) {
            build(Some(name), node.min_sub_group, nodes, children)
        } else {
            Quorum::Count(node.min_member.unwrap_or(0))
        };
        (name.clone(), quorum)
    });
    let all = u32::try_from(names.len()).unwrap_or(u32::MAX);
    Quorum::Groups { min: min.unwrap_or(all), children: built.collect() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::{Group, OnStale, group_kinds};
    use crate::model::{DialectId, GangId};
    use crate::objects::ReadError;

    fn read(json: &str) -> Result<Group, ReadError> {
        let kai = group_kinds().find(|kind| kind.dialect() == DialectId::Kai).unwrap();
        kai.read(json).map(|object| object.groups[0].clone())
    }

    fn read_spec(spec: &Value) -> Result<Quorum, String> {
        let group = json!({ "metadata": { "namespace": "ml", "name": "g" }, "spec": spec });
        read(&group.to_string()).map(|g| g.quorum).map_err(|e| e.to_string())
    }

    fn groups(min: u32, children: &[(&str, Quorum)]) -> Quorum {
        Quorum::Groups { min, children: children.iter().map(|(n, q)| (str(n), q.clone())).collect() }
    }

    #[test]
    fn min_member_and_subgroups_make_the_quorum() {
        for (spec, expected) in [
            (json!(null), Quorum::Count(1)),
            (json!({}), Quorum::Count(1)),
            (json!({ "minMember": null, "subGroups": null }), Quorum::Count(1)),
            (json!({ "minMember": 3, "subGroups": [] }), Quorum::Count(3)),
            (json!({ "minMember": 0 }), Quorum::Count(0)),
            (
                json!({ "minMember": 9, "subGroups": [{ "name": "ps", "minMember": 1 }, { "name": "workers" }] }),
                groups(2, &[("ps", Quorum::Count(1)), ("workers", Quorum::Count(0))]),
            ),
            (
                json!({ "minSubGroup": 1, "subGroups": [
                    { "name": "a", "minSubGroup": 1, "minMember": 7 }, { "name": "b", "parent": "a", "minMember": 2 },
                    { "name": "c", "parent": "a", "minMember": 3 }, { "name": "d", "parent": "" }] }),
                groups(
                    1,
                    &[
                        ("a", groups(1, &[("b", Quorum::Count(2)), ("c", Quorum::Count(3))])),
                        ("d", Quorum::Count(0)),
                    ],
                ),
            ),
        ] {
            assert_eq!(read_spec(&spec), Ok(expected), "{spec}");
        }
    }

    #[test]
    fn errors_name_the_field_and_the_value() {
        let chain: Vec<_> = (0..40)
            .map(|i| json!({ "name": format!("s{i}"), "parent": if i == 0 { String::new() } else { format!("s{}", i - 1) } }))
            .collect();
        for (spec, problem) in [
            (
                json!({ "minMember": -1 }),
                "spec.minMember is -1; it must be a whole number from 0 to 2147483647",
            ),
            (
                json!({ "minMember": "3" }),
                "spec.minMember is \"3\"; it must be a whole number from 0 to 2147483647",
            ),
            (
                json!({ "minMember": 3.5 }),
                "spec.minMember is 3.5; it must be a whole number from 0 to 2147483647",
            ),
            (
                json!({ "subGroups": [{ "name": "a", "minSubGroup": 2_147_483_648_u32 }] }),
                "spec.subGroups[0].minSubGroup is 2147483648; it must be a whole number from 0 to 2147483647",
            ),
            (json!({ "subGroups": [{ "minMember": 1 }] }), "spec.subGroups[0].name is missing"),
            (
                json!({ "subGroups": [{ "name": "a" }, { "name": "a" }] }),
                "spec.subGroups[1].name: subgroup \"a\" is defined twice",
            ),
            (
                json!({ "subGroups": [{ "name": "workers" }, { "name": "b", "parent": "worker" }] }),
                "spec.subGroups: parent \"worker\" of \"b\" was not found. Did you mean \"workers\"?",
            ),
            (
                json!({ "subGroups": [{ "name": "a", "parent": "a" }] }),
                "spec.subGroups: cycle in the parents: a -> a",
            ),
            (
                json!({ "subGroups": [{ "name": "a", "parent": "b" }, { "name": "b", "parent": "c" }, { "name": "c", "parent": "a" }] }),
                "spec.subGroups: cycle in the parents: a -> b -> c -> a",
            ),
            (json!({ "subGroups": chain }), "spec.subGroups: \"s32\" is nested deeper than 32 levels"),
        ] {
            assert_eq!(read_spec(&spec), Err(format!("PodGroup ml/g: {problem}")), "{spec}");
        }
    }

    #[test]
    fn queue_and_priority_class_are_passed_through() {
        let group = json!({ "metadata": { "namespace": "ml", "name": "g", "uid": "u" },
            "spec": { "queue": "test", "priorityClassName": "inference" } });
        let group = read(&group.to_string()).unwrap();
        assert_eq!(group.gang, GangId::new(DialectId::Kai, "ml", "g"));
        assert_eq!(
            (group.queue.as_deref(), group.priority_class.as_deref()),
            (Some("test"), Some("inference"))
        );
    }

    #[test]
    fn the_staleness_grace_period_becomes_a_policy() {
        let seconds =
            |n| GangPolicies { stale_grace: Some(Duration::from_secs(n)), ..GangPolicies::default() };
        let never = GangPolicies { on_stale: Some(OnStale::Keep), ..GangPolicies::default() };
        let warning = "spec.stalenessGracePeriod is \"soon\", which is not a duration: write seconds (\"120\") or a duration (\"2m\", \"1h30m\")";
        for (period, expected, warnings) in [
            (json!(null), GangPolicies::default(), vec![]),
            (json!("90s"), seconds(90), vec![]),
            (json!("1m30s"), seconds(90), vec![]),
            (json!("0s"), seconds(0), vec![]),
            (json!("-1s"), never, vec![]),
            (json!("soon"), GangPolicies::default(), vec![warning.to_owned()]),
        ] {
            let group = json!({ "metadata": { "namespace": "ml", "name": "g", "uid": "u" },
                "spec": { "stalenessGracePeriod": period } });
            let group = read(&group.to_string()).unwrap();
            assert_eq!((group.policies, group.warnings), (expected, warnings), "{period}");
        }
    }

    #[test]
    fn annotations_of_portcullis_override_the_field() {
        let annotations = json!({ "portcullis.dev/stale-grace": "5s", "portcullis.dev/on-stale": "evict" });
        let group = json!({ "metadata": { "namespace": "ml", "name": "g", "uid": "u", "annotations": annotations },
            "spec": { "stalenessGracePeriod": "-1s" } });
        let stale_grace = Some(Duration::from_secs(5));
        let expected =
            GangPolicies { on_stale: Some(OnStale::Evict), stale_grace, ..GangPolicies::default() };
        assert_eq!(read(&group.to_string()).unwrap().policies, expected);
    }
}
