//! Whether a placement of a gang is valid.

use super::domains::PodCounts;
use super::{GangPodRules, NO_DOMAIN};

impl GangPodRules<'_> {
    /// Whether a placement, as profile and node of each member, is valid: see the module's doc.
    pub(in crate::planner) fn is_valid(&self, placed: &[(usize, u32)]) -> bool {
        let mut counts = self.initial();
        for (profile, node) in placed {
            self.add(&mut counts, *profile, *node);
        }
        self.invalid_members(&mut counts, placed).is_empty() && self.can_bind(placed)
    }

    /// The members, by index, that are infeasible beside all the others, which `counts` includes.
    pub(in crate::planner) fn invalid_members(
        &self,
        counts: &mut PodCounts,
        placed: &[(usize, u32)],
    ) -> Vec<usize> {
        let mut invalid = Vec::new();
        for (index, (profile, node)) in placed.iter().enumerate() {
            self.remove(counts, *profile, *node);
            if self.check(counts, *profile, *node).is_err() {
                invalid.push(index);
            }
            self.add(counts, *profile, *node);
        }
        invalid
    }

    /// Whether members can bind one after the other: feasible members bind until none is left.
    pub(in crate::planner) fn can_bind(&self, placed: &[(usize, u32)]) -> bool {
        let mut all = self.initial();
        for (profile, node) in placed {
            self.add(&mut all, *profile, *node);
        }
        let mut counts = self.initial();
        let mut waiting = placed.to_vec();
        while !waiting.is_empty() {
            let before = waiting.len();
            waiting.retain(|(profile, node)| {
                let rules = &self.profiles[*profile];
                let has_affinity = self.check_affinity(&counts, rules, *node).is_ok()
                    && (self.has_near_pods(&counts, rules, *node) || self.may_be_first(&all, rules, *node));
                let waits = !has_affinity
                    || self.check_spread(&counts, rules, *node).is_err()
                    || self.check_anti_affinity(&counts, rules, *node).is_err();
                if !waits {
                    self.add(&mut counts, *profile, *node);
                }
                waits
            });
            if waiting.len() == before {
                return false;
            }
        }
        true
    }

    /// Whether two nodes are interchangeable for every rule: the same domains, or domains of one node each
    /// with equal counts.
    pub(in crate::planner) fn is_same_for_rules(&self, counts: &PodCounts, a: u32, b: u32) -> bool {
        self.counters.iter().zip(&counts.counters).all(|(counter, count)| {
            let topology = &self.topologies[counter.topology];
            let (in_a, in_b) = (topology.by_node[a as usize], topology.by_node[b as usize]);
            let eligible = |node: u32| counter.eligible.as_ref().is_none_or(|e| e[node as usize]);
            if eligible(a) != eligible(b) {
                return false;
            }
            if in_a == in_b {
                return true;
            }
            let alone = |domain: u32| topology.nodes[domain as usize] == 1;
            in_a != NO_DOMAIN
                && in_b != NO_DOMAIN
                && count.by_domain[in_a as usize] == count.by_domain[in_b as usize]
                && alone(in_a)
                && alone(in_b)
        })
    }
}
