//! A real Kubernetes control plane for tests, without containers: etcd, API server, scheduler and controllers
//! from one Go binary, and kwok for kubelets. It owns the processes, ports and files of test clusters. The
//! program under test always runs as a process with the rights of its RBAC rules.
//!
//! Every started process ends with the process that started it, also when that is killed (`guard`).

pub mod api;
pub mod balancer;
pub mod binaries;
pub mod cluster;
pub mod control_plane;
pub mod guard;
pub mod identity;
pub mod kubectl;
pub mod nodes;
pub mod playground;
pub mod ports;
pub mod program;
pub mod proxy;
pub mod transcript;
pub mod wait;

pub use api::Api;
pub use binaries::Version;
pub use cluster::{Cluster, available, may_be_used, shared};
pub use control_plane::{ControlPlane, Options, Part};
pub use nodes::Node;
pub use program::{Portcullis, ProgramOptions};
pub use proxy::{FaultAction, Proxy, Rule};
pub use rustix::process::Signal;
