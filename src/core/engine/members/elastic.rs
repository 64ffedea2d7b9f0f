//! Elastic gangs (`portcullis.dev/elastic`): gangs with as many members as the owners of their pods want.
//!
//! The engine does not watch owners. `ReadOwner` is one GET, sent when a member is created or deleted; a
//! ReplicaSet leads to its Deployment. Until the answer the engine plans nothing new of the gang. That is
//! enough, because a controller writes the number of replicas before it creates the first pod. A gang with
//! fewer or more pods than its owners want is read again from time to time: a Deployment may have been scaled
//! back without an event about a pod.
//!
//! - Owners count once they have wanted as many members as the group says, of each of its tasks. Until then
//!   there may be owners without a pod, and the number of the group is the minimum. From then on only the
//!   owners count, also below that number.
//! - A scale-up waits until all of its pods exist and fit. A replacement, or a surge pod of a rolling update,
//!   starts alone and at once.
//! - Nothing is planned while an owner has more pods than it wants: the controller will delete some of them.
//! - Failed reads are retried. The last answer counts after `MAX_OWNER_READ_FAILURES` failures. Nothing
//!   starts before the first answer.
//! - Pods of other owners, or without one, count as they are.
//!
//! The condition `Elastic` is `True` once the owners count, so the next leader knows it. An owner whose pods
//! are all gone for a moment is known to this leader only. Two safety rules show in tests that this matters:
//! `AskOwners` and `GrowTogether`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::dialect;
use crate::engine::members::MemberCounts;
use crate::engine::protocol::{Action, ConditionStatus, ConditionType, RequestOutcome};
use crate::engine::settings::SafetyRule;
use crate::engine::state::{
    Effects, ElasticState, EngineView, Gang, OwnerLookup, OwnerReadRound, RetrySlots, deployment_of,
};
use crate::model::{Time, str};
use crate::objects::{ObjectRef, OwnerKind};

/// Interval between reads of the owners of a gang with too few or too many members.
const OWNER_REREAD_INTERVAL: Duration = Duration::from_secs(10);
/// Lower bound of that interval for each timer of the engine: at most twenty gangs are read each second.
const OWNER_REREAD_INTERVAL_PER_TIMER: Duration = Duration::from_millis(50);
/// Minimum pause between reads of the owners of a started gang, so that a job that ends pod by pod does not
/// cost a read for each.
const OWNER_READ_PAUSE: Duration = Duration::from_millis(500);

impl Gang {
    /// Records that a member was created: the size of the gang may have changed.
    pub(in crate::engine) fn mark_member_added(&mut self) {
        if let Some(elastic_state) = &mut self.elastic_state {
            elastic_state.member_added = true;
        }
    }

    /// Records that a member was deleted, is being deleted or changed its owner.
    pub(in crate::engine) fn mark_member_removed(&mut self) {
        if let Some(elastic_state) = &mut self.elastic_state {
            elastic_state.member_removed = true;
        }
    }

    /// Reads the owners of an elastic gang if that is due, and updates the size of the gang. Returns whether
    /// the gang has to be planned again.
    pub(in crate::engine) fn update_elastic_size(
        &mut self,
        view: &EngineView<'_>,
        effects: &mut Effects,
    ) -> bool {
        let policy = self.own_group(view.group_objects).and_then(|group| group.policies.elastic);
        // A template describes several gangs, and its owner has pods in all of them.
        if policy != Some(true) || dialect::template_group(&self.id).is_some() {
            return self.end_elastic();
        }
        let before = self.elastic_state.clone();
        let stored_counted = self.stored_owners_counted();
        let elastic_state = self.elastic_state.get_or_insert_with(|| {
            Box::new(ElasticState { member_removed: true, ..ElasticState::default() })
        });
        elastic_state.owners_counted |= stored_counted;
        let counts = self.count_members();
        if self.is_owner_read_due(view, &counts) {
            self.read_owners(view.now, effects);
        }
        self.apply_owner_size(view, &counts);
        self.elastic_state != before
    }

    /// Forgets the owners of a gang that is not elastic any more, once no read is under way.
    fn end_elastic(&mut self) -> bool {
        let is_idle = self.elastic_state.as_ref().is_some_and(|elastic_state| !elastic_state.is_reading());
        if is_idle {
            self.elastic_state = None;
            self.elastic_group = None;
        }
        is_idle
    }

    /// Whether the stored condition `Elastic` says that the owners have been counted.
    fn stored_owners_counted(&self) -> bool {
        let conditions = self.record.object.status().map(|status| status.conditions.as_slice());
        (conditions.unwrap_or_default().iter())
            .any(|c| c.kind == ConditionType::Elastic && c.status == ConditionStatus::True)
    }

    /// Whether the owners are known well enough to plan more of the gang.
    pub(in crate::engine) fn are_owners_known(&self, view: &EngineView<'_>, counts: &MemberCounts) -> bool {
        let Some(elastic_state) = self.elastic_state.as_deref() else { return true };
        if !view.enforces(SafetyRule::AskOwners) {
            return true;
        }
        let tally = self.tally_owners(elastic_state, counts);
        let least = self.group(view).map_or(0, |group| group.quorum.min_members());
        let enough = elastic_state.member_added && counts.live.saturating_add(tally.ended) >= least;
        !tally.unread
            && tally.surplus.is_none()
            && !elastic_state.is_outdated()
            && !enough
            && !elastic_state.is_unreliable()
    }

    /// Whether a read is pending, after which the size of the gang may be different. Until then missing
    /// members have no consequences.
    pub(in crate::engine) fn are_owners_being_read(&self) -> bool {
        self.elastic_state.as_ref().is_some_and(|elastic_state| elastic_state.is_outdated())
    }

    /// When the owners are read again without any other event.
    pub(in crate::engine) fn next_owner_read(&self, view: &EngineView<'_>) -> Option<Time> {
        let elastic_state = self.elastic_state.as_deref()?;
        if elastic_state.is_reading() || self.members.is_empty() {
            return None;
        }
        if let Some(until) = elastic_state.retry.waits(view.now) {
            return Some(until);
        }
        let at = self.owner_read_time(view, elastic_state, &self.count_members())?;
        (at > view.now).then_some(at)
    }

    /// The earliest time of the next read. `None` if no read is needed.
    fn owner_read_time(
        &self,
        view: &EngineView<'_>,
        elastic_state: &ElasticState,
        counts: &MemberCounts,
    ) -> Option<Time> {
        let tally = self.tally_owners(elastic_state, counts);
        let least = self.group(view).map_or(0, |group| group.quorum.min_members());
        let present = counts.live.saturating_add(tally.ended);
        let last_read = elastic_state.last_read.unwrap_or_default();
        let changed = elastic_state.member_removed || (elastic_state.member_added && present >= least);
        if tally.unread || elastic_state.read_failure.is_some() || (changed && counts.running() == 0) {
            return Some(Time::default());
        }
        if changed {
            return Some(last_read.after(OWNER_READ_PAUSE));
        }
        let interval = OWNER_REREAD_INTERVAL.max(OWNER_REREAD_INTERVAL_PER_TIMER.saturating_mul(view.timers));
        (present < least || tally.surplus.is_some()).then(|| last_read.after(interval))
    }

    fn is_owner_read_due(&self, view: &EngineView<'_>, counts: &MemberCounts) -> bool {
        let Some(elastic_state) = self.elastic_state.as_deref() else { return false };
        if elastic_state.is_reading()
            || elastic_state.retry.waits(view.now).is_some()
            || self.members.is_empty()
        {
            return false;
        }
        let clock_jumped_back = elastic_state.last_read.is_some_and(|last_read| last_read > view.now);
        self.owner_read_time(view, elastic_state, counts)
            .is_some_and(|at| at <= view.now || clock_jumped_back)
    }

    /// Starts a read of all owners: those of the live members, and those without a pod at the moment.
    fn read_owners(&mut self, now: Time, effects: &mut Effects) {
        let Some(elastic_state) = self.elastic_state.as_deref_mut() else { return };
        let live = self.members.values().filter(|member| member.live());
        let owners = live.filter_map(|member| member.pod.owner.as_ref());
        let mut under_way: BTreeSet<ObjectRef> =
            owners.filter(|owner| OwnerKind::of(owner).is_some()).cloned().collect();
        under_way.extend(elastic_state.owners_without_pods(&self.id).map(|(owner, _)| owner.clone()));
        for owner in &under_way {
            effects.send(Action::ReadOwner { gang: self.id.clone(), owner: owner.clone() });
        }
        (elastic_state.member_added, elastic_state.member_removed) = (false, false);
        elastic_state.last_read = Some(now);
        if under_way.is_empty() {
            elastic_state.readings.clear();
            elastic_state.read_failure = None;
        } else {
            elastic_state.round = Some(OwnerReadRound { under_way, ..OwnerReadRound::default() });
        }
    }

    /// Takes in the answer to a read of an owner. Returns false if no such read is under way any more.
    pub(in crate::engine) fn handle_owner_answer(
        &mut self,
        owner: &ObjectRef,
        outcome: RequestOutcome,
        now: Time,
        slots: &mut RetrySlots,
        effects: &mut Effects,
    ) -> bool {
        let Some(elastic_state) = self.elastic_state.as_deref_mut() else { return false };
        let Some(round) = elastic_state.round.as_mut() else { return false };
        if !round.under_way.remove(owner) {
            return false;
        }
        let found = match outcome {
            RequestOutcome::Owner(reading) if reading.uid == owner.uid && !reading.terminating => {
                Some(OwnerLookup::Present(*reading))
            }
            RequestOutcome::Owner(_) | RequestOutcome::Gone => Some(OwnerLookup::Gone),
            other => {
                let why = match other {
                    RequestOutcome::Refused(refusal) => {
                        round.is_refused = true;
                        refusal.to_string()
                    }
                    RequestOutcome::Failed(message) => message,
                    _ => "no answer".to_owned(),
                };
                round.read_failure =
                    Some(str(format!("{} {} cannot be read: {why}", owner.kind, owner.name)));
                elastic_state.readings.get(owner).cloned()
            }
        };
        if let Some(found) = found {
            if let OwnerLookup::Present(reading) = &found
                && let Some(above) = deployment_of(reading)
                && !round.found.contains_key(above)
                && round.under_way.insert(above.clone())
            {
                effects.send(Action::ReadOwner { gang: self.id.clone(), owner: above.clone() });
            }
            round.found.insert(owner.clone(), found);
        }
        if round.under_way.is_empty() {
            let round = elastic_state.round.take().unwrap_or_default();
            elastic_state.finish_round(round, now, slots);
        }
        true
    }
}
