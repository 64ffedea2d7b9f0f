//! The values of variables during an evaluation.

use super::EvalResult;
use crate::cost::Budget;
use crate::environment::Env;
use crate::value::Value;

/// A variable whose value or fields are computed on first use, such as `variables` of a policy.
pub trait ComputedVariable<'a> {
    /// The value of a field; `None` when there is no such field. The implementation adds its cost to
    /// `budget`.
    fn field(&self, name: &str, budget: &mut Budget) -> Option<EvalResult<'a>>;

    /// The value of the variable itself; `None` when only its fields have values.
    fn whole(&self, budget: &mut Budget) -> Option<EvalResult<'a>> {
        let _ = budget;
        None
    }
}

/// The value of a variable.
#[derive(Clone)]
pub(super) enum Binding<'a> {
    Unset,
    Value(Value<'a>),
    ComputedVariable(&'a dyn ComputedVariable<'a>),
}

/// The values of the variables of an environment.
#[derive(Clone)]
pub struct Activation<'a> {
    pub(super) env: Env,
    pub(super) bindings: Vec<Binding<'a>>,
}

impl<'a> Activation<'a> {
    /// An activation that binds no variable.
    #[must_use]
    pub fn new(env: &Env) -> Self {
        Self { env: env.clone(), bindings: env.variables().map(|_| Binding::Unset).collect() }
    }

    fn bind(&mut self, name: &str, binding: Binding<'a>) {
        if let Some((position, _)) = self.env.position(name) {
            self.bindings[position] = binding;
        }
    }

    /// Binds a variable. A name that the environment does not declare is ignored.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value<'a>) -> Self {
        self.bind(name, Binding::Value(value));
        self
    }

    /// Binds a variable that is computed on first use.
    #[must_use]
    pub fn with_computed(mut self, name: &str, computed: &'a dyn ComputedVariable<'a>) -> Self {
        self.bind(name, Binding::ComputedVariable(computed));
        self
    }
}
