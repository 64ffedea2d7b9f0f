#![doc = "Portcullis: the gang gate for GPU clusters. See `src/ARCHITECTURE.md`."]

pub mod certs;
pub mod serve;
pub mod telemetry;
pub mod webhook;
