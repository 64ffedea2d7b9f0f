//! Index of charged pods for rules about other pods: how many pods have which labels on which node, and which
//! anti-affinity terms pods of a node have.
//!
//! Pods of one workload have equal labels and terms, so both maps have far fewer keys than there are pods.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::Charge;
use crate::model::NodeName;
use crate::objects::PodLabels;
use crate::shape::PodTerm;

/// Number of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCount {
    /// All of them.
    pub(crate) pods: u32,
    /// Those that are being deleted.
    pub(crate) terminating: u32,
}

/// The charged pods by labels and by anti-affinity term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodIndex {
    /// Sorted by namespace. No zeros and no empty maps.
    by_labels: BTreeMap<PodLabels, BTreeMap<NodeName, PodCount>>,
    /// Number of pods with a required anti-affinity term. No zeros and no empty maps.
    by_anti_affinity: BTreeMap<Arc<PodTerm>, BTreeMap<NodeName, u32>>,
}

impl PodIndex {
    pub(super) fn add(&mut self, charge: &Charge) {
        let on_nodes = match self.by_labels.get_mut(&charge.labels) {
            Some(on_nodes) => on_nodes,
            None => self.by_labels.entry(charge.labels.clone()).or_default(),
        };
        let count = on_nodes.entry(charge.node.clone()).or_default();
        count.pods += 1;
        count.terminating += u32::from(charge.terminating);
        for term in charge.shape.pod_rules.iter().flat_map(|rules| &rules.anti_affinity) {
            let on_nodes = self.by_anti_affinity.entry(term.clone()).or_default();
            *on_nodes.entry(charge.node.clone()).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, charge: &Charge) {
        if let Some(on_nodes) = self.by_labels.get_mut(&charge.labels) {
            if let Some(count) = on_nodes.get_mut(&charge.node) {
                count.pods -= 1;
                count.terminating -= u32::from(charge.terminating);
                if count.pods == 0 {
                    on_nodes.remove(&charge.node);
                }
            }
            if on_nodes.is_empty() {
                self.by_labels.remove(&charge.labels);
            }
        }
        for term in charge.shape.pod_rules.iter().flat_map(|rules| &rules.anti_affinity) {
            let Some(on_nodes) = self.by_anti_affinity.get_mut(term) else { continue };
            if let Some(pods) = on_nodes.get_mut(&charge.node) {
                *pods -= 1;
                if *pods == 0 {
                    on_nodes.remove(&charge.node);
                }
            }
            if on_nodes.is_empty() {
                self.by_anti_affinity.remove(term);
            }
        }
    }

    /// The label sets of a namespace, each with its pods by node.
    pub(crate) fn in_namespace(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = (&PodLabels, &BTreeMap<NodeName, PodCount>)> {
        // Keys and values follow the namespace after a NUL.
        let end = format!("{namespace}\u{1}");
        self.by_labels.range::<str, _>((Bound::Included(namespace), Bound::Excluded(end.as_str())))
    }

    /// All label sets, each with its pods by node.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&PodLabels, &BTreeMap<NodeName, PodCount>)> {
        self.by_labels.iter()
    }

    /// The required anti-affinity terms of charged pods, each with the number of pods by node.
    pub(crate) fn anti_affinity(&self) -> impl Iterator<Item = (&Arc<PodTerm>, &BTreeMap<NodeName, u32>)> {
        self.by_anti_affinity.iter()
    }

    /// The number of charged pods with a required anti-affinity term, by node.
    pub(crate) fn anti_affinity_nodes(&self, term: &PodTerm) -> Option<&BTreeMap<NodeName, u32>> {
        self.by_anti_affinity.get(term)
    }
}
