//! The `Gang` object: created with the first member, written when there is news, deleted with the last
//! member. Every write is a compare-and-swap, and at most one request per gang has no answer.

use std::time::Duration;

use crate::engine::gang_state::{GangObject, GangObjectRequest, PendingStatus, StatusDigest};
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::protocol::{GangStatus, Phase, RequestOutcome};
use crate::engine::{Action, Engine, StepContext};
use crate::model::{GangId, Reason, Time, str};

/// A status that differs only in numbers waits this many quiet periods.
const NUMBERS_QUIET_PERIODS: u32 = 4;
/// A change of numbers waits at least this many quiet periods after the last write, so that a job that ends
/// pod by pod does not cost a write for each. A gang that is being lifted waits as long: its plan is written,
/// and the result soon will be.
const MIN_QUIET_PERIODS_BETWEEN_WRITES: u32 = 20;
/// Lower bound of the wait for each timer of the engine: at most twenty gangs are written each second.
const WRITE_INTERVAL_PER_TIMER: Duration = Duration::from_millis(50);
/// A gang that keeps gathering is written after this many times the wait.
const MAX_GATHERING_WAITS: u32 = 4;

impl Engine {
    /// Sends the next request about the object of a gang, if one is due.
    pub(in crate::engine) fn drive_gang_object(&mut self, id: &GangId, step: &mut StepContext) {
        let Some(gang) = self.expect_gang(id) else { return };
        if gang.record.request.is_some() || gang.record.backoff.waits(step.now).is_some() {
            return;
        }
        let empty = gang.members.is_empty();
        let (request, action) = match &gang.record.object {
            _ if gang.record.must_read => (GangObjectRequest::Read, Action::ReadGang { gang: id.clone() }),
            GangObject::Absent if empty => return self.forget_if_empty(id, step.now),
            GangObject::Absent => {
                let owner = self.group(id).and_then(crate::dialect::Group::object_ref);
                (GangObjectRequest::Create, Action::CreateGang { gang: id.clone(), owner })
            }
            GangObject::Known(version, _) if empty => {
                (GangObjectRequest::Delete, Action::DeleteGang { gang: id.clone(), expected: *version })
            }
            GangObject::Known(version, stored) => {
                let (expected, stored) = (*version, stored.clone());
                let wanted = self.wanted_status(id, &stored, step.now);
                if !self.should_write_status(id, &stored, &wanted, step) {
                    return;
                }
                self.record_status_events(id, &stored, &wanted, step);
                if let Some(gang) = self.gangs.get_mut(id) {
                    gang.timers.last_status_write = Some(step.now);
                }
                let status = GangStatus { epoch: step.epoch, ..wanted };
                (GangObjectRequest::Write, Action::WriteGang { gang: id.clone(), expected, status })
            }
        };
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.record.request = Some(request);
        }
        step.send(action);
    }

    /// Whether the status is written now. Decisions are written at once. The status of a gathering or waiting
    /// gang is written after it was stable for a while, later if only numbers differ, and later the more
    /// gangs there are.
    fn should_write_status(
        &mut self,
        id: &GangId,
        stored: &GangStatus,
        wanted: &GangStatus,
        step: &StepContext,
    ) -> bool {
        let quiet = self.settings.quiet;
        let crowd =
            WRITE_INTERVAL_PER_TIMER.saturating_mul(u32::try_from(self.timers.len()).unwrap_or(u32::MAX));
        let Some(gang) = self.expect_gang_mut(id) else { return false };
        if stored == wanted {
            gang.reported.pending_status = None;
            return false;
        }
        let ends = wanted.phase != stored.phase && matches!(wanted.phase, Phase::Admitted | Phase::Torn);
        // The members are created one after the other, and all existing ones are bound.
        let reserving = wanted.reason == Some(Reason::Reserved) && wanted.bound == wanted.members;
        let ends = ends || (reserving && stored.reason != wanted.reason);
        // The next leader must know that members have succeeded, or that fewer are needed, also after their
        // pods are gone.
        let ending = wanted.started_with < stored.started_with;
        let decisive = wanted.plan != stored.plan || wanted.expired != stored.expired || ends || ending;
        if decisive || quiet.is_zero() {
            gang.reported.pending_status = None;
            return true;
        }
        let digest = StatusDigest::of(wanted);
        let written = gang.timers.last_status_write;
        let rest = |interval: Duration| {
            written.map_or(Duration::ZERO, |at| interval.saturating_sub(step.now.since(at)))
        };
        let wait = match wanted.phase {
            Phase::Planned | Phase::Lifting => quiet * MIN_QUIET_PERIODS_BETWEEN_WRITES,
            _ if digest == StatusDigest::of(stored) => {
                (quiet * NUMBERS_QUIET_PERIODS).max(rest(crowd.max(quiet * MIN_QUIET_PERIODS_BETWEEN_WRITES)))
            }
            _ => quiet.max(rest(crowd)),
        };
        let (since, wait) = match &gang.reported.pending_status {
            Some(pending) if pending.digest == digest => (pending.since, pending.wait),
            // Another member has arrived: write when no more arrive, or after a long time.
            Some(pending) if pending.digest.differs_only_in_members(&digest) => {
                let longest = pending.wait.max(wait * MAX_GATHERING_WAITS);
                (pending.since, longest.min(step.now.since(pending.since).saturating_add(wait)))
            }
            _ => (step.now, wait),
        };
        if step.now.since(since) >= wait || step.now < since {
            gang.reported.pending_status = None;
            return true;
        }
        gang.reported.pending_status = Some(PendingStatus { digest, since, wait });
        false
    }

    pub(in crate::engine) fn handle_gang_answer(
        &mut self,
        id: &GangId,
        outcome: RequestOutcome,
        step: &mut StepContext,
    ) {
        let Some(gang) = self.expect_gang_mut(id) else { return };
        let request = gang.record.request.take();
        self.expect(request.is_some(), "each request about a Gang object has one answer");
        let (Some(request), Some(gang)) = (request, self.gangs.get_mut(id)) else { return };
        step.touched.insert(id.clone());
        match (request, outcome) {
            (
                GangObjectRequest::Delete | GangObjectRequest::Write | GangObjectRequest::Read,
                RequestOutcome::Gone,
            ) => {
                gang.record.backoff.succeed();
                gang.record.must_read = false;
                self.remove_gang_object(id, step);
            }
            (_, RequestOutcome::Gang(record)) => {
                gang.record.backoff.succeed();
                gang.record.must_read = false;
                gang.record.api_error = None;
                self.observe_gang_object(*record, step);
            }
            (_, RequestOutcome::Conflict) => gang.record.must_read = true,
            // A write without an answer may still be applied. The next compare-and-swap, or this read,
            // notices it.
            (_, RequestOutcome::Unknown) => {
                gang.record.must_read = true;
                gang.record.backoff.fail(step.now);
            }
            (_, outcome) => {
                if let RequestOutcome::Refused(message) = outcome {
                    gang.record.api_error = Some(str(message));
                }
                gang.record.backoff.fail(step.now);
            }
        }
    }

    /// Sets the timer of a gang to the earliest time at which time alone changes something for it.
    pub(in crate::engine) fn set_timer(&mut self, id: &GangId, now: Time) {
        let Some(gang) = self.expect_gang(id) else { return };
        let backoffs = gang.members.iter().filter_map(|uid| self.members.get(uid)?.backoff.waits(now));
        let torn = match &gang.lifecycle.progress {
            Progress::Recorded(plan)
                if plan
                    .members
                    .iter()
                    .any(|m| self.members.get(&m.uid).is_some_and(|m| m.unbound() || m.pod.gated())) =>
            {
                if now > plan.deadline {
                    gang.timers
                        .last_eviction
                        .map(|at| at.after(super::plan_execution::EVICTION_RETRY_INTERVAL))
                } else {
                    Some(plan.deadline.after(Duration::from_millis(1)))
                }
            }
            _ => None,
        };
        // A pending status can be written once no request is unanswered and no delay is left. An answer sets
        // the timer again.
        let blocked = gang.record.backoff.waits(now).unwrap_or_default();
        let pending = (gang.reported.pending_status.as_ref().filter(|_| gang.record.request.is_none()))
            .map(|pending| pending.since.after(pending.wait).max(blocked));
        let held = gang.lifecycle.progress.plan().and_then(|plan| plan.reserved_until);
        let held = held.map(|until| until.after(Duration::from_millis(1)));
        let timeout = gang.lifecycle.timeout.map(|timeout| timeout.next_expiry);
        let grace = gang.lifecycle.stale.filter(|stale| !stale.event_recorded);
        let grace = grace.map(|stale| stale.since.after(self.stale_grace(id)));
        let going = !gang.lifecycle.expired.is_empty()
            || gang.lifecycle.stale.is_some_and(|stale| stale.event_recorded);
        let going = gang
            .timers
            .last_eviction
            .filter(|_| going)
            .map(|at| at.after(crate::engine::queue::timeout::DELETION_RETRY_INTERVAL));
        let again = gang
            .timers
            .last_planned
            .filter(|_| gang.queueing.rank.is_some())
            .map(|at| at.after(self.queue.replan_interval()));
        // A time in the past needs no timer: its action is done, or happens with the event that unblocks it.
        let owners = self.next_owner_read(id, now);
        let life = timeout.into_iter().chain(held).chain(grace).chain(going).filter(|at| *at > now);
        let next = backoffs
            .chain(torn)
            .chain(pending)
            .chain(again)
            .chain(gang.record.backoff.waits(now))
            .chain(life)
            .chain(owners)
            .min();
        if next != gang.timers.next {
            if let Some(at) = gang.timers.next {
                self.timers.remove(&(at, id.clone()));
            }
            if let Some(at) = next {
                self.timers.insert((at, id.clone()));
            }
            if let Some(gang) = self.gangs.get_mut(id) {
                gang.timers.next = next;
            }
        }
    }
}
