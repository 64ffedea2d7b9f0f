//! A simulated cluster: scenarios and random faults run the real engine and the real webhook.
//!
//! [`api`] is the API server, [`cluster`] is everything around it, [`scenario`] plays scenario files,
//! [`fuzz`] makes random ones. This crate reads no clock, no file and no network. Time is simulated, so a run
//! with the same input always has the same result. The simulation uses the events and effects of the engine;
//! it has no other access to the engine.

pub mod api;
pub mod cluster;
pub mod fuzz;
mod planning_comparison;
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
