//! Compiles the expressions of a policy, and holds what both kinds of policies share. Every error is reported
//! at the JSON pointer of its expression.

use std::collections::BTreeMap;
use std::ops::BitOr as _;

use portcullis_cel::{Env, Issue, MAX_NESTING_DEPTH, Program, StructFields, Type, compile, is_identifier};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::matching::MatchConstraints;
use super::params::ParamReference;
use crate::api::{CommonPolicySpec, NamedExpression, ParamKind, PolicyBinding};
use crate::diagnostic::{Diagnostic, Severity};
use crate::input::DataDependencies;
use crate::variables;
use crate::variables::environment;

/// CEL type name of `variables`.
const VARIABLES: &str = "kubernetes.variables";

/// A compiled expression with its source for messages.
#[derive(Debug)]
pub(crate) struct CompiledExpression {
    pub(crate) source: String,
    pub(crate) program: Program,
}

impl CompiledExpression {
    /// Returns the nesting depth, including the variables that the expression uses.
    fn depth(&self, env: &Env, depths: &BTreeMap<&str, usize>) -> usize {
        self.program.depth(env, "variables", |name| depths.get(name).copied().unwrap_or(0))
    }
}

/// Compiles the expressions of one policy.
pub(crate) struct PolicyCompiler<'f> {
    /// The CEL environment, with `params` if the policy has a `paramKind`.
    env: Env,
    diagnostics: &'f mut Vec<Diagnostic>,
    /// What the expressions compiled so far read from [`crate::ClusterData`].
    data_dependencies: DataDependencies,
}

/// The result type that a field requires of its expression.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpectedType {
    Anything,
    Bool,
    Text,
    TextOrNull,
    Patches,
    Configuration,
}

impl ExpectedType {
    /// Returns the API server's message if an expression has another type.
    fn type_error(self, found: &Type) -> Option<String> {
        let patch = Type::Struct("JSONPatch".into());
        let (takes, wanted) = match self {
            Self::Anything => return None,
            Self::Bool => (*found == Type::Bool, "bool"),
            Self::Text => (*found == Type::String, "string"),
            Self::TextOrNull => (matches!(found, Type::String | Type::Null), "one of [string null_type]"),
            Self::Patches => (*found == Type::list(patch), "list(JSONPatch)"),
            Self::Configuration => (*found == Type::Struct("Object".into()), "Object"),
        };
        (!takes).then(|| format!("must evaluate to {wanted} but got {}", api_server_type_name(found)))
    }
}

/// Returns a type in the API server's notation.
fn api_server_type_name(found: &Type) -> String {
    match found {
        Type::List(items) => format!("list({})", api_server_type_name(items)),
        Type::Map(entry) => {
            format!("map({}, {})", api_server_type_name(&entry.0), api_server_type_name(&entry.1))
        }
        Type::Type(Some(of)) => format!("type({})", api_server_type_name(of)),
        Type::Opaque(name, parameters) if !parameters.is_empty() => {
            let parameters: Vec<String> = parameters.iter().map(api_server_type_name).collect();
            format!("{name}({})", parameters.join(", "))
        }
        other => other.name().to_owned(),
    }
}

/// Returns the type that a variable has for later expressions. Types with fields become `dyn`, as in the API
/// server.
fn declared_type(found: &Type) -> Type {
    match found {
        Type::List(items) => Type::list(declared_type(items)),
        Type::Map(entry) => Type::map(declared_type(&entry.0), declared_type(&entry.1)),
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => found.clone(),
        _ => Type::Dyn,
    }
}

impl<'f> PolicyCompiler<'f> {
    pub(crate) fn new(has_params: bool, diagnostics: &'f mut Vec<Diagnostic>) -> Self {
        Self { env: environment(has_params), diagnostics, data_dependencies: DataDependencies::default() }
    }

    pub(crate) fn data_dependencies(&self) -> DataDependencies {
        self.data_dependencies
    }

    pub(crate) fn diagnostic(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Returns the environment without `variables`, for match conditions.
    fn plain(&self) -> Env {
        self.env.clone()
    }

    pub(crate) fn expression(
        &mut self,
        source: &str,
        env: &Env,
        wanted: ExpectedType,
        pointer: &str,
    ) -> Option<CompiledExpression> {
        if source.trim().is_empty() {
            self.diagnostic(Diagnostic::error(pointer, "it is empty; an expression is required"));
            return None;
        }
        let program = match compile(source, env) {
            Ok(program) => program,
            Err(issues) => {
                self.diagnostics.extend(issues.into_iter().map(|issue| diagnostic(pointer, issue)));
                return None;
            }
        };
        if let Some(type_error) = wanted.type_error(program.result()) {
            self.diagnostic(Diagnostic::error(pointer, type_error));
            return None;
        }
        self.data_dependencies = program
            .variables()
            .map(variables::data_dependencies)
            .fold(self.data_dependencies, DataDependencies::bitor);
        Some(CompiledExpression { source: source.to_owned(), program })
    }

    /// Compiles named expressions in order. Each can use the ones before it. Returns them sorted by name, for
    /// lookup, and the environment for later expressions.
    ///
    /// Variables that are nested too deeply are rejected here, so that no evaluation overflows the stack.
    fn variables(&mut self, named: &[NamedExpression], always: bool) -> (Vec<CompiledVariable>, Env) {
        let plain = self.plain();
        if named.is_empty() && !always {
            return (Vec::new(), plain);
        }
        let mut env = plain
            .structure(VARIABLES, StructFields::new())
            .variable("variables", Type::Struct(VARIABLES.into()));
        let mut depths: BTreeMap<&str, usize> = BTreeMap::new();
        let mut compiled: Vec<CompiledVariable> = Vec::with_capacity(named.len());
        for (index, variable) in named.iter().enumerate() {
            let place = format!("/spec/variables/{index}");
            if !is_identifier(&variable.name) {
                let name = &variable.name;
                let message = format!("\"{name}\" is not a valid variable name: it must be a CEL identifier");
                self.diagnostic(Diagnostic::error(format!("{place}/name"), message));
            }
            let pointer = format!("{place}/expression");
            let expression = self.expression(&variable.expression, &env, ExpectedType::Anything, &pointer);
            let depth = expression.as_ref().map_or(0, |found| found.depth(&env, &depths));
            let expression = expression.filter(|_| depth <= MAX_NESTING_DEPTH);
            if depth > MAX_NESTING_DEPTH {
                self.diagnostic(Diagnostic::error(pointer, too_deep()));
            }
            let found = expression.as_ref().map_or(Type::Dyn, |found| declared_type(found.program.result()));
            env = env.structure_field(VARIABLES, &variable.name, found);
            let again =
                depths.insert(&variable.name, if depth > MAX_NESTING_DEPTH { 0 } else { depth }).is_some();
            if let Some(expression) = expression {
                // The last of several variables with one name counts, as in the API server.
                if again {
                    compiled.retain(|known| known.name != variable.name);
                }
                compiled.push(CompiledVariable { name: variable.name.clone(), expression });
            }
        }
        if depths.len() < named.len() && !stay_within_depth(&compiled, &env, depths) {
            self.diagnostic(Diagnostic::error("/spec/variables", too_deep()));
        }
        compiled.sort_by(|a, b| a.name.cmp(&b.name));
        (compiled, env)
    }

    /// Compiles the shared part of a policy. With `always`, `variables` is declared even if the policy has
    /// none.
    pub(crate) fn frame(&mut self, name: String, spec: CommonPolicySpec, always: bool) -> PolicyBase {
        if spec.match_constraints.is_none() {
            self.diagnostic(Diagnostic::error(
                "/spec",
                "matchConstraints is required: it selects the requests",
            ));
        }
        let conditions = self.conditions(spec.match_conditions.as_deref().unwrap_or_default());
        let (variables, env) = self.variables(spec.variables.as_deref().unwrap_or_default(), always);
        PolicyBase {
            name,
            constraints: MatchConstraints::new(&spec.match_constraints.unwrap_or_default()),
            param_kind: spec.param_kind,
            ignores: spec.failure_policy.as_deref() == Some("Ignore"),
            conditions,
            plain: self.plain(),
            variables,
            env,
            bindings: Vec::new(),
        }
    }

    fn conditions(&mut self, named: &[NamedExpression]) -> Vec<CompiledExpression> {
        let env = self.plain();
        let mut compiled = Vec::with_capacity(named.len());
        for (index, condition) in named.iter().enumerate() {
            let pointer = format!("/spec/matchConditions/{index}/expression");
            compiled.extend(self.expression(&condition.expression, &env, ExpectedType::Bool, &pointer));
        }
        compiled
    }
}

/// Returns the message for variables that are nested too deeply.
fn too_deep() -> String {
    format!("variables are nested too deeply here: at most {MAX_NESTING_DEPTH} levels are allowed")
}

/// Whether all variables stay within [`MAX_NESTING_DEPTH`] when names are defined twice. An earlier variable
/// can then use a later one, and a cycle has no finite depth. Depths only grow, so the loop ends.
fn stay_within_depth<'n>(
    compiled: &'n [CompiledVariable],
    env: &Env,
    mut depths: BTreeMap<&'n str, usize>,
) -> bool {
    loop {
        let mut grew = false;
        for variable in compiled {
            let depth = variable.expression.depth(env, &depths);
            if depth > MAX_NESTING_DEPTH {
                return false;
            }
            let before = depths.insert(&variable.name, depth);
            grew |= before.is_none_or(|before| before < depth);
        }
        if !grew {
            return true;
        }
    }
}

/// One compiled entry of `spec.variables`.
#[derive(Debug)]
pub(crate) struct CompiledVariable {
    pub(crate) name: String,
    pub(crate) expression: CompiledExpression,
}

fn diagnostic(pointer: &str, issue: Issue) -> Diagnostic {
    if issue.message.starts_with("undeclared reference to 'authorizer") {
        let message = "authorizer is not available here: it asks the API server, and policy files are evaluated without \
                       calling it. Keep this policy in the cluster, or use request.userInfo";
        return Diagnostic::error(pointer, message).at(issue.offset);
    }
    Diagnostic::error(pointer, issue.message).at(issue.offset).suggest(issue.suggestion)
}

/// Reads a document leniently. A value of a wrong type is an error of the whole document.
fn read<T: DeserializeOwned>(document: &Json, diagnostics: &mut Vec<Diagnostic>) -> Option<T> {
    match T::deserialize(document) {
        Ok(read) => Some(read),
        Err(error) => {
            diagnostics.push(Diagnostic::error("", format!("it cannot be read: {error}")));
            None
        }
    }
}

/// Reads and compiles a policy. `None` if one of the added diagnostics is an error.
pub(crate) fn compiled<Spec: DeserializeOwned, Policy>(
    document: &Json,
    diagnostics: &mut Vec<Diagnostic>,
    make: impl FnOnce(Spec, &mut Vec<Diagnostic>) -> Policy,
) -> Option<Policy> {
    let mut found = Vec::new();
    let policy = read(document, &mut found).map(|spec| make(spec, &mut found));
    let wrong = found.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    diagnostics.append(&mut found);
    policy.filter(|_| !wrong)
}

/// A binding, ready for evaluation.
#[derive(Debug)]
pub(crate) struct CompiledBinding {
    pub(crate) name: String,
    pub(crate) constraints: Option<MatchConstraints>,
    pub(crate) reference: Option<ParamReference>,
    pub(crate) actions: Vec<String>,
}

impl CompiledBinding {
    pub(crate) fn new(document: &Json, diagnostics: &mut Vec<Diagnostic>) -> Option<Self> {
        let read: PolicyBinding = read(document, diagnostics)?;
        Some(Self {
            name: read.metadata.name,
            constraints: read.spec.match_resources.as_ref().map(MatchConstraints::new),
            reference: read.spec.param_ref.as_ref().map(ParamReference::new),
            actions: read.spec.validation_actions.unwrap_or_default(),
        })
    }
}

/// The part that validating and mutating policies share.
#[derive(Debug)]
pub(crate) struct PolicyBase {
    pub(crate) name: String,
    pub(crate) constraints: MatchConstraints,
    pub(crate) param_kind: Option<ParamKind>,
    /// `failurePolicy: Ignore`.
    pub(crate) ignores: bool,
    pub(crate) conditions: Vec<CompiledExpression>,
    /// CEL environment of the match conditions.
    pub(crate) plain: Env,
    /// Sorted by name.
    pub(crate) variables: Vec<CompiledVariable>,
    /// CEL environment of all other expressions.
    pub(crate) env: Env,
    /// Sorted by name.
    pub(crate) bindings: Vec<CompiledBinding>,
}

impl PolicyBase {
    pub(crate) fn bind(&mut self, document: &Json, diagnostics: &mut Vec<Diagnostic>) {
        self.bindings.extend(CompiledBinding::new(document, diagnostics));
        self.bindings.sort_by(|a, b| a.name.cmp(&b.name));
    }
}
