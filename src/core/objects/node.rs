//! Nodes as the snapshot uses them, and their physical GPUs, read from labels (design section 5).

use std::collections::BTreeMap;

use super::affinity::Taint;
use super::resource_list::read_resources;
use super::view::NodeView;
use super::{ReadError, names};
use crate::model::{NodeName, Quantity, Resources, Str, VramMib, str};

/// The fields of a node that the engine uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// Name.
    pub name: NodeName,
    /// Labels.
    pub labels: BTreeMap<Str, Str>,
    /// Taints, in the node's order.
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// What pods may use.
    pub allocatable: Resources,
    /// Maximum number of pods.
    pub max_pods: u64,
    /// Cards.
    pub gpus: GpuInventory,
}

/// Physical cards of a node. Time-slicing multiplies `nvidia.com/gpu`, never cards or memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuInventory {
    /// Physical cards.
    pub cards: u32,
    /// Memory of each card; `None` without a readable `nvidia.com/gpu.memory` label: then there is no VRAM
    /// capacity.
    pub vram_each: Option<VramMib>,
    /// Cut into MIG slices: no VRAM shares here.
    pub mig: bool,
    /// Whether cards are shared by VRAM here.
    pub sharing: GpuSharing,
}

/// Label and taint `portcullis.dev/gpu-sharing=vram`: both make a shared node, one alone is a mistake that we
/// name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuSharing {
    /// Neither label nor taint.
    #[default]
    No,
    /// Label and taint: VRAM shares go here, whole GPUs stay away.
    Vram,
    /// The label without the taint. The taint does not repel whole-GPU pods, so no card is shared.
    LabelOnly,
    /// The taint without the label.
    TaintOnly,
}

/// Upper bound of cards per node. A larger number in the label is a mistake.
const MAX_CARDS: u64 = 128;

impl Node {
    /// Reads a node from its JSON.
    ///
    /// # Errors
    /// When it is no JSON, has no name, or a field we need has the wrong type or an unreadable quantity.
    pub fn read(json: &str) -> Result<Self, ReadError> {
        let fail = |name: &str, problem: String| ReadError { kind: "Node", name: name.to_owned(), problem };
        let view: NodeView<'_> = serde_json::from_str(json).map_err(|e| fail("?", e.to_string()))?;
        Self::from_view(&view).map_err(|problem| fail(&view.metadata.name, problem))
    }

    /// Reads a node from its view.
    ///
    /// # Errors
    /// A sentence naming the field.
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
