//! The evaluation context: what the names in a policy's expressions stand for, what is computed once per
//! request, and when the budget ends the evaluation.

use std::cell::OnceCell;

use portcullis_cel::{Activation, Budget, ComputedVariable, Env, Error, MAX_MATCH_CONDITIONS_COST, Value};
use serde_json::Value as Json;

use super::compile::{CompiledExpression, CompiledVariable, PolicyBase};
use super::matching::{MatchedResource, RequestAttributes};
use super::params::ParamStore;
use crate::input::{AdmissionRequest, ClusterData, GroupVersionResource, WorkBudget};
use crate::json::text;
use crate::variables::RequestVariables;

/// The API server's message for an exhausted policy budget.
pub(crate) const EXHAUSTED: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The value of an expression or its error message; [`BudgetExhausted`] ends the evaluation of the policy.
pub(crate) type EvaluationResult<'a> = Result<Result<Value<'a>, String>, BudgetExhausted>;

/// The budget of the policy is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudgetExhausted;

/// Evaluates one expression.
pub(crate) fn evaluate<'a>(
    expression: &'a CompiledExpression,
    activation: &Activation<'a>,
    budget: &mut Budget,
    work_budget: &WorkBudget,
) -> EvaluationResult<'a> {
    let result = work_budget.evaluate(&expression.program, activation, budget);
    if budget.is_exceeded() {
        return Err(BudgetExhausted);
    }
    Ok(result.map_err(|error| format!("expression '{}' resulted in error: {error}", expression.source)))
}

/// The `request` variable in the versions that policies match. `kind` and `resource` show what the policy
/// matched. Usually that is what the request contains, and nothing is copied.
#[derive(Debug)]
pub(crate) struct RequestViews<'a> {
    request: AdmissionRequest<'a>,
    /// Copies with another `kind` or `resource`. The index encodes three comparisons: the matched resource is
    /// the one the user sent, the matched kind is the one the user sent, the matched kind is the one that
    /// came. No resource has a third name, so this identifies each copy.
    others: [OnceCell<Json>; 8],
}

impl<'a> RequestViews<'a> {
    pub(crate) fn new(request: AdmissionRequest<'a>) -> Self {
        Self { request, others: Default::default() }
    }

    fn taken_to_be(&self, resource: GroupVersionResource<'_>, kind: [&str; 3]) -> Json {
        let mut json = self.request.json.clone();
        if let Some(fields) = json.as_object_mut() {
            fields.remove("object");
            fields.remove("oldObject");
            fields.insert(
                "resource".into(),
                serde_json::json!({ "group": resource.group, "version": resource.version, "resource": resource.resource }),
            );
            fields.insert(
                "kind".into(),
                serde_json::json!({ "group": kind[0], "version": kind[1], "kind": kind[2] }),
            );
        }
        json
    }

    /// Returns `request` for a policy that matched the request as `matched`.
    pub(crate) fn request(&self, matched: &MatchedResource<'_>, attributes: &RequestAttributes<'_>) -> &Json {
        let came =
            ["/kind/group", "/kind/version", "/kind/kind"].map(|pointer| text(self.request.json, pointer));
        if matched.resource == self.request.resource() && matched.kind == came {
            return self.request.json;
        }
        let is =
            [matched.resource == attributes.resource, matched.kind == attributes.kind, matched.kind == came];
        let at = is.into_iter().fold(0, |at, is| at * 2 + usize::from(is));
        self.others[at].get_or_init(|| self.taken_to_be(matched.resource, matched.kind))
    }
}

/// The values of `spec.variables`, each evaluated on first use. Conditions, rules, messages and annotations
/// each have their own values, as in the API server.
pub(crate) struct PolicyVariables<'a> {
    compiled: &'a [CompiledVariable],
    known: Vec<OnceCell<Result<Value<'a>, Error>>>,
    /// The activation for the variables' expressions. It contains the variables themselves.
    activation: OnceCell<Activation<'a>>,
}

impl<'a> PolicyVariables<'a> {
    pub(crate) fn new(compiled: &'a [CompiledVariable]) -> Self {
        let known = compiled.iter().map(|_| OnceCell::new()).collect();
        Self { compiled, known, activation: OnceCell::new() }
    }
}

impl<'a> ComputedVariable<'a> for PolicyVariables<'a> {
    fn field(&self, name: &str, budget: &mut Budget) -> Option<Result<Value<'a>, Error>> {
        let activation = self.activation.get()?;
        let at = self.compiled.binary_search_by(|variable| variable.name.as_str().cmp(name)).ok()?;
        if let Some(known) = self.known[at].get() {
            return Some(known.clone());
        }
        if budget.is_exceeded() {
            return Some(Err(Error::new(EXHAUSTED)));
        }
        let mut own = Budget::new(u64::MAX);
        own.allow(budget.left());
        let value = self.compiled[at].expression.program.eval(activation, &mut own);
        budget.absorb(&own);
        let value = value.map_err(|error| {
            Error::new(format!("composited variable \"{name}\" fails to evaluate: {error}"))
        });
        _ = self.known[at].set(value.clone());
        Some(value)
    }
}

/// `namespaceObject` of a namespace that is not in the cluster data.
struct UnknownNamespace {
    name: String,
}

impl<'a> ComputedVariable<'a> for UnknownNamespace {
    fn field(&self, _: &str, _: &mut Budget) -> Option<Result<Value<'a>, Error>> {
        None
    }

    fn whole(&self, _: &mut Budget) -> Option<Result<Value<'a>, Error>> {
        Some(Err(Error::new(format!("namespaceObject: the namespace \"{}\" is not known here", self.name))))
    }
}

/// The context of one request: what is the same for every policy.
pub(crate) struct EvaluationContext<'a, 'f> {
    pub(crate) cluster: &'a ClusterData,
    pub(crate) params: &'a ParamStore,
    pub(crate) work_budget: &'a WorkBudget,
    pub(crate) sides: RequestViews<'a>,
    pub(crate) facts: RequestVariables<'f>,
}

impl<'a> EvaluationContext<'a, 'a> {
    pub(crate) fn new(
        request: &AdmissionRequest<'a>,
        cluster: &'a ClusterData,
        params: &'a ParamStore,
        work_budget: &'a WorkBudget,
    ) -> Self {
        Self {
            cluster,
            params,
            work_budget,
            sides: RequestViews::new(*request),
            facts: RequestVariables::new(request, cluster),
        }
    }
}

/// The variables of the expressions of one policy.
pub(crate) struct ExpressionInputs<'a, 'f> {
    pub(crate) request: &'a Json,
    pub(crate) object: Option<&'a Json>,
    pub(crate) old_object: Option<&'a Json>,
    pub(crate) params: Option<&'a Json>,
    pub(crate) context: &'a EvaluationContext<'a, 'f>,
}

/// The `namespaceObject` variable of a request.
pub(crate) struct NamespaceObject<'a> {
    known: Option<&'a Json>,
    unknown: Option<UnknownNamespace>,
}

impl<'a> NamespaceObject<'a> {
    pub(crate) fn of(attributes: &RequestAttributes<'_>, cluster: &'a ClusterData) -> Self {
        let name = attributes.namespace();
        let known = cluster.namespaces.get(name);
        let unknown =
            (known.is_none() && !name.is_empty()).then(|| UnknownNamespace { name: name.to_owned() });
        Self { known, unknown }
    }
}

fn value(json: Option<&Json>) -> Value<'_> {
    json.map_or(Value::Null, Value::json)
}

impl<'a, 'f: 'a> ExpressionInputs<'a, 'f> {
    fn activation(&self, env: &Env) -> Activation<'a> {
        let activation = Activation::new(env)
            .with("object", value(self.object))
            .with("oldObject", value(self.old_object))
            .with("request", Value::json(self.request))
            .with("params", value(self.params));
        self.context.facts.bind(activation)
    }

    /// Returns the activation for every expression except match conditions.
    pub(crate) fn with(
        &self,
        env: &Env,
        namespace: &'a NamespaceObject<'a>,
        variables: &'a PolicyVariables<'a>,
    ) -> Activation<'a> {
        let activation = self.activation(env).with_computed("variables", variables);
        let activation = match &namespace.unknown {
            Some(unknown) => activation.with_computed("namespaceObject", unknown),
            None => activation.with("namespaceObject", value(namespace.known)),
        };
        if !variables.compiled.is_empty() {
            _ = variables.activation.set(activation.clone());
        }
        activation
    }

    /// Evaluates the match conditions of a policy. `namespaceObject` is `null` in them, as in the API server.
    ///
    /// # Errors
    /// The error message, if no condition is false. With `failurePolicy: Ignore` the error is ignored and the
    /// policy does not match.
    pub(crate) fn meets(&self, frame: &'a PolicyBase, ignored: &mut Vec<String>) -> Result<bool, String> {
        if frame.conditions.is_empty() {
            return Ok(true);
        }
        let activation = self.activation(&frame.plain).with("namespaceObject", Value::Null);
        let mut budget = Budget::new(MAX_MATCH_CONDITIONS_COST);
        let mut errors: Vec<String> = Vec::new();
        let mut holds = true;
        for condition in &frame.conditions {
            match self.context.work_budget.evaluate(&condition.program, &activation, &mut budget) {
                _ if budget.is_exceeded() => {
                    errors = vec![EXHAUSTED.to_owned()];
                    holds = true;
                    break;
                }
                Ok(Value::Bool(true)) => {}
                Ok(_) => holds = false,
                Err(error) => {
                    let error = format!("expression '{}' resulted in error: {error}", condition.source);
                    if !errors.contains(&error) {
                        errors.push(error);
                    }
                }
            }
        }
        if !holds || errors.is_empty() {
            return Ok(holds);
        }
        let message = match errors.as_slice() {
            [only] => only.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        if frame.ignores {
            ignored.push(format!("policy '{}': {message}", frame.name));
            return Ok(false);
        }
        Err(message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use crate::evaluation::{CompiledPolicies, ParamStore, ValidatingPolicy};
    use crate::input::{AdmissionRequest, ClusterData, WorkBudget};

    /// Returns a policy for one version of autoscalers, with one match condition and one rule.
    fn policy(name: &str, version: &str, matching: &str, condition: &str, rule: &str) -> ValidatingPolicy {
        let document = json!({
            "metadata": { "name": name },
            "spec": {
                "matchConstraints": { "matchPolicy": matching, "resourceRules": [{
                    "apiGroups": ["autoscaling"], "apiVersions": [version], "operations": ["CREATE"],
                    "resources": ["horizontalpodautoscalers"],
                }] },
                "matchConditions": [{ "name": "asked", "expression": condition }],
                "validations": [{ "expression": rule }],
            },
        });
        let mut diagnostics = Vec::new();
        let policy = ValidatingPolicy::compile(&document, &mut diagnostics);
        let mut policy = policy.unwrap_or_else(|| panic!("{diagnostics:?}"));
        let binding = json!({ "metadata": { "name": name }, "spec": { "policyName": name, "validationActions": ["Deny"] } });
        policy.bind(&binding, &mut diagnostics);
        policy
    }

    /// Returns the names of the policies that deny a request that came as `came` and was sent as `sent`.
    fn refused_by(came: &str, sent: &str, policies: Vec<ValidatingPolicy>) -> Vec<String> {
        let resource = |version: &str| json!({ "group": "autoscaling", "version": version, "resource": "horizontalpodautoscalers" });
        let kind = |version: &str| json!({ "group": "autoscaling", "version": version, "kind": "HorizontalPodAutoscaler" });
        let request: Json = json!({
            "operation": "CREATE", "namespace": "ml", "name": "a", "object": {},
            "resource": resource(came), "kind": kind(came),
            "requestResource": resource(sent), "requestKind": kind(sent),
        });
        let rules = CompiledPolicies::new(policies, Vec::new(), ParamStore::default());
        let validation = rules.validate(
            &AdmissionRequest { json: &request },
            &ClusterData::default(),
            &WorkBudget::unlimited(),
        );
        validation.denials.into_iter().map(|denial| denial.policy).collect()
    }

    #[test]
    fn the_matched_kind_does_not_depend_on_earlier_policies() {
        // Conditions see the resource that the user sent, and the kind that the policy matched.
        let a = |name: &str| policy(name, "v2", "Equivalent", "request.kind.version == 'v2'", "false");
        let b = |name: &str| {
            policy(name, "v1", "Exact", "request.kind.version == 'v1'", "request.kind.version != 'v1'")
        };
        for (came, sent) in [("v2", "v1"), ("v1", "v1")] {
            assert_eq!(refused_by(came, sent, vec![a("1"), b("2")]), ["1", "2"], "{came} sent as {sent}");
            assert_eq!(refused_by(came, sent, vec![b("1"), a("2")]), ["1", "2"], "{came} sent as {sent}");
        }
    }
}
