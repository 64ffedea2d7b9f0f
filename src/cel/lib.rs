//! Kubernetes CEL as the API server of 1.36 has it, compiled once and evaluated over JSON that is never converted, under the API server's own cost budget.
//!
//! An [`Env`] declares variables, types and functions; [`compile`] parses, checks and plans an expression against it and tells
//! everything that is wrong by position; a [`Program`] evaluates with the values of an [`Activation`] and spends a [`Budget`].
//! Messages are those that the API server shows. Pure: no clock, no I/O, no randomness; equal inputs give equal answers.

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

use std::collections::BTreeSet;

use check::Reference;

pub use cost::{Budget, MATCH_CONDITIONS, PER_CALL, PER_POLICY, ROUNDS, ROUNDS_TOGETHER};
pub use depth::DEEPEST;
pub use environment::{Env, Fields, Types};
pub use estimate::Sizes;
pub use eval::{Activation, Computed, Error};
pub use library::opaque::Opaque;
pub use syntax::{Issue, is_identifier};
pub use types::Type;
pub use value::{Key, List, Map, Message, Text, Timestamp, Value};

/// An expression that can be evaluated, by any number of threads at once.
#[derive(Debug)]
pub struct Program {
    plan: plan::Plan,
    result: Type,
    variables: Box<[Box<str>]>,
}

/// Parses and checks an expression.
///
/// # Errors
/// Everything that is wrong with it, by position.
pub fn check(source: &str, env: &Env) -> Result<Type, Vec<Issue>> {
    let ast = syntax::parse(source)?;
    let checked = check::check(&ast, env)?;
    Ok(checked.types[ast.root()].clone())
}

/// Makes a program of an expression.
///
/// # Errors
/// Everything that is wrong with it, by position. What the API server finds only when it makes a program of a checked expression,
/// such as `int("x")`, is an issue too, and so is what goes deeper than [`DEEPEST`].
pub fn compile(source: &str, env: &Env) -> Result<Program, Vec<Issue>> {
    let ast = syntax::parse(source)?;
    let checked = check::check(&ast, env)?;
    let result = checked.types[ast.root()].clone();
    let positions: BTreeSet<usize> =
        checked.references.iter().flatten().filter_map(Reference::variable).collect();
    let variables = env.variables().enumerate().filter(|(at, _)| positions.contains(at));
    let variables = variables.map(|(_, (name, _))| name.into()).collect();
    let plan = plan::plan(&ast, &checked)?;
    if depth::depth(&plan, None, &|_| 0) > DEEPEST {
        return Err(vec![Issue::new(0, "max recursion depth exceeded")]);
    }
    Ok(Program { plan, result, variables })
}

impl Program {
    /// The type of what it evaluates to.
    #[must_use]
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// The variables of its environment that it speaks of, in order: what it cannot be evaluated without.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|name| &**name)
    }

    /// What it costs when every list, map and text of the objects is as large as `sizes` says: an upper bound for objects
    /// that are no larger, in the units of [`Budget`].
    #[must_use]
    pub fn estimate(&self, sizes: Sizes) -> u64 {
        estimate::estimate(&self.plan, sizes)
    }

    /// How deep it goes where a field of `variable` goes as deep as `field` says: how many steps of its evaluation wait for each
    /// other at most. Its value is nested no deeper, but for what objects hold.
    #[must_use]
    pub fn depth(&self, env: &Env, variable: &str, field: impl Fn(&str) -> usize) -> usize {
        depth::depth(&self.plan, env.position(variable).map(|(position, _)| position), &field)
    }

    /// Evaluates it. The activation must be of the environment that it was compiled with.
    ///
    /// # Errors
    /// What went wrong, in the API server's words; [`Error::is_cancelled`] when the budget did not suffice.
    pub fn eval<'a>(&'a self, activation: &Activation<'a>, budget: &mut Budget) -> Result<Value<'a>, Error> {
        eval::evaluate(&self.plan, activation, budget)
    }
}

/// Reads any text as an expression and evaluates it: for fuzzing.
#[doc(hidden)]
pub fn fuzz_expression(source: &str) {
    fuzz::expression(source);
}
