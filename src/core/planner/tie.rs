//! Which of two equally good nodes is taken: the first by name, always. Stable ties are what makes plans repeatable,
//! and they pack better than any score does (reference: FGD loses five points of allocation with random ties).

/// How ties between equally good nodes are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tie {
    /// By node name: nodes are numbered in that order.
    Stable,
    /// By an order that differs with every seed: a planted bug.
    #[cfg(feature = "sabotage")]
    Scrambled(u64),
}

impl Tie {
    /// The unique end of every comparison between nodes.
    pub(super) fn key(self, node: u32) -> u64 {
        match self {
            Self::Stable => u64::from(node),
            #[cfg(feature = "sabotage")]
            Self::Scrambled(seed) => sabotage::mix(seed ^ (u64::from(node) << 20)),
        }
    }

    /// The rule in force on this thread.
    pub(super) fn current() -> Self {
        #[cfg(feature = "sabotage")]
        if let Some(seed) = sabotage::next_seed() {
            return Self::Scrambled(seed);
        }
        Self::Stable
    }
}

/// Planted bugs, for tests which show that they would be caught.
#[cfg(feature = "sabotage")]
pub mod sabotage {
    use std::cell::Cell;

    thread_local! {
        static TIES: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// From now on, every plan made on this thread breaks ties by another order; `None` restores the stable one.
    pub fn scramble_ties(seed: Option<u64>) {
        TIES.set(seed);
    }

    pub(super) fn next_seed() -> Option<u64> {
        let seed = TIES.get()?;
        TIES.set(Some(mix(seed)));
        Some(seed)
    }

    /// The step of splitmix64.
    pub(super) fn mix(seed: u64) -> u64 {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
