//! Stale gangs: gangs that were complete, have lost members, and still have running pods.
//!
//! Members are lost when they are deleted, evicted or fail. A gang is not stale if its group asks for more
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
use crate::engine::gang_state::GangObject;
use crate::engine::members::MemberCounts;
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::queue::timeout::format_seconds;
use crate::engine::status::conditions::{ConditionStatus, ConditionType};
use crate::engine::{Engine, StepContext};
use crate::model::{GangId, PodUid, Reason, Time};

/// State of a stale gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct StaleState {
    /// Since when the gang is stale.
    pub since: Time,
    /// The grace period is over, and the event is recorded.
    pub event_recorded: bool,
}

impl Engine {
    /// Checks whether a gang has lost members, and applies its policy after the grace period.
    pub(in crate::engine) fn check_stale(&mut self, id: &GangId, step: &mut StepContext) {
        if self.are_owners_being_read(id) {
            return;
        }
        let counts = self.count_members(id);
        let whole = self.last_complete_size(id, &counts);
        let lacks = whole > 0 && self.lacks_members(id, &counts, whole);
        let Some(gang) = self.expect_gang_mut(id) else { return };
        gang.lifecycle.started_with = Some(whole);
        if !lacks {
            gang.lifecycle.stale = None;
            return;
        }
        let known = || {
            let GangObject::Known(_, stored) = &gang.record.object else { return None };
            let found = stored.conditions.iter().find(|c| c.kind == ConditionType::Stale)?;
            (found.status == ConditionStatus::True).then_some(found.last_transition_time)
        };
        let stale = gang
            .lifecycle
            .stale
            .unwrap_or_else(|| StaleState { since: known().unwrap_or(step.now), event_recorded: false });
        gang.lifecycle.stale = Some(stale);
        let over = step.now >= stale.since.after(self.stale_grace(id));
        if over && !self.is_being_completed(id) {
            self.apply_stale_policy(id, &counts, step);
        }
    }

    /// The number of members when the gang was last complete. Zero if it has nothing to lose.
    fn last_complete_size(&self, id: &GangId, counts: &MemberCounts) -> u32 {
        let before = self.gangs.get(id).and_then(|gang| gang.lifecycle.started_with).unwrap_or(0);
        if counts.running() == 0 || counts.succeeded > 0 {
            return 0;
        }
        match self.group(id) {
            Some(group) if group.quorum.is_satisfied(&counts.active) => group.quorum.min_members(),
            _ => before,
        }
    }

    /// Whether the gang has fewer members than when it was complete. A group that asks for more members than
    /// that is not a loss.
    fn lacks_members(&self, id: &GangId, counts: &MemberCounts, whole: u32) -> bool {
        let Some(group) = self.group(id) else { return false };
        counts.running() < whole
            || (group.quorum.min_members() <= whole && !group.quorum.is_satisfied(&counts.active))
    }

    /// Whether a replacement is planned and being started.
    fn is_being_completed(&self, id: &GangId) -> bool {
        self.gangs.get(id).is_some_and(|gang| match &gang.lifecycle.progress {
            Progress::Undecided => false,
            Progress::Recording(_) | Progress::Dropping(..) => true,
            Progress::Recorded(plan) => {
                plan.members.iter().any(|m| self.members.get(&m.uid).is_some_and(|m| m.pod.gated()))
            }
        })
    }

    fn apply_stale_policy(&mut self, id: &GangId, counts: &MemberCounts, step: &mut StepContext) {
        let Some(gang) = self.expect_gang(id) else { return };
        if gang.lifecycle.stale.is_some_and(|stale| !stale.event_recorded) {
            self.record_event(id, Reason::StaleJob, self.stale_words(id, counts), false, Vec::new(), step);
        }
        let mut going = gang.lifecycle.expired.clone();
        if self.on_stale(id) == OnStale::Evict {
            let active = |uid: &&PodUid| self.members.get(*uid).is_some_and(|m| m.active() && m.live());
            going.extend(gang.members.iter().filter(active).cloned());
        }
        let news = going != gang.lifecycle.expired;
        if news {
            self.mark_for_planning(id);
        }
        let Some(gang) = self.expect_gang_mut(id) else { return };
        gang.lifecycle.expired = going;
        if let Some(stale) = &mut gang.lifecycle.stale {
            stale.event_recorded = true;
        }
    }

    fn least(&self, id: &GangId) -> u32 {
        self.group(id).map_or(0, |group| group.quorum.min_members())
    }

    fn on_stale(&self, id: &GangId) -> OnStale {
        let said = self.group(id).and_then(|group| group.policies.on_stale);
        said.unwrap_or(self.settings.on_stale)
    }

    /// The grace period of a stale gang.
    pub(in crate::engine) fn stale_grace(&self, id: &GangId) -> Duration {
        let said = self.group(id).and_then(|group| group.policies.stale_grace);
        said.unwrap_or(self.settings.stale_grace)
    }

    /// The message, in the words of KAI.
    fn stale_words(&self, id: &GangId, counts: &MemberCounts) -> String {
        let (active, least) = (counts.running(), self.least(id));
        let are = if active == 1 { "pod is" } else { "pods are" };
        format!("Job is stale. {active} {are} active, minMember is {least}")
    }

    /// Message of a stale gang, and whether its grace period is over. `None` for all other gangs.
    pub(in crate::engine) fn stale_message(
        &self,
        id: &GangId,
        counts: &MemberCounts,
    ) -> Option<(String, bool)> {
        let stale = self.gangs.get(id)?.lifecycle.stale?;
        let said = self.stale_words(id, counts);
        let then = match self.on_stale(id) {
            OnStale::Keep => "they are kept".to_owned(),
            OnStale::Evict if stale.event_recorded => "they are evicted".to_owned(),
            OnStale::Evict => {
                let grace = format_seconds(self.stale_grace(id));
                format!("they are evicted after {grace}, unless it is whole again by then")
            }
        };
        Some((format!("{said}: {then}"), stale.event_recorded))
    }
}
