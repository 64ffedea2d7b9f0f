//! Overbooked nodes: nodes with charges for more than they have. Only pods outside of Portcullis's control
//! cause that.

use super::{CardState, Snapshot};
use crate::model::{Bytes, MilliCpu, NodeName, Resources};
use crate::shape::{HostPort, Shape};

impl Snapshot {
    /// The names of all nodes, in order.
    pub fn node_names(&self) -> impl Iterator<Item = &NodeName> {
        self.states.iter().map(|state| &state.node.name)
    }

    /// The resource that a node is overbooked on and that the pod requests, with numbers; `None` when there
    /// is none, and for an unknown node. A node may be overbooked on a resource that the pod does not
    /// request, for example on GPUs after a device failed: kube-scheduler binds the pod all the same.
    pub fn overbooked_for(&self, name: &NodeName, pod: &Shape) -> Option<String> {
        self.overbooked_resource(name, Some(pod))
    }

    /// The resource that a node is overbooked on, with numbers; `None` when it is not, and for an unknown
    /// node.
    pub fn overbooked(&self, name: &NodeName) -> Option<String> {
        self.overbooked_resource(name, None)
    }

    fn overbooked_resource(&self, name: &NodeName, pod: Option<&Shape>) -> Option<String> {
        let state = &self.states[self.position(name).ok()?];
        let (node, used) = (&state.node, &state.used);
        let over = |used: u128, has: u64| used > u128::from(has);
        let most = |used: u128| u64::try_from(used).unwrap_or(u64::MAX);
        let requested = |amount: &dyn Fn(&Resources) -> u64| pod.is_none_or(|pod| amount(&pod.requests) > 0);
        let (cpu, memory) = (node.allocatable.cpu, node.allocatable.memory);
        if over(used.cpu, cpu.0) && requested(&|requests| requests.cpu.0) {
            return Some(format!("{} requested of {cpu}", MilliCpu(most(used.cpu))));
        }
        if over(used.memory, memory.0) && requested(&|requests| requests.memory.0) {
            return Some(format!("{} of memory requested of {memory}", Bytes(most(used.memory))));
        }
        let storage = node.allocatable.ephemeral_storage;
        if over(used.ephemeral_storage, storage.0) && requested(&|requests| requests.ephemeral_storage.0) {
            return Some(format!(
                "{} of ephemeral storage requested of {storage}",
                Bytes(most(used.ephemeral_storage))
            ));
        }
        if used.pods > node.max_pods {
            return Some(format!("{} pods where {} are allowed", used.pods, node.max_pods));
        }
        for (resource, amount) in &used.extended {
            let has = node.allocatable.extended(resource);
            if over(*amount, has) && requested(&|requests| requests.extended(resource)) {
                return Some(format!("{amount} {resource} requested of {has}"));
            }
        }
        let uses_port = |port: &HostPort| pod.is_none_or(|pod| pod.host_ports.contains(port));
        if let Some(port) =
            used.ports.iter().find_map(|(port, pods)| (*pods > 1 && uses_port(port)).then_some(port))
        {
            return Some(format!("host port {}/{} is used twice", port.2, port.1));
        }
        let vram = node.gpus.vram_each.unwrap_or_default();
        for (card, amount) in used.cards.iter().enumerate() {
            if over(*amount, vram.0) && pod.is_none_or(|pod| pod.share.is_some()) {
                return Some(format!("{amount} MiB requested of card {card}, which has {vram}"));
            }
        }
        None
    }

    /// Whether the cards of a node can be shared; `None` for an unknown node.
    pub fn card_state(&self, name: &NodeName) -> Option<CardState> {
        self.position(name).ok().map(|index| self.states[index].free_resources.card_state)
    }
}
