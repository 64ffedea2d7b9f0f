//! Whether a node has been given more than it has: only what others put there can do that.

use super::{CardState, Snapshot};
use crate::model::{Bytes, MilliCpu, NodeName};

impl Snapshot {
    /// The names of all nodes, in order.
    pub fn node_names(&self) -> impl Iterator<Item = &NodeName> {
        self.states.iter().map(|state| &state.node.name)
    }

    /// What a node has been given more of than it has, in words with numbers; `None` when nothing, or no such node.
    pub fn overbooked(&self, name: &NodeName) -> Option<String> {
        let state = &self.states[self.position(name).ok()?];
        let (node, used) = (&state.node, &state.used);
        let over = |used: u128, has: u64| used > u128::from(has);
        let most = |used: u128| u64::try_from(used).unwrap_or(u64::MAX);
        let (cpu, memory) = (node.allocatable.cpu, node.allocatable.memory);
        if over(used.cpu, cpu.0) {
            return Some(format!("{} asked of {cpu}", MilliCpu(most(used.cpu))));
        }
        if over(used.memory, memory.0) {
            return Some(format!("{} of memory asked of {memory}", Bytes(most(used.memory))));
        }
        let storage = node.allocatable.ephemeral_storage;
        if over(used.ephemeral_storage, storage.0) {
            return Some(format!(
                "{} of ephemeral storage asked of {storage}",
                Bytes(most(used.ephemeral_storage))
            ));
        }
        if used.pods > node.max_pods {
            return Some(format!("{} pods where {} are allowed", used.pods, node.max_pods));
        }
        for (resource, amount) in &used.extended {
            let has = node.allocatable.extended(resource);
            if over(*amount, has) {
                return Some(format!("{amount} {resource} asked of {has}"));
            }
        }
        if let Some(port) = used.ports.iter().find_map(|(port, pods)| (*pods > 1).then_some(port)) {
            return Some(format!("host port {}/{} is taken twice", port.2, port.1));
        }
        let vram = node.gpus.vram_each.unwrap_or_default();
        for (card, amount) in used.cards.iter().enumerate() {
            if over(*amount, vram.0) {
                return Some(format!("{amount} MiB asked of card {card}, which has {vram}"));
            }
        }
        None
    }

    /// Whether a node takes shares of its cards, and if not, why; `None` for a node that is not there.
    pub fn card_state(&self, name: &NodeName) -> Option<CardState> {
        self.position(name).ok().map(|index| self.states[index].free_resources.card_state)
    }
}
