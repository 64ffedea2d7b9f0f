//! Plans every planning round a second time, without the shortcut of the engine, and compares the plans.
//!
//! The engine asks the planner only about gangs that may fit (`core/engine/queue`). This comparison asks
//! about every gang, in queue order. It reads an engine through [`PlanningRound`] and changes nothing. The
//! unit tests of the engine include this file too.

use portcullis_core::engine::{GangRank, PlanningObserver, PlanningRound, QueuedGang};
use portcullis_core::model::Reason;
use portcullis_core::planner::{self, Assignment, Plan, PlannedGang, PlanningOutcome, PlanningReport};
use portcullis_core::snapshot::{CardAllocation, Charge, ChargeState, Snapshot};

/// Rounds of engines that know more gangs than this are not compared.
const MAX_COMPARED_GANGS: usize = 64;

/// Compares the planning rounds of one call of an engine.
#[derive(Debug, Default)]
pub(crate) struct PlanningComparison {
    /// The plan of the round that is under way. `None` if the round is not compared.
    expected: Option<Plan>,
    /// The differences, one sentence each.
    pub(crate) problems: Vec<String>,
}

impl PlanningObserver for PlanningComparison {
    fn round_starts(&mut self, round: &PlanningRound<'_>) {
        self.expected = None;
        if round.known_gangs() > MAX_COMPARED_GANGS || !round.charges_plans() {
            return;
        }
        let queue = round.plannable_gangs();
        let queued: Vec<GangRank> = round.queued_ranks().collect();
        let expected: Vec<&GangRank> = queue.iter().map(|queued| &queued.rank).collect();
        if queued.iter().ne(expected.iter().copied()) {
            self.problems.push(format!("the queue is out of date: it has {queued:?}, not {expected:?}"));
            return;
        }
        self.expected = plan_every_gang(round, queue);
    }

    fn round_ends(&mut self, round: &PlanningRound<'_>) {
        for planned in self.expected.take().into_iter().flat_map(|plan| plan.gangs) {
            self.problems.extend(difference(round, &planned));
        }
    }
}

/// The plan of a round that asks the planner about every gang. `None` if the planner ran out of steps: such
/// an answer proves nothing.
fn plan_every_gang(round: &PlanningRound<'_>, queue: Vec<QueuedGang>) -> Option<Plan> {
    if round.head_of_line().is_some() {
        return plan_one_by_one(round, &queue);
    }
    let requests: Vec<_> = queue.into_iter().map(|queued| queued.request).collect();
    let (plan, report) = planner::plan(round.snapshot(), &requests);
    is_certain(&report).then_some(plan)
}

/// The same with a head-of-line reservation: gangs one after the other, those behind the holder beside its
/// reservation.
fn plan_one_by_one(round: &PlanningRound<'_>, queue: &[QueuedGang]) -> Option<Plan> {
    let mut reservation = round.head_of_line();
    let mut snapshot = round.snapshot().clone();
    let mut expected = Plan::default();
    for QueuedGang { request, behind_reservation, .. } in queue {
        let request_alone = std::slice::from_ref(request);
        let (mut plan, mut report) = planner::plan(&snapshot, request_alone);
        if let Some((_, charges)) = reservation.filter(|_| *behind_reservation && !plan.gangs.is_empty()) {
            let mut beside = snapshot.clone();
            for (uid, charge) in charges {
                beside.charge(uid, charge.clone());
            }
            (plan, report) = planner::plan(&beside, request_alone);
        }
        if !is_certain(&report) {
            return None;
        }
        reservation = reservation.filter(|(holder, _)| **holder != request.gang || plan.gangs.is_empty());
        for assignment in plan.gangs.iter().flat_map(|gang| &gang.assignments) {
            let member = request.members.iter().find(|m| m.uid == assignment.uid)?;
            charge_assignment(&mut snapshot, assignment, member);
        }
        expected.gangs.extend(plan.gangs);
    }
    Some(expected)
}

fn charge_assignment(snapshot: &mut Snapshot, assignment: &Assignment, member: &planner::WaitingMember) {
    let cards = match member.shape.share {
        Some(_) => CardAllocation::Known(assignment.cards.clone()),
        None => CardAllocation::Unshared,
    };
    let charge = Charge {
        key: Some(assignment.key.clone()),
        node: assignment.node.clone(),
        labels: member.labels.clone(),
        terminating: false,
        shape: member.shape.clone(),
        cards,
        state: ChargeState::Reserved,
    };
    snapshot.charge(&assignment.uid, charge);
}

/// Whether no search of a round ran out of steps.
fn is_certain(report: &PlanningReport) -> bool {
    let exhausted = |outcome: &PlanningOutcome| matches!(outcome, PlanningOutcome::Waiting(why) if why.reason == Reason::SearchExhausted);
    !report.outcomes.values().any(exhausted)
}

/// What differs between the plan of the engine and the expected one.
fn difference(round: &PlanningRound<'_>, expected: &PlannedGang) -> Option<String> {
    let gang = &expected.gang;
    let Some(plan) = round.plan(gang) else { return Some(format!("{gang} fits and was not planned")) };
    let (members, placeholders): (Vec<&Assignment>, Vec<&Assignment>) =
        expected.assignments.iter().partition(|assignment| round.is_member(&assignment.uid));
    for assignment in members {
        let found = plan.members.iter().find(|m| m.uid == assignment.uid);
        if found.map(|m| (&m.node, &m.gpus)) != Some((&assignment.node, &assignment.cards)) {
            return Some(format!("{} is planned as {found:?}, not as {assignment:?}", assignment.key));
        }
    }
    // The placeholders of an earlier plan come first.
    let earlier = plan.placeholders.len().saturating_sub(placeholders.len());
    let found = plan.placeholders.iter().skip(earlier).map(|place| (&place.node, &place.gpus));
    let wanted = placeholders.iter().map(|assignment| (&assignment.node, &assignment.cards));
    found
        .ne(wanted)
        .then(|| format!("the placeholders of {gang} are {:?}, not {placeholders:?}", plan.placeholders))
}
