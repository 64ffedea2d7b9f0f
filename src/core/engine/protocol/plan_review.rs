//! Checks whether the plan of a gang can still be carried out and is in time.

use std::time::Duration;

use super::plan_progress::{PlanInput, Progress};
use super::{Action, PlanRecord, PodRef};
use crate::dialect::OnTorn;
use crate::engine::members::node_fitness::{node_unfit_reason, reservation_unfit_reason};
use crate::engine::state::{Effects, EngineView, Gang};
use crate::model::{PodUid, str};

/// After this time the engine deletes a torn member again if the pod still exists.
pub(in crate::engine) const EVICTION_RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl Gang {
    /// Checks the plan, and evicts the members of a torn gang if that is the policy. Returns what follows for
    /// the plan.
    pub(in crate::engine) fn review_plan(
        &mut self,
        view: &EngineView<'_>,
        effects: &mut Effects,
    ) -> Option<PlanInput<'static>> {
        let plan = self.plan()?;
        if self.has_started(plan) {
            let amended = self.amended_plan(view);
            if amended.is_none() && self.has_torn_members_to_evict(view) {
                self.evict_torn_members(view, effects);
            }
            return amended.map(PlanInput::Planned);
        }
        if self.present(plan).any(|(_, member)| member.may_be_lifted()) {
            return None;
        }
        let overdue = || (view.now > plan.deadline).then(|| "it could not be lifted in time".to_owned());
        let refused =
            || Some(format!("the lift of pod {} is refused", self.lifecycle.refused_lift.as_ref()?.pod));
        let why = self.reason_to_drop(plan, view).or_else(refused).or_else(overdue)?;
        Some(PlanInput::Infeasible { why: str(why), write_pending: self.record.request.is_some() })
    }

    /// The reason why a plan without a lifted member cannot be carried out. `None` while it can.
    fn reason_to_drop(&self, plan: &PlanRecord, view: &EngineView<'_>) -> Option<String> {
        for planned in &plan.members {
            let Some(member) = self.members.get(&planned.uid) else {
                return Some(format!("pod {} is gone", planned.pod));
            };
            if !member.ready() {
                return Some(format!("pod {} is going away", planned.pod));
            }
            if let Some(why) = node_unfit_reason(view.snapshot, &member.pod, &planned.node) {
                return Some(why);
            }
        }
        let mut placeholders = plan.placeholders.iter();
        if let Some(why) = placeholders.find_map(|place| reservation_unfit_reason(view.snapshot, place)) {
            return Some(why);
        }
        let Some(group) = self.group(view) else { return Some("its group object is gone".to_owned()) };
        let mut counts = self.count_members();
        if counts.started() > 0 {
            return None;
        }
        let uids: Vec<PodUid> = plan.members.iter().map(|m| m.uid.clone()).collect();
        let members = self.pods(&uids).map(|pod| crate::engine::members::role(pod).cloned());
        for role in members.chain(plan.placeholders.iter().map(|place| place.role.clone())) {
            *counts.active.entry(role).or_default() += 1;
        }
        (!counts.started_satisfy(&group.quorum))
            .then(|| format!("the group now wants {} members", group.quorum.min_members()))
    }

    /// The plan without the members that are still gated and cannot use their node: they are planned again. A
    /// plan with a lifted member is carried out to its end otherwise. `None` if all members stay.
    fn amended_plan(&self, view: &EngineView<'_>) -> Option<PlanRecord> {
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return None };
        let fits = |planned: &super::PlannedMember| match self.members.get(&planned.uid) {
            Some(member) if member.pod.gated() && !member.must_fence && member.request.is_none() => {
                member.ready() && node_unfit_reason(view.snapshot, &member.pod, &planned.node).is_none()
            }
            Some(_) => true,
            None => false,
        };
        let (kept, lost): (Vec<_>, Vec<_>) = plan.members.iter().cloned().partition(fits);
        // A plan whose missing members are all gone stays as it is.
        let gated_dropped = lost.iter().any(|m| self.members.contains_key(&m.uid));
        gated_dropped.then(|| PlanRecord { members: kept, ..plan.clone() })
    }

    /// Whether the gang is torn, its policy is eviction, and the last eviction was long enough ago.
    fn has_torn_members_to_evict(&self, view: &EngineView<'_>) -> bool {
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return false };
        let policy = self.group(view).and_then(|group| group.policies.on_torn);
        view.now > plan.deadline
            && self.present(plan).any(|(_, member)| member.unbound())
            && policy.unwrap_or(view.settings.on_torn) == OnTorn::Evict
            && !self.evicted_recently(EVICTION_RETRY_INTERVAL, view.now)
    }

    fn evict_torn_members(&mut self, view: &EngineView<'_>, effects: &mut Effects) {
        let Some(plan) = self.plan() else { return };
        let message = format!("gang {} is torn: evicted for another try", self.id.name);
        for (_, member) in self.present(plan).filter(|(_, member)| member.live()) {
            effects.send(Action::Evict { pod: PodRef::of(&member.pod), message: message.clone() });
        }
        self.timers.last_eviction = Some(view.now);
    }
}
