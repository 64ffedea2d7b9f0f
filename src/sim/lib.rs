//! An embedded cluster, and stories and storms that happen to it.
//!
//! [`api`] is the API server, [`cluster`] everything around it, [`scenario`] plays stories on it. Nothing in here
//! reads a clock or a file: time passes when the simulation says so.

pub mod api;
pub mod cluster;
pub mod fuzz;
pub mod scenario;
pub(crate) mod stacks;

pub use fuzz::fuzz_bytes;

#[cfg(test)]
mod coming;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod stand_in;
#[cfg(test)]
mod starvation;
#[cfg(test)]
mod tests;
