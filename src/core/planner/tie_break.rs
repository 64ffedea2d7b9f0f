//! The tie-break between equally good nodes: the first by name.
//!
//! A stable tie-break makes plans repeatable. It also packs better than a random one: FGD (Fragmentation
//! Gradient Descent) loses five points of allocation with random ties.

/// How ties between equally good nodes are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TieBreak {
    /// By node name: node indexes are in that order.
    Stable,
    /// By an order that differs with every seed: a planted bug.
    #[cfg(feature = "sabotage")]
    Scrambled(u64),
}

impl TieBreak {
    /// The last key of every comparison between nodes. It is unique per node.
    pub(super) fn key(self, node: u32) -> u64 {
        match self {
            Self::Stable => u64::from(node),
            #[cfg(feature = "sabotage")]
            Self::Scrambled(seed) => sabotage::mix(seed ^ (u64::from(node) << 20)),
        }
    }

    /// The tie-break of this thread.
    pub(super) fn current() -> Self {
        #[cfg(feature = "sabotage")]
        if let Some(seed) = sabotage::next_seed() {
            return Self::Scrambled(seed);
        }
        Self::Stable
    }
}

/// Planted bugs for the tests that prove the checks find them.
#[cfg(feature = "sabotage")]
pub mod sabotage {
    use std::cell::Cell;

    thread_local! {
        static TIE_BREAK_SEED: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Makes every plan on this thread break ties in a different order; `None` restores the stable order.
    pub fn scramble_ties(seed: Option<u64>) {
        TIE_BREAK_SEED.set(seed);
    }

    pub(super) fn next_seed() -> Option<u64> {
        let seed = TIE_BREAK_SEED.get()?;
        TIE_BREAK_SEED.set(Some(mix(seed)));
        Some(seed)
    }

    /// A number that looks unrelated to the seed.
    pub(super) fn mix(seed: u64) -> u64 {
        crate::model::random::Random::new(seed).draw()
    }
}
