//! What the names of an expression stand for while it is evaluated.

use super::Evaluated;
use crate::cost::Budget;
use crate::environment::Env;
use crate::value::Value;

/// A value or fields that are computed when they are asked for, such as the `variables` of a policy.
pub trait Computed<'a> {
    /// The value of a field; none when there is no such field. What it costs is the budget's.
    fn field(&self, name: &str, budget: &mut Budget) -> Option<Evaluated<'a>>;

    /// The value as a whole, for a variable that is no collection of fields; none when only its fields have values.
    fn whole(&self, budget: &mut Budget) -> Option<Evaluated<'a>> {
        let _ = budget;
        None
    }
}

/// What a variable stands for.
#[derive(Clone)]
pub(super) enum Binding<'a> {
    Unset,
    Value(Value<'a>),
    Computed(&'a dyn Computed<'a>),
}

/// The values of an environment's variables.
#[derive(Clone)]
pub struct Activation<'a> {
    pub(super) env: Env,
    pub(super) bindings: Vec<Binding<'a>>,
}

impl<'a> Activation<'a> {
    /// Nothing is bound yet.
    #[must_use]
    pub fn new(env: &Env) -> Self {
        Self { env: env.clone(), bindings: env.variables().map(|_| Binding::Unset).collect() }
    }

    fn bind(&mut self, name: &str, binding: Binding<'a>) {
        if let Some((position, _)) = self.env.position(name) {
            self.bindings[position] = binding;
        }
    }

    /// Binds a variable; a name that the environment does not declare is passed over.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value<'a>) -> Self {
        self.bind(name, Binding::Value(value));
        self
    }

    /// Binds a variable that is computed, or whose fields are, when it is asked for.
    #[must_use]
    pub fn with_computed(mut self, name: &str, computed: &'a dyn Computed<'a>) -> Self {
        self.bind(name, Binding::Computed(computed));
        self
    }
}
