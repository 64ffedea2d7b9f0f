//! Chance, where many of us must not do the same thing at the same moment, or use the same name.

use std::time::Duration;

fn bits() -> u64 {
    let mut bytes = [0; 8];
    // The provider that TLS uses. If the system has no randomness left to give, the time of day has to do: what is made
    // of it needs to differ between processes, not to be secret.
    if rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).is_ok() {
        return u64::from_le_bytes(bytes);
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()).rotate_left(32) ^ u64::from(std::process::id())
}

/// Some time from `least` to `most`.
pub(super) fn between(least: Duration, most: Duration) -> Duration {
    let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
    least + Duration::from_millis(bits() % span.saturating_add(1))
}

/// Sixteen hexadecimal digits that nobody else has.
pub(super) fn name() -> String {
    format!("{:016x}", bits())
}

/// The same, for objects that are shown in the order of their names: nanoseconds first, then chance.
pub(super) fn name_in_time_order() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:016x}{:04x}", now.as_nanos(), bits() & 0xffff)
}

/// Waits that grow with every failure, up to a limit, each one cut by chance.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// All is well again.
    pub(super) fn succeed(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after one more failure: between half of the step and all of it.
    pub(super) fn fail(&mut self) -> Duration {
        let step = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        between(step / 2, step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit_and_start_again() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for most in [100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.fail();
            let most = Duration::from_millis(most);
            assert!(wait >= most / 2 && wait <= most, "{wait:?} of {most:?}");
        }
        backoff.succeed();
        assert!(backoff.fail() <= Duration::from_millis(100));
        assert_ne!(name(), name());
    }
}
