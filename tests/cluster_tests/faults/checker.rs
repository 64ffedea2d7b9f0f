//! The invariants of a cluster after any fault, computed only from the objects in the API server.
//!
//! [`ClusterObjects::safety_violations`] returns states that must never occur: an overbooked node or card, or
//! a lifted pod that differs from the durable plan. [`ClusterObjects::liveness_violations`] returns states
//! that may occur for a while but must end.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::dialect::{Group, group_kinds};
use portcullis_core::engine::{GangRecord, Phase, wire};
use portcullis_core::model::{GangId, NodeName, Resources, Str, Time, VramMib};
use portcullis_core::objects::Node;
use portcullis_core::planner::{self, PlanningRequest, WaitingMember};
use portcullis_core::pod::Pod;
use portcullis_core::snapshot::{CardAllocation, Charge, ChargeState, SharingMode, Snapshot};
use portcullis_test_cluster::Api;
use serde_json::Value;

/// The objects of the API server that the invariants need. Pods are read before gangs, because a plan is
/// written before its pods are lifted.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterObjects {
    pub(crate) nodes: Vec<Node>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) groups: Vec<Group>,
    pub(crate) gangs: Vec<GangRecord>,
    /// Gangs with a Torn event.
    pub(crate) gangs_with_torn_event: BTreeSet<(String, String)>,
    pub(crate) now: Time,
}

impl ClusterObjects {
    /// Reads nodes, pods and gangs.
    pub(crate) fn read(api: &Api) -> anyhow::Result<Self> {
        let nodes = each(&api.get("/api/v1/nodes")?, |json| Ok(Node::read(json)?))?;
        let pods = each(&api.get("/api/v1/pods")?, |json| Ok(Pod::read(json)?))?;
        let list = api.get("/apis/portcullis.dev/v1alpha1/gangs")?;
        let gangs = list["items"].as_array().into_iter().flatten();
        let gangs = gangs.map(|gang| wire::read_gang(&gang.to_string()).map_err(anyhow::Error::msg));
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let now = Time(u64::try_from(since.as_millis())?);
        Ok(Self { nodes, pods, gangs: gangs.collect::<Result<_, _>>()?, now, ..Self::default() })
    }

    /// Reads groups and events as well.
    pub(crate) fn read_all(api: &Api) -> anyhow::Result<Self> {
        let mut state = Self::read(api)?;
        for kind in group_kinds() {
            let resource = kind.resource();
            let path = format!("/apis/{}/{}/{}", resource.group, resource.version, resource.plural);
            if let Some(list) = api.find(&path)? {
                state.groups.extend(each(&list, |json| Ok(kind.read(json)?.groups))?.into_iter().flatten());
            }
        }
        let events = api.get("/apis/events.k8s.io/v1/events")?;
        for event in events["items"].as_array().into_iter().flatten() {
            let (about, text) =
                (&event["regarding"], |value: &Value| value.as_str().unwrap_or("").to_owned());
            if event["reason"] == "Torn" && about["kind"] == "Gang" {
                state.gangs_with_torn_event.insert((text(&about["namespace"]), text(&about["name"])));
            }
        }
        Ok(state)
    }

    /// The states that must never occur.
    pub(crate) fn safety_violations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for node in &self.nodes {
            self.one_node(node, &mut wrong);
        }
        for pod in self.pods.iter().filter(|pod| is_live(pod) && pod.gates.is_empty()) {
            self.lifted_by_plan(pod, &mut wrong);
        }
        wrong
    }

    /// Adds up the capacity that pods hold on a node: bound pods, and lifted pods that can be bound only
    /// there.
    fn one_node(&self, node: &Node, wrong: &mut Vec<String>) {
        let (mut used, mut count, mut cards) = (Resources::default(), 0, BTreeMap::<u32, u64>::new());
        let vram = node.gpus.vram_each.unwrap_or(VramMib::ZERO);
        for pod in self.pods.iter().filter(|pod| !pod.finished()) {
            let place = pod.node.clone().or_else(|| pod.pinned_to().filter(|_| pod.gates.is_empty()));
            if place.as_ref() != Some(&node.name) {
                continue;
            }
            used.add(&pod.shape.requests);
            count += 1;
            let Some(share) = pod.shape.share else { continue };
            let given = pod.gpus.as_deref().unwrap_or_default();
            if given.len() != share.devices as usize || given.iter().any(|card| *card >= node.gpus.cards) {
                let (key, name) = (&pod.key, &node.name);
                wrong.push(format!("{key} on {name} has the cards {given:?} and wants {}", share.devices));
            }
            for card in given {
                *cards.entry(*card).or_default() += share.on_card(vram).0;
            }
        }
        let has = &node.allocatable;
        let mut sums = vec![
            ("cpu", used.cpu.0, has.cpu.0),
            ("memory", used.memory.0, has.memory.0),
            ("pods", count, node.max_pods),
        ];
        let extended = used.extended.iter();
        sums.extend(extended.map(|(name, used)| (&**name, *used, has.extended(name))));
        for (what, used, has) in sums {
            if used > has {
                wrong.push(format!("{}: {used} of {has} {what} are given away", node.name));
            }
        }
        for (card, mib) in cards {
            if mib > vram.0 {
                wrong.push(format!(
                    "{} card {card}: {mib} of {vram} MiB are given away",
                    node.name,
                    vram = vram.0
                ));
            }
        }
    }

    /// A lifted pod that is not bound must be in the plan with the same node and cards.
    fn lifted_by_plan(&self, pod: &Pod, wrong: &mut Vec<String>) {
        let (None, Some(pin), Some(membership)) = (&pod.node, pod.pinned_to(), &pod.membership) else {
            return;
        };
        let Some(gang) = self.gang(&membership.gang) else { return };
        let plan = gang.status.plan.iter().flat_map(|plan| &plan.members);
        let planned = plan.into_iter().find(|member| member.uid == pod.uid);
        let cards = pod.gpus.clone().unwrap_or_default();
        match planned {
            Some(member) if member.node == pin && member.gpus == cards => {}
            Some(member) => wrong.push(format!(
                "{} is lifted to {pin} {cards:?}, and planned on {} {:?}",
                pod.key, member.node, member.gpus
            )),
            None => wrong
                .push(format!("{} is lifted to {pin}, and the plan of its gang does not name it", pod.key)),
        }
    }

    fn gang(&self, id: &GangId) -> Option<&GangRecord> {
        self.gangs.iter().find(|gang| gang.gang == *id)
    }

    /// The states that may occur for a while but must end.
    pub(crate) fn liveness_violations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut gangs: BTreeMap<&GangId, Vec<&Pod>> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| is_live(pod)) {
            if let Some(membership) = &pod.membership {
                gangs.entry(&membership.gang).or_default().push(pod);
            }
        }
        for (id, pods) in &gangs {
            self.one_gang(id, pods, &mut wrong);
        }
        for gang in self.gangs.iter().filter(|gang| !gangs.contains_key(&gang.gang)) {
            wrong.push(format!("the Gang {} is left, and no pod of it", gang.gang));
        }
        wrong
    }

    fn one_gang(&self, id: &GangId, pods: &[&Pod], wrong: &mut Vec<String>) {
        let Some(group) = self.groups.iter().find(|group| group.gang == *id) else {
            if let Some(pod) = pods.iter().find(|pod| !pod.gated()) {
                wrong.push(format!("{} is lifted without its group", pod.key));
            }
            return;
        };
        let record = self.gang(id);
        let torn = record.is_some_and(|gang| gang.status.phase == Phase::Torn);
        let lifted: Vec<&&Pod> = pods.iter().filter(|pod| !pod.gated()).collect();
        let bound: Vec<&&Pod> = lifted.iter().filter(|pod| pod.node.is_some()).copied().collect();
        let count = |pods: &[&&Pod]| {
            let mut counts: BTreeMap<Option<Str>, u32> = BTreeMap::new();
            for pod in pods {
                let role = pod.membership.as_ref().and_then(|membership| membership.role.clone());
                *counts.entry(role).or_default() += 1;
            }
            counts
        };
        let active = count(&bound);
        if torn {
            if !self.gangs_with_torn_event.contains(&(id.namespace.to_string(), id.name.to_string())) {
                wrong.push(format!("{id} is torn without a Torn event"));
            }
            return;
        }
        if !lifted.is_empty() && (bound.len() < lifted.len() || !group.quorum.is_satisfied(&active)) {
            let deadline = record.and_then(|gang| gang.status.plan.as_ref()).map(|plan| plan.deadline);
            let past = if deadline.is_some_and(|at| at < self.now) { ", past its deadline," } else { "" };
            let numbers = format!("{} lifted, {} bound of {}", lifted.len(), bound.len(), pods.len());
            wrong.push(format!("{id} is lifted in part{past} and not torn: {numbers}"));
            return;
        }
        let ready: Vec<&&Pod> = pods.iter().filter(|pod| pod.gated() && pod.gates.len() == 1).collect();
        if lifted.is_empty() && !group.quorum.is_satisfied(&count(&ready)) || ready.is_empty() {
            return;
        }
        let members = ready.iter().map(|pod| WaitingMember {
            uid: pod.uid.clone(),
            key: pod.key.clone(),
            role: pod.membership.as_ref().and_then(|membership| membership.role.clone()),
            labels: pod.labels.clone(),
            shape: pod.shape.clone(),
        });
        let (members, quorum) = (members.collect(), group.quorum.clone());
        let minimum = if lifted.is_empty() { group.min_resources.clone() } else { Resources::default() };
        let beside = BTreeSet::new();
        let request = PlanningRequest {
            gang: id.clone(),
            members,
            quorum,
            active,
            min_resources: minimum,
            topology_key: None,
            gang_nodes: beside,
        };
        let (plan, _) = planner::plan(&self.snapshot(), std::slice::from_ref(&request));
        if !plan.gangs.is_empty() {
            let phase = record.map_or("unknown", |gang| gang.status.phase.as_str());
            wrong.push(format!("{id} fits and does not start; it is {phase}"));
        }
    }

    /// The free capacity after bound pods, lifted pods, and the plans of lifted gangs.
    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new(SharingMode::default());
        for node in &self.nodes {
            snapshot.set_node(node.clone());
        }
        for pod in self.pods.iter().filter(|pod| !pod.finished() && !pod.gated()) {
            let planned = || -> Option<NodeName> {
                let gang = self.gang(&pod.membership.as_ref()?.gang)?;
                let plan = gang.status.plan.as_ref()?;
                Some(plan.members.iter().find(|member| member.uid == pod.uid)?.node.clone())
            };
            let Some(node) = pod.node.clone().or_else(|| pod.pinned_to()).or_else(planned) else { continue };
            let hold = if pod.node.is_some() { ChargeState::Bound } else { ChargeState::Reserved };
            let cards = match (&pod.shape.share, &pod.gpus) {
                (None, _) => CardAllocation::Unshared,
                (Some(_), Some(cards)) => CardAllocation::Known(cards.clone()),
                (Some(_), None) => CardAllocation::Unknown,
            };
            let key = Some(pod.key.clone());
            let (labels, shape) = (pod.labels.clone(), pod.shape.clone());
            let charge =
                Charge { key, node, labels, terminating: pod.terminating, shape, cards, state: hold };
            snapshot.charge(&pod.uid, charge);
        }
        snapshot
    }
}

fn is_live(pod: &Pod) -> bool {
    !pod.finished() && !pod.terminating
}

fn each<T>(list: &Value, read: impl Fn(&str) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| read(&item.to_string())).collect()
}
