//! Compares this implementation with the API server's. `tests/cel` makes `tests/data/cel/table.json` with the
//! API server's own code. Every row must have the same issues at the same positions, the same value or error
//! text, and the same cost.

use std::path::{Path, PathBuf};

use portcullis_cel::{Activation, Budget, Env, MAX_POLICY_COST, Type, Value, check, compile};
use serde_json::Value as Json;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/cel")
}

fn read(name: &str) -> Json {
    let path = data().join(name);
    #[expect(clippy::disallowed_methods, reason = "a test reads its data")]
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn environment() -> Env {
    Env::new()
        .variable("object", Type::Dyn)
        .variable("other", Type::Dyn)
        .variable("i", Type::Int)
        .variable("u", Type::Uint)
        .variable("d", Type::Double)
        .variable("s", Type::String)
        .variable("b", Type::Bool)
        .variable("by", Type::Bytes)
        .variable("n", Type::Null)
        .variable("l", Type::list(Type::Int))
        .variable("ls", Type::list(Type::String))
        .variable("m", Type::map(Type::String, Type::Int))
        .variable("ts", Type::Timestamp)
        .variable("dur", Type::Duration)
        .schema("pod", "Pod", &read("schema.json"))
        .with_patches()
}

/// The row that this implementation produces for an expression.
fn row(expression: &str, env: &Env, pod: &Json, other: &Json, more: &Json) -> Json {
    let mut row = serde_json::json!({ "expression": expression, "cost": 0 });
    let checked = match check(expression, env) {
        Ok(checked) => checked,
        Err(issues) => {
            let mut found: Vec<(usize, usize, String)> = issues
                .iter()
                .map(|issue| {
                    let (line, column) = issue.position(expression);
                    (line, column, issue.message.clone())
                })
                .collect();
            found.sort();
            row["issues"] = found
                .into_iter()
                .map(|(line, column, message)| serde_json::json!({ "line": line, "column": column, "message": message }))
                .collect();
            return row;
        }
    };
    row["type"] = checked.to_string().into();
    let program = match compile(expression, env) {
        Ok(program) => program,
        Err(issues) => {
            row["program"] = issues[0].message.clone().into();
            return row;
        }
    };
    let moment = compile("timestamp('2024-02-29T13:14:15.678Z')", env).expect("a timestamp");
    let period = compile("duration('1h30m')", env).expect("a duration");
    let nothing = Activation::new(env);
    let mut spent = Budget::new(MAX_POLICY_COST);
    let moment = moment.eval(&nothing, &mut spent).expect("a timestamp");
    let period = period.eval(&nothing, &mut spent).expect("a duration");
    let activation = Activation::new(env)
        .with("object", Value::json(pod))
        .with("pod", Value::json(pod))
        .with("other", Value::json(other))
        .with("i", Value::Int(7))
        .with("u", Value::Uint(3))
        .with("d", Value::Double(2.5))
        .with("s", Value::text("hello"))
        .with("b", Value::Bool(true))
        .with("by", Value::Bytes(b"abc".as_slice().into()))
        .with("n", Value::Null)
        .with("l", Value::json(&more["l"]))
        .with("ls", Value::json(&more["ls"]))
        .with("m", Value::json(&more["m"]))
        .with("ts", moment)
        .with("dur", period);
    let mut budget = Budget::new(MAX_POLICY_COST);
    match program.eval(&activation, &mut budget) {
        Ok(value) => row["value"] = value.to_string().into(),
        Err(error) => row["error"] = error.to_string().into(),
    }
    row["cost"] = budget.last().into();
    row
}

/// A row without the wording of syntax errors. Go's parser lists what its grammar expects; only the position
/// of the error has to be the same.
fn without_grammar(row: &Json) -> Json {
    let mut row = row.clone();
    let syntax = |issue: &Json| issue["message"].as_str().is_some_and(|m| m.starts_with("Syntax error"));
    if let Some(issues) = row["issues"].as_array_mut()
        && issues.iter().any(syntax)
    {
        issues.retain(syntax);
        issues.truncate(1);
        issues[0]["message"] = "Syntax error".into();
    }
    row
}

#[test]
fn every_row_has_the_result_of_the_api_server() {
    compare("table.json");
}

#[test]
fn every_mutated_row_has_the_result_of_the_api_server() {
    compare("mutated.json");
}

fn compare(name: &str) {
    let (table, pod, other) = (read(name), read("pod.json"), read("other.json"));
    let known = read("differences.json");
    let more = serde_json::json!({ "l": [3, 1, 2], "ls": ["b", "a", "c"], "m": { "one": 1, "two": 2 } });
    let env = environment();
    let rows = table.as_array().expect("a list of rows");
    assert!(rows.len() > 1_000, "the table has only {} rows", rows.len());
    let mut wrong = Vec::new();
    let mut differing = Vec::new();
    for wanted in rows {
        let expression = wanted["expression"].as_str().expect("an expression");
        let (wanted, got) =
            (without_grammar(wanted), without_grammar(&row(expression, &env, &pod, &other, &more)));
        let excused = known.get(expression).is_some();
        if wanted != got && excused {
            differing.push(expression.to_owned());
        } else if wanted != got {
            wrong.push(format!("wanted {wanted}\n   got {got}"));
        } else if excused {
            wrong.push(format!("{expression}: is in differences.json and is the same: take it out"));
        }
    }
    println!("{name}: {} rows, {} as documented in differences.json", rows.len(), differing.len());
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
