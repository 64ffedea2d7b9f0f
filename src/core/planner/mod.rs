//! Plans gangs: from a snapshot and planning requests to a plan and a report.
//!
//! The planner decides where the members of a gang run and explains why they cannot. It changes nothing:
//! tentative assignments are in an overlay over the snapshot, and the caller charges the plan. It uses no
//! clock, no randomness and no hash order: the same snapshot and requests give the same plan and report byte
//! for byte, in any order of nodes.
//!
//! Invariant: every plan passes [`mod@check`], which shares no code with the planner. [`plan`] applies it to
//! its result, and withholds a plan that it refutes.
//!
//! A round of one gang: `attempt` groups members by shape and role, scans the nodes for each shape, and
//! places members greedily, the hardest first, on the best node (`requirements`). `search` improves on the
//! greedy result for small gangs of different pods. `topology` and `proximity` are preferences: one topology
//! domain for a gang that starts, nodes near the gang for members that start later. `pod_rules` has the rules
//! about other pods. `pod_rules_placement` places the gangs that they touch, and no other gang pays for them.
//! For unplaced members, `survey` counts infeasible nodes, `explain` writes the message, and `remedy` tries
//! what would make the gang fit.

mod attempt;
mod candidates;
mod case;
mod check;
mod check_pod_rules;
mod explain;
mod min_resources;
mod overlay;
mod pod_rules;
mod pod_rules_placement;
mod proximity;
mod remedy;
mod report;
mod requirements;
mod resource_kind;
mod search;
mod shortage;
mod survey;
#[cfg(test)]
mod tests;
mod tie_break;
mod topology;
mod types;

pub use case::PlanningCase;
pub use check::check;
pub use report::{Explanation, PlanningOutcome, PlanningReport, RefutedPlan, UnschedulableReason};
#[cfg(feature = "sabotage")]
pub use tie_break::sabotage;
pub use types::{Assignment, Plan, PlannedGang, PlanningRequest, WaitingMember};

use crate::snapshot::Snapshot;
use attempt::PlacementAttempt;
use candidates::ResolvedShapes;
use overlay::SnapshotOverlay;
use tie_break::TieBreak;

/// Whether [`plan`] surely gives this gang no assignment. Several times faster than [`plan`], without an
/// explanation.
#[must_use]
pub fn is_unschedulable(snapshot: &Snapshot, gang: &PlanningRequest) -> bool {
    let tie_break = TieBreak::current();
    let mut overlay = SnapshotOverlay::new(snapshot);
    let mut shapes = ResolvedShapes::default();
    let attempt = PlacementAttempt::new(gang, &mut shapes, &overlay, tie_break);
    let outcome = attempt.place(&shapes, &mut overlay, tie_break, search::MAX_SEARCH_STEPS);
    outcome.assignments.is_empty() && !outcome.exhausted
}

/// Whether rules about other pods bear on a gang: its own, or the anti-affinity of charged pods. Such a gang
/// may fit although another one with equal shapes does not, and may fit when a pod is added.
#[must_use]
pub fn depends_on_other_pods(snapshot: &Snapshot, gang: &PlanningRequest) -> bool {
    pod_rules::GangPodRules::new(gang, &SnapshotOverlay::new(snapshot)).is_some()
}

/// Plans the gangs in the order given. Each gang sees the assignments of the gangs before it.
///
/// A gang gets assignments for all its waiting members. When not all fit, it gets as many as fit, if they and
/// the active members meet its quorum, else none. When active members alone meet the quorum, each waiting
/// member is independent.
///
/// A plan that [`mod@check`] refutes is a defect of the planner. It is withheld: the result has no plan, and
/// the report has the refuted one.
///
/// # Panics
/// In debug builds, instead of withholding a plan.
#[must_use = "planning has no effect but its result"]
pub fn plan(snapshot: &Snapshot, gangs: &[PlanningRequest]) -> (Plan, PlanningReport) {
    let tie_break = TieBreak::current();
    let mut overlay = SnapshotOverlay::new(snapshot);
    let mut shapes = ResolvedShapes::default();
    let (mut plan, mut report) = (Plan::default(), PlanningReport::default());
    for request in gangs {
        let attempt = PlacementAttempt::new(request, &mut shapes, &overlay, tie_break);
        let outcome = match topology::place_in_one_domain(&attempt, &shapes, &mut overlay, tie_break) {
            Some(outcome) => outcome,
            None => attempt.place(&shapes, &mut overlay, tie_break, search::MAX_SEARCH_STEPS),
        };
        let planning_outcome = explain::planning_outcome(&attempt, &shapes, &mut overlay, &outcome);
        report.outcomes.insert(request.gang.clone(), planning_outcome);
        if outcome.assignments.is_empty() {
            continue;
        }
        let assignments = outcome.assignments.iter().map(|assignment| Assignment {
            uid: request.members[assignment.member].uid.clone(),
            key: request.members[assignment.member].key.clone(),
            node: snapshot.states()[assignment.node as usize].node.name.clone(),
            cards: assignment.cards.clone(),
        });
        for assignment in &outcome.assignments {
            overlay.add_planned(assignment.node, &request.members[assignment.member]);
        }
        plan.gangs.push(PlannedGang { gang: request.gang.clone(), assignments: assignments.collect() });
    }
    #[cfg(test)]
    planted_bug::apply(snapshot, &mut plan);
    if let Err(violations) = check(snapshot, gangs, &plan) {
        #[cfg(debug_assertions)]
        panics_unless_planted(&violations);
        report.withhold(std::mem::take(&mut plan), violations, snapshot);
    }
    (plan, report)
}

/// Debug builds stop at a defect of the planner, except for the one that a test has planted.
#[cfg(debug_assertions)]
fn panics_unless_planted(violations: &[String]) {
    #[cfg(test)]
    if planted_bug::is_active() {
        return;
    }
    panic!("the planner made an invalid plan: {}", violations.join("; "));
}

/// A defect of the planner that tests plant: every plan puts all members on the first node.
#[cfg(test)]
pub(crate) mod planted_bug {
    use std::cell::Cell;

    use super::{Plan, Snapshot};

    thread_local! {
        static ACTIVE: Cell<bool> = const { Cell::new(false) };
    }

    /// Plants or removes the defect for this thread.
    pub(crate) fn set(active: bool) {
        ACTIVE.set(active);
    }

    pub(super) fn is_active() -> bool {
        ACTIVE.get()
    }

    pub(super) fn apply(snapshot: &Snapshot, plan: &mut Plan) {
        let Some(first) = snapshot.node_names().next().filter(|_| is_active()) else { return };
        for assignment in plan.gangs.iter_mut().flat_map(|planned| &mut planned.assignments) {
            assignment.node = first.clone();
        }
    }
}
