//! The pure heart of Portcullis.
//!
//! Everything that is decided is decided here; nothing here reads a clock, a file, a socket or a random source.
//! Time, objects and answers come in as values, decisions go out as values. See `src/ARCHITECTURE.md` for the rooms.

pub mod admission;
pub mod api;
pub mod dialect;
pub mod engine;
pub mod gpu;
pub mod model;
pub mod objects;
pub mod planner;
pub mod pod;
pub mod shape;
pub mod snapshot;
