//! Takeover of leadership, lift permits, and the answers to requests. The fencing rules are in the docs of
//! [`crate::engine::protocol`].

use super::plan_progress::PlanInput;
use super::{Action, ListedObjects, PlanRecord, RequestOutcome, RequestTarget};
use crate::engine::Engine;
use crate::engine::settings::SafetyRule;
use crate::engine::state::{EngineView, Gang, MemberState, PodRequest, RetrySlots, StepContext};
use crate::model::{Epoch, GangId, PodUid, Time, str};
use crate::objects::ObjectRef;
use crate::pod::Pod;

/// The leadership state of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum Leadership {
    /// This replica does not hold the lease.
    Follower,
    /// This replica holds the lease and reads all objects.
    Listing(Epoch),
    /// All objects are known. The engine fences the still-gated members of plans of older epochs.
    Fencing(Epoch),
    /// The engine plans and lifts.
    Leading(Epoch),
}

impl Engine {
    /// Forgets all objects and continues in this state.
    pub(in crate::engine) fn reset(&mut self, leadership: Leadership) {
        let violations = self.violations.clone();
        *self = Self { leadership, violations, ..Self::new(self.settings.clone()) };
    }

    /// Stops leading, because another replica has a newer epoch.
    pub(in crate::engine) fn step_down(&mut self, step: &mut StepContext) {
        self.reset(Leadership::Follower);
        step.touched.clear();
        step.effects.send(Action::StepDown);
    }

    /// Takes in the consistent read at the start of leading. The engine fences the members of all plans in it
    /// before it does anything else: after that, no older leader can lift one of them.
    pub(in crate::engine) fn take_over(
        &mut self,
        epoch: Epoch,
        objects: ListedObjects,
        step: &mut StepContext,
    ) {
        self.leadership = Leadership::Fencing(epoch);
        let plans = objects.gangs.iter().flatten().filter_map(|record| record.status.plan.as_ref());
        let planned: Vec<PodUid> =
            plans.flat_map(|plan| plan.members.iter().map(|m| m.uid.clone())).collect();
        self.observe_all(objects, step);
        if self.leadership != Leadership::Fencing(epoch) {
            return; // The objects contained a newer epoch, and the engine stepped down.
        }
        let fences = self.settings.enforces(SafetyRule::Fence);
        for uid in planned {
            // A planned pod may be gone by now.
            if let Some(member) = self.member_mut(&uid) {
                member.must_fence = member.pod.gated() && fences;
            }
        }
        for gang in self.gangs.keys() {
            step.touch(gang);
        }
    }

    /// Starts to lead once every still-gated member of every stored plan is fenced. From then on the engine
    /// knows which members are lifted: it adopts plans that have started and drops the others.
    pub(in crate::engine) fn finish_fencing(&mut self, step: &mut StepContext) {
        let Leadership::Fencing(epoch) = self.leadership else { return };
        if self.gangs.values().any(|gang| gang.members.values().any(|m| m.must_fence)) {
            return;
        }
        self.leadership = Leadership::Leading(epoch);
        self.changed_gangs = self.gangs.keys().cloned().collect();
        self.plan_needed = true;
        let gangs: Vec<GangId> = self.gangs.keys().cloned().collect();
        for id in &gangs {
            let Some((gang, view)) = self.gang_and_view(id, step.now) else { continue };
            if let Some(plan) = gang.adopted_plan(&view) {
                self.advance_plan(id, PlanInput::Planned(plan), step);
            }
        }
        for id in &gangs {
            self.drive_gang(id, step);
        }
    }

    /// Reads the lease if a member could be lifted. The pods and versions that the read may grant a permit
    /// are fixed before the request is sent.
    pub(in crate::engine) fn verify_lease(&mut self, step: &mut StepContext) {
        self.lease_retry.pass(step.now);
        if self.pending_permits.is_some() || !self.leads() || self.lease_retry.waits(step.now).is_some() {
            return;
        }
        let lifting = self.lifting.iter().filter_map(|id| self.gangs.get(id));
        let wanted: std::collections::BTreeMap<_, _> =
            lifting.flat_map(Gang::members_without_permit).collect();
        if wanted.is_empty() {
            return;
        }
        self.pending_permits = Some(wanted);
        if self.settings.enforces(SafetyRule::Verify) {
            step.effects.send(Action::ReadLease);
        } else {
            self.grant_permits(step);
        }
    }

    /// Grants the pending lift permits: this replica held the lease after everything in the pending set was
    /// known.
    fn grant_permits(&mut self, step: &mut StepContext) {
        for (uid, version) in self.pending_permits.take().unwrap_or_default() {
            // No permit for a pod that is gone or has changed since the lease read was sent.
            let Some(id) = self.gang_by_pod.get(&uid).cloned() else { continue };
            if let Some(member) = self.member_mut(&uid)
                && member.pod.resource_version == version
            {
                member.permit = Some(version);
                step.touch(&id);
            }
        }
        while let Some(gang) = step.touched.pop_first() {
            self.drive_gang(&gang, step);
        }
    }

    /// Takes in the answer to a request.
    pub(in crate::engine) fn handle_answer(
        &mut self,
        target: RequestTarget,
        outcome: RequestOutcome,
        step: &mut StepContext,
    ) {
        match target {
            RequestTarget::Lease => match outcome {
                RequestOutcome::Lease { ours: true } => {
                    self.lease_retry.succeed();
                    self.grant_permits(step);
                }
                RequestOutcome::Lease { ours: false } => self.step_down(step),
                // The holder is unknown: read again after a delay.
                _ => {
                    self.pending_permits = None;
                    self.lease_retry.fail(step.now);
                }
            },
            RequestTarget::Gang(gang) => self.handle_gang_answer(&gang, outcome, step),
            RequestTarget::Pod(uid) => self.handle_pod_answer(&uid, outcome, step),
            RequestTarget::Group(gang) => self.handle_group_status_answer(&gang, &outcome, step),
            RequestTarget::Owner(gang, owner) => self.handle_owner_answer(&gang, &owner, outcome, step),
        }
    }

    fn handle_owner_answer(
        &mut self,
        id: &GangId,
        owner: &ObjectRef,
        outcome: RequestOutcome,
        step: &mut StepContext,
    ) {
        // Ordinary: the gang was forgotten before the answer arrived.
        let Some(gang) = self.gangs.get_mut(id) else { return };
        if gang.handle_owner_answer(owner, outcome, step.now, &mut self.retry_slots, &mut step.effects) {
            self.mark_for_planning(id);
            step.touch(id);
        }
    }

    fn handle_pod_answer(&mut self, uid: &PodUid, outcome: RequestOutcome, step: &mut StepContext) {
        // Ordinary: the pod was deleted, or deleted and created again, before the answer arrived.
        let Some(id) = self.gang_by_pod.get(uid).cloned() else { return };
        let known = self.member(uid).is_some();
        let member = self.gangs.get_mut(&id).and_then(|gang| gang.members.get_mut(uid)).filter(|_| known);
        let Some(member) = member else { return };
        let Some(request) = member.request.take() else { return };
        let api_error = match &outcome {
            RequestOutcome::Refused(refusal) => Some(refusal.to_string()),
            RequestOutcome::Failed(message) => Some(message.clone()),
            _ => None,
        };
        let api_error = api_error.map(|why| str(format!("{}: {why}", member.pod.key.name)));
        if outcome == RequestOutcome::Gone {
            return self.remove_pod(uid, step);
        }
        let trial = match (request, &outcome) {
            (PodRequest::TryLift, RequestOutcome::Done) => Some(Ok(())),
            (PodRequest::TryLift | PodRequest::Lift, RequestOutcome::Refused(refusal)) => {
                Some(Err(refusal.clone()))
            }
            _ => None,
        };
        let lifted = matches!((request, &outcome), (PodRequest::Lift, RequestOutcome::Pod(_)));
        if let Some(pod) = member.settle(request, outcome, step.now, &mut self.retry_slots) {
            self.update_member(*pod, step);
        }
        // A member that was fenced can be planned now.
        if request == PodRequest::Fence {
            self.mark_for_planning(&id);
        }
        if let Some(gang) = self.gangs.get_mut(&id) {
            gang.record.api_error = api_error;
            if request == PodRequest::Lift && matches!(trial, Some(Err(_))) {
                gang.lifecycle.first_lift = Some(uid.clone());
            }
            match trial {
                Some(Ok(())) => gang.accept_trial(uid),
                Some(Err(refusal)) => gang.refuse_lift(uid, &refusal, step.now, &mut self.retry_slots),
                None if lifted => {
                    gang.lifecycle.refused_lift = None;
                    gang.lifecycle.first_lift = None;
                    gang.lifecycle.lift_retry.succeed();
                }
                None => {}
            }
            if let Some(member) = gang.members.get_mut(uid) {
                member.must_fence &= member.pod.gated();
            }
        }
        step.touch(&id);
    }
}

impl Gang {
    /// The stored plan of an older epoch under the epoch of this engine, if the engine continues with it: a
    /// member of it is lifted and not every member is bound.
    fn adopted_plan(&self, view: &EngineView<'_>) -> Option<PlanRecord> {
        let plan = self.record.object.status()?.plan.as_ref()?;
        let unfinished = || self.present(plan).filter(|(_, member)| !member.pod.finished());
        let started = unfinished().any(|(_, member)| !member.pod.gated());
        // A plan with placeholders is adopted also when all its pods are bound: it still holds reservations,
        // or records that some were released.
        let reserves = !plan.placeholders.is_empty() || plan.released > 0;
        let done = !reserves && unfinished().all(|(_, member)| member.pod.node.is_some());
        if !started || done {
            return None;
        }
        Some(PlanRecord {
            epoch: view.epoch,
            deadline: view.now.after(view.settings.bind_timeout),
            members: unfinished().map(|(planned, _)| planned.clone()).collect(),
            ..plan.clone()
        })
    }
}

impl MemberState {
    /// Takes in the answer to a request about the pod. Returns the pod if the answer contains it.
    ///
    /// The backoff starts again only with a success of a lift. A read, a fence or a nomination that succeeds
    /// says nothing about a lift that fails, and follows each of them.
    fn settle(
        &mut self,
        request: PodRequest,
        outcome: RequestOutcome,
        now: Time,
        slots: &mut RetrySlots,
    ) -> Option<Box<Pod>> {
        match (request, outcome) {
            (request, RequestOutcome::Pod(pod)) => {
                match request {
                    PodRequest::Lift => self.retry.succeed(),
                    PodRequest::Fence => self.must_fence = false,
                    // A read settles it also if it returns the known version: then no change caused the
                    // conflict.
                    PodRequest::Read => self.must_read = false,
                    PodRequest::Nominate | PodRequest::TryLift => {}
                }
                return Some(pod);
            }
            // The patch was not applied. Read the pod, and then the lease.
            (_, RequestOutcome::Conflict) => {
                self.permit = None;
                self.must_read = true;
            }
            // The lift may still arrive at the API server. Only a write of this engine settles the state of
            // the pod.
            (PodRequest::Lift, RequestOutcome::Unknown) => {
                self.permit = None;
                self.must_fence = true;
                self.retry.fail(now);
            }
            // The backoff of the gang applies.
            (PodRequest::TryLift, RequestOutcome::Done | RequestOutcome::Refused(_)) => {}
            (request, outcome) => {
                // No decision depends on a nomination. Read the pod, because the nomination may have been
                // written.
                self.must_read |= request == PodRequest::Nominate;
                if matches!(outcome, RequestOutcome::Refused(_)) {
                    self.retry.refuse(now, slots);
                } else {
                    self.retry.fail(now);
                }
            }
        }
        None
    }
}
