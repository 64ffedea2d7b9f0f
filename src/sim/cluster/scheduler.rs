//! A small kube-scheduler: one pod at a time, by priority and age, with the default plugins only. It does not
//! know GPU memory, gangs, or Portcullis.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::scheduler_pods::{PodOnNode, is_affinity_skipped, refusal_by_pods};
use super::{Cluster, SimEvent};
use crate::api::{Actor, ObjectKey, ObjectKind};
use portcullis_core::model::random::Random;
use portcullis_core::model::{NodeName, PodUid, Resources};
use portcullis_core::objects::{Node, names};
use portcullis_core::pod::Pod;

/// The state of the scheduler between two pods.
pub(super) struct Scheduler {
    ties: Option<Random>,
    /// Resource version of the last restart. Nominations of gated pods before it are forgotten.
    forgotten: u64,
    /// Nodes that a plugin of the scheduler refuses for a reason that Portcullis does not know.
    refused_nodes: BTreeSet<NodeName>,
}

impl Scheduler {
    /// The nodes that a plugin refuses.
    pub(super) fn refused_nodes(&self) -> &BTreeSet<NodeName> {
        &self.refused_nodes
    }

    pub(super) fn new(ties: Option<Random>) -> Self {
        Self { ties, forgotten: 0, refused_nodes: BTreeSet::new() }
    }
}

/// The load of one node.
#[derive(Default)]
struct NodeLoad {
    resources: Resources,
    pods: u64,
    ports: Vec<Arc<Pod>>,
}

impl NodeLoad {
    fn add(&mut self, pod: &Arc<Pod>) {
        self.resources.add(&pod.shape.requests);
        self.pods += 1;
        if !pod.shape.host_ports.is_empty() {
            self.ports.push(pod.clone());
        }
    }
}

impl Cluster {
    pub(super) fn wake_scheduler(&mut self) {
        if !self.scheduling {
            self.scheduling = true;
            self.push(self.options.timing.schedule, SimEvent::Schedule);
        }
    }

    /// Restarts the scheduler. It forgets nominations of pods that are still gated.
    pub fn restart_scheduler(&mut self) {
        self.scheduler.forgotten = self.api.version();
        self.wake_scheduler();
    }

    /// Makes a plugin of the scheduler refuse a node, or accept it again.
    pub(super) fn refuse_node(&mut self, node: &str, refused: bool) {
        let node = NodeName::from(node);
        if refused {
            self.scheduler.refused_nodes.insert(node);
        } else {
            self.scheduler.refused_nodes.remove(&node);
        }
        self.wake_scheduler();
    }

    /// Binds the first pod that fits and schedules the next cycle. Sets the condition of the pods that do not
    /// fit.
    pub(super) fn schedule(&mut self) {
        self.scheduling = false;
        let mut waiting: Vec<Arc<Pod>> = self
            .api
            .pods()
            .filter(|pod| {
                pod.node.is_none()
                    && pod.gates.is_empty()
                    && !pod.terminating
                    && !pod.finished()
                    && &*pod.scheduler == names::DEFAULT_SCHEDULER
            })
            .cloned()
            .collect();
        if waiting.is_empty() {
            return;
        }
        waiting.sort_by(|a, b| {
            (-i64::from(a.priority), a.created, &a.uid).cmp(&(-i64::from(b.priority), b.created, &b.uid))
        });
        for pod in waiting {
            let key = ObjectKey::new(ObjectKind::Pod, &pod.key.namespace, &pod.key.name);
            match self.place(&pod) {
                Ok(node) => {
                    let bound = self.api.bind(&key, pod.uid.as_str(), node.as_str());
                    bound.expect("the pod was read from the store in this very step");
                    self.wake_scheduler();
                    return;
                }
                Err(message) => {
                    let condition = json!({
                        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message
                    });
                    self.api.set_condition(&Actor::Scheduler, &key, pod.uid.as_str(), &condition);
                }
            }
        }
    }

    fn place(&mut self, pod: &Arc<Pod>) -> Result<NodeName, String> {
        let mut used: BTreeMap<NodeName, NodeLoad> = BTreeMap::new();
        let (mut bound, mut nominated) = (Vec::new(), Vec::new());
        let all_nodes: Vec<Arc<Node>> = self.api.nodes().cloned().collect();
        for other in self.api.pods().filter(|other| other.uid != pod.uid && !other.finished()) {
            let on = match &other.node {
                Some(node) => Some(node),
                None => self.nominated(other).filter(|_| other.priority >= pod.priority),
            };
            if let Some(node) = on {
                used.entry(node.clone()).or_default().add(other);
                if let Some(node) = all_nodes.iter().find(|known| known.name == *node) {
                    let list = if other.node.is_some() { &mut bound } else { &mut nominated };
                    list.push(PodOnNode { pod: other, node });
                }
            }
        }
        let nothing = NodeLoad::default();
        let namespaces = self.api.namespaces().map(|known| (known.name.clone(), known.clone())).collect();
        let skips_affinity = is_affinity_skipped(pod, &bound, &namespaces);
        let mut refusals: BTreeMap<String, u32> = BTreeMap::new();
        let mut fitting: Vec<Arc<Node>> = Vec::new();
        let mut nodes = 0;
        for node in self.api.nodes() {
            nodes += 1;
            // The node has to be feasible with the pods that are nominated to it, and without them.
            let by_pods = || {
                let here = nominated.iter().filter(|other: &&PodOnNode<'_>| other.node.name == node.name);
                let with: Vec<PodOnNode<'_>> = bound.iter().chain(here).copied().collect();
                let by = |others: &[PodOnNode<'_>]| {
                    refusal_by_pods(node, pod, &all_nodes, &namespaces, others, skips_affinity)
                        .map(str::to_owned)
                };
                by(&with).or_else(|| by(&bound))
            };
            let by_plugin = || {
                let refused = self.scheduler.refused_nodes.contains(&node.name);
                refused.then(|| "node(s) were refused by the plugin Example".to_owned())
            };
            let used = used.get(&node.name).unwrap_or(&nothing);
            match refusal(node, pod, used).or_else(by_pods).or_else(by_plugin) {
                None => fitting.push(node.clone()),
                Some(reason) => *refusals.entry(reason).or_default() += 1,
            }
        }
        let preferred = pod.nominated.as_ref().and_then(|name| fitting.iter().find(|n| n.name == *name));
        if let Some(node) = preferred {
            return Ok(node.name.clone());
        }
        let wishes = self.wishes(pod);
        let best = fitting.iter().map(|node| score(node, &wishes)).max();
        let best: Vec<&Arc<Node>> = fitting.iter().filter(|n| Some(score(n, &wishes)) == best).collect();
        let chosen = match self.scheduler.ties.as_mut() {
            Some(random) => random.pick(&best).copied(),
            None => best.first().copied(),
        };
        chosen.map(|node| node.name.clone()).ok_or_else(|| {
            let reasons: Vec<String> = refusals.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
            format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
        })
    }

    /// The node that the scheduler has as nominated for a pod, gated or not.
    fn nominated<'a>(&self, pod: &'a Pod) -> Option<&'a NodeName> {
        let known = pod.gates.is_empty() || pod.resource_version.0 > self.scheduler.forgotten;
        pod.nominated.as_ref().filter(|_| known)
    }

    fn wishes(&self, pod: &Pod) -> Vec<Value> {
        if !pod.affinity.preferred {
            return Vec::new();
        }
        let key = ObjectKey::new(ObjectKind::Pod, &pod.key.namespace, &pod.key.name);
        let path = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
        let list =
            self.api.get(&key).and_then(|stored| stored.object.pointer(path)).and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    }

    /// Pods that only have a nomination.
    pub fn nominations(&self) -> BTreeSet<(NodeName, PodUid)> {
        let pods = self.api.pods().filter(|pod| pod.node.is_none());
        pods.filter_map(|pod| Some((self.nominated(pod)?.clone(), pod.uid.clone()))).collect()
    }
}

/// Why a pod does not fit on a node, in kube-scheduler's words.
fn refusal(node: &Node, pod: &Pod, used: &NodeLoad) -> Option<String> {
    if !node.ready {
        return Some("node(s) were not ready".to_owned());
    }
    let tolerated = |taint| pod.shape.tolerations.iter().any(|toleration| toleration.tolerates(taint));
    if node.unschedulable {
        return Some("node(s) were unschedulable".to_owned());
    }
    if let Some(taint) = node.taints.iter().find(|taint| taint.forbids() && !tolerated(taint)) {
        return Some(format!("node(s) had untolerated taint {taint}"));
    }
    if !pod.shape.node_affinity.matches(&node.name, &node.labels) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    let wanted = &pod.shape.host_ports;
    let clash = |(address, protocol, port): &portcullis_core::shape::HostPort| {
        used.ports.iter().flat_map(|other| &other.shape.host_ports).any(
            |(other, other_protocol, other_port)| {
                protocol == other_protocol
                    && port == other_port
                    && (address == other || address.is_empty() || other.is_empty())
            },
        )
    };
    if wanted.iter().any(clash) {
        return Some("node(s) didn't have free ports for the requested pod ports".to_owned());
    }
    if used.pods + 1 > node.max_pods {
        return Some("Too many pods".to_owned());
    }
    let (asks, has, taken) = (&pod.shape.requests, &node.allocatable, &used.resources);
    let short = |asks: u64, has: u64, taken: u64| asks > 0 && asks > has.saturating_sub(taken);
    for (name, asks, has, taken) in [
        ("cpu", asks.cpu.0, has.cpu.0, taken.cpu.0),
        ("memory", asks.memory.0, has.memory.0, taken.memory.0),
        ("ephemeral-storage", asks.ephemeral_storage.0, has.ephemeral_storage.0, taken.ephemeral_storage.0),
    ] {
        if short(asks, has, taken) {
            return Some(format!("Insufficient {name}"));
        }
    }
    asks.extended
        .iter()
        .find(|(name, asks)| short(**asks, has.extended(name), taken.extended(name)))
        .map(|(name, _)| format!("Insufficient {name}"))
}

/// The sum of the weights of the preferred terms that a node matches. Only the terms that the engine writes
/// are supported: by name, or by the value of a label.
fn score(node: &Node, wishes: &[Value]) -> i64 {
    let listed = |requirement: &Value, value: Option<&str>| {
        let values = requirement["values"].as_array().map_or(&[][..], Vec::as_slice);
        value.is_some() && values.iter().any(|wanted| wanted.as_str() == value)
    };
    let part = |wish: &Value, part: &str| wish["preference"][part].as_array().cloned().unwrap_or_default();
    let met = |wish: &&Value| {
        let fields = part(wish, "matchFields");
        let labels = part(wish, "matchExpressions");
        fields.iter().all(|requirement| listed(requirement, Some(node.name.as_str())))
            && labels.iter().all(|requirement| {
                let label = requirement["key"].as_str().and_then(|key| node.labels.get(key));
                listed(requirement, label.map(|value| &**value))
            })
    };
    wishes.iter().filter(met).filter_map(|wish| wish["weight"].as_i64()).sum()
}
