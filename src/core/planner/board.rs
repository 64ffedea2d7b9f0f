//! The snapshot as it would be with the pods placed so far: rooms of touched nodes lie over the snapshot's own, and
//! every step can be taken back.

use super::need::Need;
use crate::snapshot::{Charge, FreeResources, NodeState, Snapshot};

#[derive(Clone)]
pub(super) struct Board<'a> {
    snapshot: &'a Snapshot,
    /// For each node, one more than the index of its room; zero where it is untouched.
    slots: Vec<u32>,
    rooms: Vec<FreeResources>,
    /// How often each room was changed.
    changes: Vec<u32>,
}

impl<'a> Board<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        Self { snapshot, slots: vec![0; snapshot.states().len()], rooms: Vec::new(), changes: Vec::new() }
    }

    /// A copy to try something on.
    pub(super) fn fork(&self) -> Self {
        self.clone()
    }

    /// Frees what some pods hold on a node, beside what was placed there.
    pub(super) fn free(&mut self, node: usize, charges: &[&Charge]) {
        let before = &self.snapshot.states()[node].room;
        let after = self.snapshot.room_without(node, charges);
        let room = self.room_mut(node);
        room.cpu += after.cpu - before.cpu;
        room.memory += after.memory - before.memory;
        room.ephemeral_storage += after.ephemeral_storage - before.ephemeral_storage;
        room.pods += after.pods - before.pods;
        room.gpus += after.gpus - before.gpus;
        for (name, free) in &mut room.extended {
            *free += after.extended[name] - before.extended[name];
        }
        for (free, (after, before)) in room.cards.iter_mut().zip(after.cards.iter().zip(&before.cards)) {
            *free += after - before;
        }
        room.whole -= before.whole - after.whole;
        room.shares -= before.shares - after.shares;
        room.card_state = after.card_state;
        for port in before.ports.difference(&after.ports) {
            room.ports.remove(port);
        }
    }

    pub(super) fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    pub(super) fn state(&self, node: usize) -> &'a NodeState {
        &self.snapshot.states()[node]
    }

    pub(super) fn room(&self, node: usize) -> &FreeResources {
        match self.slots[node] {
            0 => &self.snapshot.states()[node].room,
            slot => &self.rooms[slot as usize - 1],
        }
    }

    pub(super) fn is_touched(&self, node: usize) -> bool {
        self.slots[node] != 0
    }

    /// Differs after every change of a node's room.
    pub(super) fn stamp(&self, node: usize) -> u32 {
        match self.slots[node] {
            0 => 0,
            slot => self.changes[slot as usize - 1],
        }
    }

    fn room_mut(&mut self, node: usize) -> &mut FreeResources {
        if self.slots[node] == 0 {
            self.rooms.push(self.snapshot.states()[node].room.clone());
            self.changes.push(0);
            self.slots[node] = u32::try_from(self.rooms.len()).expect("fewer than 2^32 nodes");
        }
        let slot = self.slots[node] as usize - 1;
        self.changes[slot] = self.changes[slot].wrapping_add(1);
        &mut self.rooms[slot]
    }

    /// Takes what the need takes of a node that has room for it.
    pub(super) fn place(&mut self, node: usize, need: &Need<'_>, cards: &[u32]) {
        let each = need.on_card(&self.state(node).node);
        let room = self.room_mut(node);
        room.cpu -= need.cpu;
        room.memory -= need.memory;
        room.ephemeral_storage -= need.ephemeral_storage;
        room.pods -= 1;
        room.gpus -= need.gpus;
        for (name, amount) in &need.extended {
            if let Some(free) = room.extended.get_mut(*name) {
                *free -= amount;
            }
        }
        for card in cards {
            room.cards[*card as usize] -= each;
        }
        room.ports.extend(need.shape.host_ports.iter().cloned());
        room.whole += u32::from(need.whole());
        room.shares += u32::from(need.share.is_some());
    }

    /// Takes back what [`Self::place`] did, in any order.
    pub(super) fn take_back(&mut self, node: usize, need: &Need<'_>, cards: &[u32]) {
        let each = need.on_card(&self.state(node).node);
        let room = self.room_mut(node);
        room.cpu += need.cpu;
        room.memory += need.memory;
        room.ephemeral_storage += need.ephemeral_storage;
        room.pods += 1;
        room.gpus += need.gpus;
        for (name, amount) in &need.extended {
            if let Some(free) = room.extended.get_mut(*name) {
                *free += amount;
            }
        }
        for card in cards {
            room.cards[*card as usize] += each;
        }
        for port in &need.shape.host_ports {
            room.ports.remove(port);
        }
        room.whole -= u32::from(need.whole());
        room.shares -= u32::from(need.share.is_some());
    }
}
