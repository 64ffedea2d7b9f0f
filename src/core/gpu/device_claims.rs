//! Device claims of a pod: every field that requests whole GPUs, MIG slices or DRA claims.

use crate::objects::names;
use crate::objects::view::{Container, PodView};

/// Which resources are GPUs, and whether cards may be shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuRules {
    /// Whether pods may request a share of a card.
    pub sharing: bool,
    /// Extended resources that are whole GPUs. MIG slices (`nvidia.com/mig-*`) are recognised without being
    /// listed.
    pub whole_gpu_resources: Vec<String>,
}

impl Default for GpuRules {
    fn default() -> Self {
        let known = [names::NVIDIA_GPU, names::NVIDIA_GPU_SHARED, names::AMD_GPU, names::INTEL_GPU];
        Self { sharing: true, whole_gpu_resources: known.map(str::to_owned).to_vec() }
    }
}

impl GpuRules {
    /// Number of whole GPUs of all vendors, from the amount of each resource. Requests and capacity are both
    /// counted by this function, so they are comparable.
    pub fn whole_gpus(&self, amount: impl Fn(&str) -> u64) -> u64 {
        self.whole_gpu_resources.iter().fold(0, |sum: u64, name| sum.saturating_add(amount(name)))
    }
}

/// The kind of device of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// Whole cards of any vendor.
    Whole,
    /// A MIG slice.
    Mig,
    /// A claim of Dynamic Resource Allocation (DRA).
    Claim,
}

/// One field of a pod that requests devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceClaim {
    /// `spec.containers[0].resources.limits[nvidia.com/gpu]` or `spec.resourceClaims[0]`.
    pub field: String,
    /// Its value: a quantity, or the name of the claim.
    pub value: String,
    /// Kind of device.
    pub kind: DeviceKind,
    /// A phrase to put after "and": `in container "model", for 1 whole GPU (limits nvidia.com/gpu)`.
    pub description: String,
}

/// All device claims of a pod: containers, init containers, resource claims.
///
/// A resource in limits and requests of one container is one claim, in limits, because the API server
/// requires both to be equal. A zero amount is a claim too: KAI rejects a pod that names the resource at all.
pub fn device_claims(pod: &PodView<'_>, rules: &GpuRules) -> Vec<DeviceClaim> {
    let mut claims = Vec::new();
    let lists = [("containers", "container", &pod.spec.containers)].into_iter().chain([(
        "initContainers",
        "init container",
        &pod.spec.init_containers,
    )]);
    for (list, what, containers) in lists {
        for (index, container) in containers.iter().enumerate() {
            add_claims_of(&format!("spec.{list}[{index}]"), what, container, rules, &mut claims);
        }
    }
    for (index, claim) in pod.spec.resource_claims.iter().enumerate() {
        claims.push(DeviceClaim {
            field: format!("spec.resourceClaims[{index}]"),
            value: claim.name.to_string(),
            kind: DeviceKind::Claim,
            description: format!(
                "for devices by the resource claim {}",
                super::validation::shown(&claim.name)
            ),
        });
    }
    claims
}

fn add_claims_of(
    path: &str,
    what: &str,
    container: &Container<'_>,
    rules: &GpuRules,
    claims: &mut Vec<DeviceClaim>,
) {
    let resources = &container.resources;
    for (part, list) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for (name, quantity) in list.iter() {
            let kind = if name.starts_with(names::NVIDIA_MIG_PREFIX) {
                DeviceKind::Mig
            } else if rules.whole_gpu_resources.iter().any(|known| known == name) {
                DeviceKind::Whole
            } else {
                continue;
            };
            if part == "requests" && resources.limits.contains(name) {
                continue;
            }
            let amount = match (kind, quantity.0.as_str()) {
                (DeviceKind::Mig, "1") => "1 MIG slice".to_owned(),
                (DeviceKind::Mig, n) => format!("{} MIG slices", super::validation::shown_number(n)),
                (_, "1") => "1 whole GPU".to_owned(),
                (_, n) => format!("{} whole GPUs", super::validation::shown_number(n)),
            };
            claims.push(DeviceClaim {
                field: format!("{path}.resources.{part}[{name}]"),
                value: quantity.0.to_string(),
                kind,
                description: format!(
                    "in {what} {}, for {amount} ({part} {name})",
                    super::validation::shown(&container.name)
                ),
            });
        }
    }
}
