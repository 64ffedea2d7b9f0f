//! What one shape of pod needs, and whether one node has it: the stock scheduler's filters, plus cards.

use crate::gpu::{GpuShare, ShareSize};
use crate::model::{Str, VramMib, str};
use crate::objects::affinity::{RequiredNodeAffinity, Taint, TaintEffect};
use crate::objects::{GpuSharing, Node, names};
use crate::shape::Shape;
use crate::snapshot::{
    CardState, FreeResources, NodeCapacity, NodeClass, NodeState, PackedCards, PackedNode, SharingMode,
    Snapshot, holds_whole_gpus, port_conflict,
};

/// Why a node refuses a pod, in the order in which it is asked; the first that holds is the one that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Denial {
    NotReady,
    Cordoned,
    /// The taint of that index in that class of nodes.
    Taint {
        class: u32,
        index: u32,
    },
    Choice,
    /// A share, and the node takes none.
    Cards(CardState),
    /// Whole GPUs, and the node shares its cards.
    SharedNode,
    Pods,
    Port,
    Vram,
    Gpus,
    /// The extended resource of that index in the need.
    Extended(u32),
    Cpu,
    Memory,
    EphemeralStorage,
}

/// What the class of a node says about a shape.
#[derive(Clone, Copy, Debug)]
enum ClassVerdict {
    /// Fine; whether a taint asks to avoid it.
    Fine {
        avoid: bool,
    },
    Denied(Denial),
}

/// In which order cards are tried: the tightest leave the others whole, the loosest leave the most to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CardOrder {
    Tightest,
    Loosest,
}

/// Whether a taint asks to avoid the node, what would be left over there, and how empty it is: smaller is better.
pub(super) type Score = (bool, u64, u32);

/// A shape, resolved against the classes of a snapshot.
#[derive(Debug)]
pub(super) struct Need<'a> {
    pub(super) shape: &'a Shape,
    pub(super) cpu: u64,
    pub(super) memory: u64,
    pub(super) ephemeral_storage: u64,
    /// `nvidia.com/gpu`.
    pub(super) gpus: u64,
    /// Every other extended resource.
    pub(super) extended: Vec<(&'a Str, u64)>,
    pub(super) share: Option<GpuShare>,
    whole: bool,
    verdicts: Vec<ClassVerdict>,
    /// [`Self::decide`] can tell from packed numbers alone.
    exact: bool,
    /// MiB of the one card it shares by size, when it is exact; zero when it shares none.
    each: u32,
    /// The choice asks for what a class does not know: it is asked for each node.
    pub(super) choice_by_node: bool,
}

impl<'a> Need<'a> {
    pub(super) fn new(shape: &'a Shape, snapshot: &Snapshot) -> Self {
        let requests = &shape.requests;
        let classes = snapshot.classes();
        let choice_by_node = asks_by_node(&shape.node_affinity, |key| classes.is_private(key));
        let verdicts = (0_u32..).zip(0..classes.len()).map(|(number, _)| {
            let Some(class) = classes.class(number) else { return ClassVerdict::Denied(Denial::NotReady) };
            class_verdict(shape, class, number, choice_by_node)
        });
        let whole = holds_whole_gpus(requests);
        let gpus = requests.extended(names::NVIDIA_GPU);
        let others = requests.extended.iter().any(|(name, n)| *n > 0 && &**name != names::NVIDIA_GPU);
        let each = match shape.share {
            None => Some(0),
            Some(GpuShare { size: ShareSize::Vram(mib), devices: 1 }) => u32::try_from(mib.0).ok(),
            Some(_) => None,
        };
        let countable = each.is_some_and(|mib| mib < u32::MAX) && gpus < u64::from(u32::MAX);
        Self {
            exact: countable
                && !others
                && !choice_by_node
                && shape.host_ports.is_empty()
                && !(whole && shape.share.is_some()),
            each: each.unwrap_or(0),
            shape,
            cpu: requests.cpu.0,
            memory: requests.memory.0,
            ephemeral_storage: requests.ephemeral_storage.0,
            gpus,
            extended: requests
                .extended
                .iter()
                .filter(|(name, amount)| **amount > 0 && &***name != names::NVIDIA_GPU)
                .map(|(name, amount)| (name, *amount))
                .collect(),
            share: shape.share,
            whole,
            verdicts: verdicts.collect(),
            choice_by_node,
        }
    }

    /// What the rules that no pod changes say: readiness, cordon, taints, selector. `Ok(true)` where a taint asks to
    /// avoid the node.
    pub(super) fn admitted(&self, state: &NodeState) -> Result<bool, Denial> {
        match self.verdicts[state.class as usize] {
            ClassVerdict::Denied(denial) => Err(denial),
            ClassVerdict::Fine { avoid } => {
                if self.choice_by_node
                    && !self.shape.node_affinity.matches(&state.node.name, &state.node.labels)
                {
                    Err(Denial::Choice)
                } else {
                    Ok(avoid)
                }
            }
        }
    }

    /// Whether the class of a node admits it; its name may still be the wrong one.
    pub(super) fn class_admits(&self, hot: &PackedNode) -> bool {
        matches!(self.verdicts[hot.class as usize], ClassVerdict::Fine { .. })
    }

    /// Whether the packed numbers of a node leave a chance; `false` is certain.
    pub(super) fn may_fit(&self, hot: &PackedNode) -> bool {
        let share = match self.share {
            Some(GpuShare { size: ShareSize::Vram(mib), .. }) => mib.0,
            Some(_) => 1,
            None => 0,
        };
        (hot.cpu >= self.cpu)
            & (hot.memory >= self.memory)
            & (u64::from(hot.gpus) >= self.gpus.min(u64::from(u32::MAX)))
            & (hot.best_card >= share)
            & (hot.pods > 0)
            & (hot.ephemeral_storage >= self.ephemeral_storage)
            && self.class_admits(hot)
    }

    /// MiB it takes of each card it shares on this node.
    pub(super) fn on_card(&self, node: &Node) -> u64 {
        let each = node.gpus.vram_each.unwrap_or(VramMib::ZERO);
        self.share.map_or(0, |share| share.on_card(each).0)
    }

    /// Whether a node that admits it has room for one more.
    pub(super) fn fits(&self, node: &Node, room: &FreeResources) -> Result<(), Denial> {
        if let Some(share) = &self.share {
            if room.card_state != CardState::Open {
                return Err(Denial::Cards(room.card_state));
            }
            if room.whole > 0 {
                return Err(Denial::Cards(CardState::WholeGpusHeld));
            }
            let each = share.on_card(node.gpus.vram_each.unwrap_or(VramMib::ZERO)).0;
            let fitting = room.cards.iter().filter(|free| **free >= each).count();
            if fitting < share.devices as usize {
                return Err(Denial::Vram);
            }
        }
        if self.whole && (node.gpus.sharing == GpuSharing::Vram || room.shares > 0) {
            return Err(Denial::SharedNode);
        }
        if self.share.is_some() && self.whole {
            // Admission rejects such a pod; should one come all the same, shares and whole GPUs never meet.
            return Err(Denial::SharedNode);
        }
        if room.pods == 0 {
            return Err(Denial::Pods);
        }
        if !self.shape.host_ports.is_empty() && !room.ports.is_empty() {
            let taken = |port| room.ports.iter().any(|used| port_conflict(port, used));
            if self.shape.host_ports.iter().any(taken) {
                return Err(Denial::Port);
            }
        }
        if self.gpus > room.gpus {
            return Err(Denial::Gpus);
        }
        for (index, (name, amount)) in (0_u32..).zip(&self.extended) {
            if *amount > room.extended.get(*name).copied().unwrap_or(0) {
                return Err(Denial::Extended(index));
            }
        }
        if self.cpu > room.cpu {
            return Err(Denial::Cpu);
        }
        if self.memory > room.memory {
            return Err(Denial::Memory);
        }
        if self.ephemeral_storage > room.ephemeral_storage {
            return Err(Denial::EphemeralStorage);
        }
        Ok(())
    }

    /// How many of it fit on a node that admits it and has room for one, at most `limit`.
    pub(super) fn count(&self, node: &Node, room: &FreeResources, limit: u64) -> u64 {
        if self.fits(node, room).is_err() {
            return 0;
        }
        let times = |free: u64, need: u64| free.checked_div(need).unwrap_or(u64::MAX);
        let mut most = limit.min(room.pods);
        if !self.shape.host_ports.is_empty() {
            most = most.min(1);
        }
        most = most.min(times(room.gpus, self.gpus));
        for (name, amount) in &self.extended {
            most = most.min(times(room.extended.get(*name).copied().unwrap_or(0), *amount));
        }
        most = most.min(times(room.cpu, self.cpu));
        most = most.min(times(room.memory, self.memory));
        most = most.min(times(room.ephemeral_storage, self.ephemeral_storage));
        if let Some(share) = &self.share {
            most = most.min(shares(&room.cards, self.on_card(node), share.devices, most));
        }
        most
    }

    /// The cards it would take of a node that has room for it, ascending; empty when it shares none.
    pub(super) fn cards(&self, node: &Node, room: &FreeResources, order: CardOrder) -> Vec<u32> {
        let Some(share) = &self.share else { return Vec::new() };
        let each = self.on_card(node);
        let mut fitting: Vec<(u64, u32)> =
            room.cards.iter().copied().zip(0..).filter(|(free, _)| *free >= each).collect();
        match order {
            CardOrder::Tightest => fitting.sort_unstable(),
            CardOrder::Loosest => fitting.sort_unstable_by_key(|(free, card)| (u64::MAX - free, *card)),
        }
        let mut cards: Vec<u32> =
            fitting.iter().take(share.devices as usize).map(|(_, card)| *card).collect();
        cards.sort_unstable();
        cards
    }

    /// From packed numbers alone: `None` where they cannot tell, else whether the node takes it, and then the score.
    pub(super) fn decide(&self, hot: &PackedNode, row: &PackedCards) -> Option<Option<Score>> {
        if !self.may_fit(hot) {
            return Some(None);
        }
        if !self.exact || (self.each > 0 && hot.long) {
            return None;
        }
        if self.whole && !hot.takes_whole {
            return Some(None);
        }
        let first = if self.each > 0 {
            let over = |free: &u32| free.checked_sub(self.each).unwrap_or(u32::MAX);
            u64::from(row.iter().map(over).min().unwrap_or(u32::MAX))
        } else if self.gpus > 0 {
            u64::from(hot.gpus) - self.gpus
        } else {
            u64::from(hot.has_cards)
        };
        let ClassVerdict::Fine { avoid } = self.verdicts[hot.class as usize] else { return Some(None) };
        Some(Some((avoid, first, hot.spare)))
    }

    /// How well a node suits that has room: smaller is better. What is left over on the tightest cards, or of whole
    /// GPUs; a pod that needs neither stays away from nodes with GPUs; then the fullest node.
    pub(super) fn score(&self, state: &NodeState, room: &FreeResources, avoid: bool) -> Score {
        let node = &state.node;
        let first = if let Some(share) = &self.share {
            let each = self.on_card(node);
            if share.devices == 1 {
                let tightest = room.cards.iter().filter(|free| **free >= each).min();
                tightest.map_or(u64::MAX, |free| free - each)
            } else {
                let mut fitting: Vec<u64> = room.cards.iter().copied().filter(|free| *free >= each).collect();
                fitting.sort_unstable();
                fitting
                    .iter()
                    .take(share.devices as usize)
                    .fold(0_u64, |sum, free| sum.saturating_add(free - each))
            }
        } else if self.gpus > 0 {
            room.gpus.saturating_sub(self.gpus)
        } else {
            u64::from(node.gpus.cards > 0)
        };
        (avoid, first, room.spare(node))
    }

    /// Why a node refuses, from packed numbers alone, as [`Self::admitted`] and [`Self::fits`] would say it; `None`
    /// where these cannot tell.
    pub(super) fn refused(&self, hot: &PackedNode) -> Option<Result<(), Denial>> {
        if let ClassVerdict::Denied(denial) = self.verdicts[hot.class as usize] {
            return Some(Err(denial));
        }
        if !self.exact {
            return None;
        }
        Some(if self.each > 0 && hot.card_state != CardState::Open {
            Err(Denial::Cards(hot.card_state))
        } else if u64::from(self.each) > hot.best_card {
            Err(Denial::Vram)
        } else if self.whole && !hot.takes_whole {
            Err(Denial::SharedNode)
        } else if hot.pods == 0 {
            Err(Denial::Pods)
        } else if self.gpus > u64::from(hot.gpus) {
            Err(Denial::Gpus)
        } else if self.cpu > hot.cpu {
            Err(Denial::Cpu)
        } else if self.memory > hot.memory {
            Err(Denial::Memory)
        } else if self.ephemeral_storage > hot.ephemeral_storage {
            Err(Denial::EphemeralStorage)
        } else {
            Ok(())
        })
    }

    /// Whether a node that admits it could hold it if nothing else were there.
    pub(super) fn fits_empty(&self, capacity: &NodeCapacity, sharing: SharingMode) -> bool {
        let (gpus, has) = (&capacity.gpus, &capacity.allocatable);
        let share = self.share.is_none_or(|share| {
            (gpus.sharing == GpuSharing::Vram || sharing == SharingMode::Any)
                && !gpus.mig
                && share.devices <= gpus.cards
                && gpus.vram_each.is_some_and(|each| share.on_card(each) <= each)
        });
        share
            && !(self.whole && (self.share.is_some() || gpus.sharing == GpuSharing::Vram))
            && capacity.max_pods > 0
            && self.gpus <= has.extended(names::NVIDIA_GPU)
            && self.extended.iter().all(|(name, amount)| *amount <= has.extended(name))
            && self.cpu <= has.cpu.0
            && self.memory <= has.memory.0
            && self.ephemeral_storage <= has.ephemeral_storage.0
    }

    /// The name of the resource that [`Denial::Extended`] speaks of.
    pub(super) fn extended_name(&self, index: u32) -> &'a Str {
        self.extended[index as usize].0
    }

    /// Whether it holds whole GPUs or slices that kubelet picks.
    pub(super) fn whole(&self) -> bool {
        self.whole
    }
}

/// How many shares of `each` MiB on `devices` different cards fit: as many as the slots of the cards allow, where no
/// share uses a card twice. `t` shares fit when the cards have `devices * t` slots, counting at most `t` on each.
fn shares(cards: &[u64], each: u64, devices: u32, limit: u64) -> u64 {
    let slots = |at_most: u64| -> u128 {
        cards.iter().map(|free| u128::from(free.checked_div(each).unwrap_or(u64::MAX).min(at_most))).sum()
    };
    let fits = |t: u64| slots(t) >= u128::from(devices) * u128::from(t);
    // One share fits (the caller has asked); the largest number that does lies between one and the limit.
    let (mut low, mut high) = (1, limit.max(1));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

fn class_verdict(shape: &Shape, class: &NodeClass, number: u32, choice_by_node: bool) -> ClassVerdict {
    let tolerated = |taint: &Taint| shape.tolerations.iter().any(|t| t.tolerates(taint));
    if !class.ready {
        return ClassVerdict::Denied(Denial::NotReady);
    }
    if class.unschedulable {
        let cordon =
            Taint { key: str(names::TAINT_UNSCHEDULABLE), value: str(""), effect: TaintEffect::NoSchedule };
        if !tolerated(&cordon) {
            return ClassVerdict::Denied(Denial::Cordoned);
        }
    }
    for (index, taint) in (0..).zip(&class.taints) {
        if taint.forbids() && !tolerated(taint) {
            return ClassVerdict::Denied(Denial::Taint { class: number, index });
        }
    }
    // Neither name nor private labels matter to a choice that does not ask by node.
    if !choice_by_node && !shape.node_affinity.matches(&"".into(), &class.labels) {
        return ClassVerdict::Denied(Denial::Choice);
    }
    ClassVerdict::Fine { avoid: class.taints.iter().any(|taint| !taint.forbids() && !tolerated(taint)) }
}

/// Whether a choice asks for a node's name, or for a label whose value is the node's own.
fn asks_by_node(choice: &RequiredNodeAffinity, private: impl Fn(&str) -> bool) -> bool {
    choice.selector.keys().any(|key| private(key))
        || choice
            .terms
            .iter()
            .flatten()
            .any(|term| !term.fields.is_empty() || term.expressions.iter().any(|r| private(&r.key)))
}
