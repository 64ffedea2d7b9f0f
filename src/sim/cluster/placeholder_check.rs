//! Recounts reservations of placeholders from stored objects, for the checker.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::api::{ApiServer, ObjectKey, ObjectKind};
use super::checker::met;
use super::quorum_history;
use portcullis_core::dialect::{FutureMembers, Quorum};
use portcullis_core::engine::{GangRecord, Placeholder};
use portcullis_core::model::{GangId, NodeName, PodKey, PodUid, Resources, Str, Time, VramMib};
use portcullis_core::objects::{Node, PodLabels, names};
use portcullis_core::planner::WaitingMember;
use portcullis_core::pod::Pod;
use portcullis_core::shape::Shape;
use portcullis_core::snapshot::{CardAllocation, Charge, ChargeState, Snapshot};

/// All stored plans, and the largest capacity that each node has had.
#[derive(Debug, Default)]
pub(super) struct PlannedUsage {
    gangs: BTreeMap<ObjectKey, Arc<GangRecord>>,
    nodes: BTreeMap<NodeName, Arc<Node>>,
}

/// What is allocated on one node and on its cards.
#[derive(Default)]
struct ChargedUsage {
    resources: Resources,
    cards: BTreeMap<u32, VramMib>,
    held: bool,
}

impl PlannedUsage {
    pub(super) fn node(&mut self, node: &Arc<Node>) {
        let known = self.nodes.entry(node.name.clone()).or_insert_with(|| node.clone());
        let mut most = Node::clone(node);
        most.allocatable.raise(&known.allocatable);
        most.gpus.vram_each = most.gpus.vram_each.max(known.gpus.vram_each);
        *known = Arc::new(most);
    }

    pub(super) fn gang(&mut self, key: &ObjectKey, record: Option<&Arc<GangRecord>>) {
        match record {
            Some(record) => self.gangs.insert(key.clone(), record.clone()),
            None => self.gangs.remove(key),
        };
    }

    /// What plans reserve too much of a node, when a member of this gang is lifted to it. `None` if gang pods
    /// and reservations of placeholders fit together. All plans with lifted members count, including this
    /// one. Pods without a gang do not count, because the engine may not have observed them yet.
    pub(super) fn overbooked_by_plans(
        &self,
        gang: &GangId,
        name: &NodeName,
        pods: &BTreeMap<PodUid, (Arc<Pod>, Option<Time>)>,
    ) -> Option<String> {
        let node = self.nodes.get(name)?;
        let mut given = ChargedUsage::default();
        for record in self.gangs.values() {
            let Some(plan) = &record.status.plan else { continue };
            let here = |uid: &PodUid| {
                let known = pods.get(uid).filter(|(_, gone)| gone.is_none()).map(|(pod, _)| pod);
                known.filter(|pod| !pod.finished() && !pod.terminating)
            };
            let begun = record.gang == *gang
                || plan.members.iter().any(|m| here(&m.uid).is_some_and(|pod| !pod.gated()));
            if !begun {
                continue;
            }
            for member in plan.members.iter().filter(|m| m.node == *name) {
                // A pod that was bound to another node does not count here.
                let pod = here(&member.uid).filter(|pod| pod.node.as_ref().is_none_or(|node| node == name));
                if let Some(pod) = pod {
                    given.charge(node, &pod.shape, &member.gpus);
                }
            }
            for place in plan.placeholders.iter().filter(|place| place.node == *name) {
                given.charge(node, &place.shape, &place.gpus);
                given.held = true;
            }
        }
        let has = &node.allocatable;
        let over = given.resources.cpu > has.cpu
            || given.resources.memory > has.memory
            || given.resources.extended.iter().any(|(name, amount)| *amount > has.extended(name))
            || given.cards.values().any(|used| *used > node.gpus.vram_each.unwrap_or_default());
        (given.held && over).then(|| {
            format!(
                "node {name}: plans and their placeholders reserve {:?} and of its cards {:?}, and it has {has:?}",
                given.resources, given.cards
            )
        })
    }
}

impl ChargedUsage {
    fn charge(&mut self, node: &Node, shape: &Shape, cards: &[u32]) {
        self.resources.add(&shape.requests);
        let each = node.gpus.vram_each.unwrap_or_default();
        for card in cards {
            let on_card = shape.share.map_or(VramMib::ZERO, |share| share.on_card(each));
            let used = self.cards.entry(*card).or_default();
            *used = used.saturating_add(on_card);
        }
    }
}

/// Whether all new members of a plan are pods that took over a placeholder of the previous plan.
pub(super) fn places_taken(before: Option<&GangRecord>, after: &GangRecord) -> bool {
    let (Some(before), Some(after)) = (before.and_then(|b| b.status.plan.as_ref()), &after.status.plan)
    else {
        return false;
    };
    let mut taken: Vec<&Placeholder> =
        before.placeholders.iter().filter(|place| !after.placeholders.contains(place)).collect();
    let news = after.members.iter().filter(|m| !before.members.iter().any(|known| known.uid == m.uid));
    let mut all = true;
    for member in news {
        let place = taken.iter().position(|place| place.node == member.node && place.gpus == member.gpus);
        match place {
            Some(index) => {
                taken.remove(index);
            }
            None => all = false,
        }
    }
    all && after.placeholders.iter().all(|place| before.placeholders.contains(place))
}

/// Charges the placeholders of durable plans.
pub(super) fn charge(snapshot: &mut Snapshot, api: &ApiServer) {
    for (key, stored) in api.list(ObjectKind::Gang) {
        let Some(plan) = stored.gang().and_then(|record| record.status.plan.as_ref()) else { continue };
        for place in &plan.placeholders {
            let cards = if place.shape.share.is_some() {
                CardAllocation::Known(place.gpus.clone())
            } else {
                CardAllocation::Unshared
            };
            let uid = PodUid::from(&*format!("held by {}/{}/{}", key.namespace, key.name, place.number));
            let charge = Charge {
                key: None,
                node: place.node.clone(),
                labels: PodLabels::new(&key.namespace, []),
                terminating: false,
                shape: place.shape.clone(),
                cards,
                state: ChargeState::Reserved,
            };
            snapshot.charge(&uid, charge);
        }
    }
}

/// The placeholders that complete a gang, from the declarations of its pods and of their LeaderWorkerSet, and
/// the quorum. Empty where the shape of a missing member is unknown.
pub(super) fn missing_members<'p>(
    api: &ApiServer,
    quorum: Quorum,
    pods: impl Iterator<Item = &'p Arc<Pod>>,
    here: &BTreeMap<Option<Str>, u32>,
) -> (Quorum, Vec<WaitingMember>) {
    let mut whole = quorum.clone();
    // Role, where the quorum has roles, labels and shape.
    let mut known: Vec<(Option<Option<Str>>, PodLabels, Arc<Shape>)> = Vec::new();
    for pod in pods {
        let Some(membership) = &pod.membership else { continue };
        match membership.declared.as_ref().and_then(|declared| declared.future_members.as_ref()) {
            Some(FutureMembers::Copies) => {
                known.push((Some(membership.role.clone()), pod.labels.clone(), pod.shape.clone()));
            }
            Some(FutureMembers::Roles(roles)) => {
                let described = |(role, shape): (&Str, &Arc<Shape>)| {
                    (Some(Some(role.clone())), unlabelled(pod), shape.clone())
                };
                known.extend(roles.iter().map(described));
            }
            Some(FutureMembers::Replica { set, size }) => {
                let Some(workers) =
                    quorum_history::group_of(api, set).and_then(|group| group.workers.as_ref())
                else {
                    continue;
                };
                known.push((None, unlabelled(pod), workers.shape.clone()));
                if let Quorum::Count(least) = &mut whole {
                    *least = (*least).max(*size);
                }
            }
            None => {}
        }
    }
    let mut roles = here.clone();
    let mut members = Vec::new();
    while !met(&whole, None, &roles) {
        let lacking = lacking(&whole, None, &roles);
        let found = lacking.iter().find_map(|name| {
            let (role, labels, shape) = known.iter().find(|(role, _, _)| match (name, role) {
                (None, _) | (_, None) => true,
                (Some(name), Some(role)) => role.as_deref().unwrap_or(names::KAI_DEFAULT_SUBGROUP) == &**name,
            })?;
            Some((role.clone().unwrap_or_else(|| name.clone()), labels.clone(), shape.clone()))
        });
        let Some((role, labels, shape)) = found.filter(|_| members.len() < 100) else {
            return (quorum, Vec::new());
        };
        *roles.entry(role.clone()).or_default() += 1;
        let uid = PodUid::from(&*format!("missing {}", members.len()));
        members.push(WaitingMember { uid, key: PodKey::new("", "missing"), role, labels, shape });
    }
    (whole, members)
}

/// The labels of a member of which only the shape is known.
fn unlabelled(pod: &Pod) -> PodLabels {
    PodLabels::new(&pod.key.namespace, [])
}

/// The subgroups with too few members; `None` where every role counts.
fn lacking(quorum: &Quorum, name: Option<&Str>, roles: &BTreeMap<Option<Str>, u32>) -> Vec<Option<Str>> {
    if met(quorum, name.map(|name| &**name), roles) {
        return Vec::new();
    }
    match quorum {
        Quorum::Count(_) => vec![name.cloned()],
        Quorum::Groups { children, .. } => {
            children.iter().flat_map(|(name, child)| lacking(child, Some(name), roles)).collect()
        }
        Quorum::Total { quorum, .. } => {
            let inner = lacking(quorum, name, roles);
            if inner.is_empty() { vec![None] } else { inner }
        }
    }
}
