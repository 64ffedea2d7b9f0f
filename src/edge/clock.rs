//! Monotonic time as a value.

use std::time::Duration;

/// A point on a monotonic clock, as the time since an arbitrary start. Points of two processes cannot be
/// compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(pub Duration);

impl Monotonic {
    /// The time that has passed since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The point `delay` after this one.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(delay))
    }
}
