//! Reviews that take long: on threads of their own, which let others go first.
//!
//! Invariant: how many there are at once is bounded; none of them holds a place that a quick review needs.

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::refusal::Refusal;
use super::slots::Slots;
use crate::background::background;

/// Where reviews go that take long.
pub(super) struct SlowLane {
    slots: Slots,
}

impl SlowLane {
    pub(super) fn new(slots: Slots) -> Self {
        Self { slots }
    }

    /// Does what takes long. It must not panic.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = self.slots.take(deadline).await?;
        let (done, outcome) = oneshot::channel();
        // A thread is made in a hundredth of the time that makes a review long.
        let begun = background("portcullis-long", move || {
            // Nobody listens any more when the deadline has passed.
            let _ = done.send(work());
            drop(place);
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "there is no thread to be had for a review that takes long");
            return Err(Refusal::QueueFull);
        }
        match timeout_at(deadline, outcome).await {
            Ok(outcome) => outcome.map_err(|_| Refusal::Panicked),
            Err(_) => Err(Refusal::DeadlinePassed { doing: "its policies were evaluated" }),
        }
    }
}
