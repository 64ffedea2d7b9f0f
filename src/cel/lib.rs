//! Kubernetes CEL as in the API server of 1.36. Expressions are compiled once and evaluated over JSON under a
//! cost budget.
//!
//! An [`Env`] declares variables, types and functions. [`compile`] parses, checks and plans an expression
//! against it and returns every issue with its position. A [`Program`] evaluates with the values of an
//! [`Activation`] and spends a [`Budget`]. Evaluation reads objects as the JSON that they are, without
//! conversion.
//!
//! Messages and costs are those of the API server. The crate is pure: no clock, no I/O, no randomness.
//! Invariant: equal inputs give equal results.

mod access;
mod admission;
mod check;
mod cost;
mod depth;
mod environment;
mod estimate;
mod eval;
mod fuzz;
mod library;
mod plan;
mod syntax;
mod types;
mod value;
mod work;

use std::collections::BTreeSet;

use check::Reference;

pub use cost::{
    Budget, MAX_EXPRESSION_COST, MAX_EXPRESSION_WORK, MAX_MATCH_CONDITIONS_COST, MAX_POLICY_COST,
    MAX_POLICY_WORK,
};
pub use depth::MAX_NESTING_DEPTH;
pub use environment::{Env, StructFields, StructTypes};
pub use estimate::AssumedSizes;
pub use eval::{Activation, ComputedVariable, Error};
pub use library::opaque::Opaque;
pub use syntax::{Issue, is_identifier};
pub use types::Type;
pub use value::{Key, List, Map, Message, Text, Timestamp, Value};

/// A compiled expression. Any number of threads can evaluate it at once.
#[derive(Debug)]
pub struct Program {
    plan: plan::Plan,
    result: Type,
    variables: Box<[Box<str>]>,
}

/// Parses and checks an expression, and returns its type.
///
/// # Errors
/// Every issue, with its position.
pub fn check(source: &str, env: &Env) -> Result<Type, Vec<Issue>> {
    let ast = syntax::parse(source)?;
    let checked = check::check(&ast, env)?;
    Ok(checked.types[ast.root()].clone())
}

/// Compiles an expression.
///
/// # Errors
/// Every issue, with its position. Issues include what the API server finds only when it builds a program,
/// such as `int("x")`, and expressions that nest deeper than [`MAX_NESTING_DEPTH`].
pub fn compile(source: &str, env: &Env) -> Result<Program, Vec<Issue>> {
    let ast = syntax::parse(source)?;
    let checked = check::check(&ast, env)?;
    let result = checked.types[ast.root()].clone();
    let positions: BTreeSet<usize> =
        checked.references.iter().flatten().filter_map(Reference::variable).collect();
    let variables = env.variables().enumerate().filter(|(at, _)| positions.contains(at));
    let variables = variables.map(|(_, (name, _))| name.into()).collect();
    let plan = plan::plan(&ast, &checked)?;
    if depth::depth(&plan, None, &|_| 0) > MAX_NESTING_DEPTH {
        return Err(vec![Issue::new(0, "max recursion depth exceeded")]);
    }
    Ok(Program { plan, result, variables })
}

impl Program {
    /// The type of the result.
    #[must_use]
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// The variables of the environment that the expression uses, in order. An activation must bind all of
    /// them.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|name| &**name)
    }

    /// An upper bound of the cost, in units of [`Budget`], for objects whose lists, maps and strings are not
    /// larger than `sizes`.
    #[must_use]
    pub fn estimate(&self, sizes: AssumedSizes) -> u64 {
        estimate::estimate(&self.plan, sizes)
    }

    /// The maximum number of nested evaluation steps, where a field of `variable` takes as many steps as
    /// `field` returns. The result nests no deeper than this, apart from the JSON of objects.
    #[must_use]
    pub fn depth(&self, env: &Env, variable: &str, field: impl Fn(&str) -> usize) -> usize {
        depth::depth(&self.plan, env.position(variable).map(|(position, _)| position), &field)
    }

    /// Evaluates the expression. The activation must be of the environment that the expression was compiled
    /// with.
    ///
    /// # Errors
    /// The error message of the API server. [`Error::is_cancelled`] tells whether the budget ran out.
    pub fn eval<'a>(&'a self, activation: &Activation<'a>, budget: &mut Budget) -> Result<Value<'a>, Error> {
        eval::evaluate(&self.plan, activation, budget)
    }
}

/// Fuzz target: compiles any text as an expression and evaluates it.
#[doc(hidden)]
pub fn fuzz_expression(source: &str) {
    fuzz::expression(source);
}
