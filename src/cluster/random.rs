//! Random seeds and unique names, from the operating system.

use std::time::{SystemTime, UNIX_EPOCH};

use portcullis_core::model::random::Random;

fn random_bits() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        // The values below differ between processes; they need not be secret. So the time of day replaces a
        // random source that fails.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()).rotate_left(32) ^ u64::from(std::process::id())
    })
}

/// A generator with a random seed, for jitter.
pub(super) fn seeded() -> Random {
    Random::new(random_bits())
}

/// Sixteen random hexadecimal digits: a name that no other process has.
pub(super) fn unique_name() -> String {
    format!("{:016x}", random_bits())
}

/// A unique name that sorts by the time of its creation: nanoseconds, then random digits.
pub(super) fn time_ordered_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:016x}{:04x}", now.as_nanos(), random_bits() & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_time_ordered_names_sort_by_time() {
        assert_ne!(unique_name(), unique_name());
        let first = time_ordered_name();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(first < time_ordered_name());
    }
}
