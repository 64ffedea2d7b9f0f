//! Places a gang whose members have rules about other pods, or are subject to those of other pods.
//!
//! Greedy first: each member goes to the best node that the rules allow at its turn, and members that no node
//! allows are tried again after others are placed. Members with affinity to each other are tried in one
//! domain after the other, the smallest first. Where greedy does not place all members, a search within a
//! step limit tries every placement.

use std::collections::{BTreeMap, BTreeSet};

use super::attempt::{PlacementAttempt, TentativeAssignment};
use super::candidates::{ResolvedShapes, score};
use super::overlay::SnapshotOverlay;
use super::pod_rules::{GangPodRules, PodCounts};
use super::proximity::nodes_by_distance;
use super::requirements::{CardOrder, NodeScore};
use super::search::{MAX_SEARCH_STEPS, MAX_SEARCHED_MEMBERS, card_choices, is_same_state};
use super::tie_break::TieBreak;

/// Upper bound of domains that are tried for members with affinity to each other.
const MAX_TRIED_DOMAINS: usize = 4096;

/// How a greedy attempt chooses among the nodes that the rules allow.
#[derive(Clone, Copy)]
struct GreedyChoice {
    /// The node whose domains have the fewest counted pods, before the best score.
    spreads_evenly: bool,
    cards: CardOrder,
}

/// A node in the order of preference: distance to the gang, score, tie-break, node, version.
type PreferredNode = (usize, NodeScore, u64, u32, u32);

/// The state of one greedy attempt.
struct GreedyPlacement<'s, 'a> {
    attempt: &'s PlacementAttempt<'a>,
    rules: &'s GangPodRules<'a>,
    shapes: &'s ResolvedShapes<'a>,
    overlay: &'s mut SnapshotOverlay<'a>,
    tie_break: TieBreak,
    choice: GreedyChoice,
    /// Distance to the gang's nodes by node; a node that is missing is farthest.
    distances: &'s BTreeMap<u32, usize>,
    counts: PodCounts,
    /// By shape; built when the first member of the shape is placed. Entries of modified nodes are outdated.
    preferred: Vec<Option<BTreeSet<PreferredNode>>>,
    placed: Vec<TentativeAssignment>,
}

impl GreedyPlacement<'_, '_> {
    fn preferred_node(&self, shape: usize, node: u32) -> Option<PreferredNode> {
        let need = self.shapes.need(self.attempt.shapes[shape].need);
        let index = node as usize;
        let distance = self.distances.get(&node).copied().unwrap_or(usize::MAX);
        let score = score(need, self.overlay, index)?;
        Some((distance, score, self.tie_break.key(node), node, self.overlay.version(index)))
    }

    /// The best node that has capacity and that the rules allow now.
    fn best_node(&mut self, shape: usize) -> Option<u32> {
        if self.preferred[shape].is_none() {
            let nodes = self.attempt.shapes[shape].nodes.iter();
            let ranked = nodes.filter_map(|node| self.preferred_node(shape, *node)).collect();
            self.preferred[shape] = Some(ranked);
        }
        let profile = self.attempt.shapes[shape].profile;
        let allowed = |(_, _, _, node, version): &&PreferredNode| {
            *version == self.overlay.version(*node as usize)
                && self.rules.check(&self.counts, profile, *node).is_ok()
        };
        let mut allowed = self.preferred[shape].iter().flatten().filter(allowed);
        let best = if self.choice.spreads_evenly {
            allowed.min_by_key(|preferred| {
                (self.rules.crowding(&self.counts, profile, preferred.3), **preferred)
            })
        } else {
            allowed.next()
        };
        best.map(|(_, _, _, node, _)| *node)
    }

    /// Places one member of a shape; false when no node is possible now.
    fn place_member(&mut self, shape: usize, member: usize) -> bool {
        let Some(node) = self.best_node(shape) else { return false };
        let need = self.shapes.need(self.attempt.shapes[shape].need);
        let index = node as usize;
        let free = self.overlay.free_resources(index);
        let cards = need.choose_cards(&self.overlay.state(index).node, free, self.choice.cards);
        self.overlay.assign(index, need, &cards);
        self.rules.add(&mut self.counts, self.attempt.shapes[shape].profile, node);
        self.placed.push(TentativeAssignment { member, shape, node, cards });
        for other in 0..self.preferred.len() {
            if self.preferred[other].is_some()
                && let Some(preferred) = self.preferred_node(other, node)
                && let Some(nodes) = &mut self.preferred[other]
            {
                nodes.insert(preferred);
            }
        }
        true
    }

    /// Places members until no more can be placed.
    fn place_all(&mut self) {
        let attempt = self.attempt;
        let mut next = vec![0; attempt.kinds.len()];
        loop {
            let before = self.placed.len();
            for (kind, next) in attempt.kinds.iter().zip(&mut next) {
                while let Some(member) = kind.members.get(*next) {
                    if !self.place_member(kind.shape, *member) {
                        break;
                    }
                    *next += 1;
                }
            }
            if self.placed.len() == before || self.placed.len() == attempt.waiting() {
                return;
            }
        }
    }

    /// Removes the members that are infeasible beside the ones placed after them.
    fn remove_invalid(&mut self) {
        loop {
            let placed = self.attempt.by_profile(&self.placed);
            let invalid = self.rules.invalid_members(&mut self.counts, &placed);
            let Some(last) = invalid.last() else { break };
            let removed = self.placed.remove(*last);
            let shape = &self.attempt.shapes[removed.shape];
            self.overlay.unassign(removed.node as usize, self.shapes.need(shape.need), &removed.cards);
            self.rules.remove(&mut self.counts, shape.profile, removed.node);
        }
    }
}

impl<'a> PlacementAttempt<'a> {
    /// Profile and node of each assignment.
    fn by_profile(&self, placed: &[TentativeAssignment]) -> Vec<(usize, u32)> {
        placed.iter().map(|a| (self.shapes[a.shape].profile, a.node)).collect()
    }

    /// The best placement without regard to the quorum, the best one that meets it or none, and whether the
    /// search reached its step limit. Leaves the overlay as it was.
    pub(super) fn place_by_rules(
        &self,
        rules: &GangPodRules<'a>,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
        steps: u32,
    ) -> (Vec<TentativeAssignment>, Vec<TentativeAssignment>, bool) {
        let nowhere = BTreeMap::new();
        if !self.quorum_met(self.upper_bounds()) {
            let some = self.greedy_by_rules(rules, shapes, overlay, tie_break, &nowhere);
            return (some, Vec::new(), false);
        }
        let in_one_domain = self.place_in_shared_domain(rules, shapes, overlay, tie_break);
        let best_effort = in_one_domain
            .unwrap_or_else(|| self.greedy_by_rules(rules, shapes, overlay, tie_break, &nowhere));
        let most = self.max_alone().min(self.waiting() as u64);
        let enough = self.quorum_met(self.count_by_kind(&best_effort));
        if enough && best_effort.len() as u64 == most {
            return (best_effort.clone(), best_effort, false);
        }
        let known = if enough { best_effort.clone() } else { Vec::new() };
        let (best, exhausted) = self.search_by_rules(rules, shapes, overlay, known, most, steps);
        (best_effort, best, exhausted)
    }

    /// Places the members of a started gang: as near to it as possible, and as many as possible. Leaves the
    /// overlay as it was.
    pub(super) fn place_individually_by_rules(
        &self,
        rules: &GangPodRules<'a>,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
    ) -> Vec<TentativeAssignment> {
        let mut distances = BTreeMap::new();
        if !self.request.gang_nodes.is_empty() {
            let groups = nodes_by_distance(overlay.snapshot(), &self.request.gang_nodes);
            for (distance, nodes) in groups.iter().enumerate() {
                distances.extend(nodes.iter().map(|node| (*node, distance)));
            }
        }
        let mut placed = self.greedy_by_rules(rules, shapes, overlay, tie_break, &distances);
        if placed.is_empty() && self.quorum_met(std::iter::empty()) {
            let most = self.max_alone().min(self.waiting() as u64);
            (placed, _) = self.search_by_rules(rules, shapes, overlay, placed, most, MAX_SEARCH_STEPS);
        }
        placed.sort_by_key(|assignment| assignment.member);
        placed
    }

    /// Places all members in one domain of a topology key by which they have affinity to each other; `None`
    /// when there is no such key or domain.
    fn place_in_shared_domain(
        &self,
        rules: &GangPodRules<'a>,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
    ) -> Option<Vec<TentativeAssignment>> {
        let mut nodes: Vec<u32> = self.shapes.iter().flat_map(|shape| shape.nodes.iter().copied()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut domains: Vec<Vec<u32>> = rules.shared_domains(&nodes).into_iter().flatten().collect();
        domains.sort_by_key(Vec::len);
        for nodes in domains.iter().take(MAX_TRIED_DOMAINS) {
            let Some(narrowed) = self.within(nodes, shapes, overlay, tie_break) else { continue };
            let placed = narrowed.greedy_by_rules(rules, shapes, overlay, tie_break, &BTreeMap::new());
            if placed.len() == self.waiting() {
                return Some(placed);
            }
        }
        None
    }

    /// The best of several greedy placements. Leaves the overlay as it was.
    fn greedy_by_rules(
        &self,
        rules: &GangPodRules<'a>,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        tie_break: TieBreak,
        distances: &BTreeMap<u32, usize>,
    ) -> Vec<TentativeAssignment> {
        let choices = [
            GreedyChoice { spreads_evenly: false, cards: CardOrder::Tightest },
            GreedyChoice { spreads_evenly: true, cards: CardOrder::Tightest },
            GreedyChoice { spreads_evenly: false, cards: CardOrder::Loosest },
        ];
        let mut best: Vec<TentativeAssignment> = Vec::new();
        for choice in choices {
            let mut greedy = GreedyPlacement {
                attempt: self,
                rules,
                shapes,
                overlay: &mut *overlay,
                tie_break,
                choice,
                distances,
                counts: rules.initial(),
                preferred: vec![None; self.shapes.len()],
                placed: Vec::new(),
            };
            greedy.place_all();
            greedy.remove_invalid();
            let placed = greedy.placed;
            self.unassign_all(&placed, shapes, overlay);
            if placed.len() > best.len() && rules.can_bind(&self.by_profile(&placed)) {
                best = placed;
            }
            if best.len() == self.waiting() {
                break;
            }
        }
        best
    }

    /// Searches for the most members that can be placed at once and meet the quorum. `known` meets it or is
    /// empty. Leaves the overlay as it was.
    fn search_by_rules(
        &self,
        rules: &GangPodRules<'a>,
        shapes: &ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        known: Vec<TentativeAssignment>,
        most: u64,
        steps: u32,
    ) -> (Vec<TentativeAssignment>, bool) {
        if self.waiting() > MAX_SEARCHED_MEMBERS {
            let exhausted = (known.len() as u64) < most;
            return (known, exhausted);
        }
        let by_name = self.shapes.iter().any(|shape| shapes.need(shape.need).selects_by_node);
        let mut search = RuleSearch {
            attempt: self,
            rules,
            shapes,
            overlay,
            counts: rules.initial(),
            most,
            best: known,
            placed: Vec::new(),
            number: vec![0; self.kinds.len()],
            steps,
            interchangeable: !by_name,
        };
        search.place_kind(0);
        let exhausted = search.steps == 0 && (search.best.len() as u64) < most;
        (search.best, exhausted)
    }
}

/// Tries every placement. Members of one kind are interchangeable, so they are assigned in the order of
/// nodes.
struct RuleSearch<'s, 'a> {
    attempt: &'s PlacementAttempt<'a>,
    rules: &'s GangPodRules<'a>,
    shapes: &'s ResolvedShapes<'a>,
    overlay: &'s mut SnapshotOverlay<'a>,
    counts: PodCounts,
    most: u64,
    best: Vec<TentativeAssignment>,
    placed: Vec<TentativeAssignment>,
    /// Number of placed members by kind.
    number: Vec<usize>,
    /// Steps left.
    steps: u32,
    interchangeable: bool,
}

impl RuleSearch<'_, '_> {
    fn is_done(&self) -> bool {
        self.steps == 0 || self.best.len() as u64 == self.most
    }

    fn step(&mut self, cost: usize) {
        self.steps = self.steps.saturating_sub(u32::try_from(cost).unwrap_or(u32::MAX));
    }

    /// Places the members of a kind and of the kinds after it. After the last kind, keeps a valid placement
    /// if it is the best.
    fn place_kind(&mut self, kind: usize) {
        let attempt = self.attempt;
        let remaining: usize = attempt.kinds[kind..].iter().map(|kind| kind.members.len()).sum();
        if self.placed.len() + remaining <= self.best.len() {
            return;
        }
        if kind < attempt.kinds.len() {
            self.place_member(kind, 0, None);
            return;
        }
        self.step(self.placed.len());
        let counts = self.number.iter().map(|number| *number as u64).enumerate();
        if attempt.quorum_met(counts) && self.rules.is_valid(&attempt.by_profile(&self.placed)) {
            self.best.clone_from(&self.placed);
        }
    }

    /// Tries every node for the next member of a kind, from the node of the previous member on; then leaves
    /// the member and the rest of its kind out.
    fn place_member(&mut self, kind: usize, from: usize, last_card: Option<u32>) {
        let attempt = self.attempt;
        let this = &attempt.kinds[kind];
        let shape = &attempt.shapes[this.shape];
        if let Some(member) = this.members.get(self.number[kind]) {
            let need = self.shapes.need(shape.need);
            let mut tried: Vec<u32> = Vec::new();
            for (position, node) in shape.nodes.iter().enumerate().skip(from) {
                self.step(1);
                if self.is_done() {
                    return;
                }
                let index = *node as usize;
                let state = self.overlay.state(index);
                if need.fits(&state.node, self.overlay.free_resources(index)).is_err()
                    || self.rules.is_avoided(&self.counts, shape.profile, *node)
                {
                    continue;
                }
                let first_on_node = position > from || last_card.is_none();
                if self.interchangeable && first_on_node {
                    self.step(tried.len() / 8);
                    let same = |other: &u32| {
                        is_same_state(self.overlay, *other as usize, index)
                            && self.rules.is_same_for_rules(&self.counts, *other, *node)
                    };
                    if tried.iter().any(same) {
                        continue;
                    }
                    tried.push(*node);
                }
                let card_from = if first_on_node { None } else { last_card };
                for cards in card_choices(need, state, self.overlay, index, card_from) {
                    self.step(1);
                    if self.is_done() {
                        return;
                    }
                    self.overlay.assign(index, need, &cards);
                    self.rules.add(&mut self.counts, shape.profile, *node);
                    let first_card = cards.first().copied().or(Some(0));
                    self.placed.push(TentativeAssignment {
                        member: *member,
                        shape: this.shape,
                        node: *node,
                        cards: cards.clone(),
                    });
                    self.number[kind] += 1;
                    self.place_member(kind, position, first_card);
                    self.number[kind] -= 1;
                    self.placed.pop();
                    self.rules.remove(&mut self.counts, shape.profile, *node);
                    self.overlay.unassign(index, need, &cards);
                }
            }
        }
        if !self.is_done() {
            self.place_kind(kind + 1);
        }
    }
}
