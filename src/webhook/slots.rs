//! How many reviews are judged at once, and who waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::refusal::Refusal;

/// Bounded places to judge, and a bounded queue before them.
pub(super) struct Slots {
    judging: Arc<Semaphore>,
    waiting: Semaphore,
    max_wait: Duration,
}

impl Slots {
    pub(super) fn new(max_concurrent: usize, max_waiting: usize, max_wait: Duration) -> Self {
        Self {
            judging: Arc::new(Semaphore::new(max_concurrent.max(1))),
            waiting: Semaphore::new(max_waiting),
            max_wait,
        }
    }

    /// Waits for a place. Sent away early rather than late: while there is time left, the API server asks another
    /// replica.
    pub(super) async fn take(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Refusal> {
        if let Ok(place) = Arc::clone(&self.judging).try_acquire_owned() {
            return Ok(place);
        }
        let Ok(_in_queue) = self.waiting.try_acquire() else { return Err(Refusal::QueueFull) };
        let patience = Instant::now() + self.max_wait;
        match timeout_at(patience.min(deadline), Arc::clone(&self.judging).acquire_owned()).await {
            Ok(place) => Ok(place.expect("the semaphore is never closed")),
            Err(_) if deadline <= patience => Err(Refusal::DeadlinePassed { doing: "waiting for its turn" }),
            Err(_) => Err(Refusal::WaitedTooLong { waited: self.max_wait }),
        }
    }
}
