//! Which requests a policy and a binding are about: `matchConstraints` and `matchResources`, as the API server reads them.
//!
//! A request may come in another version than the user sent it. What the user sent is what rules are held against first; with
//! `matchPolicy: Equivalent` other versions of the same resource are, too. The API server converts the object then. Here it stays as
//! it came, so whoever registers the webhook registers it for the versions that policies speak of.

use serde_json::Value as Json;

use super::selector::Selector;
use super::text;
use crate::request::{Request, Resource};
use crate::spec::{MatchResources, ResourceRule};
use crate::world::World;

/// Kinds whose admission no policy of the API server sees: a policy that forbids all policies could not be taken away.
const UNSEEN: [(&str, &str); 10] = [
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

/// Built-in resources that Kubernetes 1.36 serves in several versions or groups: resource, kind, and where.
const SEVERAL: [(&str, &str, &str, &str); 4] = [
    ("horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling", "v1"),
    ("horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling", "v2"),
    ("events", "Event", "", "v1"),
    ("events", "Event", "events.k8s.io", "v1"),
];

/// A request as rules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) request: Request<'a>,
    /// What the user asked for.
    pub(crate) resource: Resource<'a>,
    pub(crate) kind: [&'a str; 3],
    /// The object that would be, which a mutation may have changed since the request came.
    pub(crate) object: Option<&'a Json>,
    pub(crate) old_object: Option<&'a Json>,
}

/// What a policy takes a request to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matched<'a> {
    pub(crate) resource: Resource<'a>,
    /// Group, version and kind.
    pub(crate) kind: [&'a str; 3],
}

impl<'a> Asked<'a> {
    pub(crate) fn new(request: Request<'a>, object: Option<&'a Json>) -> Self {
        let json = request.json;
        let named = |kind: &str, key: &str, pointer: &str| {
            let base = if json.get(kind).is_some_and(Json::is_object) { kind } else { key };
            json.get(base).map_or("", |found| text(found, pointer))
        };
        let resource = |key: &str| named("requestResource", "resource", key);
        let kind = |key: &str| named("requestKind", "kind", key);
        Self {
            request,
            resource: Resource {
                group: resource("/group"),
                version: resource("/version"),
                resource: resource("/resource"),
            },
            kind: [kind("/group"), kind("/version"), kind("/kind")],
            object,
            old_object: request.old_object(),
        }
    }

    /// Whether no policy sees such requests.
    pub(crate) fn is_unseen(&self) -> bool {
        let (group, resource) = (self.resource.group, self.resource.resource);
        UNSEEN.contains(&(group, resource))
    }

    fn is_namespace(&self) -> bool {
        self.resource == Resource { group: "", version: "v1", resource: "namespaces" }
    }

    /// The namespace that the object is in; a `Namespace` is in none, though its requests name it.
    pub(crate) fn namespace(&self) -> &'a str {
        if self.kind == ["", "v1", "Namespace"] { "" } else { self.request.namespace() }
    }

    /// The same as something else matched it, in words that live as long as the request.
    pub(crate) fn named(&self, matched: Matched<'_>) -> Matched<'a> {
        let here = Matched { resource: self.resource, kind: self.kind };
        if matched == here {
            return here;
        }
        self.equivalents().into_iter().find(|other| other.resource == matched.resource).unwrap_or(here)
    }

    /// Other names of the resource: in what version it came, and in what versions it is known to be served.
    fn equivalents(&self) -> Vec<Matched<'a>> {
        let json = self.request.json;
        let came = Matched {
            resource: self.request.resource(),
            kind: ["/kind/group", "/kind/version", "/kind/kind"].map(|pointer| text(json, pointer)),
        };
        let mut found = Vec::new();
        if came.resource != self.resource {
            found.push(came);
        }
        let here = self.resource;
        let is_here = |(resource, _, group, version)| here == Resource { group, version, resource };
        if !SEVERAL.into_iter().any(is_here) || !self.request.sub_resource().is_empty() {
            return found;
        }
        for (resource, kind, group, version) in SEVERAL {
            let other = Resource { group, version, resource };
            if resource == here.resource && other != here && other != came.resource {
                found.push(Matched { resource: other, kind: [group, version, kind] });
            }
        }
        found
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

/// One of `resourceRules`.
#[derive(Clone, Debug)]
struct Rule {
    names: Vec<String>,
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<(String, String)>,
    scope: Scope,
}

fn among(wanted: &[String], found: &str) -> bool {
    wanted.iter().any(|wanted| wanted == "*" || wanted == found)
}

impl Rule {
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
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }

    fn takes(&self, asked: &Asked<'_>, resource: Resource<'_>) -> bool {
        let clustered = asked.is_namespace() || asked.request.namespace().is_empty();
        let sub = asked.request.sub_resource();
        (match self.scope {
            Scope::All => true,
            Scope::Cluster => clustered,
            Scope::Namespaced => !clustered,
        }) && among(&self.operations, asked.request.operation())
            && among(&self.groups, resource.group)
            && among(&self.versions, resource.version)
            && self.resources.iter().any(|(wanted, wanted_sub)| {
                (wanted == "*" || wanted == resource.resource) && (wanted_sub == "*" || wanted_sub == sub)
            })
    }

    /// Whether it can take a resource of this name in some version.
    fn speaks_of(&self, resource: &str) -> bool {
        self.resources.iter().any(|(wanted, _)| wanted == "*" || wanted == resource)
    }

    fn names(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// `matchConstraints` or `matchResources`.
#[derive(Clone, Debug)]
pub(crate) struct Constraints {
    namespaces: Selector,
    objects: Selector,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
}

fn by_rules<'a>(rules: &[Rule], equivalent: bool, asked: &Asked<'a>) -> Option<Matched<'a>> {
    let name = asked.request.name();
    if rules.iter().any(|rule| rule.takes(asked, asked.resource) && rule.names(name)) {
        return Some(Matched { resource: asked.resource, kind: asked.kind });
    }
    // Whatever version it is served in, a resource has one name.
    if !equivalent || !rules.iter().any(|rule| rule.speaks_of(asked.resource.resource)) {
        return None;
    }
    let others = asked.equivalents();
    rules.iter().find_map(|rule| {
        others.iter().find(|other| rule.takes(asked, other.resource) && rule.names(name)).copied()
    })
}

impl Constraints {
    pub(crate) fn new(spec: &MatchResources) -> Self {
        let rules = |rules: &Option<Vec<ResourceRule>>| rules.iter().flatten().map(Rule::new).collect();
        Self {
            namespaces: Selector::new(spec.namespace_selector.as_ref()),
            objects: Selector::new(spec.object_selector.as_ref()),
            rules: rules(&spec.resource_rules),
            excluded: rules(&spec.exclude_resource_rules),
            equivalent: spec.match_policy.as_deref() != Some("Exact"),
        }
    }

    /// What the request is taken to be; none when it is not meant.
    ///
    /// # Errors
    /// What is not known of its namespace.
    pub(crate) fn matches<'a>(
        &self,
        asked: &Asked<'a>,
        world: &World,
    ) -> Result<Option<Matched<'a>>, String> {
        let by_namespace = self.by_namespace(asked, world);
        if by_namespace == Ok(false) {
            return Ok(None);
        }
        let objects = [asked.object, asked.old_object];
        if !self.objects.is_empty() && !objects.iter().flatten().any(|object| self.objects.takes(object)) {
            return Ok(None);
        }
        if by_rules(&self.excluded, self.equivalent, asked).is_some() {
            return Ok(None);
        }
        let matched = if self.rules.is_empty() {
            Some(Matched { resource: asked.resource, kind: asked.kind })
        } else {
            by_rules(&self.rules, self.equivalent, asked)
        };
        if matched.is_some() {
            by_namespace?;
        }
        Ok(matched)
    }

    fn by_namespace(&self, asked: &Asked<'_>, world: &World) -> Result<bool, String> {
        let (name, is_namespace) = (asked.request.namespace(), asked.resource.resource == "namespaces");
        if self.namespaces.is_empty() || (name.is_empty() && !is_namespace) {
            return Ok(true);
        }
        let changes = matches!(asked.request.operation(), "CREATE" | "UPDATE");
        if is_namespace && changes && asked.request.sub_resource().is_empty() {
            return Ok(asked.object.is_some_and(|object| self.namespaces.takes(object)));
        }
        match world.namespaces.get(name) {
            Some(namespace) => Ok(self.namespaces.takes(namespace)),
            None => Err(format!("namespaces \"{name}\" not found")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Asked, Constraints};
    use crate::request::Request;
    use crate::world::World;

    fn check(constraints: &serde_json::Value, request: &serde_json::Value, expected: Option<&str>) {
        let mut world = World::default();
        world
            .namespaces
            .insert("ml".into(), json!({ "metadata": { "name": "ml", "labels": { "team": "a" } } }));
        let constraints = Constraints::new(&serde_json::from_value(constraints.clone()).expect("a spec"));
        let request = Request { json: request };
        let asked = Asked::new(request, request.object());
        let matched = constraints.matches(&asked, &world).expect("the namespace is known");
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
