//! The `Gang` object: created with the first member, written when there is news, deleted with the last
//! member. Every write is a compare-and-swap, and at most one request per gang has no answer.

use std::time::Duration;

use crate::engine::Engine;
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::protocol::plan_review::EVICTION_RETRY_INTERVAL;
use crate::engine::protocol::{Action, Change, GangRecord, GangStatus, Phase, RequestOutcome};
use crate::engine::queue::timeout::DELETION_RETRY_INTERVAL;
use crate::engine::state::{
    Effects, EngineView, Gang, GangObject, GangObjectRequest, ObjectSync, PendingStatus, RetrySlots,
    StatusDigest, StepContext,
};
use crate::model::{GangId, Reason, Time, str};

/// A status that differs only in numbers waits this many times
/// [`crate::engine::EngineSettings::status_delay`].
const NUMBERS_STATUS_DELAYS: u32 = 4;
/// A change of numbers waits at least this many status delays after the last write, so that a job that ends
/// pod by pod does not cost a write for each. A gang that is being lifted waits as long: its plan is written,
/// and the result soon will be.
const MIN_STATUS_DELAYS_BETWEEN_WRITES: u32 = 20;
/// Lower bound of the wait for each timer of the engine: at most twenty gangs are written each second.
const WRITE_INTERVAL_PER_TIMER: Duration = Duration::from_millis(50);
/// A gang that keeps gathering is written after this many times the wait.
const MAX_GATHERING_WAITS: u32 = 4;

impl Gang {
    /// Sends the next request about the object of the gang, if one is due. Returns false if there is no
    /// object and no member any more.
    pub(in crate::engine) fn drive_object(&mut self, view: &EngineView<'_>, effects: &mut Effects) -> bool {
        if self.record.request.is_some() || self.record.retry.waits(view.now).is_some() {
            return true;
        }
        let gang = self.id.clone();
        let empty = self.members.is_empty();
        let (request, action) = match &self.record.object {
            _ if self.record.must_read => (GangObjectRequest::Read, Action::ReadGang { gang }),
            GangObject::Absent if empty => return false,
            GangObject::Absent => {
                let owner = self.group(view).and_then(crate::dialect::Group::object_ref);
                (GangObjectRequest::Create, Action::CreateGang { gang, owner })
            }
            GangObject::Known(version, _) if empty => {
                (GangObjectRequest::Delete, Action::DeleteGang { gang, expected: *version })
            }
            GangObject::Known(version, stored) => {
                let (expected, stored) = (*version, stored.clone());
                let wanted = self.wanted_status(&stored, view);
                if !self.should_write_status(&stored, &wanted, view) {
                    return true;
                }
                self.record_status_events(&stored, &wanted, view, effects);
                self.timers.last_status_write = Some(view.now);
                let status = GangStatus { epoch: view.epoch, ..wanted };
                (GangObjectRequest::Write, Action::WriteGang { gang, expected, status })
            }
        };
        self.record.request = Some(request);
        effects.send(action);
        true
    }

    /// Whether nothing is left of the gang: no member, no object, no unanswered request.
    pub(in crate::engine) fn is_forgettable(&self) -> bool {
        self.members.is_empty()
            && self.record.object == GangObject::Absent
            && self.record.request.is_none()
            && !self.record.must_read
            && !self.elastic_state.as_ref().is_some_and(|elastic_state| elastic_state.is_reading())
    }

    /// Whether the status is written now. Decisions are written at once. The status of a gathering or waiting
    /// gang is written after it was stable for a while, later if only numbers differ, and later the more
    /// gangs there are.
    fn should_write_status(
        &mut self,
        stored: &GangStatus,
        wanted: &GangStatus,
        view: &EngineView<'_>,
    ) -> bool {
        if stored == wanted {
            self.reported.pending_status = None;
            return false;
        }
        if view.settings.status_delay.is_zero() || is_decisive(stored, wanted) {
            self.reported.pending_status = None;
            return true;
        }
        let digest = StatusDigest::of(wanted);
        let wait = self.status_wait(&digest, stored, wanted, view);
        let (since, wait) = match &self.reported.pending_status {
            Some(pending) if pending.digest == digest => (pending.since, pending.wait),
            // Another member has arrived: write when no more arrive, or after a long time.
            Some(pending) if pending.digest.differs_only_in_members(&digest) => {
                let longest = pending.wait.max(wait * MAX_GATHERING_WAITS);
                (pending.since, longest.min(view.now.since(pending.since).saturating_add(wait)))
            }
            _ => (view.now, wait),
        };
        if view.now.since(since) >= wait || view.now < since {
            self.reported.pending_status = None;
            return true;
        }
        self.reported.pending_status = Some(PendingStatus { digest, since, wait });
        false
    }

    /// How long a status that decides nothing has to be stable before it is written.
    fn status_wait(
        &self,
        digest: &StatusDigest,
        stored: &GangStatus,
        wanted: &GangStatus,
        view: &EngineView<'_>,
    ) -> Duration {
        let delay = view.settings.status_delay;
        let crowd = WRITE_INTERVAL_PER_TIMER.saturating_mul(view.timers);
        let rest = |interval: Duration| {
            let written = self.timers.last_status_write;
            written.map_or(Duration::ZERO, |at| interval.saturating_sub(view.now.since(at)))
        };
        match wanted.phase {
            Phase::Planned | Phase::Lifting => delay * MIN_STATUS_DELAYS_BETWEEN_WRITES,
            _ if *digest == StatusDigest::of(stored) => {
                let between_writes = crowd.max(delay * MIN_STATUS_DELAYS_BETWEEN_WRITES);
                (delay * NUMBERS_STATUS_DELAYS).max(rest(between_writes))
            }
            _ => delay.max(rest(crowd)),
        }
    }

    /// The earliest time at which time alone changes something for the gang.
    pub(in crate::engine) fn next_timer(&self, view: &EngineView<'_>) -> Option<Time> {
        let now = view.now;
        let retries = self.members.values().filter_map(|member| member.retry.waits(now));
        // A pending status can be written once no request is unanswered and no delay is left. An answer sets
        // the timer again.
        let retry = self.record.retry.waits(now);
        let pending = (self.reported.pending_status.as_ref().filter(|_| self.record.request.is_none()))
            .map(|pending| pending.since.after(pending.wait).max(retry.unwrap_or_default()));
        let last_planned = self.timers.last_planned.filter(|_| self.queueing.rank.is_some());
        let replan = last_planned.map(|at| at.after(view.queue.replan_interval()));
        // A time in the past needs no timer: its action is done, or happens with the event that unblocks it.
        let life = self.lifecycle_timers(view).into_iter().flatten().filter(|at| *at > now);
        retries
            .chain(self.torn_timer(now))
            .chain(self.next_torn_retry(view).filter(|at| *at > now))
            .chain(pending)
            .chain(replan)
            .chain(retry)
            .chain(self.lifecycle.lift_retry.waits(now))
            .chain(life)
            .chain(self.next_owner_read(view))
            .min()
    }

    /// When the gang is torn, or its torn members are evicted again.
    fn torn_timer(&self, now: Time) -> Option<Time> {
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return None };
        if !self.present(plan).any(|(_, member)| member.unbound() || member.pod.gated()) {
            return None;
        }
        if now > plan.deadline {
            self.timers.last_eviction.map(|at| at.after(EVICTION_RETRY_INTERVAL))
        } else {
            Some(plan.deadline.after(Duration::from_millis(1)))
        }
    }

    /// The ends of the start timeout, of the reservations, of the grace periods of a stale gang and of its
    /// pods, and of the pause between deletions.
    fn lifecycle_timers(&self, view: &EngineView<'_>) -> [Option<Time>; 5] {
        let lifecycle = &self.lifecycle;
        let timeout = lifecycle.timeout.map(|timeout| timeout.next_expiry);
        let reserved_until = self.plan().and_then(|plan| plan.reserved_until);
        let reservation = reserved_until.map(|until| until.after(Duration::from_millis(1)));
        let grace = lifecycle.stale.filter(|stale| !stale.event_recorded);
        let grace = grace.map(|stale| stale.since.after(self.stale_grace(view)));
        let deletes =
            !lifecycle.expired.is_empty() || lifecycle.stale.is_some_and(|stale| stale.event_recorded);
        let last_eviction = self.timers.last_eviction.filter(|_| deletes);
        let deletion = last_eviction.map(|at| at.after(DELETION_RETRY_INTERVAL));
        [timeout, reservation, grace, self.grace_end(view), deletion]
    }
}

/// Whether a status holds a decision, or something that the next leader must know.
fn is_decisive(stored: &GangStatus, wanted: &GangStatus) -> bool {
    let ends = wanted.phase != stored.phase && matches!(wanted.phase, Phase::Admitted | Phase::Torn);
    // The members are created one after the other, and all existing ones are bound.
    let reserving = wanted.reason == Some(Reason::Reserved) && wanted.bound == wanted.members;
    // The next leader must know that members have succeeded, or that fewer are needed, also after their pods
    // are gone.
    let ending = wanted.started_with < stored.started_with;
    wanted.plan != stored.plan
        || wanted.expired != stored.expired
        || wanted.torn != stored.torn
        || ends
        || (reserving && stored.reason != wanted.reason)
        || ending
}

impl ObjectSync {
    /// Takes in the answer to the request. Returns what it says about the object, if anything.
    fn settle(
        &mut self,
        outcome: RequestOutcome,
        now: Time,
        slots: &mut RetrySlots,
    ) -> Option<Change<GangRecord, ()>> {
        match (self.request.take()?, outcome) {
            (
                GangObjectRequest::Delete | GangObjectRequest::Write | GangObjectRequest::Read,
                RequestOutcome::Gone,
            ) => {
                self.retry.succeed();
                self.must_read = false;
                return Some(Change::Gone(()));
            }
            (request, RequestOutcome::Gang(record)) => {
                // A read that succeeds says nothing about a write that was refused.
                if request != GangObjectRequest::Read {
                    self.retry.succeed();
                }
                self.must_read = false;
                self.api_error = None;
                return Some(Change::Set(*record));
            }
            (_, RequestOutcome::Conflict) => self.must_read = true,
            // A write without an answer may still be applied. The next compare-and-swap, or this read,
            // notices it.
            (_, RequestOutcome::Unknown) => {
                self.must_read = true;
                self.retry.fail(now);
            }
            (_, RequestOutcome::Refused(refusal)) => {
                self.api_error = Some(str(refusal.to_string()));
                self.retry.refuse(now, slots);
            }
            (_, outcome) => {
                if let RequestOutcome::Failed(message) = outcome {
                    self.api_error = Some(str(message));
                }
                self.retry.fail(now);
            }
        }
        None
    }
}

impl Engine {
    /// Takes in the answer to a request about the object of a gang.
    pub(in crate::engine) fn handle_gang_answer(
        &mut self,
        id: &GangId,
        outcome: RequestOutcome,
        step: &mut StepContext,
    ) {
        let Some(gang) = self.expect_gang(id) else { return };
        let asked = gang.record.request.is_some();
        self.violations.check(asked, "each request about a Gang object has one answer");
        let Some(gang) = self.gangs.get_mut(id).filter(|_| asked) else { return };
        step.touch(id);
        match gang.record.settle(outcome, step.now, &mut self.retry_slots) {
            Some(Change::Set(record)) => self.observe_gang_object(record, step),
            Some(Change::Gone(())) => self.remove_gang_object(id, step),
            None => {}
        }
    }

    /// Sets the timer of a gang to the earliest time at which time alone changes something for it.
    pub(in crate::engine) fn set_timer(&mut self, id: &GangId, now: Time) {
        let Some((gang, view)) = self.gang_and_view(id, now) else { return };
        let next = gang.next_timer(&view);
        let before = std::mem::replace(&mut gang.timers.next, next);
        if next == before {
            return;
        }
        if let Some(at) = before {
            self.timers.remove(&(at, id.clone()));
        }
        if let Some(at) = next {
            self.timers.insert((at, id.clone()));
        }
    }
}
