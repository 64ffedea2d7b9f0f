//! The variables that an API server cannot have: what a request means for gangs, GPUs and the cluster.
//!
//! Owns which variables there are, their types and their documentation (`table.rs`, from which the declaration and the page are made), and
//! how each is found in a request and a [`ClusterData`]. Each is computed when it is first asked for, at most once for each request. Never
//! guesses: what is not known fails with a sentence, and the `failurePolicy` of the policy says what then happens.

mod classes;
mod cluster_capacity;
mod definitions;
mod documentation;
mod environment;
mod gang;
mod gpu;
mod gpu_demand;
mod subject;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use portcullis_cel::{Activation, Budget, ComputedVariable, Env, Error, Key, StructFields, Text, Value};

use crate::input::AdmissionRequest;
use crate::input::{ClusterData, DataDependencies};
use definitions::{STRUCTURES, VARIABLES};
use gang::GangAttributes;
use gpu::GpuRequest;
use subject::RequestSubject;

pub use documentation::documentation;
pub(crate) use environment::environment;

/// What a field is: known, or why not.
type FieldResult = Result<Value<'static>, Error>;

/// A field and what it is.
type FieldValue = (&'static str, FieldResult);

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
pub(crate) fn data_dependencies(variable: &str) -> DataDependencies {
    let (gangs, capacity) = match variable {
        "gang" => (true, false),
        // Which queue, and how much comes with the object, is a matter of its gang.
        "queue" | "quota" => (true, true),
        "cluster" => (false, true),
        _ => (false, false),
    };
    DataDependencies { gangs, capacity }
}

/// The values of the variables for one request.
pub struct RequestVariables<'r> {
    variables: Vec<LazyVariable<'r>>,
}

/// One variable, computed when it is first asked for.
struct LazyVariable<'r> {
    name: &'static str,
    shared: Rc<VariableSources<'r>>,
    fields: OnceCell<Vec<FieldValue>>,
    whole: OnceCell<FieldResult>,
}

/// What several variables look at.
struct VariableSources<'r> {
    request: AdmissionRequest<'r>,
    cluster: &'r ClusterData,
    ask: OnceCell<GpuRequest>,
    gang: OnceCell<GangAttributes>,
}

impl<'r> VariableSources<'r> {
    /// Not kept: what borrows from the request inside of a cell would tie all of this to one lifetime.
    fn subject(&self) -> RequestSubject<'r> {
        RequestSubject::of(&self.request)
    }

    fn ask(&self) -> &GpuRequest {
        self.ask.get_or_init(|| GpuRequest::of(&self.subject()))
    }

    fn gang(&self) -> &GangAttributes {
        self.gang.get_or_init(|| {
            let subject = self.subject();
            let ask = self.ask.get_or_init(|| GpuRequest::of(&subject));
            GangAttributes::of(&subject, ask, self.request.namespace(), self.cluster)
        })
    }
}

impl<'r> RequestVariables<'r> {
    /// Nothing is computed yet.
    #[must_use]
    pub fn new(request: &AdmissionRequest<'r>, cluster: &'r ClusterData) -> Self {
        let shared = Rc::new(VariableSources {
            request: *request,
            cluster,
            ask: OnceCell::new(),
            gang: OnceCell::new(),
        });
        let lazy = |variable: &definitions::VariableDefinition| LazyVariable {
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

impl fmt::Debug for RequestVariables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.variables.iter().map(|variable| variable.name);
        f.debug_set().entries(names).finish()
    }
}

impl LazyVariable<'_> {
    fn fields(&self) -> &[FieldValue] {
        let shared = &self.shared;
        self.fields.get_or_init(|| match self.name {
            "gang" => shared.gang().fields(),
            "gpu" => shared.ask().fields(),
            "queue" => gpu_demand::queue(shared.gang(), shared.cluster),
            "quota" => gpu_demand::quota(shared.gang(), shared.request.namespace(), shared.cluster),
            "cluster" => cluster_capacity::fields(&gpu_demand::capacity(shared.cluster)),
            _ => Vec::new(),
        })
    }
}

impl<'a> ComputedVariable<'a> for LazyVariable<'_> {
    fn field(&self, name: &str, _budget: &mut Budget) -> Option<FieldResult> {
        self.fields().iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    fn whole(&self, _budget: &mut Budget) -> Option<FieldResult> {
        let cluster = self.shared.cluster;
        let compute: fn(&ClusterData) -> FieldResult = match self.name {
            "priorityClasses" => |cluster| classes::priority(cluster.priority_classes.as_ref()),
            "runtimeClasses" => |cluster| classes::runtime(cluster.runtime_classes.as_ref()),
            _ => return None,
        };
        Some(self.whole.get_or_init(|| compute(cluster)).clone())
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
