//! Text formats that Portcullis reads and writes in more than one place. Each format has one implementation,
//! here.
//!
//! | module | format |
//! |---|---|
//! | [`quantity`] | Kubernetes quantities: `100m`, `4Gi`, `1e3` |
//! | [`duration`] | Go durations: `1h30m`, `500ms` |
//! | [`timestamp`] | RFC 3339 times, and the calendar |
//! | [`mod@pointer`] | JSON pointers (RFC 6901) |
//! | [`yaml`] | YAML as kubectl reads it, with the position of every value |
//! | [`capitalize`], [`plural`], [`truncate`] | parts of messages: sentences, counts, cut values |
//! | [`suggestion`] | "did you mean" |
//! | [`hash`] | stable hashes for names |
//!
//! The crate is pure: no clock, no I/O, no randomness. Invariant: reading any text ends in time linear in its
//! length, and never panics.

pub mod capitalize;
pub mod duration;
pub mod hash;
pub mod plural;
pub mod pointer;
pub mod quantity;
pub mod suggestion;
pub mod timestamp;
pub mod truncate;
pub mod yaml;

pub use capitalize::capitalized;
pub use plural::counted;
pub use quantity::{Quantity, QuantityError};
pub use suggestion::closest;
pub use timestamp::Timestamp;
pub use truncate::quoted;
