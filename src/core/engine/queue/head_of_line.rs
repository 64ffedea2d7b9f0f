//! The head-of-line reservation: capacity for a large gang, so that smaller gangs that arrive later do not
//! starve it.
//!
//! Smaller gangs may pass a larger one that does not fit, because idle capacity helps no gang. But each of
//! them takes capacity that others free, and the large one may never see enough at once. So after
//! [`crate::engine::EngineSettings::hold_after`] the first gang in the queue that has waited that long gets
//! assignments, on a copy of the snapshot without as few pods as possible. From then on, a gang behind it is
//! planned with these assignments charged in addition to everything that exists. A gang before it (higher
//! priority, or a member of a started gang) is not affected.
//!
//! Why the holder starts: let a node have `has`, the holder want `want` of it, and all others use `used`. No
//! gang behind the holder gets any of that node unless `used + want <= has` holds afterwards. So `used` only
//! shrinks as pods end until that holds, and then it keeps holding. When all blocking pods have ended, it
//! holds on all nodes of the reservation, and the planner, which is asked whenever a pod ends, finds at least
//! these assignments. The same is true of each card. The assignments are chosen again when the gang or one of
//! its nodes changes, and from time to time if strictly fewer pods block them; that happens only a bounded
//! number of times. A gang that does not fit into a cluster in which only node-bound pods (pods of
//! DaemonSets and static pods) run gets no reservation. Only one gang has a reservation: the next one is
//! older than all that arrive later, so its turn comes.
//!
//! The reservation is not durable. It promises nothing; it only makes others wait. `minResources` is not
//! reserved: it is a sum and names no node.
//!
//! The engine cannot know of pods that never end, and it does not control pods without a gang. A gang whose
//! start timeout is over goes to the back of its priority, and another one gets the reservation.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::queue::{QueueRank, RequestSignature};
use crate::model::{GangId, NodeName, PodUid, Reason, Time};
use crate::planner::{self, Explanation, Plan, PlanningReport, PlanningRequest};
use crate::shape::PodTerm;
use crate::snapshot::{CardAllocation, Charge, ChargeState, Snapshot};

/// Minimum interval between searches for assignments with fewer blocking pods.
const REASSIGN_INTERVAL: Duration = Duration::from_secs(30);

/// The assignments of the holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct HeadOfLineReservation {
    /// The holder.
    pub gang: GangId,
    /// The signature of the holder when the assignments were chosen.
    signature: Arc<RequestSignature>,
    /// Charges under UIDs that no pod has.
    assignments: Vec<(PodUid, Charge)>,
    chosen: Time,
    /// A node of the reservation has changed since the choice.
    is_unreliable: bool,
}

impl HeadOfLineReservation {
    /// Charges the assignments in addition to what exists.
    fn charge(&self, snapshot: &mut Snapshot) {
        for (uid, charge) in &self.assignments {
            snapshot.charge(uid, charge.clone());
        }
    }

    fn release(&self, snapshot: &mut Snapshot) {
        for (uid, _) in &self.assignments {
            snapshot.release(uid);
        }
    }

    /// What is charged while others are planned, under UIDs that no pod has.
    pub(super) fn charges(&self) -> &[(PodUid, Charge)] {
        &self.assignments
    }

    /// The number of pods on nodes of the reservation without enough free capacity.
    fn blocking_pods(&self, snapshot: &Snapshot) -> usize {
        let mut with = snapshot.clone();
        self.charge(&mut with);
        let mut nodes: Vec<&NodeName> = self.assignments.iter().map(|(_, charge)| &charge.node).collect();
        nodes.sort();
        nodes.dedup();
        let full = nodes.into_iter().filter(|node| with.overbooked(node).is_some());
        full.map(|node| snapshot.charged_to(node).count()).sum()
    }
}

impl Engine {
    /// Notes that a node or a node-bound pod has changed: infeasible requests may fit now, and the
    /// reservation may not any more.
    pub(in crate::engine) fn invalidate_head_of_line(&mut self, node: &NodeName) {
        self.infeasible_signatures.clear();
        if let Some(reservation) = &mut self.head_of_line {
            reservation.is_unreliable |=
                reservation.assignments.iter().any(|(_, charge)| charge.node == *node);
        }
    }

    /// The reservation of another gang that stands before this rank.
    pub(in crate::engine) fn head_of_line_before(&self, rank: &QueueRank) -> Option<&HeadOfLineReservation> {
        let reservation = self.head_of_line.as_ref()?;
        let first = self.gangs.get(&reservation.gang)?.queueing.rank.as_ref()?;
        (first < rank).then_some(reservation)
    }

    /// Updates the reservation for the first gang that has waited too long. Returns true if others may have
    /// more capacity than before.
    pub(in crate::engine) fn renew_head_of_line(&mut self, grown: bool, now: Time) -> bool {
        let before = self.head_of_line.take();
        self.head_of_line = self.find_head_of_line(before.as_ref(), grown, now);
        match (&before, &self.head_of_line) {
            (None, _) => false,
            (Some(before), Some(after)) => before.assignments != after.assignments,
            (Some(_), None) => true,
        }
    }

    fn find_head_of_line(
        &mut self,
        before: Option<&HeadOfLineReservation>,
        grown: bool,
        now: Time,
    ) -> Option<HeadOfLineReservation> {
        if self.settings.hold_after.is_zero() {
            return None;
        }
        let mut from = Bound::Unbounded;
        while let Some((rank, signature)) = self.next_starved(from, now) {
            from = Bound::Excluded(rank.clone());
            let known = before.filter(|reservation| {
                reservation.gang == rank.gang
                    && *reservation.signature == *signature
                    && !reservation.is_unreliable
            });
            let look =
                grown && known.is_some_and(|reservation| now.since(reservation.chosen) >= REASSIGN_INTERVAL);
            if let Some(known) = known.filter(|_| !look) {
                return Some(known.clone());
            }
            let Some(gang) = self.expect_gang(&rank.gang) else { continue };
            let Some((_, request)) = gang.planning_request(&self.view(now)) else { continue };
            let Some(assignments) =
                choose_assignments(&self.snapshot, &request, |uid| self.gang_by_pod.contains_key(uid))
            else {
                self.infeasible_signatures.insert(signature);
                continue;
            };
            let chosen = HeadOfLineReservation {
                gang: rank.gang,
                signature,
                assignments,
                chosen: now,
                is_unreliable: false,
            };
            return Some(match known {
                Some(known)
                    if known.blocking_pods(&self.snapshot) <= chosen.blocking_pods(&self.snapshot) =>
                {
                    HeadOfLineReservation { chosen: now, ..known.clone() }
                }
                _ => chosen,
            });
        }
        None
    }

    /// The next gang in the queue without started members that has waited too long and fits into an empty
    /// cluster.
    fn next_starved(
        &self,
        mut from: Bound<QueueRank>,
        now: Time,
    ) -> Option<(QueueRank, Arc<RequestSignature>)> {
        loop {
            let (rank, signature) = self.queue.after(&from)?;
            let long = |since: Time| now.since(since) >= self.settings.hold_after;
            from = if long(rank.since) {
                let gang = self.gangs.get(&rank.gang);
                let waits = || gang.and_then(|gang| gang.complete_since(&self.view(now))).is_some_and(long);
                if !self.infeasible_signatures.contains(signature) && waits() {
                    return Some((rank.clone(), signature.clone()));
                }
                Bound::Excluded(rank.clone())
            } else {
                // All further gangs of this priority are younger.
                Bound::Excluded(QueueRank { since: Time(u64::MAX), ..rank.clone() })
            };
        }
    }

    /// Plans a gang with the reservation charged.
    pub(in crate::engine) fn plan_beside_head_of_line(
        &mut self,
        reservation: &HeadOfLineReservation,
        request: &PlanningRequest,
    ) -> (Plan, PlanningReport) {
        let grown = self.snapshot.take_grown();
        let pods_changed = self.snapshot.take_pods_changed();
        reservation.charge(&mut self.snapshot);
        let planned = planner::plan(&self.snapshot, std::slice::from_ref(request));
        reservation.release(&mut self.snapshot);
        // Removing the temporary charges is no growth of capacity.
        self.snapshot.take_grown();
        self.snapshot.take_pods_changed();
        if grown {
            self.capacity_grew = true;
            self.plan_needed = true;
        }
        if pods_changed && self.queue.has_pod_rules() {
            self.other_pods_changed = true;
            self.plan_needed = true;
        }
        planned
    }

    /// Why a gang waits although there is capacity for it.
    pub(in crate::engine) fn explain_head_of_line_wait(
        &self,
        reservation: &HeadOfLineReservation,
        members: usize,
        now: Time,
    ) -> Explanation {
        let gang = &reservation.gang;
        let since = self.gangs.get(gang).and_then(|holder| holder.complete_since(&self.view(now)));
        let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
        let nodes = self.snapshot.node_names().count();
        let are = portcullis_text::counted(members, "member", "members");
        Explanation {
            reason: Reason::HeadOfLineReservation,
            message: format!(
                "there is capacity for {are}, but it is reserved for gang {gang}, which is ahead in the queue and has waited{since}"
            ),
            waiting_for: format!("gang {gang} to start"),
            remedy: Some(format!("wait until gang {gang} has started or is deleted, or raise the priority")),
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            infeasible_nodes: std::collections::BTreeMap::new(),
        }
    }
}

/// Assignments for a gang that need few nodes to be emptied. Pods of gangs are removed first, because they
/// are more likely to end. Node-bound pods stay, and so do pods that a required pod affinity of the gang
/// selects. `None` if the gang does not fit beside those.
fn choose_assignments(
    snapshot: &Snapshot,
    request: &PlanningRequest,
    ends: impl Fn(&PodUid) -> bool,
) -> Option<Vec<(PodUid, Charge)>> {
    let mut nodes: Vec<(usize, &NodeName)> =
        snapshot.node_names().map(|name| (snapshot.charged_to(name).count(), name)).collect();
    nodes.sort();
    let rules = request.members.iter().filter_map(|member| member.shape.pod_rules.as_ref());
    let affinity: BTreeSet<&PodTerm> = rules.flat_map(|rules| &rules.affinity).map(|term| &**term).collect();
    let is_needed = |charge: &Charge| {
        let namespace = charge.labels.namespace();
        let matches = |term: &&PodTerm| {
            term.matches_for_owner(&charge.labels, |key| snapshot.namespace_label(namespace, key))
        };
        affinity.iter().any(matches)
    };
    let attempt = |emptied: usize, all: bool| {
        let mut emptied_snapshot = snapshot.clone();
        // A refusal does not last.
        emptied_snapshot.forget_refusals();
        for (_, name) in &nodes[..emptied] {
            let charges = snapshot.charged_to(name);
            let ending =
                charges.filter(|(_, charge)| charge.state != ChargeState::NodeBound && !is_needed(charge));
            for (uid, _) in ending.filter(|(uid, _)| all || ends(uid)) {
                emptied_snapshot.release(uid);
            }
        }
        planner::plan(&emptied_snapshot, std::slice::from_ref(request)).0.gangs.pop()
    };
    let (all, mut found) =
        [false, true].into_iter().find_map(|all| Some((all, attempt(nodes.len(), all)?)))?;
    // With more nodes emptied a gang without pod rules fits all the more: binary search finds the smallest
    // number. For a gang with pod rules it finds a number with which the gang fits.
    let (mut least, mut most) = (0, nodes.len());
    while least < most {
        let middle = least + (most - least) / 2;
        match attempt(middle, all) {
            Some(planned) => (most, found) = (middle, planned),
            None => least = middle + 1,
        }
    }
    let member_of = |uid: &PodUid| request.members.iter().find(|m| m.uid == *uid);
    let places = found.assignments.into_iter().filter_map(|place| {
        let member = member_of(&place.uid)?;
        let shape = member.shape.clone();
        let cards =
            if shape.share.is_some() { CardAllocation::Known(place.cards) } else { CardAllocation::Unshared };
        let charge = Charge {
            key: Some(place.key),
            node: place.node,
            labels: member.labels.clone(),
            terminating: false,
            shape,
            cards,
            state: ChargeState::Reserved,
        };
        Some((PodUid::from(&*format!("held/{}", place.uid)), charge))
    });
    Some(places.collect())
}
