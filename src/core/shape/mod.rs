//! What a pod requires of a node: resources, a share of GPU memory, node affinity, tolerations, host ports,
//! rules about other pods.
//!
//! The planner places shapes, not pods. The dialects use shapes to describe members that have no pod yet.

mod pod_rules;
mod requests;

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

pub use pod_rules::{PodRules, PodTerm, SpreadConstraint};
pub use requests::effective_requests;

use crate::gpu::GpuShare;
use crate::model::{Resources, Str, str};
use crate::objects::affinity::{RequiredNodeAffinity, Toleration};
use crate::objects::view::PodView;

/// The scheduling requirements of a pod. Pods of one template have equal shapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Effective requests, including whole GPUs.
    pub requests: Resources,
    /// A share of one or more cards.
    pub share: Option<GpuShare>,
    /// Node selector and required node affinity.
    pub node_affinity: RequiredNodeAffinity,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Host ports.
    pub host_ports: BTreeSet<HostPort>,
    /// Rules about other pods; `None` for most pods.
    pub pod_rules: Option<Arc<PodRules>>,
}

impl Shape {
    /// Reads the requirements of a pod.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub fn of(view: &PodView<'_>) -> Result<Self, String> {
        let spec = &view.spec;
        // An init container that ends before the pod runs holds no port.
        let sidecars = spec.init_containers.iter().filter(|c| c.restart_policy.as_str() == "Always");
        let containers = spec.containers.iter().chain(sidecars);
        let host_ports = containers
            .flat_map(|c| &c.ports)
            .filter_map(|p| {
                let port = if p.host_port == 0 && spec.host_network { p.container_port } else { p.host_port };
                let protocol = if p.protocol.is_empty() { "TCP" } else { p.protocol.as_str() };
                let address = if p.host_ip.as_str() == "0.0.0.0" { "" } else { p.host_ip.as_str() };
                (port != 0).then(|| (str(address), str(protocol), port))
            })
            .collect();
        Ok(Self {
            requests: effective_requests(view)?,
            share: GpuShare::of(view),
            node_affinity: RequiredNodeAffinity::read(spec),
            tolerations: spec.tolerations.iter().filter_map(Toleration::read).collect(),
            host_ports,
            pod_rules: PodRules::read(view).map(Arc::new),
        })
    }

    /// Whether a pod that is pinned to its planned node is bound there wherever the plan is valid. Otherwise
    /// the node is preferred only. A pod with a share of a card is always pinned.
    pub fn tolerates_pin(&self) -> bool {
        self.share.is_some() || self.pod_rules.as_ref().is_none_or(|rules| rules.tolerate_pin())
    }
}

/// A port on the node: address (empty means every address), protocol, number.
pub type HostPort = (Str, Str, u32);
