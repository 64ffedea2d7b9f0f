//! Translates a checked `GangPolicy` to up to two policies with one binding each: a validating and a mutating
//! one.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::dialect;
use portcullis_core::objects::names;
use serde_json::{Value as Json, json};

use super::fields::EXCLUDED_NAMESPACES;
use super::limits::{LimitRule, literal, rules};
use super::{get, text, texts};

const API_VERSION: &str = "admissionregistration.k8s.io/v1";
/// Updates that do not change the spec are allowed, so that older objects can lose a finalizer and
/// controllers can write annotations.
const SPEC_CHANGED: &str =
    "request.operation != 'UPDATE' || object.?spec.orValue(null) != oldObject.?spec.orValue(null)";
const IS_POD: &str = "request.kind.kind == 'Pod'";

/// Returns the translated documents. The `GangPolicy` must have been checked.
pub(super) fn translate(document: &Json) -> Vec<Json> {
    let name = document.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
    let mut documents = Vec::new();
    let validations = validations(document, name);
    if !validations.is_empty() {
        let validations: Vec<Json> = validations.iter().map(LimitRule::json).collect();
        let mut policy = policy(document, name, "ValidatingAdmissionPolicy", &validated_resources());
        if let Some(conditions) = policy.pointer_mut("/spec/matchConditions").and_then(Json::as_array_mut) {
            conditions.push(json!({ "name": "new-or-changed", "expression": SPEC_CHANGED }));
        }
        policy["spec"]["validations"] = validations.into();
        let action = text(document, "action").unwrap_or("Deny");
        documents.push(policy);
        documents.push(json!({
            "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": name },
            "spec": { "policyName": name, "validationActions": [action] },
        }));
    }
    let mutations = mutations(document);
    if !mutations.is_empty() {
        let ordered = text(document, "defaults.ordered") == Some("keep");
        let mut policy = policy(document, name, "MutatingAdmissionPolicy", &mutated_resources(ordered));
        policy["spec"]["reinvocationPolicy"] = "IfNeeded".into();
        let patches = mutations
            .iter()
            .map(|expression| json!({ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } }));
        policy["spec"]["mutations"] = patches.collect();
        documents.push(policy);
        documents.push(json!({
            "apiVersion": API_VERSION, "kind": "MutatingAdmissionPolicyBinding", "metadata": { "name": name },
            "spec": { "policyName": name },
        }));
    }
    documents
}

fn policy(document: &Json, name: &str, kind: &str, rules: &[Json]) -> Json {
    let mut constraints = json!({ "resourceRules": rules });
    for selector in ["namespaceSelector", "objectSelector"] {
        if let Some(value) = get(document, &format!("match.{selector}")) {
            constraints[selector] = value.clone();
        }
    }
    json!({
        "apiVersion": API_VERSION, "kind": kind, "metadata": { "name": name },
        "spec": {
            "failurePolicy": text(document, "failurePolicy").unwrap_or("Fail"),
            "matchConstraints": constraints,
            "matchConditions": conditions(document),
        },
    })
}

fn list<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let literals: Vec<String> = texts.into_iter().map(literal).collect();
    format!("[{}]", literals.join(", "))
}

fn conditions(document: &Json) -> Vec<Json> {
    let mut conditions = Vec::new();
    let mut add =
        |name: &str, expression: String| conditions.push(json!({ "name": name, "expression": expression }));
    let namespaces = texts(document, "match.namespaces");
    if namespaces.is_empty() {
        let excluded = texts(document, "match.excludeNamespaces");
        let excluded = if get(document, "match.excludeNamespaces").is_some() {
            excluded
        } else {
            EXCLUDED_NAMESPACES.to_vec()
        };
        add("namespaces", format!("!(request.namespace in {})", list(excluded)));
    } else {
        add("namespaces", format!("request.namespace in {}", list(namespaces)));
    }
    match texts(document, "match.dialects") {
        dialects if dialects.is_empty() => add("gang-or-gpu", "gang.named || gpu.asks".to_owned()),
        dialects => add("dialects", format!("gang.dialect in {}", list(dialects))),
    }
    conditions
}

/// Returns rules for the group objects of all stacks.
fn groups(operations: &[&str]) -> Vec<Json> {
    let mut plurals: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, resource) in dialect::group_resources() {
        plurals.entry(resource.group).or_default().insert(resource.plural);
    }
    let rule = |(group, plurals): (&str, BTreeSet<&str>)| json!({ "apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": plurals });
    plurals.into_iter().map(rule).collect()
}

fn pods() -> Json {
    json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] })
}

/// Returns rules for pods, for the workloads that create them, so that users see denials when they apply
/// those, and for group objects.
fn validated_resources() -> Vec<Json> {
    let both = ["CREATE", "UPDATE"];
    let mut rules = vec![
        pods(),
        json!({ "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": both, "resources": ["deployments", "statefulsets"] }),
        json!({ "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": both, "resources": ["jobs", "cronjobs"] }),
    ];
    rules.extend(groups(&both));
    rules
}

fn mutated_resources(stateful_sets: bool) -> Vec<Json> {
    let mut rules = vec![pods()];
    if stateful_sets {
        rules.push(json!({ "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["statefulsets"] }));
    }
    rules.extend(groups(&["CREATE"]));
    rules
}

fn validations(document: &Json, name: &str) -> Vec<LimitRule> {
    let mut all = rules(document, name);
    if text(document, "missingGroup") == Some("reject") {
        let end = format!(
            " does not exist in namespace ' + gang.namespace + {}",
            literal(&format!(
                " (missingGroup of GangPolicy {name}). Create the group first, correct its name in the pod, or set the number of members in the pod."
            ))
        );
        all.push(LimitRule::forbidden(
            format!("!({IS_POD}) || !gang.named || gang.known"),
            format!("'group ' + gang.name + ' of ' + gang.dialect + '{end}"),
        ));
    }
    if text(document, "schedulers.unknown") == Some("reject") {
        let known = list(known_schedulers(document));
        let scheduler = "(object.?spec.?schedulerName.orValue(object.?spec.?template.?spec.?schedulerName.orValue(\
                         object.?spec.?jobTemplate.?spec.?template.?spec.?schedulerName.orValue(''))))";
        let end = literal(&format!(
            " does not run in this cluster: the known schedulers are {} (schedulers.known of GangPolicy {name}). Remove spec.schedulerName.",
            known_schedulers(document).join(", ")
        ));
        all.push(LimitRule::forbidden(
            format!("{scheduler} in ['', {}", known.trim_start_matches('[')),
            format!("'scheduler ' + {scheduler} + {end}"),
        ));
    }
    if text(document, "preemption") == Some("reject") {
        let class = "object.spec.?priorityClassName.orValue('')";
        let end = literal(&format!(
            " lets the scheduler evict other pods (preemption of GangPolicy {name}). Name a class with preemptionPolicy: Never."
        ));
        all.push(LimitRule::forbidden(
            format!(
                "!({IS_POD}) || {class} == '' || !({class} in priorityClasses) || priorityClasses[{class}].preemptionPolicy == 'Never'"
            ),
            format!("'spec.priorityClassName ' + {class} + {end}"),
        ));
    }
    all
}

fn known_schedulers(document: &Json) -> Vec<&str> {
    let target = text(document, "schedulers.rewriteTo")
        .filter(|_| text(document, "schedulers.unknown") == Some("rewrite"));
    let mut known = vec![names::DEFAULT_SCHEDULER];
    for name in texts(document, "schedulers.known").into_iter().chain(target) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

/// Returns operations under a condition.
fn conditional(condition: &str, operations: &str) -> String {
    format!("{condition} ? [{operations}] : []")
}

/// Returns an operation that adds a value.
fn add(path: &str, value: &str) -> String {
    format!("JSONPatch{{op: 'add', path: {path}, value: {value}}}")
}

fn mutations(document: &Json) -> Vec<String> {
    let mut mutations = Vec::new();
    mutations.extend(default_annotations(document));
    if text(document, "defaults.ordered") == Some("keep") {
        let absent = format!(
            "!({} in object.metadata.?annotations.orValue({{}}))",
            literal(names::ORDERED_ANNOTATION)
        );
        let condition =
            format!("request.kind.kind == 'StatefulSet' && gang.named && gang.dialect != 'lws' && {absent}");
        mutations.push(add_annotations(&[(
            condition,
            names::ORDERED_ANNOTATION,
            names::ORDERED_KEEP.to_owned(),
        )]));
    }
    if let Some(class) = text(document, "defaults.runtimeClassName") {
        let condition = format!("{IS_POD} && gpu.asks && object.spec.?runtimeClassName.orValue('') == ''");
        mutations.push(conditional(&condition, &add("'/spec/runtimeClassName'", &literal(class))));
    }
    if let Some(class) = text(document, "defaults.priorityClassName") {
        // The API server has already resolved the priority of a pod without a class. The resolved value would
        // contradict the class.
        let unnamed = format!("{IS_POD} && object.spec.?priorityClassName.orValue('') == ''");
        let remove = |field: &str| {
            let condition = format!("{unnamed} && has(object.spec.{field})");
            format!(
                "({})",
                conditional(&condition, &format!("JSONPatch{{op: 'remove', path: '/spec/{field}'}}"))
            )
        };
        let named = conditional(&unnamed, &add("'/spec/priorityClassName'", &literal(class)));
        mutations.push(format!("{} + {} + ({named})", remove("priority"), remove("preemptionPolicy")));
    }
    if let Some(selector) = get(document, "defaults.nodeSelector").and_then(Json::as_object) {
        mutations.extend(node_selector(selector));
    }
    if text(document, "schedulers.unknown") == Some("rewrite") {
        let target = text(document, "schedulers.rewriteTo").unwrap_or(names::DEFAULT_SCHEDULER);
        let known = list(known_schedulers(document));
        let condition = format!(
            "{IS_POD} && !(object.spec.?schedulerName.orValue('') in ['', {})",
            known.trim_start_matches('[')
        );
        mutations.push(conditional(&condition, &add("'/spec/schedulerName'", &literal(target))));
    }
    mutations
}

/// Returns the mutation that adds node selector labels which the pod does not set itself.
fn node_selector(selector: &serde_json::Map<String, Json>) -> Option<String> {
    let mut parts = Vec::new();
    for (key, value) in selector {
        let absent = format!("{IS_POD} && !({} in object.spec.?nodeSelector.orValue({{}}))", literal(key));
        let path = format!("'/spec/nodeSelector/' + jsonpatch.escapeKey({})", literal(key));
        parts.push(format!(
            "({})",
            conditional(&absent, &add(&path, &literal(value.as_str().unwrap_or_default())))
        ));
    }
    if parts.is_empty() {
        return None;
    }
    let none = conditional(
        &format!("{IS_POD} && !has(object.spec.nodeSelector)"),
        &add("'/spec/nodeSelector'", "{}"),
    );
    Some(format!("({none}) + {}", parts.join(" + ")))
}

/// Returns the mutation that sets the defaults for the life of a gang as annotations, where neither group nor
/// pod sets them.
fn default_annotations(document: &Json) -> Option<String> {
    let mut wanted: Vec<(String, &str, String)> = Vec::new();
    let on_group_or_pod =
        format!("request.kind.kind != 'StatefulSet' && gang.named && !({IS_POD} && gang.groupFound)");
    let mut want = |said: &str, key: &'static str, value: String| {
        wanted.push((format!("{on_group_or_pod} && {said}"), key, value));
    };
    let given = |path: &str| text(document, path).map(str::to_owned);
    if let Some(value) = given("defaults.timeout") {
        want("gang.timeoutSeconds < 0", names::TIMEOUT_ANNOTATION, value);
    }
    if let Some(value) = given("defaults.onTimeout") {
        want("gang.onTimeout == ''", names::ON_TIMEOUT_ANNOTATION, value);
    }
    if let Some(value) = given("defaults.onTorn") {
        want("gang.onTorn == ''", names::ON_TORN_ANNOTATION, value);
    }
    if let Some(value) = given("defaults.topology") {
        want("gang.topology == ''", names::TOPOLOGY_ANNOTATION, value);
    }
    if let Some(value) = given("defaults.onStale") {
        want("gang.onStale == ''", names::ON_STALE_ANNOTATION, value);
    }
    if let Some(value) = given("defaults.staleGrace") {
        let value = if value == "never" { "-1s".to_owned() } else { value };
        want("gang.staleGraceSeconds < 0 && gang.onStale != 'keep'", names::STALE_GRACE_ANNOTATION, value);
    }
    for (path, key) in
        [("defaults.elastic", names::ELASTIC_ANNOTATION), ("defaults.pin", names::PIN_ANNOTATION)]
    {
        if let Some(value) = get(document, path).and_then(Json::as_bool) {
            let absent = format!("!({} in object.metadata.?annotations.orValue({{}}))", literal(key));
            want(&absent, key, value.to_string());
        }
    }
    (!wanted.is_empty()).then(|| add_annotations(&wanted))
}

/// Returns operations that add annotations, each under its condition, and the annotation map if it is absent.
fn add_annotations(wanted: &[(String, &str, String)]) -> String {
    let any: Vec<String> = wanted.iter().map(|(condition, ..)| format!("({condition})")).collect();
    let map = conditional(
        &format!("!has(object.metadata.annotations) && ({})", any.join(" || ")),
        &add("'/metadata/annotations'", "{}"),
    );
    let each = wanted.iter().map(|(condition, key, value)| {
        let path = format!("'/metadata/annotations/' + jsonpatch.escapeKey({})", literal(key));
        format!("({})", conditional(condition, &add(&path, &literal(value))))
    });
    std::iter::once(format!("({map})")).chain(each).collect::<Vec<_>>().join(" + ")
}
