//! Writes the status of the group object, best effort. No other part of the engine depends on it.
//!
//! The status follows the `Gang` object after that has been stable for a while, so that a gang that gathers
//! and lifts at once costs one write, after it is admitted. Writes wait while gates are being lifted. The
//! sync is level-triggered: it compares the stored status with the wanted one, so a lost write is repeated.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::dialect::{self, Group, GroupPhase, GroupStatus, StoredStatus};
use crate::engine::gang_state::{GangObject, GangState};
use crate::engine::protocol::{Phase, RequestOutcome};
use crate::engine::{Action, Engine, GroupStatusMode, StepContext};
use crate::model::{GangId, Str, Time};
use crate::pod::PodPhase;

/// A new phase or reason has to last this many [`crate::engine::EngineSettings::quiet`] periods before it is
/// written.
const NEWS_QUIET_PERIODS: u32 = 4;
/// A change of numbers, or of a gang that is being lifted, has to last this many quiet periods.
const NUMBERS_QUIET_PERIODS: u32 = 20;
/// Delay of writes while gates are being lifted.
const DELAY_WHILE_LIFTING: Duration = Duration::from_secs(30);
/// Maximum number of unanswered writes, for all groups together.
const MAX_UNANSWERED_WRITES: usize = 2;
/// Delay after the first refusal. It doubles with each further one, up to seven times.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The state of one group status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct GroupStatusSync {
    /// The last accepted write, with the UID of the group.
    last_written: Option<(Str, GroupStatus)>,
    /// The write without an answer.
    sent: Option<(Str, GroupStatus)>,
    /// The time of the next write, with the phase and reason that it will report.
    due: Option<(Time, GroupPhase, &'static str)>,
    /// No write before this time, after a refusal.
    not_before: Time,
    refusals: u32,
}

/// The groups whose status is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct GroupStatusQueue {
    due: BTreeSet<(Time, GangId)>,
    under_way: BTreeSet<GangId>,
}

impl Engine {
    /// The wanted status of the group object. `None` if another controller owns that status, or there is
    /// nothing to write.
    fn group_status(&self, id: &GangId) -> Option<(&Group, GroupStatus)> {
        let group = self.group(id).filter(|group| !group.uid.is_empty())?;
        let last = dialect::is_status_final(group);
        if self.settings.group_status == GroupStatusMode::Never || group.stored_status.is_foreign() || last {
            return None;
        }
        let gang = self.gangs.get(id)?;
        let members = || gang.members.iter().filter_map(|uid| self.members.get(uid));
        // The scheduler of these pods writes the status itself.
        if members().any(|member| member.pod.placed_by_gang_scheduler()) {
            return None;
        }
        if gang.members.is_empty() {
            // Left over from a gang that is gone.
            return (group.stored_status != StoredStatus::Absent)
                .then(|| (group, status_without_members(group)));
        }
        let GangObject::Known(_, stored) = &gang.record.object else { return None };
        let finished = members().all(|member| member.pod.phase == PodPhase::Succeeded);
        let phase = if finished { GroupPhase::Finished } else { phase_of(stored.phase) };
        let in_phase = |phase| {
            let count = members().filter(|member| member.pod.phase == phase).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let mut message = match stored.phase {
            _ if finished => format!("all {} members have finished", gang.members.len()),
            // The `Gang` object holds the plan with every node.
            Phase::Planned | Phase::Lifting => {
                let of = gang.lifecycle.progress.plan().map_or(0, |plan| plan.members.len());
                format!("{of} members have a node and are being started")
            }
            _ => stored.message.clone(),
        };
        if let Some(remedy) = &stored.remedy {
            message = format!("{message}. {}", portcullis_text::capitalized(remedy));
        }
        let status = GroupStatus {
            phase,
            members: stored.members,
            min_members: stored.min_member,
            scheduled: if finished { 0 } else { stored.bound },
            running: in_phase(PodPhase::Running),
            succeeded: in_phase(PodPhase::Succeeded),
            failed: in_phase(PodPhase::Failed),
            reason: if finished { "Finished" } else { stored.reason?.as_str() },
            message,
            since: stored.since,
        };
        Some((group, status))
    }

    /// The wanted status, if it is not written yet.
    fn unwritten_group_status(&self, id: &GangId) -> Option<(Str, GroupStatus)> {
        let (group, wanted) = self.group_status(id)?;
        let gang = self.gangs.get(id)?;
        let written = dialect::group_status(group, &wanted)?;
        let settled = group.stored_status.matches(&written).unwrap_or_else(|| {
            gang.reported
                .group_status
                .last_written
                .as_ref()
                .is_some_and(|(uid, status)| *uid == group.uid && *status == wanted)
        });
        (!settled).then(|| (group.uid.clone(), wanted))
    }

    /// Whether the scheduled write still reports the current phase and reason. The numbers are computed when
    /// it is due. This check runs for every pod while a large gang is lifted.
    fn is_group_status_unchanged(&self, id: &GangId) -> bool {
        let Some(gang) = self.expect_gang(id).filter(|gang| !gang.members.is_empty()) else { return false };
        let (Some((_, phase, reason)), GangObject::Known(_, stored)) =
            (gang.reported.group_status.due, &gang.record.object)
        else {
            return false;
        };
        phase_of(stored.phase) == phase && stored.reason.is_some_and(|stored| stored.as_str() == reason)
    }

    /// Schedules the next write of the status of the group object.
    pub(in crate::engine) fn schedule_group_status(&mut self, id: &GangId, now: Time) {
        if self.is_group_status_unchanged(id) {
            return;
        }
        let news = if self.leads() { self.unwritten_group_status(id) } else { None };
        let quiet = self.settings.quiet;
        let Some(gang) = self.expect_gang_mut(id) else { return };
        let sync = &mut gang.reported.group_status;
        // A write without an answer is checked again when it is answered.
        let news = news.filter(|news| sync.sent.as_ref() != Some(news));
        let due = news.map(|(_, wanted)| match sync.due {
            Some((at, phase, reason)) if phase == wanted.phase && reason == wanted.reason => {
                (at, phase, reason)
            }
            _ => {
                let written = sync.last_written.as_ref().map(|(_, status)| (status.phase, status.reason));
                let slow =
                    written == Some((wanted.phase, wanted.reason)) || wanted.phase == GroupPhase::Starting;
                let at = now.after(quiet.saturating_mul(if slow {
                    NUMBERS_QUIET_PERIODS
                } else {
                    NEWS_QUIET_PERIODS
                }));
                (at.max(sync.not_before), wanted.phase, wanted.reason)
            }
        });
        if due == sync.due {
            return;
        }
        let before = std::mem::replace(&mut sync.due, due);
        if let Some((at, ..)) = before {
            self.group_status_queue.due.remove(&(at, id.clone()));
        }
        if let Some((at, ..)) = due {
            self.group_status_queue.due.insert((at, id.clone()));
        }
    }

    /// Whether the group object of a gang without pods still needs a write.
    pub(in crate::engine) fn is_group_status_pending(&mut self, id: &GangId, now: Time) -> bool {
        self.schedule_group_status(id, now);
        self.gangs.get(id).is_some_and(|gang: &GangState| gang.reported.group_status.due.is_some())
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
    pub(in crate::engine) fn send_group_statuses(&mut self, step: &mut StepContext) {
        while self.leads() && self.next_group_status().is_some_and(|at| at <= step.now) {
            let Some((_, id)) = self.group_status_queue.due.pop_first() else { return };
            let news = self.unwritten_group_status(&id);
            let target =
                self.group(&id).and_then(|group| Some((group.object.as_ref()?.kind, group.object_ref()?)));
            let Some(gang) = self.expect_gang_mut(&id) else { continue };
            gang.reported.group_status.due = None;
            let Some((uid, status)) = news else { continue };
            if gang.reported.group_status.sent.is_some() {
                continue; // Its answer looks again.
            }
            let Some((kind, group)) = target else { continue };
            gang.reported.group_status.sent = Some((uid, status.clone()));
            self.group_status_queue.under_way.insert(id.clone());
            step.send(Action::WriteGroup { gang: id, kind, group, status });
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
        step: &mut StepContext,
    ) {
        self.group_status_queue.under_way.remove(id);
        let Some(gang) = self.expect_gang_mut(id) else { return };
        let sent = gang.reported.group_status.sent.take();
        // The same content as before means that another writer changes it back.
        let again = sent == gang.reported.group_status.last_written;
        if *outcome == RequestOutcome::Done && !again {
            gang.reported.group_status.last_written = sent;
            gang.reported.group_status.refusals = 0;
            gang.reported.group_status.not_before = Time::default();
        } else {
            let wait = FIRST_RETRY_DELAY.saturating_mul(1 << gang.reported.group_status.refusals);
            gang.reported.group_status.refusals = (gang.reported.group_status.refusals + 1).min(7);
            gang.reported.group_status.not_before = step.now.after(wait);
        }
        step.touch(id);
    }

    /// Forgets the scheduled write of a gang.
    pub(in crate::engine) fn forget_group_status(&mut self, id: &GangId) {
        if let Some((at, ..)) = self.gangs.get(id).and_then(|gang| gang.reported.group_status.due) {
            self.group_status_queue.due.remove(&(at, id.clone()));
        }
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
