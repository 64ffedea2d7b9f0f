//! A vector of what a pod asks for or a node has, apart from the memory of its GPUs.

use std::collections::BTreeMap;

use super::{Bytes, MilliCpu, Str};

/// Amounts by resource. `extended` holds every other countable resource by its full name (`nvidia.com/gpu`,
/// `nvidia.com/mig-1g.5gb`, `hugepages-2Mi` in bytes, ...), absent meaning zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources {
    /// `cpu`.
    pub cpu: MilliCpu,
    /// `memory`.
    pub memory: Bytes,
    /// `ephemeral-storage`.
    pub ephemeral_storage: Bytes,
    /// Everything else that is counted.
    pub extended: BTreeMap<Str, u64>,
}

impl Resources {
    /// How much of an extended resource this is.
    pub fn extended(&self, name: &str) -> u64 {
        self.extended.get(name).copied().unwrap_or(0)
    }

    /// Adds `other`; each amount saturates, so that an absurd sum fits nowhere instead of wrapping.
    pub fn add(&mut self, other: &Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_add(other.ephemeral_storage);
        for (name, amount) in &other.extended {
            let sum = self.extended.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Raises every amount to at least that of `other`.
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
