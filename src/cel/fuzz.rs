//! Fuzzing: any text is either refused or evaluated within its budget, with the same result every time.

use std::sync::LazyLock;

use serde_json::{Value as Json, json};

use crate::{
    Activation, AssumedSizes, Budget, Env, MAX_EXPRESSION_COST, MAX_EXPRESSION_WORK, Value, check, compile,
};

/// A small cost limit keeps a run short.
const BUDGET: u64 = 20_000;

static OBJECT: LazyLock<Json> = LazyLock::new(|| {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "a", "namespace": "b", "labels": { "team": "ml", "a/b": "" } },
        "spec": {
            "containers": [
                { "name": "c", "image": "r.io/x:latest", "resources": { "limits": { "cpu": "2", "memory": "8Gi" } } },
                { "name": "d", "image": "y", "ports": [{ "containerPort": 80 }, { "containerPort": 443 }] },
            ],
            "priority": -7, "hostNetwork": false, "ratio": 0.5, "nothing": null,
        },
    })
});

/// Checks, compiles and evaluates a text.
pub(crate) fn expression(source: &str) {
    let env = Env::admission(true).with_patches();
    let checked = check(source, &env);
    let program = match (&checked, compile(source, &env)) {
        (Ok(found), Ok(program)) => {
            assert_eq!(found, program.result(), "both have the same type");
            program
        }
        (Err(first), Err(second)) => {
            assert!(first == &second && !first.is_empty(), "both have the same issues");
            assert!(first.iter().all(|issue| issue.offset <= source.len() && !issue.message.is_empty()));
            return;
        }
        // Some issues appear only when the program is built.
        (Ok(_), Err(issues)) => return assert!(!issues.is_empty()),
        (Err(issues), Ok(_)) => panic!("it is refused and compiled: {issues:?}"),
    };
    let activation = Activation::new(&env)
        .with("object", Value::json(&OBJECT))
        .with("oldObject", Value::Null)
        .with("params", Value::json(&OBJECT["spec"]));
    let run = || {
        let mut budget = Budget::new(MAX_EXPRESSION_COST).per_call(BUDGET);
        let value = program.eval(&activation, &mut budget).map(|value| value.to_string());
        (value.map_err(|error| error.to_string()), budget.last())
    };
    let first = run();
    assert_eq!(first, run(), "equal inputs give equal answers");
    // The budget also counts the call that it refused, for example `lists.range` with a huge number.
    assert!(first.0.is_err() || first.1 <= BUDGET.saturating_add(MAX_EXPRESSION_WORK), "it cost {}", first.1);
    let _ = program.estimate(AssumedSizes::default());
}
