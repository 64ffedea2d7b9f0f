//! The scheduler's filters InterPodAffinity and PodTopologySpread, from the pods of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_core::model::Str;
use portcullis_core::objects::{LabelSelector, Namespace, Node};
use portcullis_core::pod::Pod;
use portcullis_core::shape::{PodRules, PodTerm, SpreadConstraint};

/// A pod on a node, bound or nominated.
#[derive(Clone, Copy)]
pub(super) struct PodOnNode<'c> {
    pub(super) pod: &'c Arc<Pod>,
    pub(super) node: &'c Arc<Node>,
}

/// The namespaces by name.
pub(super) type NamespacesByName = BTreeMap<Str, Arc<Namespace>>;

/// Whether the filter InterPodAffinity skips a pod: it has no terms, and no bound pod avoids it. The filter
/// does not see nominated pods then.
pub(super) fn is_affinity_skipped(pod: &Pod, bound: &[PodOnNode<'_>], namespaces: &NamespacesByName) -> bool {
    let has_terms = |rules: &Arc<PodRules>| !(rules.affinity.is_empty() && rules.anti_affinity.is_empty());
    let avoids = |other: &PodOnNode<'_>| {
        let rules = other.pod.shape.pod_rules.iter();
        let mut terms = rules.flat_map(|rules| &rules.anti_affinity);
        terms.any(|term| other.node.labels.contains_key(&term.topology_key) && selects(term, pod, namespaces))
    };
    !pod.shape.pod_rules.as_ref().is_some_and(has_terms) && !bound.iter().any(avoids)
}

/// Why other pods keep a pod from a node, in kube-scheduler's words.
pub(super) fn refusal_by_pods(
    node: &Node,
    pod: &Pod,
    nodes: &[Arc<Node>],
    namespaces: &NamespacesByName,
    others: &[PodOnNode<'_>],
    skips_affinity: bool,
) -> Option<&'static str> {
    let none = PodRules::default();
    let rules = pod.shape.pod_rules.as_deref().unwrap_or(&none);
    for constraint in &rules.spread {
        if !node.labels.contains_key(&constraint.topology_key) {
            return Some("node(s) didn't match pod topology spread constraints (missing required label)");
        }
        if is_skewed(node, pod, constraint, nodes, others) {
            return Some("node(s) didn't match pod topology spread constraints");
        }
    }
    if skips_affinity {
        return None;
    }
    if !has_affinity(node, pod, rules, namespaces, others) {
        return Some("node(s) didn't match pod affinity rules");
    }
    let avoids = |term: &Arc<PodTerm>, other: &PodOnNode<'_>| {
        in_one_domain(term, node, other.node) && selects_for_owner(term, other.pod, namespaces)
    };
    if others.iter().any(|other| rules.anti_affinity.iter().any(|term| avoids(term, other))) {
        return Some("node(s) didn't match pod anti-affinity rules");
    }
    let keeps_away = |other: &PodOnNode<'_>| {
        let rules = other.pod.shape.pod_rules.as_deref().unwrap_or(&none);
        rules.anti_affinity.iter().any(|t| in_one_domain(t, node, other.node) && selects(t, pod, namespaces))
    };
    if others.iter().any(keeps_away) {
        return Some("node(s) didn't satisfy existing pods anti-affinity rules");
    }
    None
}

fn selects(term: &PodTerm, pod: &Pod, namespaces: &NamespacesByName) -> bool {
    let name = pod.labels.namespace();
    let label = |key: &str| {
        let label = namespaces.get(name).and_then(|namespace| namespace.labels.get(key));
        label.map(|value| &**value).or_else(|| (key == "kubernetes.io/metadata.name").then_some(name))
    };
    term.matches(&pod.labels, label)
}

/// The same for a term of the pod that is to be scheduled: the scheduler evaluates its namespace selector
/// without labels too.
fn selects_for_owner(term: &PodTerm, pod: &Pod, namespaces: &NamespacesByName) -> bool {
    selects(term, pod, namespaces)
        || (term.namespace_selector.matches(|_| None) && term.selector.matches(|key| pod.labels.get(key)))
}

fn in_one_domain(term: &PodTerm, a: &Node, b: &Node) -> bool {
    let domain = |node: &Node| node.labels.get(&term.topology_key).cloned();
    domain(a).is_some() && domain(a) == domain(b)
}

fn has_affinity(
    node: &Node,
    pod: &Pod,
    rules: &PodRules,
    namespaces: &NamespacesByName,
    others: &[PodOnNode<'_>],
) -> bool {
    let terms = &rules.affinity;
    if !terms.iter().all(|term| node.labels.contains_key(&term.topology_key)) {
        return false;
    }
    let mut counted = false;
    let mut near = vec![false; terms.len()];
    for other in
        others.iter().filter(|other| terms.iter().all(|term| selects_for_owner(term, other.pod, namespaces)))
    {
        for (term, near) in terms.iter().zip(&mut near) {
            counted |= other.node.labels.contains_key(&term.topology_key);
            *near |= in_one_domain(term, node, other.node);
        }
    }
    near.iter().all(|near| *near)
        || (!counted && terms.iter().all(|term| selects_for_owner(term, pod, namespaces)))
}

fn is_skewed(
    node: &Node,
    pod: &Pod,
    constraint: &SpreadConstraint,
    nodes: &[Arc<Node>],
    others: &[PodOnNode<'_>],
) -> bool {
    let keys = || pod.shape.pod_rules.iter().flat_map(|rules| &rules.spread).map(|c| &c.topology_key);
    let is_counted = |node: &Node| {
        let tolerated = |taint| pod.shape.tolerations.iter().any(|toleration| toleration.tolerates(taint));
        let affinity = &pod.shape.node_affinity;
        keys().all(|key| node.labels.contains_key(key))
            && (!constraint.honors_node_affinity || affinity.matches(&node.name, &node.labels))
            && (!constraint.honors_node_taints || node.taints.iter().all(|t| !t.forbids() || tolerated(t)))
    };
    let domain = |node: &Node| node.labels.get(&constraint.topology_key).cloned();
    let mut pods: BTreeMap<_, u32> = BTreeMap::new();
    for node in nodes.iter().filter(|node| is_counted(node)) {
        pods.entry(domain(node)).or_default();
    }
    let counts = |other: &&PodOnNode<'_>| {
        !other.pod.terminating
            && constraint.selector != LabelSelector::All(Vec::new())
            && constraint.matches(&other.pod.labels)
            && is_counted(other.node)
    };
    for other in others.iter().filter(counts) {
        *pods.entry(domain(other.node)).or_default() += 1;
    }
    let few = u32::try_from(pods.len()).is_ok_and(|domains| domains < constraint.min_domains);
    let least = if few { 0 } else { pods.values().copied().min().unwrap_or(0) };
    let itself = u32::from(constraint.matches(&pod.labels));
    pods.get(&domain(node)).copied().unwrap_or(0) + itself > least + constraint.max_skew
}
