//! Capacity: what every node and card has, what is used, and what is reserved.
//!
//! Owns the nodes as they were last seen and what every pod is charged. Everything else in here (sums, free amounts,
//! classes of nodes) follows from these two, and is brought up to date by each event, never rebuilt. It decides nothing:
//! where a pod may go is the planner's business.
//!
//! Invariant: two snapshots that were told the same nodes and charges are equal and hash alike, whatever came between.
//! Foreign pods can use more than there is; then free amounts are zero, and nothing panics.

mod node_classes;
mod node_state;
mod overbooked;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::model::{NodeName, PodKey, PodUid};
use crate::objects::Node;
use crate::shape::Shape;

use node_classes::NodeClasses;
pub(crate) use node_classes::{NodeCapacity, NodeClass};
pub use node_state::{CardState, port_conflict};
pub(crate) use node_state::{FreeResources, NodeState, PackedCards, PackedNode, holds_whole_gpus};
pub use usage::{CardUsage, NodeUsage};

/// Which nodes share their cards by VRAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharingMode {
    /// Those with label and taint `portcullis.dev/gpu-sharing=vram`.
    #[default]
    Labelled,
    /// Every node on which nothing holds `nvidia.com/gpu`: a workstation, a tutorial cluster.
    Any,
}

/// Which cards of its node a pod uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CardAllocation {
    /// None, or whole GPUs that kubelet picks.
    Unshared,
    /// These, by index.
    Known(Vec<u32>),
    /// It shares cards and nobody knows which.
    Unknown,
}

/// Why a pod counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChargeState {
    /// Planned or lifted, and not yet seen bound.
    Reserved,
    /// Bound to the node.
    Bound,
}

/// What one pod holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Charge {
    /// The pod's name, for messages ("when default/large-job ends"); counts for nothing else.
    pub key: Option<PodKey>,
    /// On which node; it counts also while the node is away, and again when it comes back.
    pub node: NodeName,
    /// How much.
    pub shape: Arc<Shape>,
    /// On which cards.
    pub cards: CardAllocation,
    /// Why.
    pub state: ChargeState,
}

/// The capacity of the cluster, kept up to date by every event, never rebuilt.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    sharing: SharingMode,
    charges: BTreeMap<PodUid, Charge>,
    /// Follows from `charges`: who is charged to a node, known or not. No empty sets.
    by_node: BTreeMap<NodeName, BTreeSet<PodUid>>,
    /// Sorted by name. `packed` and `packed_cards` have the numbers that a scan over all nodes looks at, at the same indexes.
    #[expect(
        clippy::vec_box,
        reason = "a node that joins moves all that follow: pointers, not hundreds of bytes each"
    )]
    states: Vec<Box<NodeState>>,
    packed_nodes: Vec<PackedNode>,
    packed_cards: Vec<PackedCards>,
    classes: NodeClasses,
    /// Something may have been freed since [`Snapshot::take_grown`]; no part of its identity.
    grown: bool,
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.sharing == other.sharing
            && self.charges == other.charges
            && self.states.len() == other.states.len()
            && self.states.iter().zip(&other.states).all(|(a, b)| a.node == b.node)
    }
}

impl Eq for Snapshot {}

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.sharing.hash(hasher);
        self.charges.hash(hasher);
        hasher.write_usize(self.states.len());
        for state in &self.states {
            state.node.hash(hasher);
        }
    }
}

impl Snapshot {
    /// An empty cluster.
    pub fn new(sharing: SharingMode) -> Self {
        Self { sharing, ..Self::default() }
    }

    /// Whether anything may have been freed, or any node changed, since this was last asked: whatever had no place before
    /// has none now as long as it is false.
    pub fn take_grown(&mut self) -> bool {
        std::mem::take(&mut self.grown)
    }

    /// Which nodes share their cards.
    pub fn sharing(&self) -> SharingMode {
        self.sharing
    }

    /// Adds a node or takes its new state; true when that changed anything that bears on capacity.
    pub fn set_node(&mut self, node: Node) -> bool {
        let place = self.position(&node.name);
        if let Ok(index) = place
            && self.states[index].node == node
        {
            return false;
        }
        self.grown = true;
        let (class, capacity) = self.classes.enter(&node);
        let mut state = Box::new(NodeState::new(node, class, capacity));
        for uid in self.by_node.get(&state.node.name).into_iter().flatten() {
            state.add_charge(&self.charges[uid]);
        }
        let (packed, row) = state.recompute_free(self.sharing);
        match place {
            Ok(index) => {
                let old = std::mem::replace(&mut self.states[index], state);
                self.classes.leave(&old.node, old.class, old.capacity);
                (self.packed_nodes[index], self.packed_cards[index]) = (packed, row);
            }
            Err(index) => {
                self.states.insert(index, state);
                self.packed_nodes.insert(index, packed);
                self.packed_cards.insert(index, row);
            }
        }
        true
    }

    /// Forgets a node; what is charged to it stays charged. True when it was there.
    pub fn remove_node(&mut self, name: &NodeName) -> bool {
        let Ok(index) = self.position(name) else { return false };
        self.grown = true;
        let old = self.states.remove(index);
        self.packed_nodes.remove(index);
        self.packed_cards.remove(index);
        self.classes.leave(&old.node, old.class, old.capacity);
        true
    }

    /// The node as it was last set.
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.position(name).ok().map(|index| &self.states[index].node)
    }

    /// Charges a pod, in place of what it was charged before; true when that changed anything.
    pub fn charge(&mut self, pod: &PodUid, charge: Charge) -> bool {
        match self.charges.get(pod) {
            Some(old) if *old == charge => return false,
            // Most often a reservation that turns into a binding: the sums stay as they are.
            Some(old)
                if old.node == charge.node && old.shape == charge.shape && old.cards == charge.cards =>
            {
                self.charges.insert(pod.clone(), charge);
                return true;
            }
            Some(_) => {
                self.release(pod);
            }
            None => {}
        }
        self.by_node.entry(charge.node.clone()).or_default().insert(pod.clone());
        if let Ok(index) = self.position(&charge.node) {
            self.states[index].add_charge(&charge);
            (self.packed_nodes[index], self.packed_cards[index]) =
                self.states[index].recompute_free(self.sharing);
        }
        self.charges.insert(pod.clone(), charge);
        true
    }

    /// What a pod is charged.
    pub fn charged(&self, pod: &PodUid) -> Option<&Charge> {
        self.charges.get(pod)
    }

    /// Everything that is charged, by pod; also to nodes that are away.
    pub fn charges(&self) -> impl Iterator<Item = (&PodUid, &Charge)> {
        self.charges.iter()
    }

    /// What is charged to a node, by pod, whether the node is known or not.
    pub fn charged_to(&self, node: &NodeName) -> impl Iterator<Item = (&PodUid, &Charge)> {
        self.by_node.get(node).into_iter().flatten().map(|uid| (uid, &self.charges[uid]))
    }

    /// Frees what a pod holds; true when it held anything.
    pub fn release(&mut self, pod: &PodUid) -> bool {
        let Some(charge) = self.charges.remove(pod) else { return false };
        self.grown = true;
        if let Some(pods) = self.by_node.get_mut(&charge.node) {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_node.remove(&charge.node);
            }
        }
        if let Ok(index) = self.position(&charge.node) {
            self.states[index].remove_charge(&charge);
            (self.packed_nodes[index], self.packed_cards[index]) =
                self.states[index].recompute_free(self.sharing);
        }
        true
    }

    /// Recounts everything from nodes and charges, and panics when the running totals differ: for tests and debug runs.
    ///
    /// # Panics
    /// When they do: a bug of this module.
    pub fn assert_consistent(&self) {
        let mut fresh = Self::new(self.sharing);
        for state in &self.states {
            fresh.set_node(state.node.clone());
        }
        for (uid, charge) in &self.charges {
            fresh.charge(uid, charge.clone());
        }
        assert_eq!(fresh.by_node, self.by_node, "pods by node");
        assert_eq!(fresh.packed_nodes.len(), self.packed_nodes.len(), "nodes");
        assert_eq!(fresh.packed_cards, self.packed_cards, "scanned cards");
        for ((fresh_state, state), (fresh_hot, packed)) in
            fresh.states.iter().zip(&self.states).zip(fresh.packed_nodes.iter().zip(&self.packed_nodes))
        {
            let name = &state.node.name;
            assert_eq!(fresh_state.node, state.node, "node {name}");
            assert_eq!(fresh_state.used, state.used, "what is used on node {name}");
            assert_eq!(fresh_state.free_resources, state.free_resources, "what is free on node {name}");
            assert_eq!(
                fresh_hot.without_numbers(),
                packed.without_numbers(),
                "scanned numbers of node {name}"
            );
            assert_eq!(
                fresh.classes.class(fresh_state.class),
                self.classes.class(state.class),
                "class of node {name}"
            );
        }
        assert!(self.states.is_sorted_by(|a, b| a.node.name < b.node.name), "nodes are sorted by name");
        self.classes.assert_consistent(self.states.iter().map(|s| (&s.node, s.class, s.capacity)));
    }

    fn position(&self, name: &NodeName) -> Result<usize, usize> {
        self.states.binary_search_by(|state| state.node.name.cmp(name))
    }

    pub(crate) fn states(&self) -> &[Box<NodeState>] {
        &self.states
    }

    /// What would be free on a node if these pods, all charged to it, ended.
    pub(crate) fn free_resources_without(&self, node: usize, charges: &[&Charge]) -> FreeResources {
        let mut state = self.states[node].clone();
        for charge in charges {
            state.remove_charge(charge);
        }
        state.recompute_free(self.sharing);
        state.free_resources
    }

    pub(crate) fn packed_nodes(&self) -> &[PackedNode] {
        &self.packed_nodes
    }

    pub(crate) fn packed_cards(&self) -> &[PackedCards] {
        &self.packed_cards
    }

    pub(crate) fn classes(&self) -> &NodeClasses {
        &self.classes
    }
}
