//! What the leader tells all replicas of the cluster's GPUs: what there is, what is free, who uses it and who waits for it.
//!
//! Owns the shape, as values and as JSON (camel case; numbers that are 0 and maps that are empty may be left out, fields that are not known here are
//! passed over, so that replicas of two releases understand each other). Never computes any of it: the leader does, from its snapshot.
//!
//! ```json
//! { "at": 1763800000,
//!   "models": { "NVIDIA-A100-SXM4-80GB": { "nodes": 2, "cards": 16, "vramMiB": 1310720, "largestCardMiB": 81920, "largestNodeCards": 8,
//!                                          "freeCards": 3, "freeVramMiB": 40960, "largestFreeMiB": 30720 } },
//!   "namespaces": { "ml": { "running": { "pods": 8, "gpus": 8, "gangs": 1 }, "waiting": { "pods": 4, "vramMiB": 32000, "gangs": 1 } } },
//!   "queues": { "team-a": { "running": { "pods": 8, "gpus": 8, "gangs": 1 } } },
//!   "gangs": { "ml/pytorch-training": { "pods": 8, "gpus": 8, "gangs": 1 } } }
//! ```

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

fn nothing<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What the leader publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityReport {
    /// When it was told, in Unix seconds; with it, what is old is taken for not known. Absent where somebody wrote it by hand, and
    /// by leaders of releases that did not say.
    #[serde(skip_serializing_if = "nothing")]
    pub at: Option<i64>,
    /// By GPU model: the node label `nvidia.com/gpu.product`; nodes with cards and without that label are `unknown`.
    #[serde(skip_serializing_if = "nothing")]
    pub models: BTreeMap<String, GpuModelCapacity>,
    /// By namespace: its pods that ask for GPUs, in gangs or not. A namespace without any may be left out.
    #[serde(skip_serializing_if = "nothing")]
    pub namespaces: BTreeMap<String, GpuDemand>,
    /// By queue: the pods of gangs whose group object names that queue.
    #[serde(skip_serializing_if = "nothing")]
    pub queues: BTreeMap<String, GpuDemand>,
    /// By `NAMESPACE/NAME` of the `Gang` object: what its members ask for, running or waiting. Of the same moment as the sums by
    /// namespace and queue, so that one can be taken from the other.
    #[serde(skip_serializing_if = "nothing")]
    pub gangs: BTreeMap<String, GpuUsage>,
}

/// The cards of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuModelCapacity {
    /// Nodes that have such GPUs, ready or not.
    #[serde(skip_serializing_if = "nothing")]
    pub nodes: u64,
    /// Whole GPUs of any vendor, as pods ask for them: physical cards, or more where time-slicing makes several of each.
    #[serde(skip_serializing_if = "nothing")]
    pub cards: u64,
    /// MiB of all physical cards together; 0 where the nodes do not say.
    #[serde(rename = "vramMiB", skip_serializing_if = "nothing")]
    pub vram_mib: u64,
    /// MiB of the largest card.
    #[serde(rename = "largestCardMiB", skip_serializing_if = "nothing")]
    pub largest_card_mib: u64,
    /// The most of `cards` that one node has.
    #[serde(skip_serializing_if = "nothing")]
    pub largest_node_cards: u64,
    /// Of `cards`, those that nothing holds and that a pod can get, on nodes that do not share their cards by VRAM.
    #[serde(skip_serializing_if = "nothing")]
    pub free_cards: u64,
    /// Free MiB on nodes that share their cards.
    #[serde(rename = "freeVramMiB", skip_serializing_if = "nothing")]
    pub free_vram_mib: u64,
    /// Free MiB of the shared card that has most.
    #[serde(rename = "largestFreeMiB", skip_serializing_if = "nothing")]
    pub largest_free_mib: u64,
}

/// What some pods ask for, those that run or have a place and those that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuDemand {
    /// Of pods on a node or lifted: it is used, or reserved.
    #[serde(skip_serializing_if = "nothing")]
    pub running: GpuUsage,
    /// Of pods that are gated, or wait for the scheduler.
    #[serde(skip_serializing_if = "nothing")]
    pub waiting: GpuUsage,
}

impl GpuDemand {
    /// Running and waiting together. A gang that is partly here and partly there counts twice in `gangs`.
    #[must_use]
    pub fn total(&self) -> GpuUsage {
        let mut all = self.running;
        all += self.waiting;
        all
    }
}

/// What some pods ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuUsage {
    /// How many pods ask for GPUs.
    #[serde(skip_serializing_if = "nothing")]
    pub pods: u64,
    /// Whole GPUs, of any vendor.
    #[serde(skip_serializing_if = "nothing")]
    pub gpus: u64,
    /// MiB of shared cards, over all cards of a share. A share by fraction counts where its card is known, and else nothing.
    #[serde(rename = "vramMiB", skip_serializing_if = "nothing")]
    pub vram_mib: u64,
    /// How many gangs these pods are of.
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
    fn the_json_is_what_is_documented() {
        let published = json!({
            "at": 1_763_800_000,
            "models": { "A100": { "nodes": 2, "cards": 16, "vramMiB": 1_310_720, "largestCardMiB": 81_920, "largestNodeCards": 8,
                                  "freeCards": 3, "freeVramMiB": 40_960, "largestFreeMiB": 30_720 } },
            "namespaces": { "ml": { "running": { "pods": 8, "gpus": 8, "gangs": 1 }, "waiting": { "pods": 4, "vramMiB": 32_000, "gangs": 1 } } },
            "queues": { "team-a": { "running": { "pods": 8, "gpus": 8, "gangs": 1 } } },
            "gangs": { "ml/pytorch-training": { "pods": 8, "gpus": 8, "gangs": 1 } },
        });
        let read: CapacityReport = serde_json::from_value(published.clone()).expect("it is of the shape");
        assert_eq!(serde_json::to_value(&read).expect("it can be written"), published);
        let total = read.namespaces["ml"].total();
        assert_eq!(total, GpuUsage { pods: 12, gpus: 8, vram_mib: 32_000, gangs: 2 });
    }

    #[test]
    fn what_another_release_adds_is_passed_over() {
        let read: CapacityReport = serde_json::from_value(
            json!({ "models": { "A100": { "cards": 4, "colour": "green" } }, "more": 1 }),
        )
        .expect("what is not known is no error");
        assert_eq!(read.models["A100"], GpuModelCapacity { cards: 4, ..GpuModelCapacity::default() });
        assert_eq!(serde_json::to_value(CapacityReport::default()).expect("it can be written"), json!({}));
    }
}
