//! Retries of torn gangs: gangs that were lifted and are not bound at their deadline.
//!
//! With the policy `retry` the engine evicts the unbound members. Their owners create them again, and the
//! replacements are planned alone, beside the members that run. Where an equal pod was refused they are not
//! planned again (`members/refusals.rs`). The pause before each further retry doubles. After
//! [`crate::engine::EngineSettings::torn_retries`] retries the whole gang is evicted and queued again. At the
//! latest, that happens [`crate::engine::EngineSettings::torn_timeout`] after the first missed deadline, so
//! that bound members do not hold GPUs without end.
//!
//! Evictions need owners that create the pods again. A pod without one would be lost, and a Job counts an
//! evicted pod as failed and may end by its `backoffLimit`. Such gangs are held, and the status says why. The
//! whole gang is not evicted either if its bound members suffice, or if they ran before the torn members were
//! planned and the policy for stale gangs keeps them.
//!
//! Each eviction is durable before it starts: one write of the status counts the retry and names the pods in
//! `status.expired`. The next leader continues with both. While `status.expired` names pods, no member is
//! lifted.

use std::time::Duration;

use crate::dialect::{OnStale, OnTorn};
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::protocol::{PlanRecord, TornRecord};
use crate::engine::state::{EngineView, Gang, MemberState};
use crate::model::{Backoff, PodUid, Time};
use crate::objects::OwnerKind;

/// The pause before the second retry. It doubles with each further one.
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(10);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(300);
/// Retries beyond this number do not prolong the pause.
const MAX_COUNTED_RETRIES: u32 = 10;

/// What the engine does about a torn gang.
enum TornAction {
    /// Nothing yet: a plan is being carried out, or members are being evicted.
    Wait,
    /// The unbound members are evicted at this time.
    Replace(Vec<PodUid>, Time),
    /// Replacements are awaited until this time; then the whole gang is evicted.
    AwaitReplacements(Time),
    /// The whole gang is evicted now.
    EvictAll(Vec<PodUid>),
    /// The gang is held, for this reason.
    Hold(String),
}

impl Gang {
    /// Counts and starts the retries of a torn gang. Returns whether it has to be planned again.
    pub(in crate::engine) fn check_torn(&mut self, view: &EngineView<'_>) -> bool {
        self.lifecycle.torn = self.torn_record(view);
        let Some(torn) = self.lifecycle.torn else { return false };
        match self.torn_action(&torn, view) {
            TornAction::Replace(unbound, at) if at <= view.now => {
                let retries = torn.retries.saturating_add(1);
                self.lifecycle.torn = Some(TornRecord { retries, ..torn });
                self.lifecycle.expired.extend(unbound);
                true
            }
            TornAction::EvictAll(members) => {
                self.lifecycle.expired.extend(members);
                true
            }
            _ => false,
        }
    }

    /// The retries of the gang. `None` if it is not torn, or its policy is another one.
    fn torn_record(&self, view: &EngineView<'_>) -> Option<TornRecord> {
        // One write makes the record and the evictions durable that were decided under it.
        if !self.lifecycle.expired.is_empty() && self.lifecycle.torn.is_some() {
            return self.lifecycle.torn;
        }
        let policy = self.group(view).and_then(|group| group.policies.on_torn);
        if policy.unwrap_or(view.settings.on_torn) != OnTorn::Retry {
            return None;
        }
        let unbound = self.plan().is_some_and(|plan| self.unbound_members(plan).next().is_some());
        if let Some(known) = self.lifecycle.torn {
            let runs = self.members.values().any(|member| member.active() && member.live());
            return (runs && (unbound || !self.is_bound_whole(view))).then_some(known);
        }
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return None };
        if !unbound || view.now <= plan.deadline {
            return None;
        }
        let planned = |uid: &PodUid| plan.members.iter().any(|member| member.uid == *uid);
        let had_started = self.members.iter().any(|(uid, member)| !planned(uid) && is_bound(member));
        Some(TornRecord { since: plan.deadline, retries: 0, had_started })
    }

    /// Whether bound and succeeded members complete the gang.
    fn is_bound_whole(&self, view: &EngineView<'_>) -> bool {
        let Some(group) = self.group(view) else { return true };
        let mut counts = self.count_members();
        for member in self.members.values().filter(|member| member.active() && member.unbound()) {
            if let Some(number) = counts.active.get_mut(&crate::engine::members::role(&member.pod).cloned()) {
                *number = number.saturating_sub(1);
            }
        }
        counts.started_satisfy(&group.quorum)
    }

    /// The live members of the plan that are lifted and not bound.
    fn unbound_members<'a>(
        &'a self,
        plan: &'a PlanRecord,
    ) -> impl Iterator<Item = (&'a PodUid, &'a MemberState)> {
        let unbound = self.present(plan).filter(|(_, member)| member.unbound() && member.live());
        unbound.map(|(planned, member)| (&planned.uid, member))
    }

    fn torn_action(&self, torn: &TornRecord, view: &EngineView<'_>) -> TornAction {
        let end = torn.since.after(view.settings.torn_timeout);
        let plan = match &self.lifecycle.progress {
            _ if !self.lifecycle.expired.is_empty() => return TornAction::Wait,
            Progress::Recording(_) | Progress::Dropping(..) => return TornAction::Wait,
            Progress::Recorded(plan) => Some(plan),
            // The plan of replacements was given up.
            Progress::Undecided => None,
        };
        let over = view.now >= end;
        let unbound: Vec<(&PodUid, &MemberState)> =
            plan.into_iter().flat_map(|plan| self.unbound_members(plan)).collect();
        if let Some(plan) = plan.filter(|plan| view.now <= plan.deadline)
            && (self.has_gated(plan) || (!over && !unbound.is_empty()))
        {
            return TornAction::Wait;
        }
        if !over && unbound.is_empty() {
            return match self.reason_to_keep_started(torn, view) {
                None => TornAction::AwaitReplacements(end),
                Some(why) => TornAction::Hold(why),
            };
        }
        if let Some(why) = unbound.iter().find_map(|(_, member)| reason_to_keep(member)) {
            return TornAction::Hold(why);
        }
        if over || torn.retries >= view.settings.torn_retries {
            return match self.reason_to_keep_started(torn, view) {
                None => TornAction::EvictAll(self.started_members().map(|(uid, _)| uid.clone()).collect()),
                Some(why) => TornAction::Hold(why),
            };
        }
        let deadline = plan.map_or(view.now, |plan| plan.deadline);
        let at = deadline.after(retry_pause(torn.retries));
        TornAction::Replace(unbound.into_iter().map(|(uid, _)| uid.clone()).collect(), at)
    }

    fn started_members(&self) -> impl Iterator<Item = (&PodUid, &MemberState)> {
        self.members.iter().filter(|(_, member)| member.active() && member.live())
    }

    /// Why the started members are not evicted. `None` if they may be.
    fn reason_to_keep_started(&self, torn: &TornRecord, view: &EngineView<'_>) -> Option<String> {
        if self.is_bound_whole(view) {
            return Some("the bound members suffice, and are kept".to_owned());
        }
        let policies = self.group(view).map(|group| &group.policies);
        let on_stale = policies.and_then(|policies| policies.on_stale).unwrap_or(view.settings.on_stale);
        let elastic = policies.is_some_and(|policies| policies.elastic == Some(true));
        if torn.had_started && (on_stale == OnStale::Keep || elastic) {
            return Some("the members that ran before are kept".to_owned());
        }
        self.started_members().find_map(|(_, member)| reason_to_keep(member))
    }

    /// Whether the gang is torn, and the engine replaces its members.
    pub(in crate::engine) fn is_being_retried(&self, view: &EngineView<'_>) -> bool {
        let action = self.lifecycle.torn.map(|torn| self.torn_action(&torn, view));
        action.is_some_and(|action| !matches!(action, TornAction::Hold(_)))
    }

    /// What happens to a torn gang next, as a sentence. `None` if the policy is another one, or nothing is
    /// decided yet.
    pub(in crate::engine) fn torn_outlook(&self, view: &EngineView<'_>) -> Option<String> {
        let torn = self.lifecycle.torn?;
        let limit = view.settings.torn_retries;
        match self.torn_action(&torn, view) {
            TornAction::Wait if self.lifecycle.expired.is_empty() => None,
            TornAction::Wait => {
                let evicted =
                    portcullis_text::counted(self.lifecycle.expired.len(), "member is", "members are");
                Some(format!("{evicted} evicted, so that the owner creates replacements"))
            }
            TornAction::Replace(_, at) if at > view.now => {
                Some(format!("retry {} of {limit} at {at}", torn.retries.saturating_add(1)))
            }
            TornAction::Replace(..) | TornAction::EvictAll(_) => None,
            TornAction::AwaitReplacements(end) => Some(format!(
                "retry {} of {limit}: replacements of evicted members are not started; all members are evicted at {end}",
                torn.retries
            )),
            TornAction::Hold(why) => {
                Some(format!("not retried after {} of {limit} retries: {why}", torn.retries))
            }
        }
    }

    /// When the next retry starts without any other event. May be in the past.
    pub(in crate::engine) fn next_torn_retry(&self, view: &EngineView<'_>) -> Option<Time> {
        let torn = self.lifecycle.torn?;
        let end = torn.since.after(view.settings.torn_timeout);
        let retry = match self.torn_action(&torn, view) {
            TornAction::Replace(_, at) => Some(at),
            _ => None,
        };
        let deadline = self.plan().map(|plan| plan.deadline.after(Duration::from_millis(1)));
        [Some(end), retry, deadline].into_iter().flatten().filter(|at| *at > view.now).min()
    }
}

fn is_bound(member: &MemberState) -> bool {
    member.active() && member.live() && member.pod.node.is_some()
}

/// Why a member is not evicted, with the remedy. `None` if its owner creates it again.
fn reason_to_keep(member: &MemberState) -> Option<String> {
    let pod = &member.pod.key.name;
    match &member.pod.owner {
        None => Some(format!("no controller would create pod {pod} again; delete it and create it again")),
        Some(owner) if OwnerKind::of(owner) == Some(OwnerKind::Job) => Some(format!(
            "Job {} counts an evicted pod as failed and may end by its backoffLimit; delete pod {pod}, or set portcullis.dev/on-torn to evict",
            owner.name
        )),
        Some(_) => None,
    }
}

/// The pause before the next retry.
fn retry_pause(retries: u32) -> Duration {
    let mut backoff = Backoff::new(FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE);
    (0..retries.min(MAX_COUNTED_RETRIES)).fold(Duration::ZERO, |_, _| backoff.fail())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_is_at_once_and_later_pauses_double() {
        let pauses = [0, 1, 2, 3, 6, 100].map(|retries| retry_pause(retries).as_secs());
        assert_eq!(pauses, [0, 10, 20, 40, 300, 300]);
    }
}
