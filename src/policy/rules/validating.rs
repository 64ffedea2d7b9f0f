//! `ValidatingAdmissionPolicy`: rules to decisions, decisions to what is refused, warned of and noted.

use std::collections::BTreeMap;

use portcullis_cel::{Activation, Budget, MAX_EXPRESSION_COST, MAX_POLICY_COST, Value};
use serde_json::{Value as Json, json};

use super::compile::{Binding, Compiler, Expression, Frame, Wanted, compiled};
use super::evaluation::{EXHAUSTED, Exhausted, Hearing, Inputs, Namespace, Variables, evaluate};
use super::matching::{Asked, Matched};
use crate::effort::Effort;
use crate::fault::Fault;
use crate::judgement::{Denial, Judgement};
use crate::spec::{ValidatingAdmissionPolicy, Validation};
use crate::world::Wishes;

/// The longest message that an expression may make, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;
/// The longest value of an audit annotation, in bytes.
const LONGEST_ANNOTATION: usize = 10 * 1024;
/// Where failures of rules with the action `Audit` are noted.
const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// One of `spec.validations`.
#[derive(Debug)]
struct Rule {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: Option<String>,
}

/// One of `spec.auditAnnotations`.
#[derive(Debug)]
struct Annotation {
    key: String,
    expression: Expression,
}

/// A `ValidatingAdmissionPolicy` with its bindings, ready to be asked by any number of threads.
#[derive(Debug)]
pub struct Validating {
    frame: Frame,
    rules: Vec<Rule>,
    annotations: Vec<Annotation>,
    wishes: Wishes,
}

/// What a rule comes to.
enum Decision {
    Admit,
    /// Could not be evaluated, under `failurePolicy: Ignore`.
    Ignore(String),
    Deny {
        message: String,
        reason: Option<String>,
    },
}

/// What the evaluation with one parameter object comes to.
#[derive(Default)]
struct Verdict {
    /// One for each rule, in order; or one for all of them.
    decisions: Vec<Decision>,
    /// What that one is about.
    part: Option<&'static str>,
    annotations: Vec<Result<String, String>>,
}

impl Validating {
    /// Compiles a policy. Without bindings it is never asked. None when there is an error among the faults that are added.
    #[must_use]
    pub fn compile(document: &Json, faults: &mut Vec<Fault>) -> Option<Self> {
        compiled(document, faults, Self::of)
    }

    fn of(policy: ValidatingAdmissionPolicy, faults: &mut Vec<Fault>) -> Self {
        let spec = policy.spec;
        let mut compiler = Compiler::new(spec.common.param_kind.is_some(), faults);
        let frame = compiler.frame(policy.metadata.name, spec.common, false);
        let mut rules = Vec::new();
        for (index, rule) in spec.validations.into_iter().flatten().enumerate() {
            rules.extend(Self::rule(rule, index, &mut compiler, &frame.env));
        }
        let mut annotations = Vec::new();
        for (index, annotation) in spec.audit_annotations.into_iter().flatten().enumerate() {
            let pointer = format!("/spec/auditAnnotations/{index}/valueExpression");
            let source = &annotation.value_expression;
            let expression = compiler.expression(source, &frame.env, Wanted::TextOrNull, &pointer);
            annotations.extend(expression.map(|expression| Annotation { key: annotation.key, expression }));
        }
        Self { frame, rules, annotations, wishes: compiler.wishes() }
    }

    fn rule(
        rule: Validation,
        index: usize,
        compiler: &mut Compiler<'_>,
        env: &portcullis_cel::Env,
    ) -> Option<Rule> {
        let place = format!("/spec/validations/{index}");
        let expression =
            compiler.expression(&rule.expression, env, Wanted::Bool, &format!("{place}/expression"));
        let message_expression =
            rule.message_expression.filter(|source| !source.is_empty()).and_then(|source| {
                compiler.expression(&source, env, Wanted::Text, &format!("{place}/messageExpression"))
            });
        let message = rule.message.unwrap_or_default();
        Some(Rule { expression: expression?, message, message_expression, reason: rule.reason })
    }

    /// Adds a `ValidatingAdmissionPolicyBinding`, whose `policyName` is not looked at.
    pub fn bind(&mut self, document: &Json, faults: &mut Vec<Fault>) {
        self.frame.bind(document, faults);
    }

    /// The name of the policy.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.frame.name
    }

    /// What its expressions ask of the world.
    #[must_use]
    pub fn wishes(&self) -> Wishes {
        self.wishes
    }

    fn configuration(&self, binding: Option<&Binding>, why: &str, judgement: &mut Judgement) {
        let what = if binding.is_none() { "policy" } else { "binding" };
        let message = format!("failed to configure {what}: {why}");
        if self.frame.ignores {
            judgement.ignored.push(format!("policy '{}': {message}", self.frame.name));
        } else {
            judgement.denials.push(self.denial(binding, "/spec".to_owned(), message, None));
        }
    }

    fn denial(
        &self,
        binding: Option<&Binding>,
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

    /// Adds what the policy says of a request.
    pub(crate) fn judge(&self, asked: &Asked<'_>, hearing: &Hearing<'_, '_>, judgement: &mut Judgement) {
        let world = hearing.world;
        let frame = &self.frame;
        if frame.bindings.is_empty() {
            return;
        }
        let matched = match frame.constraints.matches(asked, world) {
            Ok(Some(matched)) => matched,
            Ok(None) => return,
            Err(why) => return self.configuration(None, &why, judgement),
        };
        let mut notes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for binding in &frame.bindings {
            if let Some(constraints) = &binding.constraints {
                match constraints.matches(asked, world) {
                    Ok(Some(_)) => {}
                    Ok(None) => continue,
                    Err(why) => {
                        self.configuration(Some(binding), &why, judgement);
                        continue;
                    }
                }
            }
            let handed = match hearing.params.of(
                frame.param_kind.as_ref(),
                binding.reference.as_ref(),
                asked.request.namespace(),
            ) {
                Ok(handed) => handed,
                Err(why) => {
                    self.configuration(Some(binding), &why, judgement);
                    continue;
                }
            };
            for params in handed {
                let verdict = self.evaluate(asked, &matched, hearing, params, &mut judgement.ignored);
                self.carry_out(binding, verdict, &mut notes, judgement);
            }
        }
        for (key, values) in notes {
            judgement.audit.insert(format!("{}/{key}", frame.name), values.join(", "));
        }
    }

    /// What a binding makes of a verdict.
    fn carry_out<'s>(
        &'s self,
        binding: &Binding,
        verdict: Verdict,
        notes: &mut BTreeMap<&'s str, Vec<String>>,
        judgement: &mut Judgement,
    ) {
        let policy = &self.frame.name;
        for (index, decision) in verdict.decisions.into_iter().enumerate() {
            let (message, reason) = match decision {
                Decision::Admit => continue,
                Decision::Ignore(message) => {
                    judgement
                        .ignored
                        .push(format!("policy '{policy}' with binding '{}': {message}", binding.name));
                    continue;
                }
                Decision::Deny { message, reason } => (message, reason),
            };
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => judgement.denials.push(self.denial(
                        Some(binding),
                        verdict.part.map_or_else(|| format!("/spec/validations/{index}"), str::to_owned),
                        message.clone(),
                        reason.as_deref(),
                    )),
                    "Warn" => judgement.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {message}",
                        binding.name
                    )),
                    _ => {
                        let failure = json!([{
                            "message": message, "policy": policy, "binding": binding.name,
                            "expressionIndex": index, "validationActions": binding.actions,
                        }]);
                        // A second failure does not replace the first, as in the API server.
                        judgement.audit.entry(FAILURE.to_owned()).or_insert_with(|| failure.to_string());
                    }
                }
            }
        }
        for (index, note) in verdict.annotations.into_iter().enumerate() {
            let Some(annotation) = self.annotations.get(index) else { continue };
            match note {
                Ok(value) if value.is_empty() => {}
                Ok(mut value) => {
                    value.truncate(value.floor_char_boundary(LONGEST_ANNOTATION));
                    let values = notes.entry(annotation.key.as_str()).or_default();
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
                Err(message) if self.frame.ignores => {
                    judgement
                        .ignored
                        .push(format!("policy '{policy}' with binding '{}': {message}", binding.name));
                }
                Err(message) => judgement.denials.push(self.denial(
                    Some(binding),
                    format!("/spec/auditAnnotations/{index}"),
                    message,
                    None,
                )),
            }
        }
    }

    /// The verdict when a part of the policy fails for all rules.
    fn failed_in(&self, part: &'static str, message: String) -> Verdict {
        Verdict { decisions: vec![self.failed(message)], part: Some(part), annotations: Vec::new() }
    }

    fn failed(&self, message: String) -> Decision {
        if self.frame.ignores { Decision::Ignore(message) } else { Decision::Deny { message, reason: None } }
    }

    fn evaluate(
        &self,
        asked: &Asked<'_>,
        matched: &Matched<'_>,
        hearing: &Hearing<'_, '_>,
        params: Option<&Json>,
        ignored: &mut Vec<String>,
    ) -> Verdict {
        let frame = &self.frame;
        let sent = Matched { resource: asked.resource, kind: matched.kind };
        let mut inputs = Inputs {
            request: hearing.sides.request(&sent, asked),
            object: asked.object,
            old_object: asked.old_object,
            params,
            hearing,
        };
        match inputs.meets(frame, ignored) {
            Ok(true) => {}
            Ok(false) => return Verdict::default(),
            Err(message) => return self.failed_in("/spec/matchConditions", message),
        }
        inputs.request = hearing.sides.request(matched, asked);
        let namespace = Namespace::of(asked, hearing.world);
        let variables = Variables::new(&frame.variables);
        let activation = inputs.with(&frame.env, &namespace, &variables);
        let mut budget = Budget::new(MAX_POLICY_COST);
        let mut results = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            match evaluate(&rule.expression, &activation, &mut budget, hearing.effort) {
                Ok(result) => results.push(result),
                Err(Exhausted) => return self.failed_in("/spec/validations", EXHAUSTED.to_owned()),
            }
        }
        let message_variables = Variables::new(&frame.variables);
        let activation = inputs.with(&frame.env, &namespace, &message_variables);
        let denied = |result: &Result<Value<'_>, String>| !matches!(result, Ok(Value::Bool(true)) | Err(_));
        let messages =
            self.messages(&activation, &mut budget, hearing.effort, |index| denied(&results[index]));
        let decisions = results
            .iter()
            .zip(&self.rules)
            .enumerate()
            .map(|(index, (result, rule))| match (result, &messages) {
                (Err(message), _) => self.failed(message.clone()),
                (_, Err(Exhausted)) => self.failed(format!("failed messageExpression: {EXHAUSTED}")),
                (Ok(Value::Bool(true)), _) => Decision::Admit,
                (Ok(_), Ok(messages)) => Decision::Deny {
                    message: rule.message(messages.get(index).and_then(Option::as_deref)),
                    reason: rule.reason.clone(),
                },
            })
            .collect();
        if self.annotations.is_empty() {
            return Verdict { decisions, ..Verdict::default() };
        }
        let variables = Variables::new(&frame.variables);
        let activation = inputs.with(&frame.env, &namespace, &variables);
        match self.notes(&activation, hearing.effort) {
            Ok(annotations) => Verdict { decisions, part: None, annotations },
            // As in the API server, nothing of the rules is left then.
            Err(Exhausted) => self.failed_in("/spec/auditAnnotations", EXHAUSTED.to_owned()),
        }
    }

    /// The texts that message expressions make. The API server evaluates all of them, whether they are asked for or not; here those
    /// that nobody asks for are passed over when the budget suffices for all in any case.
    fn messages<'a>(
        &'a self,
        activation: &Activation<'a>,
        budget: &mut Budget,
        effort: &Effort,
        asked_for: impl Fn(usize) -> bool,
    ) -> Result<Vec<Option<String>>, Exhausted> {
        let count = self.rules.iter().filter(|rule| rule.message_expression.is_some()).count();
        let most =
            (count + self.frame.variables.len()) as u64 * (MAX_EXPRESSION_COST + MAX_EXPRESSION_COST / 8);
        let suffices = budget.spent().saturating_add(most) < MAX_POLICY_COST;
        let mut messages = Vec::with_capacity(self.rules.len());
        for (index, rule) in self.rules.iter().enumerate() {
            let message = match &rule.message_expression {
                Some(expression) if !suffices || asked_for(index) => {
                    evaluate(expression, activation, budget, effort)?.ok()
                }
                _ => None,
            };
            messages.push(message.and_then(|value| value.as_str().map(str::to_owned)));
        }
        Ok(messages)
    }

    fn notes<'a>(
        &'a self,
        activation: &Activation<'a>,
        effort: &Effort,
    ) -> Result<Vec<Result<String, String>>, Exhausted> {
        let mut budget = Budget::new(MAX_POLICY_COST);
        let mut notes = Vec::with_capacity(self.annotations.len());
        for annotation in &self.annotations {
            let value = evaluate(&annotation.expression, activation, &mut budget, effort)?;
            let value = value.map(|value| value.as_str().unwrap_or_default().trim().to_owned());
            notes.push(value);
        }
        Ok(notes)
    }
}

impl Rule {
    /// What is said when the rule does not hold.
    fn message(&self, made: Option<&str>) -> String {
        let made = made.map(str::trim).unwrap_or_default();
        if !made.is_empty() && made.len() <= LONGEST_MESSAGE && !made.contains('\n') {
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
