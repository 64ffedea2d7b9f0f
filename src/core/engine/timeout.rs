//! How long a gang may wait for its start, and what becomes of one that has waited for longer.
//!
//! The clock runs while a complete gang waits to be placed, as in coscheduling and in Kubernetes itself; a gang that gathers
//! has nothing to time out. It begins when the last pod that it takes was created, or its group: both stand in the API
//! server, so every leader comes to the same end of the same try, and nothing has to be written down.
//!
//! A gang that is to go on waiting is queued as if it had come when its try ended: behind the others of its priority. Each
//! further try lasts twice as long as the one before, which is all of the back-off there is: it is asked about in every
//! round as before, so room that appears is never missed.
//!
//! A gang that is to be deleted is, once it is durable in its `Gang` object that these pods have expired. That write and the
//! write of a plan are compare-and-swap of one object, so one of them wins: a gang that has a durable plan is not timed
//! out, and whoever leads later reads that these pods are to go, and never lifts one of them. What is left of a stale gang
//! ([`super::stale`]) goes the same way.

use std::time::Duration;

use super::state::{Object, PodRequest, Progress};
use super::types::PodRef;
use super::{Action, Engine, SafetyRule, Step};
use crate::dialect::{Group, OnTimeout};
use crate::model::{GangId, PodUid, Time};

/// How long after a deletion it is asked for again, when the pod is still there.
pub(super) const DELETE_AGAIN: Duration = Duration::from_secs(5);

/// How far a gang is with its tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lapse {
    /// When the last try ended without a start; `None` in the first one.
    pub at: Option<Time>,
    /// When this one ends.
    pub next: Time,
}

impl Lapse {
    /// Of a gang that could have started since then. The tries last one timeout, two, four, eight.
    fn of(since: Time, timeout: Duration, now: Time) -> Self {
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let waited = now.0.saturating_sub(since.0);
        // So many timeouts are over, and one more: its highest bit says how many tries that is.
        let tries = (waited / timeout).saturating_add(1).ilog2();
        let end = |tries: u32| {
            let timeouts = 1_u64.checked_shl(tries).map_or(u64::MAX, |power| power - 1);
            Time(since.0.saturating_add(timeout.saturating_mul(timeouts)))
        };
        Self { at: (tries > 0).then(|| end(tries)), next: end(tries + 1) }
    }
}

impl Engine {
    /// Since when a gang of which nothing has started could have: the last pod that it took is there, and its group.
    pub(super) fn complete_since(&self, id: &GangId) -> Option<Time> {
        let group = self.group(id)?;
        let mut census = self.census(id);
        if census.started() > 0 {
            return None;
        }
        let coming = self.to_come(id, self.by_role(&census));
        let quorum = if coming.is_empty() { group.quorum.clone() } else { self.whole_quorum(id, group) };
        for member in coming {
            *census.active.entry(member.role).or_default() += 1;
        }
        let ready = std::mem::take(&mut census.ready);
        let mut last = group.created;
        for uid in &ready {
            let member = self.members.get(uid)?;
            *census.active.entry(super::gather::role(&member.pod).cloned()).or_default() += 1;
            last = last.max(member.pod.created);
            if quorum.is_satisfied(&census.active) {
                return Some(last);
            }
        }
        None
    }

    /// Looks at the clock of a gang: whether a try is over, and what becomes of it then.
    pub(super) fn judge_timeout(&mut self, id: &GangId, now: Time) {
        if self.owners_asked(id) {
            return;
        }
        let timeout = self.group(id).and_then(|group| group.timeout);
        let Some(gang) = self.gangs.get(id) else { return };
        // While it is being placed the clock stands.
        let lapse = if gang.progress == Progress::Undecided {
            timeout.and_then(|timeout| Some(Lapse::of(self.complete_since(id)?, timeout, now)))
        } else {
            gang.lapse.filter(|_| timeout.is_some())
        };
        // Whoever is on its way out is not lifted any more: nothing has to be remembered of it.
        let here = |uid: &&PodUid| self.members.get(*uid).is_some_and(|m| m.live());
        let left: Vec<PodUid> = gang.expired.iter().filter(here).cloned().collect();
        let expired = if left.is_empty() && lapse.is_some_and(|lapse| lapse.at.is_some()) {
            self.to_expire(id)
        } else {
            left
        };
        let Some(gang) = self.gangs.get_mut(id) else { return };
        let at = |lapse: Option<Lapse>| lapse.and_then(|lapse| lapse.at);
        let news = at(gang.lapse) != at(lapse) || gang.expired.iter().ne(&expired);
        gang.lapse = lapse;
        gang.expired = expired.into_iter().collect();
        if news {
            self.look_at(id);
        }
    }

    /// The pods of a gang whose time is over that are to be deleted: all that are still gated, where that is its policy
    /// and nothing of it is or may be lifted.
    fn to_expire(&self, id: &GangId) -> Vec<PodUid> {
        let policy = self.group(id).and_then(|group| group.policies.on_timeout);
        let Some(gang) = self.gangs.get(id) else { return Vec::new() };
        let members = || gang.members.iter().filter_map(|uid| self.members.get(uid));
        let unsure = members().any(|m| m.must_fence || m.request == Some(PodRequest::Lift));
        if policy.unwrap_or(self.settings.on_timeout) != OnTimeout::Delete
            || gang.progress != Progress::Undecided
            || unsure
        {
            return Vec::new();
        }
        members().filter(|m| m.pod.gated() && m.live()).map(|m| m.pod.uid.clone()).collect()
    }

    /// Takes note of pods that are to go, as it is durable: also by the word of another leader.
    pub(super) fn expired_seen(&mut self, id: &GangId, expired: &[PodUid], step: &mut Step) {
        if !self.settings.keeps(SafetyRule::HeedExpired) {
            return;
        }
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.expired.extend(expired.iter().filter(|uid| gang.members.contains(*uid)).cloned());
        // Their word was durable before this plan: it was never lifted, and never will be.
        if let Progress::Recording(plan) = &gang.progress
            && plan.members.iter().any(|m| gang.expired.contains(&m.uid))
            && !self.gangs.get(id).is_some_and(|gang| gang.progress.plan().is_some_and(|p| self.begun(p)))
        {
            self.undecide(id, step);
        }
    }

    /// Deletes what is durably expired.
    pub(super) fn delete_expired(&mut self, id: &GangId, step: &mut Step) {
        let Some(gang) = self.gangs.get(id).filter(|gang| !gang.expired.is_empty()) else { return };
        let Object::Known(_, stored) = &gang.object else { return };
        let again = gang.evicted.is_none_or(|at| step.now.since(at) >= DELETE_AGAIN || step.now < at);
        let durable = self.settings.keeps(SafetyRule::ExpireFirst);
        let expired: Vec<&PodUid> =
            if durable { stored.expired.iter().collect() } else { gang.expired.iter().collect() };
        let going: Vec<PodRef> = (expired.into_iter())
            .filter_map(|uid| self.members.get(uid))
            .filter(|m| m.live())
            .map(|m| PodRef::of(&m.pod))
            .collect();
        if !again || going.is_empty() {
            return;
        }
        let why =
            if gang.lapse.is_some() { "has not started within its timeout" } else { "is not whole any more" };
        let message = format!("gang {} {why}", id.name);
        for pod in going {
            step.send(Action::Evict { pod, message: message.clone() });
        }
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.evicted = Some(step.now);
        }
    }

    /// What is said of a gang that has waited for longer than its timeout; `None` of all others.
    pub(super) fn lapsed(&self, id: &GangId) -> Option<String> {
        let gang = self.gangs.get(id)?;
        gang.lapse?.at?;
        if !gang.expired.is_empty() {
            let pods = match gang.expired.len() {
                1 => "its pod is".to_owned(),
                many => format!("its {many} pods are"),
            };
            let limit = self.limit(id).unwrap_or_default();
            return Some(format!("not started{limit}: {pods} deleted"));
        }
        let limit = self.limit(id)?;
        Some(format!("not started{limit}: queued again, behind the others of its priority"))
    }

    fn limit(&self, id: &GangId) -> Option<String> {
        let timeout = self.group(id).and_then(|group: &Group| group.timeout)?;
        Some(format!(" within {}", seconds(timeout)))
    }
}

/// A length of time as people read it: `120 s`, `1.5 s`.
pub(super) fn seconds(time: Duration) -> String {
    let (whole, millis) = (time.as_secs(), time.subsec_millis());
    if millis == 0 { format!("{whole} s") } else { format!("{whole}.{millis:03} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_try_lasts_twice_as_long_as_the_one_before() {
        let check = |waited: u64, at: Option<u64>, next: u64| {
            let lapse = Lapse::of(Time(1000), Duration::from_secs(10), Time(1000 + waited));
            assert_eq!(
                lapse,
                Lapse { at: at.map(|at| Time(1000 + at)), next: Time(1000 + next) },
                "{waited}"
            );
        };
        check(0, None, 10_000);
        check(9_999, None, 10_000);
        check(10_000, Some(10_000), 30_000);
        check(29_999, Some(10_000), 30_000);
        check(30_000, Some(30_000), 70_000);
        check(70_000, Some(70_000), 150_000);
        // A clock that is behind has nothing to say, and absurd times do not overflow.
        let early = Lapse::of(Time(5000), Duration::from_secs(1), Time(0));
        assert_eq!(early, Lapse { at: None, next: Time(6000) });
        let late = Lapse::of(Time(0), Duration::from_millis(1), Time(u64::MAX));
        assert!(late.at.is_some() && late.next >= Time(u64::MAX - 1), "{late:?}");
    }
}
