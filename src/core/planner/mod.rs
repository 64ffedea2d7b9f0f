//! Where the members of a gang go, or why they cannot: snapshot in, plan and report out.
//!
//! Owns the decision and its explanation. It changes nothing: what is placed lies on a board over the snapshot, and
//! whoever calls makes charges of the plan. No clock, no randomness, no hash order: the same snapshot and gangs give the
//! same plan and report, byte for byte, in whatever order the nodes came.
//!
//! Invariant: every plan passes [`check`], which shares no code with the planner; debug builds check each one.

mod board;
mod check;
mod explain;
mod gang;
mod minimum;
mod near;
mod need;
mod remedy;
mod report;
mod search;
mod survey;
#[cfg(test)]
mod tests;
mod tie;
mod together;
mod types;
mod words;

pub use check::check;
pub use report::{Explanation, PlanningOutcome, PlanningReport, UnschedulableReason};
#[cfg(feature = "sabotage")]
pub use tie::sabotage;
pub use types::{Assignment, Plan, PlannedGang, PlanningRequest, WaitingMember};

use crate::snapshot::Snapshot;
use board::Board;
use gang::{Attempt, Shapes};
use tie::Tie;

/// Whether there surely is no place for any part of this gang that may start, without saying why: several times quicker
/// than [`plan`], which comes to the same.
#[must_use]
pub fn is_unschedulable(snapshot: &Snapshot, gang: &PlanningRequest) -> bool {
    let tie = Tie::current();
    let mut board = Board::new(snapshot);
    let mut shapes = Shapes::default();
    let attempt = Attempt::new(gang, &mut shapes, &board, tie);
    let outcome = attempt.place(&shapes, &mut board, tie, search::STEPS);
    outcome.spots.is_empty() && !outcome.exhausted
}

/// Plans the gangs in the order given; each sees what the ones before it were given.
///
/// A gang gets places for all its waiting members; where not all fit, for as many as do, if these and the active ones
/// meet its quorum; else for none. With the quorum met by active members alone, each waiting member stands for itself.
///
/// # Panics
/// In debug builds, when [`check`] refutes the plan: a bug of the planner.
#[must_use = "a plan that is dropped was made for nothing"]
pub fn plan(snapshot: &Snapshot, gangs: &[PlanningRequest]) -> (Plan, PlanningReport) {
    let tie = Tie::current();
    let mut board = Board::new(snapshot);
    let mut shapes = Shapes::default();
    let (mut plan, mut report) = (Plan::default(), PlanningReport::default());
    for request in gangs {
        let attempt = Attempt::new(request, &mut shapes, &board, tie);
        let outcome = match together::place(&attempt, &shapes, &mut board, tie) {
            Some(outcome) => outcome,
            None => attempt.place(&shapes, &mut board, tie, search::STEPS),
        };
        let verdict = explain::verdict(&attempt, &shapes, &mut board, &outcome);
        report.outcomes.insert(request.gang.clone(), verdict);
        if outcome.spots.is_empty() {
            continue;
        }
        let placements = outcome.spots.iter().map(|spot| Assignment {
            uid: request.members[spot.member].uid.clone(),
            key: request.members[spot.member].key.clone(),
            node: snapshot.states()[spot.node as usize].node.name.clone(),
            cards: spot.cards.clone(),
        });
        plan.gangs.push(PlannedGang { gang: request.gang.clone(), assignments: placements.collect() });
    }
    #[cfg(debug_assertions)]
    if let Err(violations) = check(snapshot, gangs, &plan) {
        panic!("the planner made a plan that does not hold: {}", violations.join("; "));
    }
    (plan, report)
}
