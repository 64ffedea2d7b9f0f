//! Delays after failed requests of the engine.

use std::time::Duration;

use crate::model::{Backoff, Time};

const FIRST_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// When a request that failed may be sent again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct RetryTimer {
    backoff: Backoff,
    until: Option<Time>,
}

impl Default for RetryTimer {
    fn default() -> Self {
        Self { backoff: Backoff::new(FIRST_DELAY, MAX_DELAY), until: None }
    }
}

impl RetryTimer {
    /// Starts the next delay.
    pub(in crate::engine) fn fail(&mut self, now: Time) {
        self.until = Some(now.after(self.backoff.fail()));
    }

    /// Ends the delay and starts again at the first one.
    pub(in crate::engine) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// Forgets a delay that is over, so that it sets no timer again. The number of failures stays.
    pub(in crate::engine) fn pass(&mut self, now: Time) {
        if self.waits(now).is_none() {
            self.until = None;
        }
    }

    /// The end of the delay, also when it is in the past.
    pub(in crate::engine) fn until(&self) -> Option<Time> {
        self.until
    }

    /// The end of the delay, if it is in the future. An end further away than `MAX_DELAY` comes from a clock
    /// that jumped back and is ignored.
    pub(in crate::engine) fn waits(&self, now: Time) -> Option<Time> {
        self.until.filter(|until| *until > now && until.since(now) <= MAX_DELAY)
    }
}
