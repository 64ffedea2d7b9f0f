//! Tests of review answers: what the API server, kubectl and the log get for an outcome.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

use super::*;
use crate::evaluation::ValidationResult;
use crate::load::{SourceFile, load};

fn request() -> Json {
    json!({
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "ml", "operation": "CREATE",
        "object": {"metadata": {"generateName": "train-", "labels": {"a": "1"}}, "spec": {"containers": [{"name": "c"}]}}
    })
}

fn answered(outcome: &HookOutcome) -> (Json, ReviewSummary) {
    let request = request();
    let request = AdmissionRequest { json: &request };
    let answer = answer(&PolicySet::default(), &request, "u-1", outcome).expect("it can be answered");
    let body: Json = serde_json::from_slice(&answer.body).expect("it is JSON");
    assert_eq!(body["apiVersion"], "admission.k8s.io/v1");
    (body["response"].clone(), answer.summary)
}

fn denial(policy: &str, field: Option<&str>, reason: &str) -> Denial {
    Denial {
        policy: policy.to_owned(),
        binding: "everywhere".to_owned(),
        rule: "/spec/validations/2".to_owned(),
        field: field.map(str::to_owned),
        message: "use a tag that stays".to_owned(),
        detail: "use a tag that stays".to_owned(),
        reason: reason.to_owned(),
    }
}

fn denied(denials: Vec<Denial>) -> HookOutcome {
    HookOutcome::Validated(ValidationResult { denials, ..ValidationResult::default() })
}

#[test]
fn every_denying_rule_is_a_separate_cause() {
    let both = vec![
        denial("no-latest", Some("spec.containers[0].image"), "Invalid"),
        denial("other", None, "Forbidden"),
    ];
    let (response, summary) = answered(&denied(both));
    assert_eq!(
        response,
        json!({
            "uid": "u-1", "allowed": false,
            "status": {
                "status": "Failure", "code": 422, "reason": "Invalid",
                "message": "Pod \"train-*\" is refused by 2 rules:\n\
                    * spec.containers[0].image: use a tag that stays (policy no-latest, spec.validations[2])\n\
                    * policy other: use a tag that stays (spec.validations[2])",
                "details": {"name": "train-*", "kind": "Pod", "causes": [
                    {"reason": "FieldValueInvalid", "field": "spec.containers[0].image",
                     "message": "use a tag that stays (policy no-latest, spec.validations[2])"},
                    {"reason": "FieldValueForbidden", "field": "policy other",
                     "message": "use a tag that stays (spec.validations[2])"},
                ]}
            }
        })
    );
    assert_eq!(summary.verdict, AdmissionVerdict::Denied);
    assert_eq!(summary.policies.as_deref(), Some(PolicySet::default().hash()));
    assert_eq!(
        summary.causes,
        [
            "no-latest/spec.validations[2]: use a tag that stays",
            "other/spec.validations[2]: use a tag that stays"
        ]
    );
}

#[test]
fn the_first_denial_sets_reason_and_code_as_in_the_api_server() {
    for (reason, code) in
        [("Invalid", 422), ("Forbidden", 403), ("Unauthorized", 401), ("RequestEntityTooLarge", 413)]
    {
        let (response, _) = answered(&denied(vec![denial("a", None, reason), denial("b", None, "Invalid")]));
        assert_eq!(
            (&response["status"]["reason"], &response["status"]["code"]),
            (&json!(reason), &json!(code))
        );
    }
}

#[test]
fn an_allowed_request_carries_warnings_and_audit_annotations() {
    let validation = ValidationResult {
        warnings: vec!["old\nword".to_owned()],
        audit: [("limits/team".to_owned(), "ml".to_owned())].into(),
        ..ValidationResult::default()
    };
    let (response, summary) = answered(&HookOutcome::Validated(validation));
    assert_eq!(
        response,
        json!({"uid": "u-1", "allowed": true, "warnings": ["oldword"], "auditAnnotations": {"limits.team": "ml"}})
    );
    assert_eq!((summary.verdict, summary.warnings), (AdmissionVerdict::Allowed, 1));
    let (response, summary) = answered(&HookOutcome::Validated(ValidationResult::default()));
    assert_eq!(response, json!({"uid": "u-1", "allowed": true}));
    assert_eq!(summary.verdict, AdmissionVerdict::Untouched);
}

#[test]
fn the_patch_gives_the_object_that_the_policies_made() {
    let mut object = request()["object"].clone();
    object["metadata"]["labels"]["b"] = json!("2");
    object["spec"]["containers"].as_array_mut().expect("a list").insert(0, json!({"name": "first"}));
    let mutation = MutationResult {
        object: Some(object.clone()),
        changed_by: vec!["defaults".to_owned()],
        ..MutationResult::default()
    };
    let (response, summary) = answered(&HookOutcome::Mutated(mutation.clone()));
    assert_eq!((summary.verdict, &response["patchType"]), (AdmissionVerdict::Patched, &json!("JSONPatch")));
    let patch = STANDARD.decode(response["patch"].as_str().expect("a patch")).expect("base64");
    let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("operations");
    let mut patched = request()["object"].clone();
    json_patch::patch(&mut patched, &patch).expect("it applies");
    assert_eq!(patched, object);

    // A denied request has no patch.
    let refused = MutationResult { denials: vec![denial("defaults", None, "Invalid")], ..mutation };
    let (response, summary) = answered(&HookOutcome::Mutated(refused));
    assert_eq!((summary.verdict, &response["patch"]), (AdmissionVerdict::Denied, &Json::Null));
}

#[test]
fn a_body_that_is_not_a_review_is_rejected() {
    let check = |body: &[u8], part: &str| {
        let (set, cluster, work_budget) =
            (PolicySet::default(), ClusterData::default(), WorkBudget::unlimited());
        let error = review(&set, &cluster, Hook::Validate, body, &work_budget).expect_err("no review");
        assert!(error.to_string().contains(part), "{error}");
    };
    check(b"{", "not an AdmissionReview");
    check(b"[1]", "expected apiVersion");
    check(
        br#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u"}}"#,
        "v1beta1",
    );
    check(br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "no request");
    check(br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}"#, "no uid");
}

/// A review that exceeds the quick budget, in any part of a policy, gets no quick answer. The full evaluation
/// then gives the answer that it would have given at once.
#[test]
fn a_quick_evaluation_gives_the_same_answer_or_none() {
    const LOOP: &str = "lists.range(300).all(a, lists.range(300).all(b, a + b >= 0))";
    let policy = |rule: &str, condition: &str, variable: &str, message: &str, note: &str| {
        let text = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
            "spec": {
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }]},
                "matchConditions": [{"name": "c", "expression": condition}],
                "variables": [{"name": "v", "expression": variable}],
                "validations": [{"expression": rule, "messageExpression": message}, {"expression": "variables.v"}],
                "auditAnnotations": [{"key": "n", "valueExpression": note}],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "p"},
            "spec": {"policyName": "p", "validationActions": ["Deny"]},
        });
        let bytes = format!("{text}\n---\n{binding}\n").into_bytes();
        let loaded = load(&[SourceFile { name: "p.yaml".to_owned(), bytes }]);
        loaded.set.unwrap_or_else(|| panic!("{:?}", loaded.problems))
    };
    let body =
        json!({ "apiVersion": API_VERSION, "kind": KIND, "request": request() }).to_string().into_bytes();
    let cluster =
        ClusterData { now: 0, namespaces: [("ml".to_owned(), json!({}))].into(), ..ClusterData::default() };
    let asked = |set: &PolicySet, work_budget: &WorkBudget| {
        review(set, &cluster, Hook::Validate, &body, work_budget)
            .expect("it is a review")
            .map(|found| found.outcome)
    };
    let short = ["1 + 1 == 3", "true", "1 + 1 == 2", "'m'", "'n'"];
    let long = |part: usize| if part < 3 { LOOP.to_owned() } else { format!("{LOOP} ? 'yes' : 'no'") };
    let set = |parts: &[String]| policy(&parts[0], &parts[1], &parts[2], &parts[3], &parts[4]);
    let parts = short.map(str::to_owned);
    let quick = asked(&set(&parts), &WorkBudget::fast_lane());
    assert_eq!(quick.as_ref().map(|outcome| outcome.denials().len()), Some(1));
    assert_eq!(quick, asked(&set(&parts), &WorkBudget::unlimited()));
    for part in 0..parts.len() {
        let mut parts = parts.clone();
        parts[part] = long(part);
        let set = set(&parts);
        assert_eq!(asked(&set, &WorkBudget::fast_lane()), None, "{parts:?}");
        let outcome = asked(&set, &WorkBudget::unlimited()).expect("there is no limit");
        assert_eq!(outcome.denials().len(), usize::from(part != 0), "{parts:?}: {outcome:?}");
    }
}

#[test]
fn a_message_contains_the_path_of_the_field() {
    let check = |detail: &str, field: Option<&str>, rest: &str| {
        let denial = Denial { detail: detail.to_owned(), ..denial("p", None, "Invalid") };
        assert_eq!(field_and_detail(&denial), (field, rest));
    };
    check("spec.containers[0].image: wrong", Some("spec.containers[0].image"), "wrong");
    check("metadata.labels[a/b]: a: b", Some("metadata.labels[a/b]"), "a: b");
    check("spec: wrong", Some("spec"), "wrong");
    check("specially: wrong", None, "specially: wrong");
    check("spec.x is wrong: why", None, "spec.x is wrong: why");
    check("failed expression: object.spec.x", None, "failed expression: object.spec.x");
}

#[test]
fn a_warning_begins_with_the_problem() {
    let check = |warning: &str, expected: &str| {
        let validation =
            ValidationResult { warnings: vec![warning.to_owned()], ..ValidationResult::default() };
        assert_eq!(validation.user_warnings(), [expected]);
    };
    check(
        "Validation failed for ValidatingAdmissionPolicy 'a' with binding 'b': spec.x: 'y': no",
        "spec.x: 'y': no (policy a)",
    );
    check("something else", "something else");
}
