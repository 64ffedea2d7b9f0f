//! Amounts of resources that a pod requests or a node has, without GPU memory.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::{Bytes, MilliCpu, Str};

/// Amounts by resource. `extended` has every other countable resource by its full name, such as
/// `nvidia.com/gpu`, `nvidia.com/mig-1g.5gb`, or `hugepages-2Mi` in bytes. An absent name is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resources {
    /// `cpu`.
    pub cpu: MilliCpu,
    /// `memory`.
    pub memory: Bytes,
    /// `ephemeral-storage`.
    pub ephemeral_storage: Bytes,
    /// All other countable resources.
    pub extended: BTreeMap<Str, u64>,
}

impl Resources {
    /// The amount of an extended resource.
    pub fn extended(&self, name: &str) -> u64 {
        self.extended.get(name).copied().unwrap_or(0)
    }

    /// Adds `other`. Amounts saturate, so that an absurd sum fits on no node instead of wrapping.
    pub fn add(&mut self, other: &Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_add(other.ephemeral_storage);
        for (name, amount) in &other.extended {
            let sum = self.extended.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Raises each amount to at least that of `other`.
    pub fn raise(&mut self, other: &Self) {
        self.cpu = self.cpu.max(other.cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.max(other.ephemeral_storage);
        for (name, amount) in &other.extended {
            let most = self.extended.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }
}
