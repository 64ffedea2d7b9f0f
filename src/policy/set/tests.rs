//! Tests of loaded policy sets: behaviour that involves several documents of a set.

use serde_json::{Value as Json, json};

use super::*;
use crate::load::{SourceFile, load};

fn file(text: &str) -> [SourceFile; 1] {
    [SourceFile { name: "p.yaml".to_owned(), bytes: text.as_bytes().to_owned() }]
}

fn set(text: &str) -> PolicySet {
    let loaded = load(&file(text));
    loaded.set.unwrap_or_else(|| panic!("{:?}", loaded.problems))
}

fn problems(text: &str) -> Vec<String> {
    load(&file(text)).problems.iter().map(crate::load::Problem::one_line).collect()
}

fn request(kind: &str, object: &Json) -> Json {
    json!({
        "uid": "u", "operation": "CREATE", "namespace": "ml", "name": "x",
        "kind": { "group": "", "version": "v1", "kind": kind },
        "resource": { "group": "", "version": "v1", "resource": format!("{}s", kind.to_lowercase()) },
        "object": object,
    })
}

fn pod() -> Json {
    request(
        "Pod",
        &json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "x" }, "spec": { "containers": [] } }),
    )
}

fn cluster() -> ClusterData {
    ClusterData {
        namespaces: [("ml".to_owned(), json!({ "metadata": { "name": "ml" } }))].into(),
        ..ClusterData::default()
    }
}

const PODS: &str = r#"matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}"#;

/// Returns a policy for pods, bound to deny, without its rules.
fn validating(name: &str, spec: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  {PODS}
{spec}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny]}}
"
    )
}

fn mutating(name: &str, expression: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  reinvocationPolicy: Never
  {PODS}
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          {expression}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}}}
"
    )
}

fn exception(policies: &str) -> String {
    format!(
        "---
apiVersion: portcullis.dev/v1alpha1
kind: PolicyException
metadata: {{name: e}}
spec:
  owner: o
  reason: r
  expires: '2040-01-01T00:00:00Z'
  policies: {policies}
  match: {{namespaces: [ml]}}
"
    )
}

/// Rule 1 was not evaluated, so an exception from rule 0 must not exempt the object from rule 1.
#[test]
fn an_exception_from_one_rule_does_not_exempt_from_a_failure_of_the_whole_policy() {
    const RULES: &str = "  validations: [{expression: 'false'}, {expression: 'false'}]";
    let condition =
        "  matchConditions: [{name: c, expression: \"int(object.metadata.annotations['n']) > 0\"}]\n";
    let notes = "  auditAnnotations: [{key: k, valueExpression: \"lists.range(1000).map(a, lists.range(1000)).size() > 0 ? 'a' : 'b'\"}]\n";
    let endless = "  validations: [{expression: 'lists.range(2000).all(a, lists.range(2000).all(b, a + b >= 0))'}, {expression: 'false'}]";
    let pod = pod();
    for (spec, rule) in [
        (format!("{condition}{RULES}"), "/spec/matchConditions"),
        (format!("{notes}  validations: [{{expression: 'true'}}]"), "/spec/auditAnnotations/0"),
        (endless.to_owned(), "/spec/validations/1"),
        (RULES.to_owned(), "/spec/validations/1"),
    ] {
        let text = validating("p", &spec) + &exception("[{name: p, validations: [0]}]");
        let validation = set(&text).validate(&AdmissionRequest { json: &pod }, &cluster());
        let rules: Vec<&str> = validation.denials.iter().map(|denial| denial.rule.as_str()).collect();
        assert_eq!(rules, [rule], "{spec}: {validation:?}");
    }
}

#[test]
fn a_failure_of_a_whole_policy_names_the_failing_part() {
    let rule = "lists.range(900).all(a, lists.range(900).all(b, a + b >= 0))";
    let rules: String = (0..40).map(|_| format!("    - expression: {rule}\n")).collect();
    let pod = pod();
    let validation = set(&validating("p", &format!("  validations:\n{rules}")))
        .validate(&AdmissionRequest { json: &pod }, &cluster());
    let found: Vec<(&str, bool)> = validation
        .denials
        .iter()
        .map(|denial| (denial.rule.as_str(), denial.detail.contains("running out of cost budget")))
        .collect();
    assert_eq!(found, [("/spec/validations", true)]);
}

#[test]
fn an_exception_is_recorded_only_where_the_policy_matches() {
    let text = mutating("m", "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]")
        + "---\napiVersion: portcullis.dev/v1alpha1\nkind: GangPolicy\nmetadata: {name: g}\nspec: {defaults: {priorityClassName: low}}\n"
        + &exception("[{name: m}, {name: g}]");
    let set = set(&text);
    let excepted = |request: &Json| {
        let mutation = set.mutate(&AdmissionRequest { json: request }, &cluster());
        assert_eq!(mutation.object, None);
        mutation.applied_exceptions.into_iter().map(|one| one.policy).collect::<Vec<String>>()
    };
    assert_eq!(excepted(&pod()), ["g", "m"]);
    let other = request(
        "ConfigMap",
        &json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" } }),
    );
    assert_eq!(excepted(&other), Vec::<String>::new());
}

#[test]
fn an_exception_must_name_existing_rules() {
    let rules = "  validations: [{expression: 'true'}, {expression: 'true'}]";
    let text = validating("p", rules)
        + &mutating("m", "[JSONPatch{op: 'remove', path: '/metadata/labels'}]")
        + &exception("[{name: p, validations: [1, 2]}, {name: m, validations: [0]}]");
    let found = problems(&text).join("\n");
    for part in
        ["\"p\" has no validation 2: it has 2, counted from 0", "\"m\" is not a ValidatingAdmissionPolicy"]
    {
        assert!(found.contains(part), "{part} is not in\n{found}");
    }
    assert_eq!(found.lines().count(), 2, "{found}");
}

#[test]
fn duplicate_parameters_in_a_namespace_are_reported() {
    let map = |namespace: &str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: limits{namespace}}}\ndata: {{a: b}}\n"
        )
    };
    let policy = validating(
        "p",
        "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'true'}]",
    )
    .replace(
        "validationActions",
        "paramRef: {name: limits, parameterNotFoundAction: Deny}, validationActions",
    );
    let found = problems(&(policy.clone() + &map("") + &map(", namespace: default"))).join("\n");
    assert!(found.contains("there is another ConfigMap \"limits\""), "{found}");
    assert_eq!(problems(&(policy + &map("") + &map(", namespace: other"))), Vec::<String>::new());
}

#[test]
fn the_size_of_a_patched_object_is_limited() {
    let pod = request(
        "Pod",
        &json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "x", "annotations": { "a": "y".repeat(10_000) } }, "spec": { "containers": [] } }),
    );
    for (expression, why) in [
        (
            "lists.range(40).map(i, JSONPatch{op: 'copy', from: '/metadata', path: '/metadata/x' + string(i)})",
            "accumulated size increase of copy exceeds the limit 3145728",
        ),
        (
            "lists.range(9000).map(i, JSONPatch{op: 'add', path: '/metadata/x' + string(i), value: object})",
            "makes more than 3145728 bytes",
        ),
    ] {
        let mutation = set(&mutating("m", expression)).mutate(&AdmissionRequest { json: &pod }, &cluster());
        let found: Vec<&str> = mutation.denials.iter().map(|denial| denial.detail.as_str()).collect();
        assert!(found.len() == 1 && found[0].contains(why), "{expression}: {found:?}");
    }
}
