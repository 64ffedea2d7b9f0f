//! `ValidatingAdmissionPolicy`: evaluates rules to denials, warnings and audit annotations.

use std::collections::BTreeMap;

use portcullis_cel::{Activation, Budget, MAX_EXPRESSION_COST, MAX_POLICY_COST, Value};
use serde_json::{Value as Json, json};

use super::compile::{
    CompiledBinding, CompiledExpression, ExpectedType, PolicyBase, PolicyCompiler, compiled,
};
use super::context::{
    BudgetExhausted, EXHAUSTED, EvaluationContext, ExpressionInputs, NamespaceObject, PolicyVariables,
    evaluate,
};
use super::matching::{MatchedResource, RequestAttributes};
use super::result::{Denial, ValidationResult};
use crate::api::{ValidatingAdmissionPolicy, Validation};
use crate::diagnostic::Diagnostic;
use crate::input::DataDependencies;
use crate::input::WorkBudget;

/// Maximum size of a computed message; longer ones are replaced by the static message.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
/// Maximum size of an audit annotation's value.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;
/// The audit key for failures of rules with the action `Audit`.
const VALIDATION_FAILURE_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// One compiled entry of `spec.validations`.
#[derive(Debug)]
struct CompiledValidation {
    expression: CompiledExpression,
    message: String,
    message_expression: Option<CompiledExpression>,
    reason: Option<String>,
}

/// One compiled entry of `spec.auditAnnotations`.
#[derive(Debug)]
struct CompiledAuditAnnotation {
    key: String,
    expression: CompiledExpression,
}

/// A `ValidatingAdmissionPolicy` with its bindings. Any number of threads can evaluate it.
#[derive(Debug)]
pub struct ValidatingPolicy {
    frame: PolicyBase,
    rules: Vec<CompiledValidation>,
    annotations: Vec<CompiledAuditAnnotation>,
    data_dependencies: DataDependencies,
}

/// The decision of one rule.
enum RuleDecision {
    Admit,
    /// The rule failed with `failurePolicy: Ignore`.
    Ignore(String),
    Deny {
        message: String,
        reason: Option<String>,
    },
}

/// The decisions of a policy for one parameter object.
#[derive(Default)]
struct PolicyDecisions {
    /// One for each rule, in order; or one for the whole policy.
    decisions: Vec<RuleDecision>,
    /// The part of the policy that the one decision is about.
    part: Option<&'static str>,
    annotations: Vec<Result<String, String>>,
}

impl ValidatingPolicy {
    /// Compiles a policy. Without bindings it is never evaluated. `None` if one of the added diagnostics is
    /// an error.
    #[must_use]
    pub fn compile(document: &Json, diagnostics: &mut Vec<Diagnostic>) -> Option<Self> {
        compiled(document, diagnostics, Self::of)
    }

    fn of(policy: ValidatingAdmissionPolicy, diagnostics: &mut Vec<Diagnostic>) -> Self {
        let spec = policy.spec;
        let mut compiler = PolicyCompiler::new(spec.common.param_kind.is_some(), diagnostics);
        let frame = compiler.frame(policy.metadata.name, spec.common, false);
        let mut rules = Vec::new();
        for (index, rule) in spec.validations.into_iter().flatten().enumerate() {
            rules.extend(Self::rule(rule, index, &mut compiler, &frame.env));
        }
        let mut annotations = Vec::new();
        for (index, annotation) in spec.audit_annotations.into_iter().flatten().enumerate() {
            let pointer = format!("/spec/auditAnnotations/{index}/valueExpression");
            let source = &annotation.value_expression;
            let expression = compiler.expression(source, &frame.env, ExpectedType::TextOrNull, &pointer);
            annotations.extend(
                expression.map(|expression| CompiledAuditAnnotation { key: annotation.key, expression }),
            );
        }
        Self { frame, rules, annotations, data_dependencies: compiler.data_dependencies() }
    }

    fn rule(
        rule: Validation,
        index: usize,
        compiler: &mut PolicyCompiler<'_>,
        env: &portcullis_cel::Env,
    ) -> Option<CompiledValidation> {
        let place = format!("/spec/validations/{index}");
        let expression =
            compiler.expression(&rule.expression, env, ExpectedType::Bool, &format!("{place}/expression"));
        let message_expression =
            rule.message_expression.filter(|source| !source.is_empty()).and_then(|source| {
                compiler.expression(&source, env, ExpectedType::Text, &format!("{place}/messageExpression"))
            });
        let message = rule.message.unwrap_or_default();
        Some(CompiledValidation { expression: expression?, message, message_expression, reason: rule.reason })
    }

    /// Adds a `ValidatingAdmissionPolicyBinding`. Its `policyName` is not checked.
    pub fn bind(&mut self, document: &Json, diagnostics: &mut Vec<Diagnostic>) {
        self.frame.bind(document, diagnostics);
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.frame.name
    }

    /// Returns what its expressions read from [`crate::ClusterData`].
    #[must_use]
    pub fn data_dependencies(&self) -> DataDependencies {
        self.data_dependencies
    }

    fn report_configuration_error(
        &self,
        binding: Option<&CompiledBinding>,
        why: &str,
        validation: &mut ValidationResult,
    ) {
        let what = if binding.is_none() { "policy" } else { "binding" };
        let message = format!("failed to configure {what}: {why}");
        if self.frame.ignores {
            validation.ignored_errors.push(format!("policy '{}': {message}", self.frame.name));
        } else {
            validation.denials.push(self.denial(binding, "/spec".to_owned(), message, None));
        }
    }

    fn denial(
        &self,
        binding: Option<&CompiledBinding>,
        rule: String,
        message: String,
        reason: Option<&str>,
    ) -> Denial {
        let (policy, binding) = (&self.frame.name, binding.map_or("", |binding| &binding.name));
        let subject = if binding.is_empty() {
            format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}")
        } else {
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}")
        };
        Denial {
            policy: policy.clone(),
            binding: binding.to_owned(),
            rule,
            field: None,
            message: subject,
            detail: message,
            reason: reason.unwrap_or("Invalid").to_owned(),
        }
    }

    /// Evaluates the policy for a request and adds the result.
    pub(crate) fn evaluate_request(
        &self,
        attributes: &RequestAttributes<'_>,
        context: &EvaluationContext<'_, '_>,
        validation: &mut ValidationResult,
    ) {
        let cluster = context.cluster;
        let frame = &self.frame;
        if frame.bindings.is_empty() {
            return;
        }
        let matched = match frame.constraints.matches(attributes, cluster) {
            Ok(Some(matched)) => matched,
            Ok(None) => return,
            Err(why) => return self.report_configuration_error(None, &why, validation),
        };
        let mut annotation_values: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for binding in &frame.bindings {
            if let Some(constraints) = &binding.constraints {
                match constraints.matches(attributes, cluster) {
                    Ok(Some(_)) => {}
                    Ok(None) => continue,
                    Err(why) => {
                        self.report_configuration_error(Some(binding), &why, validation);
                        continue;
                    }
                }
            }
            let params_list = match context.params.of(
                frame.param_kind.as_ref(),
                binding.reference.as_ref(),
                attributes.request.namespace(),
            ) {
                Ok(params_list) => params_list,
                Err(why) => {
                    self.report_configuration_error(Some(binding), &why, validation);
                    continue;
                }
            };
            for params in params_list {
                let verdict =
                    self.evaluate(attributes, &matched, context, params, &mut validation.ignored_errors);
                self.apply_actions(binding, verdict, &mut annotation_values, validation);
            }
        }
        for (key, values) in annotation_values {
            validation.audit.insert(format!("{}/{key}", frame.name), values.join(", "));
        }
    }

    /// Applies the actions of a binding to decisions.
    fn apply_actions<'s>(
        &'s self,
        binding: &CompiledBinding,
        verdict: PolicyDecisions,
        annotation_values: &mut BTreeMap<&'s str, Vec<String>>,
        validation: &mut ValidationResult,
    ) {
        let policy = &self.frame.name;
        for (index, decision) in verdict.decisions.into_iter().enumerate() {
            let (message, reason) = match decision {
                RuleDecision::Admit => continue,
                RuleDecision::Ignore(message) => {
                    validation
                        .ignored_errors
                        .push(format!("policy '{policy}' with binding '{}': {message}", binding.name));
                    continue;
                }
                RuleDecision::Deny { message, reason } => (message, reason),
            };
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => validation.denials.push(self.denial(
                        Some(binding),
                        verdict.part.map_or_else(|| format!("/spec/validations/{index}"), str::to_owned),
                        message.clone(),
                        reason.as_deref(),
                    )),
                    "Warn" => validation.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {message}",
                        binding.name
                    )),
                    _ => {
                        let failure = json!([{
                            "message": message, "policy": policy, "binding": binding.name,
                            "expressionIndex": index, "validationActions": binding.actions,
                        }]);
                        // The first failure is kept, as in the API server.
                        validation.audit.entry(VALIDATION_FAILURE_KEY.to_owned()).or_insert_with(|| failure.to_string());
                    }
                }
            }
        }
        for (index, note) in verdict.annotations.into_iter().enumerate() {
            let Some(annotation) = self.annotations.get(index) else { continue };
            match note {
                Ok(value) if value.is_empty() => {}
                Ok(mut value) => {
                    value.truncate(value.floor_char_boundary(MAX_ANNOTATION_BYTES));
                    let values = annotation_values.entry(annotation.key.as_str()).or_default();
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
                Err(message) if self.frame.ignores => {
                    validation
                        .ignored_errors
                        .push(format!("policy '{policy}' with binding '{}': {message}", binding.name));
                }
                Err(message) => validation.denials.push(self.denial(
                    Some(binding),
                    format!("/spec/auditAnnotations/{index}"),
                    message,
                    None,
                )),
            }
        }
    }

    /// Returns the decision for a part of the policy whose failure fails all rules.
    fn failed_in(&self, part: &'static str, message: String) -> PolicyDecisions {
        PolicyDecisions { decisions: vec![self.failed(message)], part: Some(part), annotations: Vec::new() }
    }

    fn failed(&self, message: String) -> RuleDecision {
        if self.frame.ignores {
            RuleDecision::Ignore(message)
        } else {
            RuleDecision::Deny { message, reason: None }
        }
    }

    fn evaluate(
        &self,
        attributes: &RequestAttributes<'_>,
        matched: &MatchedResource<'_>,
        context: &EvaluationContext<'_, '_>,
        params: Option<&Json>,
        ignored: &mut Vec<String>,
    ) -> PolicyDecisions {
        let frame = &self.frame;
        let sent = MatchedResource { resource: attributes.resource, kind: matched.kind };
        let mut inputs = ExpressionInputs {
            request: context.sides.request(&sent, attributes),
            object: attributes.object,
            old_object: attributes.old_object,
            params,
            context,
        };
        match inputs.meets(frame, ignored) {
            Ok(true) => {}
            Ok(false) => return PolicyDecisions::default(),
            Err(message) => return self.failed_in("/spec/matchConditions", message),
        }
        inputs.request = context.sides.request(matched, attributes);
        let namespace = NamespaceObject::of(attributes, context.cluster);
        let variables = PolicyVariables::new(&frame.variables);
        let activation = inputs.with(&frame.env, &namespace, &variables);
        let mut budget = Budget::new(MAX_POLICY_COST);
        let mut results = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            match evaluate(&rule.expression, &activation, &mut budget, context.work_budget) {
                Ok(result) => results.push(result),
                Err(BudgetExhausted) => return self.failed_in("/spec/validations", EXHAUSTED.to_owned()),
            }
        }
        let message_variables = PolicyVariables::new(&frame.variables);
        let activation = inputs.with(&frame.env, &namespace, &message_variables);
        let denied = |result: &Result<Value<'_>, String>| !matches!(result, Ok(Value::Bool(true)) | Err(_));
        let messages =
            self.messages(&activation, &mut budget, context.work_budget, |index| denied(&results[index]));
        let decisions = results
            .iter()
            .zip(&self.rules)
            .enumerate()
            .map(|(index, (result, rule))| match (result, &messages) {
                (Err(message), _) => self.failed(message.clone()),
                (_, Err(BudgetExhausted)) => self.failed(format!("failed messageExpression: {EXHAUSTED}")),
                (Ok(Value::Bool(true)), _) => RuleDecision::Admit,
                (Ok(_), Ok(messages)) => RuleDecision::Deny {
                    message: rule.message(messages.get(index).and_then(Option::as_deref)),
                    reason: rule.reason.clone(),
                },
            })
            .collect();
        if self.annotations.is_empty() {
            return PolicyDecisions { decisions, ..PolicyDecisions::default() };
        }
        let variables = PolicyVariables::new(&frame.variables);
        let activation = inputs.with(&frame.env, &namespace, &variables);
        match self.annotation_values(&activation, context.work_budget) {
            Ok(annotations) => PolicyDecisions { decisions, part: None, annotations },
            // As in the API server, the decisions of the rules are lost.
            Err(BudgetExhausted) => self.failed_in("/spec/auditAnnotations", EXHAUSTED.to_owned()),
        }
    }

    /// Evaluates the message expressions. The API server evaluates all of them. Here those of rules that
    /// allow are skipped, if the budget suffices for all of them in any case.
    fn messages<'a>(
        &'a self,
        activation: &Activation<'a>,
        budget: &mut Budget,
        work_budget: &WorkBudget,
        asked_for: impl Fn(usize) -> bool,
    ) -> Result<Vec<Option<String>>, BudgetExhausted> {
        let count = self.rules.iter().filter(|rule| rule.message_expression.is_some()).count();
        let most =
            (count + self.frame.variables.len()) as u64 * (MAX_EXPRESSION_COST + MAX_EXPRESSION_COST / 8);
        let suffices = budget.spent().saturating_add(most) < MAX_POLICY_COST;
        let mut messages = Vec::with_capacity(self.rules.len());
        for (index, rule) in self.rules.iter().enumerate() {
            let message = match &rule.message_expression {
                Some(expression) if !suffices || asked_for(index) => {
                    evaluate(expression, activation, budget, work_budget)?.ok()
                }
                _ => None,
            };
            messages.push(message.and_then(|value| value.as_str().map(str::to_owned)));
        }
        Ok(messages)
    }

    fn annotation_values<'a>(
        &'a self,
        activation: &Activation<'a>,
        work_budget: &WorkBudget,
    ) -> Result<Vec<Result<String, String>>, BudgetExhausted> {
        let mut budget = Budget::new(MAX_POLICY_COST);
        let mut annotation_values = Vec::with_capacity(self.annotations.len());
        for annotation in &self.annotations {
            let value = evaluate(&annotation.expression, activation, &mut budget, work_budget)?;
            let value = value.map(|value| value.as_str().unwrap_or_default().trim().to_owned());
            annotation_values.push(value);
        }
        Ok(annotation_values)
    }
}

impl CompiledValidation {
    /// Returns the message of a denial.
    fn message(&self, made: Option<&str>) -> String {
        let made = made.map(str::trim).unwrap_or_default();
        if !made.is_empty() && made.len() <= MAX_MESSAGE_BYTES && !made.contains('\n') {
            return made.to_owned();
        }
        if !self.message.is_empty() {
            let message = self.message.trim();
            if !message.is_empty() {
                return message.to_owned();
            }
        }
        format!("failed expression: {}", self.expression.source.trim())
    }
}
