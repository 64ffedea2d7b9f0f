//! Counts the members of a gang by their state.

use std::collections::{BTreeMap, BTreeSet};

use crate::dialect::Quorum;
use crate::engine::state::{Gang, MemberState};
use crate::model::{NodeName, PodUid, Str};
use crate::objects::names;
use crate::pod::Pod;

/// Numbers of members by role.
pub(in crate::engine) type RoleCounts = BTreeMap<Option<Str>, u32>;

/// The members of one gang, counted by state.
#[derive(Debug, Default)]
pub(in crate::engine) struct MemberCounts {
    /// Members that only the gate of this project holds back, by creation time and name.
    pub ready: Vec<PodUid>,
    /// The same members, by role.
    pub ready_by_role: RoleCounts,
    /// Members that another scheduling gate holds back too: pod name and that gate.
    pub held: Vec<(Str, Str)>,
    /// Started members that run or have succeeded, by role. Succeeded members of an earlier run do not count.
    pub active: RoleCounts,
    /// Succeeded members among `active`.
    pub succeeded: u32,
    /// All ended members belong to an earlier run, and so does the plan.
    pub is_new_run: bool,
    /// Live members.
    pub live: u32,
    /// Live members that are bound to a node.
    pub bound: u32,
    /// Nodes of the members that have started and not ended.
    pub nodes: BTreeSet<NodeName>,
}

impl MemberCounts {
    /// Ready and started members.
    pub(in crate::engine) fn present(&self) -> u32 {
        self.started().saturating_add(u32::try_from(self.ready.len()).unwrap_or(u32::MAX))
    }

    /// Ready and started members, by role.
    pub(in crate::engine) fn present_by_role(&self) -> RoleCounts {
        let mut by_role = self.active.clone();
        add(&mut by_role, &self.ready_by_role);
        by_role
    }

    /// Started members.
    pub(in crate::engine) fn started(&self) -> u32 {
        self.active.values().sum()
    }

    /// Started members that have not ended.
    pub(in crate::engine) fn running(&self) -> u32 {
        self.started().saturating_sub(self.succeeded)
    }

    /// Whether the started members complete the gang.
    pub(in crate::engine) fn started_satisfy(&self, quorum: &Quorum) -> bool {
        quorum.is_satisfied(&self.active)
    }

    /// Whether the started and the ready members complete the gang.
    pub(in crate::engine) fn present_satisfy(&self, quorum: &Quorum) -> bool {
        quorum.is_satisfied(&self.present_by_role())
    }
}

/// Adds numbers of members by role.
fn add(counts: &mut RoleCounts, more: &RoleCounts) {
    for (role, number) in more {
        *counts.entry(role.clone()).or_default() += number;
    }
}

/// The role of a pod in its gang.
pub(in crate::engine) fn role(pod: &Pod) -> Option<&Str> {
    pod.membership.as_ref().and_then(|m| m.role.as_ref())
}

/// Whether all ended members belong to an earlier run: no pod of the gang runs, and no waiting pod has the
/// owner of an ended one. A waiting pod with the same owner (a Job that retries) replaces a missing member,
/// and the ended ones still count.
fn is_new_run<'m>(members: &(impl Iterator<Item = &'m MemberState> + Clone)) -> bool {
    let ended = || members.clone().filter(|member| member.pod.finished());
    let mut waiting = members.clone().filter(|member| member.live() && member.pod.gated()).peekable();
    if ended().next().is_none()
        || waiting.peek().is_none()
        || members.clone().any(|member| member.live() && !member.pod.gated())
    {
        return false;
    }
    !waiting
        .any(|member| member.pod.owner.is_some() && ended().any(|other| other.pod.owner == member.pod.owner))
}

impl Gang {
    /// Counts the members of the gang.
    pub(in crate::engine) fn count_members(&self) -> MemberCounts {
        let mut counts =
            MemberCounts { is_new_run: is_new_run(&self.members.values()), ..MemberCounts::default() };
        for (uid, member) in &self.members {
            let pod = &member.pod;
            if counts.is_new_run && pod.finished() {
                continue;
            }
            if member.live() {
                counts.live += 1;
                counts.bound += u32::from(pod.node.is_some());
            }
            if member.active() {
                *counts.active.entry(role(pod).cloned()).or_default() += 1;
                counts.nodes.extend(pod.node.clone().filter(|_| member.live()));
                counts.succeeded += u32::from(pod.finished());
            } else if member.ready() {
                counts.ready.push(uid.clone());
                *counts.ready_by_role.entry(role(pod).cloned()).or_default() += 1;
            } else if member.live()
                && let Some(gate) = pod.gates.iter().find(|gate| &***gate != names::GATE)
            {
                counts.held.push((pod.key.name.clone(), gate.clone()));
            }
        }
        counts.ready.sort_by_key(|uid| {
            self.members.get(uid).map(|m| (m.pod.created, m.pod.key.clone(), uid.clone()))
        });
        counts
    }

    /// The pods of these members. Members that do not exist are left out.
    pub(in crate::engine) fn pods<'a>(&'a self, uids: &'a [PodUid]) -> impl Iterator<Item = &'a Pod> {
        uids.iter().filter_map(|uid| self.members.get(uid)).map(|member| &member.pod)
    }
}
