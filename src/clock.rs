//! The time of day, as policies ask for it.

use std::time::SystemTime;

/// Seconds since 1970.
pub(crate) fn seconds_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
