//! What the engine knows of its writes of a group object's status.

use std::time::Duration;

use crate::dialect::{GroupPhase, GroupStatus};
use crate::model::{Backoff, Str, Time};

/// Delay after the first refusal.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The delay doubles with each further refusal up to this limit.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1280);

/// The state of one group status.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct GroupStatusSync {
    /// The last accepted write, with the UID of the group.
    pub last_written: Option<(Str, GroupStatus)>,
    /// The write without an answer.
    pub sent: Option<(Str, GroupStatus)>,
    /// The time of the next write, with the phase and reason that it will report.
    pub due: Option<(Time, GroupPhase, &'static str)>,
    /// No write before this time, after a refusal.
    pub not_before: Time,
    /// Delay after refusals.
    pub backoff: Backoff,
}

impl Default for GroupStatusSync {
    fn default() -> Self {
        Self {
            last_written: None,
            sent: None,
            due: None,
            not_before: Time::default(),
            backoff: Backoff::new(FIRST_RETRY_DELAY, MAX_RETRY_DELAY),
        }
    }
}
