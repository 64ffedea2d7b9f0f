//! Checks the invariants of Portcullis from outside, after every event. `liveness.rs` checks the settled
//! cluster.
//!
//! The checker reads API objects only: no reservations, no plans that are not durable. Of the engine that
//! leads it knows the holder of the head-of-line reservation, because no object is the source of that. It
//! computes all sums itself, with code that it does not share with the planner.

mod liveness;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::eviction_check;
use super::placeholder_check::{self, PlannedUsage};
use super::quorum_history::QuorumHistory;
use crate::api::{Actor, ApiServer, ObjectKey, ObjectKind, WriteRecord};
use portcullis_core::api::ApiResponse;
use portcullis_core::dialect::OnTorn;
use portcullis_core::dialect::Quorum;
use portcullis_core::engine::{Action, Effect, EngineSettings, GangRecord, Phase};
use portcullis_core::model::{
    Bytes, GangId, MilliCpu, NodeName, PodUid, Reason, Resources, Str, Time, VramMib,
};
use portcullis_core::objects::{Node, names};
use portcullis_core::pod::Pod;
use portcullis_core::snapshot::SharingMode;

/// An invariant of Portcullis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Gates are lifted only by a durable plan for the whole gang.
    AllOrNone,
    /// No card and no node is allocated beyond its capacity.
    NeverOverbook,
    /// The same engine with the same events decides the same.
    Determinism,
    /// A planning round of the engine plans the same as one that asks the planner about every gang.
    PlanningShortcut,
    /// A patch of the webhook applies, and mutation is idempotent.
    Webhook,
    /// Every gang that does not start has a reason and numbers.
    Explained,
    /// Portcullis changes only its own gate, and only pods of gangs.
    OwnGateOnly,
    /// A gang that fits starts, and a gang that has started is completed.
    Liveness,
    /// The engine sends one request at a time for one object, and every patch applies to the version that it
    /// tested.
    Contract,
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// Time.
    pub at: Time,
    /// What the checker found.
    pub problem: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.since(super::START).as_millis();
        write!(
            f,
            "{:?} violated at +{}.{:03}s: {}",
            self.invariant,
            seconds / 1000,
            seconds % 1000,
            self.problem
        )
    }
}

/// How long a plan may still count a member that is gone, because watches lag.
const GONE_POD_MEMORY_MS: u64 = 90_000;

/// The checker, with the history that the store does not keep.
#[derive(Debug)]
pub struct Checker {
    settings: EngineSettings,
    now: Time,
    violations: Vec<Violation>,
    /// Every pod so far: its last state, and when it was deleted.
    pods: BTreeMap<PodUid, (Arc<Pod>, Option<Time>)>,
    quorums: QuorumHistory,
    planned_usage: PlannedUsage,
    /// What the pods of each node may use: its allocatable resources, or what they used when those became
    /// fewer.
    limits: BTreeMap<NodeName, Resources>,
    recount: bool,
}

impl Checker {
    pub(super) fn new(settings: EngineSettings) -> Self {
        Self {
            settings,
            now: super::START,
            violations: Vec::new(),
            pods: BTreeMap::new(),
            quorums: QuorumHistory::default(),
            planned_usage: PlannedUsage::default(),
            limits: BTreeMap::new(),
            recount: false,
        }
    }

    pub(super) fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    pub(super) fn found(&mut self, invariant: Invariant, problem: String) {
        self.violations.push(Violation { invariant, at: self.now, problem });
    }

    /// Checks one write.
    pub(super) fn observe(&mut self, write: &WriteRecord, api: &ApiServer) {
        self.now = api.now;
        let engine = matches!(write.actor, Actor::Engine(_));
        if matches!(write.actor, Actor::User | Actor::Controller) {
            self.quorums.owners(api);
        }
        if engine
            && !matches!(write.key.kind, ObjectKind::Pod | ObjectKind::Gang)
            && !only_group_status(write)
        {
            self.found(Invariant::OwnGateOnly, format!("an engine wrote {}", write.key));
        }
        let before = write.before.as_ref();
        match write.key.kind {
            ObjectKind::Pod => {
                self.recount = true;
                let after = write.after.as_ref().and_then(|after| after.pod());
                if engine {
                    self.engine_wrote_pod(write, api);
                }
                if let Some(pod) = after {
                    self.quorums.pod(pod);
                    self.pods.insert(pod.uid.clone(), (pod.clone(), None));
                } else if let Some(pod) = before.and_then(|before| before.pod()) {
                    self.pods.insert(pod.uid.clone(), (pod.clone(), Some(self.now)));
                }
            }
            ObjectKind::Node => {
                self.recount = true;
                if let Some(node) = write.after.as_ref().and_then(|after| after.node()) {
                    self.planned_usage.node(node);
                }
            }
            ObjectKind::Group(_) => {
                if let Some(group) = write.after.as_ref().and_then(|after| after.group()) {
                    self.quorums.group(group);
                }
            }
            ObjectKind::Gang => {
                self.planned_usage.gang(&write.key, write.after.as_ref().and_then(|after| after.gang()));
                if let Some(gang) = write.after.as_ref().and_then(|after| after.gang()) {
                    let before = before.and_then(|before| before.gang());
                    let expired = eviction_check::expired(before, gang, &self.pods, &self.quorums);
                    for problem in expired {
                        self.found(Invariant::AllOrNone, problem);
                    }
                    self.gang_written(before, gang);
                }
            }
            ObjectKind::PriorityClass
            | ObjectKind::Namespace
            | ObjectKind::Lease
            | ObjectKind::Deployment
            | ObjectKind::ReplicaSet
            | ObjectKind::StatefulSet
            | ObjectKind::Job => {}
        }
    }

    fn engine_wrote_pod(&mut self, write: &WriteRecord, api: &ApiServer) {
        let Some(stored) = &write.before else {
            return self.found(Invariant::OwnGateOnly, format!("an engine created {}", write.key));
        };
        let Some(before) = stored.pod() else {
            return self.found(
                Invariant::OwnGateOnly,
                format!("an engine wrote {}, which cannot be read", write.key),
            );
        };
        let Some(membership) = &before.membership else {
            return self.found(
                Invariant::OwnGateOnly,
                format!("{} belongs to no gang, and an engine wrote it", write.key),
            );
        };
        let Some(after) = &write.after else {
            self.evicted(write, before, api);
            return;
        };
        let marked = after.object["metadata"].get("deletionTimestamp").is_some();
        if marked && stored.object["metadata"].get("deletionTimestamp").is_none() {
            self.evicted(write, before, api);
        }
        if touched(&stored.object, &after.object) {
            let (old, new) = (&stored.object, &after.object);
            self.found(
                Invariant::OwnGateOnly,
                format!("an engine changed fields of {} that it does not own: {old} -> {new}", write.key),
            );
        }
        let Some(after) = after.pod() else {
            return self.found(Invariant::Contract, format!("an engine made {} unreadable", write.key));
        };
        let others =
            |pod: &Pod| pod.gates.iter().filter(|g| &***g != names::GATE).cloned().collect::<Vec<_>>();
        if others(before) != others(after) {
            self.found(Invariant::OwnGateOnly, format!("an engine touched foreign gates of {}", write.key));
        }
        if before.gated() && !after.gated() {
            self.lifted(&membership.gang, after, api);
        }
    }

    /// Checks the deletion of a pod by an engine. Allowed are members of a torn gang with the policy to
    /// evict, and pods whose expiry is durable.
    fn evicted(&mut self, write: &WriteRecord, pod: &Pod, api: &ApiServer) {
        // Members with other roles belong to the same gang.
        let gang = |pod: &Pod| pod.membership.as_ref().map(|m| m.gang.clone());
        let mine = |other: &Pod| gang(other) == gang(pod) && !other.gated();
        let begun = self.pods.values().any(|(other, _)| mine(other));
        let record = pod.membership.as_ref().and_then(|m| gang_object(api, &m.gang));
        let expired = record.is_some_and(|record| record.status.expired.contains(&pod.uid));
        let may = self.settings.on_torn == OnTorn::Evict
            || pod.membership.as_ref().is_some_and(|membership| self.quorums.evicts(&membership.gang));
        if !expired && (!may || !begun) {
            self.found(Invariant::OwnGateOnly, format!("an engine deleted {}", write.key));
        }
    }

    /// Checks that the stored plan allows this removal of a gate.
    fn lifted(&mut self, gang: &GangId, pod: &Pod, api: &ApiServer) {
        let record = gang_object(api, gang);
        if record.is_some_and(|record| record.status.expired.contains(&pod.uid)) {
            self.found(
                Invariant::AllOrNone,
                format!("{} was lifted although its deletion is durable", pod.key),
            );
        }
        let plan = record.and_then(|record| record.status.plan.as_ref());
        let Some(planned) = plan.and_then(|plan| plan.members.iter().find(|m| m.uid == pod.uid)) else {
            return self.found(
                Invariant::AllOrNone,
                format!(
                    "{} was lifted, and no durable plan of gang {gang} names it (plan: {plan:?})",
                    pod.key
                ),
            );
        };
        if let Some(problem) = self.planned_usage.overbooked_by_plans(gang, &planned.node, &self.pods) {
            self.found(Invariant::NeverOverbook, format!("{} was lifted: {problem}", pod.key));
        }
        if pod.shape.share.is_some() {
            let cards = pod.gpus.clone().unwrap_or_default();
            let pinned = pod.pinned_to();
            if !pod.placed_by_gang_scheduler()
                && (pinned.as_ref() != Some(&planned.node) || cards != planned.gpus)
            {
                self.found(
                    Invariant::AllOrNone,
                    format!("{} was lifted to {pinned:?} {cards:?}, the plan has {planned:?}", pod.key),
                );
            }
        }
    }

    fn gang_written(&mut self, before: Option<&Arc<GangRecord>>, after: &Arc<GangRecord>) {
        let status = &after.status;
        let counted = !matches!(
            status.reason,
            Some(
                Reason::NoNodes
                    | Reason::PlanDropped
                    | Reason::Unreadable
                    | Reason::ForeignGate
                    | Reason::Queued
            )
        );
        let numbers = status.message.chars().any(|c| c.is_ascii_digit());
        let explained = status.reason.is_some() && !status.message.is_empty() && (numbers || !counted);
        if after.status != Default::default()
            && matches!(status.phase, Phase::Waiting | Phase::Gathering | Phase::Torn)
            && !explained
        {
            self.found(
                Invariant::Explained,
                format!(
                    "gang {} is {:?} for {:?}: {:?}",
                    after.gang, status.phase, status.reason, status.message
                ),
            );
        }
        let uids = |gang: &GangRecord| -> Option<BTreeSet<PodUid>> {
            Some(gang.status.plan.as_ref()?.members.iter().map(|m| m.uid.clone()).collect())
        };
        let Some(members) = uids(after) else { return };
        // A plan that has started may lose members that cannot run on their planned node any more.
        let begun = |known: &BTreeSet<PodUid>| {
            known.iter().any(|uid| self.pods.get(uid).is_some_and(|(pod, _)| !pod.gated()))
        };
        let known = before.and_then(|before| uids(before));
        if known.is_some_and(|known| known == members || (members.is_subset(&known) && begun(&known))) {
            return;
        }
        if placeholder_check::places_taken(before.map(|before| &**before), after) && begun(&members) {
            return;
        }
        let mut roles: BTreeMap<Option<Str>, u32> = BTreeMap::new();
        for place in after.status.plan.iter().flat_map(|plan| &plan.placeholders) {
            *roles.entry(place.role.clone()).or_default() += 1;
        }
        for (uid, (pod, gone)) in &self.pods {
            let recent = gone.is_none_or(|at| self.now.0.saturating_sub(at.0) <= GONE_POD_MEMORY_MS);
            let membership = pod.membership.as_ref().filter(|m| m.gang == after.gang);
            if let Some(membership) = membership
                && (members.contains(uid) || (recent && !pod.gated()))
            {
                *roles.entry(membership.role.clone()).or_default() += 1;
            }
        }
        // A replacement in an elastic gang starts alone.
        let here: u32 = roles.values().sum();
        let whole = before.map_or(0, |before| before.status.started_with).max(status.started_with);
        if self.quorums.followed(&after.gang) && here <= whole {
            return;
        }
        let quorums: Vec<&Quorum> = self.quorums.of(&after.gang).collect();
        if !quorums.iter().any(|quorum| met(quorum, None, &roles)) {
            let problem = format!(
                "the plan of gang {} has {} members, with those already active {roles:?}: {quorums:?} is not met",
                after.gang,
                members.len()
            );
            self.found(Invariant::AllOrNone, problem);
        }
    }

    /// Recounts cards and nodes after a write that affects them.
    pub(super) fn after_step(&mut self, api: &ApiServer) {
        self.now = api.now;
        if !std::mem::take(&mut self.recount) {
            return;
        }
        let nodes: BTreeMap<&NodeName, &Arc<Node>> = api.nodes().map(|node| (&node.name, node)).collect();
        let mut cards: BTreeMap<(&NodeName, u32), (VramMib, Vec<&Pod>)> = BTreeMap::new();
        let mut bound: BTreeMap<&NodeName, (Resources, u64)> = BTreeMap::new();
        let pins: Vec<(&Arc<Pod>, Option<NodeName>)> =
            api.pods().filter(|pod| !pod.finished()).map(|pod| (pod, pod.pinned_to())).collect();
        let mut problems = Vec::new();
        for (pod, pinned) in &pins {
            if let Some(node) = &pod.node {
                let (resources, pods) = bound.entry(node).or_default();
                resources.add(&pod.shape.requests);
                *pods += 1;
            }
            let Some(node) = pod.node.as_ref().or(pinned.as_ref()).and_then(|name| nodes.get(name)) else {
                continue;
            };
            let (Some(share), Some(each)) = (&pod.shape.share, node.gpus.vram_each) else { continue };
            if pod.gated() {
                continue;
            }
            let given = pod.gpus.as_deref().unwrap_or(&[]);
            for card in given {
                if *card >= node.gpus.cards {
                    problems.push(format!(
                        "{} was assigned card {card} of {}, which has {}",
                        pod.key, node.name, node.gpus.cards
                    ));
                }
                let (used, by) = cards.entry((&node.name, *card)).or_default();
                *used = used.saturating_add(share.on_card(each));
                by.push(pod);
            }
        }
        for ((node, card), (used, by)) in &cards {
            let each = nodes.get(node).and_then(|node| node.gpus.vram_each).unwrap_or_default();
            if *used > each {
                let by: Vec<String> = by.iter().map(|pod| pod.key.to_string()).collect();
                problems.push(format!(
                    "card {card} of {node}: {used} of {each} are allocated, to {}",
                    by.join(", ")
                ));
            }
        }
        self.limits.retain(|name, _| nodes.contains_key(name));
        for (name, node) in &nodes {
            let nothing = (Resources::default(), 0);
            let (used, _) = bound.get(name).unwrap_or(&nothing);
            let before = self.limits.get(name).unwrap_or(&node.allocatable);
            let limit = usage_limit(&node.allocatable, before, used);
            self.limits.insert((*name).clone(), limit);
        }
        for (name, (used, pods)) in &bound {
            let Some(node) = nodes.get(name) else { continue };
            let has = &self.limits[*name];
            let over = used.cpu > has.cpu
                || used.memory > has.memory
                || used.ephemeral_storage > has.ephemeral_storage
                || *pods > node.max_pods
                || used.extended.iter().any(|(resource, amount)| *amount > has.extended(resource));
            if over {
                problems.push(format!("node {name}: {pods} pods use {used:?} of {has:?}"));
            }
            let shares = cards.keys().any(|(node, _)| node == name);
            if shares
                && self.settings.sharing == SharingMode::Labelled
                && used.extended(names::NVIDIA_GPU) > 0
            {
                problems.push(format!("node {name}: whole GPUs and shares of GPUs side by side"));
            }
        }
        for problem in problems {
            self.found(Invariant::NeverOverbook, problem);
        }
    }

    /// Checks a response to a request of an engine.
    pub(super) fn answered(&mut self, effect: &Effect, response: &ApiResponse) {
        let problem = match response {
            ApiResponse::Status { code: 422, message } => message,
            // A patch whose `test` found another version. Any other patch that cannot be applied is wrong.
            ApiResponse::Stale { message }
                if matches!(effect.action, Action::Lift { .. } | Action::TryLift { .. })
                    && !message.contains("value did not match") =>
            {
                message
            }
            _ => return,
        };
        self.found(Invariant::Contract, format!("{:?} was rejected: {problem}", effect.action));
    }
}

/// What pods may use of a node: what it has, or what they used already before it had less.
fn usage_limit(has: &Resources, before: &Resources, used: &Resources) -> Resources {
    let limit = |has: u64, before: u64, used: u64| has.max(before.min(used));
    let names = has.extended.keys().chain(before.extended.keys());
    let extended = names.map(|name| {
        let amount = limit(has.extended(name), before.extended(name), used.extended(name));
        (name.clone(), amount)
    });
    Resources {
        cpu: MilliCpu(limit(has.cpu.0, before.cpu.0, used.cpu.0)),
        memory: Bytes(limit(has.memory.0, before.memory.0, used.memory.0)),
        ephemeral_storage: Bytes(limit(
            has.ephemeral_storage.0,
            before.ephemeral_storage.0,
            used.ephemeral_storage.0,
        )),
        extended: extended.collect(),
    }
}

/// Whether the write changes only the status of a group object.
fn only_group_status(write: &WriteRecord) -> bool {
    let (Some(before), Some(after)) = (&write.before, &write.after) else { return false };
    let rest = |object: &Value| {
        let mut rest = object.clone();
        rest["status"] = Value::Null;
        rest["metadata"]["managedFields"] = Value::Null;
        rest["metadata"]["resourceVersion"] = Value::Null;
        rest
    };
    matches!(write.key.kind, ObjectKind::Group(_)) && rest(&before.object) == rest(&after.object)
}

fn gang_object<'a>(api: &'a ApiServer, gang: &GangId) -> Option<&'a Arc<GangRecord>> {
    api.get(&ObjectKey::new(ObjectKind::Gang, &gang.namespace, gang.object_name()))?.gang()
}

/// Whether these numbers of members by role satisfy the quorum.
pub(super) fn met(quorum: &Quorum, name: Option<&str>, roles: &BTreeMap<Option<Str>, u32>) -> bool {
    match quorum {
        Quorum::Count(least) => {
            let of_role = |role: &Option<Str>| {
                name.is_none_or(|name| role.as_deref().unwrap_or(names::KAI_DEFAULT_SUBGROUP) == name)
            };
            roles.iter().filter(|(role, _)| of_role(role)).map(|(_, count)| count).sum::<u32>() >= *least
        }
        Quorum::Groups { min, children } => {
            let enough = children.iter().filter(|(name, child)| met(child, Some(name), roles)).count();
            u32::try_from(enough).unwrap_or(u32::MAX) >= *min
        }
        Quorum::Total { min_members: least, quorum } => {
            roles.values().sum::<u32>() >= *least && met(quorum, None, roles)
        }
    }
}

/// Whether anything changed that an engine must not change.
fn touched(before: &Value, after: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        let parts = [
            ("/metadata", "resourceVersion"),
            ("/metadata", "deletionTimestamp"),
            ("/metadata/annotations", names::GPUS_ANNOTATION),
            ("/metadata/annotations", names::FENCE_ANNOTATION),
            ("/spec", "schedulingGates"),
            ("/spec", "affinity"),
            ("/status", "nominatedNodeName"),
        ];
        for (place, field) in parts {
            if let Some(place) = object.pointer_mut(place).and_then(Value::as_object_mut) {
                place.remove(field);
            }
        }
        let metadata = object.pointer_mut("/metadata").and_then(Value::as_object_mut);
        if let Some(metadata) = metadata
            && metadata.get("annotations").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty)
        {
            metadata.remove("annotations");
        }
        object
    };
    strip(before) != strip(after)
}
