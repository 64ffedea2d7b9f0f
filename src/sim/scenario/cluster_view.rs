//! The state of a simulated cluster: pods and their nodes, use of the cards, status of gangs and groups.

use serde_json::Value;

use crate::api::{ApiServer, ObjectKey, ObjectKind, StoredObject};
use portcullis_core::dialect;
use portcullis_core::engine::GangStatus;
use portcullis_core::model::{PodKey, VramMib};
use portcullis_core::pod::PodPhase;

/// The state of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLine {
    /// Namespace and name.
    pub key: PodKey,
    /// STATUS of `kubectl get pods`: `SchedulingGated`, `Pending`, `Running`, `Terminating`, `Completed`,
    /// `Error`.
    pub status: &'static str,
    /// Whether the pod has the gate of Portcullis.
    pub gated: bool,
    /// The node it is bound to.
    pub node: Option<String>,
    /// The cards that the engine assigned.
    pub cards: Vec<u32>,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Annotations.
    pub annotations: Vec<(String, String)>,
}

/// The state of a gang, from its `Gang` object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangLine {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Status.
    pub status: GangStatus,
}

/// The status of a group object.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupLine {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Status in the words of its stack; null while it is empty.
    pub status: Value,
}

/// A node and the use of its cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUsage {
    /// Name.
    pub name: String,
    /// Whether the node is ready and not cordoned.
    pub schedulable: bool,
    /// Cards by index.
    pub cards: Vec<CardUsage>,
}

/// One card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardUsage {
    /// Memory of the card.
    pub vram: VramMib,
    /// Pods and their share of the memory, including lifted pods that are not bound yet.
    pub pods: Vec<(PodKey, VramMib)>,
}

impl CardUsage {
    /// Allocated memory.
    pub fn used(&self) -> VramMib {
        self.pods.iter().fold(VramMib::ZERO, |sum, (_, used)| sum.saturating_add(*used))
    }
}

/// All pods that can be read, by namespace and name.
pub(super) fn pods(api: &ApiServer) -> Vec<PodLine> {
    let readable = api.list(ObjectKind::Pod).filter_map(|(_, stored)| Some((stored, stored.pod()?)));
    readable
        .map(|(stored, pod)| {
            let map = |field: &str| -> Vec<(String, String)> {
                let map = stored.object["metadata"][field].as_object();
                let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
                map.into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
            };
            PodLine {
                key: pod.key.clone(),
                status: match pod.phase {
                    _ if pod.terminating => "Terminating",
                    PodPhase::Pending if !pod.gates.is_empty() => "SchedulingGated",
                    PodPhase::Pending => "Pending",
                    PodPhase::Running => "Running",
                    PodPhase::Succeeded => "Completed",
                    PodPhase::Failed => "Error",
                },
                gated: pod.gated(),
                node: pod.node.as_ref().map(ToString::to_string),
                cards: pod.gpus.clone().unwrap_or_default(),
                labels: map("labels"),
                annotations: map("annotations"),
            }
        })
        .collect()
}

/// All `Gang` objects that can be read.
pub(super) fn gangs(api: &ApiServer) -> Vec<GangLine> {
    let readable = api.list(ObjectKind::Gang).filter_map(|(_, stored)| stored.gang());
    readable
        .map(|record| GangLine {
            namespace: record.gang.namespace.to_string(),
            name: record.gang.name.to_string(),
            status: record.status.clone(),
        })
        .collect()
}

/// All group objects.
pub(super) fn groups(api: &ApiServer) -> Vec<GroupLine> {
    let line = |(key, stored): (&ObjectKey, &StoredObject)| GroupLine {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        status: stored.object["status"].clone(),
    };
    dialect::group_kinds().flat_map(|kind| api.list(ObjectKind::Group(kind))).map(line).collect()
}

/// All nodes that can be read, with their cards.
pub(super) fn nodes(api: &ApiServer) -> Vec<NodeUsage> {
    let one = |node: &std::sync::Arc<portcullis_core::objects::Node>| {
        let each = node.gpus.vram_each.unwrap_or_default();
        let count = usize::try_from(node.gpus.cards).unwrap_or(0);
        let mut cards = vec![CardUsage { vram: each, pods: Vec::new() }; count];
        for pod in api.pods().filter(|pod| !pod.finished() && !pod.gated()) {
            let place = pod.node.clone().or_else(|| pod.pinned_to());
            let (Some(share), Some(given)) = (&pod.shape.share, &pod.gpus) else { continue };
            if place.as_ref() != Some(&node.name) {
                continue;
            }
            for card in given {
                if let Some(card) = usize::try_from(*card).ok().and_then(|index| cards.get_mut(index)) {
                    card.pods.push((pod.key.clone(), share.on_card(each)));
                }
            }
        }
        NodeUsage { name: node.name.to_string(), schedulable: node.ready && !node.unschedulable, cards }
    };
    api.nodes().map(one).collect()
}
