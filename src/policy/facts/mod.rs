//! The variables that an API server cannot have: what a request means for gangs, GPUs and the cluster.
//!
//! Owns which variables there are, their types and their documentation (`table.rs`, from which the declaration and the page are made), and
//! how each is found in a request and a [`World`]. Each is computed when it is first asked for, at most once for each request. Never
//! guesses: what is not known fails with a sentence, and the `failurePolicy` of the policy says what then happens.

mod ask;
mod classes;
mod cluster;
mod gang;
mod page;
mod subject;
mod table;
#[cfg(test)]
mod tests;
mod usage;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use portcullis_cel::{Activation, Budget, ComputedVariable, Env, Error, Key, StructFields, Text, Value};

use crate::request::Request;
use crate::world::{Wishes, World};
use ask::Ask;
use gang::GangFacts;
use subject::Subject;
use table::{STRUCTURES, VARIABLES};

pub use page::page;

/// What a field is: known, or why not.
type Known = Result<Value<'static>, Error>;

/// A field and what it is.
type Field = (&'static str, Known);

/// The environment with the variables of this module and their types.
#[must_use]
pub fn declare(env: Env) -> Env {
    let mut env = env;
    for structure in STRUCTURES {
        let fields: StructFields =
            structure.fields.iter().map(|field| (field.name.to_owned(), field.kind.declared())).collect();
        env = env.structure(structure.name, fields);
    }
    for variable in VARIABLES {
        env = env.variable(variable.name, variable.kind.declared());
    }
    env
}

/// The names of the variables: what an expression that is to move to an API server cannot use.
pub fn names() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().map(|variable| variable.name)
}

/// What of a world a variable of any name is computed from.
pub(crate) fn wishes(variable: &str) -> Wishes {
    let (gangs, capacity) = match variable {
        "gang" => (true, false),
        // Which queue, and how much comes with the object, is a matter of its gang.
        "queue" | "quota" => (true, true),
        "cluster" => (false, true),
        _ => (false, false),
    };
    Wishes { gangs, capacity }
}

/// The values of the variables for one request.
pub struct Facts<'r> {
    variables: Vec<Lazy<'r>>,
}

/// One variable, computed when it is first asked for.
struct Lazy<'r> {
    name: &'static str,
    shared: Rc<Shared<'r>>,
    fields: OnceCell<Vec<Field>>,
    whole: OnceCell<Known>,
}

/// What several variables look at.
struct Shared<'r> {
    request: Request<'r>,
    world: &'r World,
    ask: OnceCell<Ask>,
    gang: OnceCell<GangFacts>,
}

impl<'r> Shared<'r> {
    /// Not kept: what borrows from the request inside of a cell would tie all of this to one lifetime.
    fn subject(&self) -> Subject<'r> {
        Subject::of(&self.request)
    }

    fn ask(&self) -> &Ask {
        self.ask.get_or_init(|| Ask::of(&self.subject()))
    }

    fn gang(&self) -> &GangFacts {
        self.gang.get_or_init(|| {
            let subject = self.subject();
            let ask = self.ask.get_or_init(|| Ask::of(&subject));
            GangFacts::of(&subject, ask, self.request.namespace(), self.world)
        })
    }
}

impl<'r> Facts<'r> {
    /// Nothing is computed yet.
    #[must_use]
    pub fn new(request: &Request<'r>, world: &'r World) -> Self {
        let shared =
            Rc::new(Shared { request: *request, world, ask: OnceCell::new(), gang: OnceCell::new() });
        let lazy = |variable: &table::Variable| Lazy {
            name: variable.name,
            shared: Rc::clone(&shared),
            fields: OnceCell::new(),
            whole: OnceCell::new(),
        };
        Self { variables: VARIABLES.iter().map(lazy).collect() }
    }

    /// Binds all of them to an activation of an environment of [`declare`].
    #[must_use]
    pub fn bind<'a>(&'a self, activation: Activation<'a>) -> Activation<'a>
    where
        'r: 'a,
    {
        self.variables
            .iter()
            .fold(activation, |activation, variable| activation.with_computed(variable.name, variable))
    }
}

impl fmt::Debug for Facts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.variables.iter().map(|variable| variable.name);
        f.debug_set().entries(names).finish()
    }
}

impl Lazy<'_> {
    fn fields(&self) -> &[Field] {
        let shared = &self.shared;
        self.fields.get_or_init(|| match self.name {
            "gang" => shared.gang().fields(),
            "gpu" => shared.ask().fields(),
            "queue" => usage::queue(shared.gang(), shared.world),
            "quota" => usage::quota(shared.gang(), shared.request.namespace(), shared.world),
            "cluster" => cluster::fields(&usage::capacity(shared.world)),
            _ => Vec::new(),
        })
    }
}

impl<'a> ComputedVariable<'a> for Lazy<'_> {
    fn field(&self, name: &str, _budget: &mut Budget) -> Option<Known> {
        self.fields().iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    fn whole(&self, _budget: &mut Budget) -> Option<Known> {
        let world = self.shared.world;
        let compute: fn(&World) -> Known = match self.name {
            "priorityClasses" => |world| classes::priority(world.priority_classes.as_ref()),
            "runtimeClasses" => |world| classes::runtime(world.runtime_classes.as_ref()),
            _ => return None,
        };
        Some(self.whole.get_or_init(|| compute(world)).clone())
    }
}

/// A whole number as a value; what is too large is the largest.
fn number(number: u64) -> Value<'static> {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Value<'static> {
    Value::list(texts.into_iter().map(|text| Value::string(text.as_ref())).collect())
}

fn map(entries: impl IntoIterator<Item = (String, Value<'static>)>) -> Value<'static> {
    let entries: BTreeMap<_, _> =
        entries.into_iter().map(|(key, value)| (Key::String(Text::Owned(key.into())), value)).collect();
    Value::map(entries)
}
