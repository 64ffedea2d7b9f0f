//! Inputs of an evaluation besides the policies: the admission request, data about the cluster, and the work
//! budget.

mod cluster_data;
mod request;
mod work_budget;

pub use cluster_data::{ClusterData, DataDependencies};
pub use request::{AdmissionRequest, GroupVersionResource};
pub use work_budget::WorkBudget;
