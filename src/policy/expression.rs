//! Evaluates one expression for `portcullis eval`: compiled and evaluated as in a policy, over one object.

use portcullis_cel::{Activation, Budget, Issue, MAX_EXPRESSION_COST, Value, compile};
use serde_json::{Value as Json, json};

use crate::diagnostic::Severity;
use crate::input::AdmissionRequest;
use crate::input::ClusterData;
use crate::load::{Problem, SourceFile, problem_in_expression};
use crate::schema;
use crate::variables::RequestVariables;
use crate::variables::environment;

/// The result of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionResult {
    /// The value in CEL syntax, or the error message of the API server.
    pub value: Result<String, String>,
    /// The type that the compiler inferred.
    pub type_name: String,
    /// The cost in units of the API server.
    pub cost: u64,
    /// The maximum cost of one expression.
    pub cost_limit: u64,
    /// Warnings, such as fields that the kind of the object does not have.
    pub warnings: Vec<Problem>,
}

/// The file name in problems of an expression.
pub const EXPRESSION_FILE_NAME: &str = "expression";

/// Evaluates an expression with `object`, `oldObject`, `request`, `namespaceObject`, `params` and the
/// Portcullis variables.
///
/// # Errors
/// Every problem of an expression that does not compile.
pub fn evaluate(
    source: &str,
    request: &AdmissionRequest<'_>,
    params: Option<&Json>,
    cluster: &ClusterData,
) -> Result<ExpressionResult, Vec<Problem>> {
    let env = environment(true);
    let problems = |issues: Vec<Issue>, severity: Severity| -> Vec<Problem> {
        issues
            .into_iter()
            .map(|issue| problem_in_expression(EXPRESSION_FILE_NAME, source, issue, severity))
            .collect()
    };
    let program = compile(source, &env).map_err(|issues| problems(issues, Severity::Error))?;
    let object = request.object().or_else(|| request.old_object());
    let definition = object.and_then(definition);
    let typed = definition.map(|definition| {
        let env = schema::declare(env.clone(), "object", definition);
        compile(source, &schema::declare(env, "oldObject", definition))
    });
    let (kind, warnings) = match typed {
        Some(Ok(typed)) => (typed.result().to_string(), Vec::new()),
        Some(Err(issues)) => (program.result().to_string(), problems(issues, Severity::Warning)),
        None => (program.result().to_string(), Vec::new()),
    };
    let facts = RequestVariables::new(request, cluster);
    let activation = Activation::new(&env)
        .with("object", json_or_null(request.object()))
        .with("oldObject", json_or_null(request.old_object()))
        .with("request", Value::json(request.json))
        .with("namespaceObject", json_or_null(cluster.namespaces.get(request.namespace())))
        .with("params", json_or_null(params));
    let activation = facts.bind(activation);
    let mut budget = Budget::new(MAX_EXPRESSION_COST);
    let result = program.eval(&activation, &mut budget);
    let value = result.map(|value| value.to_string()).map_err(|error| error.to_string());
    Ok(ExpressionResult {
        value,
        type_name: kind,
        cost: budget.last(),
        cost_limit: MAX_EXPRESSION_COST,
        warnings,
    })
}

fn json_or_null(json: Option<&Json>) -> Value<'_> {
    json.map_or(Value::Null, Value::json)
}

/// Returns the schema definition of an object's kind, if the kind is known.
fn definition(object: &Json) -> Option<&'static str> {
    let (group, version, kind) = kind(object);
    schema::served_resources()
        .iter()
        .find(|one| (one.group, one.version, one.kind) == (group, version, kind))
        .map(schema::ServedResource::definition)
}

fn kind(object: &Json) -> (&str, &str, &str) {
    let text = |key: &str| object.get(key).and_then(Json::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    (group, version, text("kind"))
}

/// Returns the CREATE request for an object, as the API server would send it.
#[must_use]
pub fn create_request(object: &Json) -> Json {
    let (group, version, kind) = kind(object);
    let known = schema::served_resources().iter().find(|one| {
        (one.group, one.version, one.kind) == (group, version, kind) && !one.resource.contains('/')
    });
    let resource = known.map_or_else(|| format!("{}s", kind.to_lowercase()), |one| one.resource.to_owned());
    let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    let namespace = match text("/metadata/namespace") {
        "" if known.is_none_or(|one| one.namespaced) => "default",
        namespace => namespace,
    };
    let kind = json!({ "group": group, "version": version, "kind": kind });
    let resource = json!({ "group": group, "version": version, "resource": resource });
    json!({
        "uid": "00000000-0000-0000-0000-000000000000",
        "kind": kind,
        "requestKind": kind,
        "resource": resource,
        "requestResource": resource,
        "name": text("/metadata/name"),
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": { "username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"] },
        "object": object,
        "oldObject": null,
        "dryRun": false,
    })
}

/// Returns the expression as a file, for [`crate::render_problems`].
#[must_use]
pub fn as_file(source: &str) -> SourceFile {
    SourceFile { name: EXPRESSION_FILE_NAME.to_owned(), bytes: source.as_bytes().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_evaluated_over_an_object() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "labels": { "team": "ml" } },
            "spec": { "containers": [{ "name": "c", "image": "x:latest" }] },
        });
        let request = create_request(&pod);
        let request = AdmissionRequest { json: &request };
        let limits = json!({ "data": { "most": "8" } });
        for (source, value, kind) in [
            ("object.spec.containers.exists(c, c.image.endsWith(':latest'))", Ok("true"), "bool"),
            ("object.metadata.labels", Ok(r#"{"team": "ml"}"#), "map(string, string)"),
            ("request.namespace + '/' + request.name", Ok(r#""default/a""#), "string"),
            ("int(params.data.most) + 1", Ok("9"), "int"),
            ("oldObject == null", Ok("true"), "bool"),
            ("object.spec.nodeName", Err("no such key: nodeName"), "string"),
        ] {
            let trial = evaluate(source, &request, Some(&limits), &ClusterData::default())
                .expect("it is well formed");
            let found = (
                trial.value.as_deref().map_err(String::as_str),
                trial.type_name.as_str(),
                trial.warnings.len(),
            );
            assert_eq!(found, (value, kind, 0), "{source}");
        }
        let trial = evaluate("has(object.spec.contianers)", &request, None, &ClusterData::default())
            .expect("well formed");
        assert_eq!(trial.warnings[0].suggestion.as_deref(), Some("containers"));
        let problems =
            evaluate("objct.spec", &request, None, &ClusterData::default()).expect_err("it is misspelt");
        assert_eq!((problems[0].line, problems[0].column, problems[0].length), (1, 1, 5));
    }
}
