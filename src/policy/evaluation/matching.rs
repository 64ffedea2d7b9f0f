//! Request matching: `matchConstraints` and `matchResources`, as the API server evaluates them.
//!
//! A request can arrive in another version than the user sent. Rules match the version that the user sent
//! first. With `matchPolicy: Equivalent` they also match other versions of the resource. The API server
//! converts the object in that case; here the object keeps its version. The webhook must therefore be
//! registered for the versions that policies use.

use serde_json::Value as Json;

use super::selector::LabelMatcher;
use crate::api::{MatchResources, ResourceRule};
use crate::input::ClusterData;
use crate::input::{AdmissionRequest, GroupVersionResource};
use crate::json::text;

/// Resources that admission policies never match, as in the API server. Otherwise a policy that denies all
/// policies could not be deleted.
const UNMATCHED_RESOURCES: [(&str, &str); 10] = [
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Built-in resources that Kubernetes 1.36 serves in several versions or groups: resource, kind, group,
/// version.
const EQUIVALENT_RESOURCES: [(&str, &str, &str, &str); 4] = [
    ("horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling", "v1"),
    ("horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling", "v2"),
    ("events", "Event", "", "v1"),
    ("events", "Event", "events.k8s.io", "v1"),
];

/// The attributes of a request that rules match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestAttributes<'a> {
    pub(crate) request: AdmissionRequest<'a>,
    /// What the user sent.
    pub(crate) resource: GroupVersionResource<'a>,
    pub(crate) kind: [&'a str; 3],
    /// The new object. A mutation may have changed it since the request arrived.
    pub(crate) object: Option<&'a Json>,
    pub(crate) old_object: Option<&'a Json>,
}

/// The resource and kind as which a policy matched a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatchedResource<'a> {
    pub(crate) resource: GroupVersionResource<'a>,
    /// Group, version and kind.
    pub(crate) kind: [&'a str; 3],
}

impl<'a> RequestAttributes<'a> {
    pub(crate) fn new(request: AdmissionRequest<'a>, object: Option<&'a Json>) -> Self {
        let json = request.json;
        let named = |kind: &str, key: &str, pointer: &str| {
            let base = if json.get(kind).is_some_and(Json::is_object) { kind } else { key };
            json.get(base).map_or("", |found| text(found, pointer))
        };
        let resource = |key: &str| named("requestResource", "resource", key);
        let kind = |key: &str| named("requestKind", "kind", key);
        Self {
            request,
            resource: GroupVersionResource {
                group: resource("/group"),
                version: resource("/version"),
                resource: resource("/resource"),
            },
            kind: [kind("/group"), kind("/version"), kind("/kind")],
            object,
            old_object: request.old_object(),
        }
    }

    /// Whether admission policies never match such requests.
    pub(crate) fn is_never_matched(&self) -> bool {
        let (group, resource) = (self.resource.group, self.resource.resource);
        UNMATCHED_RESOURCES.contains(&(group, resource))
    }

    fn is_namespace(&self) -> bool {
        self.resource == GroupVersionResource { group: "", version: "v1", resource: "namespaces" }
    }

    /// Returns the namespace of the object. A `Namespace` has none, although its requests name one.
    pub(crate) fn namespace(&self) -> &'a str {
        if self.kind == ["", "v1", "Namespace"] { "" } else { self.request.namespace() }
    }

    /// Returns a match with strings that live as long as the request.
    pub(crate) fn named(&self, matched: MatchedResource<'_>) -> MatchedResource<'a> {
        let here = MatchedResource { resource: self.resource, kind: self.kind };
        if matched == here {
            return here;
        }
        self.equivalent_resources()
            .into_iter()
            .find(|other| other.resource == matched.resource)
            .unwrap_or(here)
    }

    /// Returns other names of the resource: the version in which it arrived, and other versions in which it
    /// is served.
    fn equivalent_resources(&self) -> Vec<MatchedResource<'a>> {
        let json = self.request.json;
        let received = MatchedResource {
            resource: self.request.resource(),
            kind: ["/kind/group", "/kind/version", "/kind/kind"].map(|pointer| text(json, pointer)),
        };
        let mut found = Vec::new();
        if received.resource != self.resource {
            found.push(received);
        }
        let here = self.resource;
        let is_here =
            |(resource, _, group, version)| here == GroupVersionResource { group, version, resource };
        if !EQUIVALENT_RESOURCES.into_iter().any(is_here) || !self.request.sub_resource().is_empty() {
            return found;
        }
        for (resource, kind, group, version) in EQUIVALENT_RESOURCES {
            let other = GroupVersionResource { group, version, resource };
            if resource == here.resource && other != here && other != received.resource {
                found.push(MatchedResource { resource: other, kind: [group, version, kind] });
            }
        }
        found
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResourceScope {
    All,
    Cluster,
    Namespaced,
}

/// One compiled entry of `resourceRules`.
#[derive(Clone, Debug)]
struct CompiledResourceRule {
    names: Vec<String>,
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<(String, String)>,
    scope: ResourceScope,
}

fn contains_or_wildcard(wanted: &[String], found: &str) -> bool {
    wanted.iter().any(|wanted| wanted == "*" || wanted == found)
}

impl CompiledResourceRule {
    fn new(spec: &ResourceRule) -> Self {
        let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
        let split = |name: &String| match name.split_once('/') {
            Some((resource, sub)) => (resource.to_owned(), sub.to_owned()),
            None => (name.clone(), String::new()),
        };
        Self {
            names: list(&spec.resource_names),
            operations: list(&spec.operations),
            groups: list(&spec.api_groups),
            versions: list(&spec.api_versions),
            resources: spec.resources.iter().flatten().map(split).collect(),
            scope: match spec.scope.as_deref() {
                Some("Cluster") => ResourceScope::Cluster,
                Some("Namespaced") => ResourceScope::Namespaced,
                _ => ResourceScope::All,
            },
        }
    }

    fn matches(&self, attributes: &RequestAttributes<'_>, resource: GroupVersionResource<'_>) -> bool {
        let clustered = attributes.is_namespace() || attributes.request.namespace().is_empty();
        let sub = attributes.request.sub_resource();
        (match self.scope {
            ResourceScope::All => true,
            ResourceScope::Cluster => clustered,
            ResourceScope::Namespaced => !clustered,
        }) && contains_or_wildcard(&self.operations, attributes.request.operation())
            && contains_or_wildcard(&self.groups, resource.group)
            && contains_or_wildcard(&self.versions, resource.version)
            && self.resources.iter().any(|(wanted, wanted_sub)| {
                (wanted == "*" || wanted == resource.resource) && (wanted_sub == "*" || wanted_sub == sub)
            })
    }

    /// Whether the rule can match a resource of this name in some version.
    fn names_resource(&self, resource: &str) -> bool {
        self.resources.iter().any(|(wanted, _)| wanted == "*" || wanted == resource)
    }

    fn names(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// Compiled `matchConstraints` or `matchResources`.
#[derive(Clone, Debug)]
pub(crate) struct MatchConstraints {
    namespaces: LabelMatcher,
    objects: LabelMatcher,
    rules: Vec<CompiledResourceRule>,
    excluded: Vec<CompiledResourceRule>,
    equivalent: bool,
}

fn match_rules<'a>(
    rules: &[CompiledResourceRule],
    equivalent: bool,
    attributes: &RequestAttributes<'a>,
) -> Option<MatchedResource<'a>> {
    let name = attributes.request.name();
    if rules.iter().any(|rule| rule.matches(attributes, attributes.resource) && rule.names(name)) {
        return Some(MatchedResource { resource: attributes.resource, kind: attributes.kind });
    }
    // A resource has the same name in all its versions.
    if !equivalent || !rules.iter().any(|rule| rule.names_resource(attributes.resource.resource)) {
        return None;
    }
    let others = attributes.equivalent_resources();
    rules.iter().find_map(|rule| {
        others.iter().find(|other| rule.matches(attributes, other.resource) && rule.names(name)).copied()
    })
}

impl MatchConstraints {
    pub(crate) fn new(spec: &MatchResources) -> Self {
        let rules = |rules: &Option<Vec<ResourceRule>>| {
            rules.iter().flatten().map(CompiledResourceRule::new).collect()
        };
        Self {
            namespaces: LabelMatcher::new(spec.namespace_selector.as_ref()),
            objects: LabelMatcher::new(spec.object_selector.as_ref()),
            rules: rules(&spec.resource_rules),
            excluded: rules(&spec.exclude_resource_rules),
            equivalent: spec.match_policy.as_deref() != Some("Exact"),
        }
    }

    /// Returns the resource and kind as which a request matches, or `None` if it does not match.
    ///
    /// # Errors
    /// The namespace is not in the cluster data.
    pub(crate) fn matches<'a>(
        &self,
        attributes: &RequestAttributes<'a>,
        cluster: &ClusterData,
    ) -> Result<Option<MatchedResource<'a>>, String> {
        let matches_namespace = self.matches_namespace(attributes, cluster);
        if matches_namespace == Ok(false) {
            return Ok(None);
        }
        let objects = [attributes.object, attributes.old_object];
        if !self.objects.is_empty() && !objects.iter().flatten().any(|object| self.objects.matches(object)) {
            return Ok(None);
        }
        if match_rules(&self.excluded, self.equivalent, attributes).is_some() {
            return Ok(None);
        }
        let matched = if self.rules.is_empty() {
            Some(MatchedResource { resource: attributes.resource, kind: attributes.kind })
        } else {
            match_rules(&self.rules, self.equivalent, attributes)
        };
        if matched.is_some() {
            matches_namespace?;
        }
        Ok(matched)
    }

    fn matches_namespace(
        &self,
        attributes: &RequestAttributes<'_>,
        cluster: &ClusterData,
    ) -> Result<bool, String> {
        let (name, is_namespace) =
            (attributes.request.namespace(), attributes.resource.resource == "namespaces");
        if self.namespaces.is_empty() || (name.is_empty() && !is_namespace) {
            return Ok(true);
        }
        let changes = matches!(attributes.request.operation(), "CREATE" | "UPDATE");
        if is_namespace && changes && attributes.request.sub_resource().is_empty() {
            return Ok(attributes.object.is_some_and(|object| self.namespaces.matches(object)));
        }
        match cluster.namespaces.get(name) {
            Some(namespace) => Ok(self.namespaces.matches(namespace)),
            None => Err(format!("namespaces \"{name}\" not found")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MatchConstraints, RequestAttributes};
    use crate::input::AdmissionRequest;
    use crate::input::ClusterData;

    fn check(constraints: &serde_json::Value, request: &serde_json::Value, expected: Option<&str>) {
        let mut cluster = ClusterData::default();
        cluster
            .namespaces
            .insert("ml".into(), json!({ "metadata": { "name": "ml", "labels": { "team": "a" } } }));
        let constraints =
            MatchConstraints::new(&serde_json::from_value(constraints.clone()).expect("a spec"));
        let request = AdmissionRequest { json: request };
        let attributes = RequestAttributes::new(request, request.object());
        let matched = constraints.matches(&attributes, &cluster).expect("the namespace is known");
        let found = matched.map(|found| format!("{}/{}", found.resource.group, found.resource.version));
        assert_eq!(found.as_deref(), expected, "{constraints:?}");
    }

    #[test]
    fn requests_are_matched() {
        let pod = json!({
            "operation": "CREATE", "namespace": "ml", "name": "a",
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "object": { "metadata": { "labels": { "app": "x" } } },
        });
        let rule = |more: serde_json::Value| {
            let mut rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
            for (key, value) in more.as_object().into_iter().flatten() {
                rule[key] = value.clone();
            }
            json!({ "resourceRules": [rule] })
        };
        for (more, expected) in [
            (json!({}), true),
            (json!({ "operations": ["UPDATE"] }), false),
            (json!({ "operations": ["*"] }), true),
            (json!({ "resources": ["pods/status"] }), false),
            (json!({ "resources": ["*"] }), true),
            (json!({ "resources": ["*/*"] }), true),
            (json!({ "resources": ["pods/*"] }), true),
            (json!({ "resources": ["*/status"] }), false),
            (json!({ "scope": "Cluster" }), false),
            (json!({ "scope": "Namespaced" }), true),
            (json!({ "resourceNames": ["a"] }), true),
            (json!({ "resourceNames": ["b"] }), false),
            (json!({ "apiVersions": ["v2"] }), false),
        ] {
            check(&rule(more), &pod, expected.then_some("/v1"));
        }
        let mut excluded = rule(json!({}));
        excluded["excludeResourceRules"] = excluded["resourceRules"].clone();
        check(&excluded, &pod, None);
        for (selector, expected) in [(json!({ "team": "a" }), true), (json!({ "team": "b" }), false)] {
            let mut selected = rule(json!({}));
            selected["namespaceSelector"] = json!({ "matchLabels": selector });
            check(&selected, &pod, expected.then_some("/v1"));
        }
    }

    #[test]
    fn another_version_of_the_same_resource_is_matched() {
        let scaler = json!({
            "operation": "CREATE", "namespace": "ml", "name": "a",
            "resource": { "group": "autoscaling", "version": "v2", "resource": "horizontalpodautoscalers" },
            "kind": { "group": "autoscaling", "version": "v2", "kind": "HorizontalPodAutoscaler" },
            "requestResource": { "group": "autoscaling", "version": "v1", "resource": "horizontalpodautoscalers" },
            "requestKind": { "group": "autoscaling", "version": "v1", "kind": "HorizontalPodAutoscaler" },
        });
        let rule = |version: &str, policy: &str| {
            json!({ "matchPolicy": policy, "resourceRules": [{ "apiGroups": ["autoscaling"], "apiVersions": [version],
                "operations": ["CREATE"], "resources": ["horizontalpodautoscalers"] }] })
        };
        check(&rule("v1", "Exact"), &scaler, Some("autoscaling/v1"));
        check(&rule("v2", "Exact"), &scaler, None);
        check(&rule("v2", "Equivalent"), &scaler, Some("autoscaling/v2"));
        check(&rule("v3", "Equivalent"), &scaler, None);
    }
}
