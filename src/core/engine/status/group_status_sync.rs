//! Writes the status of the group object, best effort. No other part of the engine depends on it.
//!
//! The status follows the `Gang` object after that has been stable for a while, so that a gang that gathers
//! and lifts at once costs one write, after it is admitted. Writes wait while gates are being lifted. The
//! sync is level-triggered: it compares the stored status with the wanted one, so a lost write is repeated.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::dialect::{self, Group, GroupPhase, GroupStatus, StoredStatus};
use crate::engine::Engine;
use crate::engine::protocol::{Action, GangStatus, Phase, RequestOutcome};
use crate::engine::settings::GroupStatusMode;
use crate::engine::state::{EngineView, Gang, GroupStatusSync, RetrySlots, StepContext};
use crate::model::{GangId, Str, Time};
use crate::pod::PodPhase;

/// A new phase or reason has to last this many times [`crate::engine::EngineSettings::status_delay`] before
/// it is written.
const NEWS_STATUS_DELAYS: u32 = 4;
/// A change of numbers, or of a gang that is being lifted, has to last this many status delays.
const NUMBERS_STATUS_DELAYS: u32 = 20;
/// Delay of writes while gates are being lifted.
const DELAY_WHILE_LIFTING: Duration = Duration::from_secs(30);
/// Maximum number of unanswered writes, for all groups together.
const MAX_UNANSWERED_WRITES: usize = 2;
/// The groups whose status is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct GroupStatusQueue {
    due: BTreeSet<(Time, GangId)>,
    under_way: BTreeSet<GangId>,
}

impl GroupStatusQueue {
    /// Moves the write of a gang from one time to another.
    fn reschedule(&mut self, id: &GangId, before: Option<Time>, after: Option<Time>) {
        if let Some(at) = before {
            self.due.remove(&(at, id.clone()));
        }
        if let Some(at) = after {
            self.due.insert((at, id.clone()));
        }
    }

    /// Forgets the scheduled write of a gang.
    pub(in crate::engine) fn cancel(&mut self, gang: &Gang) {
        self.reschedule(&gang.id, gang.reported.group_status.due.map(|(at, ..)| at), None);
    }
}

impl Gang {
    /// The wanted status of the group object. `None` if another controller owns that status, or there is
    /// nothing to write.
    fn group_status<'a>(&'a self, view: &EngineView<'a>) -> Option<(&'a Group, GroupStatus)> {
        let group = self.group(view).filter(|group| !group.uid.is_empty())?;
        if view.settings.group_status == GroupStatusMode::Never
            || group.stored_status.is_foreign()
            || dialect::is_status_final(group)
        {
            return None;
        }
        // The scheduler of these pods writes the status itself.
        if self.members.values().any(|member| member.pod.placed_by_gang_scheduler()) {
            return None;
        }
        if self.members.is_empty() {
            // Left over from a gang that is gone.
            return (group.stored_status != StoredStatus::Absent)
                .then(|| (group, status_without_members(group)));
        }
        let stored = self.record.object.status()?;
        let finished = self.members.values().all(|member| member.pod.phase == PodPhase::Succeeded);
        let in_phase = |phase| {
            let count = self.members.values().filter(|member| member.pod.phase == phase).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let status = GroupStatus {
            phase: if finished { GroupPhase::Finished } else { phase_of(stored.phase) },
            members: stored.members,
            min_members: stored.min_member,
            scheduled: if finished { 0 } else { stored.bound },
            running: in_phase(PodPhase::Running),
            succeeded: in_phase(PodPhase::Succeeded),
            failed: in_phase(PodPhase::Failed),
            reason: if finished { "Finished" } else { stored.reason?.as_str() },
            message: self.group_message(stored, finished),
            since: stored.since,
        };
        Some((group, status))
    }

    /// The message of the group object: that of the `Gang` object, without the node of every member.
    fn group_message(&self, stored: &GangStatus, finished: bool) -> String {
        let message = match stored.phase {
            _ if finished => format!("all {} members have finished", self.members.len()),
            // The `Gang` object holds the plan with every node.
            Phase::Planned | Phase::Lifting => {
                let of = self.plan().map_or(0, |plan| plan.members.len());
                format!("{of} members have a node and are being started")
            }
            _ => stored.message.clone(),
        };
        match &stored.remedy {
            Some(remedy) => format!("{message}. {}", portcullis_text::capitalized(remedy)),
            None => message,
        }
    }

    /// The wanted status, if it is not written yet, with the UID of the group.
    fn unwritten_group_status(&self, view: &EngineView<'_>) -> Option<(Str, GroupStatus)> {
        let (group, wanted) = self.group_status(view)?;
        let written = dialect::group_status(group, &wanted)?;
        let settled = group.stored_status.matches(&written).unwrap_or_else(|| {
            let last = self.reported.group_status.last_written.as_ref();
            last.is_some_and(|(uid, status)| *uid == group.uid && *status == wanted)
        });
        (!settled).then(|| (group.uid.clone(), wanted))
    }

    /// Whether the scheduled write still reports the current phase and reason. The numbers are computed when
    /// it is due. This check runs for every pod while a large gang is lifted.
    fn is_group_status_unchanged(&self) -> bool {
        let (Some((_, phase, reason)), Some(stored)) =
            (self.reported.group_status.due, self.record.object.status())
        else {
            return false;
        };
        !self.members.is_empty()
            && phase_of(stored.phase) == phase
            && stored.reason.is_some_and(|stored| stored.as_str() == reason)
    }
}

impl GroupStatusSync {
    /// Schedules the write of this status. Returns the time of the write that was scheduled before.
    fn schedule(
        &mut self,
        unwritten: Option<(Str, GroupStatus)>,
        status_delay: Duration,
        now: Time,
    ) -> Option<Time> {
        // A write without an answer is checked again when it is answered.
        let unwritten = unwritten.filter(|unwritten| self.sent.as_ref() != Some(unwritten));
        let due = unwritten.map(|(_, wanted)| match self.due {
            Some((at, phase, reason)) if phase == wanted.phase && reason == wanted.reason => {
                (at, phase, reason)
            }
            _ => {
                let written = self.last_written.as_ref().map(|(_, status)| (status.phase, status.reason));
                let slow =
                    written == Some((wanted.phase, wanted.reason)) || wanted.phase == GroupPhase::Starting;
                let delays = if slow { NUMBERS_STATUS_DELAYS } else { NEWS_STATUS_DELAYS };
                let at = now.after(status_delay.saturating_mul(delays));
                (at.max(self.not_before), wanted.phase, wanted.reason)
            }
        });
        std::mem::replace(&mut self.due, due).map(|(at, ..)| at)
    }

    /// Takes in the answer to the write.
    fn settle(&mut self, outcome: &RequestOutcome, now: Time, slots: &mut RetrySlots) {
        let sent = self.sent.take();
        // The same content as before means that another writer changes it back.
        let again = sent == self.last_written;
        if *outcome == RequestOutcome::Done && !again {
            self.last_written = sent;
            self.backoff.reset();
            self.not_before = Time::default();
        } else {
            let retry = now.after(self.backoff.fail());
            let refused = matches!(outcome, RequestOutcome::Refused(_));
            self.not_before = if refused { slots.take(retry, now) } else { retry };
        }
    }
}

impl Engine {
    /// Schedules the next write of the status of the group object.
    pub(in crate::engine) fn schedule_group_status(&mut self, id: &GangId, now: Time) {
        let Some((gang, view)) = self.gang_and_view(id, now) else { return };
        if gang.is_group_status_unchanged() {
            return;
        }
        let unwritten = if view.leads { gang.unwritten_group_status(&view) } else { None };
        let before = gang.reported.group_status.schedule(unwritten, view.settings.status_delay, now);
        let after = gang.reported.group_status.due.map(|(at, ..)| at);
        self.group_status_queue.reschedule(id, before, after);
    }

    /// Whether the group object of a gang without pods still needs a write.
    pub(in crate::engine) fn is_group_status_pending(&mut self, id: &GangId, now: Time) -> bool {
        self.schedule_group_status(id, now);
        self.gangs.get(id).is_some_and(|gang| gang.reported.group_status.due.is_some())
            || self.group_status_queue.under_way.contains(id)
    }

    /// Whether the status of a group object is left over from a gang that is gone.
    pub(in crate::engine) fn is_leftover_group_status(&self, group: &Group) -> bool {
        let Some(without_members) = dialect::group_status(group, &status_without_members(group)) else {
            return false;
        };
        self.settings.group_status == GroupStatusMode::Auto
            && group.stored_status.matches(&without_members) == Some(false)
    }

    /// Sends the writes that are due, a few at a time.
    pub(in crate::engine) fn send_group_statuses(&mut self, step: &mut StepContext<'_>) {
        while self.leads() && self.next_group_status().is_some_and(|at| at <= step.now) {
            let Some((_, id)) = self.group_status_queue.due.pop_first() else { return };
            let Some((gang, view)) = self.gang_and_view(&id, step.now) else { continue };
            let unwritten = gang.unwritten_group_status(&view);
            let target =
                gang.group(&view).and_then(|group| Some((group.object.as_ref()?.kind, group.object_ref()?)));
            let sync = &mut gang.reported.group_status;
            sync.due = None;
            let Some((uid, status)) = unwritten else { continue };
            if sync.sent.is_some() {
                continue; // Its answer looks again.
            }
            let Some((kind, group)) = target else { continue };
            sync.sent = Some((uid, status.clone()));
            self.group_status_queue.under_way.insert(id.clone());
            step.effects.send(Action::WriteGroup { gang: id, kind, group, status });
        }
    }

    /// The time of the next write.
    pub(in crate::engine) fn next_group_status(&self) -> Option<Time> {
        let (at, _) = self.group_status_queue.due.first()?;
        if self.group_status_queue.under_way.len() >= MAX_UNANSWERED_WRITES {
            return None;
        }
        Some(if self.lifting.is_empty() { *at } else { at.after(DELAY_WHILE_LIFTING) })
    }

    pub(in crate::engine) fn handle_group_status_answer(
        &mut self,
        id: &GangId,
        outcome: &RequestOutcome,
        step: &mut StepContext<'_>,
    ) {
        self.group_status_queue.under_way.remove(id);
        if self.expect_gang(id).is_none() {
            return;
        }
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.reported.group_status.settle(outcome, step.now, &mut self.retry_slots);
        step.touch(id);
    }
}

fn phase_of(phase: Phase) -> GroupPhase {
    match phase {
        Phase::Gathering => GroupPhase::Gathering,
        Phase::Waiting => GroupPhase::Waiting,
        Phase::Planned | Phase::Lifting => GroupPhase::Starting,
        Phase::Admitted => GroupPhase::Running,
        Phase::Torn => GroupPhase::Torn,
    }
}

/// The status of a group without pods.
fn status_without_members(group: &Group) -> GroupStatus {
    GroupStatus {
        phase: GroupPhase::Gathering,
        members: 0,
        min_members: group.quorum.min_members(),
        scheduled: 0,
        running: 0,
        succeeded: 0,
        failed: 0,
        reason: "Gathering",
        message: "no pod names this group".to_owned(),
        since: group.created,
    }
}
