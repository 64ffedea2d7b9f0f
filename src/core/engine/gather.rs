//! Who is there: the members of a gang, counted.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::state::Member;
use crate::dialect::Quorum;
use crate::model::{GangId, NodeName, PodUid, Str};
use crate::pod::Pod;

/// The members of one gang, by what they are doing.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// Behind our gate alone, by creation, then key.
    pub ready: Vec<PodUid>,
    /// Behind our gate and somebody else's: pod name and that gate.
    pub held: Vec<(Str, Str)>,
    /// Started, and running or ended well, by role; what has ended well in an earlier run counts no more.
    pub active: BTreeMap<Option<Str>, u32>,
    /// Those of them that have ended well.
    pub succeeded: u32,
    /// What has ended is of an earlier run, and with it the plan that it had.
    pub begins_anew: bool,
    /// All that are live.
    pub live: u32,
    /// Those of them that are on a node.
    pub bound: u32,
    /// Nodes that those are on which have started and not ended.
    pub nodes: BTreeSet<NodeName>,
}

impl Census {
    /// All that wait behind our gate alone or have started.
    pub(super) fn here(&self) -> u32 {
        self.started().saturating_add(u32::try_from(self.ready.len()).unwrap_or(u32::MAX))
    }

    /// All that have started.
    pub(super) fn started(&self) -> u32 {
        self.active.values().sum()
    }

    /// All that have started and not ended.
    pub(super) fn running(&self) -> u32 {
        self.started().saturating_sub(self.succeeded)
    }
}

pub(super) fn role(pod: &Pod) -> Option<&Str> {
    pod.membership.as_ref().and_then(|m| m.role.as_ref())
}

/// Whether what has ended is of an earlier run: nothing of the gang runs any more, and what waits was made by nobody who
/// has made what has ended. Where it was (a Job that tries again) it is what is missing, and the others have done their part.
fn begins_anew<'m>(members: &(impl Iterator<Item = &'m Member> + Clone)) -> bool {
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
    pub(super) fn census(&self, id: &GangId) -> Census {
        let mut census = Census::default();
        let Some(gang) = self.gangs.get(id) else { return census };
        let members = || gang.members.iter().filter_map(|uid| self.members.get(uid));
        census.begins_anew = begins_anew(&members());
        for uid in &gang.members {
            let Some(member) = self.members.get(uid) else { continue };
            let pod = &member.pod;
            if census.begins_anew && pod.finished() {
                continue;
            }
            if member.live() {
                census.live += 1;
                census.bound += u32::from(pod.node.is_some());
            }
            if member.active() {
                *census.active.entry(role(pod).cloned()).or_default() += 1;
                census.nodes.extend(pod.node.clone().filter(|_| member.live()));
                census.succeeded += u32::from(pod.finished());
            } else if member.ready() {
                census.ready.push(uid.clone());
            } else if member.live()
                && let Some(gate) = pod.gates.iter().find(|g| &***g != crate::objects::names::GATE)
            {
                census.held.push((pod.key.name.clone(), gate.clone()));
            }
        }
        census.ready.sort_by_key(|uid| {
            self.members.get(uid).map(|m| (m.pod.created, m.pod.key.clone(), uid.clone()))
        });
        census
    }

    /// Whether these members, with those that have started, make the gang complete.
    pub(super) fn complete(&self, quorum: &Quorum, census: &Census, more: &[PodUid]) -> bool {
        let mut counts = census.active.clone();
        for uid in more {
            if let Some(member) = self.members.get(uid) {
                *counts.entry(role(&member.pod).cloned()).or_default() += 1;
            }
        }
        quorum.is_satisfied(&counts)
    }

    /// Why a pod that was to go to a node cannot go there any more; `None` while it can.
    pub(super) fn unfit(&self, pod: &Pod, name: &NodeName) -> Option<String> {
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
            return Some(format!("node {name} takes no shares of its cards any more"));
        }
        self.snapshot.overbooked(name).map(|what| format!("node {name} has no room any more: {what}"))
    }
}
