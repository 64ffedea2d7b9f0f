//! Scenarios: YAML files with a cluster, steps, and the expected state after each step.
//!
//! [`Scenario`] is the file, [`Runner`] plays it. The command line, the demo and the tests use this runner.

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
