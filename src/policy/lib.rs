//! Policy files: rules that a platform team keeps in git and that Portcullis evaluates for admission
//! requests.
//!
//! [`mod@load`] turns files into a [`PolicySet`], or into a list of every [`Problem`] in them.
//! [`mod@review`] answers an `AdmissionReview` with a set, from an [`AdmissionRequest`] and [`ClusterData`].
//! The crate is pure: it takes bytes and values and returns values. It has no clock, no I/O and no
//! randomness.
//!
//! | module | owns |
//! |---|---|
//! | `api` | the kinds of `admissionregistration.k8s.io` |
//! | `schema` | fields and types of the Kubernetes kinds |
//! | `input` | what an evaluation reads: request, cluster data, work budget |
//! | `variables` | the CEL variables `gang`, `gpu`, `queue`, `quota`, `cluster` and the classes |
//! | `checks` | what is wrong with an object: schema, rules of the API server, typed expressions |
//! | `evaluation` | validating and mutating policies with the meaning that the API server gives them |
//! | `gang_policy` | `GangPolicy`, translated to validating and mutating policies |
//! | `set` | [`PolicySet`], and the exceptions from its policies |
//! | `review` | `AdmissionReview` in, answer out; the comparison of two sets |
//! | `cases` | test cases beside policies |
//! | `load` | files to a set or problems; how problems are shown |
//! | `expression` | one expression alone, for `portcullis eval` |
//!
//! A module uses only modules above it in this table.
//!
//! Invariant: a policy file without Portcullis variables means what the API server means by it.
//! `tests/differential.rs` compares every case with the recorded answers of a real API server.

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
pub use input::{AdmissionRequest, ClusterData, DataDependencies, GroupVersionResource, WorkBudget};
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
