//! The current and past quorums of gangs, from API objects, for the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::api::{ApiServer, ObjectKey, ObjectKind};
use portcullis_core::dialect::{self, GangPolicies, Group, GroupObject, OnTorn, Quorum};
use portcullis_core::engine::{ConditionStatus, ConditionType};
use portcullis_core::model::{GangId, Resources, Str};
use portcullis_core::objects::{ObjectRef, OwnerKind};
use portcullis_core::pod::{OwnerState, Pod, PodPhase};

/// All quorums and policies that gangs have had. Past ones count too, because watches lag.
#[derive(Debug, Default)]
pub(super) struct QuorumHistory {
    quorums: BTreeMap<GangId, Vec<Quorum>>,
    /// Gangs whose size their owners have determined at some time.
    followed: BTreeSet<GangId>,
    /// Gangs that have had the policy to evict when torn.
    evicted: BTreeSet<GangId>,
}

impl QuorumHistory {
    fn record_quorum(&mut self, gang: &GangId, quorum: &Quorum) {
        let known = self.quorums.entry(gang.clone()).or_default();
        if !known.contains(quorum) {
            known.push(quorum.clone());
        }
    }

    /// Records the gangs whose owners want at least the quorum of the group.
    pub(super) fn owners(&mut self, api: &ApiServer) {
        let gangs: BTreeSet<&GangId> =
            api.pods().filter_map(|pod| Some(&pod.membership.as_ref()?.gang)).collect();
        for gang in gangs {
            let mine = |pod: &&Arc<Pod>| pod.membership.as_ref().is_some_and(|m| m.gang == *gang);
            let live: Vec<&Arc<Pod>> =
                api.pods().filter(mine).filter(|pod| !pod.terminating && !pod.finished()).collect();
            let Some(wanted) = wanted(api, gang, &live) else { continue };
            let mut here: BTreeMap<Option<Str>, u32> = BTreeMap::new();
            for pod in &live {
                let role = pod.membership.as_ref().and_then(|membership| membership.role.clone());
                *here.entry(role).or_default() += 1;
            }
            let met = |own: &Quorum| {
                let tasks = matches!(own, Quorum::Count(_)) || own.is_satisfied(&here);
                wanted.number >= own.min_members() && tasks
            };
            // A leader may read the owners before it sees a change of the group.
            if self.followed.contains(gang) || wanted.own.iter().chain(self.of(gang)).any(met) {
                self.followed.insert(gang.clone());
                self.record_quorum(gang, &Quorum::Count(wanted.number));
            }
        }
    }

    /// Whether the owners of its pods have ever determined the size of the gang.
    pub(super) fn followed(&self, gang: &GangId) -> bool {
        self.followed.contains(gang)
    }

    /// Whether the gang has ever had the policy to evict when torn.
    pub(super) fn evicts(&self, gang: &GangId) -> bool {
        let names = [Some(gang.clone()), dialect::template_group(gang)].into_iter().flatten();
        names.into_iter().any(|id| self.evicted.contains(&id))
    }

    fn policies(&mut self, gang: &GangId, stated: &GangPolicies) {
        if stated.on_torn == Some(OnTorn::Evict) {
            self.evicted.insert(gang.clone());
        }
    }

    pub(super) fn group(&mut self, object: &GroupObject) {
        for group in &object.groups {
            self.policies(&group.gang, &group.policies);
            self.record_quorum(&group.gang, &group.quorum);
        }
    }

    pub(super) fn pod(&mut self, pod: &Pod) {
        let Some(membership) = &pod.membership else { return };
        let Some(declared) = &membership.declared else { return };
        self.policies(&membership.gang, &declared.policies);
        if let Some(quorum) = &declared.quorum {
            self.record_quorum(&membership.gang, quorum);
        }
    }

    /// All quorums that this gang or its template has had.
    pub(super) fn of(&self, gang: &GangId) -> impl Iterator<Item = &Quorum> {
        let alike = dialect::template_group(gang);
        let names = [Some(gang.clone()), alike].into_iter().flatten();
        names.filter_map(|id| self.quorums.get(&id)).flatten()
    }
}

/// The demand of the owners of an elastic gang.
#[derive(Debug)]
pub(super) struct OwnerDemand {
    /// The quorum that the group states.
    pub(super) own: Option<Quorum>,
    /// Number of unfinished pods that the owners want.
    pub(super) number: u32,
    /// Whether a controller is about to create or delete pods, or an owner lacks all its pods.
    pub(super) moving: bool,
}

/// The current demand of the owners; `None` where the gang is not elastic.
pub(super) fn wanted(api: &ApiServer, gang: &GangId, live: &[&Arc<Pod>]) -> Option<OwnerDemand> {
    if policies(api, gang, live).elastic != Some(true) || dialect::template_group(gang).is_some() {
        return None;
    }
    let read = |kind: ObjectKind, name: &Str| {
        let stored = api.get(&ObjectKey::new(kind, &gang.namespace, name))?;
        let of = OwnerKind::ALL.into_iter().find(|of| of.as_str() == kind.as_str())?;
        OwnerState::read(of, &stored.object.to_string()).ok()
    };
    let find = |owner: &ObjectRef| {
        let kind = ObjectKind::named(&owner.kind).filter(|_| OwnerKind::of(owner).is_some())?;
        Some(read(kind, &owner.name).filter(|reading| reading.uid == owner.uid))
    };
    let (mut number, mut moving) = (0_u32, false);
    let mut roots: BTreeMap<Str, u32> = BTreeMap::new();
    let mut pods: BTreeMap<Str, (u32, u32)> = BTreeMap::new();
    for pod in live {
        let Some(found) = pod.owner.as_ref().and_then(find) else {
            number += 1;
            continue;
        };
        let Some(reading) = found else {
            moving = true;
            continue;
        };
        pods.entry(reading.uid.clone()).or_insert((0, reading.desired_pods)).0 += 1;
        match reading.controller.as_ref().map(find) {
            Some(Some(Some(above))) => drop(roots.insert(above.uid, above.desired_pods)),
            Some(Some(None)) => moving = true,
            _ => drop(roots.insert(reading.uid, reading.desired_pods)),
        }
    }
    if roots.is_empty() && !moving {
        return None;
    }
    moving |= pods.values().any(|(pods, wants)| pods > wants);
    for kind in [ObjectKind::Deployment, ObjectKind::StatefulSet, ObjectKind::Job] {
        let unseen = api.list(kind).filter_map(|(key, _)| read(kind, &key.name));
        moving |= unseen
            .filter(|reading| reading.gang.as_ref() == Some(gang) && reading.desired_pods > 0)
            .any(|reading| !roots.contains_key(&reading.uid));
    }
    number += roots.values().sum::<u32>();
    Some(OwnerDemand { own: stated_quorum(api, gang, live), number, moving })
}

/// The group objects of a gang, in order of precedence.
fn objects<'a>(api: &'a ApiServer, gang: &GangId) -> impl Iterator<Item = &'a Group> {
    let names = [Some(gang.clone()), dialect::template_group(gang)].into_iter().flatten();
    names.flat_map(move |wanted| {
        let groups = dialect::group_kinds().flat_map(|kind| {
            let objects = api.list(ObjectKind::Group(kind)).filter_map(|(_, stored)| stored.group());
            objects.flat_map(|object| &object.groups)
        });
        groups.filter(move |group| group.gang == wanted)
    })
}

/// The first group object of a gang or of its template.
pub(super) fn group_of<'a>(api: &'a ApiServer, gang: &GangId) -> Option<&'a Group> {
    objects(api, gang).next()
}

/// The current policies of a gang.
pub(super) fn policies(api: &ApiServer, gang: &GangId, live: &[&Arc<Pod>]) -> GangPolicies {
    if let Some(group) = objects(api, gang).next() {
        return group.policies.clone();
    }
    let said = live.iter().filter_map(|pod| pod.membership.as_ref()?.declared.as_ref());
    said.fold(GangPolicies::default(), |all, declared| all.or(&declared.policies))
}

/// The current `minResources` of a gang.
pub(super) fn minimum(api: &ApiServer, gang: &GangId) -> Resources {
    objects(api, gang).next().map(|group| group.min_resources.clone()).unwrap_or_default()
}

/// The current quorum; `None` where none is stated, or the waiting pods declare different ones.
pub(super) fn current(api: &ApiServer, gang: &GangId, live: &[&Arc<Pod>]) -> Option<Quorum> {
    match wanted(api, gang, live) {
        None => stated_quorum(api, gang, live),
        Some(wanted) => following(api, gang, live, &wanted),
    }
}

/// The quorum of an elastic gang; `None` while pods or owners are changing.
fn following(api: &ApiServer, gang: &GangId, live: &[&Arc<Pod>], wanted: &OwnerDemand) -> Option<Quorum> {
    let Some(Quorum::Count(own)) = wanted.own else { return None };
    let key = ObjectKey::new(ObjectKind::Gang, &gang.namespace, gang.object_name());
    let status = &api.get(&key)?.gang()?.status;
    let met = status
        .conditions
        .iter()
        .any(|c| c.kind == ConditionType::Elastic && c.status == ConditionStatus::True);
    let mine = |pod: &&Arc<Pod>| pod.membership.as_ref().is_some_and(|m| m.gang == *gang);
    let ended = api.pods().filter(mine).filter(|pod| pod.phase == PodPhase::Succeeded).count();
    if wanted.moving || ended > 0 {
        return None;
    }
    let running = u32::try_from(live.iter().filter(|pod| !pod.gated()).count()).unwrap_or(u32::MAX);
    let least = if met { wanted.number } else { wanted.number.max(own) };
    match status.started_with {
        0 => Some(Quorum::Count(least)),
        _ if !met => None,
        // Any new pod is a replacement or an addition.
        had if wanted.number <= had => Some(Quorum::Count(0)),
        // No member is missing; the waiting pods are a scale-up.
        had if running == had && live.len() == wanted.number as usize => Some(Quorum::Count(least)),
        _ => None,
    }
}

/// The quorum that the group or the pods state.
fn stated_quorum(api: &ApiServer, gang: &GangId, live: &[&Arc<Pod>]) -> Option<Quorum> {
    if let Some(group) = objects(api, gang).next() {
        return Some(group.quorum.clone());
    }
    let said = |pod: &Pod| pod.membership.as_ref()?.declared.as_ref()?.quorum.clone();
    let mut waiting: Vec<Quorum> = live.iter().filter(|p| p.gated()).filter_map(|p| said(p)).collect();
    waiting.dedup();
    if waiting.len() > 1 {
        return None;
    }
    if let Some(quorum) = waiting.pop() {
        return Some(quorum);
    }
    let pods = api.pods().filter(|pod| pod.membership.as_ref().is_some_and(|m| m.gang == *gang));
    let started = pods.filter(|pod| !pod.gated()).filter_map(|pod| Some((pod.created, &pod.key, said(pod)?)));
    started.max_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1))).map(|(.., quorum)| quorum)
}
