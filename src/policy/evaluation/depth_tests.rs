//! Variables that use each other: deep chains are rejected at load, allowed chains fit the stack of a thread.

use portcullis_cel::MAX_NESTING_DEPTH;
use serde_json::{Value as Json, json};

use super::{CompiledPolicies, ParamStore, ValidatingPolicy};
use crate::diagnostic::Diagnostic;
use crate::input::{AdmissionRequest, ClusterData, WorkBudget};
use crate::load::{SourceFile, load};

/// Returns a policy for pods with these variables and this rule.
fn policy(variables: &[(String, String)], rule: &str) -> Json {
    let variables: Vec<Json> = variables
        .iter()
        .map(|(name, expression)| json!({ "name": name, "expression": expression }))
        .collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "deep" },
        "spec": {
            "matchConstraints": { "resourceRules": [
                { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] },
            ] },
            "variables": variables,
            "validations": [{ "expression": rule }],
        },
    })
}

/// Compiles a policy. Errors are `POINTER MESSAGE`.
fn compiled(document: &Json) -> Result<ValidatingPolicy, Vec<String>> {
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    let policy = ValidatingPolicy::compile(document, &mut diagnostics);
    policy.ok_or_else(|| {
        diagnostics
            .iter()
            .map(|diagnostic| format!("{} {}", diagnostic.pointer, diagnostic.message))
            .collect()
    })
}

/// Returns the messages with which a bound policy denies a pod.
fn denial_messages(mut policy: ValidatingPolicy) -> Vec<String> {
    let binding = json!({ "metadata": { "name": "deep" }, "spec": { "policyName": "deep", "validationActions": ["Deny"] } });
    policy.bind(&binding, &mut Vec::new());
    let request = json!({
        "operation": "CREATE", "namespace": "ml", "name": "a", "object": { "metadata": { "name": "a" } },
        "resource": { "group": "", "version": "v1", "resource": "pods" },
        "kind": { "group": "", "version": "v1", "kind": "Pod" },
    });
    let rules = CompiledPolicies::new(vec![policy], Vec::new(), ParamStore::default());
    let validation = rules.validate(
        &AdmissionRequest { json: &request },
        &ClusterData::default(),
        &WorkBudget::unlimited(),
    );
    validation.denials.into_iter().map(|denial| denial.detail).collect()
}

/// Runs work on a thread with the stack size of the webhook's threads.
fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(work).expect("a thread");
    thread.join().expect("it ends well")
}

/// Returns `count` variables. Each uses the previous one, nested `times` times in `open` and `close`.
fn chain(count: usize, (open, close): (&str, &str), times: usize) -> Vec<(String, String)> {
    let (open, close) = (open.repeat(times), close.repeat(times));
    let mut variables = vec![("v0".to_owned(), "dyn(0)".to_owned())];
    for at in 1..count {
        variables.push((format!("v{at}"), format!("{open}variables.v{}{close}", at - 1)));
    }
    variables
}

#[test]
fn a_chain_of_variables_that_is_too_deep_is_rejected_at_load() {
    on_a_thread(|| {
        for (count, wrap, times) in [(5_000, ("", ""), 1), (200, ("[", "]"), 90)] {
            let document = policy(&chain(count, wrap, times), "variables.v0 == 1");
            let problems = compiled(&document).expect_err("it is too deep");
            let (pointer, message) = problems[0].split_once(' ').expect("a pointer");
            assert!(pointer.starts_with("/spec/variables/"), "{pointer}");
            assert_eq!(message, "variables are nested too deeply here: at most 500 levels are allowed");
            let file = SourceFile { name: "deep.json".to_owned(), bytes: document.to_string().into_bytes() };
            let loaded = load(&[file]);
            assert!(loaded.set.is_none());
        }
    });
}

#[test]
fn a_cycle_of_variables_is_rejected() {
    on_a_thread(|| {
        let named = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, expression)| ((*name).to_owned(), (*expression).to_owned())).collect()
        };
        let ring = named(&[("a", "1"), ("b", "variables.a"), ("a", "variables.b")]);
        let problems = compiled(&policy(&ring, "variables.a == 1")).err();
        let message = "/spec/variables variables are nested too deeply here: at most 500 levels are allowed";
        assert_eq!(problems, Some(vec![message.to_owned()]));
        let later = named(&[("a", "1"), ("b", "variables.a"), ("a", "2")]);
        let later = compiled(&policy(&later, "variables.b == 2")).expect("the last of one name counts");
        assert_eq!(denial_messages(later), [""; 0]);
    });
}

/// Tests every kind of nesting.
#[test]
fn the_deepest_chain_of_variables_fits_the_stack_of_a_thread() {
    for wrap in [
        ("", ""),
        ("[", "]"),
        ("{'a': ", "}"),
        ("(true ? ", " : 1)"),
        ("(dyn(false) || dyn(", "))"),
        ("string(", ")"),
        ("dyn(", ")"),
        ("optional.of(", ").orValue(dyn(1))"),
        ("[0][", "]"),
        ("dyn([", "].map(x, [x]))"),
        ("[1].map(x, ", ")"),
        ("[1].all(x, dyn(", "))"),
        ("{'a': 1}.transformMap(k, v, ", ")"),
        ("optional.of(", ").optMap(x, x)"),
        ("optional.of(1).optMap(x, ", ")"),
    ] {
        let most = if wrap.0.is_empty() { 1 } else { 40 };
        for times in [1, 15, 40].into_iter().filter(|times| *times <= most) {
            on_a_thread(move || {
                let all = chain(MAX_NESTING_DEPTH / times + 2, wrap, times);
                let problems = compiled(&policy(&all, "true")).err().unwrap_or_default();
                let first = problems.first().unwrap_or_else(|| panic!("{wrap:?}: all of them are taken"));
                let place = first.strip_prefix("/spec/variables/").and_then(|rest| rest.split('/').next());
                let count: usize = place.and_then(|at| at.parse().ok()).unwrap_or_else(|| panic!("{first}"));
                let expected = ["nested too deeply here", "max recursion depth exceeded", "is too large"];
                assert!(expected.iter().any(|expected| first.contains(expected)), "{wrap:?}: {first}");
                let last =
                    format!("{}variables.v{}{}", wrap.0.repeat(times), count - 1, wrap.1.repeat(times));
                let rule = format!("[dyn({last})].all(x, '%s'.format([[x]]) == '' || [x] != [x])");
                let policy = compiled(&policy(&all[..count], &rule));
                // An expression that is rejected alone is not part of a chain.
                let Ok(policy) = policy else { return assert_eq!(count, 1, "{wrap:?} {times} times") };
                assert!(!denial_messages(policy).is_empty());
            });
        }
    }
}
