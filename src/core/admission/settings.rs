//! What admission goes by: resolved once from configuration, shared by all requests.

use std::collections::BTreeSet;

use crate::gpu::GpuRules;

/// What admission goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Namespaces whose pods are never touched: those that must come up without us.
    pub excluded_namespaces: BTreeSet<String>,
    /// What counts as a GPU, and whether cards may be shared.
    pub gpu: GpuRules,
    /// The RuntimeClass that pods with a share of a card get when they name none, where the facts say that it exists.
    /// `None` leaves them as they are.
    pub gpu_runtime_class: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let excluded = ["kube-system", "kube-node-lease", "kube-public", "portcullis-system"];
        Self {
            excluded_namespaces: excluded.map(str::to_owned).into(),
            gpu: GpuRules::default(),
            gpu_runtime_class: Some(crate::objects::names::NVIDIA_RUNTIME_CLASS.to_owned()),
        }
    }
}
