//! Deterministic pseudo-random numbers for simulations and fuzzing: the same seed or the same bytes give the
//! same sequence.

/// A pseudo-random number generator: splitmix64 (Steele, Lea, Flood 2014), preceded by the bytes of a fuzzer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
    /// Bytes not drawn yet, last byte first.
    bytes: Vec<u8>,
}

impl Random {
    /// A generator that starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, bytes: Vec::new() }
    }

    /// A generator that returns these bytes first, and the sequence of seed 0 after them.
    ///
    /// A choice among up to 256 items takes one byte. So a fuzzer that changes one byte changes one decision
    /// and shifts no other.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { state: 0, bytes: bytes.iter().rev().copied().collect() }
    }

    /// The next bytes as a number, the first of them its lowest; zeros where they end.
    fn take(&mut self, count: u32) -> u64 {
        (0..count).fold(0, |number, index| number | u64::from(self.bytes.pop().unwrap_or(0)) << (8 * index))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        if !self.bytes.is_empty() {
            return self.take(8);
        }
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, and without, `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        match end {
            0 => 0,
            _ if self.bytes.is_empty() => self.draw() % end,
            _ => self.take((u64::BITS - (end - 1).leading_zeros()).div_ceil(8)) % end,
        }
    }

    /// A number between `low` and `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`; `None` when there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.below(items.len() as u64);
        items.get(usize::try_from(index).unwrap_or(0))
    }

    /// An independent sequence, so that one consumer drawing more does not shift the others.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_seeds_keep_their_meaning() {
        // The first outputs of the reference implementation for seed 0.
        let mut random = Random::new(0);
        let drawn = [random.draw(), random.draw()];
        assert_eq!(drawn, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
    }

    #[test]
    fn a_choice_takes_no_more_bytes_than_it_needs() {
        for (end, expected, left) in [
            (0, 0, 9),
            (1, 0, 9),
            (2, 1, 8),
            (200, 1, 8),
            (256, 1, 8),
            (1000, 0x201, 7),
            (65_536, 0x201, 7),
            (65_537, 0x201, 6),
        ] {
            let mut random = Random::from_bytes(&[1, 2, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!((random.below(end), random.bytes.len()), (expected, left), "below {end}");
        }
    }

    #[test]
    fn after_the_bytes_comes_the_sequence_of_seed_0() {
        let (mut bytes, mut seed) = (Random::from_bytes(&[7, 0, 0, 0, 0, 0, 0, 1, 9]), Random::new(0));
        assert_eq!([bytes.draw(), bytes.draw()], [0x0100_0000_0000_0007, 9]);
        for _ in 0..3 {
            assert_eq!(bytes.draw(), seed.draw());
        }
        assert_eq!(Random::from_bytes(&[]), Random::new(0));
    }
}
