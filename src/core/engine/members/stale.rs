//! Stale gangs: gangs that were complete, have lost members, and still have running pods.
//!
//! Members are lost when they are deleted, evicted or fail. A pod that terminates is no lost member before
//! its grace period ends: a StatefulSet, and a Job with `podReplacementPolicy: Failed`, create the
//! replacement only after the pod has ended. A gang is not stale if its group asks for more
//! members than it started with, if a container restarts, or once a member has succeeded: then the gang is on
//! its way to its end. Its controller may create a replacement. The engine plans that one first, alone and at
//! once, and the gang is complete again. Otherwise, after the grace period, the policy says whether the rest
//! of the gang is deleted or kept. Deletion goes through the durable `status.expired`, so that a deposed
//! leader cannot delete a gang that its successor has completed.
//!
//! `status.startedWith` holds the number of members when the gang was last complete, and the condition
//! `Stale` since when it is stale. The next leader continues with both. A gang that was never known to be
//! complete is left alone: its pods may be older than this installation.

use std::time::Duration;

use crate::dialect::OnStale;
use crate::engine::members::MemberCounts;
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::protocol::{ConditionStatus, ConditionType};
use crate::engine::state::{Effects, EngineView, Gang, StaleState, format_seconds};
use crate::model::{Reason, Time};

impl Gang {
    /// Checks whether the gang has lost members, and applies its policy after the grace period. Returns
    /// whether it has to be planned again.
    pub(in crate::engine) fn check_stale(&mut self, view: &EngineView<'_>, effects: &mut Effects) -> bool {
        if self.are_owners_being_read() {
            return false;
        }
        // The retries of a torn gang have limits of their own.
        if self.is_being_retried(view) {
            self.lifecycle.stale = None;
            return false;
        }
        let counts = self.count_members();
        let whole = self.last_complete_size(view, &counts);
        let lacks = whole > 0 && self.lacks_members(view, &counts, whole);
        self.lifecycle.started_with = Some(whole);
        if !lacks || self.grace_end(view).is_some() {
            self.lifecycle.stale = None;
            return false;
        }
        let stale = self.lifecycle.stale.unwrap_or_else(|| StaleState {
            since: self.stored_stale_since().unwrap_or(view.now),
            event_recorded: false,
        });
        self.lifecycle.stale = Some(stale);
        let over = view.now >= stale.since.after(self.stale_grace(view));
        over && !self.is_being_completed() && self.apply_stale_policy(view, &counts, effects)
    }

    /// When the last grace period of a started member that terminates ends. `None` if none is under way.
    pub(in crate::engine) fn grace_end(&self, view: &EngineView<'_>) -> Option<Time> {
        let members = self.members.values();
        let terminating = members.filter(|m| !m.pod.gated() && !m.pod.finished() && m.pod.node.is_some());
        terminating.filter_map(|member| member.pod.grace_end).filter(|end| *end > view.now).max()
    }

    /// Since when the gang is stale by the stored condition.
    fn stored_stale_since(&self) -> Option<Time> {
        let conditions = &self.record.object.status()?.conditions;
        let found = conditions.iter().find(|c| c.kind == ConditionType::Stale)?;
        (found.status == ConditionStatus::True).then_some(found.last_transition_time)
    }

    /// The number of members when the gang was last complete. Zero if it has nothing to lose.
    fn last_complete_size(&self, view: &EngineView<'_>, counts: &MemberCounts) -> u32 {
        if counts.running() == 0 || counts.succeeded > 0 {
            return 0;
        }
        match self.group(view) {
            Some(group) if counts.started_satisfy(&group.quorum) => group.quorum.min_members(),
            _ => self.lifecycle.started_with.unwrap_or(0),
        }
    }

    /// Whether the gang has fewer members than when it was complete. A group that asks for more members than
    /// that is not a loss.
    fn lacks_members(&self, view: &EngineView<'_>, counts: &MemberCounts, whole: u32) -> bool {
        let Some(group) = self.group(view) else { return false };
        counts.running() < whole
            || (group.quorum.min_members() <= whole && !counts.started_satisfy(&group.quorum))
    }

    /// Whether a replacement is planned and being started.
    fn is_being_completed(&self) -> bool {
        match &self.lifecycle.progress {
            Progress::Undecided => false,
            Progress::Recording(_) | Progress::Dropping(..) => true,
            Progress::Recorded(plan) => self.has_gated(plan),
        }
    }

    /// Records the event, and expires the members if that is the policy. Returns whether members expired.
    fn apply_stale_policy(
        &mut self,
        view: &EngineView<'_>,
        counts: &MemberCounts,
        effects: &mut Effects,
    ) -> bool {
        if self.lifecycle.stale.is_some_and(|stale| !stale.event_recorded) {
            let message = self.stale_summary(view, counts);
            self.record_event(view, Reason::StaleJob, message, false, Vec::new(), effects);
        }
        if let Some(stale) = &mut self.lifecycle.stale {
            stale.event_recorded = true;
        }
        let before = self.lifecycle.expired.len();
        if self.on_stale(view) == OnStale::Evict {
            let running = self.members.iter().filter(|(_, member)| member.active() && member.live());
            self.lifecycle.expired.extend(running.map(|(uid, _)| uid.clone()));
        }
        self.lifecycle.expired.len() > before
    }

    fn on_stale(&self, view: &EngineView<'_>) -> OnStale {
        self.group(view).and_then(|group| group.policies.on_stale).unwrap_or(view.settings.on_stale)
    }

    /// The grace period of a stale gang.
    pub(in crate::engine) fn stale_grace(&self, view: &EngineView<'_>) -> Duration {
        self.group(view).and_then(|group| group.policies.stale_grace).unwrap_or(view.settings.stale_grace)
    }

    /// The message, in the words of KAI.
    fn stale_summary(&self, view: &EngineView<'_>, counts: &MemberCounts) -> String {
        let active = counts.running();
        let least = self.group(view).map_or(0, |group| group.quorum.min_members());
        let are = if active == 1 { "pod is" } else { "pods are" };
        format!("Job is stale. {active} {are} active, minMember is {least}")
    }

    /// Message of a stale gang, and whether its grace period is over. `None` for all other gangs.
    pub(in crate::engine) fn stale_message(
        &self,
        view: &EngineView<'_>,
        counts: &MemberCounts,
    ) -> Option<(String, bool)> {
        let stale = self.lifecycle.stale?;
        let summary = self.stale_summary(view, counts);
        let then = match self.on_stale(view) {
            OnStale::Keep => "they are kept".to_owned(),
            OnStale::Evict if stale.event_recorded => "they are evicted".to_owned(),
            OnStale::Evict => {
                let grace = format_seconds(self.stale_grace(view));
                format!("they are evicted after {grace}, unless it is whole again by then")
            }
        };
        Some((format!("{summary}: {then}"), stale.event_recorded))
    }
}
