//! Delays with jitter.

use std::time::Duration;

use portcullis_core::model::random::Random;

/// A random duration from `least` to `most`, in whole milliseconds.
pub fn random_between(random: &mut Random, least: Duration, most: Duration) -> Duration {
    let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
    least + Duration::from_millis(random.between(0, span))
}

/// Exponential backoff with jitter and an upper limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    limit: Duration,
    failures: u32,
}

impl Backoff {
    /// A backoff whose first delay is at most `first` and whose later delays double up to `limit`.
    pub fn new(first: Duration, limit: Duration) -> Self {
        Self { first, limit, failures: 0 }
    }

    /// Starts again at the first delay.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Counts a failure and returns the delay before the next attempt: between half of the current step and
    /// all of it.
    pub fn next_delay(&mut self, random: &mut Random) -> Duration {
        let step = self.first.saturating_mul(1 << self.failures.min(16)).min(self.limit);
        self.failures = self.failures.saturating_add(1);
        random_between(random, step / 2, step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit_and_start_again_after_a_reset() {
        let mut random = Random::new(1);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for step in [100, 200, 400, 800, 1000, 1000] {
            let delay = backoff.next_delay(&mut random);
            let step = Duration::from_millis(step);
            assert!(delay >= step / 2 && delay <= step, "{delay:?} of {step:?}");
        }
        backoff.reset();
        assert!(backoff.next_delay(&mut random) <= Duration::from_millis(100));
    }
}
