//! `MutatingAdmissionPolicy`: applies patches in order, and reinvokes policies once if the object has
//! changed.

use std::borrow::Cow;
use std::collections::BTreeSet;

use portcullis_cel::{Budget, MAX_POLICY_COST};
use serde_json::Value as Json;

use super::compile::{
    CompiledBinding, CompiledExpression, ExpectedType, PolicyBase, PolicyCompiler, compiled,
};
use super::context::{
    BudgetExhausted, EXHAUSTED, EvaluationContext, ExpressionInputs, NamespaceObject, PolicyVariables,
    evaluate,
};
use super::matching::{MatchedResource, RequestAttributes};
use super::patch::cel_to_json::{configuration, operations};
use super::patch::json_patch::{self, PatchFailure};
use super::patch::size::{MAX_OBJECT_BYTES, SizeCounter};
use super::patch::{apply_configuration, strict_decoding};
use super::result::{AppliedException, Denial, MutationResult};
use crate::api::{MutatingAdmissionPolicy, MutationSpec};
use crate::diagnostic::Diagnostic;
use crate::input::AdmissionRequest;
use crate::input::DataDependencies;
use crate::json::text;
use crate::schema::Schema;

/// Bytes of an object whose change costs about as much as one step of an expression.
const BYTES_PER_WORK_UNIT: usize = 16;

#[derive(Debug)]
enum CompiledMutation {
    Configuration(CompiledExpression),
    Patch(CompiledExpression),
}

/// A `MutatingAdmissionPolicy` with its bindings. Any number of threads can evaluate it.
#[derive(Debug)]
pub struct MutatingPolicy {
    frame: PolicyBase,
    changes: Vec<CompiledMutation>,
    /// `reinvocationPolicy: IfNeeded`.
    reinvocations: bool,
    data_dependencies: DataDependencies,
}

impl MutatingPolicy {
    /// Compiles a policy. Without bindings it is never evaluated. `None` if one of the added diagnostics is
    /// an error.
    #[must_use]
    pub fn compile(document: &Json, diagnostics: &mut Vec<Diagnostic>) -> Option<Self> {
        compiled(document, diagnostics, Self::of)
    }

    fn of(policy: MutatingAdmissionPolicy, diagnostics: &mut Vec<Diagnostic>) -> Self {
        let spec = policy.spec;
        let mut compiler = PolicyCompiler::new(spec.common.param_kind.is_some(), diagnostics);
        let frame = compiler.frame(policy.metadata.name, spec.common, true);
        let patches = frame.env.clone().with_patches();
        let mut changes = Vec::new();
        for (index, change) in spec.mutations.into_iter().flatten().enumerate() {
            changes.extend(Self::change(&change, index, &mut compiler, &patches));
        }
        let reinvocations = spec.reinvocation_policy.as_deref() == Some("IfNeeded");
        Self { frame, changes, reinvocations, data_dependencies: compiler.data_dependencies() }
    }

    fn change(
        change: &MutationSpec,
        index: usize,
        compiler: &mut PolicyCompiler<'_>,
        env: &portcullis_cel::Env,
    ) -> Option<CompiledMutation> {
        let place = format!("/spec/mutations/{index}");
        match (change.patch_type.as_str(), &change.apply_configuration, &change.json_patch) {
            ("ApplyConfiguration", Some(given), _) => {
                let pointer = format!("{place}/applyConfiguration/expression");
                compiler
                    .expression(&given.expression, env, ExpectedType::Configuration, &pointer)
                    .map(CompiledMutation::Configuration)
            }
            ("JSONPatch", _, Some(given)) => {
                let pointer = format!("{place}/jsonPatch/expression");
                compiler
                    .expression(&given.expression, env, ExpectedType::Patches, &pointer)
                    .map(CompiledMutation::Patch)
            }
            (kind, ..) => {
                let message = match kind {
                    "ApplyConfiguration" => {
                        "applyConfiguration is required with patchType ApplyConfiguration".to_owned()
                    }
                    "JSONPatch" => "jsonPatch is required with patchType JSONPatch".to_owned(),
                    other => format!("patchType must be ApplyConfiguration or JSONPatch, not \"{other}\""),
                };
                compiler.diagnostic(Diagnostic::error(place, message));
                None
            }
        }
    }

    /// Adds a `MutatingAdmissionPolicyBinding`. Its `policyName` is not checked.
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
}

/// A policy with one binding and one parameter object, for one request.
struct PolicyInvocation<'a> {
    policy: &'a MutatingPolicy,
    binding: &'a CompiledBinding,
    matched: MatchedResource<'a>,
    params: Option<&'a Json>,
    key: [String; 4],
}

/// Why a change was not made.
enum MutationError {
    /// The policy failed; `failurePolicy` decides.
    Policy(String),
    /// The request fails, whatever `failurePolicy` says.
    Request(String),
}

/// One request on its way through all mutating policies.
pub(crate) struct MutationRun<'a, 'f> {
    request: AdmissionRequest<'a>,
    context: &'a EvaluationContext<'a, 'f>,
    object: Json,
    mutation: MutationResult,
    /// Keys of the invocations to reinvoke.
    reinvocations: BTreeSet<[String; 4]>,
    /// Whether any change was made, even one without effect.
    has_changes: bool,
}

impl<'a, 'f: 'a> MutationRun<'a, 'f> {
    pub(crate) fn new(
        request: AdmissionRequest<'a>,
        object: Json,
        context: &'a EvaluationContext<'a, 'f>,
    ) -> Self {
        let (mutation, reinvocations) = (MutationResult::default(), BTreeSet::new());
        Self { request, context, object, mutation, reinvocations, has_changes: false }
    }

    /// Evaluates all policies, and reinvokes those with `IfNeeded` if something has changed.
    pub(crate) fn all(
        mut self,
        policies: &'a [MutatingPolicy],
        exception_for: &dyn Fn(&str) -> Option<AppliedException>,
    ) -> MutationResult {
        let before = self.object.clone();
        self.pass(policies, exception_for, None);
        if self.has_changes && self.mutation.denials.is_empty() && !self.reinvocations.is_empty() {
            let reinvocations = std::mem::take(&mut self.reinvocations);
            self.pass(policies, exception_for, Some(&reinvocations));
        }
        if self.mutation.denials.is_empty() {
            self.mutation.object = (self.object != before).then_some(self.object);
        }
        self.mutation
    }

    fn refuse(
        &mut self,
        policy: &MutatingPolicy,
        binding: Option<&CompiledBinding>,
        rule: String,
        why: String,
        reason: &str,
    ) {
        let name = &policy.frame.name;
        if policy.frame.ignores {
            self.mutation.ignored_errors.push(format!("policy '{name}': {why}"));
            return;
        }
        let message = match binding {
            Some(binding) => format!("policy '{name}' with binding '{}' denied request: {why}", binding.name),
            None => format!("policy \"{name}\" denied request: {why}"),
        };
        self.mutation.denials.push(Denial {
            policy: name.clone(),
            binding: binding.map_or_else(String::new, |binding| binding.name.clone()),
            rule,
            field: None,
            message,
            detail: why,
            reason: reason.to_owned(),
        });
    }

    /// Returns the invocations that match the object in its current state. Failures to match are reported
    /// after all matches.
    fn invocations(
        &mut self,
        policies: &'a [MutatingPolicy],
        object: &Json,
        exception_for: &dyn Fn(&str) -> Option<AppliedException>,
    ) -> Vec<PolicyInvocation<'a>> {
        let mut found = Vec::new();
        let mut failures = Vec::new();
        for policy in policies.iter().filter(|policy| !policy.frame.bindings.is_empty()) {
            let excepted = exception_for(policy.name());
            let frame = &policy.frame;
            let attributes = RequestAttributes::new(self.request, None);
            let probe = RequestAttributes { object: Some(object), ..attributes };
            let matched = match frame.constraints.matches(&probe, self.context.cluster) {
                Ok(Some(matched)) => MatchedResource { resource: matched.resource, kind: matched.kind },
                Ok(None) => continue,
                Err(_) if excepted.is_some() => continue,
                Err(why) => {
                    failures.push((policy, None, why));
                    continue;
                }
            };
            // The strings must be those of the request, which outlives the object.
            let matched = attributes.named(matched);
            for binding in &frame.bindings {
                if let Some(constraints) = &binding.constraints {
                    match constraints.matches(&probe, self.context.cluster) {
                        Ok(Some(_)) => {}
                        Ok(None) => continue,
                        Err(_) if excepted.is_some() => continue,
                        Err(why) => {
                            failures.push((policy, Some(binding), why));
                            continue;
                        }
                    }
                }
                if let Some(excepted) = &excepted {
                    if !self.mutation.applied_exceptions.contains(excepted) {
                        self.mutation.applied_exceptions.push(excepted.clone());
                    }
                    break;
                }
                let namespace = self.request.namespace();
                match self.context.params.of(frame.param_kind.as_ref(), binding.reference.as_ref(), namespace)
                {
                    Ok(params_list) => found.extend(params_list.into_iter().map(|params| {
                        let of = |pointer: &str| params.map_or("", |params| text(params, pointer)).to_owned();
                        let key = [
                            frame.name.clone(),
                            binding.name.clone(),
                            of("/metadata/namespace"),
                            of("/metadata/name"),
                        ];
                        PolicyInvocation { policy, binding, matched, params, key }
                    })),
                    Err(why) => failures.push((policy, Some(binding), why)),
                }
            }
        }
        for (policy, binding, why) in failures {
            let what = if binding.is_none() { "policy" } else { "binding" };
            let why = format!("failed to configure {what}: {why}");
            self.refuse(policy, binding, "/spec".to_owned(), why, "Forbidden");
        }
        found
    }

    fn pass(
        &mut self,
        policies: &'a [MutatingPolicy],
        exception_for: &dyn Fn(&str) -> Option<AppliedException>,
        only: Option<&BTreeSet<[String; 4]>>,
    ) {
        let object = std::mem::take(&mut self.object);
        let invocations = self.invocations(policies, &object, exception_for);
        self.object = object;
        for invocation in invocations {
            match self.meets(&invocation) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    let rule = "/spec/matchConditions".to_owned();
                    self.refuse(invocation.policy, Some(invocation.binding), rule, why, "Invalid");
                    continue;
                }
            }
            if only.is_some_and(|only| !only.contains(&invocation.key)) {
                continue;
            }
            if !self.invoke(&invocation) {
                return;
            }
            if invocation.policy.reinvocations {
                self.reinvocations.insert(invocation.key);
            }
        }
    }

    /// Makes the changes of one policy. False if the request fails.
    fn invoke(&mut self, invocation: &PolicyInvocation<'a>) -> bool {
        let mut changed = false;
        for (index, change) in invocation.policy.changes.iter().enumerate() {
            match self.change(invocation, change) {
                Ok(object) => {
                    self.has_changes = true;
                    if let Some(object) = object {
                        changed = true;
                        self.object = object;
                    }
                }
                Err(MutationError::Policy(why)) => {
                    let rule = format!("/spec/mutations/{index}");
                    self.refuse(invocation.policy, Some(invocation.binding), rule, why, "Invalid");
                }
                Err(MutationError::Request(why)) => {
                    let name = &invocation.policy.frame.name;
                    self.mutation.denials = vec![Denial {
                        policy: name.clone(),
                        binding: invocation.binding.name.clone(),
                        rule: format!("/spec/mutations/{index}"),
                        field: None,
                        message: format!("Internal error occurred: {why}"),
                        detail: why,
                        reason: "InternalError".to_owned(),
                    }];
                    return false;
                }
            }
        }
        let name = &invocation.policy.frame.name;
        if changed && !self.mutation.changed_by.contains(name) {
            self.mutation.changed_by.push(name.clone());
        }
        true
    }

    fn meets(&mut self, invocation: &PolicyInvocation<'a>) -> Result<bool, String> {
        let attributes = RequestAttributes::new(self.request, Some(&self.object));
        let sent = MatchedResource { resource: attributes.resource, kind: invocation.matched.kind };
        let inputs = ExpressionInputs {
            request: self.context.sides.request(&sent, &attributes),
            object: Some(&self.object),
            old_object: attributes.old_object,
            params: invocation.params,
            context: self.context,
        };
        inputs.meets(&invocation.policy.frame, &mut self.mutation.ignored_errors)
    }

    /// Returns the changed object, or `None` if nothing changes.
    fn change(
        &self,
        invocation: &PolicyInvocation<'a>,
        change: &CompiledMutation,
    ) -> Result<Option<Json>, MutationError> {
        let frame = &invocation.policy.frame;
        let attributes = RequestAttributes::new(self.request, Some(&self.object));
        let inputs = ExpressionInputs {
            request: self.context.sides.request(&invocation.matched, &attributes),
            object: Some(&self.object),
            old_object: attributes.old_object,
            params: invocation.params,
            context: self.context,
        };
        let namespace = NamespaceObject::of(&attributes, self.context.cluster);
        let variables = PolicyVariables::new(&frame.variables);
        let activation = inputs.with(&frame.env, &namespace, &variables);
        let mut budget = Budget::new(MAX_POLICY_COST);
        let (CompiledMutation::Configuration(expression) | CompiledMutation::Patch(expression)) = change;
        let value = match evaluate(expression, &activation, &mut budget, self.context.work_budget) {
            Ok(value) => value.map_err(MutationError::Policy)?,
            Err(BudgetExhausted) => return Err(MutationError::Policy(EXHAUSTED.to_owned())),
        };
        // CEL values share their parts; an object has a copy of each part.
        let mut size = SizeCounter::new();
        if !size.value(&value) {
            let message =
                format!("the expression makes more than {MAX_OBJECT_BYTES} bytes, which no object may have");
            return Err(MutationError::Policy(message));
        }
        size.json(&self.object);
        self.context
            .work_budget
            .consume(u64::try_from(size.used() / BYTES_PER_WORK_UNIT).unwrap_or(u64::MAX));
        if self.context.work_budget.is_exhausted() {
            return Ok(None);
        }
        let schema = self.schema();
        let object = match change {
            CompiledMutation::Configuration(_) => {
                let configuration = configuration(&value).map_err(MutationError::Policy)?;
                let configuration = self.complete(configuration);
                apply_configuration::apply(schema, &self.object, &configuration)
                    .map_err(|why| MutationError::Policy(format!("error applying patch: {why}")))?
            }
            CompiledMutation::Patch(_) => {
                let operations = operations(&value).map_err(MutationError::Policy)?;
                let mut object = self.object.clone();
                match json_patch::apply(&mut object, operations) {
                    Ok(()) => {}
                    Err(PatchFailure::Test) => return Ok(None),
                    Err(PatchFailure::Other(why)) => {
                        return Err(MutationError::Policy(format!("JSON Patch: {why}")));
                    }
                }
                if let Some(schema) = schema.filter(|_| self.is_builtin()) {
                    let kind = text(&self.object, "/kind");
                    strict_decoding::decode_strictly(schema, kind, &mut object)
                        .map_err(MutationError::Request)?;
                }
                object
            }
        };
        Ok((object != self.object).then_some(object))
    }

    /// Adds version and kind of the object to a configuration.
    fn complete(&self, mut configuration: Json) -> Json {
        if let Some(fields) = configuration.as_object_mut() {
            for key in ["apiVersion", "kind"] {
                if let Some(value) = self.object.get(key) {
                    fields.insert(key.to_owned(), value.clone());
                }
            }
        }
        configuration
    }

    fn group_version(&self) -> (Cow<'_, str>, Cow<'_, str>) {
        match text(&self.object, "/apiVersion").split_once('/') {
            Some((group, version)) => (Cow::Borrowed(group), Cow::Borrowed(version)),
            None => (Cow::Borrowed(""), Cow::Borrowed(text(&self.object, "/apiVersion"))),
        }
    }

    fn schema(&self) -> Option<&'static Schema> {
        let (group, version) = self.group_version();
        Schema::of(&group, &version, text(&self.object, "/kind"))
    }

    /// Whether the kind is part of Kubernetes. Built-in kinds reject unknown fields.
    fn is_builtin(&self) -> bool {
        let (group, _) = self.group_version();
        !group.contains('.') || group.ends_with(".k8s.io")
    }
}
