//! The independent check of rules about other pods: pod affinity, anti-affinity and topology spread.
//!
//! It applies the definitions to a list of pods, without counters. Each gang is checked beside the charged
//! pods and the gangs planned before it.

use std::collections::{BTreeMap, BTreeSet};

use super::types::{Plan, PlanningRequest, WaitingMember};
use crate::model::Str;
use crate::objects::{LabelSelector, Node, PodLabels};
use crate::shape::{PodRules, PodTerm, Shape, SpreadConstraint};
use crate::snapshot::Snapshot;

/// A pod on a node.
#[derive(Clone, Copy)]
struct PlacedPod<'a> {
    labels: &'a PodLabels,
    rules: Option<&'a PodRules>,
    node: &'a Node,
    terminating: bool,
}

/// Checks that every planned member is feasible beside all others, pinned or not, and that an order of
/// binding exists.
pub(super) fn check_pod_rules(
    snapshot: &Snapshot,
    gangs: &[PlanningRequest],
    plan: &Plan,
    wrong: &mut Vec<String>,
) {
    let charged = snapshot.charges().filter_map(|(_, charge)| {
        Some(PlacedPod {
            labels: &charge.labels,
            rules: charge.shape.pod_rules.as_deref(),
            node: snapshot.node(&charge.node)?,
            terminating: charge.terminating,
        })
    });
    let mut pods: Vec<PlacedPod<'_>> = charged.collect();
    for planned in &plan.gangs {
        let Some(request) = gangs.iter().find(|request| request.gang == planned.gang) else { continue };
        let members: Vec<(&WaitingMember, &Node)> = planned
            .assignments
            .iter()
            .filter_map(|assignment| {
                let member = request.members.iter().find(|member| member.uid == assignment.uid)?;
                Some((member, snapshot.node(&assignment.node)?))
            })
            .collect();
        let with_rules =
            |rules: Option<&PodRules>| rules.is_some_and(|rules| !rules.anti_affinity.is_empty());
        let concerned = members.iter().any(|(member, _)| member.shape.pod_rules.is_some())
            || pods.iter().any(|pod| with_rules(pod.rules));
        if concerned {
            check_gang(snapshot, &pods, &members, wrong);
        }
        pods.extend(members.iter().map(|(member, node)| placed(member, node)));
    }
}

fn placed<'a>(member: &'a WaitingMember, node: &'a Node) -> PlacedPod<'a> {
    PlacedPod { labels: &member.labels, rules: member.shape.pod_rules.as_deref(), node, terminating: false }
}

fn check_gang(
    snapshot: &Snapshot,
    before: &[PlacedPod<'_>],
    members: &[(&WaitingMember, &Node)],
    wrong: &mut Vec<String>,
) {
    for (index, (member, node)) in members.iter().enumerate() {
        let others = members.iter().enumerate().filter(|(other, _)| *other != index);
        let mut beside = before.to_vec();
        beside.extend(others.map(|(_, (member, node))| placed(member, node)));
        let is_pinned = member.shape.tolerates_pin();
        for pinned in [false, true].into_iter().filter(|pinned| is_pinned || !pinned) {
            if let Some(why) = refusal(snapshot, &beside, member, node, pinned) {
                let how = if pinned { " when pinned" } else { "" };
                wrong.push(format!("pod {} on node {}{how}: {why}", member.key, node.name));
            }
        }
    }
    let mut bound = before.to_vec();
    let mut waiting: Vec<_> = members.to_vec();
    loop {
        let ready = waiting
            .iter()
            .position(|(member, node)| refusal(snapshot, &bound, member, node, false).is_none());
        let Some(ready) = ready else { break };
        let (member, node) = waiting.remove(ready);
        bound.push(placed(member, node));
    }
    if let Some((member, node)) = waiting.first() {
        wrong.push(format!("pod {} on node {}: it can bind in no order", member.key, node.name));
    }
}

/// Why the rules of a pod or of the others refuse a node. A pinned pod counts domains on its node only where
/// it honors node affinity.
fn refusal(
    snapshot: &Snapshot,
    others: &[PlacedPod<'_>],
    member: &WaitingMember,
    node: &Node,
    pinned: bool,
) -> Option<&'static str> {
    let labels = &member.labels;
    let hit = |term: &PodTerm, of: &Node| {
        node.labels
            .get(&term.topology_key)
            .is_some_and(|domain| of.labels.get(&term.topology_key) == Some(domain))
    };
    for other in others {
        let terms = other.rules.into_iter().flat_map(|rules| &rules.anti_affinity);
        if terms.into_iter().any(|term| hit(term, other.node) && selects(snapshot, term, labels)) {
            return Some("it does not satisfy the anti-affinity of another pod");
        }
    }
    let rules = member.shape.pod_rules.as_deref()?;
    let own = |term: &PodTerm| {
        others.iter().any(|other| hit(term, other.node) && selects_for_owner(snapshot, term, other.labels))
    };
    if rules.anti_affinity.iter().any(|term| own(term)) {
        return Some("its anti-affinity forbids it");
    }
    let all_of =
        |labels: &PodLabels| rules.affinity.iter().all(|term| selects_for_owner(snapshot, term, labels));
    if !rules.affinity.is_empty() {
        let matching: Vec<_> = others.iter().filter(|other| all_of(other.labels)).collect();
        let near = |term: &PodTerm| matching.iter().any(|other| hit(term, other.node));
        let counted = matching
            .iter()
            .any(|other| rules.affinity.iter().any(|t| other.node.labels.contains_key(&t.topology_key)));
        let has_keys = rules.affinity.iter().all(|t| node.labels.contains_key(&t.topology_key));
        let first = !counted && has_keys && all_of(labels);
        if !first && !rules.affinity.iter().all(|term| near(term)) {
            return Some("its affinity is not met");
        }
    }
    let spread = rules.spread.iter();
    let mut violated =
        spread.filter(|c| exceeds_skew(snapshot, others, (&member.shape, labels), c, node, pinned));
    violated.next().map(|_| "it violates a topology spread constraint")
}

fn selects(snapshot: &Snapshot, term: &PodTerm, pod: &PodLabels) -> bool {
    let namespace = pod.namespace();
    let by_name = term.namespaces.iter().any(|name| **name == *namespace);
    let by_label = || term.namespace_selector.matches(|key| snapshot.namespace_label(namespace, key));
    (by_name || by_label()) && term.selector.matches(|key| pod.get(key))
}

/// The same for a term of the pod that is to be scheduled: its namespace selector is evaluated without labels
/// too.
fn selects_for_owner(snapshot: &Snapshot, term: &PodTerm, pod: &PodLabels) -> bool {
    let anywhere = term.namespace_selector.matches(|_| None) && term.selector.matches(|key| pod.get(key));
    anywhere || selects(snapshot, term, pod)
}

fn exceeds_skew(
    snapshot: &Snapshot,
    others: &[PlacedPod<'_>],
    (shape, labels): (&Shape, &PodLabels),
    constraint: &SpreadConstraint,
    node: &Node,
    pinned: bool,
) -> bool {
    let Some(here) = node.labels.get(&constraint.topology_key) else { return true };
    let all = shape.pod_rules.iter().flat_map(|rules| &rules.spread);
    let keys: BTreeSet<&Str> = all.map(|other| &other.topology_key).collect();
    let counted = |candidate: &Node| {
        let untolerated = candidate.taints.iter().any(|taint| {
            taint.forbids() && !shape.tolerations.iter().any(|toleration| toleration.tolerates(taint))
        });
        let affinity_allows = || {
            shape.node_affinity.matches(&candidate.name, &candidate.labels)
                && (!pinned || candidate.name == node.name)
        };
        keys.iter().all(|key| candidate.labels.contains_key(*key))
            && (!constraint.honors_node_affinity || affinity_allows())
            && (!constraint.honors_node_taints || !untolerated)
    };
    let mut pods: BTreeMap<&Str, u32> = BTreeMap::new();
    for candidate in snapshot.node_names().filter_map(|name| snapshot.node(name)) {
        if counted(candidate)
            && let Some(domain) = candidate.labels.get(&constraint.topology_key)
        {
            pods.entry(domain).or_default();
        }
    }
    let selects_all = constraint.selector == LabelSelector::All(Vec::new());
    for other in others.iter().filter(|other| !other.terminating && !selects_all) {
        if counted(other.node)
            && constraint.matches(other.labels)
            && let Some(domain) = other.node.labels.get(&constraint.topology_key)
        {
            *pods.entry(domain).or_default() += 1;
        }
    }
    let few = pods.len() < constraint.min_domains as usize;
    let smallest = if few { 0 } else { pods.values().min().copied().unwrap_or(0) };
    let with_itself = pods.get(here).copied().unwrap_or(0) + u32::from(constraint.matches(labels));
    with_itself > smallest + constraint.max_skew
}
