//! Gangs that take as many members as the owners of their pods want (`portcullis.dev/elastic`).
//!
//! Nobody watches owners. They are read when a member comes or goes, and nothing new of the gang is planned until they
//! have answered: a scale-up is written in its Deployment before the first of its pods exists, so whoever reads after
//! seeing that pod knows how many more there will be. A gang that is short of what its owners want, or has more pods than
//! they want, is read again from time to time: its Deployment may have been scaled back without a pod to show for it.
//!
//! - Owners are counted once there were as many as the group says, of each of its tasks: until then there may be others of
//!   which no pod is there yet, and the group's own number is the least. From then on only the owners count, also below that number.
//! - What an owner wants beyond what it had running waits until all of that is there and fits. A replacement, or what a
//!   rolling update makes in addition, goes alone and at once, also while others are missing.
//! - Nothing is planned while an owner has more pods than it wants: some are about to be deleted, and nobody knows which.
//! - What cannot be read is tried again; what was read before counts only after many tries, and before the first reading
//!   nothing starts.
//!
//! Pods of other owners, or of none, count as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::conditions::{ConditionStatus, ConditionType, ElasticSays};
use super::gather::Census;
use super::state::{Backoff, Gang, Object};
use super::types::RequestOutcome;
use super::{Action, Engine, SafetyRule, Step};
use crate::dialect::{self, Group, Quorum};
use crate::model::{GangId, PodUid, Str, Time, str};
use crate::objects::{ObjectRef, OwnerKind};
use crate::pod::OwnerState;

/// How often the owners of a gang are asked again that is short of members, or has too many.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// However many of them there are, no more than twenty are asked about each second.
const ASK_AGAIN_EACH: Duration = Duration::from_millis(50);
/// How long a started gang leaves its owners alone after it has asked: a job that ends pod by pod is not asked about for
/// each.
const REST: Duration = Duration::from_millis(500);
/// After so many rounds of asking in vain, what was read before counts.
const TRIES: u32 = 6;

/// What is known of the owners of the pods of a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Following {
    /// A member has come since the owners were last asked.
    came: bool,
    /// A member has gone, or has another owner.
    went: bool,
    readings: BTreeMap<ObjectRef, Reading>,
    /// Questions that are under way.
    round: Option<Round>,
    /// When they were last asked.
    asked: Option<Time>,
    backoff: Backoff,
    /// Why an owner could not be read when they were last asked, and how often that has been so.
    trouble: Option<(Str, u32)>,
    /// They once wanted as many as the group says: there is no owner of which nothing is known.
    met: bool,
    /// How many pods of each have been running at once, at most as many as it wants; `None` before that was looked at.
    had: Option<BTreeMap<ObjectRef, u32>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reading {
    Here(OwnerState),
    Gone,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Round {
    under_way: BTreeSet<ObjectRef>,
    found: BTreeMap<ObjectRef, Reading>,
    trouble: Option<Str>,
}

/// Which owner counts for a pod.
enum Root<'a> {
    /// Nobody has said yet.
    Unread,
    /// It is gone, and the pod soon will be.
    Gone,
    Counts(&'a ObjectRef, &'a OwnerState),
}

/// The members of an elastic gang, by the owner that counts.
#[derive(Default)]
struct Tally {
    owners: BTreeMap<ObjectRef, Count>,
    /// Live pods of other owners, or of none.
    loose: u32,
    /// Pods that have ended well.
    ended: u32,
    unread: bool,
    /// Who has more pods than it wants, in words.
    surplus: Option<String>,
}

#[derive(Default)]
struct Count {
    wants: u32,
    live: u32,
    running: u32,
}

impl Tally {
    fn wanted(&self) -> u32 {
        let owners = self.owners.values().fold(0_u32, |sum, count| sum.saturating_add(count.wants));
        owners.saturating_add(self.loose)
    }

    /// `Deployment app-server 1, Job train 4, 2 pods of other owners or none`.
    fn words(&self) -> String {
        const NAMED: usize = 6;
        let each = self.owners.iter().take(NAMED);
        let mut list: Vec<String> =
            each.map(|(owner, count)| format!("{} {} {}", owner.kind, owner.name, count.wants)).collect();
        if self.owners.len() > NAMED {
            list.push(format!("and {} more", self.owners.len() - NAMED));
        }
        if self.loose > 0 {
            list.push(format!(
                "{} of other owners or none",
                super::status::counted(self.loose, "pod", "pods")
            ));
        }
        list.join(", ")
    }
}

impl Following {
    fn root<'a>(&'a self, owner: &'a ObjectRef) -> Root<'a> {
        let reading = match self.readings.get(owner) {
            None => return Root::Unread,
            Some(Reading::Gone) => return Root::Gone,
            Some(Reading::Here(reading)) => reading,
        };
        match above(reading) {
            None => Root::Counts(owner, reading),
            Some(above) => match self.readings.get(above) {
                None => Root::Unread,
                Some(Reading::Gone) => Root::Gone,
                Some(Reading::Here(reading)) => Root::Counts(above, reading),
            },
        }
    }

    /// Whether a question is under way.
    pub(super) fn asking(&self) -> bool {
        self.round.is_some()
    }

    /// Asked in vain, and not often enough to go on with what was read before.
    fn doubtful(&self) -> bool {
        self.trouble.as_ref().is_some_and(|(_, tries)| *tries < TRIES)
    }
}

impl OwnerState {
    /// Whether there will be pods of it in the gang again where there are none for now.
    fn is_missed_in(&self, id: &GangId) -> bool {
        self.desired_pods > 0 && self.gang.as_ref() == Some(id) && above(self).is_none()
    }
}

/// The Deployment of a ReplicaSet.
fn above(reading: &OwnerState) -> Option<&ObjectRef> {
    reading.controller.as_ref().filter(|owner| OwnerKind::of(owner) == Some(OwnerKind::Deployment))
}

impl Engine {
    /// A member came, and with it perhaps another size of its gang.
    pub(super) fn member_came(&mut self, id: &GangId) {
        if let Some(following) = self.gangs.get_mut(id).and_then(|gang| gang.following.as_mut()) {
            following.came = true;
        }
    }

    /// A member went, or is on its way out, or has another owner.
    pub(super) fn member_went(&mut self, id: &GangId) {
        if let Some(following) = self.gangs.get_mut(id).and_then(|gang| gang.following.as_mut()) {
            following.went = true;
        }
    }

    /// Asks the owners of an elastic gang where that is due, and takes what is known of them for its size.
    pub(super) fn follow_owners(&mut self, id: &GangId, step: &mut Step) {
        let elastic = |group: &Group| group.policies.elastic == Some(true);
        // Of a group that is described by a template several gangs are made: its owner has pods in all of them.
        let elastic = self.groups.own(id).is_some_and(elastic) && dialect::template_group(id).is_none();
        let Some(gang) = self.gangs.get_mut(id) else { return };
        let before = gang.following.clone();
        if !elastic {
            let asking = gang.following.as_ref().is_some_and(|following| following.round.is_some());
            if !asking && gang.following.take().is_some() {
                self.groups.follow(id, None);
                self.look_at(id);
            }
            return;
        }
        let stored_met = said_met(gang);
        let following =
            gang.following.get_or_insert_with(|| Box::new(Following { went: true, ..Following::default() }));
        following.met |= stored_met;
        let census = self.census(id);
        self.ask_owners(id, &census, step);
        self.take_size(id, &census);
        if self.gangs.get(id).is_some_and(|gang| gang.following != before) {
            self.look_at(id);
        }
    }

    fn tally(&self, following: &Following, gang: &Gang, id: &GangId, census: &Census) -> Tally {
        let mut tally = Tally { ended: census.succeeded, ..Tally::default() };
        let mut has: BTreeMap<&ObjectRef, u32> = BTreeMap::new();
        let mut gone = 0_u32;
        for member in gang.members.iter().filter_map(|uid| self.members.get(uid)).filter(|m| m.live()) {
            let owner = member.pod.owner.as_ref().filter(|owner| OwnerKind::of(owner).is_some());
            let Some(owner) = owner else {
                tally.loose += 1;
                continue;
            };
            match following.root(owner) {
                Root::Unread => tally.unread = true,
                Root::Gone => gone += 1,
                Root::Counts(root, reading) => {
                    if !tally.owners.contains_key(root) {
                        let count = Count { wants: reading.desired_pods, ..Count::default() };
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
            // Its next pods are in another gang: these are all that are left.
            if let Some(Reading::Here(reading)) = following.readings.get(owner)
                && reading.gang.as_ref().is_some_and(|gang| gang != id)
            {
                count.wants = count.live;
            }
        }
        for (owner, reading) in &following.readings {
            let Reading::Here(reading) = reading else { continue };
            if !tally.owners.contains_key(owner) && reading.is_missed_in(id) {
                tally.owners.insert(owner.clone(), Count { wants: reading.desired_pods, ..Count::default() });
            }
        }
        let surplus = has.iter().find_map(|(owner, pods)| {
            let Some(Reading::Here(reading)) = following.readings.get(*owner) else { return None };
            (*pods > reading.desired_pods).then(|| {
                let wants = reading.desired_pods;
                format!("{} {} has {pods} pods and wants {wants}: some are to go", owner.kind, owner.name)
            })
        });
        tally.surplus = surplus.or_else(|| {
            let pods = super::status::counted(gone, "pod is", "pods are");
            (gone > 0).then(|| {
                format!("the owner of {pods} gone: {} to go", if gone == 1 { "it is" } else { "they are" })
            })
        });
        tally
    }

    /// Whether the owners have said all there is to know before anything new of the gang is planned.
    pub(super) fn owners_settled(&self, id: &GangId, census: &Census) -> bool {
        let Some((gang, following)) = self.following(id) else { return true };
        if !self.settings.keeps(SafetyRule::AskOwners) {
            return true;
        }
        let tally = self.tally(following, gang, id, census);
        let least = self.group(id).map_or(0, |group| group.quorum.min_members());
        let enough = following.came && census.live.saturating_add(tally.ended) >= least;
        !tally.unread
            && tally.surplus.is_none()
            && following.round.is_none()
            && !following.went
            && !enough
            && !following.doubtful()
    }

    /// Whether the size of a gang is about to be learnt: nothing is made of members that are missing until then.
    pub(super) fn owners_asked(&self, id: &GangId) -> bool {
        self.following(id).is_some_and(|(_, following)| following.round.is_some() || following.went)
    }

    /// What keeps an elastic gang from being planned, in words.
    pub(super) fn owners_not_settled(&self, id: &GangId, census: &Census) -> Option<String> {
        let (gang, following) = self.following(id)?;
        if self.owners_settled(id, census) {
            return None;
        }
        let trouble = following.trouble.as_ref().map(|(trouble, _)| trouble.to_string());
        let tally = self.tally(following, gang, id, census);
        let asked = || "the owners of its pods are being read".to_owned();
        Some(trouble.or(tally.surplus).unwrap_or_else(asked))
    }

    fn following(&self, id: &GangId) -> Option<(&Gang, &Following)> {
        let gang = self.gangs.get(id)?;
        Some((gang, gang.following.as_deref()?))
    }

    /// When owners are to be asked again by the time alone.
    pub(super) fn ask_again_at(&self, id: &GangId, now: Time) -> Option<Time> {
        let (gang, following) = self.following(id)?;
        if following.round.is_some() || gang.members.is_empty() {
            return None;
        }
        if let Some(until) = following.backoff.waits(now) {
            return Some(until);
        }
        let census = self.census(id);
        let at = self.next_question(id, gang, following, &census)?;
        (at > now).then_some(at)
    }

    /// From when on owners may be asked; `None` while there is nothing to ask.
    fn next_question(
        &self,
        id: &GangId,
        gang: &Gang,
        following: &Following,
        census: &Census,
    ) -> Option<Time> {
        let tally = self.tally(following, gang, id, census);
        let least = self.group(id).map_or(0, |group| group.quorum.min_members());
        let here = census.live.saturating_add(tally.ended);
        let asked = following.asked.unwrap_or_default();
        let news = following.went || (following.came && here >= least);
        if tally.unread || following.trouble.is_some() || (news && census.running() == 0) {
            return Some(Time::default());
        }
        if news {
            return Some(asked.after(REST));
        }
        let alarms = u32::try_from(self.alarms.len()).unwrap_or(u32::MAX);
        let again = ASK_AGAIN.max(ASK_AGAIN_EACH.saturating_mul(alarms));
        (here < least || tally.surplus.is_some()).then(|| asked.after(again))
    }

    fn ask_owners(&mut self, id: &GangId, census: &Census, step: &mut Step) {
        let Some((gang, following)) = self.following(id) else { return };
        let set_back = following.asked.is_some_and(|asked| asked > step.now);
        if following.round.is_some()
            || following.backoff.waits(step.now).is_some()
            || gang.members.is_empty()
            || self.next_question(id, gang, following, census).is_none_or(|at| at > step.now && !set_back)
        {
            return;
        }
        let members = gang.members.iter().filter_map(|uid| self.members.get(uid));
        let owners = members.filter(|m| m.live()).filter_map(|m| m.pod.owner.as_ref());
        let mut under_way: BTreeSet<ObjectRef> =
            owners.filter(|o| OwnerKind::of(o).is_some()).cloned().collect();
        // Those of which no pod is there for now.
        under_way.extend(following.readings.iter().filter_map(|(owner, reading)| match reading {
            Reading::Here(reading) if reading.is_missed_in(id) => Some(owner.clone()),
            Reading::Here(_) | Reading::Gone => None,
        }));
        for owner in &under_way {
            step.send(Action::ReadOwner { gang: id.clone(), owner: owner.clone() });
        }
        let Some(following) = self.gangs.get_mut(id).and_then(|gang| gang.following.as_mut()) else { return };
        (following.came, following.went) = (false, false);
        following.asked = Some(step.now);
        if under_way.is_empty() {
            following.readings.clear();
            following.trouble = None;
        } else {
            following.round = Some(Round { under_way, ..Round::default() });
        }
    }

    /// An owner has answered, or has not.
    pub(super) fn owner_answered(
        &mut self,
        id: &GangId,
        owner: &ObjectRef,
        outcome: RequestOutcome,
        step: &mut Step,
    ) {
        let Some(following) = self.gangs.get_mut(id).and_then(|gang| gang.following.as_mut()) else { return };
        let Some(round) = following.round.as_mut() else { return };
        if !round.under_way.remove(owner) {
            return;
        }
        let known = following.readings.get(owner);
        let found = match outcome {
            RequestOutcome::Owner(reading) if reading.uid == owner.uid && !reading.terminating => {
                Some(Reading::Here(*reading))
            }
            RequestOutcome::Owner(_) | RequestOutcome::Gone => Some(Reading::Gone),
            other => {
                let why = match other {
                    RequestOutcome::Refused(message) => message,
                    _ => "no answer".to_owned(),
                };
                round.trouble = Some(str(format!("{} {} cannot be read: {why}", owner.kind, owner.name)));
                known.cloned()
            }
        };
        if let Some(found) = found {
            if let Reading::Here(reading) = &found
                && let Some(above) = above(reading)
                && !round.found.contains_key(above)
                && round.under_way.insert(above.clone())
            {
                step.send(Action::ReadOwner { gang: id.clone(), owner: above.clone() });
            }
            round.found.insert(owner.clone(), found);
        }
        if round.under_way.is_empty() {
            let round = following.round.take().unwrap_or_default();
            following.readings = round.found;
            match round.trouble {
                None => {
                    following.trouble = None;
                    following.backoff.succeed();
                }
                Some(trouble) => {
                    let tries = following.trouble.as_ref().map_or(0, |(_, tries)| *tries);
                    following.trouble = Some((trouble, tries.saturating_add(1).min(TRIES)));
                    following.backoff.fail(step.now);
                }
            }
        }
        self.look_at(id);
        step.touch(id);
    }

    /// Takes what the owners want for the size of the gang.
    fn take_size(&mut self, id: &GangId, census: &Census) {
        let Some((gang, following)) = self.following(id) else { return };
        let Some(own) = self.groups.own(id) else { return };
        let tally = self.tally(following, gang, id, census);
        if tally.unread {
            return;
        }
        if tally.owners.is_empty() {
            self.groups.follow(id, None);
            return;
        }
        let wanted = tally.wanted();
        // Numbers of different times do not add up, and a group that counts tasks starts with all of them.
        let tasks = matches!(own.quorum, Quorum::Count(_)) || own.quorum.is_satisfied(&self.by_role(census));
        // What owners said before a member came, and that member, were perhaps never wanted at one time.
        let fresh = !following.came && following.round.is_none();
        let met = following.met
            || (fresh && following.trouble.is_none() && wanted >= own.quorum.min_members() && tasks);
        let followed = wanted.saturating_add(tally.ended);
        let quorum = match &own.quorum {
            _ if met => Quorum::Count(followed),
            Quorum::Count(least) => Quorum::Count(followed.max(*least)),
            Quorum::Total { min_members: least, quorum } => {
                Quorum::Total { min_members: followed.max(*least), quorum: quorum.clone() }
            }
            tree @ Quorum::Groups { .. } => {
                Quorum::Total { min_members: followed, quorum: Box::new(tree.clone()) }
            }
        };
        let group = Group { quorum, ..own.clone() };
        let had = following.had.clone().unwrap_or_default();
        let of = |owner: &ObjectRef| had.get(owner).copied().unwrap_or(0);
        // What it had of them is not wanted any more: nobody misses it.
        let left =
            had.iter().map(|(owner, had)| had - (*had).min(tally.owners.get(owner).map_or(0, |c| c.wants)));
        let left: u32 = left.sum();
        let now_had = tally.owners.iter();
        let now_had =
            now_had.map(|(owner, count)| (owner.clone(), of(owner).max(count.running).min(count.wants)));
        let now_had = now_had.collect();
        self.groups.follow(id, Some(group));
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.started_with = gang.started_with.map(|number| number.saturating_sub(left));
        if let Some(following) = &mut gang.following {
            following.met = met;
            following.had = Some(now_had);
        }
    }

    /// Ready members of a started elastic gang that need not wait for each other, in the order of their creation:
    /// replacements, and what is there beside what the owners want.
    pub(super) fn alone(&self, id: &GangId, census: &Census) -> Vec<PodUid> {
        let Some((gang, following)) = self.following(id) else { return Vec::new() };
        let Some(had) = following.had.as_ref().filter(|_| following.met && census.started() > 0) else {
            return Vec::new();
        };
        if !self.settings.keeps(SafetyRule::GrowTogether) {
            return census.ready.clone();
        }
        let tally = self.tally(following, gang, id, census);
        let mut room: BTreeMap<&ObjectRef, u32> = BTreeMap::new();
        for (owner, count) in &tally.owners {
            let had = had.get(owner).copied().unwrap_or(0);
            // One that is on its way to its end goes on pod by pod.
            let every = had >= count.wants || census.succeeded > 0;
            room.insert(owner, if every { u32::MAX } else { had.saturating_sub(count.running) });
        }
        // Another leader knew whose pods are missing: so many of whichever there are.
        let known = had.values().fold(tally.loose, |sum, had| sum.saturating_add(*had));
        let mut missing = gang.started_with.unwrap_or(0).min(tally.wanted()).saturating_sub(known);
        let alone = census.ready.iter().filter(|uid| {
            let owner = self.members.get(*uid).and_then(|member| member.pod.owner.as_ref());
            let Some(owner) = owner.filter(|owner| OwnerKind::of(owner).is_some()) else { return true };
            let Root::Counts(root, _) = following.root(owner) else { return false };
            let left = room.get_mut(root).filter(|left| **left > 0).unwrap_or(&mut missing);
            let goes = *left > 0;
            *left = left.saturating_sub(1);
            goes
        });
        alone.cloned().collect()
    }

    /// Whether a gang has been whole, and its owners want more by now.
    pub(super) fn grows(&self, id: &GangId) -> bool {
        self.following(id).is_some_and(|(gang, following)| {
            following.met && gang.started_with.is_some_and(|number| number > 0)
        })
    }

    /// What is said of the size of a gang.
    pub(super) fn elastic_says(&self, id: &GangId, census: &Census) -> ElasticSays {
        let Some((gang, following)) = self.following(id) else { return ElasticSays::Nothing };
        let Some(own) = self.groups.own(id) else { return ElasticSays::Nothing };
        if let Some((trouble, _)) = &following.trouble {
            let until =
                if following.had.is_some() { "what it last said counts" } else { "nothing starts before" };
            let message = format!("{trouble}; tried again, {until}");
            return ElasticSays::This { holds: following.met, reason: "OwnersUnread", message };
        }
        let tally = self.tally(following, gang, id, census);
        if tally.unread || following.round.is_some() {
            return ElasticSays::AsBefore;
        }
        let says = own
            .object_ref()
            .map_or("its pods say".to_owned(), |object| format!("{} {} says", object.kind, object.name));
        let (least, wanted) = (own.quorum.min_members(), tally.wanted());
        if tally.owners.is_empty() {
            let message = format!(
                "none of its pods belongs to a Deployment, ReplicaSet, StatefulSet or Job: it takes {least}, as {says}"
            );
            return ElasticSays::This { holds: false, reason: "NoOwners", message };
        }
        let words = tally.words();
        let (reason, message) = if following.met {
            (
                "OwnersCounted",
                format!("takes {wanted} members, as their owners want: {words} ({says} {least})"),
            )
        } else {
            let until = "until its owners have wanted as many once";
            ("FirstStart", format!("takes {least} members, as {says}, {until}: {words}"))
        };
        ElasticSays::This { holds: following.met, reason, message }
    }

    /// What to add where a gang waits for pods that nobody will make.
    pub(super) fn never_complete(&self, id: &GangId, census: &Census) -> Option<String> {
        let (gang, following) = self.following(id)?;
        let tally = self.tally(following, gang, id, census);
        let own = self.groups.own(id)?.quorum.min_members();
        let wanted = tally.wanted();
        (!following.met && !tally.unread && !tally.owners.is_empty() && census.live >= wanted && wanted < own)
            .then(|| {
                format!(
                    "its owners make {wanted} ({}): it is not complete before they want {own}",
                    tally.words()
                )
            })
    }
}

/// Whether it is written down that the owners of a gang have been counted.
fn said_met(gang: &Gang) -> bool {
    let Object::Known(_, stored) = &gang.object else { return false };
    stored.conditions.iter().any(|c| c.kind == ConditionType::Elastic && c.status == ConditionStatus::True)
}
