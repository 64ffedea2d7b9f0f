//! The group of each gang: what group objects say, or what members declare if there is no object.
//!
//! Several objects may describe one gang (two API groups of one stack), and one object several gangs (a
//! Workload, a set of replicas). An object takes precedence over members. If waiting members contradict each
//! other, no member starts, and the status reports it.

use std::collections::{BTreeMap, BTreeSet};

use crate::dialect::{self, FutureMembers, GangPolicies, Group, GroupKey, GroupObject, Membership, Quorum};
use crate::engine::Engine;
use crate::engine::members::MemberDeclaration;
use crate::engine::protocol::Change;
use crate::engine::state::{EngineView, Gang, StepContext};
use crate::model::{DialectId, GangId, Str, str};

impl Gang {
    /// Has the declarations of members evaluated again if this member, which was added, changed or removed,
    /// declares anything.
    pub(in crate::engine) fn mark_declarations_changed(&mut self, membership: &Membership) {
        self.declarations_changed |= membership.declared.is_some();
    }

    /// Evaluates the declarations of members if they have changed. Returns whether the gang has to be planned
    /// again.
    pub(in crate::engine) fn update_declared_group(&mut self) -> bool {
        if !std::mem::take(&mut self.declarations_changed) {
            return false;
        }
        let declared = self.evaluate_declarations();
        let changed = self.declared_group != declared;
        self.declared_group = declared;
        changed
    }

    /// The group that the members declare. Waiting members take precedence: started members have been counted
    /// already and may come from an older pod template.
    fn evaluate_declarations(&self) -> Option<Result<Group, Str>> {
        let declarations: Vec<MemberDeclaration<'_>> =
            self.members.values().filter_map(MemberDeclaration::of).collect();
        declarations.first()?;
        let live = || declarations.iter().filter(|d| d.member.live());
        let timeout = live().filter_map(|d| d.declared.timeout).min();
        let created = declarations.iter().map(|d| d.member.pod.created).min().unwrap_or_default();
        let policies = live().fold(GangPolicies::default(), |policies, d| policies.or(&d.declared.policies));
        // The oldest waiting member that declares a number, otherwise the newest started one.
        let mut waiting: Vec<_> =
            live().filter(|d| d.member.pod.gated()).filter_map(MemberDeclaration::quorum).collect();
        waiting.sort();
        let started = declarations.iter().filter(|d| !d.member.pod.gated());
        let started = started.filter_map(MemberDeclaration::quorum).max();
        let (_, pod, quorum) = waiting.first().copied().or(started)?;
        let elastic = policies.elastic == Some(true);
        if let Some((_, other, differs)) = waiting.iter().find(|(_, _, other)| *other != quorum && !elastic) {
            return Some(Err(str(format!(
                "pod {} declares {} members, and pod {} declares {}: set the same {} on all of them",
                pod.name,
                quorum.min_members(),
                other.name,
                differs.min_members(),
                dialect::size_key(self.id.dialect).unwrap_or("number")
            ))));
        }
        Some(Ok(Group { created, timeout, policies, ..Group::new(self.id.clone(), quorum.clone()) }))
    }

    /// The contradiction between the members of the gang, if no object describes it.
    pub(in crate::engine) fn disagreement(&self, view: &EngineView<'_>) -> Option<&Str> {
        if view.group_objects.get(&self.id).is_some() {
            return None;
        }
        self.declared_group.as_ref()?.as_ref().err()
    }

    /// The group object and the differing quorum that members declare.
    pub(in crate::engine) fn size_conflict<'a>(
        &'a self,
        view: &EngineView<'a>,
    ) -> Option<(&'a Group, &'a Quorum)> {
        let group = view.group_objects.get(&self.id).filter(|_| self.elastic_group.is_none())?;
        let declared = &self.declared_group.as_ref()?.as_ref().ok()?.quorum;
        dialect::contradicts(group, declared).then_some((group, declared))
    }
}

impl Engine {
    /// Takes in a watch event about a group object.
    pub(in crate::engine) fn observe_group(
        &mut self,
        change: Change<GroupObject, GroupKey>,
        step: &mut StepContext,
    ) {
        let (key, groups) = match change {
            Change::Set(object) => (object.key, Some(object.groups)),
            Change::Gone(key) => (key, None),
        };
        let before: BTreeMap<GangId, Group> = (self.group_objects.gangs_of(&key))
            .filter_map(|id| Some((id.clone(), self.group_objects.get(id)?.clone())))
            .collect();
        for id in self.group_objects.set(&key, groups) {
            let now = self.group_objects.get(&id).cloned();
            if let Some(now) = &now
                && !self.gangs.contains_key(&id)
                && self.is_leftover_group_status(now)
            {
                self.gangs.insert(id.clone(), Gang::new(id.clone()));
            }
            self.touch_described_gangs(&id, before.get(&id), now.as_ref(), step);
        }
    }

    /// Touches the gangs that a group describes, if the group has changed.
    fn touch_described_gangs(
        &mut self,
        id: &GangId,
        before: Option<&Group>,
        now: Option<&Group>,
        step: &mut StepContext,
    ) {
        let changed = match (before, now) {
            (Some(before), Some(now)) => !before.equals_ignoring_status(now),
            (None, None) => false,
            _ => true,
        };
        let status_changed =
            before.map(|group| &group.stored_status) != now.map(|group| &group.stored_status);
        for gang in self.gangs_described_by(id) {
            if changed {
                self.mark_for_planning(&gang);
            }
            if changed || status_changed {
                step.touch(&gang);
            }
        }
    }

    /// The gangs that a group describes: the one with its name, and all with it as template.
    fn gangs_described_by(&self, id: &GangId) -> Vec<GangId> {
        // Their names begin with the name of the group. Only this range of gangs is searched.
        let first = GangId::new(id.dialect, &id.namespace, &*id.name);
        let in_range = |gang: &&GangId| gang.namespace == id.namespace && gang.name.starts_with(&*id.name);
        let others = self.gangs.range(GangId { dialect: DialectId::ALL[0], ..first.clone() }..);
        let from_template = others
            .map(|(gang, _)| gang)
            .take_while(in_range)
            .filter(|gang| gang.dialect == id.dialect && dialect::template_group(gang).as_ref() == Some(id));
        // Pods of a LeaderWorkerSet may belong to gangs of another stack, and use its description of workers.
        let gangs = self.gangs.values().filter(|_| id.dialect == DialectId::Lws);
        let of_set = gangs.filter(|gang| {
            gang.members.values().filter_map(MemberDeclaration::of).any(
                |d| matches!(&d.declared.future_members, Some(FutureMembers::Replica { set, .. }) if set == id),
            )
        });
        let of_set = of_set.map(|gang| &gang.id);
        let all: BTreeSet<&GangId> = from_template.chain(of_set).filter(|gang| **gang != first).collect();
        std::iter::once(&first).chain(all).cloned().collect()
    }
}
