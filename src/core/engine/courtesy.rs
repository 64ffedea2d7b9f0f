//! The status of the group object, for people who look there: a courtesy.
//!
//! Nothing waits for it and nothing rests on it: no gate, no plan, no fence. It follows what the `Gang` object says, once
//! that has been so for a while, so that a gang that gathers and lifts at once costs one write, after it is admitted; and
//! it stands back while gates are being lifted. It is level-triggered: what stands in the object is compared with what
//! should, and whatever was lost is written again.

use std::collections::BTreeSet;
use std::time::Duration;

use super::state::{Gang, Object};
use super::types::{Phase, RequestOutcome};
use super::{Action, Engine, GroupStatusMode, Step};
use crate::dialect::{self, Group, GroupPhase, GroupStatus, StoredStatus};
use crate::model::{GangId, Str, Time};
use crate::pod::PodPhase;

/// So many of [`super::EngineSettings::quiet`] a phase or reason has to last before the group is told of it.
const NEWS: u32 = 4;
/// And so many where only numbers differ, or while gates are on their way: it comes to one write for each of these.
const NUMBERS: u32 = 20;
/// How long it stands back behind gates that are being lifted.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many writes may be under way, for all groups together.
const AT_ONCE: usize = 2;
/// After a refusal it is left alone for so long, twice as long after the next one, and so on seven times.
const REFUSED: Duration = Duration::from_secs(10);

/// What is known of the status of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Courtesy {
    /// The last write that was accepted: to the group of this UID.
    told: Option<(Str, GroupStatus)>,
    /// The write that is under way.
    sent: Option<(Str, GroupStatus)>,
    /// What is to be said, as far as it is news, and when.
    due: Option<(Time, GroupPhase, &'static str)>,
    /// Not before this, after a refusal.
    not_before: Time,
    refusals: u32,
}

/// Which groups have something to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Courtesies {
    due: BTreeSet<(Time, GangId)>,
    under_way: BTreeSet<GangId>,
}

impl Engine {
    /// What the group of a gang should be told; nothing where its status is not ours to write, or there is nothing to say.
    fn group_status(&self, id: &GangId) -> Option<(&Group, GroupStatus)> {
        let group = self.group(id).filter(|group| !group.uid.is_empty())?;
        let last = dialect::is_status_final(group);
        if self.settings.group_status == GroupStatusMode::Never || group.stored_status.is_foreign() || last {
            return None;
        }
        let gang = self.gangs.get(id)?;
        let members = || gang.members.iter().filter_map(|uid| self.members.get(uid));
        // Their scheduler has its own to say.
        if members().any(|member| member.pod.placed_by_gang_scheduler()) {
            return None;
        }
        if gang.members.is_empty() {
            // Left behind by a gang that was there.
            return (group.stored_status != StoredStatus::Absent).then(|| (group, nobody(group)));
        }
        let Object::Known(_, stored) = &gang.object else { return None };
        let finished = members().all(|member| member.pod.phase == PodPhase::Succeeded);
        let phase = if finished { GroupPhase::Finished } else { phase_of(stored.phase) };
        let in_phase = |phase| {
            let count = members().filter(|member| member.pod.phase == phase).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let mut message = match stored.phase {
            _ if finished => format!("all {} members have finished", gang.members.len()),
            // The plan, which names every place, is for the Gang object.
            Phase::Planned | Phase::Lifting => {
                let of = gang.progress.plan().map_or(0, |plan| plan.members.len());
                format!("{of} members have a place and are being started")
            }
            _ => stored.message.clone(),
        };
        if let Some(remedy) = &stored.remedy {
            message = format!("{message}. What would help: {remedy}");
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

    /// What the group of a gang has not been told yet.
    fn group_news(&self, id: &GangId) -> Option<(Str, GroupStatus)> {
        let (group, wanted) = self.group_status(id)?;
        let gang = self.gangs.get(id)?;
        let written = dialect::group_status(group, &wanted)?;
        let settled = group.stored_status.matches(&written).unwrap_or_else(|| {
            gang.courtesy.told.as_ref().is_some_and(|(uid, told)| *uid == group.uid && *told == wanted)
        });
        (!settled).then(|| (group.uid.clone(), wanted))
    }

    /// Whether what is noted still is the news: the rest is looked at when it is due. While a large gang is lifted this
    /// is asked for every pod.
    fn courtesy_stands(&self, id: &GangId) -> bool {
        let Some(gang) = self.gangs.get(id).filter(|gang| !gang.members.is_empty()) else { return false };
        let (Some((_, phase, reason)), Object::Known(_, stored)) = (gang.courtesy.due, &gang.object) else {
            return false;
        };
        phase_of(stored.phase) == phase && stored.reason.is_some_and(|stored| stored.as_str() == reason)
    }

    /// Notes whether and when the group of a gang is to be told something.
    pub(super) fn note_courtesy(&mut self, id: &GangId, now: Time) {
        if self.courtesy_stands(id) {
            return;
        }
        let news = if self.leads() { self.group_news(id) } else { None };
        let quiet = self.settings.quiet;
        let Some(gang) = self.gangs.get_mut(id) else { return };
        let courtesy = &mut gang.courtesy;
        // What is being said is looked at again when it is answered.
        let news = news.filter(|news| courtesy.sent.as_ref() != Some(news));
        let due = news.map(|(_, wanted)| match courtesy.due {
            Some((at, phase, reason)) if phase == wanted.phase && reason == wanted.reason => {
                (at, phase, reason)
            }
            _ => {
                let told = courtesy.told.as_ref().map(|(_, told)| (told.phase, told.reason));
                let slow =
                    told == Some((wanted.phase, wanted.reason)) || wanted.phase == GroupPhase::Starting;
                let at = now.after(quiet.saturating_mul(if slow { NUMBERS } else { NEWS }));
                (at.max(courtesy.not_before), wanted.phase, wanted.reason)
            }
        });
        if due == courtesy.due {
            return;
        }
        let before = std::mem::replace(&mut courtesy.due, due);
        if let Some((at, ..)) = before {
            self.courtesies.due.remove(&(at, id.clone()));
        }
        if let Some((at, ..)) = due {
            self.courtesies.due.insert((at, id.clone()));
        }
    }

    /// Whether the group of a gang of which nothing else is left still has to be told so.
    pub(super) fn owes_courtesy(&mut self, id: &GangId, now: Time) -> bool {
        self.note_courtesy(id, now);
        self.gangs.get(id).is_some_and(|gang: &Gang| gang.courtesy.due.is_some())
            || self.courtesies.under_way.contains(id)
    }

    /// A group says something although its gang is not known: what a gang left behind that is gone.
    pub(super) fn courtesy_left_behind(&self, group: &Group) -> bool {
        let Some(nobody) = dialect::group_status(group, &nobody(group)) else { return false };
        self.settings.group_status == GroupStatusMode::Auto
            && group.stored_status.matches(&nobody) == Some(false)
    }

    /// Tells the groups that are due, a few at a time, and not while gates wait to be lifted.
    pub(super) fn pay_courtesies(&mut self, step: &mut Step) {
        while self.leads() && self.courtesy_alarm().is_some_and(|at| at <= step.now) {
            let Some((_, id)) = self.courtesies.due.pop_first() else { return };
            let news = self.group_news(&id);
            let told =
                self.group(&id).and_then(|group| Some((group.object.as_ref()?.kind, group.object_ref()?)));
            let Some(gang) = self.gangs.get_mut(&id) else { continue };
            gang.courtesy.due = None;
            let Some((uid, status)) = news else { continue };
            if gang.courtesy.sent.is_some() {
                continue; // Its answer looks again.
            }
            let Some((kind, group)) = told else { continue };
            gang.courtesy.sent = Some((uid, status.clone()));
            self.courtesies.under_way.insert(id.clone());
            step.send(Action::WriteGroup { gang: id, kind, group, status });
        }
    }

    /// When the next group is to be told.
    pub(super) fn courtesy_alarm(&self) -> Option<Time> {
        let (at, _) = self.courtesies.due.first()?;
        if self.courtesies.under_way.len() >= AT_ONCE {
            return None;
        }
        Some(if self.lifting.is_empty() { *at } else { at.after(PATIENCE) })
    }

    pub(super) fn courtesy_answered(&mut self, id: &GangId, outcome: &RequestOutcome, step: &mut Step) {
        self.courtesies.under_way.remove(id);
        let Some(gang) = self.gangs.get_mut(id) else { return };
        let sent = gang.courtesy.sent.take();
        // The same again means that the first time did not help: somebody changes it back.
        let again = sent == gang.courtesy.told;
        if *outcome == RequestOutcome::Done && !again {
            gang.courtesy.told = sent;
            gang.courtesy.refusals = 0;
            gang.courtesy.not_before = Time::default();
        } else {
            let wait = REFUSED.saturating_mul(1 << gang.courtesy.refusals);
            gang.courtesy.refusals = (gang.courtesy.refusals + 1).min(7);
            gang.courtesy.not_before = step.now.after(wait);
        }
        step.touch(id);
    }

    /// A gang is forgotten.
    pub(super) fn forget_courtesy(&mut self, id: &GangId) {
        if let Some((at, ..)) = self.gangs.get(id).and_then(|gang| gang.courtesy.due) {
            self.courtesies.due.remove(&(at, id.clone()));
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

/// What is said of a group that nobody names any more.
fn nobody(group: &Group) -> GroupStatus {
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
