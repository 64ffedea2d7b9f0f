//! Scenarios: a cluster, steps, and what must be seen after each of them, as a YAML file.
//!
//! [`Scenario`] is the file, [`Runner`] plays it. The command line, the demo and the tests all use this one runner.

mod cluster_view;
mod expect;
mod format;
mod kubectl;
mod node_spec;
mod runner;

pub use cluster_view::{CardUsage, GangLine, GroupLine, NodeUsage, PodLine};
pub use expect::Expect;
pub use format::{
    ClusterSpec, FaultSpec, NominateSpec, OneOrMany, RandomFaults, Scenario, ScenarioError, SettingsSpec,
    SharingSpec, StaleSpec, Step, TimeSpan, TimeoutSpec, TornSpec,
};
pub use node_spec::NodeSpec;
pub use runner::{Expectation, Rejection, Runner, StepResult};
