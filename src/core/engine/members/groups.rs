//! The group of each gang: what group objects say, or what members declare if there is no object.
//!
//! Several objects may describe one gang (two API groups of one stack), and one object several gangs (a
//! Workload, a set of replicas). An object takes precedence over members. If waiting members contradict each
//! other, no member starts, and the status reports it.

use std::collections::{BTreeMap, BTreeSet};

use crate::dialect::{self, FutureMembers, GangPolicies, Group, GroupKey, GroupObject, Membership, Quorum};
use crate::engine::protocol::Change;
use crate::engine::{Engine, StepContext};
use crate::model::{GangId, Str, str};

/// Descriptions of gangs, by gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Groups {
    /// The gangs that each group object describes.
    objects: BTreeMap<GroupKey, BTreeSet<GangId>>,
    /// Descriptions by group objects. The first one applies. There are no empty maps.
    by_object: BTreeMap<GangId, BTreeMap<GroupKey, Group>>,
    /// Descriptions by members, or the sentence about their contradiction. No entry if no member declares
    /// anything.
    declared: BTreeMap<GangId, Result<Group, Str>>,
    /// The groups of elastic gangs, with the number of members that the owners want.
    elastic: BTreeMap<GangId, Group>,
}

impl Groups {
    /// The description by a group object, of the gang itself or of its template.
    pub(in crate::engine) fn of_object(&self, id: &GangId) -> Option<&Group> {
        let first = |id: &GangId| self.by_object.get(id)?.values().next();
        first(id).or_else(|| first(&dialect::template_group(id)?))
    }

    /// The description that applies to a gang.
    pub(in crate::engine) fn get(&self, id: &GangId) -> Option<&Group> {
        self.elastic.get(id).or_else(|| self.own(id))
    }

    /// The description by group object or members, without the number of owners.
    pub(in crate::engine) fn own(&self, id: &GangId) -> Option<&Group> {
        self.of_object(id).or_else(|| self.declared.get(id)?.as_ref().ok())
    }

    /// Sets the description of an elastic gang. `None` removes it.
    pub(in crate::engine) fn set_elastic(&mut self, id: &GangId, group: Option<Group>) {
        match group {
            Some(group) => {
                self.elastic.insert(id.clone(), group);
            }
            None => {
                self.elastic.remove(id);
            }
        }
    }

    /// The contradiction between the members of a gang, if no object describes it.
    pub(in crate::engine) fn disagreement(&self, id: &GangId) -> Option<&Str> {
        if self.of_object(id).is_some() {
            return None;
        }
        self.declared.get(id)?.as_ref().err()
    }

    /// The group object and the differing quorum that members declare.
    pub(in crate::engine) fn size_conflict(&self, id: &GangId) -> Option<(&Group, &Quorum)> {
        let group = self.of_object(id).filter(|_| !self.elastic.contains_key(id))?;
        let declared = &self.declared.get(id)?.as_ref().ok()?.quorum;
        dialect::contradicts(group, declared).then_some((group, declared))
    }

    /// All gangs that objects describe, with the description that applies.
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (&GangId, &Group)> {
        self.by_object.iter().filter_map(|(id, said)| Some((id, said.values().next()?)))
    }

    /// Replaces the descriptions by an object. `None` removes them. Returns all gangs that it described
    /// before or describes now.
    fn set(&mut self, key: &GroupKey, groups: Option<Vec<Group>>) -> BTreeSet<GangId> {
        let mut touched = self.objects.remove(key).unwrap_or_default();
        for id in &touched {
            if let Some(said) = self.by_object.get_mut(id) {
                said.remove(key);
                if said.is_empty() {
                    self.by_object.remove(id);
                }
            }
        }
        if let Some(groups) = groups {
            let ids: BTreeSet<GangId> = groups.iter().map(|group| group.gang.clone()).collect();
            for group in groups {
                self.by_object.entry(group.gang.clone()).or_default().insert(key.clone(), group);
            }
            touched.extend(ids.iter().cloned());
            self.objects.insert(key.clone(), ids);
        }
        touched
    }
}

impl Engine {
    /// The description of a gang, by its object, its members or the owners of its pods.
    pub(in crate::engine) fn group(&self, id: &GangId) -> Option<&Group> {
        self.groups.get(id)
    }

    /// Takes in a watch event about a group object.
    pub(in crate::engine) fn observe_group(
        &mut self,
        change: Change<GroupObject, GroupKey>,
        step: &mut StepContext,
    ) {
        match change {
            Change::Set(object) => {
                let key = object.key.clone();
                self.apply_group(&key, Some(object), step);
            }
            Change::Gone(key) => self.apply_group(&key, None, step),
        }
    }

    /// Takes in the new state of a group object, or its deletion.
    fn apply_group(&mut self, key: &GroupKey, object: Option<GroupObject>, step: &mut StepContext) {
        let before: BTreeMap<GangId, Group> = (self.groups.objects.get(key).into_iter().flatten())
            .filter_map(|id| Some((id.clone(), self.groups.of_object(id)?.clone())))
            .collect();
        let touched = self.groups.set(key, object.map(|object| object.groups));
        for id in touched {
            let now = self.groups.of_object(&id).cloned();
            let known = before.get(&id);
            if let Some(now) = &now
                && !self.gangs.contains_key(&id)
                && self.is_leftover_group_status(now)
            {
                self.gangs.insert(id.clone(), crate::engine::gang_state::GangState::default());
            }
            let changed = match (known, &now) {
                (Some(known), Some(now)) => !known.equals_ignoring_status(now),
                (None, None) => false,
                _ => true,
            };
            let said = known.map(|known| &known.stored_status) != now.as_ref().map(|now| &now.stored_status);
            for gang in self.gangs_described_by(&id) {
                if changed {
                    self.mark_for_planning(&gang);
                }
                if changed || said {
                    step.touch(&gang);
                }
            }
        }
    }

    /// The gangs that a group describes: the one with its name, and all with it as template.
    fn gangs_described_by(&self, id: &GangId) -> Vec<GangId> {
        // Their names begin with the name of the group. Only this range of gangs is searched.
        let first = GangId::new(id.dialect, &id.namespace, &*id.name);
        let mine = |gang: &&GangId| gang.namespace == id.namespace && gang.name.starts_with(&*id.name);
        let others = self.gangs.range(GangId { dialect: crate::model::DialectId::ALL[0], ..first.clone() }..);
        let like = others
            .map(|(gang, _)| gang)
            .take_while(mine)
            .filter(|gang| gang.dialect == id.dialect && dialect::template_group(gang).as_ref() == Some(id));
        // Pods of a LeaderWorkerSet may belong to gangs of another stack, and use its description of workers.
        let of_set = self.members.values().filter(|_| id.dialect == crate::model::DialectId::Lws);
        let of_set = of_set.filter_map(|member| {
            let membership = member.pod.membership.as_ref()?;
            match membership.declared.as_ref()?.future_members.as_ref()? {
                FutureMembers::Replica { set, .. } if set == id => Some(&membership.gang),
                _ => None,
            }
        });
        let all: BTreeSet<&GangId> = like.chain(of_set).filter(|gang| **gang != first).collect();
        std::iter::once(&first).chain(all).cloned().collect()
    }

    /// Has the declarations of members evaluated again: a declaring member was added, changed or removed.
    pub(in crate::engine) fn mark_declarations_changed(&mut self, membership: Option<&Membership>) {
        if let Some(membership) = membership.filter(|membership| membership.declared.is_some())
            && let Some(gang) = self.gangs.get_mut(&membership.gang)
        {
            gang.declarations_changed = true;
        }
    }

    /// Evaluates the declarations of members. Waiting members take precedence: started members have been
    /// counted already and may come from an older pod template.
    pub(in crate::engine) fn update_declared_group(&mut self, id: &GangId) {
        let Some(gang) = self.expect_gang_mut(id) else { return };
        if !std::mem::take(&mut gang.declarations_changed) {
            return;
        }
        let declared = self.declared_group(id);
        let known = self.groups.declared.get(id);
        if known == declared.as_ref() {
            return;
        }
        match declared {
            Some(declared) => self.groups.declared.insert(id.clone(), declared),
            None => self.groups.declared.remove(id),
        };
        self.mark_for_planning(id);
    }

    fn declared_group(&self, id: &GangId) -> Option<Result<Group, Str>> {
        let gang = self.gangs.get(id)?;
        let members = || {
            let of = gang.members.iter().filter_map(|uid| self.members.get(uid));
            of.filter_map(|m| Some((m, m.pod.membership.as_ref()?.declared.as_ref()?)))
        };
        members().next()?;
        let timeout = members().filter(|(m, _)| m.live()).filter_map(|(_, declared)| declared.timeout).min();
        let created = members().map(|(m, _)| m.pod.created).min().unwrap_or_default();
        let policies = (members().filter(|(m, _)| m.live()))
            .fold(GangPolicies::default(), |said, (_, declared)| said.or(&declared.policies));
        // The oldest waiting member that declares a number, otherwise the newest started one.
        let mut waiting: Vec<_> = (members())
            .filter(|(m, _)| m.live() && m.pod.gated())
            .filter_map(|(m, declared)| Some((m.pod.created, &m.pod.key, declared.quorum.as_ref()?)))
            .collect();
        waiting.sort();
        let started = members().filter(|(m, _)| !m.pod.gated());
        let started =
            started.filter_map(|(m, d)| Some((m.pod.created, &m.pod.key, d.quorum.as_ref()?))).max();
        let (_, pod, quorum) = waiting.first().copied().or(started)?;
        let elastic = policies.elastic == Some(true);
        if let Some((_, other, differs)) = waiting.iter().find(|(_, _, other)| *other != quorum && !elastic) {
            return Some(Err(str(format!(
                "pod {} declares {} members, and pod {} declares {}: set the same {} on all of them",
                pod.name,
                quorum.min_members(),
                other.name,
                differs.min_members(),
                dialect::size_key(id.dialect).unwrap_or("number")
            ))));
        }
        Some(Ok(Group { created, timeout, policies, ..Group::new(id.clone(), quorum.clone()) }))
    }
}
