//! Exponential backoff.

use std::time::Duration;

use super::random::Random;

/// Failures beyond this number are not counted, so that the state of a caller that hashes it stays bounded.
const MAX_COUNTED_FAILURES: u32 = 10;

/// Exponential backoff with an upper limit. The limit is at most 1024 times the first delay.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    first: Duration,
    limit: Duration,
    failures: u32,
}

impl Backoff {
    /// A backoff whose first delay is `first` and whose later delays double up to `limit`.
    pub fn new(first: Duration, limit: Duration) -> Self {
        debug_assert!(limit <= first * (1 << MAX_COUNTED_FAILURES), "{limit:?} is never reached");
        Self { first, limit, failures: 0 }
    }

    /// Starts again at the first delay.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Counts a failure and returns the delay before the next attempt.
    pub fn fail(&mut self) -> Duration {
        let delay = self.first.saturating_mul(1 << self.failures).min(self.limit);
        self.failures = (self.failures + 1).min(MAX_COUNTED_FAILURES);
        delay
    }

    /// Counts a failure and returns a random delay: between half of the delay of [`Backoff::fail`] and all
    /// of it. For clients that would otherwise retry at the same moment.
    pub fn fail_with_jitter(&mut self, random: &mut Random) -> Duration {
        let delay = self.fail();
        random.duration_between(delay / 2, delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit_and_start_again_after_a_reset() {
        let mut random = Random::new(1);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let mut jittered = backoff.clone();
        for step in [100, 200, 400, 800, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000] {
            let step = Duration::from_millis(step);
            assert_eq!(backoff.fail(), step);
            let delay = jittered.fail_with_jitter(&mut random);
            assert!(delay >= step / 2 && delay <= step, "{delay:?} of {step:?}");
        }
        backoff.reset();
        jittered.reset();
        assert_eq!(backoff.fail(), Duration::from_millis(100));
        assert!(jittered.fail_with_jitter(&mut random) <= Duration::from_millis(100));
    }
}
