//! Takes in objects from watches, lists and answers. The newest version of each object wins, older ones are
//! ignored. Each new version is charged to the snapshot at once.

use std::sync::Arc;

use crate::engine::gang_state::{GangObject, GangState, MemberState};
use crate::engine::invariants::KNOWN_MEMBER;
use crate::engine::protocol::plan_progress::PlanInput;
use crate::engine::protocol::{Change, GangRecord, ListedObjects};
use crate::engine::{Action, Engine, SafetyRule, StepContext};
use crate::model::{GangId, NodeName, PodUid, Str, Time};
use crate::objects::{Node, PriorityClass};
use crate::pod::Pod;
use crate::snapshot::{CardAllocation, Charge, ChargeState};

impl Engine {
    pub(in crate::engine) fn observe_node(&mut self, change: Change<Node, NodeName>, step: &mut StepContext) {
        let name = match &change {
            Change::Set(node) => node.name.clone(),
            Change::Gone(name) => name.clone(),
        };
        let changed = match change {
            Change::Set(node) => self.snapshot.set_node(node),
            Change::Gone(name) => self.snapshot.remove_node(&name),
        };
        if changed {
            self.invalidate_head_of_line(&name);
            self.touch_gangs_on(&name, step);
        }
    }

    /// Touches the gangs with members or placeholders on a node: its change may invalidate their plans.
    fn touch_gangs_on(&self, node: &NodeName, step: &mut StepContext) {
        for (uid, _) in self.snapshot.charged_to(node) {
            if let Some(gang) = self.placeholder_owners.get(uid) {
                step.touch(gang);
            }
            let membership = self.members.get(uid).and_then(|member| member.pod.membership.as_ref());
            if let Some(membership) = membership {
                step.touch(&membership.gang);
            }
        }
    }

    pub(in crate::engine) fn observe_priority_class(
        &mut self,
        change: Change<PriorityClass, Str>,
        step: &mut StepContext,
    ) {
        let classes = self.priority_classes.get_or_insert_default();
        let changed = match change {
            Change::Set(class) => classes.insert(class.name, class.value) != Some(class.value),
            Change::Gone(name) => classes.remove(&name).is_some(),
        };
        if changed {
            self.requeue_prioritized_gangs(step);
        }
    }

    /// Touches every gang whose group names a PriorityClass: its rank and the status of its group may change.
    fn requeue_prioritized_gangs(&mut self, step: &mut StepContext) {
        let named = self.groups.iter().filter(|(_, group)| group.priority_class.is_some());
        let named: Vec<GangId> = named.map(|(id, _)| id.clone()).collect();
        for id in named.iter().filter(|id| self.gangs.contains_key(id)).cloned().collect::<Vec<_>>() {
            self.mark_for_planning(&id);
            step.touch(&id);
        }
    }

    /// Takes in a pod from a watch or a list.
    pub(in crate::engine) fn observe_pod(&mut self, pod: Pod, step: &mut StepContext) {
        let uid = pod.uid.clone();
        match self.members.get(&uid) {
            Some(known) if is_same_gang_and_role(&known.pod, &pod) => return self.update_member(pod, step),
            Some(known) if known.pod.resource_version >= pod.resource_version => return,
            // The pod changed its gang. The webhook forbids that, but it may be down.
            Some(_) => self.remove_member(&uid, step),
            None => {}
        }
        match pod.membership.clone() {
            Some(membership) => {
                self.charged_pods.remove(&uid);
                self.unscheduled_pods.remove(&uid);
                self.unplaced_pods.remove(&uid);
                self.gangs.entry(membership.gang.clone()).or_default().members.insert(uid.clone());
                step.touch(&membership.gang);
                self.members.insert(uid.clone(), MemberState::new(pod));
                self.elastic_member_added(&membership.gang);
                self.mark_for_planning(&membership.gang);
                self.mark_declarations_changed(Some(&membership));
                self.charge_member(&uid);
            }
            None => self.observe_other_pod(&pod, step),
        }
    }

    /// Takes in a newer version of a known member. Answers use this path too: they never bring a deleted pod
    /// back.
    pub(in crate::engine) fn update_member(&mut self, pod: Pod, step: &mut StepContext) {
        let Some(member) = self.members.get_mut(&pod.uid) else { return };
        if pod.resource_version <= member.pod.resource_version {
            return;
        }
        // Any change of the pod revokes its lift permit: the patch would test an old version.
        member.permit = None;
        member.must_read = false;
        member.must_fence &= pod.gated();
        let bears_on_plans = (&pod.gates, &pod.node, pod.phase, pod.terminating, &pod.shape, &pod.gpus)
            != (
                &member.pod.gates,
                &member.pod.node,
                member.pod.phase,
                member.pod.terminating,
                &member.pod.shape,
                &member.pod.gpus,
            );
        let stays = |pod: &Pod| !pod.terminating && !pod.finished();
        let went = (stays(&pod), &pod.owner) != (stays(&member.pod), &member.pod.owner);
        let says = (&pod.membership, pod.gated(), pod.terminating, pod.phase)
            != (&member.pod.membership, member.pod.gated(), member.pod.terminating, member.pod.phase);
        let uid = pod.uid.clone();
        let before = member.pod.membership.clone().filter(|_| says);
        member.pod = pod;
        let gang = member.pod.membership.as_ref().map(|membership| membership.gang.clone());
        if let Some(gang) = &gang {
            step.touch(gang);
            if went {
                self.elastic_member_removed(gang);
            }
        }
        if bears_on_plans {
            if let Some(gang) = &gang {
                self.mark_for_planning(gang);
            }
            self.charge_member(&uid);
        }
        if says {
            // What a pod declares about missing members bears on planning.
            if let Some(gang) = &gang {
                self.mark_for_planning(gang);
            }
            let now = self.members.get(&uid).and_then(|m| m.pod.membership.clone());
            self.mark_declarations_changed(before.as_ref());
            self.mark_declarations_changed(now.as_ref());
        }
    }

    fn observe_other_pod(&mut self, pod: &Pod, step: &mut StepContext) {
        let waits = pod.node.is_none() && !pod.finished() && !pod.terminating;
        if waits {
            self.unplaced_pods.insert(pod.uid.clone(), (pod.key.clone(), Arc::clone(&pod.shape)));
        } else {
            self.unplaced_pods.remove(&pod.uid);
        }
        if waits && pod.gates.is_empty() {
            self.unscheduled_pods.insert(pod.uid.clone());
        } else {
            self.unscheduled_pods.remove(&pod.uid);
        }
        let changed = match &pod.node {
            Some(node) if !pod.finished() => {
                self.charged_pods.insert(pod.uid.clone());
                self.snapshot.charge(&pod.uid, bound_charge(pod, node))
            }
            _ => self.charged_pods.remove(&pod.uid) && self.snapshot.release(&pod.uid),
        };
        if changed && let Some(node) = &pod.node {
            self.touch_gangs_on(node, step);
        }
    }

    pub(in crate::engine) fn remove_pod(&mut self, uid: &PodUid, step: &mut StepContext) {
        self.unscheduled_pods.remove(uid);
        self.unplaced_pods.remove(uid);
        if self.members.contains_key(uid) {
            self.remove_member(uid, step);
        } else if self.charged_pods.remove(uid) {
            self.snapshot.release(uid);
        }
    }

    fn remove_member(&mut self, uid: &PodUid, step: &mut StepContext) {
        let Some(member) = self.members.remove(uid) else {
            self.violations.check(false, KNOWN_MEMBER);
            return;
        };
        if let Some(pending) = &mut self.pending_permits {
            pending.remove(uid);
        }
        if self.settings.enforces(SafetyRule::ReleaseOnDelete) {
            self.snapshot.release(uid);
        }
        if let Some(membership) = &member.pod.membership {
            self.mark_for_planning(&membership.gang);
            if member.live() {
                self.elastic_member_removed(&membership.gang);
            }
            if let Some(gang) = self.gangs.get_mut(&membership.gang) {
                gang.members.remove(uid);
            }
            self.mark_declarations_changed(Some(membership));
            step.touch(&membership.gang);
        }
    }

    /// Charges a member to the node that it is bound to or planned onto, or releases it. This is the only
    /// code that charges members.
    pub(in crate::engine) fn charge_member(&mut self, uid: &PodUid) {
        let Some(member) = self.expect_member(uid) else { return };
        let pod = &member.pod;
        let place = if pod.finished() {
            None
        } else if let Some(node) = &pod.node {
            Some(bound_charge(pod, node))
        } else if let Some((node, cards)) = self.planned_place(member) {
            Some(Charge {
                key: Some(pod.key.clone()),
                node,
                shape: pod.shape.clone(),
                cards,
                state: ChargeState::Reserved,
            })
        } else {
            None
        };
        match place {
            Some(charge)
                if charge.state != ChargeState::Reserved || self.settings.enforces(SafetyRule::Reserve) =>
            {
                self.snapshot.charge(uid, charge);
            }
            _ => {
                self.snapshot.release(uid);
            }
        }
    }

    /// The node and cards that a pod without a node will use: those of its gang's plan. A lifted pod whose
    /// plan is gone uses those that the lift wrote to it.
    fn planned_place(&self, member: &MemberState) -> Option<(NodeName, CardAllocation)> {
        let pod = &member.pod;
        let gang = pod.membership.as_ref().and_then(|m| self.gangs.get(&m.gang));
        let planned = gang
            .and_then(|g| g.lifecycle.progress.plan())
            .and_then(|plan| plan.members.iter().find(|m| m.uid == pod.uid));
        match planned {
            Some(place) => Some((place.node.clone(), cards(pod, Some(&place.gpus)))),
            None if pod.gated() => None,
            None => {
                let node = pod.pinned_to().or_else(|| pod.nominated.clone())?;
                Some((node, cards(pod, pod.gpus.as_ref())))
            }
        }
    }

    /// Takes in a `Gang` object from a watch, a list or an answer.
    pub(in crate::engine) fn observe_gang_object(&mut self, record: GangRecord, step: &mut StepContext) {
        let planner = record.status.plan.as_ref().map(|plan| plan.epoch).unwrap_or_default();
        let newer_epoch = Some(planner.max(record.status.epoch)) > self.epoch();
        if newer_epoch && self.settings.enforces(SafetyRule::NewerEpoch) {
            return self.step_down(step);
        }
        let id = record.gang;
        let gang = self.gangs.entry(id.clone()).or_default();
        if let GangObject::Known(version, _) = &gang.record.object
            && *version >= record.resource_version
        {
            return;
        }
        gang.record.must_read = false;
        let stored = record.status.plan.clone();
        let expired = record.status.expired.clone();
        gang.lifecycle.started_with = gang.lifecycle.started_with.or(Some(record.status.started_with));
        gang.record.generation = record.generation;
        gang.record.object = GangObject::Known(record.resource_version, Arc::new(record.status));
        self.advance_plan(&id, PlanInput::Stored(stored.as_ref()), step);
        self.observe_expired(&id, &expired, step);
        step.touch(&id);
    }

    pub(in crate::engine) fn remove_gang_object(&mut self, id: &GangId, step: &mut StepContext) {
        // A watch may report the deletion of an object whose gang is forgotten.
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.record.object = GangObject::Absent;
        if gang.members.is_empty()
            && gang.lifecycle.progress.plan().is_some_and(|plan| !plan.placeholders.is_empty())
        {
            // The gang has ended, and no controller creates the pods of its placeholders any more.
            self.advance_plan(id, PlanInput::Ended, step);
        }
        self.advance_plan(id, PlanInput::Stored(None), step);
        step.touch(id);
    }

    /// Takes in a consistent read of all objects. The engine has known none since it was reset.
    pub(in crate::engine) fn observe_all(&mut self, objects: ListedObjects, step: &mut StepContext) {
        for node in objects.nodes.into_iter().flatten() {
            self.observe_node(Change::Set(node), step);
        }
        for pod in objects.pods.into_iter().flatten() {
            self.observe_pod(pod, step);
        }
        for group in objects.groups.into_values().flatten() {
            self.observe_group(Change::Set(group), step);
        }
        if let Some(classes) = objects.priority_classes {
            self.priority_classes =
                Some(classes.into_iter().map(|class| (class.name, class.value)).collect());
            self.requeue_prioritized_gangs(step);
        }
        for record in objects.gangs.into_iter().flatten() {
            self.observe_gang_object(record, step);
        }
    }

    /// Forgets a gang without members, object and unanswered requests.
    pub(in crate::engine) fn forget_if_empty(&mut self, id: &GangId, now: Time) {
        let empty = self.gangs.get(id).is_some_and(|g: &GangState| {
            let asking = g.elastic_state.as_ref().is_some_and(|elastic_state| elastic_state.is_reading());
            g.members.is_empty()
                && g.record.object == GangObject::Absent
                && g.record.request.is_none()
                && !g.record.must_read
                && !asking
        });
        if empty && self.is_group_status_pending(id, now) {
            return;
        }
        if empty {
            self.dequeue(id);
            self.changed_gangs.remove(id);
            self.groups.set_elastic(id, None);
            self.forget_group_status(id);
        }
        if empty
            && let Some(gang) = self.gangs.remove(id)
            && let Some(at) = gang.timers.next
        {
            self.timers.remove(&(at, id.clone()));
        }
    }

    /// Stops leading, because another replica has a newer epoch.
    pub(in crate::engine) fn step_down(&mut self, step: &mut StepContext) {
        self.reset(crate::engine::gang_state::Leadership::Follower);
        step.touched.clear();
        step.send(Action::StepDown);
    }
}

/// Whether two versions of a pod name the same gang and role.
fn is_same_gang_and_role(known: &Pod, pod: &Pod) -> bool {
    match (&known.membership, &pod.membership) {
        (Some(known), Some(now)) => known.same_gang_and_role(now),
        (None, None) => true,
        _ => false,
    }
}

fn bound_charge(pod: &Pod, node: &NodeName) -> Charge {
    let cards = cards(pod, pod.gpus.as_ref());
    Charge {
        key: Some(pod.key.clone()),
        node: node.clone(),
        shape: pod.shape.clone(),
        cards,
        state: if pod.node_bound { ChargeState::NodeBound } else { ChargeState::Bound },
    }
}

/// The cards of a pod: those in its annotation or plan, or unknown ones.
fn cards(pod: &Pod, written: Option<&Vec<u32>>) -> CardAllocation {
    match (pod.shape.share, written) {
        (None, _) => CardAllocation::Unshared,
        (Some(share), Some(cards)) if cards.len() == share.devices as usize => {
            CardAllocation::Known(cards.clone())
        }
        (Some(_), _) => CardAllocation::Unknown,
    }
}
