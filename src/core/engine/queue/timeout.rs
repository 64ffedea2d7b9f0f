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
//! The pods of a gang with policy `Delete` are evicted once `status.expired` of its `Gang` object names
//! them. That write and the write of a plan are compare-and-swap of one object, so one of them wins. A gang
//! with a durable plan does not time out. Every later leader reads the expired pods, evicts them and never
//! lifts one. The rest of a stale gang (`members/stale.rs`) is evicted in the same way.

use std::time::Duration;

use crate::dialect::OnTimeout;
use crate::engine::members::role;
use crate::engine::protocol::plan_progress::{PlanInput, Progress};
use crate::engine::protocol::{Action, PodRef};
use crate::engine::settings::SafetyRule;
use crate::engine::state::{Effects, EngineView, Gang, GangObject, TimeoutState, format_seconds};
use crate::model::{PodUid, Time};

/// After this time the engine evicts an expired pod again if it still exists.
pub(in crate::engine) const DELETION_RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl Gang {
    /// Since when a gang without started members could have started: creation of the last pod that it needs,
    /// or of its group.
    pub(in crate::engine) fn complete_since(&self, view: &EngineView<'_>) -> Option<Time> {
        let group = self.group(view)?;
        let mut counts = self.count_members();
        if counts.started() > 0 {
            return None;
        }
        let missing = self.missing_members(view, counts.present_by_role());
        let quorum = if missing.is_empty() { group.quorum.clone() } else { self.full_quorum(view, group) };
        for member in missing {
            *counts.active.entry(member.role).or_default() += 1;
        }
        let mut last = group.created;
        for pod in self.pods(&counts.ready) {
            *counts.active.entry(role(pod).cloned()).or_default() += 1;
            last = last.max(pod.created);
            if quorum.is_satisfied(&counts.active) {
                return Some(last);
            }
        }
        None
    }

    /// Checks whether an attempt is over, and applies the policy. Returns whether the gang has to be planned
    /// again.
    pub(in crate::engine) fn check_timeout(&mut self, view: &EngineView<'_>) -> bool {
        if self.are_owners_being_read() {
            return false;
        }
        let timeout = self.group(view).and_then(|group| group.timeout);
        // The clock stops while the gang has a plan.
        let state = if self.lifecycle.progress == Progress::Undecided {
            timeout.and_then(|timeout| Some(TimeoutState::of(self.complete_since(view)?, timeout, view.now)))
        } else {
            self.lifecycle.timeout.filter(|_| timeout.is_some())
        };
        // The engine does not lift a pod that is being deleted, so it need not be remembered.
        let live = |uid: &&PodUid| self.members.get(*uid).is_some_and(|m| m.live());
        let left: Vec<PodUid> = self.lifecycle.expired.iter().filter(live).cloned().collect();
        let expired = if left.is_empty() && state.is_some_and(|state| state.last_expiry.is_some()) {
            self.pods_to_expire(view)
        } else {
            left
        };
        let last_expiry = |state: Option<TimeoutState>| state.and_then(|state| state.last_expiry);
        let changed = last_expiry(self.lifecycle.timeout) != last_expiry(state)
            || self.lifecycle.expired.iter().ne(&expired);
        self.lifecycle.timeout = state;
        self.lifecycle.expired = expired.into_iter().collect();
        changed
    }

    /// The pods to delete after the timeout: all gated pods, if that is the policy and no pod is or may be
    /// lifted.
    fn pods_to_expire(&self, view: &EngineView<'_>) -> Vec<PodUid> {
        let policy = self.group(view).and_then(|group| group.policies.on_timeout);
        if policy.unwrap_or(view.settings.on_timeout) != OnTimeout::Delete
            || self.lifecycle.progress != Progress::Undecided
            || self.members.values().any(|member| member.may_be_lifted())
        {
            return Vec::new();
        }
        let gated = self.members.iter().filter(|(_, member)| member.pod.gated() && member.live());
        gated.map(|(uid, _)| uid.clone()).collect()
    }

    /// Takes in the expired pods of a stored status, also when another leader wrote it. Returns what follows
    /// for the plan.
    pub(in crate::engine) fn observe_expired(
        &mut self,
        expired: &[PodUid],
        view: &EngineView<'_>,
    ) -> Option<PlanInput<'static>> {
        if !view.enforces(SafetyRule::ObserveExpired) {
            return None;
        }
        let members = &self.members;
        self.lifecycle.expired.extend(expired.iter().filter(|uid| members.contains_key(*uid)).cloned());
        // The expiry was durable before this plan, so no leader has lifted a member of the plan, and none
        // ever will.
        let plan = self.plan()?;
        let expires = plan.members.iter().any(|m| self.lifecycle.expired.contains(&m.uid));
        (expires && !self.has_started(plan)).then_some(PlanInput::Expired)
    }

    /// Deletes the pods whose expiry is durable.
    pub(in crate::engine) fn delete_expired(&mut self, view: &EngineView<'_>, effects: &mut Effects) {
        // Without an object no expiry is durable.
        let GangObject::Known(_, stored) = &self.record.object else { return };
        if self.lifecycle.expired.is_empty() || self.evicted_recently(DELETION_RETRY_INTERVAL, view.now) {
            return;
        }
        let expired: Vec<&PodUid> = if view.enforces(SafetyRule::ExpireFirst) {
            stored.expired.iter().collect()
        } else {
            self.lifecycle.expired.iter().collect()
        };
        let going: Vec<PodRef> = (expired.into_iter())
            .filter_map(|uid| self.members.get(uid))
            .filter(|member| member.live())
            .map(|member| PodRef::of(&member.pod))
            .collect();
        if going.is_empty() {
            return;
        }
        let why = if self.lifecycle.torn.is_some() {
            "was not bound in time"
        } else if self.lifecycle.timeout.is_some() {
            "has not started within its timeout"
        } else {
            "is not whole any more"
        };
        let message = format!("gang {} {why}", self.id.name);
        for pod in going {
            effects.send(Action::Evict { pod, message: message.clone() });
        }
        self.timers.last_eviction = Some(view.now);
    }

    /// Message of a gang whose timeout has expired. `None` for all other gangs.
    pub(in crate::engine) fn timeout_message(&self, view: &EngineView<'_>) -> Option<String> {
        self.lifecycle.timeout?.last_expiry?;
        let limit = self.group(view).and_then(|group| group.timeout);
        let limit = limit.map(|timeout| format!(" within {}", format_seconds(timeout)));
        if !self.lifecycle.expired.is_empty() {
            let pods = match self.lifecycle.expired.len() {
                1 => "its pod is".to_owned(),
                many => format!("its {many} pods are"),
            };
            return Some(format!("not started{}: {pods} deleted", limit.unwrap_or_default()));
        }
        Some(format!("not started{}: queued again, behind the others of its priority", limit?))
    }
}
