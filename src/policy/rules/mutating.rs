//! `MutatingAdmissionPolicy`: patches that are applied one after the other, and once more where something changed since.

use std::borrow::Cow;
use std::collections::BTreeSet;

use portcullis_cel::{Budget, MAX_POLICY_COST};
use serde_json::Value as Json;

use super::compile::{Binding, Compiler, Expression, Frame, Wanted, compiled};
use super::convert::{configuration, operations};
use super::evaluation::{EXHAUSTED, Exhausted, Hearing, Inputs, Namespace, Variables, evaluate};
use super::matching::{Asked, Matched};
use super::patch::{self, Failure};
use super::size::{MOST, Room};
use super::{merge, strict, text};
use crate::exception::Excepted;
use crate::fault::Fault;
use crate::judgement::{Denial, Mutation};
use crate::request::Request;
use crate::schema::Schema;
use crate::spec::{MutatingAdmissionPolicy, MutationSpec};
use crate::world::Wishes;

/// So many bytes of an object are changed with about the work of one step of an expression.
const BYTES_OF_WORK: usize = 16;

#[derive(Debug)]
enum Change {
    Configuration(Expression),
    Patch(Expression),
}

/// A `MutatingAdmissionPolicy` with its bindings, ready to be asked by any number of threads.
#[derive(Debug)]
pub struct Mutating {
    frame: Frame,
    changes: Vec<Change>,
    /// `reinvocationPolicy: IfNeeded`.
    again: bool,
    wishes: Wishes,
}

impl Mutating {
    /// Compiles a policy. Without bindings it is never asked. None when there is an error among the faults that are added.
    #[must_use]
    pub fn compile(document: &Json, faults: &mut Vec<Fault>) -> Option<Self> {
        compiled(document, faults, Self::of)
    }

    fn of(policy: MutatingAdmissionPolicy, faults: &mut Vec<Fault>) -> Self {
        let spec = policy.spec;
        let mut compiler = Compiler::new(spec.common.param_kind.is_some(), faults);
        let frame = compiler.frame(policy.metadata.name, spec.common, true);
        let patches = frame.env.clone().with_patches();
        let mut changes = Vec::new();
        for (index, change) in spec.mutations.into_iter().flatten().enumerate() {
            changes.extend(Self::change(&change, index, &mut compiler, &patches));
        }
        let again = spec.reinvocation_policy.as_deref() == Some("IfNeeded");
        Self { frame, changes, again, wishes: compiler.wishes() }
    }

    fn change(
        change: &MutationSpec,
        index: usize,
        compiler: &mut Compiler<'_>,
        env: &portcullis_cel::Env,
    ) -> Option<Change> {
        let place = format!("/spec/mutations/{index}");
        match (change.patch_type.as_str(), &change.apply_configuration, &change.json_patch) {
            ("ApplyConfiguration", Some(given), _) => {
                let pointer = format!("{place}/applyConfiguration/expression");
                compiler
                    .expression(&given.expression, env, Wanted::Configuration, &pointer)
                    .map(Change::Configuration)
            }
            ("JSONPatch", _, Some(given)) => {
                let pointer = format!("{place}/jsonPatch/expression");
                compiler.expression(&given.expression, env, Wanted::Patches, &pointer).map(Change::Patch)
            }
            (kind, ..) => {
                let message = match kind {
                    "ApplyConfiguration" => {
                        "applyConfiguration is required with patchType ApplyConfiguration".to_owned()
                    }
                    "JSONPatch" => "jsonPatch is required with patchType JSONPatch".to_owned(),
                    other => format!("patchType must be ApplyConfiguration or JSONPatch, not \"{other}\""),
                };
                compiler.fault(Fault::error(place, message));
                None
            }
        }
    }

    /// Adds a `MutatingAdmissionPolicyBinding`, whose `policyName` is not looked at.
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
}

/// A policy with a binding and its parameters, for one request.
struct Invocation<'a> {
    policy: &'a Mutating,
    binding: &'a Binding,
    matched: Matched<'a>,
    params: Option<&'a Json>,
    key: [String; 4],
}

/// Why a change is not made.
enum Wrong {
    /// As `failurePolicy` says.
    Policy(String),
    /// The request ends here, whatever it says.
    Request(String),
}

/// One request on its way through all policies.
pub(crate) struct Run<'a, 'f> {
    request: Request<'a>,
    hearing: &'a Hearing<'a, 'f>,
    object: Json,
    mutation: Mutation,
    /// What is to be asked once more.
    again: BTreeSet<[String; 4]>,
    /// Whether any change was made, be it none.
    dirty: bool,
}

impl<'a, 'f: 'a> Run<'a, 'f> {
    pub(crate) fn new(request: Request<'a>, object: Json, hearing: &'a Hearing<'a, 'f>) -> Self {
        let (mutation, again) = (Mutation::default(), BTreeSet::new());
        Self { request, hearing, object, mutation, again, dirty: false }
    }

    /// Asks all policies, and those once more that want to be when something changed.
    pub(crate) fn all(
        mut self,
        policies: &'a [Mutating],
        excepting: &dyn Fn(&str) -> Option<Excepted>,
    ) -> Mutation {
        let before = self.object.clone();
        self.pass(policies, excepting, None);
        if self.dirty && self.mutation.denials.is_empty() && !self.again.is_empty() {
            let again = std::mem::take(&mut self.again);
            self.pass(policies, excepting, Some(&again));
        }
        if self.mutation.denials.is_empty() {
            self.mutation.object = (self.object != before).then_some(self.object);
        }
        self.mutation
    }

    fn refuse(
        &mut self,
        policy: &Mutating,
        binding: Option<&Binding>,
        rule: String,
        why: String,
        reason: &str,
    ) {
        let name = &policy.frame.name;
        if policy.frame.ignores {
            self.mutation.ignored.push(format!("policy '{name}': {why}"));
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

    /// What is to be asked, by the object as it is now. What cannot be found out is told after everything else.
    fn invocations(
        &mut self,
        policies: &'a [Mutating],
        object: &Json,
        excepting: &dyn Fn(&str) -> Option<Excepted>,
    ) -> Vec<Invocation<'a>> {
        let mut found = Vec::new();
        let mut missed = Vec::new();
        for policy in policies.iter().filter(|policy| !policy.frame.bindings.is_empty()) {
            let excepted = excepting(policy.name());
            let frame = &policy.frame;
            let asked = Asked::new(self.request, None);
            let probe = Asked { object: Some(object), ..asked };
            let matched = match frame.constraints.matches(&probe, self.hearing.world) {
                Ok(Some(matched)) => Matched { resource: matched.resource, kind: matched.kind },
                Ok(None) => continue,
                Err(_) if excepted.is_some() => continue,
                Err(why) => {
                    missed.push((policy, None, why));
                    continue;
                }
            };
            // The names are those of the request, which outlives the object.
            let matched = asked.named(matched);
            for binding in &frame.bindings {
                if let Some(constraints) = &binding.constraints {
                    match constraints.matches(&probe, self.hearing.world) {
                        Ok(Some(_)) => {}
                        Ok(None) => continue,
                        Err(_) if excepted.is_some() => continue,
                        Err(why) => {
                            missed.push((policy, Some(binding), why));
                            continue;
                        }
                    }
                }
                if let Some(excepted) = &excepted {
                    if !self.mutation.excepted.contains(excepted) {
                        self.mutation.excepted.push(excepted.clone());
                    }
                    break;
                }
                let namespace = self.request.namespace();
                match self.hearing.params.of(frame.param_kind.as_ref(), binding.reference.as_ref(), namespace)
                {
                    Ok(handed) => found.extend(handed.into_iter().map(|params| {
                        let of = |pointer: &str| params.map_or("", |params| text(params, pointer)).to_owned();
                        let key = [
                            frame.name.clone(),
                            binding.name.clone(),
                            of("/metadata/namespace"),
                            of("/metadata/name"),
                        ];
                        Invocation { policy, binding, matched, params, key }
                    })),
                    Err(why) => missed.push((policy, Some(binding), why)),
                }
            }
        }
        for (policy, binding, why) in missed {
            let what = if binding.is_none() { "policy" } else { "binding" };
            let why = format!("failed to configure {what}: {why}");
            self.refuse(policy, binding, "/spec".to_owned(), why, "Forbidden");
        }
        found
    }

    fn pass(
        &mut self,
        policies: &'a [Mutating],
        excepting: &dyn Fn(&str) -> Option<Excepted>,
        only: Option<&BTreeSet<[String; 4]>>,
    ) {
        let object = std::mem::take(&mut self.object);
        let invocations = self.invocations(policies, &object, excepting);
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
            if invocation.policy.again {
                self.again.insert(invocation.key);
            }
        }
    }

    /// Makes the changes of one policy; false when the request ends here.
    fn invoke(&mut self, invocation: &Invocation<'a>) -> bool {
        let mut changed = false;
        for (index, change) in invocation.policy.changes.iter().enumerate() {
            match self.change(invocation, change) {
                Ok(object) => {
                    self.dirty = true;
                    if let Some(object) = object {
                        changed = true;
                        self.object = object;
                    }
                }
                Err(Wrong::Policy(why)) => {
                    let rule = format!("/spec/mutations/{index}");
                    self.refuse(invocation.policy, Some(invocation.binding), rule, why, "Invalid");
                }
                Err(Wrong::Request(why)) => {
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

    fn meets(&mut self, invocation: &Invocation<'a>) -> Result<bool, String> {
        let asked = Asked::new(self.request, Some(&self.object));
        let sent = Matched { resource: asked.resource, kind: invocation.matched.kind };
        let inputs = Inputs {
            request: self.hearing.sides.request(&sent, &asked),
            object: Some(&self.object),
            old_object: asked.old_object,
            params: invocation.params,
            hearing: self.hearing,
        };
        inputs.meets(&invocation.policy.frame, &mut self.mutation.ignored)
    }

    /// The object with a change; none when it is the same.
    fn change(&self, invocation: &Invocation<'a>, change: &Change) -> Result<Option<Json>, Wrong> {
        let frame = &invocation.policy.frame;
        let asked = Asked::new(self.request, Some(&self.object));
        let inputs = Inputs {
            request: self.hearing.sides.request(&invocation.matched, &asked),
            object: Some(&self.object),
            old_object: asked.old_object,
            params: invocation.params,
            hearing: self.hearing,
        };
        let namespace = Namespace::of(&asked, self.hearing.world);
        let variables = Variables::new(&frame.variables);
        let activation = inputs.with(&frame.env, &namespace, &variables);
        let mut budget = Budget::new(MAX_POLICY_COST);
        let (Change::Configuration(expression) | Change::Patch(expression)) = change;
        let value = match evaluate(expression, &activation, &mut budget, self.hearing.effort) {
            Ok(value) => value.map_err(Wrong::Policy)?,
            Err(Exhausted) => return Err(Wrong::Policy(EXHAUSTED.to_owned())),
        };
        // Values of an expression share their parts, and an object has a copy of each.
        let mut room = Room::new();
        if !room.value(&value) {
            let message = format!("the expression makes more than {MOST} bytes, which no object may have");
            return Err(Wrong::Policy(message));
        }
        room.json(&self.object);
        self.hearing.effort.spend(u64::try_from(room.used() / BYTES_OF_WORK).unwrap_or(u64::MAX));
        if self.hearing.effort.is_spent() {
            return Ok(None);
        }
        let schema = self.schema();
        let object = match change {
            Change::Configuration(_) => {
                let configuration = configuration(&value).map_err(Wrong::Policy)?;
                let configuration = self.complete(configuration);
                merge::apply(schema, &self.object, &configuration)
                    .map_err(|why| Wrong::Policy(format!("error applying patch: {why}")))?
            }
            Change::Patch(_) => {
                let operations = operations(&value).map_err(Wrong::Policy)?;
                let mut object = self.object.clone();
                match patch::apply(&mut object, operations) {
                    Ok(()) => {}
                    Err(Failure::Test) => return Ok(None),
                    Err(Failure::Other(why)) => return Err(Wrong::Policy(format!("JSON Patch: {why}"))),
                }
                if let Some(schema) = schema.filter(|_| self.is_builtin()) {
                    let kind = text(&self.object, "/kind");
                    strict::settle(schema, kind, &mut object).map_err(Wrong::Request)?;
                }
                object
            }
        };
        Ok((object != self.object).then_some(object))
    }

    /// A configuration has the version and kind of the object.
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

    /// Whether the kind is one of Kubernetes itself, which drops no unknown fields in silence.
    fn is_builtin(&self) -> bool {
        let (group, _) = self.group_version();
        !group.contains('.') || group.ends_with(".k8s.io")
    }
}
