//! What the members and placeholders of a gang are charged to the snapshot.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::invariants::KNOWN_MEMBER;
use crate::engine::protocol::Placeholder;
use crate::engine::settings::SafetyRule;
use crate::engine::state::{Gang, MemberState};
use crate::model::{GangId, NodeName, PodKey, PodUid};
use crate::objects::PodLabels;
use crate::pod::Pod;
use crate::snapshot::{CardAllocation, Charge, ChargeState};

impl Gang {
    /// The charge of a member: to the node that it is bound to or planned onto. `None` if it uses no node.
    fn member_charge(&self, member: &MemberState) -> Option<Charge> {
        let pod = &member.pod;
        if pod.finished() {
            return None;
        }
        if let Some(node) = &pod.node {
            return Some(bound_charge(pod, node));
        }
        let (node, cards) = self.planned_node(pod)?;
        Some(Charge {
            key: Some(pod.key.clone()),
            node,
            labels: pod.labels.clone(),
            terminating: pod.terminating,
            shape: pod.shape.clone(),
            cards,
            state: ChargeState::Reserved,
        })
    }

    /// The node and cards that a pod without a node will use: those of the plan. A lifted pod whose plan is
    /// gone uses those that the lift wrote to it.
    fn planned_node(&self, pod: &Pod) -> Option<(NodeName, CardAllocation)> {
        let planned = self.plan().and_then(|plan| plan.members.iter().find(|m| m.uid == pod.uid));
        match planned {
            Some(planned) => Some((planned.node.clone(), card_allocation(pod, Some(&planned.gpus)))),
            None if pod.gated() => None,
            None => {
                let node = pod.pinned_to().or_else(|| pod.nominated.clone())?;
                Some((node, card_allocation(pod, pod.gpus.as_ref())))
            }
        }
    }

    /// The charges of the placeholders in the plan, and of those that it releases.
    fn placeholder_charges(&self) -> BTreeMap<PodUid, Charge> {
        (self.placeholders().iter().chain(&self.lifecycle.released_placeholders))
            .map(|placeholder| {
                (placeholder_uid(&self.id, placeholder.number), placeholder_charge(&self.id, placeholder))
            })
            .collect()
    }
}

impl Engine {
    /// Charges placeholders and members of a gang as its plan says.
    pub(in crate::engine) fn charge_gang(&mut self, id: &GangId) {
        // Placeholders first: a member takes the capacity of its placeholder.
        self.charge_placeholders(id);
        let Some(gang) = self.gangs.get(id) else { return };
        let members: Vec<PodUid> = gang.members.keys().cloned().collect();
        for uid in &members {
            self.charge_member(id, uid);
        }
    }

    /// Charges a member to the node that it is bound to or planned onto, or releases it. This is the only
    /// code that charges members.
    pub(in crate::engine) fn charge_member(&mut self, id: &GangId, uid: &PodUid) {
        let Some(gang) = self.expect_gang(id) else { return };
        let member = gang.members.get(uid);
        self.violations.check(member.is_some(), KNOWN_MEMBER);
        let Some(member) = member else { return };
        match gang.member_charge(member) {
            Some(charge)
                if charge.state != ChargeState::Reserved || self.settings.enforces(SafetyRule::Reserve) =>
            {
                self.snapshot.charge(uid, charge);
            }
            _ => {
                self.snapshot.release(uid);
            }
        }
    }

    /// Charges the placeholders of a gang as its plan says, and those that it releases.
    pub(in crate::engine) fn charge_placeholders(&mut self, id: &GangId) {
        let Some(gang) = self.expect_gang(id) else { return };
        let reserves = self.settings.enforces(SafetyRule::Reserve);
        let wanted = if reserves { gang.placeholder_charges() } else { BTreeMap::new() };
        let charged = self.placeholder_owners.iter().filter(|(_, gang)| *gang == id);
        let charged: Vec<PodUid> = charged.map(|(uid, _)| uid.clone()).collect();
        for uid in charged.iter().filter(|uid| !wanted.contains_key(uid)) {
            self.placeholder_owners.remove(uid);
            self.snapshot.release(uid);
        }
        for (uid, charge) in wanted {
            self.snapshot.charge(&uid, charge);
            self.placeholder_owners.insert(uid, id.clone());
        }
    }
}

/// The charge of a pod without a gang: to the node that it is bound to, or that will have it. `None` if it
/// uses no node.
pub(in crate::engine) fn other_charge(pod: &Pod) -> Option<Charge> {
    if pod.finished() {
        return None;
    }
    if let Some(node) = &pod.node {
        return Some(bound_charge(pod, node));
    }
    let mut charge = bound_charge(pod, &pod.awaited_node()?);
    if charge.state == ChargeState::Bound {
        charge.state = ChargeState::Reserved;
    }
    Some(charge)
}

/// The charge of a bound pod.
fn bound_charge(pod: &Pod, node: &NodeName) -> Charge {
    let cards = card_allocation(pod, pod.gpus.as_ref());
    Charge {
        key: Some(pod.key.clone()),
        node: node.clone(),
        labels: pod.labels.clone(),
        terminating: pod.terminating,
        shape: pod.shape.clone(),
        cards,
        state: if pod.node_bound { ChargeState::NodeBound } else { ChargeState::Bound },
    }
}

/// The cards of a pod: those in its annotation or plan, or unknown ones.
fn card_allocation(pod: &Pod, written: Option<&Vec<u32>>) -> CardAllocation {
    match (pod.shape.share, written) {
        (None, _) => CardAllocation::Unshared,
        (Some(share), Some(cards)) if cards.len() == share.devices as usize => {
            CardAllocation::Known(cards.clone())
        }
        (Some(_), _) => CardAllocation::Unknown,
    }
}

/// The UID under which a placeholder is charged. No pod has it.
pub(in crate::engine) fn placeholder_uid(id: &GangId, number: u32) -> PodUid {
    PodUid::from(&*format!("placeholder/{}/{id}/{number}", id.dialect))
}

fn placeholder_charge(id: &GangId, placeholder: &Placeholder) -> Charge {
    let cards = if placeholder.shape.share.is_some() {
        CardAllocation::Known(placeholder.gpus.clone())
    } else {
        CardAllocation::Unshared
    };
    Charge {
        key: Some(PodKey::new(&*id.namespace, format!("{} (reservation)", id.name))),
        node: placeholder.node.clone(),
        // The durable plan does not store labels.
        labels: PodLabels::new(&id.namespace, []),
        terminating: false,
        shape: placeholder.shape.clone(),
        cards,
        state: ChargeState::Reserved,
    }
}
