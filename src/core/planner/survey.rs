//! One look at every node for one pod: who refuses it, why, and how far off the nearest one is. Counts only: words are
//! made afterwards, once for each reason and not for each node.

use std::collections::BTreeMap;

use super::board::Board;
use super::need::{Denial, Need};
use crate::objects::affinity::Taint;
use crate::objects::names;
use crate::snapshot::{CardState, NodeCapacity, PackedNode, Snapshot};

/// Nodes that came closest, kept for the remedy.
const NEAREST: usize = 4;

/// What the nodes that refuse for one reason have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct Fact {
    /// How many refuse so.
    pub(super) nodes: u32,
    /// How many of them could hold the pod if nothing else were there.
    pub(super) usable: u32,
    /// The most that is free of what is short, and where.
    pub(super) free: u64,
    /// What that node has of it in all.
    pub(super) of: u64,
    /// Index of that node.
    pub(super) node: u32,
    /// Index of the card, where cards are short.
    pub(super) card: u32,
    /// The most that any of these nodes has in all, and which node.
    pub(super) largest: (u64, u32),
    /// The usable nodes with the most free: what is free, and which.
    pub(super) nearest: Vec<(u64, u32)>,
}

/// Every node that refuses, by reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    pub(super) facts: BTreeMap<Denial, Fact>,
    /// Nodes that do not refuse.
    pub(super) fitting: u32,
    /// The taints that [`Denial::Taint`] speaks of in `facts`, by its index: numbers of classes mean nothing outside.
    pub(super) taints: Vec<Taint>,
}

impl Denial {
    /// Whether pods that end, rather than somebody who changes a node, can change it.
    pub(super) fn passes(self) -> bool {
        match self {
            Self::NotReady | Self::Cordoned | Self::Taint { .. } | Self::Choice | Self::SharedNode => false,
            Self::Cards(state) => matches!(state, CardState::WholeGpusHeld | CardState::UnknownShare),
            _ => true,
        }
    }
}

impl Survey {
    pub(super) fn new(need: &Need<'_>, board: &Board<'_>) -> Self {
        let mut survey = Self::default();
        let snapshot = board.snapshot();
        let sharing = snapshot.sharing();
        let empty = |capacity: Option<&NodeCapacity>| capacity.is_some_and(|c| need.fits_empty(c, sharing));
        let usable: Vec<bool> = snapshot.classes().capacities().map(empty).collect();
        // A handful of reasons at most: a list is quicker to search than a map.
        let mut facts: Vec<(Denial, Fact)> = Vec::new();
        for (index, hot) in (0_u32..).zip(snapshot.hot()) {
            let (quick, refused) = look(need, board, index as usize, hot);
            let Err(denial) = refused else {
                survey.fitting += 1;
                continue;
            };
            let (free, card) =
                if quick { (packed_free(denial, hot), 0) } else { free(need, denial, board, index) };
            let place = facts.iter().position(|(other, _)| *other == denial).unwrap_or_else(|| {
                facts.push((denial, Fact::default()));
                facts.len() - 1
            });
            let fact = &mut facts[place].1;
            if fact.nodes == 0 || free > fact.free {
                (fact.free, fact.node, fact.card) = (free, index, card);
            }
            fact.nodes += 1;
            if usable[hot.capacity as usize] {
                fact.usable += 1;
                if denial.passes() {
                    fact.near(free, index);
                }
            }
        }
        survey.facts.extend(facts);
        for (denial, fact) in &mut survey.facts {
            let node = &board.state(fact.node as usize).node;
            fact.of = of(need, *denial, &NodeCapacity::of(node));
            (_, fact.card) = free(need, *denial, board, fact.node);
        }
        survey.find_largest(need, board);
        survey.name_taints(board.snapshot());
        survey
    }

    /// For a pod that no node could hold even if it were empty: the most that a node has in all.
    fn find_largest(&mut self, need: &Need<'_>, board: &Board<'_>) {
        if self.facts.values().any(|fact| fact.usable > 0) {
            return;
        }
        let snapshot = board.snapshot();
        for (denial, fact) in self.facts.iter_mut().filter(|(denial, _)| denial.passes()) {
            let all =
                |capacity: Option<&NodeCapacity>| capacity.map_or(0, |capacity| of(need, *denial, capacity));
            let all: Vec<u64> = snapshot.classes().capacities().map(all).collect();
            for (index, hot) in (0_u32..).zip(snapshot.hot()) {
                let has = all[hot.capacity as usize];
                if has > fact.largest.0 && look(need, board, index as usize, hot).1 == Err(*denial) {
                    fact.largest = (has, index);
                }
            }
        }
    }

    /// Replaces classes, whose numbers tell of the order in which nodes came, by the taints themselves, in their order.
    fn name_taints(&mut self, snapshot: &Snapshot) {
        let mut named: BTreeMap<Taint, Fact> = BTreeMap::new();
        self.facts.retain(|denial, fact| {
            let Denial::Taint { class, index } = *denial else { return true };
            let taint = snapshot.classes().class(class).and_then(|class| class.taints.get(index as usize));
            let taint = taint.expect("the class that refused has this taint").clone();
            let sum = named.entry(taint).or_insert_with(|| Fact { node: fact.node, ..Fact::default() });
            sum.nodes += fact.nodes;
            sum.usable += fact.usable;
            sum.node = sum.node.min(fact.node);
            false
        });
        for (index, (taint, fact)) in (0..).zip(named) {
            self.taints.push(taint);
            self.facts.insert(Denial::Taint { class: 0, index }, fact);
        }
    }

    /// The reason that weighs most. One that ends with other pods, on a node that could take this one, comes first: that
    /// is what the pod is waiting for. Then what keeps it from most of the nodes that could.
    pub(super) fn main(&self) -> Option<(Denial, &Fact)> {
        let weight = |(denial, fact): &(&Denial, &Fact)| {
            (denial.passes() && fact.usable > 0, fact.usable, closeness(**denial), fact.nodes, **denial)
        };
        self.facts.iter().max_by_key(weight).map(|(denial, fact)| (*denial, fact))
    }
}

/// Of reasons that no usable node gives: those that say more about what is missing.
fn closeness(denial: Denial) -> u8 {
    match denial {
        Denial::Cards(CardState::NoCards) => 0,
        Denial::Cards(CardState::NotShared) => 2,
        Denial::Cards(CardState::LabelOnly | CardState::TaintOnly) => 3,
        Denial::Cards(CardState::Mig) => 2,
        Denial::Cards(_) => 4,
        denial if denial.passes() => 5,
        _ => 1,
    }
}

impl Fact {
    fn near(&mut self, free: u64, node: u32) {
        if self.nearest.len() == NEAREST && self.nearest.last().is_some_and(|(least, _)| *least >= free) {
            return;
        }
        let place = self.nearest.iter().position(|(other, _)| *other < free).unwrap_or(self.nearest.len());
        self.nearest.insert(place, (free, node));
        self.nearest.truncate(NEAREST);
    }
}

/// What a node has free of what it is short of, and on which card.
fn free(need: &Need<'_>, denial: Denial, board: &Board<'_>, node: u32) -> (u64, u32) {
    let room = board.room(node as usize);
    match denial {
        Denial::Cpu => (room.cpu, 0),
        Denial::Memory => (room.memory, 0),
        Denial::EphemeralStorage => (room.ephemeral_storage, 0),
        Denial::Gpus => (room.gpus, 0),
        Denial::Extended(index) => (room.extended.get(need.extended_name(index)).copied().unwrap_or(0), 0),
        Denial::Vram => {
            let emptiest =
                room.cards.iter().zip(0_u32..).max_by_key(|(free, card)| (**free, u32::MAX - card));
            emptiest.map_or((0, 0), |(free, card)| (*free, card))
        }
        _ => (0, 0),
    }
}

/// The same from packed numbers, as far as [`Need::refused`] uses them.
fn packed_free(denial: Denial, hot: &PackedNode) -> u64 {
    match denial {
        Denial::Cpu => hot.cpu,
        Denial::Memory => hot.memory,
        Denial::EphemeralStorage => hot.ephemeral_storage,
        Denial::Gpus => u64::from(hot.gpus),
        Denial::Vram => hot.best_card,
        _ => 0,
    }
}

/// What a node has in all of what it is short of.
fn of(need: &Need<'_>, denial: Denial, capacity: &NodeCapacity) -> u64 {
    let has = &capacity.allocatable;
    match denial {
        Denial::Cpu => has.cpu.0,
        Denial::Memory => has.memory.0,
        Denial::EphemeralStorage => has.ephemeral_storage.0,
        Denial::Gpus => has.extended(names::NVIDIA_GPU),
        Denial::Extended(index) => has.extended(need.extended_name(index)),
        Denial::Pods => capacity.max_pods,
        Denial::Vram => capacity.gpus.vram_each.map_or(0, |mib| mib.0),
        _ => 0,
    }
}

/// Whether a node refuses, and whether packed numbers were enough to say so.
fn look(need: &Need<'_>, board: &Board<'_>, place: usize, hot: &PackedNode) -> (bool, Result<(), Denial>) {
    let packed = if board.is_touched(place) { None } else { need.refused(hot) };
    let quick = packed.is_some();
    let refused = packed.unwrap_or_else(|| {
        let state = board.state(place);
        need.admitted(state).and_then(|_| need.fits(&state.node, board.room(place)))
    });
    (quick, refused)
}
