//! The pure core of Portcullis: every decision about a pod or a gang.
//!
//! The core reads no clock, no file, no socket and no random source. Its callers pass time, objects and API
//! responses in as values, and get decisions back as values. `src/ARCHITECTURE.md` lists the rooms.

// A file of the simulation that the unit tests of the engine include names this crate so.
#[cfg(test)]
extern crate self as portcullis_core;

pub mod admission;
pub mod api;
pub mod capacity;
pub mod dialect;
pub mod engine;
pub mod gpu;
pub mod model;
pub mod objects;
pub mod planner;
pub mod pod;
pub mod shape;
pub mod snapshot;
