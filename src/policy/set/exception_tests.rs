//! Tests of policy exceptions: which objects they match, from which rules they exempt, and when they expire.

use serde_json::json;

use super::*;

fn document() -> Json {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "PolicyException", "metadata": { "name": "migration" },
        "spec": {
            "owner": "team-ml", "reason": "moving", "expires": "2030-01-01T00:00:00Z",
            "policies": [{ "name": "no-latest" }, { "name": "limits", "validations": [1] }],
            "match": { "namespaces": ["ml", "team-*"], "names": ["train-*"], "selector": { "matchLabels": { "old": "yes" } } },
        },
    })
}

const ENDS: i64 = 1_893_456_000;

fn denial(policy: &str, rule: &str) -> Denial {
    Denial {
        policy: policy.to_owned(),
        binding: "b".to_owned(),
        rule: rule.to_owned(),
        field: None,
        message: format!("{policy} says no"),
        detail: "no".to_owned(),
        reason: "Invalid".to_owned(),
    }
}

fn request(namespace: &str, name: &str, label: &str) -> Json {
    json!({ "namespace": namespace, "object": { "metadata": { "generateName": name, "labels": { "old": label } } } })
}

/// Returns the rules that still deny, and the number of exempted denials.
fn refused(exceptions: &[PolicyException], request: &Json, now: i64) -> (Vec<String>, usize) {
    let mut validation = ValidationResult {
        denials: vec![
            denial("no-latest", "/spec/validations/0"),
            denial("limits", "/spec/validations/0"),
            denial("limits", "/spec/validations/1"),
            denial("made", "/spec/validations/0"),
        ],
        ..ValidationResult::default()
    };
    let request = AdmissionRequest { json: request };
    let held = active_exceptions(exceptions, &request, now);
    apply(&mut validation, &held, ["no-latest", "limits"].into_iter());
    let left = validation.denials.iter().map(|denial| format!("{}{}", denial.policy, denial.rule)).collect();
    (left, validation.applied_exceptions.len())
}

#[test]
fn an_exception_allows_matching_objects_until_it_expires() {
    let exceptions = [PolicyException::read(&document()).expect("it is well formed")];
    let all = [
        "no-latest/spec/validations/0",
        "limits/spec/validations/0",
        "limits/spec/validations/1",
        "made/spec/validations/0",
    ];
    let some = ["limits/spec/validations/0", "made/spec/validations/0"];
    for (namespace, name, label, now, left) in [
        ("ml", "train-a-", "yes", ENDS - 1, &some[..]),
        ("team-x", "train-a-", "yes", ENDS - 1, &some[..]),
        ("ml", "train-a-", "yes", ENDS, &all[..]),
        ("mlx", "train-a-", "yes", ENDS - 1, &all[..]),
        ("ml", "serve-a-", "yes", ENDS - 1, &all[..]),
        ("ml", "train-a-", "no", ENDS - 1, &all[..]),
    ] {
        let (found, excepted) = refused(&exceptions, &request(namespace, name, label), now);
        assert_eq!(found, left, "{namespace}/{name} {label} at {now}");
        assert_eq!(found.len() + excepted, 4, "every exempted denial is counted");
    }
}

#[test]
fn an_exempted_request_names_its_exception() {
    let exceptions = [PolicyException::read(&document()).expect("it is well formed")];
    let mut validation = ValidationResult {
        denials: vec![denial("no-latest", "/spec/validations/0")],
        warnings: vec![
            "Validation failed for ValidatingAdmissionPolicy 'no-latest' with binding 'w': no".to_owned(),
            "Validation failed for ValidatingAdmissionPolicy 'limits' with binding 'w': no".to_owned(),
        ],
        ..ValidationResult::default()
    };
    let json = request("ml", "train-a-", "yes");
    let request = AdmissionRequest { json: &json };
    let held = active_exceptions(&exceptions, &request, 0);
    apply(&mut validation, &held, ["no-latest", "limits"].into_iter());
    assert!(validation.denials.is_empty());
    assert_eq!(
        validation.warnings.len(),
        1,
        "a rule of `limits` is excepted, not the policy: {:?}",
        validation.warnings
    );
    let expected = AppliedException {
        exception: "migration".to_owned(),
        owner: "team-ml".to_owned(),
        reason: "moving".to_owned(),
        policy: "no-latest".to_owned(),
        message: "no-latest says no".to_owned(),
    };
    assert_eq!(validation.applied_exceptions, [expected]);
    let noted = validation.audit.get("no-latest/exception").map(String::as_str);
    assert_eq!(noted, Some("no-latest says no let in by migration of team-ml: moving"));
}

#[test]
fn all_exempted_denials_of_a_policy_are_recorded() {
    let exceptions = [PolicyException::read(&document()).expect("it is well formed")];
    let two = ["/spec/validations/0", "/spec/validations/1"].map(|rule| denial("no-latest", rule));
    let mut validation = ValidationResult { denials: two.into(), ..ValidationResult::default() };
    let json = request("ml", "train-a-", "yes");
    let held = active_exceptions(&exceptions, &AdmissionRequest { json: &json }, 0);
    apply(&mut validation, &held, ["no-latest"].into_iter());
    let noted =
        validation.audit.get("no-latest/exception").map_or(0, |noted| noted.matches("let in by").count());
    assert_eq!((noted, validation.applied_exceptions.len()), (2, 2));
}

#[test]
fn all_errors_of_an_exception_are_reported() {
    for (pointer, value, expected) in [
        ("/spec/owner", json!(" "), "/spec/owner: the field \"owner\" is required: who owns the exception?"),
        (
            "/spec/reason",
            Json::Null,
            "/spec/reason: the field \"reason\" is required: why is the exception needed?",
        ),
        (
            "/spec/expires",
            json!("2030-01-01"),
            "/spec/expires: \"2030-01-01\" is not a timestamp: write it as 2027-01-31T00:00:00Z",
        ),
        ("/spec/expires", json!(7), "/spec/expires: this must be text"),
        (
            "/spec/policies",
            json!([]),
            "/spec/policies: the field \"policies\" is required: which policies does the exception cover?",
        ),
        (
            "/spec/policies/0",
            json!({ "nam": "a", "name": "b" }),
            "/spec/policies/0/nam: unknown field \"nam\"",
        ),
        (
            "/spec/policies/1/validations",
            json!(["x"]),
            "/spec/policies/1/validations/0: this must be the position of a validation in its policy, from 0",
        ),
        (
            "/spec/match",
            json!({}),
            "/spec/match: an exception must not match everything: set namespaces, names or selector",
        ),
        ("/spec/match/names", json!("a"), "/spec/match/names: this must be a list"),
        (
            "/spec/match/selector",
            json!({ "matchExpressions": [{ "key": "team", "operator": "NotIn", "values": ["prod"], "value": ["x"] }] }),
            "/spec/match/selector/matchExpressions/0/value: unknown field \"value\"",
        ),
        (
            "/spec/match/selector",
            json!({ "matchExpressions": [{ "key": "team", "operator": "NotIn" }] }),
            "/spec/match/selector/matchExpressions/0: NotIn needs at least one of values",
        ),
        (
            "/spec/match/selector",
            json!({ "matchExpressions": [{ "key": "team", "operator": "Notin", "values": ["prod"] }] }),
            "/spec/match/selector/matchExpressions/0/operator: \"Notin\" is not one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            "/spec/match/selector",
            json!({ "matchLabels": { "team": 1 } }),
            "/spec/match/selector/matchLabels/team: this must be text, and is the number 1: put it in quotes",
        ),
    ] {
        let mut wrong = document();
        *wrong.pointer_mut(pointer).expect("it is there") = value;
        let diagnostics = PolicyException::read(&wrong).expect_err("it is wrong");
        let found: Vec<String> = diagnostics
            .iter()
            .map(|diagnostic| format!("{}: {}", diagnostic.pointer, diagnostic.message))
            .collect();
        assert_eq!(found, [expected]);
    }
    assert_eq!(PolicyException::read(&json!({})).expect_err("nothing is there").len(), 7);
}

#[test]
fn an_expired_exception_is_reported() {
    let exception = PolicyException::read(&document()).expect("it is well formed");
    assert_eq!(exception.expired(ENDS - 1), None);
    let diagnostic = exception.expired(ENDS).expect("it has ended");
    assert!(
        diagnostic.message.contains("2030-01-01T00:00:00Z") && diagnostic.message.contains("team-ml"),
        "{}",
        diagnostic.message
    );
}

#[test]
fn name_patterns_can_contain_stars() {
    for (pattern, value, good) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("*", "", true),
        ("a*", "a", true),
        ("a*b*c", "axxbxc", true),
        ("a*b*c", "axxcxb", false),
        ("*a*a", "a", false),
        ("*-x", "train-x", true),
    ] {
        assert_eq!(matches_pattern(pattern, value), good, "{pattern} {value}");
    }
}
