//! State machines between the engine and an API server, without I/O.
//!
//! - [`Watcher`] lists one kind in pages and then watches it.
//! - [`Takeover`] lists every kind that the engine needs, in a safe order, when a replica starts to lead.
//! - [`Election`] acquires, renews and releases the leader's lease.
//!
//! Each machine has the same shape. `step(now)` returns what to do next: send one request, read one line, or
//! wait. The driver does it and passes the answer back. `take_events` and `take_reports` return the results.
//! Time is an argument, and random delays come from a seeded [`portcullis_core::model::random::Random`].
//!
//! Two drivers exist: `src/cluster` (tokio and kube) and `src/sim` (the simulation). So random seeds run the
//! same code as production. This crate opens no connection, reads no clock and writes no log.

mod clock;
mod election;
mod failure;
mod kinds;
mod lease;
mod takeover;
mod watcher;

#[cfg(test)]
mod election_tests;
#[cfg(test)]
mod takeover_tests;
#[cfg(test)]
mod watcher_tests;

pub use clock::Monotonic;
pub use election::{Election, ElectionReport, ElectionRequest, ElectionStep};
pub use failure::ReadFailure;
pub use kinds::{ObjectReference, PolicyKind, WatchedKey, WatchedKind, WatchedObject, engine_event};
pub use lease::{LEASE_DURATION, LeaseChange, LeaseReading, highest_epoch};
pub use takeover::{Takeover, TakeoverResult, TakeoverStep};
pub use watcher::{
    LIST_PAGE_LIMIT, ListRequest, WATCH_IDLE_TIMEOUT, WatchEnd, WatchEvent, WatchRequest, Watcher,
    WatcherReport, WatcherStep,
};
