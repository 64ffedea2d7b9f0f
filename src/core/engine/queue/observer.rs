//! A read-only view of each planning round, for tests that plan the same in another way.

use std::cmp::Reverse;

use crate::engine::Engine;
use crate::engine::protocol::PlanRecord;
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::queue::QueueRank;
use crate::engine::settings::SafetyRule;
use crate::model::{GangId, PodUid, Time};
use crate::planner::PlanningRequest;
use crate::snapshot::{Charge, Snapshot};

/// Looks at every planning round of an engine. See [`Engine::steps_observed`].
pub trait PlanningObserver {
    /// The round is about to plan. The queue, the snapshot and the head-of-line reservation are up to date.
    fn round_starts(&mut self, round: &PlanningRound<'_>);

    /// The round has ended.
    fn round_ends(&mut self, round: &PlanningRound<'_>);
}

/// An engine at the start or the end of a planning round.
#[derive(Clone, Copy, Debug)]
pub struct PlanningRound<'e> {
    engine: &'e Engine,
    now: Time,
}

/// A gang that waits for a plan.
#[derive(Clone, Debug)]
pub struct QueuedGang {
    /// Why the gang has its place in the queue.
    pub rank: GangRank,
    /// What the gang asks of the planner.
    pub request: PlanningRequest,
    /// The gang stands behind the holder of the head-of-line reservation, and is planned beside it.
    pub behind_reservation: bool,
}

/// What decides the place of a gang in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangRank {
    /// The gang.
    pub gang: GangId,
    /// No member has started.
    pub not_started: bool,
    /// The priority. Higher priorities are planned first.
    pub priority: i32,
    /// Creation of the oldest waiting member, or the end of the last start timeout.
    pub since: Time,
}

impl GangRank {
    /// The values of a rank. It names every field of `QueueRank`, so that a new field is compared too.
    fn of(rank: &QueueRank) -> Self {
        let QueueRank { not_started, priority: Reverse(priority), since, gang } = rank;
        Self { gang: gang.clone(), not_started: *not_started, priority: *priority, since: *since }
    }
}

impl<'e> PlanningRound<'e> {
    pub(in crate::engine) fn new(engine: &'e Engine, now: Time) -> Self {
        Self { engine, now }
    }

    /// Every gang that can be planned, in queue order. Computed from all gangs, without the queue.
    pub fn plannable_gangs(&self) -> Vec<QueuedGang> {
        let view = self.engine.view(self.now);
        let mut queue: Vec<_> =
            self.engine.gangs.values().filter_map(|gang| gang.planning_request(&view)).collect();
        queue.sort_by(|(a, _), (b, _)| a.cmp(b));
        let queued = queue.into_iter().map(|(rank, request)| {
            let behind_reservation = self.engine.head_of_line_before(&rank).is_some();
            QueuedGang { rank: GangRank::of(&rank), request, behind_reservation }
        });
        queued.collect()
    }

    /// The ranks in the queue of the engine, in order.
    pub fn queued_ranks(&self) -> impl Iterator<Item = GangRank> + 'e {
        self.engine.queue.ranks().map(GangRank::of)
    }

    /// The number of gangs that the engine knows.
    pub fn known_gangs(&self) -> usize {
        self.engine.gangs.len()
    }

    /// Capacity as the engine sees it.
    pub fn snapshot(&self) -> &'e Snapshot {
        &self.engine.snapshot
    }

    /// The holder of the head-of-line reservation, and what is charged for it while others are planned.
    pub fn head_of_line(&self) -> Option<(&'e GangId, &'e [(PodUid, Charge)])> {
        self.engine.head_of_line.as_ref().map(|reservation| (&reservation.gang, reservation.charges()))
    }

    /// The plan of a gang that the engine records, or carries out.
    pub fn plan(&self, gang: &GangId) -> Option<&'e PlanRecord> {
        match &self.engine.gangs.get(gang)?.lifecycle.progress {
            Progress::Recording(plan) | Progress::Recorded(plan) => Some(plan),
            Progress::Undecided | Progress::Dropping(..) => None,
        }
    }

    /// Whether the engine charges planned pods. It always does, unless a test has disabled that rule.
    pub fn charges_plans(&self) -> bool {
        self.engine.settings.enforces(SafetyRule::Reserve)
    }

    /// Whether a pod with this UID is a member of a gang. A placeholder is none.
    pub fn is_member(&self, uid: &PodUid) -> bool {
        self.engine.gang_by_pod.contains_key(uid)
    }
}
