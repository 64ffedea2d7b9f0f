//! Every integration test that needs no Kubernetes, in one binary: `cargo test --test offline`.
//!
//! The modules test the command line, the webhook on loopback, the scenarios, the manifests and the source
//! tree itself.

mod chart;
mod check;
mod cli;
mod corpus;
mod exercises;
mod gang_crd;
mod manifests;
mod review;
mod scenarios;
mod schema;
mod tidy;
mod webhook;
