//! Tests of the API server's validation rules: each rule with an invalid value and the closest valid one.

use serde_json::json;

use super::*;

fn policy() -> Json {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "a" },
        "spec": {
            "matchConstraints": { "resourceRules": [
                { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] },
            ] },
            "validations": [{ "expression": "true" }],
        },
    })
}

fn mutation() -> Json {
    let mut document = policy();
    document["kind"] = "MutatingAdmissionPolicy".into();
    document["spec"]["validations"] = Json::Null;
    document["spec"]["reinvocationPolicy"] = "Never".into();
    document["spec"]["mutations"] =
        json!([{ "patchType": "JSONPatch", "jsonPatch": { "expression": "[]" } }]);
    document
}

fn binding() -> Json {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "a" },
        "spec": { "policyName": "a", "validationActions": ["Deny"] },
    })
}

/// Sets the value at a pointer. The last step of the pointer may be absent.
fn set(document: &mut Json, pointer: &str, value: Json) {
    if let Some(known) = document.pointer_mut(pointer) {
        *known = value;
        return;
    }
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    document.pointer_mut(parent).expect("the parent is there")[key] = value;
}

/// Checks the diagnostics after each change, as `POINTER: MESSAGE`.
fn check(base: fn() -> Json, checks: fn(&Json) -> Vec<Diagnostic>, rows: &[(&str, Json, &[&str])]) {
    assert_eq!(checks(&base()), [], "what the changes start from is good");
    for (pointer, value, expected) in rows {
        let mut document = base();
        set(&mut document, pointer, value.clone());
        let found: Vec<String> = checks(&document)
            .into_iter()
            .map(|diagnostic| format!("{}: {}", diagnostic.pointer, diagnostic.message))
            .collect();
        assert_eq!(found, *expected, "{pointer} = {value}");
    }
}

const RULE: &str = "/spec/matchConstraints/resourceRules/0";

fn rule(list: &str) -> String {
    format!("{RULE}/{list}")
}

#[test]
fn policies_follow_the_rules_of_the_api_server() {
    let (operations, groups, resources) = (rule("operations"), rule("apiGroups"), rule("resources"));
    check(
        policy,
        validating,
        &[
            (
                "/metadata/name",
                json!("A b"),
                &[
                    "/metadata/name: \"A b\" is not a valid object name: lowercase letters, digits, - and . are allowed, with a letter or digit at both ends",
                ],
            ),
            ("/metadata/name", Json::Null, &["/metadata/name: the field \"metadata.name\" is required"]),
            (
                "/metadata/namespace",
                json!("x"),
                &["/metadata/namespace: a ValidatingAdmissionPolicy is cluster-scoped: remove this field"],
            ),
            ("/spec/failurePolicy", json!("Ignore"), &[]),
            (
                "/spec/failurePolicy",
                json!("ignore"),
                &["/spec/failurePolicy: \"ignore\" is not one of Fail, Ignore"],
            ),
            ("/spec/failurePolicy", json!(3), &[]),
            (
                "/spec/matchConstraints",
                Json::Null,
                &["/spec/matchConstraints: matchConstraints is required: it selects the requests"],
            ),
            (
                "/spec/matchConstraints/resourceRules",
                json!([]),
                &[
                    "/spec/matchConstraints/resourceRules: matchConstraints needs at least one of resourceRules: they select the requests",
                ],
            ),
            ("/spec/matchConstraints/matchPolicy", json!("Exact"), &[]),
            (
                "/spec/matchConstraints/matchPolicy",
                json!("Some"),
                &["/spec/matchConstraints/matchPolicy: \"Some\" is not one of Equivalent, Exact"],
            ),
            (&operations, json!(["*"]), &[]),
            (
                &operations,
                json!(["*", "CREATE"]),
                &[
                    "/spec/matchConstraints/resourceRules/0/operations: \"*\" selects all operations: remove the other entries",
                ],
            ),
            (
                &operations,
                json!([]),
                &[
                    "/spec/matchConstraints/resourceRules/0/operations: the field \"operations\" is required: \"*\" selects all",
                ],
            ),
            (&groups, json!(["", "apps"]), &[]),
            (
                &groups,
                json!(["", "*"]),
                &[
                    "/spec/matchConstraints/resourceRules/0/apiGroups: \"*\" selects all API groups: remove the other entries",
                ],
            ),
            (&resources, json!(["pods", "pods/status"]), &[]),
            (&resources, json!(["*", "pods/status"]), &[]),
            (
                &resources,
                json!(["pods/*", "pods/status"]),
                &["/spec/matchConstraints/resourceRules/0/resources/1: \"pods/*\" already includes it"],
            ),
            (
                &resources,
                json!(["*/scale", "deployments/scale"]),
                &["/spec/matchConstraints/resourceRules/0/resources/1: \"*/scale\" already includes it"],
            ),
            (
                &resources,
                json!(["*/*", "pods"]),
                &[
                    "/spec/matchConstraints/resourceRules/0/resources: \"*/*\" selects all resources: remove the other entries",
                ],
            ),
            (
                &resources,
                json!(["*", "pods"]),
                &[
                    "/spec/matchConstraints/resourceRules/0/resources: \"*\" selects all resources: only subresources are allowed beside it",
                ],
            ),
            (&resources, json!([""]), &["/spec/matchConstraints/resourceRules/0/resources/0: it is empty"]),
            (&rule("scope"), json!("Namespaced"), &[]),
            (
                &rule("scope"),
                json!("namespaced"),
                &[
                    "/spec/matchConstraints/resourceRules/0/scope: \"namespaced\" is not one of *, Cluster, Namespaced",
                ],
            ),
            (&rule("resourceNames"), json!(["a", "b"]), &[]),
            (
                &rule("resourceNames"),
                json!(["a", "a"]),
                &["/spec/matchConstraints/resourceRules/0/resourceNames/1: the name \"a\" is here twice"],
            ),
            ("/spec/matchConditions", json!([{ "name": "a", "expression": "true" }]), &[]),
            (
                "/spec/matchConditions",
                json!([{ "name": "a", "expression": " " }, { "name": "a", "expression": "true" }]),
                &[
                    "/spec/matchConditions/0/expression: the field \"expression\" is required",
                    "/spec/matchConditions/1/name: duplicate match condition \"a\"",
                ],
            ),
            ("/spec/variables", json!([{ "name": "a_1", "expression": "1" }]), &[]),
            (
                "/spec/variables",
                json!([{ "name": "a-1", "expression": "1" }, { "name": "in", "expression": "" }]),
                &[
                    "/spec/variables/0/name: \"a-1\" is not a valid variable name: it must be a CEL identifier, letters, digits and _",
                    "/spec/variables/1/name: \"in\" is not a valid variable name: it must be a CEL identifier, letters, digits and _",
                    "/spec/variables/1/expression: the field \"expression\" is required",
                ],
            ),
            ("/spec/paramKind", json!({ "apiVersion": "v1", "kind": "ConfigMap" }), &[]),
            (
                "/spec/paramKind",
                json!({ "apiVersion": "a/b/c", "kind": "Config Map" }),
                &[
                    "/spec/paramKind/apiVersion: \"b/c\" is not a valid version, such as v1 or v1beta1",
                    "/spec/paramKind/kind: \"Config Map\" is no kind",
                ],
            ),
            (
                "/spec/validations",
                Json::Null,
                &["/spec/validations: at least one of validations or auditAnnotations is required"],
            ),
            (
                "/spec/validations/0/message",
                json!("a\nb"),
                &["/spec/validations/0/message: a message must be one line"],
            ),
            ("/spec/validations/0/message", json!("a\n"), &[]),
            (
                "/spec/validations/0/messageExpression",
                json!(" "),
                &["/spec/validations/0/messageExpression: messageExpression is empty: remove it"],
            ),
            ("/spec/validations/0/reason", json!("Forbidden"), &[]),
            (
                "/spec/validations/0/reason",
                json!("Unauthorized"),
                &[
                    "/spec/validations/0/reason: \"Unauthorized\" is not one of Forbidden, Invalid, RequestEntityTooLarge",
                ],
            ),
            ("/spec/auditAnnotations", json!([{ "key": "a", "valueExpression": "'x'" }]), &[]),
            (
                "/spec/auditAnnotations",
                json!([{ "key": "a b", "valueExpression": "" }, { "key": "a b", "valueExpression": "''" }]),
                &[
                    "/spec/auditAnnotations/0/key: \"a b\" is not a valid audit annotation key after the policy's name and a slash: letters, digits, -, _ and . are allowed, with a letter or digit at both ends",
                    "/spec/auditAnnotations/0/valueExpression: the field \"valueExpression\" is required",
                    "/spec/auditAnnotations/1/key: \"a b\" is not a valid audit annotation key after the policy's name and a slash: letters, digits, -, _ and . are allowed, with a letter or digit at both ends",
                    "/spec/auditAnnotations/1/key: duplicate audit annotation \"a b\"",
                ],
            ),
        ],
    );
}

#[test]
fn selectors_follow_the_rules_of_the_api_server() {
    let place = "/spec/matchConstraints/objectSelector";
    check(
        policy,
        validating,
        &[
            (
                place,
                json!({ "matchLabels": { "a.b/c": "d" }, "matchExpressions": [{ "key": "a", "operator": "Exists" }] }),
                &[],
            ),
            (
                place,
                json!({ "matchLabels": { "a b": "d e" } }),
                &[
                    "/spec/matchConstraints/objectSelector/matchLabels/a b: \"a b\" is not a valid label key: letters, digits, -, _ and . are allowed, with a letter or digit at both ends",
                    "/spec/matchConstraints/objectSelector/matchLabels/a b: \"d e\" is not a valid label value: letters, digits, -, _ and . are allowed, with a letter or digit at both ends",
                ],
            ),
            (
                place,
                json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": [] }] }),
                &[
                    "/spec/matchConstraints/objectSelector/matchExpressions/0: In needs at least one of values",
                ],
            ),
            (
                place,
                json!({ "matchExpressions": [{ "key": "a", "operator": "Exists", "values": ["b"] }] }),
                &["/spec/matchConstraints/objectSelector/matchExpressions/0/values: Exists takes no values"],
            ),
            (
                place,
                json!({ "matchExpressions": [{ "key": "a", "operator": "is" }] }),
                &[
                    "/spec/matchConstraints/objectSelector/matchExpressions/0/operator: \"is\" is not one of In, NotIn, Exists, DoesNotExist",
                ],
            ),
        ],
    );
}

#[test]
fn mutations_follow_the_rules_of_the_api_server() {
    check(
        mutation,
        mutating,
        &[
            ("/spec/reinvocationPolicy", json!("IfNeeded"), &[]),
            (
                "/spec/reinvocationPolicy",
                json!("Always"),
                &["/spec/reinvocationPolicy: \"Always\" is not one of Never, IfNeeded"],
            ),
            (
                "/spec/reinvocationPolicy",
                Json::Null,
                &["/spec/reinvocationPolicy: the field \"reinvocationPolicy\" is required"],
            ),
            ("/spec/mutations", json!([]), &["/spec/mutations: at least one of mutations is required"]),
            (
                "/spec/mutations/0/patchType",
                json!("Merge"),
                &["/spec/mutations/0/patchType: \"Merge\" is not one of ApplyConfiguration, JSONPatch"],
            ),
            (
                "/spec/mutations/0/patchType",
                json!("ApplyConfiguration"),
                &[
                    "/spec/mutations/0: applyConfiguration is required when patchType is ApplyConfiguration",
                    "/spec/mutations/0/jsonPatch: it is not allowed when patchType is ApplyConfiguration",
                ],
            ),
            (&rule("operations"), json!(["CREATE", "UPDATE", "CONNECT"]), &[]),
            (
                &rule("operations"),
                json!(["DELETE"]),
                &[
                    "/spec/matchConstraints/resourceRules/0/operations/0: a mutating policy cannot match DELETE: it must be one of *, CREATE, UPDATE, CONNECT",
                ],
            ),
        ],
    );
}

#[test]
fn bindings_follow_the_rules_of_the_api_server() {
    check(
        binding,
        validating_binding,
        &[
            ("/spec/policyName", json!(""), &["/spec/policyName: the field \"policyName\" is required"]),
            ("/spec/validationActions", json!(["Warn", "Audit"]), &[]),
            (
                "/spec/validationActions",
                json!(["Deny", "Warn"]),
                &[
                    "/spec/validationActions: Deny and Warn are mutually exclusive: a denial already shows the message",
                ],
            ),
            (
                "/spec/validationActions",
                json!([]),
                &[
                    "/spec/validationActions: the field \"validationActions\" is required: Deny, Warn or Audit",
                ],
            ),
            (
                "/spec/validationActions",
                json!(["Audit", "Audit", "Log"]),
                &[
                    "/spec/validationActions/1: \"Audit\" is here twice",
                    "/spec/validationActions/2: \"Log\" is not one of Deny, Warn, Audit",
                ],
            ),
            ("/spec/paramRef", json!({ "name": "a", "parameterNotFoundAction": "Allow" }), &[]),
            ("/spec/paramRef", json!({ "selector": {}, "parameterNotFoundAction": "Deny" }), &[]),
            (
                "/spec/paramRef",
                json!({ "name": "a", "selector": {}, "parameterNotFoundAction": "No" }),
                &[
                    "/spec/paramRef/selector: name and selector are mutually exclusive",
                    "/spec/paramRef/parameterNotFoundAction: \"No\" is not one of Allow, Deny",
                ],
            ),
            (
                "/spec/paramRef",
                json!({}),
                &[
                    "/spec/paramRef: one of name and selector is required",
                    "/spec/paramRef/parameterNotFoundAction: the field \"parameterNotFoundAction\" is required",
                ],
            ),
        ],
    );
}
