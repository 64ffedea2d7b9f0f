//! Policy files: rules that a platform team keeps in git and that are evaluated over admission requests.
//!
//! Files become a [`Set`] or a list of everything that is wrong with them; a set judges a [`Request`] in a [`World`]. Pure: bytes and
//! values in, values out; no clock, no I/O, no randomness.
//!
//! ```text
//! spec.rs    the kinds of Kubernetes that are read
//! rules/     matching, conditions, variables, rules, patches: what the API server would say
//! facts/     variables that the API server cannot have
//! load/      files -> documents with the place of every value -> Set, or Problems; how problems are shown
//! set.rs     what is evaluated together and swapped as a whole
//! ```

mod facts;
mod fault;
mod judgement;
mod load;
mod request;
pub mod rules;
pub mod schema;
mod set;
pub mod spec;
mod world;

pub use fault::{Fault, Severity};
pub use judgement::{Denial, Judgement, Mutation};
pub use load::{Loaded, Problem, SourceFile, load};
pub use request::{Request, Resource};
pub use set::Set;
pub use world::World;
