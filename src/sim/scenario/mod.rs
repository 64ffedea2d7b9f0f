//! Scenarios: a cluster, steps, and what must be seen after each of them, as a YAML file.
//!
//! [`Scenario`] is the file, [`Runner`] plays it. The command line, the demo and the tests all use this one runner.

mod expect;
mod file;
mod kubectl;
mod node;
mod picture;
mod runner;

pub use expect::Expect;
pub use file::{
    Chaos, ClusterSpec, Fault, NominateSpec, OneOrMany, Scenario, ScenarioError, SettingsSpec, SharingSpec,
    Span, StaleSpec, Step, TimeoutSpec, TornSpec,
};
pub use node::NodeSpec;
pub use picture::{CardUse, GangLine, GroupLine, NodeUse, PodLine};
pub use runner::{Expectation, Rejection, Runner, StepResult};
