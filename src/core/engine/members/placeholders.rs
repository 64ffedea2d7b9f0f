//! Placeholders: capacity for members whose pods are created only after other members have started.
//!
//! Such a gang never gathers: a controller creates pod 1 when pod 0 is Ready, and pod 0 waits for pod 1. If
//! the pods or a set say what the missing members request ([`crate::dialect::FutureMembers`],
//! `Group::workers`), the gang is planned as a whole with them, all or none. The durable plan holds a
//! [`Placeholder`] for each: node, cards and amounts. Placeholders are charged like pods, under UIDs that no
//! pod has. A new member takes the placeholder of its role: one compare-and-swap adds it to the plan and
//! removes the placeholder. Then it is lifted like every member.
//!
//! A reservation ends when no member is missing any more, when its node cannot keep it, when the gang is
//! torn, and after [`crate::engine::EngineSettings::reserve_for`] without a new member. A released
//! reservation stays charged until the plan without it is durable, because the next leader trusts only the
//! stored plan.

use std::collections::BTreeMap;

use crate::engine::members::MemberCounts;
use crate::engine::members::charges::placeholder_uid;
use crate::engine::members::missing::{MissingMember, subgroup_name};
use crate::engine::members::node_fitness::{node_unfit_reason, reservation_unfit_reason};
use crate::engine::members::role;
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::protocol::{Placeholder, PlanRecord, PlannedMember};
use crate::engine::state::{Effects, EngineView, Gang, format_seconds};
use crate::model::{PodKey, Reason};
use crate::planner::{Assignment, WaitingMember};
use crate::pod::Pod;
use crate::snapshot::Snapshot;

/// A summary names at most this many nodes before "and N other nodes".
const MAX_NAMED_NODES: usize = 8;

/// A plan with fewer placeholders than before.
pub(in crate::engine) struct PlaceholderReview {
    pub plan: PlanRecord,
    /// The number of new members that took a placeholder.
    pub joined: usize,
}

impl Gang {
    /// Missing members as planner input, with UIDs that no pod has.
    pub(in crate::engine) fn placeholder_requests(&self, missing: Vec<MissingMember>) -> Vec<WaitingMember> {
        let id = &self.id;
        let first = self.placeholders().iter().map(|place| place.number + 1).max().unwrap_or(0);
        let members = (first..).zip(missing).map(|(number, member)| WaitingMember {
            uid: placeholder_uid(id, number),
            key: PodKey::new(&*id.namespace, format!("a missing member of {}", id.name)),
            role: member.role,
            labels: member.labels,
            shape: member.shape,
        });
        members.collect()
    }

    /// Reviews the placeholders of the gang: assigns them to new members, and releases those that no member
    /// needs. Returns the plan that has to become durable, if anything changed.
    pub(in crate::engine) fn review_placeholders(
        &mut self,
        view: &EngineView<'_>,
        effects: &mut Effects,
    ) -> Option<PlaceholderReview> {
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return None };
        if plan.placeholders.is_empty() || !self.has_started(plan) {
            return None;
        }
        let mut next = plan.clone();
        let counts = self.count_members();
        let mut reasons = Vec::new();
        let joined = if self.lifecycle.expired.is_empty() {
            self.assign_placeholders(&mut next, &counts, view, &mut reasons)
        } else {
            0
        };
        let mut released = remove_unusable_placeholders(&mut next, view.snapshot, &mut reasons);
        let missing = self.missing_members(view, counts.present_by_role());
        let end = self.reservation_end_reason(view, &next, &counts, &missing);
        let surplus = remove_surplus_placeholders(&mut next, if end.is_some() { &[] } else { &missing });
        if !surplus.is_empty() && reasons.is_empty() {
            reasons.push(end.unwrap_or_else(|| "no missing member needs it any more".to_owned()));
        }
        released.extend(surplus);
        if joined == 0 && released.is_empty() {
            return None;
        }
        if joined > 0 {
            next.deadline = view.now.after(view.settings.bind_timeout);
            next.reserved_until = Some(view.now.after(view.settings.reserve_for));
        }
        let finished = missing.is_empty();
        if !finished {
            next.released = next.released.saturating_add(u32::try_from(released.len()).unwrap_or(u32::MAX));
        }
        if next.placeholders.is_empty() {
            next.reserved_until = None;
        }
        if !released.is_empty() {
            let what = placeholders_summary(&released);
            let message = format!("reservation released for {what}: {}", reasons.join("; "));
            self.record_event(view, Reason::ReservationReleased, message, !finished, Vec::new(), effects);
        }
        self.lifecycle.released_placeholders = released;
        Some(PlaceholderReview { plan: next, joined })
    }

    /// Assigns placeholders to ready members outside of the plan. Adds a sentence for each member without a
    /// fitting one. Returns the number of assigned placeholders.
    fn assign_placeholders(
        &self,
        plan: &mut PlanRecord,
        counts: &MemberCounts,
        view: &EngineView<'_>,
        reasons: &mut Vec<String>,
    ) -> usize {
        let mut joined = 0;
        for uid in &counts.ready {
            let Some(member) = self.members.get(uid).filter(|m| !m.must_fence) else { continue };
            if plan.members.iter().any(|m| m.uid == *uid) {
                continue;
            }
            let pod = &member.pod;
            match find_placeholder(plan, pod, view.snapshot) {
                PlaceholderSearch::Found(index) => {
                    let place = plan.placeholders.remove(index);
                    plan.members.push(PlannedMember {
                        pod: pod.key.name.clone(),
                        uid: pod.uid.clone(),
                        node: place.node,
                        gpus: place.gpus,
                    });
                    joined += 1;
                }
                PlaceholderSearch::Unfit(reason) => reasons.push(reason),
                PlaceholderSearch::NoneOfRole => {}
            }
        }
        joined
    }

    /// The reason to release all reservations. `None` while members may still be created.
    fn reservation_end_reason(
        &self,
        view: &EngineView<'_>,
        plan: &PlanRecord,
        counts: &MemberCounts,
        missing: &[MissingMember],
    ) -> Option<String> {
        if view.now > plan.deadline && self.present(plan).any(|(_, member)| member.unbound()) {
            return Some("the gang is torn".to_owned());
        }
        if missing.is_empty() {
            let whole = (self.group(view))
                .is_some_and(|group| counts.present_satisfy(&self.full_quorum(view, group)));
            return Some(if whole {
                "all members exist".to_owned()
            } else {
                "the missing members are not known any more".to_owned()
            });
        }
        let over = plan.reserved_until.is_some_and(|until| view.now > until);
        over.then(|| format!("no member was created for {}", format_seconds(view.settings.reserve_for)))
    }

    /// Message and `waitingFor` of a gang with placeholders.
    pub(in crate::engine) fn placeholder_summary(
        &self,
        view: &EngineView<'_>,
        plan: &PlanRecord,
        counts: &MemberCounts,
    ) -> (String, String) {
        let started = counts.started();
        let all = usize::try_from(started).unwrap_or(usize::MAX).saturating_add(plan.placeholders.len());
        let gated = self.present(plan).filter(|(_, member)| member.pod.gated());
        let all = all.saturating_add(gated.count());
        let message = format!(
            "{started} of {all} started, capacity reserved for {}",
            placeholders_summary(&plan.placeholders)
        );
        let missing = self.missing_members(view, counts.present_by_role()).len();
        (message, pods_to_create(missing.max(plan.placeholders.len())))
    }
}

/// A placeholder for a missing member that the planner placed. Its number differs from those of existing
/// ones.
pub(in crate::engine) fn new_placeholder(
    member: &WaitingMember,
    found: &Assignment,
    existing: &[Placeholder],
) -> Placeholder {
    Placeholder {
        number: existing.iter().map(|place| place.number.saturating_add(1)).max().unwrap_or(0),
        role: member.role.clone(),
        node: found.node.clone(),
        gpus: found.cards.clone(),
        shape: Placeholder::amounts(&member.shape),
    }
}

/// The placeholder of a plan for a new member.
enum PlaceholderSearch {
    /// The placeholder at this index fits.
    Found(usize),
    /// There are placeholders of its role, and none fits, for this reason.
    Unfit(String),
    /// The plan has no placeholder of its role.
    NoneOfRole,
}

fn find_placeholder(plan: &PlanRecord, pod: &Pod, snapshot: &Snapshot) -> PlaceholderSearch {
    let subgroup = subgroup_name(role(pod));
    let of_role = |place: &&Placeholder| subgroup_name(place.role.as_ref()) == subgroup;
    let Some(first) = plan.placeholders.iter().find(of_role) else { return PlaceholderSearch::NoneOfRole };
    let fits = |place: &Placeholder| {
        place.accommodates(&pod.shape) && node_unfit_reason(snapshot, pod, &place.node).is_none()
    };
    // An exact match before a placeholder that is too large.
    let exact = |place: &Placeholder| *place.shape == *Placeholder::amounts(&pod.shape);
    let fitting = || plan.placeholders.iter().enumerate().filter(|(_, place)| of_role(place) && fits(place));
    if let Some((index, _)) = fitting().find(|(_, place)| exact(place)).or_else(|| fitting().next()) {
        return PlaceholderSearch::Found(index);
    }
    let name = &pod.key.name;
    PlaceholderSearch::Unfit(if first.accommodates(&pod.shape) {
        let why = node_unfit_reason(snapshot, pod, &first.node);
        let why = why.unwrap_or_else(|| format!("node {} cannot take it", first.node));
        format!("{name} is planned again, alone: {why}")
    } else {
        format!("{name} requests more than is reserved for it, and is planned again, alone")
    })
}

/// Removes the placeholders on nodes that cannot keep them, and returns them.
fn remove_unusable_placeholders(
    plan: &mut PlanRecord,
    snapshot: &Snapshot,
    reasons: &mut Vec<String>,
) -> Vec<Placeholder> {
    let (kept, lost) =
        plan.placeholders.drain(..).partition(|place| match reservation_unfit_reason(snapshot, place) {
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

/// Removes the placeholders that no missing member needs, the newest ones first, and returns them.
fn remove_surplus_placeholders(plan: &mut PlanRecord, missing: &[MissingMember]) -> Vec<Placeholder> {
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for member in missing {
        *wanted.entry(subgroup_name(member.role.as_ref())).or_default() += 1;
    }
    let (kept, surplus) = plan.placeholders.drain(..).partition(|place| {
        match wanted.get_mut(subgroup_name(place.role.as_ref())) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    });
    plan.placeholders = kept;
    surplus
}

/// `3 more on node-1, node-2`.
pub(in crate::engine) fn placeholders_summary(places: &[Placeholder]) -> String {
    let mut nodes: Vec<&str> = places.iter().map(|place| place.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let more = nodes.len().saturating_sub(MAX_NAMED_NODES);
    nodes.truncate(MAX_NAMED_NODES);
    let more = if more > 0 { format!(" and {more} other nodes") } else { String::new() };
    format!("{} more on {}{more}", places.len(), nodes.join(", "))
}

/// `3 more pods to be made`: `waitingFor` of a gang whose members are created later.
pub(in crate::engine) fn pods_to_create(missing: usize) -> String {
    format!("{missing} more {} to be made", if missing == 1 { "pod" } else { "pods" })
}
