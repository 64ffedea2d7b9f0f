//! The snapshot of capacity: what every node and card has, what is used, and what is reserved.
//!
//! The snapshot owns the nodes and the charge of every pod. Everything else (sums, free amounts, node
//! classes) follows from these two, and each event updates it. It makes no decisions: the planner decides
//! where a pod runs.
//!
//! Invariant: two snapshots with the same nodes and charges are equal and have the same hash, whatever their
//! history. Pods outside of Portcullis's control can use more than a node has. Then free amounts are zero,
//! and nothing panics.

mod node_classes;
mod node_state;
mod overbooked;
mod pod_index;
mod refusals;
#[cfg(test)]
mod tests;
mod usage;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::model::{NodeName, PodKey, PodUid, Str, Time};
use crate::objects::{Node, PodLabels, namespace_label};
use crate::shape::Shape;

use node_classes::NodeClasses;
pub(crate) use node_classes::{NodeCapacity, NodeClass};
pub use node_state::{CardState, port_conflict};
pub(crate) use node_state::{FreeResources, NodeState, PackedCards, PackedNode, holds_whole_gpus};
pub(crate) use pod_index::{PodCount, PodIndex};
use refusals::Refusals;
pub use usage::{CardUsage, NodeUsage};

/// Which nodes share their cards by VRAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SharingMode {
    /// Nodes with label and taint `portcullis.dev/gpu-sharing=vram`.
    #[default]
    Labelled,
    /// Every node on which no pod holds `nvidia.com/gpu`: for a workstation or a tutorial cluster.
    Any,
}

/// The cards of its node that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CardAllocation {
    /// The pod shares no cards. It may hold whole GPUs, which kubelet assigns.
    Unshared,
    /// The cards with these indexes.
    Known(Vec<u32>),
    /// The pod shares cards, and its annotation does not say which.
    Unknown,
}

/// Why a pod is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChargeState {
    /// Planned or ungated, and not yet seen bound.
    Reserved,
    /// Bound to the node.
    Bound,
    /// Bound to the node, and runs as long as the node does: a pod of a DaemonSet or a static pod. No
    /// reservation and no remedy waits for its end.
    NodeBound,
}

/// What one pod holds on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Charge {
    /// The pod's name, for messages only ("wait for default/large-job to end").
    pub key: Option<PodKey>,
    /// The node. The charge persists while the node is deleted, and applies again when the node rejoins.
    pub node: NodeName,
    /// Namespace and labels, by which rules of other pods select it.
    pub labels: PodLabels,
    /// The pod is being deleted. Topology spread does not count it.
    pub terminating: bool,
    /// What the pod requests.
    pub shape: Arc<Shape>,
    /// The cards that it shares.
    pub cards: CardAllocation,
    /// Reserved or bound.
    pub state: ChargeState,
}

/// The capacity of the cluster. Every event updates it; it is never rebuilt.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    sharing: SharingMode,
    charges: BTreeMap<PodUid, Charge>,
    /// The pods charged to a node, known or not. Follows from `charges`; no empty sets.
    by_node: BTreeMap<NodeName, BTreeSet<PodUid>>,
    /// The charged pods by labels and by anti-affinity term. Follows from `charges`.
    pod_index: PodIndex,
    /// Labels of namespaces.
    namespaces: BTreeMap<Str, BTreeMap<Str, Str>>,
    /// Sorted by name. `packed_nodes` and `packed_cards` have the same indexes: a scan over all nodes reads
    /// them.
    #[expect(
        clippy::vec_box,
        reason = "a node that joins moves all later ones: pointers instead of hundreds of bytes each"
    )]
    states: Vec<Box<NodeState>>,
    packed_nodes: Vec<PackedNode>,
    packed_cards: Vec<PackedCards>,
    classes: NodeClasses,
    /// The pods that a scheduler refused where they were planned.
    refusals: Refusals,
    /// Capacity may have grown since [`Snapshot::take_grown`]. Not part of equality and hash.
    grown: bool,
    /// Charged pods changed since [`Snapshot::take_pods_changed`]. Not part of equality and hash.
    pods_changed: bool,
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.sharing == other.sharing
            && self.charges == other.charges
            && self.refusals == other.refusals
            && self.namespaces == other.namespaces
            && self.states.len() == other.states.len()
            && self.states.iter().zip(&other.states).all(|(a, b)| a.node == b.node)
    }
}

impl Eq for Snapshot {}

impl Hash for Snapshot {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.sharing.hash(hasher);
        self.charges.hash(hasher);
        self.refusals.hash(hasher);
        self.namespaces.hash(hasher);
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

    /// Whether capacity may have grown since the last call. While this is false, a gang that did not fit
    /// still does not fit.
    pub fn take_grown(&mut self) -> bool {
        std::mem::take(&mut self.grown)
    }

    /// Whether pods were charged, or charged pods changed, since the last call. A gang with rules about other
    /// pods may fit then, although no capacity was freed.
    pub fn take_pods_changed(&mut self) -> bool {
        std::mem::take(&mut self.pods_changed)
    }

    /// Sets the labels of a namespace, or forgets them; true when something changed. Any gang may fit then:
    /// the rules of charged pods select namespaces too.
    pub fn set_namespace(&mut self, name: &Str, labels: Option<BTreeMap<Str, Str>>) -> bool {
        if self.namespaces.get(name) == labels.as_ref() {
            return false;
        }
        match labels {
            Some(labels) => self.namespaces.insert(name.clone(), labels),
            None => self.namespaces.remove(name),
        };
        self.pods_changed = true;
        self.grown = true;
        true
    }

    /// The labels of the known namespaces.
    pub(crate) fn namespaces(&self) -> &BTreeMap<Str, BTreeMap<Str, Str>> {
        &self.namespaces
    }

    /// The value of a label of a namespace. The label with the name of the namespace is known even when the
    /// namespace is not.
    pub(crate) fn namespace_label<'s>(&'s self, namespace: &'s str, key: &str) -> Option<&'s str> {
        namespace_label(namespace, self.namespaces.get(namespace), key)
    }

    /// Whether any charged pod has required anti-affinity.
    pub(crate) fn has_anti_affinity(&self) -> bool {
        self.pod_index.anti_affinity().next().is_some()
    }

    /// The charged pods by labels and by anti-affinity term.
    pub(crate) fn pod_index(&self) -> &PodIndex {
        &self.pod_index
    }

    /// Which nodes share their cards.
    pub fn sharing(&self) -> SharingMode {
        self.sharing
    }

    /// Adds or replaces a node; true when something changed.
    pub fn set_node(&mut self, node: Node) -> bool {
        let place = self.position(&node.name);
        if let Ok(index) = place
            && self.states[index].node == node
        {
            return false;
        }
        self.grown = true;
        self.refusals.forget_node(&node.name);
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

    /// Removes a node; its charges stay. True when the node existed.
    pub fn remove_node(&mut self, name: &NodeName) -> bool {
        let Ok(index) = self.position(name) else { return false };
        self.grown = true;
        self.refusals.forget_node(name);
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

    /// Sets the charge of a pod and replaces its previous one; true when something changed.
    pub fn charge(&mut self, pod: &PodUid, charge: Charge) -> bool {
        match self.charges.get(pod) {
            Some(old) if *old == charge => return false,
            _ if charge.state != ChargeState::Reserved => self.forget_refusals_on(&charge.node),
            _ => {}
        }
        match self.charges.get(pod) {
            // Mostly a reservation that becomes a binding: the sums stay the same.
            Some(old)
                if old.node == charge.node && old.shape == charge.shape && old.cards == charge.cards =>
            {
                if old.labels != charge.labels || old.terminating != charge.terminating {
                    self.pod_index.remove(old);
                    self.pod_index.add(&charge);
                    self.pods_changed = true;
                }
                self.charges.insert(pod.clone(), charge);
                return true;
            }
            Some(_) => {
                self.release(pod);
            }
            None => {}
        }
        self.pods_changed = true;
        self.pod_index.add(&charge);
        self.by_node.entry(charge.node.clone()).or_default().insert(pod.clone());
        if let Ok(index) = self.position(&charge.node) {
            self.states[index].add_charge(&charge);
            (self.packed_nodes[index], self.packed_cards[index]) =
                self.states[index].recompute_free(self.sharing);
        }
        self.charges.insert(pod.clone(), charge);
        true
    }

    /// The charge of a pod.
    pub fn charged(&self, pod: &PodUid) -> Option<&Charge> {
        self.charges.get(pod)
    }

    /// All charges by pod, including those to nodes that do not exist.
    pub fn charges(&self) -> impl Iterator<Item = (&PodUid, &Charge)> {
        self.charges.iter()
    }

    /// The charges to a node by pod, whether the node exists or not.
    pub fn charged_to(&self, node: &NodeName) -> impl Iterator<Item = (&PodUid, &Charge)> {
        self.by_node.get(node).into_iter().flatten().map(|uid| (uid, &self.charges[uid]))
    }

    /// Removes the charge of a pod; true when it had one.
    pub fn release(&mut self, pod: &PodUid) -> bool {
        let Some(charge) = self.charges.remove(pod) else { return false };
        self.grown = true;
        if charge.state != ChargeState::Reserved {
            self.refusals.forget_node(&charge.node);
        }
        self.pod_index.remove(&charge);
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

    /// Remembers that a scheduler refused a pod of this shape on a node, with its message. The planner does
    /// not place such a shape there until the node, or a pod that is bound to it, changes.
    pub fn refuse(&mut self, node: &NodeName, shape: &Arc<Shape>, message: &Str, now: Time) {
        if self.position(node).is_ok() {
            self.refusals.add(node, shape, message, now);
        }
    }

    /// The nodes that refused a shape, with the message of the scheduler.
    pub(crate) fn refusals_of(&self, shape: &Shape) -> impl Iterator<Item = (&NodeName, &Str)> {
        self.refusals.of(shape)
    }

    /// Every refusal: node, shape, message.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&NodeName, &Arc<Shape>, &Str)> {
        self.refusals.all()
    }

    /// When the oldest refusal is forgotten without any other event.
    pub(crate) fn next_refusal_end(&self) -> Option<Time> {
        self.refusals.next_end()
    }

    /// Forgets the refusals that have ended. Returns whether there were any.
    pub(crate) fn forget_old_refusals(&mut self, now: Time) -> bool {
        let forgotten = self.refusals.forget_old(now);
        self.grown |= forgotten;
        forgotten
    }

    /// Forgets all refusals.
    pub(crate) fn forget_refusals(&mut self) {
        self.refusals = Refusals::default();
    }

    fn forget_refusals_on(&mut self, node: &NodeName) {
        self.grown |= self.refusals.forget_node(node);
    }

    /// Recounts everything from nodes and charges, for tests and debug runs.
    ///
    /// # Panics
    /// When a running total differs from the recount: a bug of this module.
    pub fn assert_consistent(&self) {
        let mut fresh = Self::new(self.sharing);
        for state in &self.states {
            fresh.set_node(state.node.clone());
        }
        for (uid, charge) in &self.charges {
            fresh.charge(uid, charge.clone());
        }
        assert_eq!(fresh.by_node, self.by_node, "pods by node");
        assert_eq!(fresh.pod_index, self.pod_index, "pods by labels");
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

    pub(crate) fn position(&self, name: &NodeName) -> Result<usize, usize> {
        self.states.binary_search_by(|state| state.node.name.cmp(name))
    }

    /// The known ones of these nodes by index, with what `by_name` has for each.
    pub(crate) fn positions<'s, T>(
        &'s self,
        by_name: &'s BTreeMap<NodeName, T>,
    ) -> impl Iterator<Item = (usize, &'s T)> {
        // Both are sorted: for many names, one walk over the nodes needs fewer comparisons than searches do.
        let is_long = by_name.len() > self.states.len() / 8;
        let mut next = 0;
        by_name.iter().filter_map(move |(name, value)| {
            if !is_long {
                return Some((self.position(name).ok()?, value));
            }
            while self.states.get(next).is_some_and(|state| state.node.name < *name) {
                next += 1;
            }
            self.states.get(next).filter(|state| state.node.name == *name).map(|_| (next, value))
        })
    }

    pub(crate) fn states(&self) -> &[Box<NodeState>] {
        &self.states
    }

    /// What would be free on a node without these charges, all of which are charged to it.
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
