//! An embedded cluster, and stories and storms that happen to it.
//!
//! [`api`] is the API server, [`cluster`] everything around it, [`scenario`] plays stories on it. Nothing in here
//! reads a clock or a file: time passes when the simulation says so.

pub mod api;
pub mod cluster;
pub mod fuzz;
pub mod scenario;
pub(crate) mod stack_fixtures;

pub use fuzz::fuzz_bytes;

#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod ordered_members_tests;
#[cfg(test)]
mod starvation_tests;
#[cfg(test)]
mod stub_webhook;
#[cfg(test)]
mod tests;
