//! Capacity: what every node and card has, what is used, and what is reserved.

use std::sync::Arc;

use crate::model::{NodeName, PodUid};
use crate::objects::{Node, Shape};

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
pub enum Cards {
    /// None, or whole GPUs that kubelet picks.
    Unshared,
    /// These, by index.
    Known(Vec<u32>),
    /// It shares cards and nobody knows which.
    Unknown,
}

/// Why a pod counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// Planned or lifted, and not yet seen bound.
    Reserved,
    /// Bound to the node.
    Bound,
}

/// What one pod holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Charge {
    /// On which node; it counts also while the node is away, and again when it comes back.
    pub node: NodeName,
    /// How much.
    pub shape: Arc<Shape>,
    /// On which cards.
    pub cards: Cards,
    /// Why.
    pub hold: Hold,
}

/// The capacity of the cluster, kept up to date by every event, never rebuilt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Snapshot {}

impl Snapshot {
    /// An empty cluster.
    pub fn new(_sharing: SharingMode) -> Self {
        Self {}
    }

    /// Adds a node or takes its new state; true when that changed anything that bears on capacity.
    pub fn set_node(&mut self, _node: Node) -> bool {
        false
    }

    /// Forgets a node; what is charged to it stays charged. True when it was there.
    pub fn remove_node(&mut self, _name: &NodeName) -> bool {
        false
    }

    /// The node as it was last set.
    pub fn node(&self, _name: &NodeName) -> Option<&Node> {
        None
    }

    /// Interim.
    pub fn node_names(&self) -> impl Iterator<Item = &NodeName> {
        std::iter::empty()
    }
    /// Interim.
    pub fn overbooked(&self, _name: &NodeName) -> Option<String> {
        None
    }

    /// Charges a pod, in place of what it was charged before; true when that changed anything.
    pub fn charge(&mut self, _pod: &PodUid, _charge: Charge) -> bool {
        false
    }

    /// What a pod is charged.
    pub fn charged(&self, _pod: &PodUid) -> Option<&Charge> {
        None
    }

    /// Frees what a pod holds; true when it held anything.
    pub fn release(&mut self, _pod: &PodUid) -> bool {
        false
    }

    /// Recounts everything from nodes and charges, and panics when the running totals differ: for tests and debug runs.
    pub fn assert_consistent(&self) {}
}
