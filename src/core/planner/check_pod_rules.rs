//! The independent check of rules about other pods: pod affinity, anti-affinity and topology spread.
//!
//! It uses no code of the planner. It applies the definitions to sums by topology domain: pods that run come
//! from the index of the snapshot, which tests recount, and members are added one by one. A member is
//! checked beside all others by taking it out of the sums. Each gang is checked beside the charged pods and
//! the gangs planned before it.

use std::collections::{BTreeMap, BTreeSet};

use super::types::{Plan, PlanningRequest, WaitingMember};
use crate::model::{NodeName, Str};
use crate::objects::{LabelSelector, Node, PodLabels};
use crate::shape::{PodRules, PodTerm, Shape, SpreadConstraint};
use crate::snapshot::Snapshot;

/// A planned member on its node.
#[derive(Clone, Copy)]
struct PlacedMember<'a> {
    member: &'a WaitingMember,
    node: &'a Node,
    /// Of the node.
    index: usize,
}

/// Pods with equal labels on one node.
#[derive(Clone, Copy)]
struct PodsOnNode<'a> {
    labels: &'a PodLabels,
    node: &'a Node,
    /// Of the node.
    index: usize,
    pods: u32,
    terminating: u32,
}

/// A number of pods by domain.
type PodsByDomain<'a> = BTreeMap<&'a Str, u32>;

/// The nodes that a spread constraint counts, when the pod is not pinned.
///
/// Labels that are the same on all nodes of a class are compared once for each class.
#[derive(Clone)]
struct CountedNodes<'a> {
    snapshot: &'a Snapshot,
    constraint: &'a SpreadConstraint,
    shape: &'a Shape,
    /// By class number.
    classes: Vec<bool>,
    /// Topology keys that only some nodes have, although classes lack them.
    keys_by_node: Vec<&'a Str>,
    /// The node affinity counts and uses more than classes have.
    affinity_by_node: bool,
    /// Number of domains.
    domains: usize,
}

/// The pods that the rules of one shape count.
#[derive(Clone)]
struct ShapeTally<'a> {
    shape: &'a Shape,
    rules: &'a PodRules,
    /// For each own anti-affinity term, the pods that it selects.
    anti_affinity: Vec<PodsByDomain<'a>>,
    /// For each affinity term, the pods that match all affinity terms.
    affinity: Vec<PodsByDomain<'a>>,
    /// Pods that match all affinity terms, on nodes with any of their topology keys.
    affine_pods: u32,
    /// For each spread constraint, the nodes and the pods that it counts.
    spread: Vec<(CountedNodes<'a>, PodsByDomain<'a>)>,
}

/// The pods beside which a member is checked.
#[derive(Clone)]
struct PodTally<'a> {
    snapshot: &'a Snapshot,
    shapes: Vec<ShapeTally<'a>>,
    /// For each anti-affinity term of any pod that selects a member, the pods that have the term.
    anti_affinity: BTreeMap<&'a PodTerm, PodsByDomain<'a>>,
}

/// Checks that every planned member is feasible beside all others, pinned or not, and that an order of
/// binding exists.
pub(super) fn check_pod_rules(
    snapshot: &Snapshot,
    gangs: &[PlanningRequest],
    plan: &Plan,
    wrong: &mut Vec<String>,
) {
    let mut before: Vec<PlacedMember<'_>> = Vec::new();
    for planned in &plan.gangs {
        let Some(request) = gangs.iter().find(|request| request.gang == planned.gang) else { continue };
        let by_uid: BTreeMap<_, _> = request.members.iter().map(|member| (&member.uid, member)).collect();
        let placed = planned.assignments.iter().filter_map(|assignment| {
            let index = snapshot.position(&assignment.node).ok()?;
            let node = &snapshot.states()[index].node;
            Some(PlacedMember { member: by_uid.get(&assignment.uid)?, node, index })
        });
        let members: Vec<PlacedMember<'_>> = placed.collect();
        let has_anti_affinity =
            |pod: &PlacedMember<'_>| pod.rules().is_some_and(|rules| !rules.anti_affinity.is_empty());
        let concerned = members.iter().any(|member| member.rules().is_some())
            || snapshot.has_anti_affinity()
            || before.iter().any(has_anti_affinity);
        if concerned {
            check_gang(snapshot, &before, &members, wrong);
        }
        before.extend(members);
    }
}

fn check_gang(
    snapshot: &Snapshot,
    before: &[PlacedMember<'_>],
    members: &[PlacedMember<'_>],
    wrong: &mut Vec<String>,
) {
    let residents = PodTally::new(snapshot, before, members);
    let mut all = residents.clone();
    members.iter().for_each(|member| all.add(*member));
    let mut on_node: BTreeMap<&NodeName, Vec<PlacedMember<'_>>> = BTreeMap::new();
    for placed in before.iter().chain(members) {
        on_node.entry(&placed.node.name).or_default().push(*placed);
    }
    for placed in members {
        all.remove(*placed);
        let PlacedMember { member, node, .. } = *placed;
        if let Some(why) = all.refusal(*placed) {
            wrong.push(format!("pod {} on node {}: {why}", member.key, node.name));
        }
        if member.shape.tolerates_pin() {
            let others: Vec<_> = on_node[&node.name].iter().filter(|o| o.member.uid != member.uid).collect();
            if let Some(why) = all.refusal_of_pin(*placed, &others) {
                wrong.push(format!("pod {} on node {} when pinned: {why}", member.key, node.name));
            }
        }
        all.add(*placed);
    }
    if !residents.binds_in_any_order() {
        check_binding_order(residents, members, wrong);
    }
}

/// Checks that members can bind one after the other: each time the first one that is feasible.
fn check_binding_order<'a>(mut bound: PodTally<'a>, members: &[PlacedMember<'a>], wrong: &mut Vec<String>) {
    let mut waiting = members.to_vec();
    while let Some(ready) = waiting.iter().position(|placed| bound.refusal(*placed).is_none()) {
        bound.add(waiting.remove(ready));
    }
    if let Some(PlacedMember { member, node, .. }) = waiting.first() {
        wrong.push(format!("pod {} on node {}: it can bind in no order", member.key, node.name));
    }
}

impl<'a> PlacedMember<'a> {
    fn rules(self) -> Option<&'a PodRules> {
        self.member.shape.pod_rules.as_deref()
    }

    fn pods(self) -> PodsOnNode<'a> {
        PodsOnNode {
            labels: &self.member.labels,
            node: self.node,
            index: self.index,
            pods: 1,
            terminating: 0,
        }
    }
}

impl<'a> PodTally<'a> {
    /// The pods that run and the members of gangs before, for the rules that bear on `members`.
    fn new(snapshot: &'a Snapshot, before: &[PlacedMember<'a>], members: &[PlacedMember<'a>]) -> Self {
        let mut shapes: BTreeMap<&Shape, ShapeTally<'a>> = BTreeMap::new();
        for member in members {
            let shape = &*member.member.shape;
            if let Some(rules) = member.rules()
                && !shapes.contains_key(shape)
            {
                shapes.insert(shape, ShapeTally::new(snapshot, shape, rules));
            }
        }
        let labels: BTreeSet<&PodLabels> = members.iter().map(|member| &member.member.labels).collect();
        let concerns = |term: &PodTerm| labels.iter().any(|labels| selects(snapshot, term, labels));
        let mut anti_affinity: BTreeMap<&PodTerm, PodsByDomain<'a>> = BTreeMap::new();
        let of_members = before.iter().chain(members).filter_map(|placed| placed.rules());
        for term in of_members.flat_map(|rules| &rules.anti_affinity) {
            if !anti_affinity.contains_key(&**term) && concerns(term) {
                anti_affinity.insert(term, PodsByDomain::new());
            }
        }
        for (term, nodes) in snapshot.pod_index().anti_affinity().filter(|(term, _)| concerns(term)) {
            let by_domain = anti_affinity.entry(term).or_default();
            for (node, pods) in snapshot.positions(nodes) {
                if let Some(domain) = snapshot.states()[node].node.labels.get(&term.topology_key) {
                    *by_domain.entry(domain).or_default() += pods;
                }
            }
        }
        let mut tally = Self { snapshot, shapes: shapes.into_values().collect(), anti_affinity };
        for (labels, nodes) in snapshot.pod_index().all() {
            if !tally.shapes.iter().any(|shape| shape.concerns(snapshot, labels)) {
                continue;
            }
            for (index, count) in snapshot.positions(nodes) {
                let (node, pods) = (&snapshot.states()[index].node, count.pods);
                let pods = PodsOnNode { labels, node, index, pods, terminating: count.terminating };
                tally.shapes.iter_mut().for_each(|shape| shape.add(snapshot, pods));
            }
        }
        before.iter().for_each(|placed| tally.add(*placed));
        tally
    }

    fn add(&mut self, placed: PlacedMember<'a>) {
        self.change(placed, |count, by| *count += by, ShapeTally::add);
    }

    fn remove(&mut self, placed: PlacedMember<'a>) {
        self.change(placed, |count, by| *count -= by, ShapeTally::remove);
    }

    fn change(
        &mut self,
        placed: PlacedMember<'a>,
        change_term: fn(&mut u32, u32),
        change_shape: fn(&mut ShapeTally<'a>, &'a Snapshot, PodsOnNode<'a>),
    ) {
        for shape in &mut self.shapes {
            change_shape(shape, self.snapshot, placed.pods());
        }
        for term in placed.rules().into_iter().flat_map(|rules| &rules.anti_affinity) {
            if let Some(by_domain) = self.anti_affinity.get_mut(&**term)
                && let Some(domain) = placed.node.labels.get(&term.topology_key)
            {
                change_term(by_domain.entry(domain).or_default(), 1);
            }
        }
    }

    /// Whether members that are feasible beside all others can bind in any order: a pod less never makes
    /// anti-affinity worse, and of pods that one constraint spreads, one in the emptiest domain is feasible.
    fn binds_in_any_order(&self) -> bool {
        let plain = |shape: &ShapeTally<'_>| shape.rules.affinity.is_empty() && shape.rules.spread.is_empty();
        match &self.shapes[..] {
            [only] if only.rules.affinity.is_empty() => {
                let spread = &only.rules.spread;
                spread.is_empty() || spread.len() == 1
            }
            shapes => shapes.iter().all(plain),
        }
    }

    fn tally_of(&self, placed: PlacedMember<'_>) -> Option<&ShapeTally<'a>> {
        self.shapes.iter().find(|tally| *tally.shape == *placed.member.shape)
    }

    /// Why the rules of a member, or of the pods in this tally, refuse its node.
    fn refusal(&self, placed: PlacedMember<'a>) -> Option<&'static str> {
        let (node, labels) = (placed.node, &placed.member.labels);
        let here = |key: &Str, by_domain: &PodsByDomain<'_>| {
            node.labels.get(key).and_then(|domain| by_domain.get(domain)).is_some_and(|pods| *pods > 0)
        };
        let mut others = self.anti_affinity.iter();
        if others.any(|(term, pods)| here(&term.topology_key, pods) && selects(self.snapshot, term, labels)) {
            return Some("it does not satisfy the anti-affinity of another pod");
        }
        let tally = self.tally_of(placed)?;
        let rules = tally.rules;
        let mut own = rules.anti_affinity.iter().zip(&tally.anti_affinity);
        if own.any(|(term, pods)| here(&term.topology_key, pods)) {
            return Some("its anti-affinity forbids it");
        }
        if !rules.affinity.is_empty() {
            let has_keys = rules.affinity.iter().all(|term| node.labels.contains_key(&term.topology_key));
            let first = tally.affine_pods == 0 && has_keys && tally.is_affine(self.snapshot, labels);
            let mut terms = rules.affinity.iter().zip(&tally.affinity);
            if !first && !terms.all(|(term, pods)| here(&term.topology_key, pods)) {
                return Some("its affinity is not met");
            }
        }
        let mut spread = tally.spread.iter();
        spread
            .any(|(nodes, pods)| exceeds_skew(nodes.constraint, pods, nodes.domains, node, labels))
            .then_some("it violates a topology spread constraint")
    }

    /// Why a spread constraint that honors node affinity refuses the node of a pinned member: it counts this
    /// node only. The other rules are the same for a pinned member.
    fn refusal_of_pin(&self, placed: PlacedMember<'a>, others: &[&PlacedMember<'_>]) -> Option<&'static str> {
        let (node, labels) = (placed.node, &placed.member.labels);
        let tally = self.tally_of(placed)?;
        for (nodes, _) in tally.spread.iter().filter(|(nodes, _)| nodes.constraint.honors_node_affinity) {
            let mut pods = PodsByDomain::new();
            if let Some(domain) = nodes.domain(placed.index) {
                let charges = self.snapshot.charged_to(&node.name).map(|(_, charge)| charge);
                let charged = charges.filter(|charge| !charge.terminating).map(|charge| &charge.labels);
                let planned = others.iter().map(|other| &other.member.labels);
                let counted =
                    charged.chain(planned).filter(|labels| counts(nodes.constraint, labels)).count();
                pods.insert(domain, u32::try_from(counted).unwrap_or(u32::MAX));
            }
            if exceeds_skew(nodes.constraint, &pods, pods.len(), node, labels) {
                return Some("it violates a topology spread constraint");
            }
        }
        None
    }
}

impl<'a> ShapeTally<'a> {
    fn new(snapshot: &'a Snapshot, shape: &'a Shape, rules: &'a PodRules) -> Self {
        let spread = rules
            .spread
            .iter()
            .map(|constraint| (CountedNodes::new(snapshot, shape, rules, constraint), PodsByDomain::new()));
        Self {
            shape,
            rules,
            anti_affinity: vec![PodsByDomain::new(); rules.anti_affinity.len()],
            affinity: vec![PodsByDomain::new(); rules.affinity.len()],
            affine_pods: 0,
            spread: spread.collect(),
        }
    }

    /// Whether any of the rules counts pods with these labels.
    fn concerns(&self, snapshot: &Snapshot, labels: &PodLabels) -> bool {
        self.is_affine(snapshot, labels)
            || self.rules.anti_affinity.iter().any(|term| selects_for_owner(snapshot, term, labels))
            || self.rules.spread.iter().any(|constraint| counts(constraint, labels))
    }

    /// Whether pods with these labels match all affinity terms, of which there are some.
    fn is_affine(&self, snapshot: &Snapshot, labels: &PodLabels) -> bool {
        let terms = &self.rules.affinity;
        !terms.is_empty() && terms.iter().all(|term| selects_for_owner(snapshot, term, labels))
    }

    fn add(&mut self, snapshot: &'a Snapshot, pods: PodsOnNode<'a>) {
        self.change(snapshot, pods, |count, by| *count += by);
    }

    fn remove(&mut self, snapshot: &'a Snapshot, pods: PodsOnNode<'a>) {
        self.change(snapshot, pods, |count, by| *count -= by);
    }

    fn change(&mut self, snapshot: &'a Snapshot, on_node: PodsOnNode<'a>, change: fn(&mut u32, u32)) {
        let PodsOnNode { labels, node, index, pods, terminating } = on_node;
        for (term, by_domain) in self.rules.anti_affinity.iter().zip(&mut self.anti_affinity) {
            if let Some(domain) = node.labels.get(&term.topology_key)
                && selects_for_owner(snapshot, term, labels)
            {
                change(by_domain.entry(domain).or_default(), pods);
            }
        }
        if self.is_affine(snapshot, labels) {
            let mut has_key = false;
            for (term, by_domain) in self.rules.affinity.iter().zip(&mut self.affinity) {
                if let Some(domain) = node.labels.get(&term.topology_key) {
                    change(by_domain.entry(domain).or_default(), pods);
                    has_key = true;
                }
            }
            if has_key {
                change(&mut self.affine_pods, pods);
            }
        }
        for (nodes, by_domain) in &mut self.spread {
            if counts(nodes.constraint, labels)
                && let Some(domain) = nodes.domain(index)
            {
                change(by_domain.entry(domain).or_default(), pods - terminating);
            }
        }
    }
}

impl<'a> CountedNodes<'a> {
    fn new(
        snapshot: &'a Snapshot,
        shape: &'a Shape,
        rules: &'a PodRules,
        constraint: &'a SpreadConstraint,
    ) -> Self {
        let classes = snapshot.classes();
        let honors_affinity = constraint.honors_node_affinity;
        let affinity = &shape.node_affinity;
        let expressions = affinity.terms.iter().flatten().flat_map(|term| &term.expressions);
        let mut labels = affinity.selector.keys().chain(expressions.map(|expression| &expression.key));
        let affinity_by_node = honors_affinity
            && (affinity.terms.iter().flatten().any(|term| !term.fields.is_empty())
                || labels.any(|key| classes.is_node_specific(key)));
        let keys = rules.spread.iter().map(|other| &other.topology_key);
        let (by_node, by_class): (Vec<&Str>, Vec<&Str>) = keys.partition(|key| classes.is_node_specific(key));
        let counts_class = |number: u32| {
            let Some(class) = classes.class(number) else { return false };
            let tolerated = |taint| shape.tolerations.iter().any(|toleration| toleration.tolerates(taint));
            let affinity_allows = || affinity_by_node || affinity.matches(&"".into(), &class.labels);
            by_class.iter().all(|key| class.labels.contains_key(*key))
                && (!honors_affinity || affinity_allows())
                && (!constraint.honors_node_taints
                    || class.taints.iter().all(|taint| !taint.forbids() || tolerated(taint)))
        };
        let mut nodes = Self {
            snapshot,
            constraint,
            shape,
            classes: (0_u32..).zip(0..classes.len()).map(|(number, _)| counts_class(number)).collect(),
            keys_by_node: by_node.into_iter().filter(|key| !is_own_name(snapshot, key)).collect(),
            affinity_by_node,
            domains: 0,
        };
        nodes.domains = nodes.count_domains();
        nodes
    }

    fn count_domains(&self) -> usize {
        let key = &self.constraint.topology_key;
        let all = 0..self.snapshot.states().len();
        if is_own_name(self.snapshot, key) {
            return all.filter(|index| self.contains(*index)).count();
        }
        let domains: BTreeSet<&Str> = if self.is_by_class() {
            let mut used = vec![false; self.classes.len()];
            for node in self.snapshot.packed_nodes() {
                used[node.class as usize] = true;
            }
            let classes = (0_u32..).zip(used.iter().zip(&self.classes));
            let counted = classes.filter(|(_, (used, counted))| **used && **counted);
            counted.filter_map(|(class, _)| self.snapshot.classes().class(class)?.labels.get(key)).collect()
        } else {
            all.filter_map(|index| self.domain(index)).collect()
        };
        domains.len()
    }

    /// Whether the class of a node decides.
    fn is_by_class(&self) -> bool {
        self.keys_by_node.is_empty()
            && !self.affinity_by_node
            && !self.snapshot.classes().is_node_specific(&self.constraint.topology_key)
    }

    fn contains(&self, index: usize) -> bool {
        let of_node = |node: &Node| {
            self.keys_by_node.iter().all(|key| node.labels.contains_key(*key))
                && (!self.affinity_by_node || self.shape.node_affinity.matches(&node.name, &node.labels))
        };
        let is_plain = self.keys_by_node.is_empty() && !self.affinity_by_node;
        self.classes[self.snapshot.packed_nodes()[index].class as usize]
            && (is_plain || of_node(&self.snapshot.states()[index].node))
    }

    /// The domain of a node, if the constraint counts the node.
    fn domain(&self, index: usize) -> Option<&'a Str> {
        if !self.contains(index) {
            return None;
        }
        self.snapshot.states()[index].node.labels.get(&self.constraint.topology_key)
    }
}

/// Whether the value of this label is the name of the node on every node.
fn is_own_name(snapshot: &Snapshot, key: &str) -> bool {
    snapshot.classes().nodes_with_own_name(key) as usize == snapshot.states().len()
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

/// Whether a spread constraint counts pods with these labels. One with an empty selector counts none.
fn counts(constraint: &SpreadConstraint, labels: &PodLabels) -> bool {
    constraint.selector != LabelSelector::All(Vec::new()) && constraint.matches(labels)
}

/// Whether a pod with these labels on the node would exceed the skew of a constraint beside the pods that it
/// counts, in this number of domains.
fn exceeds_skew(
    constraint: &SpreadConstraint,
    pods: &PodsByDomain<'_>,
    domains: usize,
    node: &Node,
    labels: &PodLabels,
) -> bool {
    let Some(here) = node.labels.get(&constraint.topology_key) else { return true };
    let occupied = || pods.values().copied().filter(|pods| *pods > 0);
    let is_zero = domains < constraint.min_domains as usize || occupied().count() < domains;
    let smallest = if is_zero { 0 } else { occupied().min().unwrap_or(0) };
    let with_itself = pods.get(here).copied().unwrap_or(0) + u32::from(constraint.matches(labels));
    with_itself > smallest + constraint.max_skew
}
