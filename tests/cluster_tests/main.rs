//! Every test that needs a Kubernetes control plane, in one binary: `cargo cluster-tests`.
//!
//! `tests/cluster` builds and starts the control plane. Each module starts the clusters that it needs. The
//! module `faults` also needs the feature `failpoints`.

mod control_plane;
mod dialects;
mod edge;
mod exercises;
mod faults;
mod installed;
mod policies;
