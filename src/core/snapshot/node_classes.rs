//! Node classes: nodes that selectors and tolerations cannot distinguish share a class with a number.
//!
//! The planner resolves selectors and tolerations once per class instead of once per node, and what an empty
//! node could hold once per capacity. Numbers depend on the order in which nodes join, so they are not part
//! of a snapshot's equality.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Resources, Str};
use crate::objects::affinity::Taint;
use crate::objects::{GpuInventory, Node};

/// Labels with a different value on every node that no workload selects by. Each of them would make every
/// node a class of its own. GPU feature discovery writes the time of its run.
const NODE_SPECIFIC_LABELS: &[&str] = &["nvidia.com/gfd.timestamp"];

/// What the nodes of a class have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeClass {
    pub(crate) ready: bool,
    pub(crate) unschedulable: bool,
    pub(crate) taints: Vec<Taint>,
    /// Without node-specific labels.
    pub(crate) labels: BTreeMap<Str, Str>,
}

/// What an empty node has. Nodes of one machine type have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeCapacity {
    pub(crate) allocatable: Resources,
    pub(crate) max_pods: u64,
    pub(crate) gpus: GpuInventory,
}

impl NodeCapacity {
    pub(crate) fn of(node: &Node) -> Self {
        Self { allocatable: node.allocatable.clone(), max_pods: node.max_pods, gpus: node.gpus.clone() }
    }
}

#[derive(Clone, Debug)]
struct NumberSlot<K> {
    key: Arc<K>,
    nodes: u32,
}

/// Numbers for keys, with the count of nodes that have each key.
#[derive(Clone, Debug)]
struct KeyNumbers<K> {
    numbers: BTreeMap<Arc<K>, u32>,
    slots: Vec<Option<NumberSlot<K>>>,
}

impl<K> Default for KeyNumbers<K> {
    fn default() -> Self {
        Self { numbers: BTreeMap::new(), slots: Vec::new() }
    }
}

impl<K: Ord> KeyNumbers<K> {
    fn enter(&mut self, key: K) -> u32 {
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => {
                let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
                if free == self.slots.len() {
                    self.slots.push(None);
                }
                let number = u32::try_from(free).expect("fewer keys than nodes, and fewer nodes than 2^32");
                let key = Arc::new(key);
                self.numbers.insert(key.clone(), number);
                self.slots[free] = Some(NumberSlot { key, nodes: 0 });
                number
            }
        };
        if let Some(slot) = &mut self.slots[number as usize] {
            slot.nodes += 1;
        }
        number
    }

    fn leave(&mut self, number: u32) {
        let entry = &mut self.slots[number as usize];
        if let Some(slot) = entry {
            slot.nodes -= 1;
            if slot.nodes == 0 {
                self.numbers.remove(&slot.key);
                *entry = None;
            }
        }
    }

    fn key(&self, number: u32) -> Option<&K> {
        self.slots[number as usize].as_ref().map(|slot| &*slot.key)
    }

    fn assert_counts(&self, numbers: impl Iterator<Item = u32>) {
        let mut counts = vec![0_u32; self.slots.len()];
        for number in numbers {
            counts[number as usize] += 1;
        }
        for (number, (slot, count)) in self.slots.iter().zip(counts).enumerate() {
            assert_eq!(slot.as_ref().map_or(0, |slot| slot.nodes), count, "nodes that have number {number}");
        }
        assert_eq!(
            self.numbers.len(),
            self.slots.iter().flatten().count(),
            "every key in use has one number"
        );
    }
}

/// All node classes and capacities in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeClasses {
    classes: KeyNumbers<NodeClass>,
    capacities: KeyNumbers<NodeCapacity>,
    /// Keys of the labels left out as node-specific.
    node_specific: BTreeMap<Str, NodeSpecificLabel>,
}

/// The use of a label that node classes leave out.
#[derive(Clone, Copy, Debug, Default)]
struct NodeSpecificLabel {
    /// Number of nodes of which the class lacks the label.
    nodes: u32,
    /// Number of them on which its value is the name of the node.
    own_name: u32,
}

fn is_node_specific(node: &Node, key: &str, value: &str) -> bool {
    value == node.name.as_str() || NODE_SPECIFIC_LABELS.contains(&key)
}

/// The keys of node-specific labels, and 1 for those with the name of the node as value, else 0.
fn node_specific_keys(node: &Node) -> impl Iterator<Item = (&Str, u32)> {
    let labels = node.labels.iter().filter(|(key, value)| is_node_specific(node, key, value));
    labels.map(|(key, value)| (key, u32::from(**value == *node.name.as_str())))
}

fn class_of(node: &Node) -> NodeClass {
    let labels = node.labels.iter().filter(|(key, value)| !is_node_specific(node, key, value));
    NodeClass {
        ready: node.ready,
        unschedulable: node.unschedulable,
        taints: node.taints.clone(),
        labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
    }
}

impl NodeClasses {
    /// Adds a node; returns the numbers of its class and its capacity.
    pub(super) fn enter(&mut self, node: &Node) -> (u32, u32) {
        for (key, own_name) in node_specific_keys(node) {
            let label = self.node_specific.entry(key.clone()).or_default();
            label.nodes += 1;
            label.own_name += own_name;
        }
        (self.classes.enter(class_of(node)), self.capacities.enter(NodeCapacity::of(node)))
    }

    /// Removes a node with the class and capacity that it had.
    pub(super) fn leave(&mut self, node: &Node, class: u32, capacity: u32) {
        for (key, own_name) in node_specific_keys(node) {
            if let Some(label) = self.node_specific.get_mut(key) {
                label.nodes -= 1;
                label.own_name -= own_name;
                if label.nodes == 0 {
                    self.node_specific.remove(key);
                }
            }
        }
        self.classes.leave(class);
        self.capacities.leave(capacity);
    }

    /// Upper bound of class numbers, in use or not.
    pub(crate) fn len(&self) -> usize {
        self.classes.slots.len()
    }

    /// The class with a number; `None` when no node has it.
    pub(crate) fn class(&self, number: u32) -> Option<&NodeClass> {
        self.classes.key(number)
    }

    /// Capacities by number; `None` when no node has the number.
    pub(crate) fn capacities(&self) -> impl Iterator<Item = Option<&NodeCapacity>> {
        self.capacities.slots.iter().map(|slot| slot.as_ref().map(|slot| &*slot.key))
    }

    /// Whether classes lack this label because it is node-specific on some node.
    pub(crate) fn is_node_specific(&self, key: &str) -> bool {
        self.node_specific.contains_key(key)
    }

    /// The number of nodes on which this label has the name of the node as value.
    pub(crate) fn nodes_with_own_name(&self, key: &str) -> u32 {
        self.node_specific.get(key).map_or(0, |label| label.own_name)
    }

    pub(super) fn assert_consistent<'a>(&self, nodes: impl Iterator<Item = (&'a Node, u32, u32)> + Clone) {
        for (node, class, capacity) in nodes.clone() {
            assert_eq!(self.class(class), Some(&class_of(node)), "class of node {}", node.name);
            let has = self.capacities.key(capacity);
            assert_eq!(has, Some(&NodeCapacity::of(node)), "capacity of node {}", node.name);
        }
        for (key, label) in &self.node_specific {
            let values = nodes.clone().filter_map(|(node, _, _)| Some((node, node.labels.get(key)?)));
            let own_name = values.clone().filter(|(node, value)| ***value == *node.name.as_str()).count();
            assert_eq!(label.own_name as usize, own_name, "nodes with their own name as label {key}");
        }
        self.classes.assert_counts(nodes.clone().map(|(_, class, _)| class));
        self.capacities.assert_counts(nodes.map(|(_, _, capacity)| capacity));
    }
}
