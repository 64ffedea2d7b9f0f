//! Which quorums a gang has, and ever had, read from API objects: the checker's own reckoning.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::api::{ApiServer, Kind};
use crate::dialect::{self, Group, GroupObject, Policies, Quorum};
use crate::model::GangId;
use crate::objects::Pod;

/// Every quorum a gang ever had.
#[derive(Debug, Default)]
pub(super) struct Quorums(BTreeMap<GangId, Vec<Quorum>>);

impl Quorums {
    fn note(&mut self, gang: &GangId, quorum: &Quorum) {
        let known = self.0.entry(gang.clone()).or_default();
        if !known.contains(quorum) {
            known.push(quorum.clone());
        }
    }

    pub(super) fn group(&mut self, object: &GroupObject) {
        for group in &object.groups {
            self.note(&group.gang, &group.quorum);
        }
    }

    pub(super) fn pod(&mut self, pod: &Pod) {
        let Some(membership) = &pod.membership else { return };
        if let Some(quorum) = membership.declared.as_ref().and_then(|declared| declared.quorum.as_ref()) {
            self.note(&membership.gang, quorum);
        }
    }

    /// All that were ever said of this gang, or of all that are made like it.
    pub(super) fn of(&self, gang: &GangId) -> impl Iterator<Item = &Quorum> {
        let alike = dialect::template(gang);
        let names = [Some(gang.clone()), alike].into_iter().flatten();
        names.filter_map(|id| self.0.get(&id)).flatten()
    }
}

/// The group objects of a gang, the one that counts first.
fn objects<'a>(api: &'a ApiServer, gang: &GangId) -> impl Iterator<Item = &'a Group> {
    let names = [Some(gang.clone()), dialect::template(gang)].into_iter().flatten();
    names.flat_map(move |wanted| {
        let groups = dialect::group_kinds().flat_map(|kind| {
            let objects = api.list(Kind::Group(kind)).filter_map(|(_, stored)| stored.group());
            objects.flat_map(|object| &object.groups)
        });
        groups.filter(move |group| group.gang == wanted)
    })
}

/// The group object of a gang that counts, or of all that are made like it.
pub(super) fn group_of<'a>(api: &'a ApiServer, gang: &GangId) -> Option<&'a Group> {
    objects(api, gang).next()
}

/// What is said now of what becomes of a gang.
pub(super) fn policies(api: &ApiServer, gang: &GangId, live: &[&Arc<Pod>]) -> Policies {
    if let Some(group) = objects(api, gang).next() {
        return group.policies;
    }
    let said = live.iter().filter_map(|pod| pod.membership.as_ref()?.declared.as_ref());
    said.fold(Policies::default(), |all, declared| all.or(declared.policies))
}

/// The quorum that counts now; `None` where nobody says one, or the waiting pods say different ones.
pub(super) fn current(api: &ApiServer, gang: &GangId, live: &[&Arc<Pod>]) -> Option<Quorum> {
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
