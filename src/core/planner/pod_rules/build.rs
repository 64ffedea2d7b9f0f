//! Builds the rules of a gang: which counters matter, and their values before the gang is placed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::domains::{DomainCounts, NO_DOMAIN, PodCounts, TopologyDomains, domains_of};
use super::{CountedPods, GangPodRules, PodCounter, RuleProfile, SpreadRule};
use crate::objects::{LabelSelector, PodLabels};
use crate::planner::overlay::SnapshotOverlay;
use crate::planner::requirements::selects_by_node;
use crate::planner::types::{PlanningRequest, WaitingMember};
use crate::shape::{PodRules, PodTerm, Shape, SpreadConstraint};
use crate::snapshot::{Charge, NodeClass, PodCount, Snapshot};

/// A pod as rules see it.
struct RulePod<'p> {
    labels: &'p PodLabels,
    rules: Option<&'p PodRules>,
    terminating: bool,
}

impl<'p> RulePod<'p> {
    fn of_member(member: &'p WaitingMember) -> Self {
        Self { labels: &member.labels, rules: member.shape.pod_rules.as_deref(), terminating: false }
    }

    fn of_charge(charge: &'p Charge) -> Self {
        let rules = charge.shape.pod_rules.as_deref();
        Self { labels: &charge.labels, rules, terminating: charge.terminating }
    }
}

/// Whether a term of a member selects a pod.
fn own_term_matches(term: &PodTerm, labels: &PodLabels, snapshot: &Snapshot) -> bool {
    term.matches_for_owner(labels, |key| snapshot.namespace_label(labels.namespace(), key))
}

/// Whether a term of another pod selects a member.
fn term_matches(term: &PodTerm, labels: &PodLabels, snapshot: &Snapshot) -> bool {
    term.matches(labels, |key| snapshot.namespace_label(labels.namespace(), key))
}

impl CountedPods<'_> {
    fn counts(&self, pod: &RulePod<'_>, snapshot: &Snapshot) -> bool {
        match self {
            Self::MatchingAll(terms) => terms.iter().all(|term| own_term_matches(term, pod.labels, snapshot)),
            Self::WithAntiAffinity(term) => {
                pod.rules.is_some_and(|rules| rules.anti_affinity.iter().any(|other| **other == **term))
            }
            Self::Spread(constraint) => {
                !pod.terminating && !constraint.selector.is_everything() && constraint.matches(pod.labels)
            }
        }
    }
}

/// Collects topologies and counters.
struct RulesBuilder<'a, 'o> {
    overlay: &'o SnapshotOverlay<'a>,
    topology_numbers: BTreeMap<Option<&'a str>, usize>,
    topologies: Vec<TopologyDomains>,
    counters: Vec<PodCounter<'a>>,
    /// The counter of each anti-affinity term that pods have.
    avoided: BTreeMap<&'a PodTerm, usize>,
    shared_domains: BTreeSet<usize>,
}

/// The counters of the rules of one shape.
#[derive(Default)]
struct ShapeCounters {
    affinity: Vec<usize>,
    anti_affinity: Vec<usize>,
    spread: Vec<usize>,
    /// Counters by node, for spread constraints under a pin.
    pinned: Vec<(usize, u32)>,
}

impl<'a> RulesBuilder<'a, '_> {
    /// The number of a topology key; `None` is the node itself.
    fn topology(&mut self, key: Option<&'a str>) -> usize {
        if let Some(number) = self.topology_numbers.get(&key) {
            return *number;
        }
        let snapshot = self.overlay.snapshot();
        self.topologies.push(match key {
            Some(key) => domains_of(snapshot, key),
            None => TopologyDomains::of_nodes(snapshot),
        });
        self.topology_numbers.insert(key, self.topologies.len() - 1);
        self.topologies.len() - 1
    }

    fn counter(
        &mut self,
        counted: CountedPods<'a>,
        key: Option<&'a str>,
        eligible: Option<Arc<Vec<bool>>>,
    ) -> usize {
        let topology = self.topology(key);
        self.counters.push(PodCounter { counted, topology, eligible });
        self.counters.len() - 1
    }

    fn add_shape(&mut self, shape: &'a Shape) -> ShapeCounters {
        let mut counters = ShapeCounters::default();
        let Some(rules) = &shape.pod_rules else { return counters };
        let all: Vec<&PodTerm> = rules.affinity.iter().map(|term| &**term).collect();
        for term in &rules.affinity {
            let counted = CountedPods::MatchingAll(all.clone());
            counters.affinity.push(self.counter(counted, Some(&term.topology_key), None));
        }
        for term in &rules.anti_affinity {
            let counted = CountedPods::MatchingAll(vec![term]);
            counters.anti_affinity.push(self.counter(counted, Some(&term.topology_key), None));
        }
        for constraint in &rules.spread {
            let eligible = Some(Arc::new(self.eligible_nodes(shape, &rules.spread, constraint)));
            let counted = CountedPods::Spread(constraint);
            counters.spread.push(self.counter(counted, Some(&constraint.topology_key), eligible.clone()));
            // A share is pinned always. Its node is then the only domain, and counts as one too few.
            if shape.share.is_some() && constraint.honors_node_affinity && constraint.min_domains > 1 {
                let counted = CountedPods::Spread(constraint);
                let counter = self.counter(counted, None, eligible);
                counters.pinned.push((counter, constraint.max_skew));
            }
        }
        counters
    }

    /// The nodes that a constraint of a shape counts.
    fn eligible_nodes(
        &self,
        shape: &Shape,
        all: &[SpreadConstraint],
        constraint: &SpreadConstraint,
    ) -> Vec<bool> {
        let snapshot = self.overlay.snapshot();
        let classes = snapshot.classes();
        // What node classes do not have is evaluated for each node, unless every node has it.
        let is_everywhere = |key: &str| classes.nodes_with_own_name(key) as usize == snapshot.states().len();
        let (by_node, by_class): (Vec<&str>, Vec<&str>) =
            all.iter().map(|c| &*c.topology_key).partition(|key| classes.is_node_specific(key));
        let by_node: Vec<&str> = by_node.into_iter().filter(|key| !is_everywhere(key)).collect();
        let selects_by_node = constraint.honors_node_affinity
            && selects_by_node(&shape.node_affinity, |key| classes.is_node_specific(key));
        let is_eligible_class = |class: &NodeClass| {
            let tolerated = |taint| shape.tolerations.iter().any(|t| t.tolerates(taint));
            let affinity_allows =
                || selects_by_node || shape.node_affinity.matches(&"".into(), &class.labels);
            by_class.iter().all(|key| class.labels.contains_key(*key))
                && (!constraint.honors_node_affinity || affinity_allows())
                && (!constraint.honors_node_taints
                    || class.taints.iter().all(|taint| !taint.forbids() || tolerated(taint)))
        };
        let of_class: Vec<bool> = (0_u32..)
            .zip(0..classes.len())
            .map(|(number, _)| classes.class(number).is_some_and(is_eligible_class))
            .collect();
        let mut eligible: Vec<bool> =
            snapshot.packed_nodes().iter().map(|node| of_class[node.class as usize]).collect();
        if selects_by_node || !by_node.is_empty() {
            for (eligible, state) in eligible.iter_mut().zip(snapshot.states()).filter(|(e, _)| **e) {
                let node = &state.node;
                *eligible = by_node.iter().all(|key| node.labels.contains_key(*key))
                    && (!selects_by_node || shape.node_affinity.matches(&node.name, &node.labels));
            }
        }
        eligible
    }

    /// Adds the anti-affinity terms of other pods and of members that match any of these pods.
    fn add_avoided(&mut self, request: &'a PlanningRequest, labels: &BTreeSet<&PodLabels>) {
        let overlay = self.overlay;
        let snapshot = overlay.snapshot();
        let charged = snapshot.pod_index().anti_affinity().map(|(term, _)| &**term);
        let members = overlay.planned().iter().map(|(_, member)| *member).chain(&request.members);
        let of_members = members
            .filter_map(|member| member.shape.pod_rules.as_ref())
            .flat_map(|rules| &rules.anti_affinity)
            .map(|term| &**term);
        let terms: BTreeSet<&'a PodTerm> = charged.chain(of_members).collect();
        for term in terms {
            if labels.iter().any(|labels| term_matches(term, labels, snapshot)) {
                let counter =
                    self.counter(CountedPods::WithAntiAffinity(term), Some(&term.topology_key), None);
                self.avoided.insert(term, counter);
            }
        }
    }

    fn profile(&mut self, member: &WaitingMember, counters: &ShapeCounters) -> RuleProfile {
        let snapshot = self.overlay.snapshot();
        let pod = RulePod::of_member(member);
        let mut profile = RuleProfile {
            affinity: counters.affinity.clone(),
            anti_affinity: counters.anti_affinity.clone(),
            ..RuleProfile::default()
        };
        if let Some(rules) = pod.rules {
            let own = |term: &Arc<PodTerm>| own_term_matches(term, &member.labels, snapshot);
            profile.may_be_first = rules.affinity.iter().all(own);
            for (constraint, counter) in rules.spread.iter().zip(&counters.spread) {
                profile.spread.push(SpreadRule {
                    counter: *counter,
                    max_skew: constraint.max_skew,
                    min_domains: constraint.min_domains,
                    selects_itself: u32::from(constraint.matches(&member.labels)),
                });
            }
            for (counter, max_skew) in &counters.pinned {
                let itself = match &self.counters[*counter].counted {
                    CountedPods::Spread(constraint) => u32::from(constraint.matches(&member.labels)),
                    _ => 0,
                };
                profile.pinned.push((*counter, max_skew - itself));
            }
        }
        let avoided = self.avoided.iter();
        profile.avoided = avoided
            .filter(|(term, _)| term_matches(term, &member.labels, snapshot))
            .map(|(_, counter)| *counter)
            .collect();
        profile.adds = (0..self.counters.len())
            .filter(|counter| self.counters[*counter].counted.counts(&pod, snapshot))
            .collect();
        profile
    }

    /// The counters of the charged pods and of the members planned earlier in this round.
    fn initial_counts(&self) -> PodCounts {
        let snapshot = self.overlay.snapshot();
        let mut counts = PodCounts::default();
        for counter in &self.counters {
            let topology = &self.topologies[counter.topology];
            let mut by_domain = vec![0_u32; topology.nodes.len()];
            let mut is_counted = Vec::new();
            if let Some(eligible) = &counter.eligible {
                is_counted = vec![false; topology.nodes.len()];
                for (domain, eligible) in topology.by_node.iter().zip(&**eligible) {
                    if *eligible && *domain != NO_DOMAIN {
                        is_counted[*domain as usize] = true;
                    }
                }
            }
            let mut add = |node: usize, pods: u32| {
                let domain = counter.domain(topology, node);
                if domain != NO_DOMAIN {
                    by_domain[domain as usize] += pods;
                }
            };
            count_charged(&counter.counted, snapshot, &mut add);
            for (node, member) in self.overlay.planned() {
                if counter.counted.counts(&RulePod::of_member(member), snapshot) {
                    add(*node as usize, 1);
                }
            }
            for (node, charge) in self.overlay.released() {
                if counter.counted.counts(&RulePod::of_charge(charge), snapshot) {
                    let domain = counter.domain(topology, *node as usize);
                    if domain != NO_DOMAIN {
                        let count = &mut by_domain[domain as usize];
                        *count = count.saturating_sub(1);
                    }
                }
            }
            let total = by_domain.iter().map(|pods| u64::from(*pods)).sum();
            let domains = is_counted.iter().filter(|counted| **counted).count();
            let mut value = DomainCounts {
                by_domain,
                is_counted: Arc::new(is_counted),
                total,
                smallest: (0, 0),
                domains: u32::try_from(domains).unwrap_or(u32::MAX),
            };
            value.find_smallest();
            counts.counters.push(value);
        }
        counts
    }
}

/// Calls `add` with the charged pods that a counter counts, by node.
fn count_charged(counted: &CountedPods<'_>, snapshot: &Snapshot, add: &mut impl FnMut(usize, u32)) {
    let index = snapshot.pod_index();
    let mut add_all = |labels: &mut dyn Iterator<Item = (&PodLabels, &BTreeMap<_, PodCount>)>| {
        for (labels, on_nodes) in labels {
            let pod = RulePod { labels, rules: None, terminating: false };
            if !counted.counts(&pod, snapshot) {
                continue;
            }
            for (node, count) in snapshot.positions(on_nodes) {
                let ignored = if matches!(counted, CountedPods::Spread(_)) { count.terminating } else { 0 };
                add(node, count.pods - ignored);
            }
        }
    };
    match counted {
        CountedPods::WithAntiAffinity(term) => {
            for (node, pods) in
                index.anti_affinity_nodes(term).into_iter().flat_map(|n| snapshot.positions(n))
            {
                add(node, *pods);
            }
        }
        CountedPods::Spread(constraint) => add_all(&mut index.in_namespace(&constraint.namespace)),
        CountedPods::MatchingAll(terms) => {
            let named = terms.iter().find(|t| t.namespace_selector == LabelSelector::Nothing);
            match named {
                Some(term) => {
                    for namespace in &term.namespaces {
                        add_all(&mut index.in_namespace(namespace));
                    }
                }
                None => add_all(&mut index.all()),
            }
        }
    }
}

impl<'a> GangPodRules<'a> {
    /// The rules that bear on a gang; `None` when no rule does.
    pub(in crate::planner) fn new(
        request: &'a PlanningRequest,
        overlay: &SnapshotOverlay<'a>,
    ) -> Option<Self> {
        let has_rules = |member: &WaitingMember| member.shape.pod_rules.is_some();
        let others_have_rules = overlay.snapshot().pod_index().anti_affinity().next().is_some()
            || overlay.planned().iter().any(|(_, member)| has_rules(member));
        if !others_have_rules && !request.members.iter().any(has_rules) {
            return None;
        }
        let mut builder = RulesBuilder {
            overlay,
            topology_numbers: BTreeMap::new(),
            topologies: Vec::new(),
            counters: Vec::new(),
            avoided: BTreeMap::new(),
            shared_domains: BTreeSet::new(),
        };
        let labels: BTreeSet<&PodLabels> = request.members.iter().map(|member| &member.labels).collect();
        builder.add_avoided(request, &labels);
        let mut shapes: BTreeMap<&Shape, ShapeCounters> = BTreeMap::new();
        for member in request.members.iter().filter(|member| has_rules(member)) {
            if !shapes.contains_key(&*member.shape) {
                let counters = builder.add_shape(&member.shape);
                shapes.insert(&member.shape, counters);
            }
        }
        if builder.counters.is_empty() {
            return None;
        }
        Some(Self::with_profiles(request, builder, &shapes))
    }

    fn with_profiles(
        request: &'a PlanningRequest,
        mut builder: RulesBuilder<'a, '_>,
        shapes: &BTreeMap<&Shape, ShapeCounters>,
    ) -> Self {
        let none = ShapeCounters::default();
        let mut numbers: BTreeMap<RuleProfile, usize> = BTreeMap::new();
        let mut known: BTreeMap<(&PodLabels, Option<&Shape>), usize> = BTreeMap::new();
        let mut profile_of = Vec::with_capacity(request.members.len());
        for member in &request.members {
            let shape = member.shape.pod_rules.is_some().then_some(&*member.shape);
            let number = known.entry((&member.labels, shape)).or_insert_with(|| {
                let counters = shape.and_then(|shape| shapes.get(shape)).unwrap_or(&none);
                let profile = builder.profile(member, counters);
                let next = numbers.len();
                *numbers.entry(profile).or_insert(next)
            });
            profile_of.push(*number);
        }
        let mut profiles: Vec<(usize, RuleProfile)> =
            numbers.into_iter().map(|(profile, number)| (number, profile)).collect();
        profiles.sort_by_key(|(number, _)| *number);
        let profiles: Vec<RuleProfile> = profiles.into_iter().map(|(_, profile)| profile).collect();
        let adds: BTreeSet<usize> = profiles.iter().flat_map(|profile| profile.adds.clone()).collect();
        for counter in profiles.iter().flat_map(|profile| &profile.affinity) {
            if adds.contains(counter) {
                builder.shared_domains.insert(builder.counters[*counter].topology);
            }
        }
        let initial = builder.initial_counts();
        Self {
            topologies: builder.topologies,
            counters: builder.counters,
            profiles,
            profile_of,
            initial,
            shared_domains: builder.shared_domains.into_iter().collect(),
        }
    }
}
