//! Read-only view of nodes and cards: what is free, what is used, and which pods hold it.

use super::{CardAllocation, CardState, Charge, Snapshot};
use crate::model::{NodeName, PodUid, VramMib};
use crate::objects::Node;

/// What is used and free on a node.
#[derive(Clone, Debug)]
pub struct NodeUsage<'a> {
    /// The node as it was last set.
    pub node: &'a Node,
    /// `cpu` free, in thousandths of a core.
    pub cpu_free: u64,
    /// `memory` free, in bytes.
    pub memory_free: u64,
    /// `ephemeral-storage` free, in bytes.
    pub ephemeral_storage_free: u64,
    /// How many more pods it can run.
    pub pods_free: u64,
    /// Number of pods charged to it.
    pub pods: u64,
    /// Whether its cards can be shared, and if not, why.
    pub card_state: CardState,
    snapshot: &'a Snapshot,
    index: usize,
}

/// What is used and free on a physical card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardUsage {
    /// Index on its node, from 0.
    pub index: u32,
    /// Its VRAM; `None` when the node does not report it.
    pub size: Option<VramMib>,
    /// VRAM used by shares. Pods outside of Portcullis's control can make it exceed `size`.
    pub used: VramMib,
    /// Free VRAM; zero when the size is unknown.
    pub free: VramMib,
}

impl<'a> NodeUsage<'a> {
    /// The free amount of an extended resource.
    pub fn extended_free(&self, name: &str) -> u64 {
        let state = &self.snapshot.states[self.index];
        let used = state.used.extended.get(name).copied().unwrap_or(0);
        let used = u64::try_from(used).unwrap_or(u64::MAX);
        state.node.allocatable.extended(name).saturating_sub(used)
    }

    /// Its cards by index.
    pub fn cards(&self) -> impl Iterator<Item = CardUsage> + 'a {
        let state = &self.snapshot.states[self.index];
        let size = state.node.gpus.vram_each;
        (0_u32..).zip(&state.used.cards).map(move |(index, used)| {
            let used = VramMib(u64::try_from(*used).unwrap_or(u64::MAX));
            CardUsage { index, size, used, free: size.unwrap_or(VramMib::ZERO).saturating_sub(used) }
        })
    }

    /// The pods charged to it.
    pub fn charges(&self) -> impl Iterator<Item = (&'a PodUid, &'a Charge)> {
        self.snapshot.charged_to(&self.node.name)
    }

    /// The pods that share a card.
    pub fn holders(&self, card: u32) -> impl Iterator<Item = (&'a PodUid, &'a Charge)> {
        self.charges().filter(move |(_, charge)| {
            charge.shape.share.is_some()
                && matches!(&charge.cards, CardAllocation::Known(cards) if cards.contains(&card))
        })
    }
}

impl Snapshot {
    /// The usage of every node, by name.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeUsage<'_>> {
        (0..self.states.len()).map(|index| self.node_at(index))
    }

    /// The usage of one node.
    pub fn node_usage(&self, name: &NodeName) -> Option<NodeUsage<'_>> {
        self.position(name).ok().map(|index| self.node_at(index))
    }

    fn node_at(&self, index: usize) -> NodeUsage<'_> {
        let state = &self.states[index];
        NodeUsage {
            node: &state.node,
            cpu_free: state.free_resources.cpu,
            memory_free: state.free_resources.memory,
            ephemeral_storage_free: state.free_resources.ephemeral_storage,
            pods_free: state.free_resources.pods,
            pods: state.used.pods,
            card_state: state.free_resources.card_state,
            snapshot: self,
            index,
        }
    }
}
