//! The slow lane: long reviews run on low-priority threads of their own.
//!
//! Invariant: the number of concurrent slow reviews is bounded, and none of them holds a slot of the fast
//! lane.

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::refusal::Refusal;
use super::slots::ReviewSlots;
use crate::background::spawn_background;

/// Runs long reviews on threads with the lowest CPU priority.
pub(super) struct SlowLane {
    slots: ReviewSlots,
}

impl SlowLane {
    pub(super) fn new(slots: ReviewSlots) -> Self {
        Self { slots }
    }

    /// Runs `work` on a thread of its own and waits for its result until the deadline. `work` must not panic.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let slot = self.slots.acquire(deadline).await?;
        let (sender, result) = oneshot::channel();
        // Starting a thread takes a hundredth of the time of a slow review, so there is no thread pool.
        let spawned = spawn_background("portcullis-slow", move || {
            // The receiver is gone if the deadline has passed.
            let _ = sender.send(work());
            drop(slot);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "starting a thread for a slow review failed");
            return Err(Refusal::QueueFull);
        }
        match timeout_at(deadline, result).await {
            Ok(result) => result.map_err(|_| Refusal::Panicked),
            Err(_) => Err(Refusal::DeadlinePassed { during: "its policies were evaluated" }),
        }
    }
}
