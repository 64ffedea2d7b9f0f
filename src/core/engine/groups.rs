//! What is known of the group of each gang: what group objects say, and where there is none, what the members say.
//!
//! Several objects may describe one gang (two API groups of one stack), and one object several gangs (a Workload, a set of
//! replicas). The object counts for more than the members; where members that still wait contradict each other, nobody
//! starts, and that is said.

use std::collections::{BTreeMap, BTreeSet};

use super::types::Change;
use super::{Engine, Step};
use crate::dialect::{self, FutureMembers, GangPolicies, Group, GroupKey, GroupObject, Membership, Quorum};
use crate::model::{GangId, Str, str};

/// Groups by the gangs they are about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Groups {
    /// What each object speaks of.
    objects: BTreeMap<GroupKey, BTreeSet<GangId>>,
    /// What objects say of a gang; the first of them counts. No empty maps.
    said: BTreeMap<GangId, BTreeMap<GroupKey, Group>>,
    /// What the members of a gang say of it, where any of them does; or how they contradict each other.
    declared: BTreeMap<GangId, Result<Group, Str>>,
    /// The groups of gangs that take as many members as the owners of their pods want, with that number.
    followed: BTreeMap<GangId, Group>,
}

impl Groups {
    /// What a group object says of a gang, or of all gangs that are made like it.
    pub(super) fn of_object(&self, id: &GangId) -> Option<&Group> {
        let first = |id: &GangId| self.said.get(id)?.values().next();
        first(id).or_else(|| first(&dialect::template_group(id)?))
    }

    /// What is known of the group of a gang.
    pub(super) fn get(&self, id: &GangId) -> Option<&Group> {
        self.followed.get(id).or_else(|| self.own(id))
    }

    /// What the group of a gang says by itself.
    pub(super) fn own(&self, id: &GangId) -> Option<&Group> {
        self.of_object(id).or_else(|| self.declared.get(id)?.as_ref().ok())
    }

    /// The same with the number of members that owners want; `None` where they do not count.
    pub(super) fn follow(&mut self, id: &GangId, group: Option<Group>) {
        match group {
            Some(group) => {
                self.followed.insert(id.clone(), group);
            }
            None => {
                self.followed.remove(id);
            }
        }
    }

    /// How the members of a gang contradict each other, where nothing else counts.
    pub(super) fn disagreement(&self, id: &GangId) -> Option<&Str> {
        if self.of_object(id).is_some() {
            return None;
        }
        self.declared.get(id)?.as_ref().err()
    }

    /// What the members say beside a group object, if that is something else.
    pub(super) fn overruled(&self, id: &GangId) -> Option<(&Group, &Quorum)> {
        let group = self.of_object(id).filter(|_| !self.followed.contains_key(id))?;
        let declared = &self.declared.get(id)?.as_ref().ok()?.quorum;
        dialect::contradicts(group, declared).then_some((group, declared))
    }

    /// All gangs of which an object speaks, with what counts of it.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&GangId, &Group)> {
        self.said.iter().filter_map(|(id, said)| Some((id, said.values().next()?)))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &GroupKey> {
        self.objects.keys()
    }

    /// Takes what an object says now; `None` when it is gone. Returns all gangs that it spoke or speaks of.
    fn set(&mut self, key: &GroupKey, groups: Option<Vec<Group>>) -> BTreeSet<GangId> {
        let mut touched = self.objects.remove(key).unwrap_or_default();
        for id in &touched {
            if let Some(said) = self.said.get_mut(id) {
                said.remove(key);
                if said.is_empty() {
                    self.said.remove(id);
                }
            }
        }
        if let Some(groups) = groups {
            let ids: BTreeSet<GangId> = groups.iter().map(|group| group.gang.clone()).collect();
            for group in groups {
                self.said.entry(group.gang.clone()).or_default().insert(key.clone(), group);
            }
            touched.extend(ids.iter().cloned());
            self.objects.insert(key.clone(), ids);
        }
        touched
    }
}

impl Engine {
    /// What is known of the group of a gang, from its object or from its members.
    pub(super) fn group(&self, id: &GangId) -> Option<&Group> {
        self.groups.get(id)
    }

    /// A watch told of a group object.
    pub(super) fn group_changed(&mut self, change: Change<GroupObject, GroupKey>, step: &mut Step) {
        match change {
            Change::Set(object) => {
                let key = object.key.clone();
                self.group_seen(&key, Some(object), step);
            }
            Change::Gone(key) => self.group_seen(&key, None, step),
        }
    }

    /// A group object as it is now, or its end.
    fn group_seen(&mut self, key: &GroupKey, object: Option<GroupObject>, step: &mut Step) {
        let before: BTreeMap<GangId, Group> = (self.groups.objects.get(key).into_iter().flatten())
            .filter_map(|id| Some((id.clone(), self.groups.of_object(id)?.clone())))
            .collect();
        let touched = self.groups.set(key, object.map(|object| object.groups));
        for id in touched {
            let now = self.groups.of_object(&id).cloned();
            let known = before.get(&id);
            if let Some(now) = &now
                && !self.gangs.contains_key(&id)
                && self.courtesy_left_behind(now)
            {
                self.gangs.insert(id.clone(), super::state::Gang::default());
            }
            let changed = match (known, &now) {
                (Some(known), Some(now)) => !known.equals_ignoring_status(now),
                (None, None) => false,
                _ => true,
            };
            let said = known.map(|known| &known.stored_status) != now.as_ref().map(|now| &now.stored_status);
            for gang in self.made_like(&id) {
                if changed {
                    self.look_at(&gang);
                }
                if changed || said {
                    step.touch(&gang);
                }
            }
        }
    }

    /// The gangs that a group describes: the one of its name, and all that are made like it.
    fn made_like(&self, id: &GangId) -> Vec<GangId> {
        // Their names begin with its own, and one character after it; all of them are looked through, no others are.
        let first = GangId::new(id.dialect, &id.namespace, &*id.name);
        let mine = |gang: &&GangId| gang.namespace == id.namespace && gang.name.starts_with(&*id.name);
        let others = self.gangs.range(GangId { dialect: crate::model::DialectId::ALL[0], ..first.clone() }..);
        let like = others
            .map(|(gang, _)| gang)
            .take_while(mine)
            .filter(|gang| gang.dialect == id.dialect && dialect::template_group(gang).as_ref() == Some(id));
        // Pods of a set of LeaderWorkerSet may be in gangs of another stack, and go by what the set says of its workers.
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

    /// A member that says something of its gang came, changed or went: what all of them say is to be looked at anew.
    pub(super) fn spoken_of(&mut self, membership: Option<&Membership>) {
        if let Some(membership) = membership.filter(|membership| membership.declared.is_some())
            && let Some(gang) = self.gangs.get_mut(&membership.gang)
        {
            gang.spoken_of = true;
        }
    }

    /// Looks anew at what the members of a gang say of it. What those that still wait say counts: who has started has been
    /// counted already, and may be of an older making.
    pub(super) fn redeclare(&mut self, id: &GangId) {
        let Some(gang) = self.gangs.get_mut(id).filter(|gang| gang.spoken_of) else { return };
        gang.spoken_of = false;
        let declared = self.declaration(id);
        let known = self.groups.declared.get(id);
        if known == declared.as_ref() {
            return;
        }
        match declared {
            Some(declared) => self.groups.declared.insert(id.clone(), declared),
            None => self.groups.declared.remove(id),
        };
        self.look_at(id);
    }

    fn declaration(&self, id: &GangId) -> Option<Result<Group, Str>> {
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
        // The oldest that says a number, of those that still wait; else the newest of the others.
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
                "pod {} says that the gang takes {} members, and pod {} says {}: give all of them the same {}",
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
