//! Tests of policy test cases: reading, running and comparing them.

#![expect(clippy::needless_pass_by_value, reason = "tables read better with json!() than with &json!()")]

use serde_json::{Value as Json, json};

use super::{CaseReport, CaseVerdict, read};
use crate::load::{SourceFile, load, read_test_suites};
use crate::set::PolicySet;

const POLICIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: tagged}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [pods]}]
  validations:
  - expression: request.operation == 'DELETE' || object.spec.containers.all(c, c.image.contains(':'))
    message: an image has no tag
  - expression: request.operation != 'DELETE' || request.userInfo.username == 'ada'
    message: only ada deletes pods
  - expression: request.operation != 'UPDATE' || object.metadata.name == oldObject.metadata.name
    message: it was another
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: tagged}
spec: {policyName: tagged, validationActions: [Deny]}
---
apiVersion: portcullis.dev/v1alpha1
kind: GangPolicy
metadata: {name: gangs}
spec: {action: Warn, missingGroup: reject, defaults: {priorityClassName: calm}}
"#;

fn set() -> PolicySet {
    let loaded = load(&[SourceFile { name: "policies.yaml".to_owned(), bytes: POLICIES.into() }]);
    loaded.set.unwrap_or_else(|| panic!("{:?}", loaded.problems))
}

fn run(case: &Json) -> CaseReport {
    let document = json!({ "metadata": { "name": "s" }, "cases": [case] });
    let mut diagnostics = Vec::new();
    let suite = read(&document, &mut diagnostics).unwrap_or_else(|| panic!("{diagnostics:?}"));
    suite.cases[0].run(&set(), &[], 0)
}

fn pod(image: &str) -> Json {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "a", "image": image }] } })
}

fn member() -> Json {
    let mut pod = pod("train:1");
    pod["metadata"]["annotations"] = json!({ "pod-group-name": "train", "gpu-memory": "1000" });
    pod
}

fn group() -> Json {
    json!({ "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": { "name": "train" }, "spec": { "minMember": 1 } })
}

/// Checks the mismatches of a case: subject, expected value, found value.
fn check(case: Json, expected: &[(&str, &str, &str)]) {
    let report = run(&case);
    let found: Vec<_> =
        report.mismatches.iter().map(|m| (m.what.as_str(), m.expected.as_str(), m.got.as_str())).collect();
    assert_eq!(found, expected, "{case}");
}

const NO_TAG: &str =
    "ValidatingAdmissionPolicy 'tagged' with binding 'tagged' denied request: an image has no tag";

#[test]
fn a_case_compares_verdict_and_message() {
    let case = |image: &str, expect: Json| json!({ "name": "c", "object": pod(image), "expect": expect });
    check(case("train:1", json!("allowed")), &[]);
    check(case("train", json!("denied")), &[]);
    check(case("train", json!("allowed")), &[("verdict", "allowed", &format!("denied: {NO_TAG}"))]);
    check(case("train:1", json!("denied")), &[("verdict", "denied", "allowed")]);
    check(case("train", json!({ "message": "no tag", "policy": "tagged" })), &[]);
    check(case("train", json!({ "messages": ["/has n[oe] tag$/", "image"] })), &[]);
    check(case("train", json!({ "message": "latest" })), &[("message", "latest", NO_TAG)]);
    check(case("train:1", json!({ "message": "/a.c/" })), &[("message", "/a.c/", "nothing")]);
    check(case("train", json!({ "policy": ["gangs"] })), &[("policy", "gangs", "tagged")]);
}

#[test]
fn a_case_compares_warnings_and_uses_its_world() {
    let told = "Validation failed for ValidatingAdmissionPolicy 'gangs' with binding 'gangs': group train of kai does not exist in namespace ml \
                (missingGroup of GangPolicy gangs). Create the group first, correct its name in the pod, or set the number of members in the pod.";
    let case = |cluster: Json, expect: Json| json!({ "name": "c", "object": member(), "namespace": "ml", "world": cluster, "expect": expect });
    check(case(json!({}), json!({ "verdict": "warned", "message": "does not exist in namespace ml" })), &[]);
    check(case(json!({}), json!({ "warnings": ["group train"] })), &[]);
    check(case(json!({}), json!({ "warnings": [] })), &[("warnings", "none", told)]);
    check(case(json!({}), json!("allowed")), &[]);
    let mut known = group();
    known["metadata"]["namespace"] = json!("ml");
    check(case(json!({ "objects": [known] }), json!({ "verdict": "allowed", "warnings": [] })), &[]);
    // An object that is applied before the pod exists for the pod.
    let both = json!({ "name": "c", "objects": [group(), member()], "expect": { "warnings": [] } });
    check(both, &[]);
}

#[test]
fn a_case_compares_the_mutated_object() {
    let case = |expect: Json| json!({ "name": "c", "objects": [group(), member()], "expect": expect });
    check(
        case(
            json!({ "object": { "spec": { "priorityClassName": "calm", "runtimeClassName": null } }, "changed": true, "policy": "gangs" }),
        ),
        &[],
    );
    check(
        case(json!({ "patch": [{ "op": "add", "path": "/spec/priorityClassName", "value": "calm" }] })),
        &[],
    );
    check(
        case(
            json!({ "object": { "spec": { "priorityClassName": "high", "containers": [], "x": 1 } }, "changed": false }),
        ),
        &[
            ("object.spec.containers", "[]", r#"{"image":"train:1","name":"a"}"#),
            ("object.spec.priorityClassName", "high", "calm"),
            ("object.spec.x", "1", "not there"),
            ("changed", "false", "changed by gangs"),
        ],
    );
    check(
        json!({ "name": "c", "object": pod("a:1"), "expect": { "changed": true } }),
        &[("changed", "true", "not changed")],
    );
}

#[test]
fn a_case_can_set_operation_user_and_review() {
    let case = |extra: Json| {
        let mut case =
            json!({ "name": "c", "object": pod("train:1"), "operation": "DELETE", "expect": "allowed" });
        case.as_object_mut().expect("it is one").extend(extra.as_object().expect("it is one").clone());
        run(&case).verdict
    };
    assert_eq!(case(json!({})), CaseVerdict::Denied);
    assert_eq!(case(json!({ "user": "ada" })), CaseVerdict::Allowed);
    assert_eq!(case(json!({ "user": { "username": "ada", "groups": ["x"] } })), CaseVerdict::Allowed);
    assert_eq!(case(json!({ "operation": "UPDATE" })), CaseVerdict::Allowed);
    let mut other = pod("train:1");
    other["metadata"]["name"] = json!("b");
    assert_eq!(case(json!({ "operation": "UPDATE", "oldObject": other })), CaseVerdict::Denied);
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "namespace": "ml", "name": "a", "object": pod("train"),
        "kind": { "group": "", "version": "v1", "kind": "Pod" }, "resource": { "group": "", "version": "v1", "resource": "pods" },
        "userInfo": { "username": "ada" } } });
    assert_eq!(case(json!({ "object": review })), CaseVerdict::Denied);
}

#[test]
fn errors_in_cases_are_reported_with_their_place() {
    let text = "apiVersion: portcullis.dev/v1alpha1
kind: PolicyTest
metadata: {name: t}
world: {capacty: {}}
cases:
- name: a
  object: {kind: Pod}
  operation: MAKE
  expect: {verdict: Denid, mesage: x}
- name: a
  expect: {message: /(/}
- object: {apiVersion: v1, kind: Pod}
  world: {capacity: 3, now: yesterday}
";
    let read = read_test_suites(&SourceFile { name: "t.test.yaml".to_owned(), bytes: text.into() });
    assert_eq!(read.suites.len(), 0);
    let found: Vec<String> = read.problems.iter().map(crate::Problem::one_line).collect();
    let about = "PolicyTest \"t\": ";
    let expected = [
        ("4:9", "unknown field \"capacty\", did you mean \"capacity\"?"),
        ("7:3", "the object needs apiVersion and kind"),
        ("8:14", "\"MAKE\" is not one of CREATE, UPDATE, DELETE, CONNECT"),
        ("9:21", "\"Denid\" is not one of allowed, warned, denied, did you mean \"denied\"?"),
        ("9:28", "unknown field \"mesage\", did you mean \"message\"?"),
        ("10:3", "a case needs an object, objects or a file"),
        ("10:9", "there are two cases \"a\""),
        ("11:21", "this is not a valid regular expression: error: unclosed group"),
        ("12:3", "a case needs a name: a sentence about the expected behavior"),
        ("12:3", "a case needs what to expect: `expect: allowed`, or a mapping with verdict, message, ..."),
        ("13:21", "this is not a capacity report: invalid type: integer `3`, expected struct CapacityReport"),
        ("13:29", "\"yesterday\" is not a timestamp: write it like 2026-11-22T08:00:00Z"),
    ];
    let expected: Vec<String> =
        expected.iter().map(|(place, message)| format!("t.test.yaml:{place}: {about}{message}")).collect();
    assert_eq!(found, expected);
    assert_eq!(
        read_test_suites(&SourceFile {
            name: "t.test.yaml".to_owned(),
            bytes: "kind: Pod\napiVersion: v1\n".into()
        })
        .problems
        .len(),
        1
    );
}
