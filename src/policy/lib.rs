//! Policy files: rules that a platform team keeps in git and that are evaluated over admission requests.
//!
//! Files become a [`Set`] or a list of everything that is wrong with them; a set judges a [`Request`] in a [`World`]. Pure: bytes and
//! values in, values out; no clock, no I/O, no randomness.
//!
//! ```text
//! spec.rs    the kinds of Kubernetes that are read
//! rules/     matching, conditions, variables, rules, patches: what the API server would say
//! load/      files -> documents with the place of every value -> Set, or Problems; how problems are shown
//! schema/    the fields of the kinds that policies are about
//! exception.rs  for whom a policy does not hold, and until when
//! facts/     the variables that an API server cannot have: gang, gpu, queue, quota, cluster, classes
//! gang/      GangPolicy: lowered to ordinary policies that use these variables
//! cases/     test cases beside policies
//! capacity.rs  what the leader tells all replicas of GPUs
//! set.rs     what is evaluated together and swapped as a whole
//! effort.rs how much work a request may make before it is asked about elsewhere
//! outcome.rs what a set does with a request, and where two sets differ
//! trial.rs   one expression by itself
//! review.rs  an AdmissionReview in, its answer out
//! ```

mod capacity;
pub mod cases;
mod effort;
mod environment;
mod exception;
pub mod facts;
mod fault;
pub mod gang;
mod judgement;
mod load;
mod outcome;
mod request;
mod review;
pub mod rules;
pub mod schema;
mod set;
pub mod spec;
pub mod trial;
mod world;

pub use capacity::{Capacity, Demand, Model, Use};
pub use effort::Effort;
pub use exception::{Excepted, Exception};
pub use fault::{Fault, Severity};
pub use judgement::{Denial, Judgement, Mutation};
pub use load::{
    Cases, Counts, Loaded, Problem, SourceFile, annotations, explain, fuzz_load, json, load, manifest,
    render, sarif, test_cases,
};
pub use outcome::{Change, Difference, Outcome, Through, differences};
pub use request::{Request, Resource};
pub use review::{Reviewed, at_fault, display_name, review};
pub use set::{Listed, Set};
pub use world::{Wishes, World};
