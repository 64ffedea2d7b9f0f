//! What watches, lists and answers tell: the newest reading of each object wins, older ones are ignored, and every
//! reading is charged to the snapshot at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::state::{Gang, Member, Object};
use super::types::{Change, GangRecord, ListedObjects};
use super::{Action, Engine, SafetyRule, Step};
use crate::dialect::GroupKey;
use crate::model::{GangId, NodeName, PodUid, Str, Time};
use crate::objects::{Node, PriorityClass};
use crate::pod::Pod;
use crate::snapshot::{CardAllocation, Charge, ChargeState};

impl Engine {
    pub(super) fn node_changed(&mut self, change: Change<Node, NodeName>, step: &mut Step) {
        let name = match &change {
            Change::Set(node) => node.name.clone(),
            Change::Gone(name) => name.clone(),
        };
        let changed = match change {
            Change::Set(node) => self.snapshot.set_node(node),
            Change::Gone(name) => self.snapshot.remove_node(&name),
        };
        if changed {
            self.doubt_hold(&name);
            self.touch_planned_on(&name, step);
        }
    }

    /// What changes on a node may undo the plans that count on it.
    fn touch_planned_on(&self, node: &NodeName, step: &mut Step) {
        for (uid, _) in self.snapshot.charged_to(node) {
            if let Some(gang) = self.places.get(uid) {
                step.touch(gang);
            }
            let membership = self.members.get(uid).and_then(|member| member.pod.membership.as_ref());
            if let Some(membership) = membership {
                step.touch(&membership.gang);
            }
        }
    }

    pub(super) fn class_changed(&mut self, change: Change<PriorityClass, Str>, step: &mut Step) {
        let classes = self.priority_classes.get_or_insert_default();
        let changed = match change {
            Change::Set(class) => classes.insert(class.name, class.value) != Some(class.value),
            Change::Gone(name) => classes.remove(&name).is_some(),
        };
        if changed {
            self.classes_changed(step);
        }
    }

    /// The order of the queue may be another one, and what groups are told of the classes they name.
    fn classes_changed(&mut self, step: &mut Step) {
        let named = self.groups.iter().filter(|(_, group)| group.priority_class.is_some());
        let named: Vec<GangId> = named.map(|(id, _)| id.clone()).collect();
        for id in named.iter().filter(|id| self.gangs.contains_key(id)).cloned().collect::<Vec<_>>() {
            self.look_at(&id);
            step.touch(&id);
        }
    }

    /// A pod as a watch or a list shows it.
    pub(super) fn pod_seen(&mut self, pod: Pod, step: &mut Step) {
        let uid = pod.uid.clone();
        match self.members.get(&uid) {
            Some(known) if same_place(&known.pod, &pod) => return self.member_read(pod, step),
            Some(known) if known.pod.resource_version >= pod.resource_version => return,
            // It changed its gang, which admission forbids; with the webhook away it can happen.
            Some(_) => self.forget_member(&uid, step),
            None => {}
        }
        match pod.membership.clone() {
            Some(membership) => {
                self.others.remove(&uid);
                self.rivals.remove(&uid);
                self.unplaced.remove(&uid);
                self.gangs.entry(membership.gang.clone()).or_default().members.insert(uid.clone());
                step.touch(&membership.gang);
                self.members.insert(uid.clone(), Member::new(pod));
                self.member_came(&membership.gang);
                self.look_at(&membership.gang);
                self.spoken_of(Some(&membership));
                self.charge_member(&uid);
            }
            None => self.other_seen(&pod, step),
        }
    }

    /// A newer reading of a member we know. Answers come this way too: they never bring a pod back that is gone.
    pub(super) fn member_read(&mut self, pod: Pod, step: &mut Step) {
        let Some(member) = self.members.get_mut(&pod.uid) else { return };
        if pod.resource_version <= member.pod.resource_version {
            return;
        }
        // Any change of the pod ends the permit to lift it: the patch would test a version that is no more.
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
                self.member_went(gang);
            }
        }
        if bears_on_plans {
            if let Some(gang) = &gang {
                self.look_at(gang);
            }
            self.charge_member(&uid);
        }
        if says {
            // What it says of those to come bears on planning.
            if let Some(gang) = &gang {
                self.look_at(gang);
            }
            let now = self.members.get(&uid).and_then(|m| m.pod.membership.clone());
            self.spoken_of(before.as_ref());
            self.spoken_of(now.as_ref());
        }
    }

    fn other_seen(&mut self, pod: &Pod, step: &mut Step) {
        let waits = pod.node.is_none() && !pod.finished() && !pod.terminating;
        if waits {
            self.unplaced.insert(pod.uid.clone(), (pod.key.clone(), Arc::clone(&pod.shape)));
        } else {
            self.unplaced.remove(&pod.uid);
        }
        if waits && pod.gates.is_empty() {
            self.rivals.insert(pod.uid.clone());
        } else {
            self.rivals.remove(&pod.uid);
        }
        let changed = match &pod.node {
            Some(node) if !pod.finished() => {
                self.others.insert(pod.uid.clone());
                self.snapshot.charge(&pod.uid, bound_charge(pod, node))
            }
            _ => self.others.remove(&pod.uid) && self.snapshot.release(&pod.uid),
        };
        if changed && let Some(node) = &pod.node {
            self.touch_planned_on(node, step);
        }
    }

    pub(super) fn pod_gone(&mut self, uid: &PodUid, step: &mut Step) {
        self.rivals.remove(uid);
        self.unplaced.remove(uid);
        if self.members.contains_key(uid) {
            self.forget_member(uid, step);
        } else if self.others.remove(uid) {
            self.snapshot.release(uid);
        }
    }

    fn forget_member(&mut self, uid: &PodUid, step: &mut Step) {
        let Some(member) = self.members.remove(uid) else { return };
        if let Some(pending) = &mut self.verifying {
            pending.remove(uid);
        }
        if self.settings.keeps(SafetyRule::ReleaseOnDelete) {
            self.snapshot.release(uid);
        }
        if let Some(membership) = &member.pod.membership {
            self.look_at(&membership.gang);
            if member.live() {
                self.member_went(&membership.gang);
            }
            if let Some(gang) = self.gangs.get_mut(&membership.gang) {
                gang.members.remove(uid);
            }
            self.spoken_of(Some(membership));
            step.touch(&membership.gang);
        }
    }

    /// Brings what a member is charged in line with where it is, or is to be.
    pub(super) fn charge_member(&mut self, uid: &PodUid) {
        let Some(member) = self.members.get(uid) else { return };
        let pod = &member.pod;
        let place = if pod.finished() {
            None
        } else if let Some(node) = &pod.node {
            Some(bound_charge(pod, node))
        } else if let Some((node, cards)) = self.promised(member) {
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
                if charge.state == ChargeState::Bound || self.settings.keeps(SafetyRule::Reserve) =>
            {
                self.snapshot.charge(uid, charge);
            }
            _ => {
                self.snapshot.release(uid);
            }
        }
    }

    /// Where a pod that is on no node yet is going: by its gang's plan, or, lifted by a plan that is no more, by what the
    /// lift itself wrote on it.
    fn promised(&self, member: &Member) -> Option<(NodeName, CardAllocation)> {
        let pod = &member.pod;
        let gang = pod.membership.as_ref().and_then(|m| self.gangs.get(&m.gang));
        let planned = gang
            .and_then(|g| g.progress.plan())
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

    /// Our own object as a watch, a list or an answer shows it.
    pub(super) fn gang_seen(&mut self, record: GangRecord, step: &mut Step) {
        let planner = record.status.plan.as_ref().map(|plan| plan.epoch).unwrap_or_default();
        let newer_epoch = Some(planner.max(record.status.epoch)) > self.epoch();
        if newer_epoch && self.settings.keeps(SafetyRule::NewerEpoch) {
            return self.step_down(step);
        }
        let id = record.gang;
        let gang = self.gangs.entry(id.clone()).or_default();
        if let Object::Known(version, _) = &gang.object
            && *version >= record.resource_version
        {
            return;
        }
        gang.must_read = false;
        let stored = record.status.plan.clone();
        let expired = record.status.expired.clone();
        gang.started_with = gang.started_with.or(Some(record.status.started_with));
        gang.generation = record.generation;
        gang.object = Object::Known(record.resource_version, Arc::new(record.status));
        self.plan_seen(&id, stored.as_ref(), step);
        self.expired_seen(&id, &expired, step);
        step.touch(&id);
    }

    pub(super) fn gang_gone(&mut self, id: &GangId, step: &mut Step) {
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.object = Object::Absent;
        if gang.members.is_empty() && gang.progress.plan().is_some_and(|plan| !plan.placeholders.is_empty()) {
            // It has come to its end, and nobody is to come any more.
            self.undecide(id, step);
        }
        self.plan_seen(id, None, step);
        step.touch(id);
    }

    /// Everything is read anew after a broken watch: what is not there any more is gone.
    pub(super) fn relist(&mut self, world: ListedObjects, step: &mut Step) {
        if let Some(nodes) = world.nodes {
            let listed: BTreeSet<NodeName> = nodes.iter().map(|n| n.name.clone()).collect();
            let known: Vec<NodeName> = self.snapshot.node_names().cloned().collect();
            for name in known.into_iter().filter(|n| !listed.contains(n)) {
                self.node_changed(Change::Gone(name), step);
            }
            for node in nodes {
                self.node_changed(Change::Set(node), step);
            }
        }
        if let Some(pods) = world.pods {
            let listed: BTreeSet<PodUid> = pods.iter().map(|p| p.uid.clone()).collect();
            let alone = self.others.iter().chain(self.unplaced.keys());
            let known: Vec<PodUid> = self.members.keys().chain(alone).cloned().collect();
            for uid in known.iter().filter(|uid| !listed.contains(uid)) {
                self.pod_gone(uid, step);
            }
            for pod in pods {
                self.pod_seen(pod, step);
            }
        }
        for (kind, groups) in world.groups {
            let listed: BTreeSet<&GroupKey> = groups.iter().map(|g| &g.key).collect();
            let known = self.groups.keys().filter(|key| key.kind == kind);
            let gone: Vec<GroupKey> = known.filter(|key| !listed.contains(key)).cloned().collect();
            for key in gone {
                self.group_changed(Change::Gone(key), step);
            }
            for group in groups {
                self.group_changed(Change::Set(group), step);
            }
        }
        if let Some(classes) = world.priority_classes {
            let classes = classes.into_iter().map(|class| (class.name, class.value)).collect();
            if self.priority_classes.as_ref() != Some(&classes) {
                self.priority_classes = Some(classes);
                self.classes_changed(step);
            }
        }
        if let Some(gangs) = world.gangs {
            let listed: BTreeSet<GangId> = gangs.iter().map(|g| g.gang.clone()).collect();
            let known: Vec<GangId> = self.gangs.keys().cloned().collect();
            for gang in known.iter().filter(|g| !listed.contains(g)) {
                self.gang_gone(gang, step);
            }
            for record in gangs {
                self.gang_seen(record, step);
            }
        }
    }

    /// Forgets a gang of which nothing is left.
    pub(super) fn forget_if_empty(&mut self, id: &GangId, now: Time) {
        let empty = self.gangs.get(id).is_some_and(|g: &Gang| {
            let asking = g.following.as_ref().is_some_and(|following| following.asking());
            g.members.is_empty()
                && g.object == Object::Absent
                && g.request.is_none()
                && !g.must_read
                && !asking
        });
        if empty && self.owes_courtesy(id, now) {
            return;
        }
        if empty {
            self.dequeue(id);
            self.fresh.remove(id);
            self.groups.follow(id, None);
            self.forget_courtesy(id);
        }
        if empty
            && let Some(gang) = self.gangs.remove(id)
            && let Some(at) = gang.alarm
        {
            self.alarms.remove(&(at, id.clone()));
        }
    }

    /// Somebody newer leads: nothing more is done under this epoch.
    pub(super) fn step_down(&mut self, step: &mut Step) {
        self.forget(super::state::Role::Following);
        step.touched.clear();
        step.send(Action::StepDown);
    }
}

/// Whether two readings of a pod say that it is in the same place of the same gang.
fn same_place(known: &Pod, pod: &Pod) -> bool {
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
        state: ChargeState::Bound,
    }
}

/// The cards of a pod that shares cards: those that are written down, or unknown ones.
fn cards(pod: &Pod, written: Option<&Vec<u32>>) -> CardAllocation {
    match (pod.shape.share, written) {
        (None, _) => CardAllocation::Unshared,
        (Some(share), Some(cards)) if cards.len() == share.devices as usize => {
            CardAllocation::Known(cards.clone())
        }
        (Some(_), _) => CardAllocation::Unknown,
    }
}
