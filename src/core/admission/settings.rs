//! Settings of admission, read once from the command line and shared by all requests.

use std::collections::BTreeSet;

use crate::gpu::GpuRules;
use crate::objects::names;

/// Settings of admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionSettings {
    /// Namespaces whose pods are never changed, because they have to start without Portcullis.
    pub excluded_namespaces: BTreeSet<String>,
    /// Which resources are GPUs, and whether cards may be shared.
    pub gpu: GpuRules,
    /// The RuntimeClass for pods with a share of a card that name none, if it is known to exist. `None` sets
    /// none.
    pub gpu_runtime_class: Option<String>,
    /// Names of schedulers that do not run in this cluster. New members that name one get the default
    /// scheduler.
    pub rewritten_schedulers: BTreeSet<String>,
}

impl AdmissionSettings {
    /// The scheduler of a new member that names this one; an empty name is the default scheduler.
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
