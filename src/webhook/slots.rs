//! Limits how many reviews are evaluated at once and how many requests wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::refusal::Refusal;

/// A bounded number of review slots with a bounded queue before them.
pub(super) struct ReviewSlots {
    running: Arc<Semaphore>,
    waiting: Semaphore,
    max_wait: Duration,
}

impl ReviewSlots {
    pub(super) fn new(max_concurrent: usize, max_waiting: usize, max_wait: Duration) -> Self {
        Self {
            running: Arc::new(Semaphore::new(max_concurrent.max(1))),
            waiting: Semaphore::new(max_waiting),
            max_wait,
        }
    }

    /// Waits for a slot. Refuses after `max_wait`, before the deadline: the API server then has time to retry
    /// with another replica.
    pub(super) async fn acquire(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Refusal> {
        if let Ok(slot) = Arc::clone(&self.running).try_acquire_owned() {
            return Ok(slot);
        }
        let Ok(_in_queue) = self.waiting.try_acquire() else { return Err(Refusal::QueueFull) };
        let wait_until = Instant::now() + self.max_wait;
        match timeout_at(wait_until.min(deadline), Arc::clone(&self.running).acquire_owned()).await {
            Ok(slot) => Ok(slot.expect("the semaphore is never closed")),
            Err(_) if deadline <= wait_until => {
                Err(Refusal::DeadlinePassed { during: "it waited for a review slot" })
            }
            Err(_) => Err(Refusal::WaitedTooLong { waited: self.max_wait }),
        }
    }
}
