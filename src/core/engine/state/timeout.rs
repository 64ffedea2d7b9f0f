//! The attempts of a gang to start, and when each of them ends.

use std::time::Duration;

use crate::model::Time;

/// The attempts of a gang to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct TimeoutState {
    /// When the last attempt ended without a start. `None` during the first one.
    pub last_expiry: Option<Time>,
    /// When the current attempt ends.
    pub next_expiry: Time,
}

impl TimeoutState {
    /// The state of a gang that could have started since `since`. The attempts last one, two, four, ...
    /// timeouts.
    pub(in crate::engine) fn of(since: Time, timeout: Duration, now: Time) -> Self {
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let waited = now.0.saturating_sub(since.0);
        // The highest bit of the number of timeouts, the current one included, is the number of attempts that
        // are over.
        let attempts = (waited / timeout).saturating_add(1).ilog2();
        let end = |attempts: u32| {
            let timeouts = 1_u64.checked_shl(attempts).map_or(u64::MAX, |power| power - 1);
            Time(since.0.saturating_add(timeout.saturating_mul(timeouts)))
        };
        Self { last_expiry: (attempts > 0).then(|| end(attempts)), next_expiry: end(attempts + 1) }
    }
}

/// A duration as text: `120 s`, `1.5 s`.
pub(in crate::engine) fn format_seconds(time: Duration) -> String {
    let (whole, millis) = (time.as_secs(), time.subsec_millis());
    if millis == 0 { format!("{whole} s") } else { format!("{whole}.{millis:03} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_lasts_twice_as_long_as_the_one_before() {
        let check = |waited: u64, at: Option<u64>, next: u64| {
            let state = TimeoutState::of(Time(1000), Duration::from_secs(10), Time(1000 + waited));
            assert_eq!(
                state,
                TimeoutState { last_expiry: at.map(|at| Time(1000 + at)), next_expiry: Time(1000 + next) },
                "{waited}"
            );
        };
        check(0, None, 10_000);
        check(9_999, None, 10_000);
        check(10_000, Some(10_000), 30_000);
        check(29_999, Some(10_000), 30_000);
        check(30_000, Some(30_000), 70_000);
        check(70_000, Some(70_000), 150_000);
        // A clock that is behind changes nothing, and extreme times do not overflow.
        let early = TimeoutState::of(Time(5000), Duration::from_secs(1), Time(0));
        assert_eq!(early, TimeoutState { last_expiry: None, next_expiry: Time(6000) });
        let late = TimeoutState::of(Time(0), Duration::from_millis(1), Time(u64::MAX));
        assert!(late.last_expiry.is_some() && late.next_expiry >= Time(u64::MAX - 1), "{late:?}");
    }
}
