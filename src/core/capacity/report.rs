//! The types of the report and their JSON form: camel case, without numbers that are 0 and without empty
//! maps.
//!
//! Unknown fields are ignored, so that replicas of two releases understand each other.
//!
//! ```json
//! { "at": 1763800000,
//!   "models": { "NVIDIA-A100-SXM4-80GB": {
//!     "nodes": 2, "cards": 16, "vramMiB": 1310720, "largestCardMiB": 81920, "largestNodeCards": 8,
//!     "freeCards": 3, "freeVramMiB": 40960, "largestFreeMiB": 30720 } },
//!   "namespaces": { "ml": { "running": { "pods": 8, "gpus": 8, "gangs": 1 },
//!                           "waiting": { "pods": 4, "vramMiB": 32000, "gangs": 1 } } },
//!   "queues": { "team-a": { "running": { "pods": 8, "gpus": 8, "gangs": 1 } } },
//!   "gangs": { "ml/pytorch-training": { "pods": 8, "gpus": 8, "gangs": 1 } } }
//! ```

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

fn nothing<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The capacity report of the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityReport {
    /// When the leader wrote the report, in Unix seconds. A report that is too old counts as unknown. Absent
    /// in reports written by hand and by releases that did not record the time.
    #[serde(skip_serializing_if = "nothing")]
    pub at: Option<i64>,
    /// By GPU model, from the node label `nvidia.com/gpu.product`. Nodes with GPUs but without the label
    /// count as `unknown`.
    #[serde(skip_serializing_if = "nothing")]
    pub models: BTreeMap<String, GpuModelCapacity>,
    /// By namespace: pods that request GPUs, in gangs or not. A namespace without such pods may be absent.
    #[serde(skip_serializing_if = "nothing")]
    pub namespaces: BTreeMap<String, GpuDemand>,
    /// By queue: pods of gangs whose group object names the queue.
    #[serde(skip_serializing_if = "nothing")]
    pub queues: BTreeMap<String, GpuDemand>,
    /// By `NAMESPACE/NAME` of the `Gang` object: what its members request, running or waiting. All numbers of
    /// a report are of one moment, so one can be subtracted from another.
    #[serde(skip_serializing_if = "nothing")]
    pub gangs: BTreeMap<String, GpuUsage>,
}

/// The GPUs of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuModelCapacity {
    /// Nodes with such GPUs, ready or not.
    #[serde(skip_serializing_if = "nothing")]
    pub nodes: u64,
    /// Whole GPUs of any vendor, as pods request them: physical cards, or more if time-slicing splits each
    /// card.
    #[serde(skip_serializing_if = "nothing")]
    pub cards: u64,
    /// MiB of all physical cards; 0 if the nodes do not report it.
    #[serde(rename = "vramMiB", skip_serializing_if = "nothing")]
    pub vram_mib: u64,
    /// MiB of the largest card.
    #[serde(rename = "largestCardMiB", skip_serializing_if = "nothing")]
    pub largest_card_mib: u64,
    /// The largest number of `cards` on one node.
    #[serde(skip_serializing_if = "nothing")]
    pub largest_node_cards: u64,
    /// Free `cards` that a pod can get, on nodes that do not share their cards by VRAM.
    #[serde(skip_serializing_if = "nothing")]
    pub free_cards: u64,
    /// Free MiB on nodes that share their cards.
    #[serde(rename = "freeVramMiB", skip_serializing_if = "nothing")]
    pub free_vram_mib: u64,
    /// Free MiB of the shared card with the most free memory.
    #[serde(rename = "largestFreeMiB", skip_serializing_if = "nothing")]
    pub largest_free_mib: u64,
}

/// What a group of pods requests, split into running and waiting pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuDemand {
    /// Pods that are bound to a node or lifted: their request is used or reserved.
    #[serde(skip_serializing_if = "nothing")]
    pub running: GpuUsage,
    /// Pods that are gated or wait for the scheduler.
    #[serde(skip_serializing_if = "nothing")]
    pub waiting: GpuUsage,
}

impl GpuDemand {
    /// Returns running and waiting together. A gang with running and waiting members counts twice in `gangs`.
    #[must_use]
    pub fn total(&self) -> GpuUsage {
        let mut all = self.running;
        all += self.waiting;
        all
    }
}

/// The sum of what a group of pods requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuUsage {
    /// Pods that request GPUs.
    #[serde(skip_serializing_if = "nothing")]
    pub pods: u64,
    /// Whole GPUs, of any vendor.
    #[serde(skip_serializing_if = "nothing")]
    pub gpus: u64,
    /// MiB on shared cards, over all cards of a share. A share by fraction counts only if its card is known.
    #[serde(rename = "vramMiB", skip_serializing_if = "nothing")]
    pub vram_mib: u64,
    /// Gangs that these pods belong to.
    #[serde(skip_serializing_if = "nothing")]
    pub gangs: u64,
}

impl AddAssign for GpuUsage {
    fn add_assign(&mut self, other: Self) {
        self.pods = self.pods.saturating_add(other.pods);
        self.gpus = self.gpus.saturating_add(other.gpus);
        self.vram_mib = self.vram_mib.saturating_add(other.vram_mib);
        self.gangs = self.gangs.saturating_add(other.gangs);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_json_has_the_documented_form() {
        let published = json!({
            "at": 1_763_800_000,
            "models": { "A100": { "nodes": 2, "cards": 16, "vramMiB": 1_310_720, "largestCardMiB": 81_920, "largestNodeCards": 8,
                                  "freeCards": 3, "freeVramMiB": 40_960, "largestFreeMiB": 30_720 } },
            "namespaces": { "ml": { "running": { "pods": 8, "gpus": 8, "gangs": 1 }, "waiting": { "pods": 4, "vramMiB": 32_000, "gangs": 1 } } },
            "queues": { "team-a": { "running": { "pods": 8, "gpus": 8, "gangs": 1 } } },
            "gangs": { "ml/pytorch-training": { "pods": 8, "gpus": 8, "gangs": 1 } },
        });
        let read: CapacityReport = serde_json::from_value(published.clone()).expect("a valid report");
        assert_eq!(serde_json::to_value(&read).expect("a report is valid JSON"), published);
        let total = read.namespaces["ml"].total();
        assert_eq!(total, GpuUsage { pods: 12, gpus: 8, vram_mib: 32_000, gangs: 2 });
    }

    #[test]
    fn unknown_fields_of_another_release_are_ignored() {
        let read: CapacityReport = serde_json::from_value(
            json!({ "models": { "A100": { "cards": 4, "colour": "green" } }, "more": 1 }),
        )
        .expect("unknown fields are ignored");
        assert_eq!(read.models["A100"], GpuModelCapacity { cards: 4, ..GpuModelCapacity::default() });
        assert_eq!(
            serde_json::to_value(CapacityReport::default()).expect("a report is valid JSON"),
            json!({})
        );
    }
}
