//! The webhook over real TLS on loopback: what it serves, what it refuses, and what it survives.
//!
//! Times are configured short instead of slept through, and nothing asserts how fast something was.

mod binary;
mod drain;
mod harness;
mod limits;
mod local;
mod policies;
mod requests;
mod tls;
