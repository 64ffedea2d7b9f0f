//! Measures the reviews per second of one core with 20 typical policies, for a pod of 8 KB including the
//! parsing of its JSON, and the time until hostile policies are stopped:
//! `cargo run --release -p portcullis-policy --example speed`.

#![expect(clippy::disallowed_methods, reason = "the example measures time")]

use std::time::Instant;

use portcullis_policy::evaluation::{CompiledPolicies, MutatingPolicy, ParamStore, ValidatingPolicy};
use portcullis_policy::{AdmissionRequest, ClusterData, SourceFile, WorkBudget, load};
use serde_json::{Value as Json, json};

/// Twenty typical policies.
const POLICIES: &str = include_str!("../../../tests/data/policies/twenty.yaml");

const HOSTILE: [&str; 6] = [
    "lists.range(10000).all(a, lists.range(10000).all(b, a + b >= 0))",
    "lists.range(10000).map(a, lists.range(10000).map(b, a * b)).size() > 0",
    "lists.range(10000).all(a, object == object)",
    "lists.range(10000).all(a, true) && lists.range(10000).all(a, lists.range(10000).all(b, true))",
    "lists.range(10000).all(a, !'a'.matches('(a{200}){200}|' + string(a)))",
    "object.spec.containers.map(c, object.spec.containers.map(d, c.image + d.image).join()).join().size() > 0",
];

fn rule() -> Json {
    json!({ "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"] }] })
}

fn policy(name: &str, rules: &[&str]) -> ValidatingPolicy {
    let rules: Vec<Json> = rules
        .iter()
        .map(|rule| json!({ "expression": rule, "messageExpression": "'pod ' + string(object.metadata.name) + ' breaks a rule'" }))
        .collect();
    let document = json!({
        "metadata": { "name": name },
        "spec": { "matchConstraints": rule(), "validations": rules },
    });
    let mut diagnostics = Vec::new();
    let mut compiled = ValidatingPolicy::compile(&document, &mut diagnostics)
        .unwrap_or_else(|| panic!("{name}: {diagnostics:?}"));
    compiled.bind(&json!({ "metadata": { "name": name }, "spec": { "policyName": name, "validationActions": ["Deny"] } }), &mut diagnostics);
    compiled
}

fn review() -> Json {
    let environment: Vec<Json> = (0..36)
        .map(|index| json!({ "name": format!("VARIABLE_{index}"), "value": "x".repeat(60) }))
        .collect();
    let container = |index: u32| {
        json!({
            "name": format!("c{index}"), "image": format!("registry.example.com/team/train:v{index}"), "env": environment,
            "resources": { "limits": { "nvidia.com/gpu": "2", "memory": "64Gi" }, "requests": { "memory": "64Gi" } },
        })
    };
    json!({ "request": {
        "uid": "u", "operation": "CREATE", "namespace": "ml", "name": "trainer-0",
        "kind": { "group": "", "version": "v1", "kind": "Pod" },
        "resource": { "group": "", "version": "v1", "resource": "pods" },
        "userInfo": { "username": "ann", "groups": ["system:authenticated"] },
        "object": {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "trainer-0", "namespace": "ml", "labels": { "kai.scheduler/podgroup": "llm", "app.kubernetes.io/managed-by": "helm" },
                "annotations": { "example.com/note": "y".repeat(200), "note": "z" },
            },
            "spec": { "priority": 10, "containers": [container(0), container(1)] },
        },
    } })
}

fn main() {
    let text = review().to_string();
    let mut cluster = ClusterData::default();
    cluster
        .namespaces
        .insert("ml".into(), json!({ "metadata": { "name": "ml", "labels": { "team": "a" } } }));
    let started = Instant::now();
    let loaded = load(&[SourceFile { name: "twenty.yaml".into(), bytes: POLICIES.into() }]);
    let set = loaded.set.unwrap_or_else(|| panic!("{:?}", loaded.problems));
    println!("{} policies loaded in {:.1} ms", set.policies().len(), started.elapsed().as_secs_f64() * 1e3);
    let judge = |text: &str| {
        let review: Json = serde_json::from_str(text).expect("a review");
        let request = AdmissionRequest::from_review(&review).expect("a request");
        set.validate(&request, &cluster)
    };
    let validation = judge(&text);
    assert!(validation.denials.is_empty() && validation.ignored_errors.is_empty(), "{validation:?}");
    const ROUNDS: u32 = 10_000;
    let started = Instant::now();
    for _ in 0..ROUNDS {
        assert!(judge(&text).denials.is_empty());
    }
    let micros = started.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
    let started = Instant::now();
    for _ in 0..ROUNDS {
        let parsed: Json = serde_json::from_str(&text).expect("a review");
        assert!(parsed.is_object());
    }
    let parse = started.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
    println!(
        "{} bytes, {micros:.1} µs a review, {parse:.1} µs of it parsing: {:.0} reviews a second",
        text.len(),
        1e6 / micros
    );

    let mutation = json!({
        "metadata": { "name": "defaults" },
        "spec": { "matchConstraints": rule(), "reinvocationPolicy": "Never", "mutations": [{
            "patchType": "ApplyConfiguration",
            "applyConfiguration": { "expression": "Object{metadata: Object.metadata{labels: {'seen': 'yes'}}}" },
        }] },
    });
    let mut diagnostics = Vec::new();
    let mut compiled = MutatingPolicy::compile(&mutation, &mut diagnostics).expect("it is well formed");
    compiled.bind(
        &json!({ "metadata": { "name": "defaults" }, "spec": { "policyName": "defaults" } }),
        &mut diagnostics,
    );
    let mutating = CompiledPolicies::new(Vec::new(), vec![compiled], ParamStore::default());
    let parsed: Json = serde_json::from_str(&text).expect("a review");
    let request = AdmissionRequest::from_review(&parsed).expect("a request");
    let started = Instant::now();
    for _ in 0..ROUNDS {
        assert!(mutating.mutate(&request, &cluster, &WorkBudget::unlimited(), &|_| None).object.is_some());
    }
    println!(
        "{:.1} µs for an apply configuration",
        started.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
    );

    println!("until hostile policies of 100 such rules are cut off:");
    for rule in HOSTILE {
        let hostile =
            CompiledPolicies::new(vec![policy("hostile", &[rule; 100])], Vec::new(), ParamStore::default());
        let started = Instant::now();
        let validation = hostile.validate(&request, &cluster, &WorkBudget::unlimited());
        let first = validation.denials.first().map_or("allowed", |denial| denial.detail.as_str());
        println!(
            "{:8.1} ms  {rule}: {}",
            started.elapsed().as_secs_f64() * 1e3,
            &first[first.len().saturating_sub(60)..]
        );
    }
}
