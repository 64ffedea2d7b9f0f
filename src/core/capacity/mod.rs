//! The capacity report: GPUs of the cluster, what is free of them, and which pods use or wait for them.
//!
//! The leader computes the report with [`capacity_report`] and publishes it to all replicas. Policies read
//! it. A report is a value: this room neither changes the engine nor stores or sends anything.

mod accounting;
mod report;
#[cfg(test)]
mod tests;

pub use accounting::capacity_report;
pub use report::{CapacityReport, GpuDemand, GpuModelCapacity, GpuUsage};
