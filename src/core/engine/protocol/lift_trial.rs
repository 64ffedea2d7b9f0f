//! Tries the lifts of a gang with a dry run before the first gate is removed.
//!
//! A gate cannot be added again. If a policy, a webhook or a limit refuses the lift of one member after the
//! gates of others are removed, the gang runs in part. So the engine first sends the same patches with
//! `dryRun=All`: admission and validation run, and nothing is stored. If one is refused, the plan is dropped.
//! The gang stays whole behind its gates, its reservation is free for others, and it is planned again after a
//! backoff.
//!
//! One member is tried for all that are alike ([`LiftClass`]). The trials run at the same time, and beside
//! the read of the lease. They remove no gate and grant no permit: the four fencing rules hold for the lifts
//! as before. The result belongs to one plan in memory. Another leader tries again.
//!
//! A plan with a lifted member is not tried: it is carried out to its end in any case. A trial that the API
//! server cannot carry out, because a webhook has side effects, counts as accepted. If a lift is refused
//! after that, and no other member is lifted, the next plan lifts the refused member before the others.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::plan_progress::Progress;
use super::{Action, NodePinning, PlannedMember, Refusal};
use crate::engine::state::{
    Effects, EngineView, Gang, LiftTrial, Liftable, MemberState, PodRequest, RefusedLift, RetrySlots,
};
use crate::model::{PodUid, Str, Time};
use crate::objects::names;

/// What an admission policy can tell the lifts of two members apart by, without name, UID and fields that are
/// different in each pod of a controller.
///
/// Pods of one controller are made from one template. A controller with several templates tells them apart by
/// labels. The shape stands for what other webhooks have changed in requests and constraints. A pod without a
/// controller has only its own template. Node and cards of the plan are not in the class: the scheduler
/// chooses them where there is no engine, so no policy depends on them.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LiftClass<'a> {
    /// The UID of the controller, or of a pod without one.
    template: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    gates: &'a [Str],
    scheduler: &'a Str,
    priority_class: &'a Option<Str>,
    shape: u64,
    pin: NodePinning,
    gets_cards: bool,
}

/// Labels whose value is different in each pod of a controller.
const LABELS_OF_ONE_POD: [&str; 5] = [
    names::LWS_WORKER_INDEX_LABEL,
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "statefulset.kubernetes.io/pod-name",
    "training.kubeflow.org/replica-index",
];

impl Gang {
    /// Sends the next trials of the lifts, once every member of the plan is nominated.
    pub(in crate::engine) fn try_lifts(
        &mut self,
        pin_all: bool,
        view: &EngineView<'_>,
        effects: &mut Effects,
    ) {
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return };
        let passed = self.lifecycle.lift_trial == LiftTrial::Passed;
        if passed || !view.leads || self.lifecycle.refused_lift.is_some() || self.has_started(plan) {
            return;
        }
        if self.present(plan).any(|(_, member)| member.request == Some(PodRequest::Nominate)) {
            return;
        }
        let planned: BTreeMap<&PodUid, &PlannedMember> = plan.members.iter().map(|m| (&m.uid, m)).collect();
        let trying = match &self.lifecycle.lift_trial {
            LiftTrial::Trying(trying) => trying.clone(),
            LiftTrial::Open | LiftTrial::Passed => self.unlike_members(&planned, pin_all),
        };
        for uid in &trying {
            let (Some(planned), Some(member)) = (planned.get(uid), self.members.get_mut(uid)) else {
                continue;
            };
            let idle = member.request.is_none() && !member.must_read && !member.must_fence;
            if idle && member.retry.waits(view.now).is_none() {
                member.request = Some(PodRequest::TryLift);
                effects.send(Action::TryLift {
                    pod: Box::new(member.pod.clone()),
                    node: planned.node.clone(),
                    pin: member.pinning(&planned.node, pin_all),
                    cards: planned.gpus.clone(),
                });
            }
        }
        self.lifecycle.lift_trial = LiftTrial::Trying(trying);
    }

    /// One gated member of each class.
    fn unlike_members(&self, planned: &BTreeMap<&PodUid, &PlannedMember>, pin_all: bool) -> BTreeSet<PodUid> {
        let mut classes = BTreeMap::new();
        for (uid, planned) in planned {
            if let Some(member) = self.members.get(*uid).filter(|member| member.pod.gated()) {
                classes.entry(member.lift_class(planned, pin_all)).or_insert(*uid);
            }
        }
        classes.into_values().cloned().collect()
    }

    /// Which members of the plan may be lifted now.
    pub(in crate::engine) fn liftable(&self) -> Liftable {
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return Liftable::None };
        if self.has_started(plan) {
            return Liftable::All;
        }
        if self.lifecycle.lift_trial != LiftTrial::Passed || self.lifecycle.refused_lift.is_some() {
            return Liftable::None;
        }
        match &self.lifecycle.first_lift {
            Some(uid) if plan.members.iter().any(|planned| planned.uid == *uid) => {
                Liftable::Only(uid.clone())
            }
            _ => Liftable::All,
        }
    }

    /// Takes in that the API server accepts the lift of a member that was tried.
    pub(in crate::engine) fn accept_trial(&mut self, uid: &PodUid) {
        if let LiftTrial::Trying(trying) = &mut self.lifecycle.lift_trial {
            trying.remove(uid);
            if trying.is_empty() {
                self.lifecycle.lift_trial = LiftTrial::Passed;
            }
        }
    }

    /// Takes in that the API server refuses the lift of a member. The plan is dropped if no member is lifted.
    pub(in crate::engine) fn refuse_lift(
        &mut self,
        uid: &PodUid,
        refusal: &Refusal,
        now: Time,
        slots: &mut RetrySlots,
    ) {
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return };
        // The answers to the other trials of the same plan bring nothing new.
        if self.has_started(plan) || self.lifecycle.refused_lift.is_some() {
            return;
        }
        let Some(member) = self.members.get(uid) else { return };
        let refused = RefusedLift { pod: member.pod.key.name.clone(), refusal: refusal.clone() };
        self.lifecycle.refused_lift = Some(Box::new(refused));
        self.lifecycle.lift_retry.refuse(now, slots);
    }

    /// Forgets a refused lift after its delay. Returns whether the gang has to be planned again.
    pub(in crate::engine) fn forget_refused_lift(&mut self, view: &EngineView<'_>) -> bool {
        let over = self.lifecycle.refused_lift.is_some()
            && self.lifecycle.progress == Progress::Undecided
            && self.lifecycle.lift_retry.waits(view.now).is_none();
        if over {
            self.lifecycle.refused_lift = None;
        }
        over
    }
}

impl MemberState {
    fn lift_class(&self, planned: &PlannedMember, pin_all: bool) -> LiftClass<'_> {
        let pod = &self.pod;
        let mut shape = DefaultHasher::new();
        (&pod.shape, &pod.affinity).hash(&mut shape);
        LiftClass {
            template: pod.owner.as_ref().map_or(pod.uid.as_str(), |owner| &*owner.uid),
            labels: pod.labels.iter().filter(|(key, _)| !LABELS_OF_ONE_POD.contains(key)).collect(),
            gates: &pod.gates,
            scheduler: &pod.scheduler,
            priority_class: &pod.priority_class,
            shape: shape.finish(),
            pin: self.pinning(&planned.node, pin_all),
            gets_cards: !planned.gpus.is_empty(),
        }
    }
}
