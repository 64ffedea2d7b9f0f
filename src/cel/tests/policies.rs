//! Features for policies: suggestions, schemas, variables computed on first use, shared budgets, estimates.

use std::cell::RefCell;
use std::collections::BTreeMap;

use portcullis_cel::{
    Activation, AssumedSizes, Budget, ComputedVariable, Env, Error, Issue, MAX_POLICY_COST, Program,
    StructFields, Type, Value, check, compile,
};
use serde_json::json;

fn issues(source: &str, env: &Env) -> Vec<Issue> {
    check(source, env).err().unwrap_or_default()
}

/// An environment with policy variables of these types.
fn with_variables(variables: &[(&str, Type)]) -> Env {
    let fields: StructFields =
        variables.iter().map(|(name, declared)| ((*name).to_owned(), declared.clone())).collect();
    Env::admission(false)
        .structure("kubernetes.variables", fields)
        .variable("variables", Type::Struct("kubernetes.variables".into()))
}

#[test]
fn a_misspelt_name_has_a_suggestion() {
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "containers": { "type": "array", "items": { "type": "object", "properties": { "image": { "type": "string" } } } },
        "hostNetwork": { "type": "boolean" },
    } } } });
    let env = with_variables(&[("gpus", Type::Int)]).schema("object", "Pod", &schema);
    for (source, message, suggestion) in [
        ("objct.spec", "undeclared reference to 'objct' (in container '')", Some("object")),
        ("object.specs.hostNetwork", "undefined field 'specs'", Some("spec")),
        ("object.spec.hostnetwork", "undefined field 'hostnetwork'", Some("hostNetwork")),
        ("object.spec.containers.all(c, c.imgae != '')", "undefined field 'imgae'", Some("image")),
        (
            "object.spec.containers.all(cont, con.image != '')",
            "undeclared reference to 'con' (in container '')",
            Some("cont"),
        ),
        ("variables.gpu > 1", "undefined field 'gpu'", Some("gpus")),
        ("request.userinfo.username", "undefined field 'userinfo'", Some("userInfo")),
        ("'a'.startWith('a')", "undeclared reference to 'startWith' (in container '')", Some("startsWith")),
        ("quantty('1')", "undeclared reference to 'quantty' (in container '')", Some("quantity")),
        ("namespaceObject.metadata.lables", "undefined field 'lables'", Some("labels")),
        ("xyzzy", "undeclared reference to 'xyzzy' (in container '')", None),
        ("params.limit", "undeclared reference to 'params' (in container '')", None),
    ] {
        let found = issues(source, &env);
        assert_eq!(found.len(), 1, "{source}: {found:?}");
        assert_eq!(
            (found[0].message.as_str(), found[0].suggestion.as_deref()),
            (message, suggestion),
            "{source}"
        );
    }
}

#[test]
fn every_issue_has_its_position() {
    let source = "object.a +\n  sizee(1) +\n  fo.x";
    let found: Vec<(usize, usize)> =
        issues(source, &Env::admission(true)).iter().map(|issue| issue.position(source)).collect();
    assert_eq!(found, [(2, 7), (3, 2)]);
}

#[test]
fn a_program_lists_the_variables_it_uses() {
    let env = with_variables(&[("gpus", Type::Int)]);
    for (source, expected) in [
        ("1 + 1 == 2", &[][..]),
        (
            "variables.gpus > 1 || object.a[oldObject.b] == variables.gpus",
            &["object", "oldObject", "variables"],
        ),
        ("object.all(request, request == 1)", &["object"]),
        ("[1].exists(x, x in object.a ? has(request.name) : false)", &["object", "request"]),
        ("namespaceObject", &["namespaceObject"]),
    ] {
        let program = compile(source, &env).unwrap();
        assert_eq!(program.variables().collect::<Vec<_>>(), expected, "{source}");
    }
}

/// The variables of a policy. Each is evaluated once, on first use.
struct Variables<'a> {
    programs: &'a BTreeMap<&'a str, Program>,
    activation: Activation<'a>,
    known: RefCell<BTreeMap<String, Result<Value<'a>, Error>>>,
}

impl<'a> ComputedVariable<'a> for Variables<'a> {
    fn field(&self, name: &str, budget: &mut Budget) -> Option<Result<Value<'a>, Error>> {
        if let Some(known) = self.known.borrow().get(name) {
            return Some(known.clone());
        }
        let mut own = Budget::new(MAX_POLICY_COST);
        let value = self.programs.get(name)?.eval(&self.activation, &mut own);
        budget.add(own.spent());
        self.known.borrow_mut().insert(name.to_owned(), value.clone());
        Some(value)
    }
}

#[test]
fn variables_are_computed_once_on_first_use() {
    let plain = Env::admission(false);
    let programs: BTreeMap<&str, Program> = [
        ("images", "object.spec.containers.map(c, c.image)"),
        ("broken", "object.missing"),
        ("unused", "lists.range(1000).map(x, x)"),
    ]
    .map(|(name, source)| (name, compile(source, &plain).expect("it is well formed")))
    .into();
    let env = with_variables(&[
        ("images", Type::list(Type::Dyn)),
        ("broken", Type::Dyn),
        ("unused", Type::list(Type::Int)),
    ]);
    let rules: Vec<Program> = [
        "variables.images.size() == 2",
        "variables.images.all(i, i.startsWith('r')) && variables.images[0] == 'r/a'",
        "variables.broken == 1",
        "true || variables.broken == 1",
        "has(variables.images)",
    ]
    .iter()
    .map(|source| compile(source, &env).expect("it is well formed"))
    .collect();
    let pod = json!({ "spec": { "containers": [{ "image": "r/a" }, { "image": "r/b" }] } });
    let variables = Variables {
        programs: &programs,
        activation: Activation::new(&plain).with("object", Value::json(&pod)),
        known: RefCell::default(),
    };
    let activation =
        Activation::new(&env).with("object", Value::json(&pod)).with_computed("variables", &variables);
    let mut budget = Budget::new(MAX_POLICY_COST);
    let results: Vec<String> = rules
        .iter()
        .map(|rule| rule.eval(&activation, &mut budget).map_or_else(|e| e.to_string(), |v| v.to_string()))
        .collect();
    assert_eq!(results, ["true", "true", "no such key: missing", "true", "true"]);
    let asked: Vec<String> = variables.known.borrow().keys().cloned().collect();
    assert_eq!(asked, ["broken", "images"]);
    assert!(budget.spent() < 100, "{} spent", budget.spent());
}

#[test]
fn a_budget_is_shared_by_the_expressions_of_a_policy() {
    let env = Env::admission(false);
    let program = compile("lists.range(1000).all(x, x >= 0)", &env).expect("it is well formed");
    let mut budget = Budget::new(10_000);
    let mut count = 0;
    while !budget.is_exceeded() {
        let value = program.eval(&Activation::new(&env), &mut budget);
        assert!(matches!(value, Ok(Value::Bool(true))));
        count += 1;
    }
    assert_eq!((count, budget.last(), budget.spent()), (2, 6_012, 12_024));
}

#[test]
fn an_estimate_is_at_least_the_cost() {
    let env = Env::admission(false);
    let items: Vec<_> =
        (0..32).map(|index| json!({ "name": format!("name-{index}"), "value": "x".repeat(256) })).collect();
    let object = json!({ "items": items, "name": "n".repeat(256) });
    for source in [
        "object.name.matches('^n+$')",
        "object.items.all(i, i.value.contains('x'))",
        "object.items.map(i, i.name).sort() == []",
        "object.items.all(i, object.items.exists(j, i.name == j.name))",
        "object.?missing.orValue(object.name).size() > 3 ? object.items.size() : 1",
        "object.items.map(i, i.name + i.value).join(',').size()",
        "lists.range(500).filter(x, x > 3).size()",
    ] {
        let program = compile(source, &env).expect("it is well formed");
        let mut budget = Budget::new(MAX_POLICY_COST);
        let activation = Activation::new(&env).with("object", Value::json(&object));
        program.eval(&activation, &mut budget).unwrap_or_else(|e| panic!("{source}: {e}"));
        let estimate = program.estimate(AssumedSizes::default());
        assert!(estimate >= budget.last(), "{source}: estimated {estimate}, cost {}", budget.last());
        assert!(
            estimate < 40 * budget.last() + 20_000,
            "{source}: estimated {estimate}, cost {}",
            budget.last()
        );
    }
}
