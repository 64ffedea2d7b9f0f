//! What admission goes by: resolved once from configuration, shared by all requests.

use std::collections::BTreeSet;

use crate::gpu::GpuRules;
use crate::objects::names;

/// What admission goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionSettings {
    /// Namespaces whose pods are never touched: those that must come up without us.
    pub excluded_namespaces: BTreeSet<String>,
    /// What counts as a GPU, and whether cards may be shared.
    pub gpu: GpuRules,
    /// The RuntimeClass that pods with a share of a card get when they name none, where the facts say that it exists.
    /// `None` leaves them as they are.
    pub gpu_runtime_class: Option<String>,
    /// Names of schedulers that do not run here: new members that name one are given to the stock scheduler. Empty leaves
    /// every name as it is.
    pub rewritten_schedulers: BTreeSet<String>,
}

impl AdmissionSettings {
    /// The scheduler that will place a new member which names this one (empty is the stock scheduler).
    pub(super) fn scheduler<'n>(&self, named: &'n str) -> &'n str {
        if named.is_empty() || self.rewritten_schedulers.contains(named) {
            names::DEFAULT_SCHEDULER
        } else {
            named
        }
    }
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        let excluded = ["kube-system", "kube-node-lease", "kube-public", "portcullis-system"];
        Self {
            excluded_namespaces: excluded.map(str::to_owned).into(),
            gpu: GpuRules::default(),
            gpu_runtime_class: Some(names::NVIDIA_RUNTIME_CLASS.to_owned()),
            rewritten_schedulers: BTreeSet::new(),
        }
    }
}
