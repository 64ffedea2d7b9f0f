//! The Portcullis variables: what a request means for gangs, GPUs and the cluster. An API server does not
//! have them.
//!
//! This module owns the variables, their types and documentation (`definitions.rs`, the source of the CEL
//! declarations and of `policies/VARIABLES.md`), and their computation from a request and [`ClusterData`]. A
//! test computes every field and compares its type with the definition.
//!
//! A variable is computed on first use, at most once per request. Gang membership comes from `core::dialect`
//! and GPU requests from `core::gpu`, and from nowhere else. Unknown data is an error with a message, never a
//! zero; the `failurePolicy` of the policy decides what follows.

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

/// The value of a field, or why it is unknown.
type FieldResult = Result<Value<'static>, Error>;

/// A field name and its value.
type FieldValue = (&'static str, FieldResult);

/// Adds the Portcullis variables and their types to an environment.
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

/// Returns the names of the variables. An expression that uses one cannot move to an API server.
pub fn names() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().map(|variable| variable.name)
}

/// Returns the parts of [`ClusterData`] that a variable is computed from.
pub(crate) fn data_dependencies(variable: &str) -> DataDependencies {
    let (gangs, capacity) = match variable {
        "gang" => (true, false),
        // Both depend on the gang: which queue it names, and how much it adds.
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

/// One variable, computed on first use.
struct LazyVariable<'r> {
    name: &'static str,
    shared: Rc<VariableSources<'r>>,
    fields: OnceCell<Vec<FieldValue>>,
    whole: OnceCell<FieldResult>,
}

/// The data that several variables share.
struct VariableSources<'r> {
    request: AdmissionRequest<'r>,
    cluster: &'r ClusterData,
    ask: OnceCell<GpuRequest>,
    gang: OnceCell<GangAttributes>,
}

impl<'r> VariableSources<'r> {
    /// Computed on every call. Keeping it in a cell would tie this struct to one lifetime, because it borrows
    /// from the request.
    fn subject(&self) -> RequestSubject<'r> {
        RequestSubject::of(&self.request)
    }

    fn gpu_request(&self) -> &GpuRequest {
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
    /// Creates the variables without computing any.
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

    /// Binds all variables to an activation of an environment from [`declare`].
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
            "gpu" => shared.gpu_request().fields(),
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

/// Returns an integer value, saturated at `i64::MAX`.
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
