//! Topology domains, and numbers of pods by domain.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{NodeName, Str};
use crate::snapshot::Snapshot;

/// The domain of a node without the topology label.
pub(super) const NO_DOMAIN: u32 = u32::MAX;

/// The domains of one topology key.
#[derive(Debug)]
pub(super) struct TopologyDomains {
    /// Domain by node, or [`NO_DOMAIN`].
    pub(super) by_node: Vec<u32>,
    /// Number of nodes by domain.
    pub(super) nodes: Vec<u32>,
}

impl TopologyDomains {
    pub(super) fn new(by_node: Vec<u32>, domains: usize) -> Self {
        let mut nodes = vec![0; domains];
        for domain in by_node.iter().filter(|domain| **domain != NO_DOMAIN) {
            nodes[*domain as usize] += 1;
        }
        Self { by_node, nodes }
    }

    /// Each node is a domain.
    pub(super) fn of_nodes(snapshot: &Snapshot) -> Self {
        let nodes = snapshot.states().len();
        Self { by_node: (0..).take(nodes).collect(), nodes: vec![1; nodes] }
    }
}

/// The domains of a label.
pub(super) fn domains_of(snapshot: &Snapshot, key: &str) -> TopologyDomains {
    let classes = snapshot.classes();
    let states = snapshot.states();
    let mut numbers: BTreeMap<&Str, u32> = BTreeMap::new();
    if !classes.is_node_specific(key) {
        // All nodes of a class have the same value.
        let of_class: Vec<u32> = (0_u32..)
            .zip(0..classes.len())
            .map(|(class, _)| {
                let value = classes.class(class).and_then(|class| class.labels.get(key));
                value.map_or(NO_DOMAIN, |value| {
                    let next = u32::try_from(numbers.len()).unwrap_or(NO_DOMAIN);
                    *numbers.entry(value).or_insert(next)
                })
            })
            .collect();
        let by_node = snapshot.packed_nodes().iter().map(|node| of_class[node.class as usize]).collect();
        return TopologyDomains::new(by_node, numbers.len());
    }
    // The value is mostly the node's own name: its domain is then the number of the node.
    if classes.nodes_with_own_name(key) as usize == states.len() {
        return TopologyDomains::of_nodes(snapshot);
    }
    let mut by_node = Vec::with_capacity(states.len());
    let mut len = states.len();
    for (number, state) in (0_u32..).zip(states) {
        let node = &state.node;
        let Some(value) = node.labels.get(key) else {
            by_node.push(NO_DOMAIN);
            continue;
        };
        if **value == *node.name.as_str() {
            by_node.push(number);
            continue;
        }
        let named = snapshot.position(&NodeName(value.clone())).ok();
        let named = named.filter(|index| states[*index].node.labels.get(key) == Some(value));
        by_node.push(match named {
            Some(index) => u32::try_from(index).unwrap_or(NO_DOMAIN),
            None => *numbers.entry(value).or_insert_with(|| {
                len += 1;
                u32::try_from(len - 1).unwrap_or(NO_DOMAIN)
            }),
        });
    }
    TopologyDomains::new(by_node, len)
}

/// The value of one counter.
#[derive(Clone, Debug, Default)]
pub(super) struct DomainCounts {
    pub(super) by_domain: Vec<u32>,
    /// Domains that a spread constraint counts; empty for other counters.
    pub(super) is_counted: Arc<Vec<bool>>,
    /// Sum over the domains.
    pub(super) total: u64,
    /// The smallest count of a counted domain, and the number of domains with it.
    pub(super) smallest: (u32, u32),
    /// Number of counted domains.
    pub(super) domains: u32,
}

/// All counters.
#[derive(Clone, Debug, Default)]
pub(in crate::planner) struct PodCounts {
    pub(super) counters: Vec<DomainCounts>,
}

impl DomainCounts {
    pub(super) fn find_smallest(&mut self) {
        let counted = self.by_domain.iter().zip(&**self.is_counted).filter(|(_, counted)| **counted);
        let mut smallest = (u32::MAX, 0);
        for (count, _) in counted {
            if *count < smallest.0 {
                smallest = (*count, 1);
            } else if *count == smallest.0 {
                smallest.1 += 1;
            }
        }
        self.smallest = smallest;
    }

    pub(super) fn add(&mut self, domain: u32, pods: u32) {
        let count = &mut self.by_domain[domain as usize];
        let before = *count;
        *count += pods;
        self.total += u64::from(pods);
        if before == self.smallest.0 && pods > 0 && !self.is_counted.is_empty() {
            self.smallest.1 -= 1;
            if self.smallest.1 == 0 {
                self.find_smallest();
            }
        }
    }

    pub(super) fn remove(&mut self, domain: u32, pods: u32) {
        let count = &mut self.by_domain[domain as usize];
        *count = count.saturating_sub(pods);
        self.total = self.total.saturating_sub(u64::from(pods));
        if !self.is_counted.is_empty() {
            self.find_smallest();
        }
    }
}
