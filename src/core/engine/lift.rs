//! Carrying a plan out, member by member: nominate, have the lease read, lift. Everything follows from what is known of
//! the pods, so going on after a crash is the same as going on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::state::{Gang, PodRequest, Progress};
use super::types::{NodePinning, PlanRecord, PodRef};
use super::{Action, Engine, NominationMode, SafetyRule, Step};
use crate::dialect::OnTorn;
use crate::model::{GangId, PodUid, ResourceVersion, Str, str};

/// How long after an eviction it is asked for again, when the pod is still there.
const EVICT_AGAIN: Duration = Duration::from_secs(5);

impl Engine {
    /// Takes a plan up: from here on its members hold their places.
    pub(super) fn decide(&mut self, id: &GangId, plan: PlanRecord) {
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.progress = if self.settings.keeps(SafetyRule::RecordFirst) {
            Progress::Recording(plan)
        } else {
            Progress::Recorded(plan)
        };
        gang.verdict = None;
        gang.told_lifted = false;
        self.revoke_licences(id);
        self.charge_gang(id);
    }

    /// Lets go of a plan that is not, or no longer, durable.
    pub(super) fn undecide(&mut self, id: &GangId, step: &mut Step) {
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.progress = Progress::Undecided;
        gang.letting_go = Vec::new();
        self.revoke_licences(id);
        self.charge_gang(id);
        self.look_at(id);
        step.touch(id);
    }

    /// No member of the gang may be lifted until the lease is read again.
    pub(super) fn revoke_licences(&mut self, id: &GangId) {
        let Some(gang) = self.gangs.get(id) else { return };
        for uid in &gang.members {
            if let Some(member) = self.members.get_mut(uid) {
                member.permit = None;
            }
            if let Some(pending) = &mut self.verifying {
                pending.remove(uid);
            }
        }
    }

    fn charge_gang(&mut self, id: &GangId) {
        let members: Vec<PodUid> =
            self.gangs.get(id).map(|g| g.members.iter().cloned().collect()).unwrap_or_default();
        // What makes way before what takes its place.
        self.charge_places(id);
        for uid in &members {
            self.charge_member(uid);
        }
    }

    /// Looks at a plan again: whether what it stood on still stands, and whether its time is over.
    pub(super) fn judge_plan(&mut self, id: &GangId, step: &mut Step) {
        let Some(gang) = self.gangs.get(id) else { return };
        let Some(plan) = gang.progress.plan() else { return };
        let present =
            || plan.members.iter().filter_map(|m| self.members.get(&m.uid).map(|member| (m, member)));
        let unsettled =
            present().any(|(_, member)| member.must_fence || member.request == Some(PodRequest::Lift));
        if self.begun(plan) {
            self.judge_begun(id, step);
            return;
        }
        if unsettled {
            return;
        }
        let overdue = || (step.now > plan.deadline).then(|| "it could not be lifted in time".to_owned());
        let Some(why) = self.broken_before_lift(id, gang, plan).or_else(overdue) else { return };
        match &gang.progress {
            // Recording -> Undecided: nothing is durable; a write that may still land is overwritten by the next one.
            Progress::Recording(_) if gang.request.is_none() => self.undecide(id, step),
            // Recorded -> Dropping.
            Progress::Recorded(plan) => {
                let dropping = Progress::Dropping(plan.clone(), str(why));
                self.revoke_licences(id);
                if let Some(gang) = self.gangs.get_mut(id) {
                    gang.progress = dropping;
                }
            }
            Progress::Undecided | Progress::Recording(_) | Progress::Dropping(..) => {}
        }
    }

    /// Why a plan of which nothing is lifted cannot be carried out; `None` while it can.
    fn broken_before_lift(&self, id: &GangId, gang: &Gang, plan: &PlanRecord) -> Option<String> {
        for planned in &plan.members {
            let Some(member) = self.members.get(&planned.uid) else {
                return Some(format!("pod {} is gone", planned.pod));
            };
            if !member.ready() {
                return Some(format!("pod {} is going away", planned.pod));
            }
            if let Some(why) = self.unfit(&member.pod, &planned.node) {
                return Some(why);
            }
        }
        if let Some(why) = plan.placeholders.iter().find_map(|place| self.cannot_keep(&place.node)) {
            return Some(why);
        }
        let Some(group) = self.group(id) else { return Some("its group object is gone".to_owned()) };
        let uids: Vec<PodUid> = plan.members.iter().map(|m| m.uid.clone()).collect();
        debug_assert!(uids.iter().all(|uid| gang.members.contains(uid)));
        let mut census = self.census(id);
        let started = census.started() > 0;
        for place in &plan.placeholders {
            *census.active.entry(place.role.clone()).or_default() += 1;
        }
        (!started && !self.complete(&group.quorum, &census, &uids))
            .then(|| format!("the group now wants {} members", group.quorum.min_members()))
    }

    /// A plan of which something is lifted goes on to its end, whatever happens; only members that are still gated and
    /// cannot go where they were to go are taken out of it, to be planned anew.
    fn judge_begun(&mut self, id: &GangId, step: &mut Step) {
        let Some(gang) = self.gangs.get(id) else { return };
        let Progress::Recorded(plan) = &gang.progress else { return };
        let keep: Vec<_> = (plan.members.iter())
            .filter(|m| match self.members.get(&m.uid) {
                Some(member) if member.pod.gated() && !member.must_fence && member.request.is_none() => {
                    member.ready() && self.unfit(&member.pod, &m.node).is_none()
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
            self.decide(id, amended);
            return;
        }
        let late = step.now > plan.deadline;
        let unbound = plan.members.iter().any(|m| self.members.get(&m.uid).is_some_and(|m| m.unbound()));
        let said = self.group(id).and_then(|group| group.policies.on_torn);
        if late && unbound && said.unwrap_or(self.settings.on_torn) == OnTorn::Evict {
            let again = gang.evicted.is_none_or(|at| step.now.since(at) >= EVICT_AGAIN || step.now < at);
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
                    gang.evicted = Some(step.now);
                }
            }
        }
    }

    /// Sends the next request about each member of a gang that has one coming and none under way.
    pub(super) fn drive_members(&mut self, id: &GangId, step: &mut Step) {
        let Some(gang) = self.gangs.get(id) else { return };
        let leads = self.leads();
        let pins = self.group(id).and_then(|group| group.policies.pin).unwrap_or(self.settings.pin_all);
        let places: BTreeMap<PodUid, _> = match &gang.progress {
            Progress::Recorded(plan) if leads => {
                plan.members.iter().map(|m| (m.uid.clone(), (m.node.clone(), m.gpus.clone()))).collect()
            }
            _ => BTreeMap::new(),
        };
        let nominates = self.nominates();
        for uid in &gang.members {
            let Some(member) = self.members.get_mut(uid) else { continue };
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
                // Unlike any write before it, or it would change nothing and settle nothing.
                let token = format!("{}-{}", step.epoch, member.pod.resource_version);
                member.request = Some(PodRequest::Fence);
                step.send(Action::Fence { pod, token: str(token) });
                continue;
            }
            let Some((node, cards)) = places.get(uid) else {
                // Nominated for a plan that is no more: the scheduler must not keep that room.
                let idle = leads && gang.progress == Progress::Undecided;
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
                    // A wish is heard only by a scheduler that looks at the node: it looks at a nominated one first, and
                    // else, in clusters of more than a hundred nodes, at some of them. Members that land elsewhere take
                    // the room of other plans.
                    None if pins || member.pod.nominated.as_ref() != Some(node) => NodePinning::Required,
                    None => NodePinning::Preferred,
                };
                member.request = Some(PodRequest::Lift);
                step.send(Action::Lift {
                    pod: Box::new(member.pod.clone()),
                    permit: member.permit.filter(|_| self.settings.keeps(SafetyRule::LiftPermit)),
                    node: node.clone(),
                    pin,
                    cards: cards.clone(),
                });
            }
        }
    }

    /// Whether somebody could take the room between our decision and the bind.
    fn nominates(&self) -> bool {
        match self.settings.nominate {
            NominationMode::Always => true,
            NominationMode::Contended => !self.rivals.is_empty(),
            NominationMode::Never => false,
        }
    }

    /// Members that could be lifted if the lease is ours, at the version they are known at. A gang is lifted together:
    /// none of it is in here while a nomination is under way.
    pub(super) fn unlicensed(&self) -> BTreeMap<PodUid, ResourceVersion> {
        let mut wanted = BTreeMap::new();
        for gang in self.lifting.iter().filter_map(|id| self.gangs.get(id)) {
            let Progress::Recorded(plan) = &gang.progress else { continue };
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

    /// Why lifted members are not bound, in words.
    pub(super) fn unbound_because(&self, plan: &PlanRecord) -> Vec<Str> {
        let mut lines = Vec::new();
        for planned in &plan.members {
            let Some(member) = self.members.get(&planned.uid) else { continue };
            if member.unbound() {
                let why = self
                    .unfit(&member.pod, &planned.node)
                    .unwrap_or_else(|| format!("the scheduler has not bound it to {}", planned.node));
                lines.push(str(format!("{} not bound: {why}", planned.pod)));
            }
        }
        lines
    }
}
