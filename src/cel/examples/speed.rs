//! How long typical rules take over a pod of 8 KB: `cargo run --release -p portcullis-cel --example speed`.

use std::time::Instant;

use portcullis_cel::{Activation, Budget, Env, PER_POLICY, Value, compile};
use serde_json::json;

const RULES: [&str; 12] = [
    "has(object.metadata.labels) && 'pod-group' in object.metadata.labels",
    "object.metadata.?labels[?'team'].orValue('') in ['a', 'b', 'c']",
    "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
    "object.spec.containers.all(c, !c.image.matches('^.*:latest$'))",
    "object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || c.securityContext.privileged == false)",
    "object.spec.containers.map(c, int(c.resources.?limits[?'nvidia.com/gpu'].orValue('0'))).sum() <= 8",
    "object.spec.containers.all(c, quantity(c.resources.limits.memory).isLessThan(quantity('512Gi')))",
    "object.spec.containers.all(c, !has(c.env) || !c.env.exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES'))",
    "object.metadata.annotations.all(k, k.contains('/') || k == 'note')",
    "object.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && object.spec.priority >= 0",
    "object.spec.containers.filter(c, c.name == 'none').map(c, c.name).join(', ') == ''",
    "'pod %s has %d containers'.format([object.metadata.name, object.spec.containers.size()]) != ''",
];

fn main() {
    let environment: Vec<_> = (0..40)
        .map(|index| json!({ "name": format!("VARIABLE_{index}"), "value": "x".repeat(60) }))
        .collect();
    let container = |index: u32| {
        json!({
            "name": format!("c{index}"), "image": format!("registry.example.com/team/train:v{index}"), "env": environment,
            "resources": { "limits": { "nvidia.com/gpu": "2", "memory": "64Gi" }, "requests": { "memory": "64Gi" } },
        })
    };
    let pod = json!({
        "metadata": {
            "name": "trainer-0", "labels": { "pod-group": "llm", "team": "a" },
            "annotations": { "example.com/note": "y".repeat(200), "note": "z" },
        },
        "spec": { "priority": 10, "containers": [container(0), container(1)] },
    });
    println!("pod of {} bytes", pod.to_string().len());
    let env = Env::admission(false);
    let started = Instant::now();
    let programs: Vec<_> = RULES.iter().map(|rule| compile(rule, &env).expect("it is well formed")).collect();
    println!(
        "compile: {:.1} µs each",
        started.elapsed().as_secs_f64() * 1e6 / f64::from(u32::try_from(RULES.len()).unwrap_or(1))
    );
    let started = Instant::now();
    for _ in 0..100 {
        for rule in RULES {
            _ = compile(rule, &env);
        }
    }
    println!(
        "compile again: {:.1} µs each",
        started.elapsed().as_secs_f64() * 1e6 / 100.0 / f64::from(u32::try_from(RULES.len()).unwrap_or(1))
    );
    let mut total = 0.0;
    for (rule, program) in RULES.iter().zip(&programs) {
        const ROUNDS: u32 = 20_000;
        let mut budget = Budget::new(PER_POLICY);
        let started = Instant::now();
        for _ in 0..ROUNDS {
            let activation = Activation::new(&env).with("object", Value::json(&pod));
            program.eval(&activation, &mut budget).expect("it has a value");
        }
        let micros = started.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
        total += micros;
        println!("{micros:8.2} µs  cost {:5}  {rule}", budget.last());
    }
    println!("{total:8.2} µs  together: {:.0} pods a second through all {} rules", 1e6 / total, RULES.len());
    println!("until a hostile rule is cut off:");
    for rule in [
        "lists.range(10000).all(a, lists.range(10000).all(b, a + b >= 0))",
        "lists.range(10000).map(a, lists.range(10000).map(b, a * b)).size() > 0",
        "lists.range(10000).exists_one(a, lists.range(10000).exists_one(b, false))",
        "lists.range(10000).all(a, object == object)",
        "lists.range(10000).all(a, !'a'.matches('(a{200}){200}|' + string(a)))",
    ] {
        let program = compile(rule, &env).expect("it is well formed");
        let activation = Activation::new(&env).with("object", Value::json(&pod));
        let mut budget = Budget::new(PER_POLICY);
        let started = Instant::now();
        let error = program.eval(&activation, &mut budget).expect_err("it is cut off");
        println!(
            "{:8.1} ms  cost {:7}  {rule}: {error}",
            started.elapsed().as_secs_f64() * 1e3,
            budget.last()
        );
    }
}
