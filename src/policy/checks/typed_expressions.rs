//! Typed expressions: compiles expressions again with `object`, `oldObject` and `params` of the kinds that
//! the policy matches, and estimates their cost.
//!
//! The API server only warns about misspelt fields; this check finds them at load. The first compilation has
//! already accepted every expression for objects of any kind. This check never affects evaluation.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_cel::{
    AssumedSizes, Env, Issue, MAX_EXPRESSION_COST, MAX_MATCH_CONDITIONS_COST, MAX_POLICY_COST, Program,
    StructFields, Type, compile,
};
use serde_json::Value as Json;

use crate::diagnostic::{Diagnostic, Severity};
use crate::schema;
use crate::variables::environment;

/// CEL type name of `variables`.
const VARIABLES: &str = "kubernetes.variables";

/// Maximum number of kinds that a policy's expressions are checked against, as in the API server.
const MAX_CHECKED_KINDS: usize = 10;

/// Where an expression stands in its policy, which decides the variables it can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpressionPlace<'a> {
    /// A match condition, without `variables`.
    Condition,
    /// A variable, with the variables before it.
    Variable(&'a str),
    /// A rule, message or annotation, with all variables.
    Rule,
    /// A mutation, with all variables and the patch types.
    Mutation,
}

/// An expression of a policy.
#[derive(Debug)]
struct SourceExpression<'a> {
    pointer: String,
    source: &'a str,
    place: ExpressionPlace<'a>,
}

/// The lists of `spec` with expressions, and the paths within their items.
const EXPRESSION_LISTS: [(&str, &[&str]); 5] = [
    ("matchConditions", &["/expression"]),
    ("variables", &["/expression"]),
    ("validations", &["/expression", "/messageExpression"]),
    ("auditAnnotations", &["/valueExpression"]),
    ("mutations", &["/applyConfiguration/expression", "/jsonPatch/expression"]),
];

/// Returns the expressions of a policy in the order in which they are checked.
fn expressions(document: &Json) -> Vec<SourceExpression<'_>> {
    let mut found = Vec::new();
    for (list, paths) in EXPRESSION_LISTS {
        let items = document.pointer(&format!("/spec/{list}")).and_then(Json::as_array);
        for (index, item) in items.into_iter().flatten().enumerate() {
            let place = match list {
                "matchConditions" => ExpressionPlace::Condition,
                "variables" => {
                    ExpressionPlace::Variable(item.get("name").and_then(Json::as_str).unwrap_or_default())
                }
                "mutations" => ExpressionPlace::Mutation,
                _ => ExpressionPlace::Rule,
            };
            for path in paths {
                let source = item.pointer(path).and_then(Json::as_str).filter(|text| !text.trim().is_empty());
                let pointer = format!("/spec/{list}/{index}{path}");
                found.extend(source.map(|source| SourceExpression { pointer, source, place }));
            }
        }
    }
    found
}

/// The kinds that a policy matches.
#[derive(Debug, Default)]
struct MatchedKinds {
    /// Known kinds: schema definition to kind.
    kinds: BTreeMap<&'static str, &'static str>,
    /// Whether the policy can match other kinds too.
    has_other_kinds: bool,
}

fn matched(document: &Json) -> MatchedKinds {
    let mut matched = MatchedKinds::default();
    let rules = document.pointer("/spec/matchConstraints/resourceRules").and_then(Json::as_array);
    for rule in rules.into_iter().flatten() {
        let texts = |list: &str| -> Vec<&str> {
            let items = rule.get(list).and_then(Json::as_array);
            items.into_iter().flatten().filter_map(Json::as_str).collect()
        };
        let (groups, versions, resources) = (texts("apiGroups"), texts("apiVersions"), texts("resources"));
        for group in &groups {
            for version in &versions {
                for resource in &resources {
                    let known = schema::served_resources().iter().filter(|one| {
                        one.group == *group
                            && one.version == *version
                            && (one.resource == *resource
                                || resource.strip_suffix("/*").is_some_and(|whole| {
                                    one.resource.split_once('/').is_some_and(|(of, _)| of == whole)
                                        || one.resource == whole
                                }))
                    });
                    let before = matched.kinds.len();
                    let mut any = false;
                    for one in known {
                        any = true;
                        matched.kinds.insert(one.definition(), one.kind);
                    }
                    // Not every subresource is known; CONNECT subresources are not.
                    matched.has_other_kinds |=
                        !any || (resource.ends_with("/*") && matched.kinds.len() > before);
                }
            }
        }
    }
    while matched.kinds.len() > MAX_CHECKED_KINDS {
        matched.kinds.pop_last();
        matched.has_other_kinds = true;
    }
    matched
}

/// CEL environments by declared types, each built once.
#[derive(Debug, Default)]
pub(crate) struct TypedEnvironments {
    made: BTreeMap<(bool, Option<&'static str>, Option<&'static str>), Env>,
}

impl TypedEnvironments {
    /// Returns the environment with or without `params`, and with the schema definitions of object and
    /// parameters if they are known.
    fn of(&mut self, has_params: bool, object: Option<&'static str>, params: Option<&'static str>) -> Env {
        let make = || {
            let mut env = environment(has_params);
            if let Some(definition) = object {
                env = schema::declare(env, "object", definition);
                env = schema::declare(env, "oldObject", definition);
            }
            match params {
                Some(definition) => schema::declare(env, "params", definition),
                None => env,
            }
        };
        self.made.entry((has_params, object, params)).or_insert_with(make).clone()
    }
}

/// An issue, and the kinds of `object` that cause it.
#[derive(Debug)]
struct TypedIssue {
    issue: Issue,
    kinds: BTreeSet<&'static str>,
}

/// Checks the expressions of a compiled policy. `known` holds the diagnostics so far.
pub(crate) fn check(
    document: &Json,
    known: &[Diagnostic],
    environments: &mut TypedEnvironments,
) -> Vec<Diagnostic> {
    let matched = matched(document);
    let param_kind = document.pointer("/spec/paramKind");
    let params = param_kind.and_then(|kind| {
        let version = kind.get("apiVersion")?.as_str()?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = kind.get("kind")?.as_str()?;
        let of =
            |one: &&schema::ServedResource| one.group == group && one.version == version && one.kind == kind;
        Some(schema::served_resources().iter().find(of)?.definition())
    });
    let expressions = expressions(document);
    let errors = known.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    let refused: BTreeSet<&str> = errors.map(|diagnostic| diagnostic.pointer.as_str()).collect();
    let mut estimates: Vec<Option<u64>> = vec![None; expressions.len()];
    let mut issues: Vec<Vec<TypedIssue>> = expressions.iter().map(|_| Vec::new()).collect();
    let kinds: Vec<Option<(&str, &str)>> = if matched.kinds.is_empty() {
        vec![None]
    } else {
        matched.kinds.iter().map(|(definition, kind)| Some((*definition, *kind))).collect()
    };
    for kind in &kinds {
        let env = environments.of(param_kind.is_some(), kind.map(|(definition, _)| definition), params);
        compile_all(&expressions, &env, &refused, |at, result| match result {
            Ok(program) => {
                let estimate = program.estimate(AssumedSizes::default());
                estimates[at] = Some(estimates[at].map_or(estimate, |known| known.max(estimate)));
            }
            Err(found) => {
                for issue in found {
                    let same = issues[at].iter_mut().find(|one| one.issue == issue);
                    match same {
                        Some(same) => same.kinds.extend(kind.map(|(_, kind)| kind)),
                        None => issues[at].push(TypedIssue {
                            issue,
                            kinds: kind.map(|(_, kind)| kind).into_iter().collect(),
                        }),
                    }
                }
            }
        });
    }
    let mut diagnostics = Vec::new();
    for (expression, found) in expressions.iter().zip(issues) {
        for TypedIssue { issue, kinds: with } in found {
            let is_reported = |diagnostic: &Diagnostic| {
                diagnostic.pointer == expression.pointer && diagnostic.offset == Some(issue.offset)
            };
            if known.iter().any(is_reported) {
                continue;
            }
            let everywhere = !matched.has_other_kinds
                && with.len() == matched.kinds.values().collect::<BTreeSet<_>>().len();
            diagnostics.push(diagnostic(expression, issue, &with, everywhere));
        }
    }
    diagnostics.extend(cost_warnings(&expressions, &estimates));
    diagnostics
}

/// Compiles each expression with the variables before it. Results of `refused` expressions can have unbounded
/// types, so later expressions see them as `dyn`.
fn compile_all(
    expressions: &[SourceExpression<'_>],
    env: &Env,
    refused: &BTreeSet<&str>,
    mut report: impl FnMut(usize, Result<Program, Vec<Issue>>),
) {
    let mut with = env
        .clone()
        .structure(VARIABLES, StructFields::new())
        .variable("variables", Type::Struct(VARIABLES.into()));
    for (at, expression) in expressions.iter().enumerate() {
        match expression.place {
            ExpressionPlace::Condition => report(at, compile(expression.source, env)),
            ExpressionPlace::Variable(name) => {
                let result = compile(expression.source, &with);
                let found = result.as_ref().ok().filter(|_| !refused.contains(expression.pointer.as_str()));
                let found = found.map_or(Type::Dyn, |program| program.result().clone());
                with = with.structure_field(VARIABLES, name, found);
                report(at, result);
            }
            ExpressionPlace::Rule => report(at, compile(expression.source, &with)),
            ExpressionPlace::Mutation => report(at, compile(expression.source, &with.clone().with_patches())),
        }
    }
}

fn diagnostic(
    expression: &SourceExpression<'_>,
    issue: Issue,
    kinds: &BTreeSet<&'static str>,
    everywhere: bool,
) -> Diagnostic {
    let presence_test_offset = presence_test_offset(expression.source, &issue);
    let is_field = issue.message.starts_with(UNKNOWN_FIELD_PREFIX);
    let severity = if is_field && everywhere && presence_test_offset.is_none() {
        Severity::Error
    } else {
        Severity::Warning
    };
    let named: Vec<&str> = kinds.iter().copied().collect();
    let message = match named.as_slice() {
        [] => issue.message,
        kinds => format!("{}, where object is a {}", issue.message, kinds.join(" or a ")),
    };
    let offset = presence_test_offset.unwrap_or(issue.offset);
    Diagnostic {
        severity,
        ..Diagnostic::error(&expression.pointer, message).at(offset).suggest(issue.suggestion)
    }
}

/// Start of CEL's message for an unknown field.
const UNKNOWN_FIELD_PREFIX: &str = "undefined field '";

/// Returns the offset of the field if the expression only tests its presence with `has()` or `.?`. The field
/// may exist in another Kubernetes version, so this is a warning. CEL reports `has(a.b)` at the parenthesis.
fn presence_test_offset(source: &str, issue: &Issue) -> Option<usize> {
    let (before, after) = (source.get(..issue.offset)?, source.get(issue.offset..)?);
    if after.starts_with(".?") || after.starts_with("[?") {
        return Some(issue.offset);
    }
    if !after.starts_with('(') || !before.trim_end().ends_with("has") {
        return None;
    }
    let field = issue.message.strip_prefix(UNKNOWN_FIELD_PREFIX)?.split('\'').next()?;
    let dotted = format!(".{field}");
    let place = after.match_indices(&dotted).map(|(at, _)| at).find(|at| {
        let next = after[at + dotted.len()..].chars().next();
        next.is_none_or(|next| next != '_' && !next.is_alphanumeric())
    });
    Some(issue.offset + place.unwrap_or(0))
}

/// Returns warnings for expressions that may exceed a cost limit.
fn cost_warnings(expressions: &[SourceExpression<'_>], estimates: &[Option<u64>]) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let sizes = AssumedSizes::default();
    let assumed = format!("for lists of {} and texts of {} characters", sizes.entries, sizes.text);
    let (mut conditions, mut rules) = (0_u64, 0_u64);
    for (expression, estimate) in expressions.iter().zip(estimates) {
        let estimate = estimate.unwrap_or(0);
        if expression.place == ExpressionPlace::Condition {
            conditions = conditions.saturating_add(estimate);
        } else {
            rules = rules.saturating_add(estimate);
        }
        if estimate > MAX_EXPRESSION_COST {
            let message = format!(
                "this may cost {} {assumed}; an expression that costs more than {} fails",
                with_thousands_separators(estimate),
                with_thousands_separators(MAX_EXPRESSION_COST)
            );
            diagnostics.push(Diagnostic::warning(&expression.pointer, message));
        }
    }
    for (list, estimate, most) in
        [("matchConditions", conditions, MAX_MATCH_CONDITIONS_COST), ("validations", rules, MAX_POLICY_COST)]
    {
        if estimate > most && diagnostics.is_empty() {
            let message = format!(
                "together they may cost {} {assumed}; the policy fails beyond {}",
                with_thousands_separators(estimate),
                with_thousands_separators(most)
            );
            diagnostics.push(Diagnostic::warning(format!("/spec/{list}"), message).at_key());
        }
    }
    diagnostics
}

/// Formats `1234567` as `1,234,567`, and very large numbers by magnitude.
fn with_thousands_separators(number: u64) -> String {
    if number > 1_000_000_000_000 {
        return format!("more than 10^{}", number.ilog10());
    }
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(rules: &Json, expression: &str) -> Json {
        json!({ "spec": {
            "matchConstraints": { "resourceRules": rules },
            "variables": [{ "name": "spec", "expression": "object.spec" }],
            "validations": [{ "expression": expression }],
        } })
    }

    /// Returns diagnostics as `SEVERITY OFFSET MESSAGE (SUGGESTION)`.
    fn found(rules: &Json, expression: &str) -> Vec<String> {
        check(&policy(rules, expression), &[], &mut TypedEnvironments::default())
            .into_iter()
            .map(|diagnostic| {
                let matched =
                    diagnostic.suggestion.map(|matched| format!(" ({matched})")).unwrap_or_default();
                format!(
                    "{:?} {} {}{matched}",
                    diagnostic.severity,
                    diagnostic.offset.unwrap_or(0),
                    diagnostic.message
                )
            })
            .collect()
    }

    #[test]
    fn misspelt_fields_of_known_kinds_are_errors() {
        let rule = |resources: &[&str]| json!([{ "apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources }]);
        let pods = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }]);
        let both = json!([
            { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] },
            { "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"] },
        ]);
        for (rules, expression, expected) in [
            (&pods, "object.spec.containers.all(c, c.image != '')", vec![]),
            (
                &pods,
                "object.spec.contianers.all(c, true)",
                vec!["Error 11 undefined field 'contianers', where object is a Pod (containers)"],
            ),
            (
                &pods,
                "variables.spec.contianers.all(c, true)",
                vec!["Error 14 undefined field 'contianers', where object is a Pod (containers)"],
            ),
            (
                &pods,
                "!has(object.spec.contianers)",
                vec!["Warning 16 undefined field 'contianers', where object is a Pod (containers)"],
            ),
            (
                &both,
                "object.spec.replicas > 1",
                vec!["Warning 11 undefined field 'replicas', where object is a Pod"],
            ),
            (
                &both,
                "object.metadata.nam == ''",
                vec!["Error 15 undefined field 'nam', where object is a Deployment or a Pod (name)"],
            ),
            (
                &pods,
                "object.spec.priority == 'a'",
                vec![
                    "Warning 21 found no matching overload for '_==_' applied to '(int, string)', where object is a Pod",
                ],
            ),
            (&rule(&["*"]), "object.spec.contianers.all(c, true)", vec![]),
            (
                &rule(&["pods", "things"]),
                "object.spec.contianers.all(c, true)",
                vec!["Warning 11 undefined field 'contianers', where object is a Pod (containers)"],
            ),
            (
                &pods,
                "object.spec.containers.all(a, object.spec.containers.all(b, object.spec.containers.all(c, object.spec.containers.all(d, a.image + b.image != c.image + d.image))))",
                vec![
                    "Warning 0 this may cost 176,431,364 for lists of 32 and texts of 256 characters; an expression that costs more than 1,000,000 fails",
                ],
            ),
        ] {
            assert_eq!(found(rules, expression), expected, "{expression}");
        }
    }
}
