//! The start timeout of a gang, and what happens when it expires.
//!
//! The clock runs while a complete gang waits for nodes, as in Coscheduling and in Kubernetes itself. A
//! gathering gang has no timeout. The clock starts with the creation of the last pod that the gang needs, or
//! of its group. Both times are in the API server, so every leader computes the same end of the same attempt,
//! and nothing has to be stored.
//!
//! A gang with policy `Requeue` is queued as if it had been created when its attempt ended: behind the others
//! of its priority. Each further attempt lasts twice as long as the one before. That is the only back-off:
//! the gang is planned in every round as before, so no free capacity is missed.
//!
//! A gang with policy `Delete` is deleted once `status.expired` of its `Gang` object names its pods. That
//! write and the write of a plan are compare-and-swap of one object, so one of them wins. A gang with a
//! durable plan does not time out. Every later leader reads the expired pods, deletes them and never lifts
//! one. The rest of a stale gang ([`crate::engine::members::stale`]) is deleted in the same way.

use std::time::Duration;

use crate::dialect::{Group, OnTimeout};
use crate::engine::gang_state::{GangObject, PodRequest};
use crate::engine::protocol::PodRef;
use crate::engine::protocol::plan_progress::{PlanInput, Progress};
use crate::engine::{Action, Engine, SafetyRule, StepContext};
use crate::model::{GangId, PodUid, Time};

/// After this time the engine deletes an expired pod again if it still exists.
pub(in crate::engine) const DELETION_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The attempts of a gang to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct TimeoutState {
    /// When the last attempt ended without a start. `None` during the first one.
    pub last_expiry: Option<Time>,
    /// When the current attempt ends.
    pub next_expiry: Time,
}

impl TimeoutState {
    /// The state of a gang that could have started since `since`. The attempts last one, two, four, ...
    /// timeouts.
    fn of(since: Time, timeout: Duration, now: Time) -> Self {
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let waited = now.0.saturating_sub(since.0);
        // The highest bit of the number of timeouts, the current one included, is the number of attempts that
        // are over.
        let attempts = (waited / timeout).saturating_add(1).ilog2();
        let end = |attempts: u32| {
            let timeouts = 1_u64.checked_shl(attempts).map_or(u64::MAX, |power| power - 1);
            Time(since.0.saturating_add(timeout.saturating_mul(timeouts)))
        };
        Self { last_expiry: (attempts > 0).then(|| end(attempts)), next_expiry: end(attempts + 1) }
    }
}

impl Engine {
    /// Since when a gang without started members could have started: creation of the last pod that it needs,
    /// or of its group.
    pub(in crate::engine) fn complete_since(&self, id: &GangId) -> Option<Time> {
        let group = self.group(id)?;
        let mut counts = self.count_members(id);
        if counts.started() > 0 {
            return None;
        }
        let missing = self.missing_members(id, self.by_role(&counts));
        let quorum = if missing.is_empty() { group.quorum.clone() } else { self.full_quorum(id, group) };
        for member in missing {
            *counts.active.entry(member.role).or_default() += 1;
        }
        let ready = std::mem::take(&mut counts.ready);
        let mut last = group.created;
        for uid in &ready {
            let member = self.members.get(uid)?;
            *counts.active.entry(crate::engine::members::role(&member.pod).cloned()).or_default() += 1;
            last = last.max(member.pod.created);
            if quorum.is_satisfied(&counts.active) {
                return Some(last);
            }
        }
        None
    }

    /// Checks whether an attempt is over, and applies the policy.
    pub(in crate::engine) fn check_timeout(&mut self, id: &GangId, now: Time) {
        if self.are_owners_being_read(id) {
            return;
        }
        let timeout = self.group(id).and_then(|group| group.timeout);
        let Some(gang) = self.expect_gang(id) else { return };
        // The clock stops while the gang has a plan.
        let state = if gang.lifecycle.progress == Progress::Undecided {
            timeout.and_then(|timeout| Some(TimeoutState::of(self.complete_since(id)?, timeout, now)))
        } else {
            gang.lifecycle.timeout.filter(|_| timeout.is_some())
        };
        // The engine does not lift a pod that is being deleted, so it need not be remembered.
        let here = |uid: &&PodUid| self.members.get(*uid).is_some_and(|m| m.live());
        let left: Vec<PodUid> = gang.lifecycle.expired.iter().filter(here).cloned().collect();
        let expired = if left.is_empty() && state.is_some_and(|state| state.last_expiry.is_some()) {
            self.pods_to_expire(id)
        } else {
            left
        };
        let Some(gang) = self.expect_gang_mut(id) else { return };
        let at = |state: Option<TimeoutState>| state.and_then(|state| state.last_expiry);
        let news = at(gang.lifecycle.timeout) != at(state) || gang.lifecycle.expired.iter().ne(&expired);
        gang.lifecycle.timeout = state;
        gang.lifecycle.expired = expired.into_iter().collect();
        if news {
            self.mark_for_planning(id);
        }
    }

    /// The pods to delete after the timeout: all gated pods, if that is the policy and no pod is or may be
    /// lifted.
    fn pods_to_expire(&self, id: &GangId) -> Vec<PodUid> {
        let policy = self.group(id).and_then(|group| group.policies.on_timeout);
        let Some(gang) = self.expect_gang(id) else { return Vec::new() };
        let members = || gang.members.iter().filter_map(|uid| self.members.get(uid));
        let unsure = members().any(|m| m.must_fence || m.request == Some(PodRequest::Lift));
        if policy.unwrap_or(self.settings.on_timeout) != OnTimeout::Delete
            || gang.lifecycle.progress != Progress::Undecided
            || unsure
        {
            return Vec::new();
        }
        members().filter(|m| m.pod.gated() && m.live()).map(|m| m.pod.uid.clone()).collect()
    }

    /// Takes in the expired pods of a stored status, also when another leader wrote it.
    pub(in crate::engine) fn observe_expired(
        &mut self,
        id: &GangId,
        expired: &[PodUid],
        step: &mut StepContext,
    ) {
        if !self.settings.enforces(SafetyRule::HeedExpired) {
            return;
        }
        let Some(gang) = self.expect_gang_mut(id) else { return };
        gang.lifecycle.expired.extend(expired.iter().filter(|uid| gang.members.contains(*uid)).cloned());
        let expired = gang.lifecycle.expired.clone();
        // The expiry was durable before this plan, so no leader has lifted a member of the plan, and none ever will.
        if let Some(plan) = self.gangs.get(id).and_then(|gang| gang.lifecycle.progress.plan())
            && plan.members.iter().any(|m| expired.contains(&m.uid))
            && !self.has_started(plan)
        {
            self.advance_plan(id, PlanInput::Expired, step);
        }
    }

    /// Deletes the pods whose expiry is durable.
    pub(in crate::engine) fn delete_expired(&mut self, id: &GangId, step: &mut StepContext) {
        let Some(gang) = self.expect_gang(id) else { return };
        if gang.lifecycle.expired.is_empty() {
            return;
        }
        // Without an object no expiry is durable.
        let GangObject::Known(_, stored) = &gang.record.object else { return };
        let again = gang
            .timers
            .last_eviction
            .is_none_or(|at| step.now.since(at) >= DELETION_RETRY_INTERVAL || step.now < at);
        let durable = self.settings.enforces(SafetyRule::ExpireFirst);
        let expired: Vec<&PodUid> =
            if durable { stored.expired.iter().collect() } else { gang.lifecycle.expired.iter().collect() };
        let going: Vec<PodRef> = (expired.into_iter())
            .filter_map(|uid| self.members.get(uid))
            .filter(|m| m.live())
            .map(|m| PodRef::of(&m.pod))
            .collect();
        if !again || going.is_empty() {
            return;
        }
        let why = if gang.lifecycle.timeout.is_some() {
            "has not started within its timeout"
        } else {
            "is not whole any more"
        };
        let message = format!("gang {} {why}", id.name);
        for pod in going {
            step.send(Action::Evict { pod, message: message.clone() });
        }
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.timers.last_eviction = Some(step.now);
        }
    }

    /// Message of a gang whose timeout has expired. `None` for all other gangs.
    pub(in crate::engine) fn timeout_message(&self, id: &GangId) -> Option<String> {
        let gang = self.gangs.get(id)?;
        gang.lifecycle.timeout?.last_expiry?;
        if !gang.lifecycle.expired.is_empty() {
            let pods = match gang.lifecycle.expired.len() {
                1 => "its pod is".to_owned(),
                many => format!("its {many} pods are"),
            };
            let limit = self.timeout_suffix(id).unwrap_or_default();
            return Some(format!("not started{limit}: {pods} deleted"));
        }
        let limit = self.timeout_suffix(id)?;
        Some(format!("not started{limit}: queued again, behind the others of its priority"))
    }

    fn timeout_suffix(&self, id: &GangId) -> Option<String> {
        let timeout = self.group(id).and_then(|group: &Group| group.timeout)?;
        Some(format!(" within {}", format_seconds(timeout)))
    }
}

/// A duration as text: `120 s`, `1.5 s`.
pub(in crate::engine) fn format_seconds(time: Duration) -> String {
    let (whole, millis) = (time.as_secs(), time.subsec_millis());
    if millis == 0 { format!("{whole} s") } else { format!("{whole}.{millis:03} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_lasts_twice_as_long_as_the_one_before() {
        let check = |waited: u64, at: Option<u64>, next: u64| {
            let state = TimeoutState::of(Time(1000), Duration::from_secs(10), Time(1000 + waited));
            assert_eq!(
                state,
                TimeoutState { last_expiry: at.map(|at| Time(1000 + at)), next_expiry: Time(1000 + next) },
                "{waited}"
            );
        };
        check(0, None, 10_000);
        check(9_999, None, 10_000);
        check(10_000, Some(10_000), 30_000);
        check(29_999, Some(10_000), 30_000);
        check(30_000, Some(30_000), 70_000);
        check(70_000, Some(70_000), 150_000);
        // A clock that is behind changes nothing, and extreme times do not overflow.
        let early = TimeoutState::of(Time(5000), Duration::from_secs(1), Time(0));
        assert_eq!(early, TimeoutState { last_expiry: None, next_expiry: Time(6000) });
        let late = TimeoutState::of(Time(0), Duration::from_millis(1), Time(u64::MAX));
        assert!(late.last_expiry.is_some() && late.next_expiry >= Time(u64::MAX - 1), "{late:?}");
    }
}
