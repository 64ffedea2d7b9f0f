//! Placeholders: capacity for members whose pods are created only after other members have started.
//!
//! Such a gang never gathers: a controller creates pod 1 when pod 0 is Ready, and pod 0 waits for pod 1. If
//! the pods or a set say what the missing members request ([`crate::dialect::FutureMembers`], `Group::workers`), the
//! gang is planned as a whole with them, all or none. The durable plan holds a [`Placeholder`] for each:
//! node, cards and amounts. Placeholders are charged like pods, under UIDs that no pod has. A new member
//! takes the placeholder of its role: one compare-and-swap adds it to the plan and removes the placeholder.
//! Then it is lifted like every member.
//!
//! A reservation ends when no member is missing any more, when its node cannot keep it, when the gang is
//! torn, and after [`crate::engine::EngineSettings::reserve_for`] without a new member. A released
//! reservation stays charged until the plan without it is durable, because the next leader trusts only the
//! stored plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dialect::{FutureMembers, Group, Quorum};
use crate::engine::gang_state::GangState;
use crate::engine::members::{MemberCounts, role};
use crate::engine::protocol::placeholder::Placeholder;
use crate::engine::protocol::plan_progress::{PlanInput, Progress};
use crate::engine::protocol::{PlanRecord, PlannedMember};
use crate::engine::{Engine, SafetyRule, StepContext};
use crate::model::{GangId, PodKey, PodUid, Reason, Str, str};
use crate::objects::names;
use crate::planner;
use crate::pod::Pod;
use crate::shape::Shape;
use crate::snapshot::{CardAllocation, Charge, ChargeState};

/// Upper bound of placeholders per gang. A larger number is treated as a typo and the gang is not planned.
const MAX_PLACEHOLDERS_PER_GANG: usize = 2048;

/// Numbers of members by role.
type RoleCounts = BTreeMap<Option<Str>, u32>;

/// A missing member, whose pod does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct MissingMember {
    pub role: Option<Str>,
    pub shape: Arc<Shape>,
}

impl Engine {
    /// The members that are missing beside these counts, so that the gang is complete. Empty if none is
    /// missing, or if the requests of one of them are unknown.
    pub(in crate::engine) fn missing_members(
        &self,
        id: &GangId,
        mut counts: RoleCounts,
    ) -> Vec<MissingMember> {
        let (Some(gang), Some(group)) = (self.expect_gang(id), self.group(id)) else { return Vec::new() };
        // Waiting pods first: their affinity contains no node of a lift.
        let mut sources: Vec<_> = (gang.members.iter())
            .filter_map(|uid| self.members.get(uid))
            .filter(|m| m.live() && (m.ready() || !m.pod.gated()))
            .filter_map(|m| {
                Some((&m.pod, m.pod.membership.as_ref()?.declared.as_ref()?.future_members.as_ref()?))
            })
            .collect();
        if sources.is_empty() {
            return Vec::new();
        }
        sources.sort_by_key(|(pod, _)| (!pod.gated(), pod.created, &pod.key));
        let quorum = self.full_quorum(id, group);
        let mut missing = Vec::new();
        self.fill_quorum(&quorum, None, &sources, &mut counts, &mut missing);
        let known = missing.len() <= MAX_PLACEHOLDERS_PER_GANG && quorum.is_satisfied(&counts);
        if known { missing } else { Vec::new() }
    }

    /// The quorum if missing members count: a group that lets a leader start alone means its workers too.
    pub(in crate::engine) fn full_quorum(&self, id: &GangId, group: &Group) -> Quorum {
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

    /// Whether the gang is a replica of a set that the engine does not know: its leader may be one that
    /// starts first.
    pub(in crate::engine) fn is_replica_of_unknown_set(&self, gang: &GangState) -> bool {
        let mut later = gang.members.iter().filter_map(|uid| {
            let declared = self.members.get(uid)?.pod.membership.as_ref()?.declared.as_ref()?;
            declared.future_members.as_ref()
        });
        later.any(|later| match later {
            FutureMembers::Replica { set, .. } => self.groups.of_object(set).is_none(),
            FutureMembers::Copies | FutureMembers::Roles(_) => false,
        })
    }

    fn fill_quorum(
        &self,
        quorum: &Quorum,
        name: Option<&str>,
        sources: &[(&Pod, &FutureMembers)],
        counts: &mut RoleCounts,
        found: &mut Vec<MissingMember>,
    ) {
        match quorum {
            Quorum::Count(least) => {
                let of = |role: &Option<Str>| name.is_none_or(|name| subgroup_name(role.as_ref()) == name);
                let here: u32 = counts.iter().filter(|(role, _)| of(role)).map(|(_, number)| number).sum();
                let missing = least.saturating_sub(here);
                if missing == 0 {
                    return;
                }
                let Some(one) =
                    sources.iter().find_map(|(pod, later)| self.missing_member_from(pod, later, name))
                else {
                    return;
                };
                *counts.entry(one.role.clone()).or_default() += missing;
                let room = MAX_PLACEHOLDERS_PER_GANG.saturating_add(1).saturating_sub(found.len());
                found.extend(std::iter::repeat_n(
                    one,
                    usize::try_from(missing).unwrap_or(MAX_PLACEHOLDERS_PER_GANG).min(room),
                ));
            }
            Quorum::Groups { children, .. } => {
                for (name, child) in children {
                    self.fill_quorum(child, Some(name), sources, counts, found);
                }
            }
            Quorum::Total { min_members: least, quorum } => {
                self.fill_quorum(quorum, None, sources, counts, found);
                self.fill_quorum(&Quorum::Count(*least), None, sources, counts, found);
            }
        }
    }

    /// The missing member that a pod describes, for this subgroup if one is named.
    fn missing_member_from(
        &self,
        pod: &Pod,
        later: &FutureMembers,
        name: Option<&str>,
    ) -> Option<MissingMember> {
        match later {
            FutureMembers::Copies => {
                let role = role(pod);
                name.is_none_or(|name| subgroup_name(role) == name)
                    .then(|| MissingMember { role: role.cloned(), shape: pod.shape.clone() })
            }
            FutureMembers::Roles(roles) => {
                let (role, shape) = roles.get_key_value(name?)?;
                Some(MissingMember { role: Some(role.clone()), shape: shape.clone() })
            }
            FutureMembers::Replica { set, .. } => {
                let workers = self.groups.of_object(set)?.workers.as_ref()?;
                let role = name.map(str).filter(|name| &**name != names::KAI_DEFAULT_SUBGROUP);
                Some(MissingMember { role, shape: workers.shape.clone() })
            }
        }
    }

    /// Missing members as planner input, with UIDs that no pod has.
    pub(in crate::engine) fn placeholder_requests(
        &self,
        id: &GangId,
        missing: Vec<MissingMember>,
    ) -> Vec<planner::WaitingMember> {
        let plan = self.gangs.get(id).and_then(|gang| gang.lifecycle.progress.plan());
        let first =
            plan.and_then(|plan| plan.placeholders.iter().map(|place| place.number + 1).max()).unwrap_or(0);
        let members = (first..).zip(missing).map(|(number, member)| planner::WaitingMember {
            uid: placeholder_uid(id, number),
            key: PodKey::new(&*id.namespace, format!("a missing member of {}", id.name)),
            role: member.role,
            shape: member.shape,
        });
        members.collect()
    }

    /// Whether the existing members and the known missing ones complete the gang.
    pub(in crate::engine) fn is_complete_with_placeholders(
        &self,
        id: &GangId,
        counts: &MemberCounts,
    ) -> bool {
        !counts.ready.is_empty() && !self.missing_members(id, self.by_role(counts)).is_empty()
    }

    /// The placeholders in the plan of a gang.
    pub(in crate::engine) fn placeholders_of(&self, id: &GangId) -> Vec<Placeholder> {
        let plan = self.gangs.get(id).and_then(|gang| gang.lifecycle.progress.plan());
        plan.map(|plan| plan.placeholders.clone()).unwrap_or_default()
    }

    /// A placeholder for a missing member that the planner placed. Its number differs from those of existing
    /// ones.
    pub(in crate::engine) fn new_placeholder(
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

    /// Charges the placeholders of a gang as its plan says, and those that it releases.
    pub(in crate::engine) fn charge_placeholders(&mut self, id: &GangId) {
        let gang = self.gangs.get(id);
        let plan = gang.and_then(|gang| gang.lifecycle.progress.plan());
        let places = plan.map(|plan| &plan.placeholders).into_iter().flatten();
        let places = places.chain(gang.into_iter().flat_map(|gang| &gang.lifecycle.released_placeholders));
        let wanted: BTreeMap<PodUid, Charge> = places
            .filter(|_| self.settings.enforces(SafetyRule::Reserve))
            .map(|place| (placeholder_uid(id, place.number), placeholder_charge(id, place)))
            .collect();
        let held: Vec<PodUid> = self
            .placeholder_owners
            .iter()
            .filter(|(_, gang)| *gang == id)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in held.iter().filter(|uid| !wanted.contains_key(uid)) {
            self.placeholder_owners.remove(uid);
            self.snapshot.release(uid);
        }
        for (uid, charge) in wanted {
            self.snapshot.charge(&uid, charge);
            self.placeholder_owners.insert(uid, id.clone());
        }
    }

    /// Reviews the placeholders of a gang: assigns them to new members, and releases those that no member
    /// needs.
    pub(in crate::engine) fn review_placeholders(&mut self, id: &GangId, step: &mut StepContext) {
        let Some(gang) = self.expect_gang(id) else { return };
        let Progress::Recorded(plan) = &gang.lifecycle.progress else { return };
        if plan.placeholders.is_empty() || !self.has_started(plan) {
            return;
        }
        let mut next = plan.clone();
        let counts = self.count_members(id);
        let mut reasons = Vec::new();
        let came = if gang.lifecycle.expired.is_empty() {
            self.assign_placeholders(&mut next, &counts, &mut reasons)
        } else {
            0
        };
        let mut gone = self.remove_unusable_placeholders(&mut next, &mut reasons);
        let missing = self.missing_members(id, self.by_role(&counts));
        let why = self.reservation_end_reason(id, &next, &missing, step.now);
        let surplus = surplus(&mut next, if why.is_some() { &[] } else { &missing });
        if !surplus.is_empty() && reasons.is_empty() {
            reasons.push(why.unwrap_or_else(|| "no missing member needs it any more".to_owned()));
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
        let message = (!gone.is_empty()).then(|| {
            format!("reservation released for {}: {}", placeholders_summary(&gone), reasons.join("; "))
        });
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.lifecycle.released_placeholders = gone;
        }
        self.advance_plan(id, PlanInput::Planned(next), step);
        // A member without a placeholder is queued. It can be planned once this plan is durable.
        self.mark_for_planning(id);
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.reported.lifted_event_recorded = came == 0;
        }
        if let Some(message) = message {
            self.record_event(id, Reason::ReservationReleased, message, !finished, Vec::new(), step);
        }
    }

    /// Assigns placeholders to ready members outside of the plan. Adds a sentence for each member without a
    /// fitting one.
    fn assign_placeholders(
        &self,
        plan: &mut PlanRecord,
        counts: &MemberCounts,
        reasons: &mut Vec<String>,
    ) -> usize {
        let mut came = 0;
        for uid in &counts.ready {
            let Some(member) = self.members.get(uid).filter(|m| !m.must_fence) else { continue };
            if plan.members.iter().any(|m| m.uid == *uid) {
                continue;
            }
            let pod = &member.pod;
            let mine = |place: &&Placeholder| subgroup_name(place.role.as_ref()) == subgroup_name(role(pod));
            let Some(first) = plan.placeholders.iter().find(mine) else { continue };
            let fits = |place: &Placeholder| {
                place.accommodates(&pod.shape) && self.node_unfit_reason(pod, &place.node).is_none()
            };
            // An exact match before a placeholder that is too large.
            let exact = |place: &Placeholder| *place.shape == *Placeholder::amounts(&pod.shape);
            let places =
                || plan.placeholders.iter().enumerate().filter(|(_, place)| mine(place) && fits(place));
            let found = places().find(|(_, place)| exact(place)).or_else(|| places().next());
            let Some((index, _)) = found else {
                reasons.push(if first.accommodates(&pod.shape) {
                    let why = self.node_unfit_reason(pod, &first.node);
                    let why = why.unwrap_or_else(|| format!("node {} cannot take it", first.node));
                    format!("{} is planned again, alone: {why}", pod.key.name)
                } else {
                    format!(
                        "{} requests more than is reserved for it, and is planned again, alone",
                        pod.key.name
                    )
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

    /// Removes the placeholders on nodes that cannot keep them.
    fn remove_unusable_placeholders(
        &self,
        plan: &mut PlanRecord,
        reasons: &mut Vec<String>,
    ) -> Vec<Placeholder> {
        let (kept, lost) =
            plan.placeholders.drain(..).partition(|place| match self.reservation_unfit_reason(place) {
                Some(why) => {
                    if !reasons.contains(&why) {
                        reasons.push(why);
                    }
                    false
                }
                None => true,
            });
        plan.placeholders = kept;
        lost
    }

    /// The reason why a node cannot keep a reservation. `None` while it can.
    pub(in crate::engine) fn reservation_unfit_reason(&self, place: &Placeholder) -> Option<String> {
        let name = &place.node;
        let Some(node) = self.snapshot.node(name) else { return Some(format!("node {name} is gone")) };
        if !node.ready {
            return Some(format!("node {name} is not ready"));
        }
        self.snapshot
            .overbooked_for(name, &place.shape)
            .map(|what| format!("node {name} has no room any more: {what}"))
    }

    /// The reason to release all reservations. `None` while members may still be created.
    fn reservation_end_reason(
        &self,
        id: &GangId,
        plan: &PlanRecord,
        missing: &[MissingMember],
        now: crate::model::Time,
    ) -> Option<String> {
        let unbound = plan.members.iter().any(|m| self.members.get(&m.uid).is_some_and(|m| m.unbound()));
        if now > plan.deadline && unbound {
            return Some("the gang is torn".to_owned());
        }
        if missing.is_empty() {
            let whole = self.group(id).is_some_and(|group| {
                self.full_quorum(id, group).is_satisfied(&self.by_role(&self.count_members(id)))
            });
            return Some(if whole {
                "all members exist".to_owned()
            } else {
                "the missing members are not known any more".to_owned()
            });
        }
        let over = plan.reserved_until.is_some_and(|until| now > until);
        over.then(|| {
            let time = crate::engine::queue::timeout::format_seconds(self.settings.reserve_for);
            format!("no member was created for {time}")
        })
    }

    /// Message and `waitingFor` of a gang with placeholders.
    pub(in crate::engine) fn placeholder_summary(
        &self,
        id: &GangId,
        plan: &PlanRecord,
        counts: &MemberCounts,
    ) -> (String, String) {
        let started = counts.started();
        let all = usize::try_from(started).unwrap_or(usize::MAX).saturating_add(plan.placeholders.len());
        let gated = plan.members.iter().filter(|m| self.members.get(&m.uid).is_some_and(|m| m.pod.gated()));
        let all = all.saturating_add(gated.count());
        let message = format!(
            "{started} of {all} started, capacity reserved for {}",
            placeholders_summary(&plan.placeholders)
        );
        let waits = self.missing_members(id, self.by_role(counts)).len().max(plan.placeholders.len());
        (message, format!("{waits} more {} to be made", if waits == 1 { "pod" } else { "pods" }))
    }
}

/// `3 more on node-1, node-2`.
pub(in crate::engine) fn placeholders_summary(places: &[Placeholder]) -> String {
    let mut nodes: Vec<&str> = places.iter().map(|place| place.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let more = nodes.len().saturating_sub(8);
    nodes.truncate(8);
    let more = if more > 0 { format!(" and {more} other nodes") } else { String::new() };
    format!("{} more on {}{more}", places.len(), nodes.join(", "))
}

/// Removes the placeholders that no missing member needs, the newest ones first.
fn surplus(plan: &mut PlanRecord, missing: &[MissingMember]) -> Vec<Placeholder> {
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for member in missing {
        *wanted.entry(subgroup_name(member.role.as_ref())).or_default() += 1;
    }
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for place in plan.placeholders.drain(..) {
        match wanted.get_mut(subgroup_name(place.role.as_ref())) {
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

/// The subgroup of a role.
fn subgroup_name(role: Option<&Str>) -> &str {
    role.map_or(names::KAI_DEFAULT_SUBGROUP, |role| role)
}

/// The UID under which a placeholder is charged. No pod has it.
fn placeholder_uid(id: &GangId, number: u32) -> PodUid {
    PodUid::from(&*format!("to come/{}/{id}/{number}", id.dialect))
}

fn placeholder_charge(id: &GangId, place: &Placeholder) -> Charge {
    let cards = if place.shape.share.is_some() {
        CardAllocation::Known(place.gpus.clone())
    } else {
        CardAllocation::Unshared
    };
    Charge {
        key: Some(PodKey::new(&*id.namespace, format!("{} (reservation)", id.name))),
        node: place.node.clone(),
        shape: place.shape.clone(),
        cards,
        state: ChargeState::Reserved,
    }
}
