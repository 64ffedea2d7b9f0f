//! Members that are made only after others of their gang have started, and the room that is held for them.
//!
//! Such a gang never gathers: pod 1 is made when pod 0 is Ready, and pod 0 waits for pod 1. Where it is known what those to
//! come will ask for ([`crate::dialect::FutureMembers`]), the gang is planned as a whole with them, all or none. What stands in the
//! durable plan for them are places ([`Placeholder`]); they are charged like pods, so that nobody else is given that room. A
//! member that comes takes a place of its role: it goes into the plan, the place out of it, in one compare-and-swap, and it
//! is lifted like everybody.
//!
//! Room is held for as long as the gang gets on: it is free again when nobody is to come any more, when the gang is torn,
//! and after [`super::EngineSettings::reserve_for`] without anybody coming. What is let go stays charged until the plan without
//! it is durable: whoever leads after a crash goes by what is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::gather::{Census, role};
use super::held::Placeholder;
use super::state::{Gang, Progress};
use super::types::{PlanRecord, PlannedMember};
use super::{Engine, SafetyRule, Step};
use crate::dialect::{FutureMembers, Group, Quorum};
use crate::model::{GangId, NodeName, PodKey, PodUid, Reason, Str, str};
use crate::objects::names;
use crate::planner;
use crate::pod::Pod;
use crate::shape::Shape;
use crate::snapshot::{CardAllocation, Charge, ChargeState};

/// Of more members to come than this no plan is made: somebody mistyped a number.
const MOST: usize = 2048;

/// Members of a gang by role.
type Counts = BTreeMap<Option<Str>, u32>;

/// A member that is not made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToCome {
    pub role: Option<Str>,
    pub shape: Arc<Shape>,
}

impl Engine {
    /// Who is to come when so many are there, by role, so that the gang is whole; empty where it is, and where that is not
    /// known of everybody who is missing.
    pub(super) fn to_come(&self, id: &GangId, mut counts: Counts) -> Vec<ToCome> {
        let (Some(gang), Some(group)) = (self.gangs.get(id), self.group(id)) else { return Vec::new() };
        // Who still waits has no node in its affinity that a lift wrote there.
        let mut speakers: Vec<_> = (gang.members.iter())
            .filter_map(|uid| self.members.get(uid))
            .filter(|m| m.live() && (m.ready() || !m.pod.gated()))
            .filter_map(|m| {
                Some((&m.pod, m.pod.membership.as_ref()?.declared.as_ref()?.future_members.as_ref()?))
            })
            .collect();
        if speakers.is_empty() {
            return Vec::new();
        }
        speakers.sort_by_key(|(pod, _)| (!pod.gated(), pod.created, &pod.key));
        let quorum = self.whole_quorum(id, group);
        let mut coming = Vec::new();
        self.fill(&quorum, None, &speakers, &mut counts, &mut coming);
        let known = coming.len() <= MOST && quorum.is_satisfied(&counts);
        if known { coming } else { Vec::new() }
    }

    /// What the gang takes where those to come are counted: a group that lets a leader start alone means its workers too.
    pub(super) fn whole_quorum(&self, id: &GangId, group: &Group) -> Quorum {
        let Quorum::Count(least) = group.quorum else { return group.quorum.clone() };
        let members = self.gangs.get(id).into_iter().flat_map(|gang| &gang.members);
        let replicas = members.filter_map(|uid| {
            let declared = self.members.get(uid)?.pod.membership.as_ref()?.declared.as_ref()?;
            match declared.future_members.as_ref()? {
                FutureMembers::Replica { set, size } if self.groups.of_object(set)?.workers.is_some() => {
                    Some(*size)
                }
                _ => None,
            }
        });
        Quorum::Count(replicas.max().unwrap_or(0).max(least))
    }

    /// Whether a gang is a replica of a set that is not known: its leader may be one that goes first.
    pub(super) fn set_unknown(&self, gang: &Gang) -> bool {
        let mut later = gang.members.iter().filter_map(|uid| {
            let declared = self.members.get(uid)?.pod.membership.as_ref()?.declared.as_ref()?;
            declared.future_members.as_ref()
        });
        later.any(|later| match later {
            FutureMembers::Replica { set, .. } => self.groups.of_object(set).is_none(),
            FutureMembers::Copies | FutureMembers::Roles(_) => false,
        })
    }

    fn fill(
        &self,
        quorum: &Quorum,
        name: Option<&str>,
        speakers: &[(&Pod, &FutureMembers)],
        counts: &mut Counts,
        coming: &mut Vec<ToCome>,
    ) {
        match quorum {
            Quorum::Count(least) => {
                let of = |role: &Option<Str>| name.is_none_or(|name| named(role.as_ref()) == name);
                let here: u32 = counts.iter().filter(|(role, _)| of(role)).map(|(_, number)| number).sum();
                let missing = least.saturating_sub(here);
                if missing == 0 {
                    return;
                }
                let Some(one) = speakers.iter().find_map(|(pod, later)| self.one_of(pod, later, name)) else {
                    return;
                };
                *counts.entry(one.role.clone()).or_default() += missing;
                let room = MOST.saturating_add(1).saturating_sub(coming.len());
                coming.extend(std::iter::repeat_n(one, usize::try_from(missing).unwrap_or(MOST).min(room)));
            }
            Quorum::Groups { children, .. } => {
                for (name, child) in children {
                    self.fill(child, Some(name), speakers, counts, coming);
                }
            }
            Quorum::Total { min_members: least, quorum } => {
                self.fill(quorum, None, speakers, counts, coming);
                self.fill(&Quorum::Count(*least), None, speakers, counts, coming);
            }
        }
    }

    /// What a pod says of a member to come, of this subgroup where one is named.
    fn one_of(&self, pod: &Pod, later: &FutureMembers, name: Option<&str>) -> Option<ToCome> {
        match later {
            FutureMembers::Copies => {
                let role = role(pod);
                name.is_none_or(|name| named(role) == name)
                    .then(|| ToCome { role: role.cloned(), shape: pod.shape.clone() })
            }
            FutureMembers::Roles(roles) => {
                let (role, shape) = roles.get_key_value(name?)?;
                Some(ToCome { role: Some(role.clone()), shape: shape.clone() })
            }
            FutureMembers::Replica { set, .. } => {
                let workers = self.groups.of_object(set)?.workers.as_ref()?;
                let role = name.map(str).filter(|name| &**name != names::KAI_DEFAULT_SUBGROUP);
                Some(ToCome { role, shape: workers.shape.clone() })
            }
        }
    }

    /// The same as members to be planned, with names that no pod has.
    pub(super) fn planned_to_come(&self, id: &GangId, coming: Vec<ToCome>) -> Vec<planner::WaitingMember> {
        let plan = self.gangs.get(id).and_then(|gang| gang.progress.plan());
        let first =
            plan.and_then(|plan| plan.placeholders.iter().map(|place| place.number + 1).max()).unwrap_or(0);
        let members = (first..).zip(coming).map(|(number, member)| planner::WaitingMember {
            uid: place_uid(id, number),
            key: PodKey::new(&*id.namespace, format!("a member of {} that is to come", id.name)),
            role: member.role,
            shape: member.shape,
        });
        members.collect()
    }

    /// Whether the members that are here, with those that are known to come, make the gang complete.
    pub(super) fn complete_with_those_to_come(&self, id: &GangId, census: &Census) -> bool {
        !census.ready.is_empty() && !self.to_come(id, self.by_role(census)).is_empty()
    }

    /// The room that the plan of a gang holds.
    pub(super) fn held_places(&self, id: &GangId) -> Vec<Placeholder> {
        let plan = self.gangs.get(id).and_then(|gang| gang.progress.plan());
        plan.map(|plan| plan.placeholders.clone()).unwrap_or_default()
    }

    /// The place that was found for a member to come, beside those that are held already.
    pub(super) fn place_for(
        &self,
        member: &planner::WaitingMember,
        found: &planner::Assignment,
        held: &[Placeholder],
    ) -> Placeholder {
        Placeholder {
            number: held.iter().map(|place| place.number.saturating_add(1)).max().unwrap_or(0),
            role: member.role.clone(),
            node: found.node.clone(),
            gpus: found.cards.clone(),
            shape: Placeholder::amounts(&member.shape),
        }
    }

    /// Brings what is charged for the places of a gang in line with its plan.
    pub(super) fn charge_places(&mut self, id: &GangId) {
        let gang = self.gangs.get(id);
        let plan = gang.and_then(|gang| gang.progress.plan());
        let places = plan.map(|plan| &plan.placeholders).into_iter().flatten();
        let places = places.chain(gang.into_iter().flat_map(|gang| &gang.letting_go));
        let wanted: BTreeMap<PodUid, Charge> = places
            .filter(|_| self.settings.keeps(SafetyRule::Reserve))
            .map(|place| (place_uid(id, place.number), charge_of(id, place)))
            .collect();
        let held: Vec<PodUid> =
            self.places.iter().filter(|(_, gang)| *gang == id).map(|(uid, _)| uid.clone()).collect();
        for uid in held.iter().filter(|uid| !wanted.contains_key(uid)) {
            self.places.remove(uid);
            self.snapshot.release(uid);
        }
        for (uid, charge) in wanted {
            self.snapshot.charge(&uid, charge);
            self.places.insert(uid, id.clone());
        }
    }

    /// Looks at the room that is held for those to come: who is here takes a place, and what nobody is to take is let go.
    pub(super) fn judge_places(&mut self, id: &GangId, step: &mut Step) {
        let Some(gang) = self.gangs.get(id) else { return };
        let Progress::Recorded(plan) = &gang.progress else { return };
        if plan.placeholders.is_empty() || !self.begun(plan) {
            return;
        }
        let mut next = plan.clone();
        let census = self.census(id);
        let mut told = Vec::new();
        let came = if gang.expired.is_empty() { self.take_places(&mut next, &census, &mut told) } else { 0 };
        let mut gone = self.lost_places(&mut next, &mut told);
        let missing = self.to_come(id, self.by_role(&census));
        let why = self.nobody_comes(id, &next, &missing, step.now);
        let surplus = surplus(&mut next, if why.is_some() { &[] } else { &missing });
        if !surplus.is_empty() && told.is_empty() {
            told.push(why.unwrap_or_else(|| "nobody is to come for it any more".to_owned()));
        }
        let finished = missing.is_empty();
        gone.extend(surplus);
        if came == 0 && gone.is_empty() {
            return;
        }
        if came > 0 {
            next.deadline = step.now.after(self.settings.bind_timeout);
            next.reserved_until = Some(step.now.after(self.settings.reserve_for));
        }
        if !finished {
            next.released = next.released.saturating_add(u32::try_from(gone.len()).unwrap_or(u32::MAX));
        }
        if next.placeholders.is_empty() {
            next.reserved_until = None;
        }
        let message = (!gone.is_empty())
            .then(|| format!("the room for {} is let go: {}", self::told(&gone), told.join("; ")));
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.letting_go = gone;
        }
        self.decide(id, next);
        // Who waits without a place stands in the queue, and can be planned only when this is durable.
        self.look_at(id);
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.told_lifted = came == 0;
        }
        if let Some(message) = message {
            self.tell(id, Reason::RoomReleased, message, !finished, Vec::new(), step);
        }
    }

    /// Gives places to members that are here and have none. Says of whom it could not be done.
    fn take_places(&self, plan: &mut PlanRecord, census: &Census, told: &mut Vec<String>) -> usize {
        let mut came = 0;
        for uid in &census.ready {
            let Some(member) = self.members.get(uid).filter(|m| !m.must_fence) else { continue };
            if plan.members.iter().any(|m| m.uid == *uid) {
                continue;
            }
            let pod = &member.pod;
            let mine = |place: &&Placeholder| named(place.role.as_ref()) == named(role(pod));
            let Some(first) = plan.placeholders.iter().find(mine) else { continue };
            let fits =
                |place: &Placeholder| place.holds(&pod.shape) && self.unfit(pod, &place.node).is_none();
            // The one that is just right before one that is too large.
            let exact = |place: &Placeholder| *place.shape == *Placeholder::amounts(&pod.shape);
            let places =
                || plan.placeholders.iter().enumerate().filter(|(_, place)| mine(place) && fits(place));
            let found = places().find(|(_, place)| exact(place)).or_else(|| places().next());
            let Some((index, _)) = found else {
                told.push(if first.holds(&pod.shape) {
                    let why = self.unfit(pod, &first.node);
                    let why = why.unwrap_or_else(|| format!("node {} cannot take it", first.node));
                    format!("{} is planned anew, alone: {why}", pod.key.name)
                } else {
                    format!("{} asks for more than is held for it, and is planned anew, alone", pod.key.name)
                });
                continue;
            };
            let place = plan.placeholders.remove(index);
            let (uid, pod) = (pod.uid.clone(), pod.key.name.clone());
            plan.members.push(PlannedMember { pod, uid, node: place.node, gpus: place.gpus });
            came += 1;
        }
        came
    }

    /// Takes out the places on nodes that cannot keep them.
    fn lost_places(&self, plan: &mut PlanRecord, told: &mut Vec<String>) -> Vec<Placeholder> {
        let (kept, lost) =
            plan.placeholders.drain(..).partition(|place| match self.cannot_keep(&place.node) {
                Some(why) => {
                    if !told.contains(&why) {
                        told.push(why);
                    }
                    false
                }
                None => true,
            });
        plan.placeholders = kept;
        lost
    }

    /// Why no room can be held on a node any more.
    pub(super) fn cannot_keep(&self, name: &NodeName) -> Option<String> {
        let Some(node) = self.snapshot.node(name) else { return Some(format!("node {name} is gone")) };
        if !node.ready {
            return Some(format!("node {name} is not ready"));
        }
        self.snapshot.overbooked(name).map(|what| format!("node {name} has no room any more: {what}"))
    }

    /// Why all that is held is let go; `None` as long as members may come.
    fn nobody_comes(
        &self,
        id: &GangId,
        plan: &PlanRecord,
        missing: &[ToCome],
        now: crate::model::Time,
    ) -> Option<String> {
        let unbound = plan.members.iter().any(|m| self.members.get(&m.uid).is_some_and(|m| m.unbound()));
        if now > plan.deadline && unbound {
            return Some("the gang is torn".to_owned());
        }
        if missing.is_empty() {
            let whole = self.group(id).is_some_and(|group| {
                self.whole_quorum(id, group).is_satisfied(&self.by_role(&self.census(id)))
            });
            return Some(if whole {
                "all members are here".to_owned()
            } else {
                "it is not known any more who is to come".to_owned()
            });
        }
        let over = plan.reserved_until.is_some_and(|until| now > until);
        over.then(|| {
            let time = super::timeout::seconds(self.settings.reserve_for);
            format!("no member has come for {time}")
        })
    }

    /// What is said of a gang whose members come one after the other.
    pub(super) fn say_coming(&self, id: &GangId, plan: &PlanRecord, census: &Census) -> (String, String) {
        let started = census.started();
        let all = usize::try_from(started).unwrap_or(usize::MAX).saturating_add(plan.placeholders.len());
        let gated = plan.members.iter().filter(|m| self.members.get(&m.uid).is_some_and(|m| m.pod.gated()));
        let all = all.saturating_add(gated.count());
        let message = format!("{started} of {all} started, room held for {}", told(&plan.placeholders));
        let waits = self.to_come(id, self.by_role(census)).len().max(plan.placeholders.len());
        (message, format!("{waits} more {} to be made", if waits == 1 { "pod" } else { "pods" }))
    }
}

/// `3 more on node-1, node-2`.
pub(super) fn told(places: &[Placeholder]) -> String {
    let mut nodes: Vec<&str> = places.iter().map(|place| place.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let more = nodes.len().saturating_sub(8);
    nodes.truncate(8);
    let more = if more > 0 { format!(" and {more} other nodes") } else { String::new() };
    format!("{} more on {}{more}", places.len(), nodes.join(", "))
}

/// Takes out of a plan what nobody is to take, the newest places first.
fn surplus(plan: &mut PlanRecord, missing: &[ToCome]) -> Vec<Placeholder> {
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for member in missing {
        *wanted.entry(named(member.role.as_ref())).or_default() += 1;
    }
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for place in plan.placeholders.drain(..) {
        match wanted.get_mut(named(place.role.as_ref())) {
            Some(left) if *left > 0 => {
                *left -= 1;
                kept.push(place);
            }
            _ => gone.push(place),
        }
    }
    plan.placeholders = kept;
    gone
}

/// The subgroup of who names this role.
fn named(role: Option<&Str>) -> &str {
    role.map_or(names::KAI_DEFAULT_SUBGROUP, |role| role)
}

/// The name under which a place is charged; no pod has it.
fn place_uid(id: &GangId, number: u32) -> PodUid {
    PodUid::from(&*format!("to come/{}/{id}/{number}", id.dialect))
}

fn charge_of(id: &GangId, place: &Placeholder) -> Charge {
    let cards = if place.shape.share.is_some() {
        CardAllocation::Known(place.gpus.clone())
    } else {
        CardAllocation::Unshared
    };
    Charge {
        key: Some(PodKey::new(&*id.namespace, format!("{} (room held for it)", id.name))),
        node: place.node.clone(),
        shape: place.shape.clone(),
        cards,
        state: ChargeState::Reserved,
    }
}
