//! A planning round: plans the gangs of the queue that may fit.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::members::placeholders::new_placeholder;
use crate::engine::protocol::plan_progress::PlanInput;
use crate::engine::protocol::{PlanRecord, PlannedMember};
use crate::engine::queue::{QueueRank, RequestSignature};
use crate::engine::state::{EngineView, Gang, StepContext};
use crate::model::{GangId, Reason, Time};
use crate::planner::{self, Explanation, PlannedGang, PlanningOutcome, PlanningRequest};

/// The result of planning one gang.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FitResult {
    /// The gang, or a part of it that may start, has nodes.
    Yes,
    /// The gang does not fit.
    No,
    /// The search stopped before it was sure.
    Unsure,
}

/// What one planning round still has to do.
struct RoundAgenda {
    /// Gangs that have changed since the last round. They are planned in any case, so that they have a wait
    /// reason.
    changed: BTreeSet<GangId>,
    /// Others may have more capacity than in the last round.
    grown: bool,
    ranks: BTreeSet<QueueRank>,
    /// Requests that do not fit in this round.
    infeasible: BTreeSet<Arc<RequestSignature>>,
}

impl Engine {
    /// Has the next planning round enqueue the gang again: its request or its rank may have changed.
    pub(in crate::engine) fn mark_for_planning(&mut self, id: &GangId) {
        if !self.changed_gangs.contains(id) {
            self.changed_gangs.insert(id.clone());
        }
        self.plan_needed = true;
    }

    /// Removes a gang from the queue.
    pub(in crate::engine) fn dequeue(&mut self, id: &GangId) {
        if let Some(rank) = self.gangs.get_mut(id).and_then(|gang| gang.queueing.rank.take()) {
            self.queue.remove(&rank);
        }
    }

    fn enqueue(&mut self, id: &GangId, now: Time) {
        self.dequeue(id);
        // Ordinary: the gang was forgotten after it was marked.
        if !self.gangs.contains_key(id) {
            return;
        }
        let Some((gang, view)) = self.gang_and_view(id, now) else { return };
        let Some((rank, request)) = gang.planning_request(&view) else { return };
        gang.queueing.rank = Some(rank.clone());
        self.queue.insert(rank, RequestSignature::of(&request));
    }

    /// Plans every complete gang without a plan under way that may fit, in queue order.
    pub(in crate::engine) fn plan_queue(&mut self, step: &mut StepContext<'_>) {
        let grown = std::mem::take(&mut self.capacity_grew) || self.snapshot.take_grown();
        let changed = std::mem::take(&mut self.changed_gangs);
        for id in &changed {
            self.enqueue(id, step.now);
        }
        let pods_changed = std::mem::take(&mut self.other_pods_changed) || self.snapshot.take_pods_changed();
        if pods_changed {
            self.infeasible_signatures.retain(|signature| !signature.has_pod_rules());
        }
        let grown = self.renew_head_of_line(grown, step.now) || grown;
        step.observe_round(self, |observer, round| observer.round_starts(round));
        let mut agenda = self.round_agenda(changed, grown);
        if pods_changed {
            agenda.ranks.extend(self.queue.with_pod_rules(None));
        }
        while let Some(rank) = agenda.ranks.pop_first() {
            // A gang that has been planned in this round has left the queue.
            let Some(signature) = self.queue.signature(&rank).cloned() else { continue };
            if !self.may_fit(&rank, &signature, &agenda, step.now) {
                if self.is_kept_away_by_others(&signature, &rank.gang, step.now) {
                    agenda.ranks.extend(self.queue.next_with_signature(&signature, &rank));
                } else {
                    agenda.infeasible.insert(signature);
                }
                continue;
            }
            let had_reservation = self.head_of_line.is_some();
            let fits = self.plan_one(&rank, step);
            if had_reservation && self.head_of_line.is_none() {
                // The head-of-line reservation is gone: its capacity is available to all gangs.
                agenda.grown = true;
                agenda.infeasible.clear();
                agenda.ranks.extend(self.queue.next_of_each_signature(&rank));
            }
            match fits {
                // The labels of its members may be why it does not fit: the next one may have other labels.
                FitResult::No if self.is_kept_away_by_others(&signature, &rank.gang, step.now) => {
                    agenda.ranks.extend(self.queue.next_with_signature(&signature, &rank));
                }
                FitResult::No => {
                    agenda.infeasible.insert(signature);
                }
                FitResult::Yes | FitResult::Unsure if agenda.grown => {
                    agenda.ranks.extend(self.queue.next_with_signature(&signature, &rank));
                }
                FitResult::Yes | FitResult::Unsure => {}
            }
            if fits == FitResult::Yes {
                // Its members may be the pods that gangs behind it have affinity to.
                agenda.ranks.extend(self.queue.with_pod_rules(Some(&rank)));
            }
            if fits == FitResult::Unsure {
                // Plan it again in the next round, which may find an answer.
                self.changed_gangs.insert(rank.gang);
            }
        }
        step.observe_round(self, |observer, round| observer.round_ends(round));
    }

    /// The gangs to plan first: those that have changed, and one for each signature if capacity grew.
    fn round_agenda(&self, changed: BTreeSet<GangId>, grown: bool) -> RoundAgenda {
        let mut ranks: BTreeSet<QueueRank> =
            changed.iter().filter_map(|id| self.gangs.get(id)?.queueing.rank.clone()).collect();
        if grown {
            ranks.extend(self.queue.first_of_each_signature().cloned());
        }
        RoundAgenda { changed, grown, ranks, infeasible: BTreeSet::new() }
    }

    /// Whether the planner has to be asked about a gang in this round.
    fn may_fit(
        &self,
        rank: &QueueRank,
        signature: &Arc<RequestSignature>,
        agenda: &RoundAgenda,
        now: Time,
    ) -> bool {
        if agenda.changed.contains(&rank.gang) {
            return true;
        }
        if agenda.infeasible.contains(signature) {
            return false;
        }
        // In a long queue, a gang that has a wait reason and is still infeasible gets a new one only at its
        // interval: an explanation costs several times as much as the check.
        !self.queue.is_long() || !self.is_still_infeasible(&rank.gang, now)
    }

    /// Whether the anti-affinity of other pods bears on a gang without rules of its own.
    fn is_kept_away_by_others(&self, signature: &RequestSignature, id: &GangId, now: Time) -> bool {
        if signature.has_pod_rules() || !self.snapshot.has_anti_affinity() {
            return false;
        }
        let request = self.expect_gang(id).and_then(|gang| gang.planning_request(&self.view(now)));
        request.is_some_and(|(_, request)| planner::depends_on_other_pods(&self.snapshot, &request))
    }

    fn is_still_infeasible(&self, id: &GangId, now: Time) -> bool {
        let Some(gang) = self.expect_gang(id) else { return false };
        gang.queueing.wait_reason.is_some()
            && gang
                .planning_request(&self.view(now))
                .is_some_and(|(_, request)| planner::is_unschedulable(&self.snapshot, &request))
    }

    /// Plans one gang of the queue.
    fn plan_one(&mut self, rank: &QueueRank, step: &mut StepContext<'_>) -> FitResult {
        let id = &rank.gang;
        let Some((gang, view)) = self.gang_and_view(id, step.now) else { return FitResult::No };
        let Some((_, request)) = gang.planning_request(&view) else { return FitResult::No };
        let (planned, explanation) = self.plan_in_turn(rank, &request, step.now);
        let fits = planned.is_some();
        if let Some(planned) = planned {
            self.start_plan(planned, &request, step);
        }
        let unsure = explanation.as_ref().is_some_and(|why| why.reason == Reason::SearchExhausted);
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.timers.last_planned = Some(step.now);
            gang.queueing.wait_reason = explanation;
            // Also if the wait reason is the same: the position in the queue may have changed.
            step.touch(id);
        }
        match (fits, unsure) {
            (true, _) => FitResult::Yes,
            (false, true) => FitResult::Unsure,
            (false, false) => FitResult::No,
        }
    }

    /// The assignments for a gang, and why it, or a part of it, has none. A gang behind the holder of the
    /// head-of-line reservation is planned beside it.
    fn plan_in_turn(
        &mut self,
        rank: &QueueRank,
        request: &PlanningRequest,
        now: Time,
    ) -> (Option<PlannedGang>, Option<Explanation>) {
        let (mut plan, mut report) = planner::plan(&self.snapshot, std::slice::from_ref(request));
        let fitting = plan.gangs.first().map(|planned| planned.assignments.len());
        if let (Some(fitting), Some(reservation)) = (fitting, self.head_of_line_before(rank).cloned()) {
            (plan, report) = self.plan_beside_head_of_line(&reservation, request);
            if let Some(PlanningOutcome::Waiting(why)) = report.outcomes.get_mut(&rank.gang)
                && why.reason != Reason::SearchExhausted
            {
                *why = self.explain_head_of_line_wait(&reservation, fitting, now);
            }
        }
        if let Some(refuted) = &report.refuted {
            self.refuted_plans.add(&self.snapshot, request, refuted);
        }
        let explanation = match report.outcomes.remove(&rank.gang) {
            Some(PlanningOutcome::Waiting(explanation)) => Some(explanation),
            Some(PlanningOutcome::Placed { unplaced, .. }) => unplaced,
            None => None,
        };
        (plan.gangs.into_iter().next(), explanation)
    }

    fn start_plan(&mut self, planned: PlannedGang, request: &PlanningRequest, step: &mut StepContext<'_>) {
        let id = planned.gang.clone();
        self.dequeue(&id);
        self.head_of_line = self.head_of_line.take().filter(|reservation| reservation.gang != id);
        let Some((gang, view)) = self.gang_and_view(&id, step.now) else { return };
        let record = gang.plan_record(planned, request, &view);
        self.advance_plan(&id, PlanInput::Planned(record), step);
    }
}

impl Gang {
    /// The plan with new assignments.
    fn plan_record(
        &self,
        planned: PlannedGang,
        request: &PlanningRequest,
        view: &EngineView<'_>,
    ) -> PlanRecord {
        // Lifted members of the earlier plan that are not bound keep their assignment.
        let earlier = self.plan().into_iter().flat_map(|plan| self.present(plan));
        let unbound = earlier.filter(|(_, member)| member.unbound());
        let mut members: Vec<PlannedMember> = unbound.map(|(planned, _)| planned.clone()).collect();
        // Existing placeholders keep their assignment too.
        let mut placeholders = self.placeholders().to_vec();
        for assignment in planned.assignments {
            if self.members.contains_key(&assignment.uid) {
                members.push(PlannedMember {
                    pod: assignment.key.name,
                    uid: assignment.uid,
                    node: assignment.node,
                    gpus: assignment.cards,
                });
            } else if let Some(member) = request.members.iter().find(|m| m.uid == assignment.uid) {
                placeholders.push(new_placeholder(member, &assignment, &placeholders));
            }
        }
        let reserved_until = (!placeholders.is_empty()).then(|| view.now.after(view.settings.reserve_for));
        PlanRecord {
            epoch: view.epoch,
            deadline: view.now.after(view.settings.bind_timeout),
            members,
            placeholders,
            reserved_until,
            released: 0,
        }
    }
}
