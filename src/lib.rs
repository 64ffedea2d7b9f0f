#![doc = include_str!("ARCHITECTURE.md")]

mod background;
pub mod certs;
pub mod cli;
mod clock;
pub mod cluster;
mod installation;
mod policy_coverage;
mod policy_files;
mod route;
pub mod serve;
pub mod telemetry;
pub mod webhook;
