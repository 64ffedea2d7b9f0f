//! One look at every node for one pod: who refuses it, why, and how far off the nearest one is. Counts only: words are
//! made afterwards, once for each reason and not for each node.

use std::collections::BTreeMap;

use super::board::Board;
use super::need::{Denial, Need};
use crate::objects::affinity::Taint;
use crate::snapshot::{CardState, Snapshot};

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
        for (index, state) in (0_u32..).zip(board.snapshot().states()) {
            let room = board.room(index as usize);
            let denied = need.admitted(state).and_then(|_| need.fits(&state.node, room));
            let Err(denial) = denied else {
                survey.fitting += 1;
                continue;
            };
            let fact = survey.facts.entry(denial).or_default();
            let (free, of, card) = amounts(need, denial, board, index);
            if fact.nodes == 0 || free > fact.free {
                (fact.free, fact.of, fact.node, fact.card) = (free, of, index, card);
            }
            if fact.nodes == 0 || of > fact.largest.0 {
                fact.largest = (of, index);
            }
            fact.nodes += 1;
            if need.fits_empty(state) {
                fact.usable += 1;
                if denial.passes() {
                    fact.near(free, index);
                }
            }
        }
        survey.name_taints(board.snapshot());
        survey
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

/// What a node has free, and in all, of what it is short of; and on which card.
fn amounts(need: &Need<'_>, denial: Denial, board: &Board<'_>, node: u32) -> (u64, u64, u32) {
    let state = board.state(node as usize);
    let (room, has) = (board.room(node as usize), &state.node.allocatable);
    match denial {
        Denial::Cpu => (room.cpu, has.cpu.0, 0),
        Denial::Memory => (room.memory, has.memory.0, 0),
        Denial::EphemeralStorage => (room.ephemeral_storage, has.ephemeral_storage.0, 0),
        Denial::Gpus => (room.gpus, has.extended(crate::objects::names::NVIDIA_GPU), 0),
        Denial::Extended(index) => {
            let name = need.extended_name(index);
            (room.extended.get(name).copied().unwrap_or(0), has.extended(name), 0)
        }
        Denial::Pods => (0, state.node.max_pods, 0),
        Denial::Vram => {
            let emptiest =
                room.cards.iter().zip(0_u32..).max_by_key(|(free, card)| (**free, u32::MAX - card));
            let each = state.node.gpus.vram_each.map_or(0, |mib| mib.0);
            emptiest.map_or((0, each, 0), |(free, card)| (*free, each, card))
        }
        _ => (0, 0, 0),
    }
}
