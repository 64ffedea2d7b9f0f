//! Debug builds make every planning round twice, with and without the shortcut of [`super`], and compare the
//! plans. So all tests and the simulation check the shortcut. Release builds contain none of this.

use crate::engine::Engine;
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::queue::QueueRank;
use crate::model::Reason;
use crate::planner::{self, PlanningOutcome, PlanningRequest};
use crate::snapshot::{CardAllocation, Charge, ChargeState};

/// Planning rounds are compared for queues up to this length.
const MAX_COMPARED_QUEUE_LENGTH: usize = 64;

impl Engine {
    /// The plan of a round without the shortcut. `None` for a long queue, or if a test has disabled a rule.
    pub(super) fn plan_without_shortcut(&self) -> Option<planner::Plan> {
        if self.gangs.len() > MAX_COMPARED_QUEUE_LENGTH
            || !self.settings.enforces(crate::engine::SafetyRule::Reserve)
        {
            return None;
        }
        let mut queue: Vec<_> = self.gangs.keys().filter_map(|id| self.planning_request(id)).collect();
        queue.sort_by(|(a, _), (b, _)| a.cmp(b));
        let queued: Vec<&QueueRank> = self.queue.ranks.keys().collect();
        assert_eq!(queue.iter().map(|(rank, _)| rank).collect::<Vec<_>>(), queued, "the queue is up to date");
        let sure = |report: &planner::PlanningReport| {
            report.outcomes.values().all(
                |verdict| !matches!(verdict, PlanningOutcome::Waiting(why) if why.reason == Reason::SearchExhausted),
            )
        };
        if self.head_of_line.is_some() {
            return self.compare_beside_head_of_line(&queue, sure);
        }
        let requests: Vec<PlanningRequest> = queue.into_iter().map(|(_, request)| request).collect();
        let (plan, report) = planner::plan(&self.snapshot, &requests);
        sure(&report).then_some(plan)
    }

    /// The same with a head-of-line reservation: gangs one after the other, those behind the holder beside
    /// its reservation.
    fn compare_beside_head_of_line(
        &self,
        queue: &[(QueueRank, PlanningRequest)],
        sure: impl Fn(&planner::PlanningReport) -> bool,
    ) -> Option<planner::Plan> {
        let mut reservation = self.head_of_line.as_ref();
        let mut snapshot = self.snapshot.clone();
        let mut expected = planner::Plan::default();
        for (rank, request) in queue {
            let one = std::slice::from_ref(request);
            let (mut plan, mut report) = planner::plan(&snapshot, one);
            if let Some(reservation) =
                reservation.filter(|_| self.head_of_line_before(rank).is_some() && !plan.gangs.is_empty())
            {
                let mut beside = snapshot.clone();
                reservation.charge(&mut beside);
                (plan, report) = planner::plan(&beside, one);
            }
            if !sure(&report) {
                return None;
            }
            reservation =
                reservation.filter(|reservation| reservation.gang != request.gang || plan.gangs.is_empty());
            for place in plan.gangs.iter().flat_map(|gang| &gang.assignments) {
                let member = request.members.iter().find(|m| m.uid == place.uid)?;
                let shared = member.shape.share.is_some();
                let cards = if shared {
                    CardAllocation::Known(place.cards.clone())
                } else {
                    CardAllocation::Unshared
                };
                let (key, node, shape) = (Some(place.key.clone()), place.node.clone(), member.shape.clone());
                snapshot.charge(&place.uid, Charge { key, node, shape, cards, state: ChargeState::Reserved });
            }
            expected.gangs.extend(plan.gangs);
        }
        Some(expected)
    }

    /// Panics if the round has planned something else than expected.
    pub(super) fn assert_planned(&self, expected: planner::Plan) {
        for mut planned in expected.gangs {
            let progress = self.gangs.get(&planned.gang).map(|gang| &gang.lifecycle.progress);
            let Some(Progress::Recording(plan)) = progress else {
                // A test has disabled `RecordFirst`.
                if matches!(progress, Some(Progress::Recorded(_))) {
                    continue;
                }
                panic!("{} fits and was not planned: {progress:?}", planned.gang);
            };
            let reserved = plan.placeholders.iter().map(|place| (&place.node, &place.gpus));
            let is_pod = |place: &planner::Assignment| self.members.contains_key(&place.uid);
            let places = planned.assignments.extract_if(.., |place| !is_pod(place)).collect::<Vec<_>>();
            let expected: Vec<_> = places.iter().map(|place| (&place.node, &place.cards)).collect();
            let amended = plan.placeholders.len().saturating_sub(expected.len());
            assert_eq!(reserved.skip(amended).collect::<Vec<_>>(), expected, "where the placeholders go");
            for place in planned.assignments {
                let found = plan.members.iter().find(|m| m.uid == place.uid);
                let found = found.map(|m| (&m.node, &m.gpus));
                assert_eq!(found, Some((&place.node, &place.cards)), "where {} goes", place.key);
            }
        }
    }
}
