//! Changes the plan of a gang, with everything that goes with the transition.

use super::plan_progress::{PlanInput, Progress, Transition};
use crate::engine::Engine;
use crate::engine::settings::SafetyRule;
use crate::engine::state::{EngineView, Gang, LiftTrial, StepContext};
use crate::model::{GangId, PodUid};

/// What the engine does beside a gang after a transition of its plan.
#[derive(Debug, Default)]
struct PlanFollowUp {
    recharge: Recharge,
    /// The lift permits of the gang are revoked: lease reads under way grant it none either.
    permits_revoked: bool,
    /// The gang has to be planned again.
    plan_again: bool,
    /// The engine looks at the gang again before the step ends.
    look_again: bool,
}

/// The charges that a transition changes.
#[derive(Debug, Default)]
enum Recharge {
    #[default]
    Nothing,
    Placeholders,
    All,
}

impl Gang {
    /// Changes the plan as [`Progress::next`] says. Returns what follows outside of the gang.
    fn advance_plan(&mut self, input: PlanInput<'_>, view: &EngineView<'_>) -> PlanFollowUp {
        match self.lifecycle.progress.next(input) {
            Transition::Stay => PlanFollowUp::default(),
            Transition::Record(plan) => {
                self.lifecycle.progress = if view.enforces(SafetyRule::RecordFirst) {
                    Progress::Recording(plan)
                } else {
                    Progress::Recorded(plan)
                };
                self.queueing.wait_reason = None;
                self.reported.lifted_event_recorded = false;
                self.revoke_permits();
                PlanFollowUp { recharge: Recharge::All, permits_revoked: true, ..PlanFollowUp::default() }
            }
            Transition::Confirm(plan) => {
                // Members outside of the plan can be planned from now on, above all those of an amended plan.
                let planned = |uid: &PodUid| plan.members.iter().any(|m| m.uid == *uid);
                let plan_again = !self.members.keys().all(planned);
                self.lifecycle.progress = Progress::Recorded(plan);
                let released = std::mem::take(&mut self.lifecycle.released_placeholders);
                let recharge = if released.is_empty() { Recharge::Nothing } else { Recharge::Placeholders };
                PlanFollowUp { recharge, plan_again, ..PlanFollowUp::default() }
            }
            Transition::RecordAgain(plan) => {
                self.lifecycle.progress = Progress::Recording(plan);
                self.revoke_permits();
                PlanFollowUp { permits_revoked: true, ..PlanFollowUp::default() }
            }
            Transition::Drop(plan, why) => {
                self.lifecycle.progress = Progress::Dropping(plan, why);
                self.revoke_permits();
                PlanFollowUp { permits_revoked: true, ..PlanFollowUp::default() }
            }
            Transition::Abandon | Transition::Dropped => {
                self.lifecycle.progress = Progress::Undecided;
                self.lifecycle.released_placeholders = Vec::new();
                self.revoke_permits();
                PlanFollowUp {
                    recharge: Recharge::All,
                    permits_revoked: true,
                    plan_again: true,
                    look_again: true,
                }
            }
        }
    }

    /// Revokes the lift permits of the gang: no member is lifted before the lease is read again, and before
    /// the lifts of the next plan are tried.
    fn revoke_permits(&mut self) {
        self.lifecycle.lift_trial = LiftTrial::default();
        for member in self.members.values_mut() {
            member.permit = None;
        }
    }
}

impl Engine {
    /// Changes the plan of a gang as [`Progress::next`] says, with everything that goes with the transition.
    pub(in crate::engine) fn advance_plan(
        &mut self,
        id: &GangId,
        input: PlanInput<'_>,
        step: &mut StepContext,
    ) {
        let Some((gang, view)) = self.gang_and_view(id, step.now) else { return };
        let follow_up = gang.advance_plan(input, &view);
        if follow_up.permits_revoked
            && let (Some(pending), Some(gang)) = (&mut self.pending_permits, self.gangs.get(id))
        {
            pending.retain(|uid, _| !gang.members.contains_key(uid));
        }
        match follow_up.recharge {
            Recharge::Nothing => {}
            Recharge::Placeholders => self.charge_placeholders(id),
            Recharge::All => self.charge_gang(id),
        }
        if follow_up.plan_again {
            self.mark_for_planning(id);
        }
        if follow_up.look_again {
            step.touch(id);
        }
    }
}
