//! Deterministic random numbers, for simulations, tests and jitter. The caller provides the seed.

use std::time::Duration;

/// A generator of random numbers: splitmix64 (Steele, Lea, Flood 2014), which is small and fast. The same
/// seed gives the same sequence in every version, because recorded seeds are test cases. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
    /// A fuzzer's bytes, which come before the sequence of the seed. Reversed, because they are popped.
    bytes: Vec<u8>,
}

impl Random {
    /// Returns the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, bytes: Vec::new() }
    }

    /// Returns a sequence that consists of these bytes, and then of the sequence of seed 0. A choice among up
    /// to 256 things takes one byte. So a fuzzer that changes a byte changes one decision and shifts none.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { state: 0, bytes: bytes.iter().rev().copied().collect() }
    }

    /// Returns the next bytes as a little-endian number, with zeros after the last byte.
    fn take(&mut self, count: u32) -> u64 {
        (0..count).fold(0, |number, index| number | u64::from(self.bytes.pop().unwrap_or(0)) << (8 * index))
    }

    /// Returns the next 64 bits.
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

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        match end {
            0 => 0,
            _ if self.bytes.is_empty() => self.draw() % end,
            _ => self.take((u64::BITS - (end - 1).leading_zeros()).div_ceil(8)) % end,
        }
    }

    /// Returns an index below `count`; 0 if `count` is 0.
    pub fn index(&mut self, count: usize) -> usize {
        let index = self.below(u64::try_from(count).unwrap_or(u64::MAX));
        usize::try_from(index).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// A duration between `least` and `most`, both included, in whole milliseconds.
    pub fn duration_between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        least + Duration::from_millis(self.between(0, span))
    }

    /// Returns true in one of `number` cases.
    pub fn one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }

    /// Returns true in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `items`; `None` if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.index(items.len());
        items.get(index)
    }

    /// Returns an independent sequence. A consumer that draws more from it does not shift other consumers.
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
