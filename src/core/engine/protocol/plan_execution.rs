//! Carries a plan out, member by member: nominates, has the lease read, lifts. See the table in the docs of
//! [`crate::engine::protocol`].

use std::collections::BTreeMap;

use super::plan_progress::Progress;
use super::{Action, NodePinning, PlannedMember, PodRef};
use crate::engine::settings::{NominationMode, SafetyRule};
use crate::engine::state::{Effects, EngineView, Gang, MemberState, PodRequest};
use crate::model::{Epoch, NodeName, PodUid, ResourceVersion, str};

impl Gang {
    /// Sends the next request about each member that needs one and has no unanswered request.
    pub(in crate::engine) fn drive_members(&mut self, view: &EngineView<'_>, effects: &mut Effects) {
        let pin_all = self.group(view).and_then(|group| group.policies.pin).unwrap_or(view.settings.pin_all);
        let nominates = match view.settings.nominate {
            NominationMode::Always => true,
            NominationMode::Contended => view.is_contended,
            NominationMode::Never => false,
        };
        let may_nominate = view.settings.nominate != NominationMode::Never;
        // The rest of a gang that is being evicted stays gated.
        let may_lift = self.lifecycle.expired.is_empty();
        let planned: BTreeMap<&PodUid, &PlannedMember> = match &self.lifecycle.progress {
            Progress::Recorded(plan) if view.leads && may_lift => {
                plan.members.iter().map(|m| (&m.uid, m)).collect()
            }
            _ => BTreeMap::new(),
        };
        let idle = view.leads && self.lifecycle.progress == Progress::Undecided;
        let liftable = self.liftable();
        for (uid, member) in &mut self.members {
            if member.request.is_some() || member.retry.waits(view.now).is_some() {
                continue;
            }
            let action = member.settle_request(view.epoch).or_else(|| match planned.get(uid) {
                Some(planned) if member.pod.gated() => {
                    // A member that cannot be pinned keeps its node by a nomination, contended or not.
                    let unpinned = may_nominate && !member.pod.shape.tolerates_pin();
                    let nomination =
                        if nominates || unpinned { member.nominate(&planned.node) } else { None };
                    nomination.or_else(|| {
                        if liftable.contains(uid) { member.lift(planned, pin_all, view) } else { None }
                    })
                }
                Some(_) => None,
                // The plan of the nomination is gone. Clear it, so that the scheduler does not keep the
                // capacity.
                None if idle => member.clear_nomination(),
                None => None,
            });
            if let Some(action) = action {
                effects.send(action);
            }
        }
        self.try_lifts(pin_all, view, effects);
    }

    /// Members that could be lifted if this replica holds the lease, with their known versions. A gang is
    /// lifted as a whole: none while a nomination has no answer.
    pub(in crate::engine) fn members_without_permit(&self) -> Vec<(PodUid, ResourceVersion)> {
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return Vec::new() };
        if self.present(plan).any(|(_, member)| member.request == Some(PodRequest::Nominate)) {
            return Vec::new();
        }
        let waiting = self.present(plan).map(|(_, member)| member).filter(|member| {
            // A dry run does not change the pod.
            let idle = matches!(member.request, None | Some(PodRequest::TryLift))
                && !member.must_read
                && !member.must_fence;
            member.pod.gated() && idle && member.permit != Some(member.pod.resource_version)
        });
        waiting.map(|member| (member.pod.uid.clone(), member.pod.resource_version)).collect()
    }
}

impl MemberState {
    /// The request that settles the state of the pod: a read, or a fence.
    fn settle_request(&mut self, epoch: Epoch) -> Option<Action> {
        let pod = PodRef::of(&self.pod);
        if self.must_read {
            self.request = Some(PodRequest::Read);
            return Some(Action::ReadPod { pod });
        }
        if self.must_fence {
            // The token differs from all earlier ones. An equal value would not change the version of the
            // pod.
            let token = format!("{epoch}-{}", self.pod.resource_version);
            self.request = Some(PodRequest::Fence);
            return Some(Action::Fence { pod, token: str(token) });
        }
        None
    }

    /// Nominates the pod to its planned node. `None` if that was done, or if the scheduler of the pod places
    /// whole gangs itself.
    fn nominate(&mut self, node: &NodeName) -> Option<Action> {
        let known = self.pod.nominated.as_ref() == Some(node) || self.nominated.as_ref() == Some(node);
        if known || self.pod.placed_by_gang_scheduler() {
            return None;
        }
        self.nominated = Some(node.clone());
        self.request = Some(PodRequest::Nominate);
        Some(Action::Nominate { pod: PodRef::of(&self.pod), node: Some(node.clone()) })
    }

    /// Clears the nomination of a gated pod.
    fn clear_nomination(&mut self) -> Option<Action> {
        if !self.pod.gated() || self.pod.nominated.is_none() {
            return None;
        }
        self.nominated = None;
        self.request = Some(PodRequest::Nominate);
        Some(Action::Nominate { pod: PodRef::of(&self.pod), node: None })
    }

    /// Lifts the pod. `None` without a lift permit for its version.
    fn lift(&mut self, planned: &PlannedMember, pin_all: bool, view: &EngineView<'_>) -> Option<Action> {
        if self.permit != Some(self.pod.resource_version) {
            return None;
        }
        self.request = Some(PodRequest::Lift);
        Some(Action::Lift {
            pod: Box::new(self.pod.clone()),
            permit: self.permit.filter(|_| view.enforces(SafetyRule::LiftPermit)),
            node: planned.node.clone(),
            pin: self.pinning(&planned.node, pin_all),
            cards: planned.gpus.clone(),
        })
    }

    /// How the pod is tied to its planned node.
    pub(in crate::engine) fn pinning(&self, node: &NodeName, pin_all: bool) -> NodePinning {
        match self.pod.shape.share {
            _ if self.pod.placed_by_gang_scheduler() => NodePinning::None,
            Some(_) => NodePinning::Required,
            // The scheduler would refuse the pin, or decides by what is unknown here.
            None if !self.pod.shape.tolerates_pin() => NodePinning::Preferred,
            // A scheduler honours preferred affinity only on nodes that it scores: the nominated node, and in
            // clusters of more than a hundred nodes only some of the others. A member that lands elsewhere
            // takes the capacity of another plan.
            None if pin_all || self.pod.nominated.as_ref() != Some(node) => NodePinning::Required,
            None => NodePinning::Preferred,
        }
    }
}
