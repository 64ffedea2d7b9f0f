//! An embedded cluster, and stories and storms that happen to it.
//!
//! [`api`] is the API server, [`cluster`] everything around it, [`random`] the only source of chance. Nothing in here
//! reads a clock or a file: time passes when the simulation says so.

pub mod api;
pub mod cluster;
pub mod random;
