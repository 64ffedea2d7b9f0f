//! Explains why members of a gang are unplaced: one message in kube-scheduler's terms with numbers, and
//! counts by reason.
//!
//! One unplaced member stands for all. The survey counts, for that member, the infeasible nodes by reason,
//! and the reason with the greatest weight decides the code, the message and the remedy.

use std::collections::{BTreeMap, BTreeSet};

use super::attempt::{AttemptOutcome, MemberKind, PlacementAttempt};
use super::candidates::ResolvedShapes;
use super::min_resources;
use super::overlay::SnapshotOverlay;
use super::remedy;
use super::report::{Explanation, PlanningOutcome, UnschedulableReason};
use super::requirements::{InfeasibleReason, PodRequirements};
use super::resource_kind::ResourceKind;
use super::shortage::{GangShortage, requested, saturate};
use super::survey::{NodeSurvey, ReasonStats, SurveyedRules};
use super::types::MembersByRole;
use crate::dialect::Quorum;
use crate::model::Reason;
use crate::snapshot::{CardState, SharingMode};

/// The outcome of a gang whose assignments are on the overlay.
pub(super) fn planning_outcome<'a>(
    attempt: &PlacementAttempt<'a>,
    shapes: &ResolvedShapes<'a>,
    overlay: &mut SnapshotOverlay<'a>,
    outcome: &AttemptOutcome,
) -> PlanningOutcome {
    let members = u32::try_from(outcome.assignments.len()).unwrap_or(u32::MAX);
    let unplaced = attempt.waiting() - outcome.assignments.len();
    if members > 0 {
        let unplaced = (unplaced > 0).then(|| explain(attempt, shapes, overlay, outcome));
        return PlanningOutcome::Placed { members, unplaced };
    }
    if unplaced == 0 && attempt.request.quorum.is_satisfied(&attempt.request.active) {
        return PlanningOutcome::Placed { members: 0, unplaced: None };
    }
    PlanningOutcome::Waiting(explain(attempt, shapes, overlay, outcome))
}

/// The member that stands for all unplaced ones.
pub(super) struct UnplacedMember {
    /// Index into the attempt's shapes.
    pub(super) shape: usize,
    /// Index into the request's members.
    pub(super) member: usize,
    /// No node is feasible for it even before any other member is placed.
    pub(super) fits_nowhere: bool,
}

fn explain<'a>(
    attempt: &PlacementAttempt<'a>,
    shapes: &ResolvedShapes<'a>,
    overlay: &mut SnapshotOverlay<'a>,
    outcome: &AttemptOutcome,
) -> Explanation {
    let nodes = u32::try_from(overlay.snapshot().states().len()).unwrap_or(u32::MAX);
    let plain = |reason, message: String, waiting_for: &str, remedy: Option<&str>| Explanation {
        reason,
        message,
        waiting_for: waiting_for.to_owned(),
        remedy: remedy.map(str::to_owned),
        nodes,
        infeasible_nodes: BTreeMap::new(),
    };
    if let Some(message) = missing_members(attempt) {
        return plain(Reason::Gathering, message, "more pods", None);
    }
    if nodes == 0 {
        let message = "the cluster has no nodes".to_owned();
        return plain(Reason::NoNodes, message, "a node", Some("add a node to the cluster"));
    }
    if outcome.below_min_resources {
        let shortages = min_resources::shortages(attempt.request, overlay);
        if let Some(explanation) = min_resources::explain(attempt, shapes, overlay, &shortages) {
            return explanation;
        }
    }
    let diagnosis = unplaced_member(attempt, outcome)
        .and_then(|member| Diagnosis::new(attempt, shapes, overlay, outcome, member));
    match diagnosis {
        Some(diagnosis) => diagnosis.explanation(overlay, nodes),
        None => plain(Reason::SearchExhausted, "no placement was found".to_owned(), "capacity", None),
    }
}

/// The message for a gang with too few members for its quorum, at any capacity; `None` when it has enough.
fn missing_members(attempt: &PlacementAttempt<'_>) -> Option<String> {
    let request = attempt.request;
    let mut counts: MembersByRole = request.active.clone();
    for kind in &attempt.kinds {
        let count = counts.entry(kind.role.clone()).or_default();
        *count = count.saturating_add(u32::try_from(kind.members.len()).unwrap_or(u32::MAX));
    }
    if request.quorum.is_satisfied(&counts) {
        return None;
    }
    let existing: u64 = counts.values().map(|n| u64::from(*n)).sum();
    Some(match &request.quorum {
        Quorum::Count(least) => format!("{existing} of {least} members exist"),
        Quorum::Total { min_members: least, .. } if existing < u64::from(*least) => {
            format!("{existing} of {least} members exist")
        }
        Quorum::Groups { .. } | Quorum::Total { .. } => {
            format!("{existing} members exist, and a subgroup has too few of them")
        }
    })
}

/// A member whose shape fits nowhere, else the first unplaced member.
fn unplaced_member(attempt: &PlacementAttempt<'_>, outcome: &AttemptOutcome) -> Option<UnplacedMember> {
    let placed = if outcome.assignments.is_empty() { &outcome.best_effort } else { &outcome.assignments };
    let placed: BTreeSet<usize> = placed.iter().map(|assignment| assignment.member).collect();
    let first_unplaced = |kind: &MemberKind, fits_nowhere| {
        let member = kind.members.iter().copied().find(|member| !placed.contains(member))?;
        Some(UnplacedMember { shape: kind.shape, member, fits_nowhere })
    };
    let mut fit_nowhere = attempt.kinds.iter().filter(|kind| attempt.shapes[kind.shape].max_alone == 0);
    fit_nowhere
        .find_map(|kind| first_unplaced(kind, true))
        .or_else(|| attempt.kinds.iter().find_map(|kind| first_unplaced(kind, false)))
}

/// The facts about the unplaced member that all texts use.
struct Diagnosis<'e, 'a> {
    attempt: &'e PlacementAttempt<'a>,
    shapes: &'e ResolvedShapes<'a>,
    outcome: &'e AttemptOutcome,
    unplaced: UnplacedMember,
    need: &'e PodRequirements<'a>,
    survey: NodeSurvey,
    /// The main reason of the survey, and the nodes with it.
    reason: InfeasibleReason,
    stats: ReasonStats,
    /// The resource that is short; `None` when the main reason is not about an amount.
    resource: Option<ResourceKind<'a>>,
    shortage: GangShortage,
}

impl<'e, 'a> Diagnosis<'e, 'a> {
    /// A member that fits nowhere is surveyed on the cluster as it is; any other one with the best effort
    /// placed.
    fn new(
        attempt: &'e PlacementAttempt<'a>,
        shapes: &'e ResolvedShapes<'a>,
        overlay: &mut SnapshotOverlay<'a>,
        outcome: &'e AttemptOutcome,
        unplaced: UnplacedMember,
    ) -> Option<Self> {
        let need = shapes.need(attempt.shapes[unplaced.shape].need);
        let with_best_effort = outcome.assignments.is_empty() && !unplaced.fits_nowhere;
        if with_best_effort {
            attempt.assign_all(&outcome.best_effort, shapes, overlay);
        }
        let pod_rules = attempt.pod_rules.as_deref().map(|rules| {
            let mut counts = rules.initial();
            let placed = if with_best_effort { &outcome.best_effort } else { &outcome.assignments };
            for assignment in placed {
                rules.add(&mut counts, rules.profile_of(assignment.member), assignment.node);
            }
            SurveyedRules { rules, counts, profile: rules.profile_of(unplaced.member) }
        });
        let survey = NodeSurvey::new(need, overlay, pod_rules.as_ref());
        if with_best_effort {
            attempt.unassign_all(&outcome.best_effort, shapes, overlay);
        }
        let (reason, stats) = survey.main_reason()?;
        let stats = stats.clone();
        let resource = ResourceKind::of(reason, need);
        let shortage = resource.map_or_else(GangShortage::default, |resource| {
            GangShortage::new(attempt, shapes, overlay, resource)
        });
        Some(Self { attempt, shapes, outcome, unplaced, need, survey, reason, stats, resource, shortage })
    }

    fn explanation(&self, overlay: &SnapshotOverlay<'a>, nodes: u32) -> Explanation {
        let reason = self.reason_code(overlay);
        let never_fits = self.never_fits();
        Explanation {
            reason,
            message: self.message(overlay, nodes, reason),
            waiting_for: self.waiting_for(overlay),
            remedy: remedy::find(
                self.attempt,
                self.shapes,
                overlay,
                self.outcome,
                &self.unplaced,
                &self.survey,
                never_fits,
            ),
            nodes,
            infeasible_nodes: self.infeasible_nodes(),
        }
    }

    /// Whether the member fits only with the best effort not placed.
    fn competes(&self) -> bool {
        self.outcome.assignments.is_empty() && !self.unplaced.fits_nowhere
    }

    /// Whether no node could hold the member even if the node were empty.
    fn never_fits(&self) -> bool {
        self.unplaced.fits_nowhere && self.survey.by_reason.values().all(|stats| stats.usable == 0)
    }

    fn reason_code(&self, overlay: &SnapshotOverlay<'_>) -> Reason {
        if self.outcome.exhausted {
            return Reason::SearchExhausted;
        }
        if self.competes() && self.resource.is_some() && !self.shortage.is_short() {
            return Reason::Fragmented;
        }
        match self.reason {
            // With `sharing: any` every node is a shared node: cards are what is missing.
            InfeasibleReason::CardsUnavailable(CardState::NoCards)
                if overlay.snapshot().sharing() == SharingMode::Any =>
            {
                Reason::InsufficientVram
            }
            reason => self.survey.unschedulable_reason(reason, self.need).reason(),
        }
    }

    fn infeasible_nodes(&self) -> BTreeMap<UnschedulableReason, u32> {
        let mut nodes = BTreeMap::new();
        for (reason, stats) in &self.survey.by_reason {
            *nodes.entry(self.survey.unschedulable_reason(*reason, self.need)).or_default() += stats.nodes;
        }
        nodes
    }

    fn message(&self, overlay: &SnapshotOverlay<'a>, nodes: u32, reason: Reason) -> String {
        let (attempt, outcome) = (self.attempt, self.outcome);
        let mut parts = Vec::new();
        if outcome.exhausted {
            parts.push("the search stopped at its step limit, a placement may exist".to_owned());
        }
        if !outcome.assignments.is_empty() {
            parts.push(format!("{} of {} waiting members fit", outcome.assignments.len(), attempt.waiting()));
        }
        if let Some(resource) = self.resource {
            if self.never_fits() {
                parts.push(self.impossible_request(resource, overlay));
            } else {
                parts.extend(self.shortage.describe(attempt, resource, reason == Reason::Fragmented));
                if self.unplaced.fits_nowhere || !outcome.assignments.is_empty() {
                    let shortage_given = self.shortage.is_short() && attempt.waiting() > 1;
                    parts.push(self.request_per_place(resource, overlay, shortage_given));
                }
            }
        }
        if self.competes() {
            let member = &attempt.request.members[self.unplaced.member].key;
            let fit = outcome.best_effort.len();
            parts.push(format!("{fit} of {} members fit, {member} does not", attempt.waiting()));
        }
        if outcome.assignments.is_empty() {
            let requested = saturate(self.shortage.requested);
            let described = self.resource.map(|resource| (resource, requested));
            parts.extend(min_resources::additional_shortages(attempt.request, overlay, described));
        }
        let counts = self.counts_by_reason(overlay, UnschedulableReason::to_string);
        parts.push(format!("{}/{nodes} nodes are available: {counts}", self.survey.feasible));
        parts.join("; ")
    }

    fn waiting_for(&self, overlay: &SnapshotOverlay<'a>) -> String {
        match self.resource {
            Some(resource) if self.never_fits() => {
                format!("{}, which no node has", self.request_on_one(resource, overlay))
            }
            Some(resource)
                if self.shortage.is_short()
                    && self.shortage.requests.len() > 1
                    && !self.unplaced.fits_nowhere =>
            {
                self.shortage.describe_missing(resource)
            }
            Some(resource) => {
                let request = self.request_on_one(resource, overlay);
                let name = &overlay.state(self.stats.node as usize).node.name;
                format!("{request} (most free {}, node {name})", resource.format(self.stats.free))
            }
            None => {
                let counts = self.counts_by_reason(overlay, UnschedulableReason::short);
                format!("a schedulable node ({counts})")
            }
        }
    }

    /// `8000 MiB on one card`, `4 cores on one node`.
    fn request_on_one(&self, resource: ResourceKind<'_>, overlay: &SnapshotOverlay<'_>) -> String {
        let request = resource.format(requested(resource, self.need, overlay, self.stats.node));
        match (resource, self.need.share.map_or(1, |share| share.devices)) {
            (ResourceKind::Vram, 1) => format!("{request} on one card"),
            (ResourceKind::Vram, devices) => format!("{request} on each of {devices} cards"),
            _ => format!("{request} on one node"),
        }
    }

    /// `2 node(s) had untolerated taint {test: blocked}, 1 Insufficient cpu (free 3 of 4 cores)`, most nodes
    /// first.
    fn counts_by_reason(
        &self,
        overlay: &SnapshotOverlay<'_>,
        text: impl Fn(&UnschedulableReason) -> String,
    ) -> String {
        /// A reason, how many nodes have it, and the numbers in brackets.
        struct Line {
            nodes: u32,
            reason: InfeasibleReason,
            numbers: Option<String>,
        }
        let mut lines: BTreeMap<UnschedulableReason, Line> = BTreeMap::new();
        for (reason, stats) in &self.survey.by_reason {
            let line = lines.entry(self.survey.unschedulable_reason(*reason, self.need)).or_insert(Line {
                nodes: 0,
                reason: *reason,
                numbers: None,
            });
            line.nodes += stats.nodes;
            if let Some(numbers) = self.pod_limit(*reason, stats, overlay) {
                line.numbers = Some(numbers);
            }
            line.numbers = line.numbers.take().or_else(|| self.free_numbers(*reason, stats, overlay));
        }
        let mut lines: Vec<(String, Line)> =
            lines.into_iter().map(|(reason, line)| (text(&reason), line)).collect();
        lines.sort_by(|(a_text, a), (b_text, b)| {
            (b.nodes, a.reason, a_text).cmp(&(a.nodes, b.reason, b_text))
        });
        let lines: Vec<String> = lines
            .into_iter()
            .map(|(text, line)| format!("{} {text}{}", line.nodes, line.numbers.unwrap_or_default()))
            .collect();
        lines.join(", ")
    }

    /// ` (node a allows 110)` for nodes with too many pods.
    fn pod_limit(
        &self,
        reason: InfeasibleReason,
        stats: &ReasonStats,
        overlay: &SnapshotOverlay<'_>,
    ) -> Option<String> {
        let name = &overlay.state(stats.node as usize).node.name;
        (reason == InfeasibleReason::TooManyPods).then(|| format!(" (node {name} allows {})", stats.of))
    }

    /// ` (most free 2 of 8, node a)` for reasons about an amount.
    fn free_numbers(
        &self,
        reason: InfeasibleReason,
        stats: &ReasonStats,
        overlay: &SnapshotOverlay<'_>,
    ) -> Option<String> {
        let resource = ResourceKind::of(reason, self.need)?;
        let part = resource.format_part(stats.free, stats.of);
        let free = if stats.nodes == 1 { "free" } else { "most free" };
        let mut place = String::new();
        if stats.nodes > 1 {
            place = format!(", node {}", overlay.state(stats.node as usize).node.name);
        }
        if resource == ResourceKind::Vram {
            place = format!("{place}, card {}", stats.card);
        }
        Some(format!(" ({free} {part}{place})"))
    }

    /// What the member requests on one card or node, and the most that one has free.
    fn request_per_place(
        &self,
        resource: ResourceKind<'_>,
        overlay: &SnapshotOverlay<'_>,
        shortage_given: bool,
    ) -> String {
        let stats = &self.stats;
        let name = &overlay.state(stats.node as usize).node.name;
        let request = requested(resource, self.need, overlay, stats.node);
        let (needs, free) = (resource.format(request), resource.format(stats.free));
        let short = if shortage_given || request <= stats.free {
            String::new()
        } else {
            format!("short of {}: ", resource.format_with_name(request - stats.free))
        };
        let devices = self.need.share.map_or(0, |share| share.devices);
        match resource {
            ResourceKind::Vram if devices > 1 => {
                let cards = &overlay.free_resources(stats.node as usize).cards;
                let fitting = cards.iter().filter(|free| **free >= request).count();
                format!(
                    "needs {needs} on each of {devices} cards of one node; node {name} has {fitting} such cards"
                )
            }
            ResourceKind::Vram => {
                let card = stats.card;
                format!("{short}needs {needs} on one card, most free is {free} (node {name}, card {card})")
            }
            _ => format!("{short}needs {needs} on one node, most free is {free} (node {name})"),
        }
    }

    /// The text for a request that no node could hold even if the node were empty.
    fn impossible_request(&self, resource: ResourceKind<'_>, overlay: &SnapshotOverlay<'_>) -> String {
        let (largest, node) = self.stats.largest;
        let node_state = overlay.state(node as usize);
        let name = &node_state.node.name;
        let request = requested(resource, self.need, overlay, node);
        if resource == ResourceKind::Vram && request <= largest {
            let devices = self.need.share.map_or(0, |share| share.devices);
            let cards = node_state.node.gpus.cards;
            return format!("no node has {devices} shareable cards; node {name} has {cards}");
        }
        let (needs, most) = (resource.format(request), resource.format(largest));
        match resource {
            ResourceKind::Vram => {
                format!("no node has a card of {needs}; the largest is {most} (node {name})")
            }
            _ => format!("no schedulable node has {needs}; the most is {most} (node {name})"),
        }
    }
}
