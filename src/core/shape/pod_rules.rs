//! Rules of a pod about other pods: required pod affinity and anti-affinity, and topology spread constraints
//! with `DoNotSchedule`.
//!
//! The meaning is that of kube-scheduler 1.36 (plugins InterPodAffinity and PodTopologySpread). Terms and
//! constraints are resolved as far as the pod alone permits: default namespaces and label keys.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{Str, str};
use crate::objects::affinity::Operator;
use crate::objects::text::Text;
use crate::objects::view::{PodAffinityTerm, PodView, TopologySpreadConstraint};
use crate::objects::{LabelSelector, PodLabels};

/// Upper bound of terms or constraints of one kind. Further ones are not evaluated.
const MAX_RULES_PER_KIND: usize = 32;
/// Upper bound of the namespaces that one term names.
const MAX_NAMESPACES_PER_TERM: usize = 256;

/// The rules of a pod about other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodRules {
    /// Required pod affinity: a domain of each term has a pod that matches all terms.
    pub affinity: Vec<Arc<PodTerm>>,
    /// Required pod anti-affinity: no pod in the domain of a term matches the term, in either direction.
    pub anti_affinity: Vec<Arc<PodTerm>>,
    /// Topology spread constraints with `DoNotSchedule`.
    pub spread: Vec<SpreadConstraint>,
    /// Some rules exceed the bounds of this module and are missing here.
    pub is_truncated: bool,
}

/// A required term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodTerm {
    /// Selects pods by their labels.
    pub selector: LabelSelector,
    /// Namespaces of the pods.
    pub namespaces: BTreeSet<Str>,
    /// Selects further namespaces by their labels.
    pub namespace_selector: LabelSelector,
    /// Node label whose values are the domains.
    pub topology_key: Str,
}

/// A topology spread constraint with `DoNotSchedule`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpreadConstraint {
    /// Namespace of the pods that are counted: that of the pod.
    pub namespace: Str,
    /// Selects the pods that are counted.
    pub selector: LabelSelector,
    /// Node label whose values are the domains.
    pub topology_key: Str,
    /// Largest difference between a domain and the emptiest one.
    pub max_skew: u32,
    /// With fewer domains than this, the emptiest one counts as empty.
    pub min_domains: u32,
    /// Nodes that the pod's selector and node affinity exclude are not counted.
    pub honors_node_affinity: bool,
    /// Nodes with a taint that the pod does not tolerate are not counted.
    pub honors_node_taints: bool,
}

impl PodTerm {
    /// Whether a pod is selected, for a pod that has this term and runs. `namespace_label` looks up a label
    /// of the selected pod's namespace.
    pub fn matches<'v>(&self, pod: &PodLabels, namespace_label: impl Fn(&str) -> Option<&'v str>) -> bool {
        (self.namespaces.contains(pod.namespace()) || self.namespace_selector.matches(namespace_label))
            && self.selector.matches(|key| pod.get(key))
    }

    /// Whether a pod is selected for the pod that has this term and is to be scheduled.
    ///
    /// kube-scheduler 1.36 evaluates the namespace selector of such a pod a second time without any labels,
    /// so one of negative requirements alone selects every namespace (interpodaffinity/plugin.go,
    /// `mergeAffinityTermNamespacesIfNotEmpty`, changes a copy).
    pub fn matches_for_owner<'v>(
        &self,
        pod: &PodLabels,
        namespace_label: impl Fn(&str) -> Option<&'v str>,
    ) -> bool {
        (self.namespaces.contains(pod.namespace())
            || self.namespace_selector.matches(namespace_label)
            || self.namespace_selector.matches(|_| None))
            && self.selector.matches(|key| pod.get(key))
    }

    fn read(view: &PodAffinityTerm<'_>, pod: &PodView<'_>) -> Self {
        let mut selector = LabelSelector::read(view.label_selector.as_ref());
        // A stored pod has these requirements in its selector already.
        if pod.metadata.uid.is_empty() {
            add_label_keys(&mut selector, &view.match_label_keys, pod, |value| Operator::In(vec![value]));
            add_label_keys(&mut selector, &view.mismatch_label_keys, pod, |value| {
                Operator::NotIn(vec![value])
            });
        }
        let mut namespaces: BTreeSet<Str> =
            view.namespaces.iter().take(MAX_NAMESPACES_PER_TERM).map(|name| str(name.as_str())).collect();
        if namespaces.is_empty() && view.namespace_selector.is_none() {
            namespaces.insert(str(pod.metadata.namespace.as_str()));
        }
        Self {
            selector,
            namespaces,
            namespace_selector: LabelSelector::read(view.namespace_selector.as_ref()),
            topology_key: str(view.topology_key.as_str()),
        }
    }

    fn is_too_large(&self) -> bool {
        self.selector.is_too_large()
            || self.namespace_selector.is_too_large()
            || self.namespaces.len() >= MAX_NAMESPACES_PER_TERM
    }
}

impl SpreadConstraint {
    /// Whether a pod is selected, whether it is counted or not.
    pub fn matches(&self, pod: &PodLabels) -> bool {
        pod.namespace() == &*self.namespace && self.selector.matches(|key| pod.get(key))
    }

    fn read(view: &TopologySpreadConstraint<'_>, pod: &PodView<'_>) -> Self {
        let mut selector = LabelSelector::read(view.label_selector.as_ref());
        add_label_keys(&mut selector, &view.match_label_keys, pod, |value| Operator::In(vec![value]));
        let positive = |number: i32| u32::try_from(number.max(1)).unwrap_or(1);
        Self {
            namespace: str(pod.metadata.namespace.as_str()),
            selector,
            topology_key: str(view.topology_key.as_str()),
            max_skew: positive(view.max_skew),
            min_domains: positive(view.min_domains.unwrap_or(1)),
            honors_node_affinity: view.node_affinity_policy.as_str() != "Ignore",
            honors_node_taints: view.node_taints_policy.as_str() == "Honor",
        }
    }
}

impl PodRules {
    /// Reads the rules of a pod; `None` when it has none.
    pub fn read(pod: &PodView<'_>) -> Option<Self> {
        let spec = &pod.spec;
        let mut rules = Self::default();
        if let Some(affinity) = &spec.affinity {
            rules.affinity = rules.read_terms(&affinity.pod_affinity.required, pod);
            rules.anti_affinity = rules.read_terms(&affinity.pod_anti_affinity.required, pod);
        }
        let hard = spec.topology_spread_constraints.iter();
        let hard: Vec<_> = hard.filter(|c| c.when_unsatisfiable.as_str() == "DoNotSchedule").collect();
        rules.is_truncated |= hard.len() > MAX_RULES_PER_KIND;
        for view in hard.into_iter().take(MAX_RULES_PER_KIND) {
            let constraint = SpreadConstraint::read(view, pod);
            if constraint.selector.is_too_large() {
                rules.is_truncated = true;
            } else {
                rules.spread.push(constraint);
            }
        }
        (rules != Self::default()).then_some(rules)
    }

    fn read_terms(&mut self, views: &[PodAffinityTerm<'_>], pod: &PodView<'_>) -> Vec<Arc<PodTerm>> {
        self.is_truncated |= views.len() > MAX_RULES_PER_KIND;
        let mut terms = Vec::new();
        for view in views.iter().take(MAX_RULES_PER_KIND) {
            let term = PodTerm::read(view, pod);
            if term.is_too_large() {
                self.is_truncated = true;
            } else {
                terms.push(Arc::new(term));
            }
        }
        terms
    }

    /// Whether a pin to the planned node keeps the meaning of these rules.
    ///
    /// A pin leaves one domain to a constraint that honors node affinity. With `minDomains` above 1 the
    /// scheduler then takes the emptiest domain as empty, and refuses the node when it has many pods. Rules
    /// that are not known here need the scheduler's own choice.
    pub(super) fn tolerate_pin(&self) -> bool {
        !self.is_truncated && self.spread.iter().all(|c| !(c.honors_node_affinity && c.min_domains > 1))
    }
}

/// Adds a requirement for each key that the pod has as a label (registry/core/pod, strategy.go).
fn add_label_keys(
    selector: &mut LabelSelector,
    keys: &[Text<'_>],
    pod: &PodView<'_>,
    operator: impl Fn(Str) -> Operator,
) {
    for key in keys {
        if let Some(value) = pod.metadata.labels.text(key) {
            selector.add(key, operator(str(value)));
        }
    }
}
