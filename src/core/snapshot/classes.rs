//! Nodes that the rules of placement cannot tell apart, numbered.
//!
//! Selectors and tolerations are then resolved once for each class rather than for each node. Numbers are handed out as
//! nodes come and go, so they mean nothing outside, and are no part of a snapshot's identity.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::Str;
use crate::objects::Node;
use crate::objects::affinity::Taint;

/// Labels whose values differ on every node and which nobody selects by: they would make each node a class of its own.
/// (GPU feature discovery writes when it ran.)
const PRIVATE_LABELS: &[&str] = &["nvidia.com/gfd.timestamp"];

/// What nodes of a class have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class {
    pub(crate) ready: bool,
    pub(crate) unschedulable: bool,
    pub(crate) taints: Vec<Taint>,
    /// Without the private ones.
    pub(crate) labels: BTreeMap<Str, Str>,
}

#[derive(Clone, Debug)]
struct Slot {
    class: Arc<Class>,
    nodes: u32,
}

/// All classes in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    numbers: BTreeMap<Arc<Class>, u32>,
    slots: Vec<Option<Slot>>,
    /// Keys of labels that were left out because their value is the node's own, and on how many nodes.
    private: BTreeMap<Str, u32>,
}

fn is_private(node: &Node, key: &str, value: &str) -> bool {
    value == node.name.as_str() || PRIVATE_LABELS.contains(&key)
}

fn private_keys(node: &Node) -> impl Iterator<Item = &Str> {
    node.labels.iter().filter(|(key, value)| is_private(node, key, value)).map(|(key, _)| key)
}

fn class_of(node: &Node) -> Class {
    let labels = node.labels.iter().filter(|(key, value)| !is_private(node, key, value));
    Class {
        ready: node.ready,
        unschedulable: node.unschedulable,
        taints: node.taints.clone(),
        labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
    }
}

impl Classes {
    /// Counts a node in; the number of its class.
    pub(super) fn enter(&mut self, node: &Node) -> u32 {
        for key in private_keys(node) {
            *self.private.entry(key.clone()).or_default() += 1;
        }
        let class = Arc::new(class_of(node));
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let number = *self.numbers.entry(class.clone()).or_insert_with(|| {
            if free == self.slots.len() {
                self.slots.push(None);
            }
            self.slots[free] = Some(Slot { class, nodes: 0 });
            u32::try_from(free).expect("fewer classes than nodes, and fewer nodes than 2^32")
        });
        if let Some(slot) = &mut self.slots[number as usize] {
            slot.nodes += 1;
        }
        number
    }

    /// Counts a node out of the class it had.
    pub(super) fn leave(&mut self, node: &Node, number: u32) {
        for key in private_keys(node) {
            if let Some(nodes) = self.private.get_mut(key) {
                *nodes -= 1;
                if *nodes == 0 {
                    self.private.remove(key);
                }
            }
        }
        let entry = &mut self.slots[number as usize];
        if let Some(slot) = entry {
            slot.nodes -= 1;
            if slot.nodes == 0 {
                self.numbers.remove(&slot.class);
                *entry = None;
            }
        }
    }

    /// How many numbers there are, in use or not.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The class of a number; `None` when no node has it.
    pub(crate) fn class(&self, number: u32) -> Option<&Class> {
        self.slots[number as usize].as_ref().map(|slot| &*slot.class)
    }

    /// Whether a label key says something that the class of a node does not know.
    pub(crate) fn is_private(&self, key: &str) -> bool {
        self.private.contains_key(key)
    }

    pub(super) fn assert_consistent<'a>(&self, nodes: impl Iterator<Item = (&'a Node, u32)>) {
        let mut counts = vec![0_u32; self.slots.len()];
        for (node, number) in nodes {
            counts[number as usize] += 1;
            assert_eq!(self.class(number), Some(&class_of(node)), "class of node {}", node.name);
        }
        for (slot, count) in self.slots.iter().zip(counts) {
            assert_eq!(slot.as_ref().map_or(0, |s| s.nodes), count, "nodes of class {slot:?}");
        }
        let used = self.slots.iter().flatten().count();
        assert_eq!(self.numbers.len(), used, "every class in use has one number");
    }
}
