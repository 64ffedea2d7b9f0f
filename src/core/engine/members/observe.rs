//! Takes in objects from watches, lists and answers. The newest version of each object wins, older ones are
//! ignored. Each new version is charged to the snapshot at once.

use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::invariants::KNOWN_MEMBER;
use crate::engine::members::charges::other_charge;
use crate::engine::protocol::plan_progress::PlanInput;
use crate::engine::protocol::{Change, GangRecord, ListedObjects};
use crate::engine::settings::SafetyRule;
use crate::engine::state::{Gang, GangObject, MemberState, StepContext};
use crate::model::{GangId, NodeName, PodUid, Str, Time};
use crate::objects::{Namespace, Node, PriorityClass};
use crate::pod::Pod;
use crate::snapshot::ChargeState;

/// What a new version of a member means for its gang.
struct MemberChange {
    /// The request of the gang or the charge of the pod may have changed.
    bears_on_plans: bool,
    /// The pod may declare something else about its gang.
    bears_on_declarations: bool,
}

impl Gang {
    /// Takes in a newer version of a known member. `None` if the version is not newer.
    fn update_member(&mut self, pod: Pod) -> Option<MemberChange> {
        let member = self.members.get_mut(&pod.uid)?;
        if pod.resource_version <= member.pod.resource_version {
            return None;
        }
        // Any change of the pod revokes its lift permit: the patch would test an old version.
        member.permit = None;
        member.must_read = false;
        member.must_fence &= pod.gated();
        let old = &member.pod;
        let bears_on_plans =
            (&pod.gates, &pod.node, pod.phase, pod.terminating, &pod.shape, &pod.gpus, &pod.labels)
                != (&old.gates, &old.node, old.phase, old.terminating, &old.shape, &old.gpus, &old.labels);
        let bears_on_declarations = (&pod.membership, pod.gated(), pod.terminating, pod.phase)
            != (&old.membership, old.gated(), old.terminating, old.phase);
        let declares = [&old.membership, &pod.membership]
            .into_iter()
            .flatten()
            .any(|membership| membership.declared.is_some());
        let stays = |pod: &Pod| !pod.terminating && !pod.finished();
        let owner_changed = (stays(&pod), &pod.owner) != (stays(old), &old.owner);
        if old.gated() && !pod.gated() {
            member.gated_shape = Some(old.shape.clone());
        }
        member.pod = pod;
        if owner_changed {
            self.mark_member_removed();
        }
        self.declarations_changed |= bears_on_declarations && declares;
        Some(MemberChange { bears_on_plans, bears_on_declarations })
    }
}

impl Engine {
    pub(in crate::engine) fn observe_node(&mut self, change: Change<Node, NodeName>, step: &mut StepContext) {
        let (name, changed) = match change {
            Change::Set(node) => (node.name.clone(), self.snapshot.set_node(node)),
            Change::Gone(name) => {
                let changed = self.snapshot.remove_node(&name);
                (name, changed)
            }
        };
        if changed {
            self.invalidate_head_of_line(&name);
            self.touch_gangs_on(&name, step);
        }
    }

    /// Touches the gangs with members or placeholders on a node: its change may invalidate their plans.
    fn touch_gangs_on(&self, node: &NodeName, step: &mut StepContext) {
        for (uid, _) in self.snapshot.charged_to(node) {
            if let Some(gang) = self.placeholder_owners.get(uid).or_else(|| self.gang_by_pod.get(uid)) {
                step.touch(gang);
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

    pub(in crate::engine) fn observe_namespace(&mut self, change: Change<Namespace, Str>) {
        let changed = match change {
            Change::Set(namespace) => self.snapshot.set_namespace(&namespace.name, Some(namespace.labels)),
            Change::Gone(name) => self.snapshot.set_namespace(&name, None),
        };
        if changed {
            self.infeasible_signatures.clear();
        }
    }

    /// Touches every gang whose group names a PriorityClass: its rank and the status of its group may change.
    fn requeue_prioritized_gangs(&mut self, step: &mut StepContext) {
        let prioritized = self.group_objects.iter().filter(|(_, group)| group.priority_class.is_some());
        let known = prioritized.map(|(id, _)| id).filter(|id| self.gangs.contains_key(id));
        for id in known.cloned().collect::<Vec<GangId>>() {
            self.mark_for_planning(&id);
            step.touch(&id);
        }
    }

    /// Takes in a pod from a watch or a list.
    pub(in crate::engine) fn observe_pod(&mut self, pod: Pod, step: &mut StepContext) {
        let uid = pod.uid.clone();
        match self.member(&uid) {
            Some(known) if is_same_gang_and_role(&known.pod, &pod) => {
                self.observe_foreign_change(&pod, step.now);
                return self.update_member(pod, step);
            }
            Some(known) if known.pod.resource_version >= pod.resource_version => return,
            // The pod changed its gang. The webhook forbids that, but it may be down.
            Some(_) => self.remove_member(&uid, step),
            None => {}
        }
        let Some(membership) = pod.membership.clone() else { return self.observe_other_pod(&pod, step) };
        self.charged_pods.remove(&uid);
        self.unscheduled_pods.remove(&uid);
        self.unplaced_pods.remove(&uid);
        let id = membership.gang.clone();
        let gang = self.gangs.entry(id.clone()).or_insert_with(|| Gang::new(id.clone()));
        gang.members.insert(uid.clone(), MemberState::new(pod));
        gang.lifecycle.lift_retry.observe_change(step.now, &mut self.retry_slots);
        gang.mark_member_added();
        gang.mark_declarations_changed(&membership);
        self.gang_by_pod.insert(uid.clone(), id.clone());
        self.mark_for_planning(&id);
        self.charge_member(&id, &uid);
        step.touch(&id);
    }

    /// Takes in a newer version of a known member. Answers use this path too: they never bring a deleted pod
    /// back.
    pub(in crate::engine) fn update_member(&mut self, pod: Pod, step: &mut StepContext) {
        let uid = pod.uid.clone();
        let Some(id) = self.gang_by_pod.get(&uid).cloned() else { return };
        let gang = self.gangs.get_mut(&id);
        let is_member = gang.as_ref().is_some_and(|gang| gang.members.contains_key(&uid));
        self.violations.check(is_member, KNOWN_MEMBER);
        let Some(change) = gang.and_then(|gang| gang.update_member(pod)) else { return };
        step.touch(&id);
        // What a pod declares about missing members bears on planning.
        if change.bears_on_plans || change.bears_on_declarations {
            self.mark_for_planning(&id);
        }
        if change.bears_on_plans {
            self.charge_member(&id, &uid);
        }
    }

    /// Takes in that a member was changed by another client, so that a refused request about it may succeed.
    /// The result of an own write is known by its answer, or the answer is still to come.
    fn observe_foreign_change(&mut self, pod: &Pod, now: Time) {
        let Some(id) = self.gang_by_pod.get(&pod.uid) else { return };
        let Some(gang) = self.gangs.get_mut(id) else { return };
        if let Some(member) = gang.members.get_mut(&pod.uid)
            && member.request.is_none()
            && member.pod.resource_version < pod.resource_version
        {
            member.retry.observe_change(now, &mut self.retry_slots);
            gang.lifecycle.lift_retry.observe_change(now, &mut self.retry_slots);
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
        let Some(charge) = other_charge(pod) else {
            self.release_other_pod(&pod.uid);
            return;
        };
        let node = charge.node.clone();
        self.charged_pods.insert(pod.uid.clone());
        if self.snapshot.charge(&pod.uid, charge) {
            if pod.node_bound {
                // It does not end: a gang may fit beside it only elsewhere.
                self.invalidate_head_of_line(&node);
            }
            self.touch_gangs_on(&node, step);
        }
    }

    pub(in crate::engine) fn remove_pod(&mut self, uid: &PodUid, step: &mut StepContext) {
        self.unscheduled_pods.remove(uid);
        self.unplaced_pods.remove(uid);
        if self.gang_by_pod.contains_key(uid) {
            self.remove_member(uid, step);
        } else {
            self.release_other_pod(uid);
        }
    }

    /// Releases a pod without a gang. Returns whether it was charged.
    fn release_other_pod(&mut self, uid: &PodUid) -> bool {
        if !self.charged_pods.remove(uid) {
            return false;
        }
        let charge = self.snapshot.charged(uid).filter(|charge| charge.state == ChargeState::NodeBound);
        if let Some(node) = charge.map(|charge| charge.node.clone()) {
            self.invalidate_head_of_line(&node);
        }
        self.snapshot.release(uid)
    }

    fn remove_member(&mut self, uid: &PodUid, step: &mut StepContext) {
        let removed = self.gang_by_pod.remove(uid).and_then(|id| {
            let gang = self.gangs.get_mut(&id)?;
            let member = gang.members.remove(uid)?;
            if member.live() {
                gang.mark_member_removed();
            }
            if let Some(membership) = &member.pod.membership {
                gang.mark_declarations_changed(membership);
            }
            Some(id)
        });
        self.violations.check(removed.is_some(), KNOWN_MEMBER);
        if let Some(pending) = &mut self.pending_permits {
            pending.remove(uid);
        }
        if self.settings.enforces(SafetyRule::ReleaseOnDelete) {
            self.snapshot.release(uid);
        }
        if let Some(id) = removed {
            self.mark_for_planning(&id);
            step.touch(&id);
        }
    }

    /// Takes in that the `Gang` object was changed by another client, so that a refused write may succeed.
    pub(in crate::engine) fn observe_foreign_gang_write(&mut self, record: &GangRecord, now: Time) {
        if let Some(gang) = self.gangs.get_mut(&record.gang)
            && gang.record.request.is_none()
            && !matches!(gang.record.object, GangObject::Known(known, _) if known >= record.resource_version)
        {
            gang.record.retry.observe_change(now, &mut self.retry_slots);
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
        let gang = self.gangs.entry(id.clone()).or_insert_with(|| Gang::new(id.clone()));
        if let GangObject::Known(version, _) = &gang.record.object
            && *version >= record.resource_version
        {
            return;
        }
        let status = Arc::new(record.status);
        gang.record.must_read = false;
        gang.record.generation = record.generation;
        if gang.record.object == GangObject::Absent {
            gang.lifecycle.torn = gang.lifecycle.torn.or(status.torn);
        }
        gang.record.object = GangObject::Known(record.resource_version, Arc::clone(&status));
        gang.lifecycle.started_with = gang.lifecycle.started_with.or(Some(status.started_with));
        self.advance_plan(&id, PlanInput::Stored(status.plan.as_ref()), step);
        let Some((gang, view)) = self.gang_and_view(&id, step.now) else { return };
        if let Some(input) = gang.observe_expired(&status.expired, &view) {
            self.advance_plan(&id, input, step);
        }
        step.touch(&id);
    }

    pub(in crate::engine) fn remove_gang_object(&mut self, id: &GangId, step: &mut StepContext) {
        // A watch may report the deletion of an object whose gang is forgotten.
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.record.object = GangObject::Absent;
        if gang.members.is_empty() && !gang.placeholders().is_empty() {
            // The gang has ended, and no controller creates the pods of its placeholders any more.
            self.advance_plan(id, PlanInput::Ended, step);
        }
        self.advance_plan(id, PlanInput::Stored(None), step);
        step.touch(id);
    }

    /// Takes in a consistent read of all objects. The engine has known none since it was reset.
    pub(in crate::engine) fn observe_all(&mut self, objects: ListedObjects, step: &mut StepContext) {
        for namespace in objects.namespaces.into_iter().flatten() {
            self.observe_namespace(Change::Set(namespace));
        }
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
        let Some(gang) = self.expect_gang(id) else { return };
        if !gang.is_forgettable() || self.is_group_status_pending(id, now) {
            return;
        }
        self.dequeue(id);
        self.changed_gangs.remove(id);
        let Some(gang) = self.gangs.remove(id) else { return };
        self.group_status_queue.cancel(&gang);
        if let Some(at) = gang.timers.next {
            self.timers.remove(&(at, gang.id));
        }
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
