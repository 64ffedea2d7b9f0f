//! The current time for policies.

use std::time::SystemTime;

/// Returns the current Unix time in seconds.
pub(crate) fn seconds_now() -> i64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
}
