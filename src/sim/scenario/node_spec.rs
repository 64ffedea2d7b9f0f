//! The short form of nodes in scenario files.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use portcullis_core::objects::names;

/// A node in short form: `{name: gpu-1, cards: 1, vramMib: 32768, timeSliced: 4, shared: true}`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Name.
    pub name: String,
    /// Number of physical cards. Default 0.
    pub cards: u32,
    /// Memory of each card in MiB: label `nvidia.com/gpu.memory`, left out when 0.
    pub vram_mib: u64,
    /// Factor by which time-slicing multiplies `nvidia.com/gpu`. Default none.
    pub time_sliced: Option<u32>,
    /// Sets label and taint of a node that shares its cards.
    pub shared: bool,
    /// Allocatable cpu. Default `32`.
    pub cpu: Option<String>,
    /// Allocatable memory. Default `128Gi`.
    pub memory: Option<String>,
    /// Maximum number of pods. Default 110.
    pub pods: Option<u32>,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
    /// Further taints, as `key=value:Effect`.
    pub taints: Vec<String>,
    /// Further allocatable resources.
    pub extended: BTreeMap<String, String>,
}

impl NodeSpec {
    /// The node as a Kubernetes object.
    ///
    /// # Errors
    /// A sentence when the name is missing or a taint cannot be read.
    pub fn object(&self) -> Result<Value, String> {
        if self.name.is_empty() {
            return Err(
                "a node has no name: write nodes: [{name: gpu-1, cards: 1, vramMib: 32768}]".to_owned()
            );
        }
        let mut labels = self.labels.clone();
        labels.insert(names::HOSTNAME_LABEL.to_owned(), self.name.clone());
        let mut taints = self.taints.iter().map(|text| taint(text)).collect::<Result<Vec<_>, _>>()?;
        let mut allocatable: BTreeMap<&str, String> =
            self.extended.iter().map(|(name, amount)| (name.as_str(), amount.clone())).collect();
        allocatable.insert("cpu", self.cpu.clone().unwrap_or_else(|| "32".to_owned()));
        allocatable.insert("memory", self.memory.clone().unwrap_or_else(|| "128Gi".to_owned()));
        allocatable.insert("pods", self.pods.unwrap_or(110).to_string());
        if self.cards > 0 {
            let devices = self.cards * self.time_sliced.unwrap_or(1);
            allocatable.insert(names::NVIDIA_GPU, devices.to_string());
            labels.insert(names::NVIDIA_GPU_COUNT.to_owned(), self.cards.to_string());
        }
        if self.vram_mib > 0 {
            labels.insert(names::NVIDIA_GPU_MEMORY.to_owned(), self.vram_mib.to_string());
        }
        if let Some(replicas) = self.time_sliced {
            labels.insert(names::NVIDIA_GPU_REPLICAS.to_owned(), replicas.to_string());
        }
        if self.shared {
            labels.insert(names::SHARING.to_owned(), names::SHARING_VRAM.to_owned());
            taints.push(json!({"key": names::SHARING, "value": names::SHARING_VRAM, "effect": "NoSchedule"}));
        }
        Ok(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": taints},
            "status": {
                "allocatable": allocatable, "capacity": allocatable,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }))
    }
}

/// Reads `key=value:Effect`.
pub(super) fn taint(text: &str) -> Result<Value, String> {
    let problem = || format!("{text:?} is not a taint: write key=value:NoSchedule");
    let (key_value, effect) = text.rsplit_once(':').ok_or_else(problem)?;
    if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        return Err(problem());
    }
    let (key, value) = key_value.split_once('=').unwrap_or((key_value, ""));
    Ok(json!({"key": key, "value": value, "effect": effect}))
}
