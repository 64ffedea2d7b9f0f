//! Carries a plan out, member by member: nominates, has the lease read, lifts. See the table in the docs of
//! [`crate::engine::protocol`].

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan_progress::{PlanInput, Progress};
use super::{NodePinning, PlanRecord, PodRef};
use crate::dialect::OnTorn;
use crate::engine::gang_state::{GangState, PodRequest};
use crate::engine::invariants::{KNOWN_GANG, KNOWN_MEMBER};
use crate::engine::{Action, Engine, NominationMode, SafetyRule, StepContext};
use crate::model::{GangId, PodUid, ResourceVersion, Str, str};

/// After this time the engine deletes a torn member again if the pod still exists.
pub(in crate::engine) const EVICTION_RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl Engine {
    /// Revokes the lift permits of a gang: no member is lifted before the lease is read again.
    pub(in crate::engine) fn revoke_permits(&mut self, id: &GangId) {
        let Some(gang) = self.expect_gang(id) else { return };
        let members: Vec<PodUid> = gang.members.iter().cloned().collect();
        for uid in &members {
            if let Some(member) = self.members.get_mut(uid) {
                member.permit = None;
            }
            if let Some(pending) = &mut self.pending_permits {
                pending.remove(uid);
            }
        }
    }

    /// Charges placeholders and members of a gang as its plan says.
    pub(in crate::engine) fn charge_gang(&mut self, id: &GangId) {
        let members: Vec<PodUid> =
            self.expect_gang(id).map(|g| g.members.iter().cloned().collect()).unwrap_or_default();
        // Placeholders first: a member takes the capacity of its placeholder.
        self.charge_placeholders(id);
        for uid in &members {
            self.charge_member(uid);
        }
    }

    /// Checks whether the plan of a gang can still be carried out and is in time.
    pub(in crate::engine) fn review_plan(&mut self, id: &GangId, step: &mut StepContext) {
        let Some(gang) = self.expect_gang(id) else { return };
        let Some(plan) = gang.lifecycle.progress.plan() else { return };
        let present =
            || plan.members.iter().filter_map(|m| self.members.get(&m.uid).map(|member| (m, member)));
        let unsettled =
            present().any(|(_, member)| member.must_fence || member.request == Some(PodRequest::Lift));
        if self.has_started(plan) {
            self.review_started_plan(id, step);
            return;
        }
        if unsettled {
            return;
        }
        let overdue = || (step.now > plan.deadline).then(|| "it could not be lifted in time".to_owned());
        let Some(why) = self.reason_to_drop(id, gang, plan).or_else(overdue) else { return };
        let write_pending = gang.record.request.is_some();
        self.advance_plan(id, PlanInput::Infeasible { why: str(why), write_pending }, step);
    }

    /// The reason why a plan without a lifted member cannot be carried out. `None` while it can.
    fn reason_to_drop(&self, id: &GangId, gang: &GangState, plan: &PlanRecord) -> Option<String> {
        for planned in &plan.members {
            let Some(member) = self.members.get(&planned.uid) else {
                return Some(format!("pod {} is gone", planned.pod));
            };
            if !member.ready() {
                return Some(format!("pod {} is going away", planned.pod));
            }
            if let Some(why) = self.node_unfit_reason(&member.pod, &planned.node) {
                return Some(why);
            }
        }
        if let Some(why) = plan.placeholders.iter().find_map(|place| self.reservation_unfit_reason(place)) {
            return Some(why);
        }
        let Some(group) = self.group(id) else { return Some("its group object is gone".to_owned()) };
        let uids: Vec<PodUid> = plan.members.iter().map(|m| m.uid.clone()).collect();
        debug_assert!(uids.iter().all(|uid| gang.members.contains(uid)));
        let mut counts = self.count_members(id);
        let started = counts.started() > 0;
        for place in &plan.placeholders {
            *counts.active.entry(place.role.clone()).or_default() += 1;
        }
        (!started && !self.is_complete(&group.quorum, &counts, &uids))
            .then(|| format!("the group now wants {} members", group.quorum.min_members()))
    }

    /// Reviews a plan with a lifted member. Such a plan is carried out to its end. Only members that are still gated and
    /// cannot use their node leave it, and are planned again.
    fn review_started_plan(&mut self, id: &GangId, step: &mut StepContext) {
        let Some(gang) = self.expect_gang(id) else { return };
        let Progress::Recorded(plan) = &gang.lifecycle.progress else { return };
        let keep: Vec<_> = (plan.members.iter())
            .filter(|m| match self.members.get(&m.uid) {
                Some(member) if member.pod.gated() && !member.must_fence && member.request.is_none() => {
                    member.ready() && self.node_unfit_reason(&member.pod, &m.node).is_none()
                }
                Some(_) => true,
                None => false,
            })
            .cloned()
            .collect();
        let gated_dropped =
            plan.members.iter().any(|m| self.members.contains_key(&m.uid) && !keep.contains(m));
        if gated_dropped {
            let amended = PlanRecord { members: keep, ..plan.clone() };
            self.advance_plan(id, PlanInput::Planned(amended), step);
            return;
        }
        let late = step.now > plan.deadline;
        let unbound = plan.members.iter().any(|m| self.members.get(&m.uid).is_some_and(|m| m.unbound()));
        let said = self.group(id).and_then(|group| group.policies.on_torn);
        if late && unbound && said.unwrap_or(self.settings.on_torn) == OnTorn::Evict {
            let again = gang
                .timers
                .last_eviction
                .is_none_or(|at| step.now.since(at) >= EVICTION_RETRY_INTERVAL || step.now < at);
            if again {
                let message = format!("gang {} is torn: evicted for another try", id.name);
                for planned in &plan.members {
                    if let Some(member) = self.members.get(&planned.uid)
                        && member.live()
                    {
                        step.send(Action::Evict { pod: PodRef::of(&member.pod), message: message.clone() });
                    }
                }
                if let Some(gang) = self.gangs.get_mut(id) {
                    gang.timers.last_eviction = Some(step.now);
                }
            }
        }
    }

    /// Sends the next request about each member of a gang that needs one and has no unanswered request.
    pub(in crate::engine) fn drive_members(&mut self, id: &GangId, step: &mut StepContext) {
        // `expect_gang` would borrow all of the engine while members change.
        let Some(gang) = self.gangs.get(id) else {
            self.violations.check(false, KNOWN_GANG);
            return;
        };
        let leads = self.leads();
        let pins = self.group(id).and_then(|group| group.policies.pin).unwrap_or(self.settings.pin_all);
        let places: BTreeMap<PodUid, _> = match &gang.lifecycle.progress {
            Progress::Recorded(plan) if leads => {
                plan.members.iter().map(|m| (m.uid.clone(), (m.node.clone(), m.gpus.clone()))).collect()
            }
            _ => BTreeMap::new(),
        };
        let nominates = self.should_nominate();
        for uid in &gang.members {
            let Some(member) = self.members.get_mut(uid) else {
                self.violations.check(false, KNOWN_MEMBER);
                continue;
            };
            if member.request.is_some() || member.backoff.waits(step.now).is_some() {
                continue;
            }
            let pod = PodRef::of(&member.pod);
            if member.must_read {
                member.request = Some(PodRequest::Read);
                step.send(Action::ReadPod { pod });
                continue;
            }
            if member.must_fence {
                // The token differs from all earlier ones. An equal value would not change the version of the pod.
                let token = format!("{}-{}", step.epoch, member.pod.resource_version);
                member.request = Some(PodRequest::Fence);
                step.send(Action::Fence { pod, token: str(token) });
                continue;
            }
            let Some((node, cards)) = places.get(uid) else {
                // The plan of the nomination is gone. Clear it, so that the scheduler does not keep the capacity.
                let idle = leads && gang.lifecycle.progress == Progress::Undecided;
                if idle && member.pod.gated() && member.pod.nominated.is_some() {
                    member.nominated = None;
                    member.request = Some(PodRequest::Nominate);
                    step.send(Action::Nominate { pod, node: None });
                }
                continue;
            };
            if !member.pod.gated() {
                continue;
            }
            let theirs = member.pod.placed_by_gang_scheduler();
            let fresh =
                member.pod.nominated.as_ref() != Some(node) && member.nominated.as_ref() != Some(node);
            if nominates && !theirs && fresh {
                member.nominated = Some(node.clone());
                member.request = Some(PodRequest::Nominate);
                step.send(Action::Nominate { pod, node: Some(node.clone()) });
            } else if member.permit == Some(member.pod.resource_version) {
                let pin = match member.pod.shape.share {
                    _ if theirs => NodePinning::None,
                    Some(_) => NodePinning::Required,
                    // A scheduler honours preferred affinity only on nodes that it scores: the nominated node, and in
                    // clusters of more than a hundred nodes only some of the others. A member that lands elsewhere
                    // takes the capacity of another plan.
                    None if pins || member.pod.nominated.as_ref() != Some(node) => NodePinning::Required,
                    None => NodePinning::Preferred,
                };
                member.request = Some(PodRequest::Lift);
                step.send(Action::Lift {
                    pod: Box::new(member.pod.clone()),
                    permit: member.permit.filter(|_| self.settings.enforces(SafetyRule::LiftPermit)),
                    node: node.clone(),
                    pin,
                    cards: cards.clone(),
                });
            }
        }
    }

    /// Whether members are nominated: another pod could take the capacity between the plan and the bind.
    fn should_nominate(&self) -> bool {
        match self.settings.nominate {
            NominationMode::Always => true,
            NominationMode::Contended => !self.unscheduled_pods.is_empty(),
            NominationMode::Never => false,
        }
    }

    /// Members that could be lifted if this replica holds the lease, with their known versions. A gang is lifted as a
    /// whole: it is left out while a nomination has no answer.
    pub(in crate::engine) fn members_without_permit(&self) -> BTreeMap<PodUid, ResourceVersion> {
        let mut wanted = BTreeMap::new();
        for gang in self.lifting.iter().filter_map(|id| self.gangs.get(id)) {
            let Progress::Recorded(plan) = &gang.lifecycle.progress else { continue };
            let members = || plan.members.iter().filter_map(|m| self.members.get(&m.uid));
            if members().any(|m| m.request == Some(PodRequest::Nominate)) {
                continue;
            }
            for member in members() {
                let idle = member.request.is_none() && !member.must_read && !member.must_fence;
                if member.pod.gated() && idle && member.permit != Some(member.pod.resource_version) {
                    wanted.insert(member.pod.uid.clone(), member.pod.resource_version);
                }
            }
        }
        wanted
    }

    /// For each lifted member that is not bound, a sentence with the reason.
    pub(in crate::engine) fn unbound_reasons(&self, plan: &PlanRecord) -> Vec<Str> {
        let mut lines = Vec::new();
        for planned in &plan.members {
            // A planned pod may be gone.
            if let Some(member) = self.members.get(&planned.uid)
                && member.unbound()
            {
                let why = self
                    .node_unfit_reason(&member.pod, &planned.node)
                    .unwrap_or_else(|| format!("the scheduler has not bound it to {}", planned.node));
                lines.push(str(format!("{} not bound: {why}", planned.pod)));
            }
        }
        lines
    }
}
