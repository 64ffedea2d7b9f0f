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

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::dialect::{self, Group, Quorum};
use crate::engine::gang_state::{Backoff, GangObject, GangState};
use crate::engine::members::MemberCounts;
use crate::engine::protocol::RequestOutcome;
use crate::engine::status::conditions::{ConditionStatus, ConditionType, ElasticCondition};
use crate::engine::{Action, Engine, SafetyRule, StepContext};
use crate::model::{GangId, PodUid, Str, Time, str};
use crate::objects::{ObjectRef, OwnerKind};
use crate::pod::OwnerState;

/// Interval between reads of the owners of a gang with too few or too many members.
const OWNER_REREAD_INTERVAL: Duration = Duration::from_secs(10);
/// Lower bound of that interval for each timer of the engine: at most twenty gangs are read each second.
const OWNER_REREAD_INTERVAL_PER_TIMER: Duration = Duration::from_millis(50);
/// Minimum pause between reads of the owners of a started gang, so that a job that ends pod by pod does not
/// cost a read for each.
const OWNER_READ_PAUSE: Duration = Duration::from_millis(500);
/// After this many failed reads in a row, the last answer counts.
const MAX_OWNER_READ_FAILURES: u32 = 6;

/// What the engine knows of the owners of the pods of an elastic gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct ElasticState {
    /// A member was created since the last read.
    member_added: bool,
    /// A member was deleted, or changed its owner, since the last read.
    member_removed: bool,
    readings: BTreeMap<ObjectRef, OwnerLookup>,
    /// The read that is under way.
    round: Option<OwnerReadRound>,
    /// Start of the last read.
    last_read: Option<Time>,
    backoff: Backoff,
    /// The error of the last read, and the number of failed reads in a row.
    read_failure: Option<(Str, u32)>,
    /// The owners have wanted as many members as the group says: all owners are known.
    owners_counted: bool,
    /// The most pods of each owner that ran at once, at most as many as it wants. `None` before the first
    /// count. It tells a replacement from a scale-up.
    peak_running: Option<BTreeMap<ObjectRef, u32>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OwnerLookup {
    Present(OwnerState),
    Gone,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct OwnerReadRound {
    under_way: BTreeSet<ObjectRef>,
    found: BTreeMap<ObjectRef, OwnerLookup>,
    read_failure: Option<Str>,
}

/// The owner that determines the number of pods.
enum CountedOwner<'a> {
    /// The owner has not been read yet.
    Unread,
    /// The owner is deleted, and its pod soon will be.
    Gone,
    Counts(&'a ObjectRef, &'a OwnerState),
}

/// The members of an elastic gang, counted by owner.
#[derive(Default)]
struct OwnerTally {
    owners: BTreeMap<ObjectRef, OwnerCount>,
    /// Live pods of other kinds of owners, or without one.
    loose: u32,
    /// Succeeded pods.
    ended: u32,
    unread: bool,
    /// The owners that have more pods than they want, as a sentence.
    surplus: Option<String>,
}

#[derive(Default)]
struct OwnerCount {
    wants: u32,
    live: u32,
    running: u32,
}

impl OwnerTally {
    fn wanted(&self) -> u32 {
        let owners = self.owners.values().fold(0_u32, |sum, count| sum.saturating_add(count.wants));
        owners.saturating_add(self.loose)
    }

    /// `Deployment app-server 1, Job train 4, 2 pods of other owners or none`.
    fn summary(&self) -> String {
        const MAX_NAMED_OWNERS: usize = 6;
        let each = self.owners.iter().take(MAX_NAMED_OWNERS);
        let mut list: Vec<String> =
            each.map(|(owner, count)| format!("{} {} {}", owner.kind, owner.name, count.wants)).collect();
        if self.owners.len() > MAX_NAMED_OWNERS {
            list.push(format!("and {} more", self.owners.len() - MAX_NAMED_OWNERS));
        }
        if self.loose > 0 {
            list.push(format!(
                "{} of other owners or none",
                crate::engine::status::counted(self.loose, "pod", "pods")
            ));
        }
        list.join(", ")
    }
}

impl ElasticState {
    fn counted_owner<'a>(&'a self, owner: &'a ObjectRef) -> CountedOwner<'a> {
        let reading = match self.readings.get(owner) {
            None => return CountedOwner::Unread,
            Some(OwnerLookup::Gone) => return CountedOwner::Gone,
            Some(OwnerLookup::Present(reading)) => reading,
        };
        match deployment_of(reading) {
            None => CountedOwner::Counts(owner, reading),
            Some(above) => match self.readings.get(above) {
                None => CountedOwner::Unread,
                Some(OwnerLookup::Gone) => CountedOwner::Gone,
                Some(OwnerLookup::Present(reading)) => CountedOwner::Counts(above, reading),
            },
        }
    }

    /// Whether a read is under way.
    pub(in crate::engine) fn is_reading(&self) -> bool {
        self.round.is_some()
    }

    /// Whether the last read failed, and not often enough for the last answer to count.
    fn is_unreliable(&self) -> bool {
        self.read_failure.as_ref().is_some_and(|(_, tries)| *tries < MAX_OWNER_READ_FAILURES)
    }
}

impl OwnerState {
    /// Whether the owner will have pods in the gang again, although it has none now.
    fn is_missed_in(&self, id: &GangId) -> bool {
        self.desired_pods > 0 && self.gang.as_ref() == Some(id) && deployment_of(self).is_none()
    }
}

/// The Deployment of a ReplicaSet.
fn deployment_of(reading: &OwnerState) -> Option<&ObjectRef> {
    reading.controller.as_ref().filter(|owner| OwnerKind::of(owner) == Some(OwnerKind::Deployment))
}

impl Engine {
    /// Notes that a member was created: the size of the gang may have changed.
    pub(in crate::engine) fn elastic_member_added(&mut self, id: &GangId) {
        if let Some(elastic_state) = self.gangs.get_mut(id).and_then(|gang| gang.elastic_state.as_mut()) {
            elastic_state.member_added = true;
        }
    }

    /// Notes that a member was deleted, is being deleted or changed its owner.
    pub(in crate::engine) fn elastic_member_removed(&mut self, id: &GangId) {
        if let Some(elastic_state) = self.gangs.get_mut(id).and_then(|gang| gang.elastic_state.as_mut()) {
            elastic_state.member_removed = true;
        }
    }

    /// Reads the owners of an elastic gang if that is due, and updates the size of the gang.
    pub(in crate::engine) fn update_elastic_size(&mut self, id: &GangId, step: &mut StepContext) {
        let elastic = |group: &Group| group.policies.elastic == Some(true);
        // A template describes several gangs, and its owner has pods in all of them.
        let elastic = self.groups.own(id).is_some_and(elastic) && dialect::template_group(id).is_none();
        let Some(gang) = self.expect_gang_mut(id) else { return };
        let before = gang.elastic_state.clone();
        if !elastic {
            let is_reading =
                gang.elastic_state.as_ref().is_some_and(|elastic_state| elastic_state.round.is_some());
            if !is_reading && gang.elastic_state.take().is_some() {
                self.groups.set_elastic(id, None);
                self.mark_for_planning(id);
            }
            return;
        }
        let stored_met = stored_owners_counted(gang);
        let elastic_state = gang.elastic_state.get_or_insert_with(|| {
            Box::new(ElasticState { member_removed: true, ..ElasticState::default() })
        });
        elastic_state.owners_counted |= stored_met;
        let counts = self.count_members(id);
        self.read_owners(id, &counts, step);
        self.apply_owner_size(id, &counts);
        if self.gangs.get(id).is_some_and(|gang| gang.elastic_state != before) {
            self.mark_for_planning(id);
        }
    }

    fn tally_owners(
        &self,
        elastic_state: &ElasticState,
        gang: &GangState,
        id: &GangId,
        counts: &MemberCounts,
    ) -> OwnerTally {
        let mut tally = OwnerTally { ended: counts.succeeded, ..OwnerTally::default() };
        let mut has: BTreeMap<&ObjectRef, u32> = BTreeMap::new();
        let mut gone = 0_u32;
        for member in gang.members.iter().filter_map(|uid| self.members.get(uid)).filter(|m| m.live()) {
            let owner = member.pod.owner.as_ref().filter(|owner| OwnerKind::of(owner).is_some());
            let Some(owner) = owner else {
                tally.loose += 1;
                continue;
            };
            match elastic_state.counted_owner(owner) {
                CountedOwner::Unread => tally.unread = true,
                CountedOwner::Gone => gone += 1,
                CountedOwner::Counts(root, reading) => {
                    if !tally.owners.contains_key(root) {
                        let count = OwnerCount { wants: reading.desired_pods, ..OwnerCount::default() };
                        tally.owners.insert(root.clone(), count);
                    }
                    if let Some(count) = tally.owners.get_mut(root) {
                        count.live += 1;
                        count.running += u32::from(member.active());
                    }
                    *has.entry(owner).or_default() += 1;
                }
            }
        }
        for (owner, count) in &mut tally.owners {
            // The next pods of this owner belong to another gang: only the existing ones count.
            if let Some(OwnerLookup::Present(reading)) = elastic_state.readings.get(owner)
                && reading.gang.as_ref().is_some_and(|gang| gang != id)
            {
                count.wants = count.live;
            }
        }
        for (owner, reading) in &elastic_state.readings {
            let OwnerLookup::Present(reading) = reading else { continue };
            if !tally.owners.contains_key(owner) && reading.is_missed_in(id) {
                tally.owners.insert(
                    owner.clone(),
                    OwnerCount { wants: reading.desired_pods, ..OwnerCount::default() },
                );
            }
        }
        let surplus = has.iter().find_map(|(owner, pods)| {
            let Some(OwnerLookup::Present(reading)) = elastic_state.readings.get(*owner) else { return None };
            (*pods > reading.desired_pods).then(|| {
                let wants = reading.desired_pods;
                format!(
                    "{} {} has {pods} pods and wants {wants}: its controller will delete some",
                    owner.kind, owner.name
                )
            })
        });
        tally.surplus = surplus.or_else(|| {
            let pods = crate::engine::status::counted(gone, "pod is", "pods are");
            (gone > 0).then(|| {
                format!(
                    "the owner of {pods} deleted: Kubernetes will delete {}",
                    if gone == 1 { "it" } else { "them" }
                )
            })
        });
        tally
    }

    /// Whether the owners are known well enough to plan more of the gang.
    pub(in crate::engine) fn are_owners_known(&self, id: &GangId, counts: &MemberCounts) -> bool {
        let Some((gang, elastic_state)) = self.elastic_gang(id) else { return true };
        if !self.settings.enforces(SafetyRule::AskOwners) {
            return true;
        }
        let tally = self.tally_owners(elastic_state, gang, id, counts);
        let least = self.group(id).map_or(0, |group| group.quorum.min_members());
        let enough = elastic_state.member_added && counts.live.saturating_add(tally.ended) >= least;
        !tally.unread
            && tally.surplus.is_none()
            && elastic_state.round.is_none()
            && !elastic_state.member_removed
            && !enough
            && !elastic_state.is_unreliable()
    }

    /// Whether a read is pending, after which the size of the gang may be different. Until then missing
    /// members have no consequences.
    pub(in crate::engine) fn are_owners_being_read(&self, id: &GangId) -> bool {
        self.elastic_gang(id)
            .is_some_and(|(_, elastic_state)| elastic_state.round.is_some() || elastic_state.member_removed)
    }

    /// Why an elastic gang is not planned, as a sentence.
    pub(in crate::engine) fn owners_unknown_reason(
        &self,
        id: &GangId,
        counts: &MemberCounts,
    ) -> Option<String> {
        let (gang, elastic_state) = self.elastic_gang(id)?;
        if self.are_owners_known(id, counts) {
            return None;
        }
        let read_failure =
            elastic_state.read_failure.as_ref().map(|(read_failure, _)| read_failure.to_string());
        let tally = self.tally_owners(elastic_state, gang, id, counts);
        let last_read = || "the owners of its pods are being read".to_owned();
        Some(read_failure.or(tally.surplus).unwrap_or_else(last_read))
    }

    fn elastic_gang(&self, id: &GangId) -> Option<(&GangState, &ElasticState)> {
        let gang = self.gangs.get(id)?;
        Some((gang, gang.elastic_state.as_deref()?))
    }

    /// When the owners are read again without any other event.
    pub(in crate::engine) fn next_owner_read(&self, id: &GangId, now: Time) -> Option<Time> {
        let (gang, elastic_state) = self.elastic_gang(id)?;
        if elastic_state.round.is_some() || gang.members.is_empty() {
            return None;
        }
        if let Some(until) = elastic_state.backoff.waits(now) {
            return Some(until);
        }
        let counts = self.count_members(id);
        let at = self.owner_read_due(id, gang, elastic_state, &counts)?;
        (at > now).then_some(at)
    }

    /// The earliest time of the next read. `None` if no read is needed.
    fn owner_read_due(
        &self,
        id: &GangId,
        gang: &GangState,
        elastic_state: &ElasticState,
        counts: &MemberCounts,
    ) -> Option<Time> {
        let tally = self.tally_owners(elastic_state, gang, id, counts);
        let least = self.group(id).map_or(0, |group| group.quorum.min_members());
        let here = counts.live.saturating_add(tally.ended);
        let last_read = elastic_state.last_read.unwrap_or_default();
        let news = elastic_state.member_removed || (elastic_state.member_added && here >= least);
        if tally.unread || elastic_state.read_failure.is_some() || (news && counts.running() == 0) {
            return Some(Time::default());
        }
        if news {
            return Some(last_read.after(OWNER_READ_PAUSE));
        }
        let timers = u32::try_from(self.timers.len()).unwrap_or(u32::MAX);
        let again = OWNER_REREAD_INTERVAL.max(OWNER_REREAD_INTERVAL_PER_TIMER.saturating_mul(timers));
        (here < least || tally.surplus.is_some()).then(|| last_read.after(again))
    }

    fn read_owners(&mut self, id: &GangId, counts: &MemberCounts, step: &mut StepContext) {
        let Some((gang, elastic_state)) = self.elastic_gang(id) else { return };
        let set_back = elastic_state.last_read.is_some_and(|last_read| last_read > step.now);
        if elastic_state.round.is_some()
            || elastic_state.backoff.waits(step.now).is_some()
            || gang.members.is_empty()
            || self
                .owner_read_due(id, gang, elastic_state, counts)
                .is_none_or(|at| at > step.now && !set_back)
        {
            return;
        }
        let members = gang.members.iter().filter_map(|uid| self.members.get(uid));
        let owners = members.filter(|m| m.live()).filter_map(|m| m.pod.owner.as_ref());
        let mut under_way: BTreeSet<ObjectRef> =
            owners.filter(|o| OwnerKind::of(o).is_some()).cloned().collect();
        // Owners without a pod at the moment.
        under_way.extend(elastic_state.readings.iter().filter_map(|(owner, reading)| match reading {
            OwnerLookup::Present(reading) if reading.is_missed_in(id) => Some(owner.clone()),
            OwnerLookup::Present(_) | OwnerLookup::Gone => None,
        }));
        for owner in &under_way {
            step.send(Action::ReadOwner { gang: id.clone(), owner: owner.clone() });
        }
        let Some(elastic_state) = self.gangs.get_mut(id).and_then(|gang| gang.elastic_state.as_mut()) else {
            return;
        };
        (elastic_state.member_added, elastic_state.member_removed) = (false, false);
        elastic_state.last_read = Some(step.now);
        if under_way.is_empty() {
            elastic_state.readings.clear();
            elastic_state.read_failure = None;
        } else {
            elastic_state.round = Some(OwnerReadRound { under_way, ..OwnerReadRound::default() });
        }
    }

    /// Takes in the answer to a read of an owner.
    pub(in crate::engine) fn handle_owner_answer(
        &mut self,
        id: &GangId,
        owner: &ObjectRef,
        outcome: RequestOutcome,
        step: &mut StepContext,
    ) {
        let Some(elastic_state) = self.gangs.get_mut(id).and_then(|gang| gang.elastic_state.as_mut()) else {
            return;
        };
        let Some(round) = elastic_state.round.as_mut() else { return };
        if !round.under_way.remove(owner) {
            return;
        }
        let known = elastic_state.readings.get(owner);
        let found = match outcome {
            RequestOutcome::Owner(reading) if reading.uid == owner.uid && !reading.terminating => {
                Some(OwnerLookup::Present(*reading))
            }
            RequestOutcome::Owner(_) | RequestOutcome::Gone => Some(OwnerLookup::Gone),
            other => {
                let why = match other {
                    RequestOutcome::Refused(message) => message,
                    _ => "no answer".to_owned(),
                };
                round.read_failure =
                    Some(str(format!("{} {} cannot be read: {why}", owner.kind, owner.name)));
                known.cloned()
            }
        };
        if let Some(found) = found {
            if let OwnerLookup::Present(reading) = &found
                && let Some(above) = deployment_of(reading)
                && !round.found.contains_key(above)
                && round.under_way.insert(above.clone())
            {
                step.send(Action::ReadOwner { gang: id.clone(), owner: above.clone() });
            }
            round.found.insert(owner.clone(), found);
        }
        if round.under_way.is_empty() {
            let round = elastic_state.round.take().unwrap_or_default();
            elastic_state.readings = round.found;
            match round.read_failure {
                None => {
                    elastic_state.read_failure = None;
                    elastic_state.backoff.succeed();
                }
                Some(read_failure) => {
                    let tries = elastic_state.read_failure.as_ref().map_or(0, |(_, tries)| *tries);
                    elastic_state.read_failure =
                        Some((read_failure, tries.saturating_add(1).min(MAX_OWNER_READ_FAILURES)));
                    elastic_state.backoff.fail(step.now);
                }
            }
        }
        self.mark_for_planning(id);
        step.touch(id);
    }

    /// Sets the size of the gang to what the owners want.
    fn apply_owner_size(&mut self, id: &GangId, counts: &MemberCounts) {
        let Some((gang, elastic_state)) = self.elastic_gang(id) else { return };
        let Some(own) = self.groups.own(id) else { return };
        let tally = self.tally_owners(elastic_state, gang, id, counts);
        if tally.unread {
            return;
        }
        if tally.owners.is_empty() {
            self.groups.set_elastic(id, None);
            return;
        }
        let wanted = tally.wanted();
        // Numbers of different times do not add up, and a group that counts tasks starts with all of them.
        let tasks = matches!(own.quorum, Quorum::Count(_)) || own.quorum.is_satisfied(&self.by_role(counts));
        // An answer from before the newest member may never have been true at the same time as that member.
        let fresh = !elastic_state.member_added && elastic_state.round.is_none();
        let owners_counted = elastic_state.owners_counted
            || (fresh && elastic_state.read_failure.is_none() && wanted >= own.quorum.min_members() && tasks);
        let followed = wanted.saturating_add(tally.ended);
        let quorum = match &own.quorum {
            _ if owners_counted => Quorum::Count(followed),
            Quorum::Count(least) => Quorum::Count(followed.max(*least)),
            Quorum::Total { min_members: least, quorum } => {
                Quorum::Total { min_members: followed.max(*least), quorum: quorum.clone() }
            }
            tree @ Quorum::Groups { .. } => {
                Quorum::Total { min_members: followed, quorum: Box::new(tree.clone()) }
            }
        };
        let group = Group { quorum, ..own.clone() };
        let peak_running = elastic_state.peak_running.clone().unwrap_or_default();
        let of = |owner: &ObjectRef| peak_running.get(owner).copied().unwrap_or(0);
        // The owners do not want these members any more, so they are not missing.
        let left = peak_running.iter().map(|(owner, peak_running)| {
            peak_running - (*peak_running).min(tally.owners.get(owner).map_or(0, |c| c.wants))
        });
        let left: u32 = left.sum();
        let now_had = tally.owners.iter();
        let now_had =
            now_had.map(|(owner, count)| (owner.clone(), of(owner).max(count.running).min(count.wants)));
        let now_had = now_had.collect();
        self.groups.set_elastic(id, Some(group));
        let Some(gang) = self.expect_gang_mut(id) else { return };
        gang.lifecycle.started_with = gang.lifecycle.started_with.map(|number| number.saturating_sub(left));
        if let Some(elastic_state) = &mut gang.elastic_state {
            elastic_state.owners_counted = owners_counted;
            elastic_state.peak_running = Some(now_had);
        }
    }

    /// Ready members of a started elastic gang that start without waiting for others, by creation time:
    /// replacements, and members beyond what the owners want.
    pub(in crate::engine) fn independent_members(&self, id: &GangId, counts: &MemberCounts) -> Vec<PodUid> {
        let Some((gang, elastic_state)) = self.elastic_gang(id) else { return Vec::new() };
        let Some(peak_running) = elastic_state
            .peak_running
            .as_ref()
            .filter(|_| elastic_state.owners_counted && counts.started() > 0)
        else {
            return Vec::new();
        };
        if !self.settings.enforces(SafetyRule::GrowTogether) {
            return counts.ready.clone();
        }
        let tally = self.tally_owners(elastic_state, gang, id, counts);
        let mut room: BTreeMap<&ObjectRef, u32> = BTreeMap::new();
        for (owner, count) in &tally.owners {
            let peak_running = peak_running.get(owner).copied().unwrap_or(0);
            // A gang with succeeded members continues pod by pod.
            let every = peak_running >= count.wants || counts.succeeded > 0;
            room.insert(owner, if every { u32::MAX } else { peak_running.saturating_sub(count.running) });
        }
        // An earlier leader knew whose pods are missing. This one replaces as many, of any owner.
        let known =
            peak_running.values().fold(tally.loose, |sum, peak_running| sum.saturating_add(*peak_running));
        let mut missing = gang.lifecycle.started_with.unwrap_or(0).min(tally.wanted()).saturating_sub(known);
        let alone = counts.ready.iter().filter(|uid| {
            let owner = self.members.get(*uid).and_then(|member| member.pod.owner.as_ref());
            let Some(owner) = owner.filter(|owner| OwnerKind::of(owner).is_some()) else { return true };
            let CountedOwner::Counts(root, _) = elastic_state.counted_owner(owner) else { return false };
            let left = room.get_mut(root).filter(|left| **left > 0).unwrap_or(&mut missing);
            let goes = *left > 0;
            *left = left.saturating_sub(1);
            goes
        });
        alone.cloned().collect()
    }

    /// Whether the gang was complete before: more members are a scale-up.
    pub(in crate::engine) fn is_scaling_up(&self, id: &GangId) -> bool {
        self.elastic_gang(id).is_some_and(|(gang, elastic_state)| {
            elastic_state.owners_counted && gang.lifecycle.started_with.is_some_and(|number| number > 0)
        })
    }

    /// The content of the condition `Elastic`.
    pub(in crate::engine) fn elastic_condition(
        &self,
        id: &GangId,
        counts: &MemberCounts,
    ) -> ElasticCondition {
        let Some((gang, elastic_state)) = self.elastic_gang(id) else { return ElasticCondition::Absent };
        let Some(own) = self.groups.own(id) else { return ElasticCondition::Absent };
        if let Some((read_failure, _)) = &elastic_state.read_failure {
            let until = if elastic_state.peak_running.is_some() {
                "its last answer counts"
            } else {
                "no member starts before an answer"
            };
            let message = format!("{read_failure}; retrying, {until}");
            return ElasticCondition::Known {
                holds: elastic_state.owners_counted,
                reason: "OwnersUnread",
                message,
            };
        }
        let tally = self.tally_owners(elastic_state, gang, id, counts);
        if tally.unread || elastic_state.round.is_some() {
            return ElasticCondition::Unchanged;
        }
        let says = own
            .object_ref()
            .map_or("its pods say".to_owned(), |object| format!("{} {} says", object.kind, object.name));
        let (least, wanted) = (own.quorum.min_members(), tally.wanted());
        if tally.owners.is_empty() {
            let message = format!(
                "none of its pods belongs to a Deployment, ReplicaSet, StatefulSet or Job: its size is {least}, as {says}"
            );
            return ElasticCondition::Known { holds: false, reason: "NoOwners", message };
        }
        let words = tally.summary();
        let (reason, message) = if elastic_state.owners_counted {
            (
                "OwnersCounted",
                format!("takes {wanted} members, as their owners want: {words} ({says} {least})"),
            )
        } else {
            let until = "until its owners have wanted as many once";
            ("FirstStart", format!("takes {least} members, as {says}, {until}: {words}"))
        };
        ElasticCondition::Known { holds: elastic_state.owners_counted, reason, message }
    }

    /// What to add to the status of a gang whose owners want fewer members than it needs.
    pub(in crate::engine) fn owners_below_min_member(
        &self,
        id: &GangId,
        counts: &MemberCounts,
    ) -> Option<String> {
        let (gang, elastic_state) = self.elastic_gang(id)?;
        let tally = self.tally_owners(elastic_state, gang, id, counts);
        let own = self.groups.own(id)?.quorum.min_members();
        let wanted = tally.wanted();
        (!elastic_state.owners_counted
            && !tally.unread
            && !tally.owners.is_empty()
            && counts.live >= wanted
            && wanted < own)
            .then(|| {
                format!(
                    "its owners make {wanted} ({}): it is not complete before they want {own}",
                    tally.summary()
                )
            })
    }
}

/// Whether the stored condition `Elastic` says that the owners have been counted.
fn stored_owners_counted(gang: &GangState) -> bool {
    let GangObject::Known(_, stored) = &gang.record.object else { return false };
    stored.conditions.iter().any(|c| c.kind == ConditionType::Elastic && c.status == ConditionStatus::True)
}
