//! Taking over, and staying honest about leading: the four fencing rules of design section 3.

use super::state::{Object, PodRequest, Progress, Role};
use super::types::{ListedObjects, PlanRecord, RequestOutcome, RequestTarget};
use super::{Action, Engine, SafetyRule, Step};
use crate::model::{GangId, PodUid};

impl Engine {
    /// Starts from nothing in this role.
    pub(super) fn forget(&mut self, role: Role) {
        *self = Self { role, ..Self::new(self.settings.clone()) };
    }

    /// A consistent read of everything, at the start of leading: what older leaders planned is fenced before anything
    /// else is done, so that nothing of it can be lifted any more by anybody but us.
    pub(super) fn take_over(&mut self, world: ListedObjects, step: &mut Step) {
        let Role::Listing(epoch) = self.role else { return };
        self.role = Role::Fencing(epoch);
        let planned: Vec<PodUid> = (world.gangs.iter().flatten())
            .flat_map(|record| {
                record.status.plan.iter().flat_map(|plan| plan.members.iter().map(|m| m.uid.clone()))
            })
            .collect();
        self.relist(world, step);
        if self.role != Role::Fencing(epoch) {
            return; // A newer epoch was in what we read.
        }
        for uid in planned {
            if let Some(member) = self.members.get_mut(&uid) {
                member.must_fence = member.pod.gated() && self.settings.keeps(SafetyRule::Fence);
            }
        }
        let gangs: Vec<GangId> = self.gangs.keys().cloned().collect();
        for gang in gangs {
            step.touch(&gang);
        }
    }

    /// When every still-gated member of every plan we found has been written, we know what was lifted: plans that have
    /// begun are adopted, the others are dropped.
    pub(super) fn finish_fencing(&mut self, step: &mut Step) {
        let Role::Fencing(epoch) = self.role else { return };
        if self.members.values().any(|m| m.must_fence) {
            return;
        }
        self.role = Role::Leading(epoch);
        self.fresh = self.gangs.keys().cloned().collect();
        self.replan = true;
        let found: Vec<(GangId, PlanRecord)> = (self.gangs.iter())
            .filter_map(|(id, gang)| match &gang.object {
                Object::Known(_, status) => status.plan.clone().map(|plan| (id.clone(), plan)),
                Object::Absent => None,
            })
            .collect();
        for (id, plan) in found {
            self.adopt(&id, &plan, step);
        }
        let gangs: Vec<GangId> = self.gangs.keys().cloned().collect();
        for gang in &gangs {
            self.drive(gang, step);
        }
    }

    /// Goes on with a plan of an older epoch of which something was lifted and not everything is bound.
    fn adopt(&mut self, id: &GangId, plan: &PlanRecord, step: &Step) {
        let members: Vec<_> = plan
            .members
            .iter()
            .filter(|m| self.members.get(&m.uid).is_some_and(|m| !m.pod.finished()))
            .collect();
        let lifted = |m: &PodUid| self.members.get(m).is_some_and(|m| !m.pod.gated());
        let bound = |m: &PodUid| self.members.get(m).is_some_and(|m| m.pod.node.is_some());
        let begun = members.iter().any(|m| lifted(&m.uid));
        // Of one whose members come one after the other the room for the others is still held, or was let go.
        let coming = !plan.placeholders.is_empty() || plan.released > 0;
        let done = !coming && members.iter().all(|m| bound(&m.uid));
        if !begun || done {
            return;
        }
        let plan = PlanRecord {
            epoch: step.epoch,
            deadline: step.now.after(self.settings.bind_timeout),
            members: members.into_iter().cloned().collect(),
            ..plan.clone()
        };
        self.decide(id, plan);
    }

    /// Asks whether the lease is ours, for every member that could be lifted if it is. What it may license is fixed
    /// before the question is sent.
    pub(super) fn verify_lease(&mut self, step: &mut Step) {
        self.lease_backoff.pass(step.now);
        if self.verifying.is_some() || !self.leads() || self.lease_backoff.waits(step.now).is_some() {
            return;
        }
        let wanted = self.unlicensed();
        if wanted.is_empty() {
            return;
        }
        if self.settings.keeps(SafetyRule::Verify) {
            self.verifying = Some(wanted);
            step.send(Action::ReadLease);
        } else {
            self.verifying = Some(wanted);
            self.license(step);
        }
    }

    /// The lease was ours after everything in the pending set was known: those members may be lifted at that version.
    pub(super) fn license(&mut self, step: &mut Step) {
        for (uid, version) in self.verifying.take().unwrap_or_default() {
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
            self.drive(&gang, step);
        }
    }

    /// An answer to one of our requests.
    pub(super) fn answered(&mut self, subject: RequestTarget, outcome: RequestOutcome, step: &mut Step) {
        match subject {
            RequestTarget::Lease => match outcome {
                RequestOutcome::Lease { ours: true } => {
                    self.lease_backoff.succeed();
                    self.license(step);
                }
                RequestOutcome::Lease { ours: false } => self.step_down(step),
                // Not known: ask again, a little later.
                _ => {
                    self.verifying = None;
                    self.lease_backoff.fail(step.now);
                }
            },
            RequestTarget::Gang(gang) => self.gang_answered(&gang, outcome, step),
            RequestTarget::Pod(uid) => self.pod_answered(&uid, outcome, step),
            RequestTarget::Group(gang) => self.courtesy_answered(&gang, &outcome, step),
            RequestTarget::Owner(gang, owner) => self.owner_answered(&gang, &owner, outcome, step),
        }
    }

    fn pod_answered(&mut self, uid: &PodUid, outcome: RequestOutcome, step: &mut Step) {
        let Some(member) = self.members.get_mut(uid) else { return };
        let Some(request) = member.request.take() else { return };
        let gang = member.pod.membership.as_ref().map(|m| m.gang.clone());
        let trouble = match &outcome {
            RequestOutcome::Refused(message) => Some(format!("{}: {message}", member.pod.key.name)),
            _ => None,
        };
        match (request, outcome) {
            (_, RequestOutcome::Gone) => return self.pod_gone(uid, step),
            (request, RequestOutcome::Pod(pod)) => {
                member.backoff.succeed();
                if request == PodRequest::Fence {
                    member.must_fence = false;
                }
                // Also when it is the version we know: then there was nothing behind the conflict.
                if request == PodRequest::Read {
                    member.must_read = false;
                }
                self.member_read(*pod, step);
            }
            // The patch did not apply: whatever the pod is now has to be read, and the lease after it.
            (_, RequestOutcome::Conflict) => {
                member.permit = None;
                member.must_read = true;
            }
            // A lift that may still be on its way: only a write of our own settles what the pod is.
            (PodRequest::Lift, RequestOutcome::Unknown) => {
                member.permit = None;
                member.must_fence = true;
            }
            // Nothing rests on a nomination. Read the pod: the nomination may have been written.
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
            // A member that is not to be fenced any more can be planned.
            if request == PodRequest::Fence {
                self.look_at(&id);
            }
            if let Some(gang) = self.gangs.get_mut(&id) {
                gang.trouble = trouble.as_deref().map(crate::model::str);
            }
            step.touch(&id);
        }
    }

    /// What an object of ours says about its plan, after it was read or written.
    pub(super) fn plan_seen(&mut self, id: &GangId, stored: Option<&PlanRecord>, step: &mut Step) {
        let Some(gang) = self.gangs.get_mut(id) else { return };
        match (&gang.progress, stored) {
            // Recording -> Recorded: it is durable.
            (Progress::Recording(plan), Some(stored)) if plan == stored => {
                // Members that are not in it, an amended one above all, can be planned from now on.
                let planned = |uid: &PodUid| plan.members.iter().any(|m| m.uid == *uid);
                let more = !gang.members.iter().all(planned);
                gang.progress = Progress::Recorded(plan.clone());
                let lets_go = !std::mem::take(&mut gang.letting_go).is_empty();
                if lets_go {
                    self.charge_places(id);
                }
                if more {
                    self.look_at(id);
                }
            }
            // Recorded -> Recording: somebody took the object, or the plan in it, away. It has to be durable again before
            // anything more is lifted.
            (Progress::Recorded(plan), stored) if Some(plan) != stored => {
                gang.progress = Progress::Recording(plan.clone());
                self.revoke_licences(id);
            }
            // Dropping -> Undecided: it is not durable any more.
            (Progress::Dropping(plan, _), stored) if Some(plan) != stored => {
                self.undecide(id, step);
            }
            _ => {}
        }
    }
}
