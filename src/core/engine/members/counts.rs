//! Counts the members of a gang by their state.

use std::collections::{BTreeMap, BTreeSet};

use crate::dialect::Quorum;
use crate::engine::Engine;
use crate::engine::gang_state::MemberState;
use crate::model::{GangId, NodeName, PodUid, Str};
use crate::pod::Pod;

/// The members of one gang, counted by state.
#[derive(Debug, Default)]
pub(in crate::engine) struct MemberCounts {
    /// Members that only the gate of this project holds back, by creation time and name.
    pub ready: Vec<PodUid>,
    /// Members that another scheduling gate holds back too: pod name and that gate.
    pub held: Vec<(Str, Str)>,
    /// Started members that run or have succeeded, by role. Succeeded members of an earlier run do not count.
    pub active: BTreeMap<Option<Str>, u32>,
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

    /// Started members.
    pub(in crate::engine) fn started(&self) -> u32 {
        self.active.values().sum()
    }

    /// Started members that have not ended.
    pub(in crate::engine) fn running(&self) -> u32 {
        self.started().saturating_sub(self.succeeded)
    }
}

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

impl Engine {
    /// Counts the members of a gang.
    pub(in crate::engine) fn count_members(&self, id: &GangId) -> MemberCounts {
        let mut counts = MemberCounts::default();
        let Some(gang) = self.expect_gang(id) else { return counts };
        let members = || gang.members.iter().filter_map(|uid| self.members.get(uid));
        counts.is_new_run = is_new_run(&members());
        for uid in &gang.members {
            let Some(member) = self.expect_member(uid) else { continue };
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
            } else if member.live()
                && let Some(gate) = pod.gates.iter().find(|g| &***g != crate::objects::names::GATE)
            {
                counts.held.push((pod.key.name.clone(), gate.clone()));
            }
        }
        counts.ready.sort_by_key(|uid| {
            self.members.get(uid).map(|m| (m.pod.created, m.pod.key.clone(), uid.clone()))
        });
        counts
    }

    /// Whether these members and the started ones complete the gang.
    pub(in crate::engine) fn is_complete(
        &self,
        quorum: &Quorum,
        counts: &MemberCounts,
        more: &[PodUid],
    ) -> bool {
        let mut by_role = counts.active.clone();
        for uid in more {
            if let Some(member) = self.members.get(uid) {
                *by_role.entry(role(&member.pod).cloned()).or_default() += 1;
            }
        }
        quorum.is_satisfied(&by_role)
    }

    /// The reason why a planned pod cannot use a node any more. `None` while it can.
    pub(in crate::engine) fn node_unfit_reason(&self, pod: &Pod, name: &NodeName) -> Option<String> {
        let Some(node) = self.snapshot.node(name) else { return Some(format!("node {name} is gone")) };
        if !node.ready {
            return Some(format!("node {name} is not ready"));
        }
        if !pod.shape.node_affinity.matches(&node.name, &node.labels) {
            return Some(format!(
                "node {name} no longer matches the node selector or affinity of {}",
                pod.key.name
            ));
        }
        if let Some(taint) = (node.taints.iter())
            .find(|taint| taint.forbids() && !pod.shape.tolerations.iter().any(|t| t.tolerates(taint)))
        {
            return Some(format!(
                "node {name} has the taint {taint}, which {} does not tolerate",
                pod.key.name
            ));
        }
        if node.unschedulable
            && !node.taints.iter().any(|t| &*t.key == crate::objects::names::TAINT_UNSCHEDULABLE)
        {
            return Some(format!("node {name} is cordoned"));
        }
        let open = crate::snapshot::CardState::Open;
        if pod.shape.share.is_some() && self.snapshot.card_state(name) != Some(open) {
            return Some(format!("node {name} no longer shares its cards"));
        }
        self.snapshot
            .overbooked_for(name, &pod.shape)
            .map(|what| format!("node {name} has no room any more: {what}"))
    }
}
