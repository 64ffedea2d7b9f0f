//! A snapshot with the assignments of the running planning round applied.
//!
//! The overlay copies the free resources of a node when it first changes them, and leaves the snapshot as it
//! is. Every assignment can be undone, in any order.

use super::requirements::PodRequirements;
use super::types::WaitingMember;
use crate::snapshot::{Charge, FreeResources, NodeState, Snapshot};

#[derive(Clone)]
pub(super) struct SnapshotOverlay<'a> {
    snapshot: &'a Snapshot,
    /// For each node, one more than its index in `modified`; zero for a node that is not modified.
    slots: Vec<u32>,
    modified: Vec<FreeResources>,
    /// For each entry of `modified`, the number of its changes.
    versions: Vec<u32>,
    /// Members that this round has planned, by node.
    planned: Vec<(u32, &'a WaitingMember)>,
    /// Charges that a trial has released, by node.
    released: Vec<(u32, Charge)>,
}

impl<'a> SnapshotOverlay<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let slots = vec![0; snapshot.states().len()];
        Self {
            snapshot,
            slots,
            modified: Vec::new(),
            versions: Vec::new(),
            planned: Vec::new(),
            released: Vec::new(),
        }
    }

    /// A copy for a trial.
    pub(super) fn fork(&self) -> Self {
        self.clone()
    }

    /// Releases what some charged pods hold on a node. Assignments on the overlay stay.
    pub(super) fn release_charges(&mut self, node: usize, charges: &[&Charge]) {
        let index = u32::try_from(node).expect("fewer than 2^32 nodes");
        self.released.extend(charges.iter().map(|charge| (index, (*charge).clone())));
        let before = &self.snapshot.states()[node].free_resources;
        let after = self.snapshot.free_resources_without(node, charges);
        let free = self.free_resources_mut(node);
        free.cpu += after.cpu - before.cpu;
        free.memory += after.memory - before.memory;
        free.ephemeral_storage += after.ephemeral_storage - before.ephemeral_storage;
        free.pods += after.pods - before.pods;
        free.gpus += after.gpus - before.gpus;
        for (name, amount) in &mut free.extended {
            *amount += after.extended[name] - before.extended[name];
        }
        for (card, (after, before)) in free.cards.iter_mut().zip(after.cards.iter().zip(&before.cards)) {
            *card += after - before;
        }
        free.whole -= before.whole - after.whole;
        free.shares -= before.shares - after.shares;
        free.card_state = after.card_state;
        for port in before.ports.difference(&after.ports) {
            free.ports.remove(port);
        }
    }

    /// Records the assignment of a member whose gang is planned.
    pub(super) fn add_planned(&mut self, node: u32, member: &'a WaitingMember) {
        self.planned.push((node, member));
    }

    /// Members that this round has planned, by node.
    pub(super) fn planned(&self) -> &[(u32, &'a WaitingMember)] {
        &self.planned
    }

    /// Charges that a trial has released, by node.
    pub(super) fn released(&self) -> &[(u32, Charge)] {
        &self.released
    }

    pub(super) fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    pub(super) fn state(&self, node: usize) -> &'a NodeState {
        &self.snapshot.states()[node]
    }

    pub(super) fn free_resources(&self, node: usize) -> &FreeResources {
        match self.slots[node] {
            0 => &self.snapshot.states()[node].free_resources,
            slot => &self.modified[slot as usize - 1],
        }
    }

    pub(super) fn is_modified(&self, node: usize) -> bool {
        self.slots[node] != 0
    }

    /// A number that differs after every change of the node's free resources.
    pub(super) fn version(&self, node: usize) -> u32 {
        match self.slots[node] {
            0 => 0,
            slot => self.versions[slot as usize - 1],
        }
    }

    fn free_resources_mut(&mut self, node: usize) -> &mut FreeResources {
        if self.slots[node] == 0 {
            self.modified.push(self.snapshot.states()[node].free_resources.clone());
            self.versions.push(0);
            self.slots[node] = u32::try_from(self.modified.len()).expect("fewer than 2^32 nodes");
        }
        let slot = self.slots[node] as usize - 1;
        self.versions[slot] = self.versions[slot].wrapping_add(1);
        &mut self.modified[slot]
    }

    /// Takes what a pod requires from a node on which it fits.
    pub(super) fn assign(&mut self, node: usize, need: &PodRequirements<'_>, cards: &[u32]) {
        let each = need.on_card(&self.state(node).node);
        let free = self.free_resources_mut(node);
        free.cpu -= need.cpu;
        free.memory -= need.memory;
        free.ephemeral_storage -= need.ephemeral_storage;
        free.pods -= 1;
        free.gpus -= need.gpus;
        for (name, amount) in &need.extended {
            if let Some(free) = free.extended.get_mut(*name) {
                *free -= amount;
            }
        }
        for card in cards {
            free.cards[*card as usize] -= each;
        }
        free.ports.extend(need.shape.host_ports.iter().cloned());
        free.whole += u32::from(need.uses_whole_gpus());
        free.shares += u32::from(need.share.is_some());
    }

    /// Undoes [`Self::assign`].
    pub(super) fn unassign(&mut self, node: usize, need: &PodRequirements<'_>, cards: &[u32]) {
        let each = need.on_card(&self.state(node).node);
        let free = self.free_resources_mut(node);
        free.cpu += need.cpu;
        free.memory += need.memory;
        free.ephemeral_storage += need.ephemeral_storage;
        free.pods += 1;
        free.gpus += need.gpus;
        for (name, amount) in &need.extended {
            if let Some(free) = free.extended.get_mut(*name) {
                *free += amount;
            }
        }
        for card in cards {
            free.cards[*card as usize] += each;
        }
        for port in &need.shape.host_ports {
            free.ports.remove(port);
        }
        free.whole -= u32::from(need.uses_whole_gpus());
        free.shares -= u32::from(need.share.is_some());
    }
}
