//! Delays after requests of the engine that failed or were refused.
//!
//! A request that failed is sent again soon: the API server was overloaded, or restarts. A request that was
//! refused is refused again until a policy, a quota, a permission or the object changes. So its
//! delays are longer, and all refused requests together have the slots of [`RetrySlots`]. The slots also
//! keep requests that were refused at the same time from being sent again at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{Backoff, Time};

const FIRST_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(5);
const FIRST_REFUSED_DELAY: Duration = Duration::from_secs(1);
const MAX_REFUSED_DELAY: Duration = Duration::from_mins(5);

/// When a request that failed or was refused may be sent again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct RetryTimer {
    failures: Backoff,
    /// Set while a refusal is not followed by a success.
    refusals: Option<Box<Backoff>>,
    delay: Option<Delay>,
}

/// A delay. A time before its start comes from a clock that jumped back, and ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Delay {
    since: Time,
    until: Time,
}

impl Default for RetryTimer {
    fn default() -> Self {
        Self { failures: Backoff::new(FIRST_DELAY, MAX_DELAY), refusals: None, delay: None }
    }
}

impl RetryTimer {
    /// Starts the next delay after a failure.
    pub(in crate::engine) fn fail(&mut self, now: Time) {
        self.delay = Some(Delay { since: now, until: now.after(self.failures.fail()) });
    }

    /// Starts the next delay after a refusal. It ends in a slot of its own.
    pub(in crate::engine) fn refuse(&mut self, now: Time, slots: &mut RetrySlots) {
        let refusals = self.refusals.get_or_insert_with(Self::first_refusal);
        let until = slots.take(now.after(refusals.fail()), now);
        self.delay = Some(Delay { since: now, until });
    }

    /// Takes in that the object of the request has changed, so that the next answer may be another one. After
    /// a refusal, the request waits for the first delay again. An object that changes all the time is
    /// therefore no faster than that, and has no second slot.
    pub(in crate::engine) fn observe_change(&mut self, now: Time, slots: &mut RetrySlots) {
        let (Some(refusals), Some(delay)) = (&mut self.refusals, self.delay) else { return };
        refusals.reset();
        let earliest = now.after(FIRST_REFUSED_DELAY);
        if self.waits(now).is_some_and(|until| until > earliest) {
            slots.give_back(delay.until);
            self.delay = Some(Delay { since: now, until: slots.take(earliest, now) });
        }
    }

    /// Ends the delay and starts again at the first one.
    pub(in crate::engine) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// Forgets a delay that is over, so that it sets no timer again. The number of failures stays.
    pub(in crate::engine) fn pass(&mut self, now: Time) {
        if self.waits(now).is_none() {
            self.delay = None;
        }
    }

    /// The end of the delay, also when it is in the past.
    pub(in crate::engine) fn until(&self) -> Option<Time> {
        self.delay.map(|delay| delay.until)
    }

    /// The end of the delay, if it is in the future.
    pub(in crate::engine) fn waits(&self, now: Time) -> Option<Time> {
        self.delay.filter(|delay| delay.until > now && delay.since <= now).map(|delay| delay.until)
    }

    fn first_refusal() -> Box<Backoff> {
        Box::new(Backoff::new(FIRST_REFUSED_DELAY, MAX_REFUSED_DELAY))
    }
}

/// The most refused requests of all objects that are sent again in one second.
const SLOTS_PER_SECOND: u64 = 5;
const SLOT_MILLIS: u64 = 1000 / SLOTS_PER_SECOND;
const ALL_SLOTS: u8 = (1 << SLOTS_PER_SECOND) - 1;

/// The times at which refused requests are sent again, one request at each: at most [`SLOTS_PER_SECOND`] in
/// every second, however many objects are refused. An object holds at most one slot, so an object delays the
/// others by at most one slot each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct RetrySlots {
    /// The slots that are taken in each second, one bit each. Seconds without a taken slot are left out.
    taken: BTreeMap<u64, u8>,
}

impl RetrySlots {
    /// Takes the first free slot that does not start before `wanted`.
    pub(in crate::engine) fn take(&mut self, wanted: Time, now: Time) -> Time {
        while self.taken.first_key_value().is_some_and(|(second, _)| *second < now.0 / 1000) {
            self.taken.pop_first();
        }
        let first = wanted.0.div_ceil(SLOT_MILLIS);
        let (mut second, earlier) = (first / SLOTS_PER_SECOND, first % SLOTS_PER_SECOND);
        let mut free = ALL_SLOTS & (ALL_SLOTS << earlier);
        for (known, taken) in self.taken.range(second..) {
            if *known != second || free & !taken != 0 {
                break;
            }
            (second, free) = (second + 1, ALL_SLOTS);
        }
        let taken = self.taken.entry(second).or_default();
        let slot = (free & !*taken).trailing_zeros();
        *taken |= 1 << slot;
        Time(second * 1000 + u64::from(slot) * SLOT_MILLIS)
    }

    /// Gives a slot back that is not needed.
    fn give_back(&mut self, slot: Time) {
        let second = slot.0 / 1000;
        if let Some(taken) = self.taken.get_mut(&second) {
            *taken &= !(1 << (slot.0 % 1000 / SLOT_MILLIS));
            if *taken == 0 {
                self.taken.remove(&second);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    /// The seconds from `NOW` to the end of the delay.
    fn seconds(timer: &RetryTimer, from: Time) -> u64 {
        timer.waits(from).expect("the timer waits").since(from).as_secs()
    }

    #[test]
    fn a_refused_request_waits_from_one_second_to_five_minutes() {
        let (mut timer, mut slots, mut now) = (RetryTimer::default(), RetrySlots::default(), NOW);
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] {
            timer.refuse(now, &mut slots);
            assert_eq!(seconds(&timer, now), expected);
            now = timer.until().expect("the timer waits");
        }
        timer.succeed();
        timer.refuse(now, &mut slots);
        assert_eq!(seconds(&timer, now), 1);
    }

    #[test]
    fn a_change_of_the_object_starts_with_the_first_delay_again() {
        let (mut timer, mut slots, mut now) = (RetryTimer::default(), RetrySlots::default(), NOW);
        for _ in 0..8 {
            timer.refuse(now, &mut slots);
            now = timer.until().expect("the timer waits");
        }
        timer.refuse(now, &mut slots);
        assert_eq!(seconds(&timer, now), 256);
        timer.observe_change(now, &mut slots);
        assert_eq!(seconds(&timer, now), 1);
        let last = slots.taken.last_key_value().map(|(second, _)| second - now.0 / 1000);
        assert_eq!(last, Some(1), "the slot in 256 seconds is free again: {slots:?}");
        // The end of the delay does not move when the object changes all the time.
        let until = timer.until();
        for _ in 0..9 {
            now = now.after(Duration::from_millis(100));
            timer.observe_change(now, &mut slots);
        }
        assert_eq!(timer.until(), until);
    }

    #[test]
    fn each_second_has_five_slots() {
        let mut slots = RetrySlots::default();
        let wanted = NOW.after(Duration::from_millis(1));
        let taken: Vec<u64> = (0..12).map(|_| slots.take(wanted, NOW).0 - NOW.0).collect();
        assert_eq!(taken, [200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400]);
        slots.give_back(Time(NOW.0 + 600));
        slots.give_back(Time(NOW.0 + 1000));
        let taken: Vec<u64> = (0..3).map(|_| slots.take(wanted, NOW).0 - NOW.0).collect();
        assert_eq!(taken, [600, 1000, 2600]);
        slots.take(NOW.after(Duration::from_secs(20)), NOW.after(Duration::from_secs(20)));
        assert_eq!(slots.taken.len(), 1, "slots in the past are forgotten");
    }

    #[test]
    fn a_clock_that_jumps_back_ends_the_delay() {
        let (mut timer, mut slots) = (RetryTimer::default(), RetrySlots::default());
        timer.refuse(NOW, &mut slots);
        assert!(timer.waits(NOW).is_some());
        assert_eq!(timer.waits(Time(NOW.0 - 1)), None);
        timer.fail(NOW);
        assert_eq!(timer.waits(NOW), Some(NOW.after(FIRST_DELAY)));
        assert_eq!(timer.waits(Time(NOW.0 - 1)), None);
    }
}
