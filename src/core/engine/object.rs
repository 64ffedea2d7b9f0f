//! Our own `Gang` object: created with the first member, written when it has something new to say, deleted with the
//! last member. Every write is a compare-and-swap; at most one is under way for each gang.

use std::time::Duration;

use super::state::{GangRequest, Gist, Object, Pending, Progress};
use super::types::{GangStatus, Phase, RequestOutcome};
use super::{Action, Engine, Step};
use crate::model::{GangId, Reason, Time, str};

/// How much longer a status that differs by numbers only waits.
const NUMBERS: u32 = 4;
/// And how long after the last write, so that a job that ends pod by pod does not cost a write for each. Gates that are on
/// their way wait as long: the plan is written, and the end of it soon will be.
const SELDOM: u32 = 20;
/// However many gangs gather and wait, no more than twenty of them are written each second.
const EACH: Duration = Duration::from_millis(50);
/// A gang that keeps on gathering is written all the same after this many times the wait.
const PATIENCE: u32 = 4;

impl Engine {
    /// Sends the next request about the object of a gang, if there is one to send.
    pub(super) fn drive_object(&mut self, id: &GangId, step: &mut Step) {
        let Some(gang) = self.gangs.get(id) else { return };
        if gang.request.is_some() || gang.backoff.waits(step.now).is_some() {
            return;
        }
        let empty = gang.members.is_empty();
        let (request, action) = match &gang.object {
            _ if gang.must_read => (GangRequest::Read, Action::ReadGang { gang: id.clone() }),
            Object::Absent if empty => return self.forget_if_empty(id, step.now),
            Object::Absent => {
                let owner = self.group(id).and_then(crate::dialect::Group::object_ref);
                (GangRequest::Create, Action::CreateGang { gang: id.clone(), owner })
            }
            Object::Known(version, _) if empty => {
                (GangRequest::Delete, Action::DeleteGang { gang: id.clone(), expected: *version })
            }
            Object::Known(version, stored) => {
                let (expected, stored) = (*version, stored.clone());
                let wanted = self.wanted_status(id, &stored, step.now);
                if !self.worth_writing(id, &stored, &wanted, step) {
                    return;
                }
                self.tell_news(id, &stored, &wanted, step);
                if let Some(gang) = self.gangs.get_mut(id) {
                    gang.written = Some(step.now);
                }
                let status = GangStatus { epoch: step.epoch, ..wanted };
                (GangRequest::Write, Action::WriteGang { gang: id.clone(), expected, status })
            }
        };
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.request = Some(request);
        }
        step.send(action);
    }

    /// Decisions are written at once. A gathering or waiting gang is written when it has looked the same for a while, and
    /// where only numbers in it differ a little later; the more of them there are, the more seldom each.
    fn worth_writing(&mut self, id: &GangId, stored: &GangStatus, wanted: &GangStatus, step: &Step) -> bool {
        let quiet = self.settings.quiet;
        let crowd = EACH.saturating_mul(u32::try_from(self.alarms.len()).unwrap_or(u32::MAX));
        let Some(gang) = self.gangs.get_mut(id) else { return false };
        if stored == wanted {
            gang.pending = None;
            return false;
        }
        let ends = wanted.phase != stored.phase && matches!(wanted.phase, Phase::Admitted | Phase::Torn);
        // Its members come one after the other, and all that are here are on their nodes.
        let coming = wanted.reason == Some(Reason::Reserved) && wanted.bound == wanted.members;
        let ends = ends || (coming && stored.reason != wanted.reason);
        // That it has ended well in part, or needs fewer members, has to be known to whoever leads when they are gone.
        let ending = wanted.started_with < stored.started_with;
        let decisive = wanted.plan != stored.plan || wanted.expired != stored.expired || ends || ending;
        if decisive || quiet.is_zero() {
            gang.pending = None;
            return true;
        }
        let gist = Gist::of(wanted);
        let written = gang.written;
        let rest = |interval: Duration| {
            written.map_or(Duration::ZERO, |at| interval.saturating_sub(step.now.since(at)))
        };
        let wait = match wanted.phase {
            Phase::Planned | Phase::Lifting => quiet * SELDOM,
            _ if gist == Gist::of(stored) => (quiet * NUMBERS).max(rest(crowd.max(quiet * SELDOM))),
            _ => quiet.max(rest(crowd)),
        };
        let (since, wait) = match &gang.pending {
            Some(pending) if pending.gist == gist => (pending.since, pending.wait),
            // One more is there: when they stop coming, or when it has gone on for long.
            Some(pending) if pending.gist.differs_by_who_is_here(&gist) => {
                let longest = pending.wait.max(wait * PATIENCE);
                (pending.since, longest.min(step.now.since(pending.since).saturating_add(wait)))
            }
            _ => (step.now, wait),
        };
        if step.now.since(since) >= wait || step.now < since {
            gang.pending = None;
            return true;
        }
        gang.pending = Some(Pending { gist, since, wait });
        false
    }

    pub(super) fn gang_answered(&mut self, id: &GangId, outcome: RequestOutcome, step: &mut Step) {
        let Some(gang) = self.gangs.get_mut(id) else { return };
        let Some(request) = gang.request.take() else { return };
        step.touched.insert(id.clone());
        match (request, outcome) {
            (GangRequest::Delete | GangRequest::Write | GangRequest::Read, RequestOutcome::Gone) => {
                gang.backoff.succeed();
                gang.must_read = false;
                self.gang_gone(id, step);
            }
            (_, RequestOutcome::Gang(record)) => {
                gang.backoff.succeed();
                gang.must_read = false;
                gang.trouble = None;
                self.gang_seen(*record, step);
            }
            (_, RequestOutcome::Conflict) => gang.must_read = true,
            // A write without an answer may still land: the next compare-and-swap, or this read, meets it.
            (_, RequestOutcome::Unknown) => {
                gang.must_read = true;
                gang.backoff.fail(step.now);
            }
            (_, outcome) => {
                if let RequestOutcome::Refused(message) = outcome {
                    gang.trouble = Some(str(message));
                }
                gang.backoff.fail(step.now);
            }
        }
    }

    /// Sets the alarm of a gang to the first moment at which time alone changes something for it.
    pub(super) fn set_alarm(&mut self, id: &GangId, now: Time) {
        let Some(gang) = self.gangs.get(id) else { return };
        let backoffs = gang.members.iter().filter_map(|uid| self.members.get(uid)?.backoff.waits(now));
        let torn = match &gang.progress {
            Progress::Recorded(plan)
                if plan
                    .members
                    .iter()
                    .any(|m| self.members.get(&m.uid).is_some_and(|m| m.unbound() || m.pod.gated())) =>
            {
                if now > plan.deadline {
                    gang.evicted.map(|at| at.after(Duration::from_secs(5)))
                } else {
                    Some(plan.deadline.after(Duration::from_millis(1)))
                }
            }
            _ => None,
        };
        // What is waiting to be written can be written when nothing stands in its way: an answer calls here again.
        let blocked = gang.backoff.waits(now).unwrap_or_default();
        let pending = (gang.pending.as_ref().filter(|_| gang.request.is_none()))
            .map(|pending| pending.since.after(pending.wait).max(blocked));
        let held = gang.progress.plan().and_then(|plan| plan.reserved_until);
        let held = held.map(|until| until.after(Duration::from_millis(1)));
        let lapse = gang.lapse.map(|lapse| lapse.next);
        let grace = gang.stale.filter(|stale| !stale.told);
        let grace = grace.map(|stale| stale.since.after(self.stale_grace(id)));
        let going = !gang.expired.is_empty() || gang.stale.is_some_and(|stale| stale.told);
        let going = gang.evicted.filter(|_| going).map(|at| at.after(super::timeout::DELETE_AGAIN));
        let again = gang.looked.filter(|_| gang.rank.is_some()).map(|at| at.after(self.queue.look_again()));
        // What is over has been done, or is done when what stands in its way is.
        let owners = self.ask_again_at(id, now);
        let life = lapse.into_iter().chain(held).chain(grace).chain(going).filter(|at| *at > now);
        let alarm = backoffs
            .chain(torn)
            .chain(pending)
            .chain(again)
            .chain(gang.backoff.waits(now))
            .chain(life)
            .chain(owners)
            .min();
        if alarm != gang.alarm {
            if let Some(at) = gang.alarm {
                self.alarms.remove(&(at, id.clone()));
            }
            if let Some(at) = alarm {
                self.alarms.insert((at, id.clone()));
            }
            if let Some(gang) = self.gangs.get_mut(id) {
                gang.alarm = alarm;
            }
        }
    }
}
