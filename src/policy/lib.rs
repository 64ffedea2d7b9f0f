//! Policy files: rules that a platform team keeps in git and that are evaluated over admission requests.
//!
//! Files become a [`PolicySet`] or a list of everything that is wrong with them; a set judges a [`AdmissionRequest`] in a [`ClusterData`]. Pure: bytes and
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

pub mod api;
pub mod cases;
mod checks;
mod diagnostic;
pub mod evaluation;
pub mod expression;
pub mod gang_policy;
mod input;
mod json;
mod load;
mod review;
pub mod schema;
mod set;
pub mod variables;

pub use diagnostic::{Diagnostic, Severity};
pub use evaluation::{AppliedException, Denial, MutationResult, ValidationResult};
pub use input::{
    AdmissionRequest, CapacityReport, ClusterData, DataDependencies, GpuDemand, GpuModelCapacity, GpuUsage,
    GroupVersionResource, WorkBudget,
};
pub use load::{
    LoadCounts, LoadResult, LoadedTestSuites, Problem, SourceFile, fuzz_load, load,
    problems_as_github_annotations, problems_as_json, problems_as_sarif, read_manifest, read_test_suites,
    render_problems, translate_gang_policies,
};
pub use review::{
    AdmissionOutcome, DifferenceKind, HookOutcome, OutcomeDifference, ReviewResult, compare_outcomes,
    display_name, field_and_detail, review,
};
pub use set::{PolicyEntry, PolicyException, PolicySet};
