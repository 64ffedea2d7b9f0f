//! Nodes, and their physical GPUs as labels describe them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::affinity::Taint;
use super::resource_list::read_resources;
use super::view::NodeView;
use super::{ReadError, names};
use crate::model::{NodeName, Quantity, Resources, Str, VramMib, str};

/// The fields of a node that the engine uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Node {
    /// Name of the node.
    pub name: NodeName,
    /// Labels.
    pub labels: BTreeMap<Str, Str>,
    /// Taints, in the node's order.
    pub taints: Vec<Taint>,
    /// Whether the node is cordoned.
    pub unschedulable: bool,
    /// Whether the condition `Ready` is `True`.
    pub ready: bool,
    /// Amount of each resource that pods may use.
    pub allocatable: Resources,
    /// Maximum number of pods.
    pub max_pods: u64,
    /// GPUs of the node.
    pub gpus: GpuInventory,
}

/// Physical cards of a node. Time-slicing multiplies the resource `nvidia.com/gpu`, but not cards or memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GpuInventory {
    /// Number of physical cards.
    pub cards: u32,
    /// Memory of each card. `None` without a valid label `nvidia.com/gpu.memory`: the node then has no VRAM
    /// capacity.
    pub vram_each: Option<VramMib>,
    /// Whether MIG partitions the cards. Such a node runs no VRAM shares.
    pub mig: bool,
    /// Whether pods share the cards by VRAM.
    pub sharing: GpuSharing,
}

/// Whether a node has the label and the taint `portcullis.dev/gpu-sharing=vram`.
///
/// A shared node has both. One of them alone is a mistake, which messages report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GpuSharing {
    /// Neither label nor taint.
    #[default]
    No,
    /// Label and taint: the node runs pods with VRAM shares and no pods with whole GPUs.
    Vram,
    /// The label without the taint. The taint does not repel whole-GPU pods, so no card is shared.
    LabelOnly,
    /// The taint without the label.
    TaintOnly,
}

/// Upper bound of cards per node. A larger number in the label counts as this number.
const MAX_CARDS: u64 = 128;

impl Node {
    /// Reads a node from its JSON.
    ///
    /// # Errors
    /// When the text is not JSON, the name is missing, or a field has the wrong type or an invalid quantity.
    pub fn read(json: &str) -> Result<Self, ReadError> {
        let fail = |name: &str, problem: String| ReadError { kind: "Node", name: name.to_owned(), problem };
        let view: NodeView<'_> = serde_json::from_str(json).map_err(|e| fail("?", e.to_string()))?;
        Self::from_view(&view).map_err(|problem| fail(&view.metadata.name, problem))
    }

    /// Reads a node from its view.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub fn from_view(view: &NodeView<'_>) -> Result<Self, String> {
        if view.metadata.name.is_empty() {
            return Err("metadata.name is missing".to_owned());
        }
        let labels: BTreeMap<Str, Str> =
            view.metadata.labels.iter().map(|(k, v)| (str(k), str(v.as_str()))).collect();
        let taints: Vec<Taint> = view.spec.taints.iter().filter_map(Taint::read).collect();
        let allocatable = read_resources(&view.status.allocatable, "status.allocatable")?;
        let max_pods = match view.status.allocatable.get("pods") {
            Some(quantity) => {
                Quantity::parse(&quantity.0).map_err(|e| format!("status.allocatable pods: {e}"))?.units()
            }
            None => 0,
        };
        let ready = view
            .status
            .conditions
            .iter()
            .any(|c| c.r#type.as_str() == "Ready" && c.status.as_str() == "True");
        let gpus = GpuInventory::read(&labels, &taints, &allocatable);
        Ok(Self {
            name: NodeName(str(view.metadata.name.as_str())),
            labels,
            taints,
            unschedulable: view.spec.unschedulable,
            ready,
            allocatable,
            max_pods,
            gpus,
        })
    }
}

impl GpuInventory {
    fn read(labels: &BTreeMap<Str, Str>, taints: &[Taint], allocatable: &Resources) -> Self {
        let number = |key: &str| labels.get(key).and_then(|v| v.trim().parse::<u64>().ok());
        let replicas = number(names::NVIDIA_GPU_REPLICAS).unwrap_or(1).max(1);
        let cards = number(names::NVIDIA_GPU_COUNT)
            .unwrap_or_else(|| allocatable.extended(names::NVIDIA_GPU) / replicas)
            .min(MAX_CARDS);
        let mig = labels.get(names::NVIDIA_MIG_STRATEGY).is_some_and(|s| matches!(&**s, "single" | "mixed"))
            && allocatable.extended.keys().any(|k| k.starts_with(names::NVIDIA_MIG_PREFIX))
            || labels.get(names::NVIDIA_GPU_PRODUCT).is_some_and(|p| p.contains("-MIG-"));
        let labelled = labels.get(names::SHARING).is_some_and(|v| &**v == names::SHARING_VRAM);
        let tainted = taints
            .iter()
            .any(|t| &*t.key == names::SHARING && &*t.value == names::SHARING_VRAM && t.forbids());
        Self {
            cards: u32::try_from(cards).unwrap_or(0),
            vram_each: number(names::NVIDIA_GPU_MEMORY).filter(|mib| *mib > 0).map(VramMib),
            mig,
            sharing: match (labelled, tainted) {
                (true, true) => GpuSharing::Vram,
                (true, false) => GpuSharing::LabelOnly,
                (false, true) => GpuSharing::TaintOnly,
                (false, false) => GpuSharing::No,
            },
        }
    }
}
