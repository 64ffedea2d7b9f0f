//! Rules about other pods for the members of one gang: kube-scheduler's InterPodAffinity and
//! PodTopologySpread (1.36), as counters by topology domain.
//!
//! [`GangPodRules`] is built once per gang: which counters matter, their values before the gang is placed,
//! and which of them each kind of member reads and changes. `None` for a gang that no rule can touch, which
//! is placed without this module. [`PodCounts`] are the counters while members are placed.
//!
//! A placement is valid when every member is feasible beside all the others, and when members can bind one
//! after the other. The scheduler binds in any order, so a member may be the first of a group with affinity
//! to itself only where every member of the group is in its domain: it is feasible then in any order.

mod build;
mod domains;
mod validity;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::requirements::InfeasibleReason;
use crate::shape::{PodTerm, SpreadConstraint};

pub(super) use domains::PodCounts;
use domains::{NO_DOMAIN, TopologyDomains};

/// Which pods a counter counts.
#[derive(Debug)]
enum CountedPods<'a> {
    /// Pods that match all of these terms.
    MatchingAll(Vec<&'a PodTerm>),
    /// Pods that have this required anti-affinity term.
    WithAntiAffinity(&'a PodTerm),
    /// Pods that a spread constraint selects, on the nodes that it counts.
    Spread(&'a SpreadConstraint),
}

/// A number of pods by domain.
#[derive(Debug)]
struct PodCounter<'a> {
    counted: CountedPods<'a>,
    /// Index into [`GangPodRules::topologies`].
    topology: usize,
    /// Nodes that a spread constraint counts; `None` for all nodes.
    eligible: Option<Arc<Vec<bool>>>,
}

/// A spread constraint of a member.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SpreadRule {
    counter: usize,
    max_skew: u32,
    min_domains: u32,
    /// The member is selected by its own constraint.
    selects_itself: u32,
}

/// What the rules mean for one kind of member.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct RuleProfile {
    /// Counters of which the node's domain needs a pod.
    affinity: Vec<usize>,
    /// The member matches its own affinity terms, so it may be the first such pod.
    may_be_first: bool,
    /// Counters of which the node's domain may have no pod: the member's own anti-affinity.
    anti_affinity: Vec<usize>,
    /// Counters of which the node's domain may have no pod: anti-affinity of other pods.
    avoided: Vec<usize>,
    spread: Vec<SpreadRule>,
    /// Upper bounds of the counted pods on one node, for pinned members: counter, bound without the member.
    pinned: Vec<(usize, u32)>,
    /// Counters that count the member.
    adds: Vec<usize>,
}

/// The rules about other pods that bear on the members of one gang.
#[derive(Debug)]
pub(super) struct GangPodRules<'a> {
    topologies: Vec<TopologyDomains>,
    counters: Vec<PodCounter<'a>>,
    profiles: Vec<RuleProfile>,
    /// Index into `profiles` by member of the request.
    profile_of: Vec<usize>,
    /// The counters before the gang is placed.
    initial: PodCounts,
    /// Topology keys of affinity to pods that may be members, as indexes into `topologies`.
    shared_domains: Vec<usize>,
}

impl PodCounter<'_> {
    /// The domain in which a pod on this node is counted, or [`NO_DOMAIN`].
    fn domain(&self, topology: &TopologyDomains, node: usize) -> u32 {
        match &self.eligible {
            Some(eligible) if !eligible[node] => NO_DOMAIN,
            _ => topology.by_node[node],
        }
    }
}

impl<'a> GangPodRules<'a> {
    /// The profile of a member of the request.
    pub(super) fn profile_of(&self, member: usize) -> usize {
        self.profile_of[member]
    }

    /// The counters before the gang is placed.
    pub(super) fn initial(&self) -> PodCounts {
        self.initial.clone()
    }

    /// For each topology key by which members have affinity to members: the nodes of every domain among
    /// `nodes`, without nodes that have none.
    pub(super) fn shared_domains(&self, nodes: &[u32]) -> Vec<Vec<Vec<u32>>> {
        let mut all = Vec::new();
        for topology in &self.shared_domains {
            let mut by_domain: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for node in nodes {
                let domain = self.topologies[*topology].by_node[*node as usize];
                if domain != NO_DOMAIN {
                    by_domain.entry(domain).or_default().push(*node);
                }
            }
            all.push(by_domain.into_values().collect());
        }
        all
    }

    /// Checks whether the rules allow a member of this profile on a node beside the counted pods, in the
    /// order of the scheduler's plugins.
    pub(super) fn check(
        &self,
        counts: &PodCounts,
        profile: usize,
        node: u32,
    ) -> Result<(), InfeasibleReason> {
        let profile = &self.profiles[profile];
        self.check_spread(counts, profile, node)?;
        self.check_affinity(counts, profile, node)?;
        self.check_anti_affinity(counts, profile, node)
    }

    /// The reasons of the plugins PodTopologySpread and InterPodAffinity for the first member, before any
    /// member is placed.
    #[cfg(test)]
    pub(super) fn check_alone(&self, node: u32) -> (Option<InfeasibleReason>, Option<InfeasibleReason>) {
        let (counts, profile) = (&self.initial, &self.profiles[self.profile_of[0]]);
        let affinity = self
            .check_affinity(counts, profile, node)
            .and_then(|()| self.check_anti_affinity(counts, profile, node));
        (self.check_spread(counts, profile, node).err(), affinity.err())
    }

    /// Whether the plugin InterPodAffinity skips the first member: it has no terms, and no pod avoids it.
    #[cfg(test)]
    pub(super) fn skips_affinity(&self) -> bool {
        let profile = &self.profiles[self.profile_of[0]];
        profile.affinity.is_empty()
            && profile.anti_affinity.is_empty()
            && profile.avoided.iter().all(|counter| self.initial.counters[*counter].total == 0)
    }

    fn check_spread(
        &self,
        counts: &PodCounts,
        profile: &RuleProfile,
        node: u32,
    ) -> Result<(), InfeasibleReason> {
        for rule in &profile.spread {
            let topology = &self.topologies[self.counters[rule.counter].topology];
            let domain = topology.by_node[node as usize];
            if domain == NO_DOMAIN {
                return Err(InfeasibleReason::SpreadLabelMissing);
            }
            let count = &counts.counters[rule.counter];
            let smallest = if count.domains < rule.min_domains { 0 } else { count.smallest.0 };
            let with_itself = count.by_domain[domain as usize] + rule.selects_itself;
            if with_itself.saturating_sub(smallest) > rule.max_skew {
                return Err(InfeasibleReason::TopologySpread);
            }
        }
        for (counter, most) in &profile.pinned {
            if counts.counters[*counter].by_domain[node as usize] > *most {
                return Err(InfeasibleReason::TopologySpread);
            }
        }
        Ok(())
    }

    fn check_anti_affinity(
        &self,
        counts: &PodCounts,
        profile: &RuleProfile,
        node: u32,
    ) -> Result<(), InfeasibleReason> {
        let occupied = |counter: &usize| {
            let domain = self.topologies[self.counters[*counter].topology].by_node[node as usize];
            domain != NO_DOMAIN && counts.counters[*counter].by_domain[domain as usize] > 0
        };
        if profile.anti_affinity.iter().any(occupied) {
            return Err(InfeasibleReason::PodAntiAffinity);
        }
        if profile.avoided.iter().any(occupied) {
            return Err(InfeasibleReason::ExistingPodAntiAffinity);
        }
        Ok(())
    }

    fn check_affinity(
        &self,
        counts: &PodCounts,
        profile: &RuleProfile,
        node: u32,
    ) -> Result<(), InfeasibleReason> {
        let is_first =
            || profile.may_be_first && profile.affinity.iter().all(|c| counts.counters[*c].total == 0);
        let has_domain = |counter: &usize| {
            self.topologies[self.counters[*counter].topology].by_node[node as usize] != NO_DOMAIN
        };
        if profile.affinity.iter().all(has_domain)
            && (self.has_near_pods(counts, profile, node) || is_first())
        {
            Ok(())
        } else {
            Err(InfeasibleReason::PodAffinity)
        }
    }

    /// Number of pods that an affinity term counts in the domain of a node.
    fn near_pods(&self, counts: &PodCounts, counter: usize, node: u32) -> u32 {
        let domain = self.topologies[self.counters[counter].topology].by_node[node as usize];
        if domain == NO_DOMAIN { 0 } else { counts.counters[counter].by_domain[domain as usize] }
    }

    fn has_near_pods(&self, counts: &PodCounts, profile: &RuleProfile, node: u32) -> bool {
        profile.affinity.iter().all(|counter| self.near_pods(counts, *counter, node) > 0)
    }

    /// Whether a member matches its own affinity, and all pods that match it are in its domains.
    fn may_be_first(&self, all: &PodCounts, profile: &RuleProfile, node: u32) -> bool {
        let only_here = |c: &usize| u64::from(self.near_pods(all, *c, node)) == all.counters[*c].total;
        profile.may_be_first && profile.affinity.iter().all(only_here)
    }

    /// Whether anti-affinity alone forbids a node. What it forbids, it forbids beside any more pods.
    pub(super) fn is_avoided(&self, counts: &PodCounts, profile: usize, node: u32) -> bool {
        let profile = &self.profiles[profile];
        profile.anti_affinity.iter().chain(&profile.avoided).any(|counter| {
            let domain = self.topologies[self.counters[*counter].topology].by_node[node as usize];
            domain != NO_DOMAIN && counts.counters[*counter].by_domain[domain as usize] > 0
        })
    }

    /// Number of pods that spread constraints of the profile count in the domains of a node: fewer are
    /// better.
    pub(super) fn crowding(&self, counts: &PodCounts, profile: usize, node: u32) -> u32 {
        let spread = self.profiles[profile].spread.iter();
        let count = |rule: &SpreadRule| {
            let domain = self.topologies[self.counters[rule.counter].topology].by_node[node as usize];
            if domain == NO_DOMAIN { 0 } else { counts.counters[rule.counter].by_domain[domain as usize] }
        };
        spread.map(count).sum()
    }

    /// Counts a placed member.
    pub(super) fn add(&self, counts: &mut PodCounts, profile: usize, node: u32) {
        for counter in &self.profiles[profile].adds {
            let known = &self.counters[*counter];
            let domain = known.domain(&self.topologies[known.topology], node as usize);
            if domain != NO_DOMAIN {
                counts.counters[*counter].add(domain, 1);
            }
        }
    }

    /// Undoes [`Self::add`].
    pub(super) fn remove(&self, counts: &mut PodCounts, profile: usize, node: u32) {
        for counter in &self.profiles[profile].adds {
            let known = &self.counters[*counter];
            let domain = known.domain(&self.topologies[known.topology], node as usize);
            if domain != NO_DOMAIN {
                counts.counters[*counter].remove(domain, 1);
            }
        }
    }
}
