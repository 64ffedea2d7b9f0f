//! Gangs that were whole and are not any more, while some of their pods still run.
//!
//! A gang is stale when it has started with enough members and fewer are left, because pods were deleted, evicted or
//! failed. It is not, when its group asks for more than it started with, when a container in it crashes and starts again, or
//! once a member of it has ended well: then it is on its way to its end. Its own controller may make another pod in the
//! meantime; that is planned alone, at once, and with it the gang is whole again. Else, after the time of grace, what is
//! left is deleted or kept, as the policy says: deleted by the same durable word as a gang whose timeout is over, so that
//! a deposed leader cannot send away a gang that its successor has made whole.
//!
//! With how many members it last was whole stands in the `Gang` object, and since when it is stale in the condition there:
//! another leader goes on with both. A gang of which nothing is known that it ever was whole is left alone: its pods may
//! have been there before we were.

use std::time::Duration;

use super::conditions::{ConditionStatus, ConditionType};
use super::gather::Census;
use super::state::{Object, Progress};
use super::timeout::seconds;
use super::{Engine, Step};
use crate::dialect::OnStale;
use crate::model::{GangId, PodUid, Reason, Time};

/// That a gang is not whole any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stale {
    /// Since when.
    pub since: Time,
    /// The time of grace is over, and people have been told.
    pub told: bool,
}

impl Engine {
    /// Looks whether a gang still is what it started as, and at the end of its grace does what its policy says.
    pub(super) fn judge_stale(&mut self, id: &GangId, step: &mut Step) {
        if self.owners_asked(id) {
            return;
        }
        let census = self.census(id);
        let whole = self.whole(id, &census);
        let lacks = whole > 0 && self.lacks(id, &census, whole);
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.started_with = Some(whole);
        if !lacks {
            gang.stale = None;
            return;
        }
        let known = || {
            let Object::Known(_, stored) = &gang.object else { return None };
            let found = stored.conditions.iter().find(|c| c.kind == ConditionType::Stale)?;
            (found.status == ConditionStatus::True).then_some(found.last_transition_time)
        };
        let stale = gang.stale.unwrap_or_else(|| Stale { since: known().unwrap_or(step.now), told: false });
        gang.stale = Some(stale);
        let over = step.now >= stale.since.after(self.stale_grace(id));
        if over && !self.being_completed(id) {
            self.end_grace(id, &census, step);
        }
    }

    /// With how many members it last was whole: it is, or was before, and still has something to lose.
    fn whole(&self, id: &GangId, census: &Census) -> u32 {
        let before = self.gangs.get(id).and_then(|gang| gang.started_with).unwrap_or(0);
        if census.running() == 0 || census.succeeded > 0 {
            return 0;
        }
        match self.group(id) {
            Some(group) if group.quorum.is_satisfied(&census.active) => group.quorum.min_members(),
            _ => before,
        }
    }

    /// Whether fewer are left than it was whole with. A group that asks for more by now is no loss of members.
    fn lacks(&self, id: &GangId, census: &Census, whole: u32) -> bool {
        let Some(group) = self.group(id) else { return false };
        census.running() < whole
            || (group.quorum.min_members() <= whole && !group.quorum.is_satisfied(&census.active))
    }

    /// A member that was missing has its place and is being started.
    fn being_completed(&self, id: &GangId) -> bool {
        self.gangs.get(id).is_some_and(|gang| match &gang.progress {
            Progress::Undecided => false,
            Progress::Recording(_) | Progress::Dropping(..) => true,
            Progress::Recorded(plan) => {
                plan.members.iter().any(|m| self.members.get(&m.uid).is_some_and(|m| m.pod.gated()))
            }
        })
    }

    fn end_grace(&mut self, id: &GangId, census: &Census, step: &mut Step) {
        let Some(gang) = self.gangs.get(id) else { return };
        if gang.stale.is_some_and(|stale| !stale.told) {
            self.tell(id, Reason::StaleJob, self.stale_words(id, census), false, Vec::new(), step);
        }
        let mut going = gang.expired.clone();
        if self.on_stale(id) == OnStale::Evict {
            let active = |uid: &&PodUid| self.members.get(*uid).is_some_and(|m| m.active() && m.live());
            going.extend(gang.members.iter().filter(active).cloned());
        }
        let news = going != gang.expired;
        if news {
            self.look_at(id);
        }
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.expired = going;
        if let Some(stale) = &mut gang.stale {
            stale.told = true;
        }
    }

    fn least(&self, id: &GangId) -> u32 {
        self.group(id).map_or(0, |group| group.quorum.min_members())
    }

    fn on_stale(&self, id: &GangId) -> OnStale {
        let said = self.group(id).and_then(|group| group.policies.on_stale);
        said.unwrap_or(self.settings.on_stale)
    }

    /// For how long it is left as it is.
    pub(super) fn stale_grace(&self, id: &GangId) -> Duration {
        let said = self.group(id).and_then(|group| group.policies.stale_grace);
        said.unwrap_or(self.settings.stale_grace)
    }

    /// In the words of KAI.
    fn stale_words(&self, id: &GangId, census: &Census) -> String {
        let (active, least) = (census.running(), self.least(id));
        let are = if active == 1 { "pod is" } else { "pods are" };
        format!("Job is stale. {active} {are} active, minMember is {least}")
    }

    /// What is said of a stale gang, and whether its grace is over; `None` of all others.
    pub(super) fn stale_message(&self, id: &GangId, census: &Census) -> Option<(String, bool)> {
        let stale = self.gangs.get(id)?.stale?;
        let said = self.stale_words(id, census);
        let then = match self.on_stale(id) {
            OnStale::Keep => "they are kept".to_owned(),
            OnStale::Evict if stale.told => "they are evicted".to_owned(),
            OnStale::Evict => {
                let grace = seconds(self.stale_grace(id));
                format!("they are evicted after {grace}, unless it is whole again by then")
            }
        };
        Some((format!("{said}: {then}"), stale.told))
    }
}
