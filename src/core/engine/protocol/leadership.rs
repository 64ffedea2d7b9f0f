//! Takeover of leadership, lift permits, and the answers to requests. The fencing rules are in the docs of
//! [`crate::engine::protocol`].

use super::plan_progress::PlanInput;
use super::{ListedObjects, PlanRecord, RequestOutcome, RequestTarget};
use crate::engine::gang_state::{GangObject, Leadership, PodRequest};
use crate::engine::{Action, Engine, SafetyRule, StepContext};
use crate::model::{Epoch, GangId, PodUid};

impl Engine {
    /// Forgets all objects and continues in this state.
    pub(in crate::engine) fn reset(&mut self, leadership: Leadership) {
        let violations = self.violations.clone();
        *self = Self { leadership, violations, ..Self::new(self.settings.clone()) };
    }

    /// Takes in the consistent read at the start of leading. The engine fences the members of all plans in it before it
    /// does anything else: after that, no older leader can lift one of them.
    pub(in crate::engine) fn take_over(
        &mut self,
        epoch: Epoch,
        objects: ListedObjects,
        step: &mut StepContext,
    ) {
        self.leadership = Leadership::Fencing(epoch);
        let planned: Vec<PodUid> = (objects.gangs.iter().flatten())
            .flat_map(|record| {
                record.status.plan.iter().flat_map(|plan| plan.members.iter().map(|m| m.uid.clone()))
            })
            .collect();
        self.observe_all(objects, step);
        if self.leadership != Leadership::Fencing(epoch) {
            return; // The objects contained a newer epoch, and the engine stepped down.
        }
        for uid in planned {
            // A planned pod may be gone by now.
            if let Some(member) = self.members.get_mut(&uid) {
                member.must_fence = member.pod.gated() && self.settings.enforces(SafetyRule::Fence);
            }
        }
        let gangs: Vec<GangId> = self.gangs.keys().cloned().collect();
        for gang in gangs {
            step.touch(&gang);
        }
    }

    /// Starts to lead once every still-gated member of every stored plan is fenced. From then on the engine knows which
    /// members are lifted: it adopts plans that have started and drops the others.
    pub(in crate::engine) fn finish_fencing(&mut self, step: &mut StepContext) {
        let Leadership::Fencing(epoch) = self.leadership else { return };
        if self.members.values().any(|m| m.must_fence) {
            return;
        }
        self.leadership = Leadership::Leading(epoch);
        self.changed_gangs = self.gangs.keys().cloned().collect();
        self.plan_needed = true;
        let found: Vec<(GangId, PlanRecord)> = (self.gangs.iter())
            .filter_map(|(id, gang)| match &gang.record.object {
                GangObject::Known(_, status) => status.plan.clone().map(|plan| (id.clone(), plan)),
                GangObject::Absent => None,
            })
            .collect();
        for (id, plan) in found {
            self.adopt_plan(&id, &plan, step);
        }
        let gangs: Vec<GangId> = self.gangs.keys().cloned().collect();
        for gang in &gangs {
            self.drive_gang(gang, step);
        }
    }

    /// Continues with a plan of an older epoch if a member of it is lifted and not every member is bound.
    fn adopt_plan(&mut self, id: &GangId, plan: &PlanRecord, step: &mut StepContext) {
        let members: Vec<_> = plan
            .members
            .iter()
            .filter(|m| self.members.get(&m.uid).is_some_and(|m| !m.pod.finished()))
            .collect();
        let lifted = |m: &PodUid| self.members.get(m).is_some_and(|m| !m.pod.gated());
        let bound = |m: &PodUid| self.members.get(m).is_some_and(|m| m.pod.node.is_some());
        let started = members.iter().any(|m| lifted(&m.uid));
        // A plan with placeholders is adopted also when all its pods are bound: it still holds reservations, or records
        // that some were released.
        let reserves = !plan.placeholders.is_empty() || plan.released > 0;
        let done = !reserves && members.iter().all(|m| bound(&m.uid));
        if !started || done {
            return;
        }
        let plan = PlanRecord {
            epoch: step.epoch,
            deadline: step.now.after(self.settings.bind_timeout),
            members: members.into_iter().cloned().collect(),
            ..plan.clone()
        };
        self.advance_plan(id, PlanInput::Planned(plan), step);
    }

    /// Reads the lease if a member could be lifted. The pods and versions that the read may grant a permit are fixed
    /// before the request is sent.
    pub(in crate::engine) fn verify_lease(&mut self, step: &mut StepContext) {
        self.lease_backoff.pass(step.now);
        if self.pending_permits.is_some() || !self.leads() || self.lease_backoff.waits(step.now).is_some() {
            return;
        }
        let wanted = self.members_without_permit();
        if wanted.is_empty() {
            return;
        }
        if self.settings.enforces(SafetyRule::Verify) {
            self.pending_permits = Some(wanted);
            step.send(Action::ReadLease);
        } else {
            self.pending_permits = Some(wanted);
            self.grant_permits(step);
        }
    }

    /// Grants the pending lift permits: this replica held the lease after everything in the pending set was known.
    fn grant_permits(&mut self, step: &mut StepContext) {
        for (uid, version) in self.pending_permits.take().unwrap_or_default() {
            // No permit for a pod that is gone or has changed since the lease read was sent.
            if let Some(member) = self.members.get_mut(&uid)
                && member.pod.resource_version == version
            {
                member.permit = Some(version);
                if let Some(membership) = &member.pod.membership {
                    step.touched.insert(membership.gang.clone());
                }
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
                    self.lease_backoff.succeed();
                    self.grant_permits(step);
                }
                RequestOutcome::Lease { ours: false } => self.step_down(step),
                // The holder is unknown: read again after a delay.
                _ => {
                    self.pending_permits = None;
                    self.lease_backoff.fail(step.now);
                }
            },
            RequestTarget::Gang(gang) => self.handle_gang_answer(&gang, outcome, step),
            RequestTarget::Pod(uid) => self.handle_pod_answer(&uid, outcome, step),
            RequestTarget::Group(gang) => self.handle_group_status_answer(&gang, &outcome, step),
            RequestTarget::Owner(gang, owner) => self.handle_owner_answer(&gang, &owner, outcome, step),
        }
    }

    fn handle_pod_answer(&mut self, uid: &PodUid, outcome: RequestOutcome, step: &mut StepContext) {
        // Ordinary: the pod was deleted, or deleted and created again, before the answer arrived.
        let Some(member) = self.members.get_mut(uid) else { return };
        let Some(request) = member.request.take() else { return };
        let gang = member.pod.membership.as_ref().map(|m| m.gang.clone());
        let api_error = match &outcome {
            RequestOutcome::Refused(message) => Some(format!("{}: {message}", member.pod.key.name)),
            _ => None,
        };
        match (request, outcome) {
            (_, RequestOutcome::Gone) => return self.remove_pod(uid, step),
            (request, RequestOutcome::Pod(pod)) => {
                member.backoff.succeed();
                if request == PodRequest::Fence {
                    member.must_fence = false;
                }
                // A read settles it also if it returns the known version: then no change caused the conflict.
                if request == PodRequest::Read {
                    member.must_read = false;
                }
                self.update_member(*pod, step);
            }
            // The patch was not applied. Read the pod, and then the lease.
            (_, RequestOutcome::Conflict) => {
                member.permit = None;
                member.must_read = true;
            }
            // The lift may still arrive at the API server. Only a write of this engine settles the state of the pod.
            (PodRequest::Lift, RequestOutcome::Unknown) => {
                member.permit = None;
                member.must_fence = true;
            }
            // No decision depends on a nomination. Read the pod, because the nomination may have been written.
            (PodRequest::Nominate, _) => {
                member.must_read = true;
                member.backoff.fail(step.now);
            }
            (PodRequest::Read | PodRequest::Fence | PodRequest::Lift, _) => member.backoff.fail(step.now),
        }
        if let Some(member) = self.members.get_mut(uid)
            && !member.pod.gated()
        {
            member.must_fence = false;
        }
        if let Some(id) = gang {
            // A member that was fenced can be planned now.
            if request == PodRequest::Fence {
                self.mark_for_planning(&id);
            }
            if let Some(gang) = self.expect_gang_mut(&id) {
                gang.record.api_error = api_error.as_deref().map(crate::model::str);
            }
            step.touch(&id);
        }
    }
}
