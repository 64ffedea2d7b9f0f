//! The pure core of Portcullis: every decision about a pod or a gang.
//!
//! The core reads no clock, no file, no socket and no random source. Its callers pass time, objects and API
//! responses in as values, and get decisions back as values. `src/ARCHITECTURE.md` lists the rooms.

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
