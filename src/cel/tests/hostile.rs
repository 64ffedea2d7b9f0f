//! Hostile sources: checking and evaluating any source ends within its budget and does not panic.

use std::path::Path;

use portcullis_cel::{Activation, Budget, Env, Type, Value, compile};
use portcullis_core::model::random::Random;
use serde_json::Value as Json;

fn read(name: &str) -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/cel").join(name);
    #[expect(clippy::disallowed_methods, reason = "a test reads its data")]
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

const MAX_COST: u64 = 20_000;

/// Compiles a source and evaluates it if that works. Returns how far it came.
fn run(source: &str, env: &Env, pod: &Json, other: &Json) -> &'static str {
    let program = match compile(source, env) {
        Ok(program) => program,
        Err(issues) => {
            assert!(!issues.is_empty(), "refused without an issue: {source}");
            for issue in issues {
                assert!(issue.offset <= source.len(), "{source}: the issue stands at {}", issue.offset);
                _ = issue.position(source);
            }
            return "refused";
        }
    };
    let activation = Activation::new(env).with("object", Value::json(pod)).with("other", Value::json(other));
    let mut budget = Budget::new(MAX_COST).per_call(MAX_COST);
    match program.eval(&activation, &mut budget) {
        Ok(value) => {
            assert!(budget.last() <= MAX_COST, "{source}: cost {}", budget.last());
            assert!(value.to_string().len() < 100_000_000);
            "value"
        }
        Err(_) => "error",
    }
}

fn environment() -> Env {
    Env::new()
        .variable("object", Type::Dyn)
        .variable("other", Type::Dyn)
        .variable("s", Type::String)
        .variable("i", Type::Int)
        .variable("l", Type::list(Type::Int))
        .with_patches()
}

#[test]
fn evaluation_of_mutated_expressions_ends() {
    const PIECES: [&str; 44] = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        ",",
        ":",
        "?",
        "?:",
        "&&",
        "||",
        "==",
        "<",
        "+",
        "-",
        "*",
        "/",
        "%",
        "!",
        "in ",
        "true",
        "null",
        "0",
        "1u",
        "-1",
        "1e308",
        "9223372036854775807",
        "\"a\"",
        "'",
        "\"\"\"",
        "b\"\\xff\"",
        "r'",
        "\\",
        ".?x",
        "[?0]",
        ".map(x, x)",
        ".all(x, x)",
        ".optMap(x, x)",
        "has(",
        "object",
        "lists.range(99)",
        "😀",
    ];
    let (table, pod, other, env) = (read("table.json"), read("pod.json"), read("other.json"), environment());
    let sources: Vec<&str> =
        table.as_array().expect("rows").iter().filter_map(|row| row["expression"].as_str()).collect();
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut reached = std::collections::BTreeMap::new();
    for _ in 0..40_000 {
        let mut source: Vec<u8> = sources[random.index(sources.len())].into();
        for _ in 0..=random.index(4) {
            let at = random.index(source.len() + 1);
            match random.index(6) {
                0 => {
                    let piece = PIECES[random.index(PIECES.len())];
                    source.splice(at..at, piece.bytes());
                }
                1 => {
                    let end = (at + random.index(8)).min(source.len());
                    source.drain(at..end);
                }
                2 => {
                    let other = sources[random.index(sources.len())].as_bytes();
                    source.truncate(at);
                    source.extend_from_slice(&other[random.index(other.len())..]);
                }
                3 => {
                    let other = sources[random.index(sources.len())];
                    source.splice(at..at, other.bytes());
                }
                4 => source.insert(at, u8::try_from(random.index(256)).expect("a byte")),
                _ => {
                    let copy = source.clone();
                    source.splice(at..at, copy.into_iter().take(64));
                }
            }
        }
        let source = String::from_utf8_lossy(&source);
        *reached.entry(run(&source, &env, &pod, &other)).or_insert(0_u32) += 1;
    }
    println!("{reached:?}");
    for outcome in ["refused", "value", "error"] {
        assert!(reached.get(outcome).is_some_and(|count| *count > 500), "mutation reached {reached:?}");
    }
}

#[test]
fn evaluation_of_random_bytes_ends() {
    let (pod, other, env) = (read("pod.json"), read("other.json"), environment());
    let mut random = Random::new(0x1234_5678_9abc_def1);
    for _ in 0..20_000 {
        let length = random.index(60);
        let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(random.index(256)).expect("a byte")).collect();
        run(&String::from_utf8_lossy(&bytes), &env, &pod, &other);
        let bytes: Vec<u8> =
            bytes.iter().map(|byte| b"()[]{}.,:?&|=<>+-*/%!\"'\\ax1 ul"[usize::from(*byte) % 30]).collect();
        run(&String::from_utf8_lossy(&bytes), &env, &pod, &other);
    }
}

/// Sources that are deep or long in every way that the grammar allows.
#[test]
fn deep_and_long_sources_are_refused_or_end() {
    let (pod, other, env) = (read("pod.json"), read("other.json"), environment());
    for count in [10, 49, 90, 101, 150, 199, 205, 1_000, 15_000] {
        let wrap = |open: &str, middle: &str, close: &str| {
            format!("{}{middle}{}", open.repeat(count), close.repeat(count))
        };
        for source in [
            wrap("(", "1", ")"),
            wrap("[", "1", "]"),
            wrap("{1:", "1", "}"),
            wrap("!", "true", ""),
            wrap("-", "1", ""),
            wrap("size([", "1", "])"),
            wrap("Object{a: ", "1", "}"),
            wrap("true ? 1 : ", "1", ""),
            wrap("true ? ", "1", " : 1"),
            wrap("(true ? ", "1", " : 1)"),
            wrap("1 + ", "1", ""),
            wrap("1 == ", "1", ""),
            wrap("true && ", "true", ""),
            wrap("true || ", "true", ""),
            wrap("object", ".a", ""),
            format!("object{}", ".a".repeat(count)),
            format!("object{}", ".?a".repeat(count)),
            format!("object{}", "[0]".repeat(count)),
            format!("'a'{}", ".trim()".repeat(count)),
            format!("l{}", ".map(x, x)".repeat(count)),
            format!("optional.of(1){}", ".optMap(x, x)".repeat(count)),
            format!("optional.of(1){}", ".optFlatMap(x, optional.of(x))".repeat(count)),
            wrap("[1].map(x, ", "1", ")"),
            wrap("[1].all(x, ", "true", ")"),
            wrap("[1, 2].transformMap(k, v, ", "1", ")"),
            wrap("dyn(", "1", ")"),
            wrap("\"", "", ""),
            wrap("`", "", ""),
            wrap("a.", "b{", ""),
            format!("[{}1]", "1,".repeat(count)),
            format!("'{}'.matches('{}')", "a".repeat(count), "(a*)*".repeat(count)),
            format!("'a'.matches('{}a{}')", "(".repeat(count), ")".repeat(count)),
            format!("'a'.matches('a{}')", "{1000}".repeat(count)),
        ] {
            run(&source, &env, &pod, &other);
        }
    }
}

/// Loops that cost nothing in the API server are bounded by their rounds.
#[test]
fn loops_that_cost_nothing_are_cut_off() {
    let (pod, other, env) = (read("pod.json"), read("other.json"), environment());
    let list = format!("[{}]", ["1"; 200].join(","));
    let body = format!(
        "{list}.exists_one(a, {list}.exists_one(b, {list}.exists_one(c, {list}.exists_one(d, false))))"
    );
    let program = compile(&body, &env).expect("it is well formed");
    let activation =
        Activation::new(&env).with("object", Value::json(&pod)).with("other", Value::json(&other));
    let mut budget = Budget::new(portcullis_cel::MAX_POLICY_COST);
    let error = program.eval(&activation, &mut budget).expect_err("it never ends");
    assert!(error.is_cancelled(), "{error}");
    assert_eq!(error.to_string(), "operation interrupted");
}

/// Work that is cheap by the API server's count, and slow.
#[test]
fn work_that_costs_little_is_cut_off() {
    let (pod, other) = (read("pod.json"), read("other.json"));
    let env = environment()
        .variable("many", Type::list(Type::Dyn))
        .variable("texts", Type::list(Type::String))
        .variable("map", Type::map(Type::String, Type::Dyn))
        .variable("big", Type::String);
    let (many, texts): (Json, Json) = (vec![1; 2_000].into(), vec![""; 2_000].into());
    let map: Json =
        (0..2_000).map(|key| (key.to_string(), Json::Null)).collect::<serde_json::Map<_, _>>().into();
    let big = "a".repeat(100_000);
    for source in [
        "lists.range(20000).all(x, object == object)",
        "lists.range(20000).all(x, [object] == [object])",
        "lists.range(20000).all(x, object in [other, other, other, object])",
        "lists.range(20000).all(x, !'a'.matches('(a{200}){200}|' + string(x)))",
        "lists.range(20000).all(x, 'a'.find('[a-z]{900}' + string(x)) == '')",
        "lists.range(25000).all(i, '%s'.format([object]) != '')",
        "lists.range(9000).all(i, size(many + many) > 0)",
        "lists.range(9000).all(i, size([many].flatten()) > 0)",
        "lists.range(9000).all(i, optional.of(many) == optional.of(many))",
        "lists.range(9000).all(i, Object{a: many} == Object{a: many})",
        "lists.range(9000).all(i, [''].join(big) == '' || texts.isSorted())",
        "lists.range(9000).all(i, texts.min() == '')",
        "lists.range(9000).all(i, ([?dyn(many)] == [] || true))",
        "lists.range(9000).all(i, {?'a': dyn(many)} == {} || true)",
        "lists.range(9000).all(i, size(big) > 0)",
        "lists.range(9000).all(i, big.charAt(99999) == 'a')",
        "lists.range(9000).all(i, 'aaaaaaaa'.replace('a', big) != '')",
        "lists.range(9000).all(i, {'a': 1}[?big].hasValue() == false)",
        "lists.range(9000).all(i, map.exists(k, true))",
        "lists.range(9000).transformMapEntry(i, x, {string(i): x}).size() > 0",
        "[url('http://a/?' + big)].all(u, lists.range(9000).all(i, u.getQuery().size() > 0))",
    ] {
        let program = compile(source, &env).unwrap_or_else(|issues| panic!("{source}: {issues:?}"));
        let activation = Activation::new(&env)
            .with("object", Value::json(&pod))
            .with("other", Value::json(&other))
            .with("many", Value::json(&many))
            .with("texts", Value::json(&texts))
            .with("map", Value::json(&map))
            .with("big", Value::text(&big));
        let mut budget = Budget::new(portcullis_cel::MAX_POLICY_COST);
        let error = program.eval(&activation, &mut budget).expect_err(source);
        assert!(error.is_cancelled(), "{source}: {error}");
        assert_eq!(error.to_string(), "operation interrupted", "{source}: the API server would cut it off");
    }
}

#[test]
fn strings_have_a_maximum_length() {
    let env = environment().variable("big", Type::String);
    let big = "a".repeat(100_000);
    for source in [
        "big.replace('', big)",
        "big.split('').map(x, big).join(big).size()",
        "lists.range(9000000000000000000)",
    ] {
        let program = compile(source, &env).expect("it is well formed");
        let activation = Activation::new(&env).with("big", Value::text(&big));
        let mut budget = Budget::new(portcullis_cel::MAX_POLICY_COST);
        let error = program.eval(&activation, &mut budget).expect_err(source);
        assert!(error.is_cancelled(), "{source}: {error}");
    }
}

/// Values that nest as deep as sources allow, by loops that wrap their items.
#[test]
fn deeply_nested_values_fit_the_stack_of_a_thread() {
    let env = environment().variable("nested", Type::Dyn);
    let refused = |source: &str| compile(source, &env).is_err();
    let wrapped = |count: usize, by: usize| {
        let (open, close) = ("[".repeat(by), "]".repeat(by));
        format!("[object]{}", format!(".map(x, {open}x{close})").repeat(count))
    };
    let deepest = (1..16).rev().find(|count| !refused(&wrapped(*count, 40))).expect("one is allowed");
    assert!(refused(&wrapped(95, 95)), "it nests thousands of lists");
    let source = wrapped(deepest, 40);
    let run = move || {
        let program = compile(&source, &env).expect("it is well formed");
        let pod = read("pod.json");
        let activation = Activation::new(&env).with("object", Value::json(&pod));
        let value =
            program.eval(&activation, &mut Budget::new(portcullis_cel::MAX_POLICY_COST)).expect("a value");
        assert!(value.to_string().len() > 40 * deepest);
        assert!(value.equals(&value));
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).expect("a thread").join().expect("it fits");
}
