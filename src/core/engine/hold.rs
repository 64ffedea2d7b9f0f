//! Room that is held for a large gang, so that smaller ones that come later cannot starve it.
//!
//! Smaller gangs may pass a larger one that does not fit: idle room helps nobody. But each of them takes what ends, and
//! the large one may never see enough of it at once. So after [`super::EngineSettings::hold_after`] the first gang of the queue
//! that has waited for so long gets places: on a copy of the snapshot from which as few pods as possible are thought away.
//! From then on whoever stands behind it in the queue is planned only where the holder's places stay what they are: with
//! them charged beside everything that is there. Whoever stands before it (a higher priority, a member of a started gang)
//! is not concerned.
//!
//! Why it starts: let a node have `has`, the holder want `want` of it at its places, and everybody else use `used`. Nobody
//! behind it is given any of that node unless `used + want <= has` holds afterwards, so while that does not hold `used`
//! only shrinks as pods end, and once it holds it goes on to hold. When all pods that stand in its way have ended it holds
//! on all its nodes, and the planner, which is asked whenever something has ended, finds at least these places. The same
//! is true of each card. Places are chosen again when the gang or one of its nodes has changed, and now and then where
//! strictly fewer pods stand in the way; that can happen only so many times. A gang that would not fit into an empty
//! cluster holds nothing. Only one gang holds at a time: the next in line is older than all that come later, so its turn
//! comes.
//!
//! What a group wants free in all beyond its members (`minResources`) is not held: it is a sum and no place.
//!
//! What it cannot know: pods that never end, and pods of nobody's gang, which a scheduler places as it likes. A gang whose
//! own timeout is over goes to the back of its priority, and another one holds.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::queue::{Likeness, Rank};
use crate::model::{GangId, NodeName, PodUid, Reason, Time};
use crate::planner::{self, Explanation, Plan, PlanningReport, PlanningRequest};
use crate::snapshot::{CardAllocation, Charge, ChargeState as Why, Snapshot};

/// How often it is looked for places with less in their way.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The places that are held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hold {
    /// For whom.
    pub gang: GangId,
    /// What it looked like when they were chosen.
    likeness: Arc<Likeness>,
    /// Under names that no pod has.
    places: Vec<(PodUid, Charge)>,
    chosen: Time,
    /// One of the nodes has changed.
    doubtful: bool,
}

impl Hold {
    /// Charges the places beside what is there.
    pub(super) fn charge(&self, snapshot: &mut Snapshot) {
        for (uid, charge) in &self.places {
            snapshot.charge(uid, charge.clone());
        }
    }

    fn release(&self, snapshot: &mut Snapshot) {
        for (uid, _) in &self.places {
            snapshot.release(uid);
        }
    }

    /// How many pods are on nodes on which there is no room for it yet.
    fn in_the_way(&self, snapshot: &Snapshot) -> usize {
        let mut with = snapshot.clone();
        self.charge(&mut with);
        let mut nodes: Vec<&NodeName> = self.places.iter().map(|(_, charge)| &charge.node).collect();
        nodes.sort();
        nodes.dedup();
        let full = nodes.into_iter().filter(|node| with.overbooked(node).is_some());
        full.map(|node| snapshot.charged_to(node).count()).sum()
    }
}

impl Engine {
    /// A node has changed: what could not be placed on any may be now, and places on it may be none any more.
    pub(super) fn doubt_hold(&mut self, node: &NodeName) {
        self.unholdable.clear();
        if let Some(hold) = &mut self.hold {
            hold.doubtful |= hold.places.iter().any(|(_, charge)| charge.node == *node);
        }
    }

    /// Whether the places of another gang are held before a gang of this rank.
    pub(super) fn held_before(&self, rank: &Rank) -> Option<&Hold> {
        let hold = self.hold.as_ref()?;
        let first = self.gangs.get(&hold.gang)?.rank.as_ref()?;
        (first < rank).then_some(hold)
    }

    /// Sees to it that the first gang that has waited for too long has its places held. True when others may have more
    /// room than before.
    pub(super) fn renew_hold(&mut self, grown: bool, now: Time) -> bool {
        let before = self.hold.take();
        self.hold = self.find_hold(before.as_ref(), grown, now);
        match (&before, &self.hold) {
            (None, _) => false,
            (Some(before), Some(after)) => before.places != after.places,
            (Some(_), None) => true,
        }
    }

    fn find_hold(&mut self, before: Option<&Hold>, grown: bool, now: Time) -> Option<Hold> {
        if self.settings.hold_after.is_zero() {
            return None;
        }
        let mut from = Bound::Unbounded;
        while let Some((rank, likeness)) = self.next_overdue(from, now) {
            from = Bound::Excluded(rank.clone());
            let known =
                before.filter(|hold| hold.gang == rank.3 && *hold.likeness == *likeness && !hold.doubtful);
            let look = grown && known.is_some_and(|hold| now.since(hold.chosen) >= LOOK_AGAIN);
            if let Some(known) = known.filter(|_| !look) {
                return Some(known.clone());
            }
            let Some((_, request)) = self.planning_request(&rank.3) else { continue };
            let Some(places) = choose(&self.snapshot, &request, |uid| self.members.contains_key(uid)) else {
                self.unholdable.insert(likeness);
                continue;
            };
            let chosen = Hold { gang: rank.3, likeness, places, chosen: now, doubtful: false };
            return Some(match known {
                Some(known) if known.in_the_way(&self.snapshot) <= chosen.in_the_way(&self.snapshot) => {
                    Hold { chosen: now, ..known.clone() }
                }
                _ => chosen,
            });
        }
        None
    }

    /// The next gang of the queue that nothing of has started and that has waited for too long.
    fn next_overdue(&self, mut from: Bound<Rank>, now: Time) -> Option<(Rank, Arc<Likeness>)> {
        loop {
            let (rank, likeness) = self.queue.after(&from)?;
            let long = |since: Time| now.since(since) >= self.settings.hold_after;
            from = if long(rank.2) {
                let waits = || self.complete_since(&rank.3).is_some_and(long);
                if !self.unholdable.contains(likeness) && waits() {
                    return Some((rank.clone(), likeness.clone()));
                }
                Bound::Excluded(rank.clone())
            } else {
                // All others of its priority have come later.
                Bound::Excluded((rank.0, rank.1, Time(u64::MAX), rank.3.clone()))
            };
        }
    }

    /// Plans a gang beside what is held.
    pub(super) fn plan_beside(&mut self, hold: &Hold, request: &PlanningRequest) -> (Plan, PlanningReport) {
        let grown = self.snapshot.take_grown();
        hold.charge(&mut self.snapshot);
        let planned = planner::plan(&self.snapshot, std::slice::from_ref(request));
        hold.release(&mut self.snapshot);
        // That nothing is held any more is no news.
        self.snapshot.take_grown();
        if grown {
            self.grown = true;
            self.replan = true;
        }
        planned
    }

    /// Why a gang waits although there is room for it.
    pub(super) fn held_for(&self, hold: &Hold, members: usize) -> Explanation {
        let gang = &hold.gang;
        let since = self.complete_since(gang).map(|since| format!(" since {since}")).unwrap_or_default();
        let nodes = self.snapshot.node_names().count();
        let are = if members == 1 { "1 member".to_owned() } else { format!("{members} members") };
        Explanation {
            reason: Reason::RoomHeld,
            message: format!(
                "there is room for {are}, and it is held for gang {gang}, which stands before it and has waited{since}"
            ),
            waiting_for: format!("gang {gang} to start"),
            remedy: Some(format!("when gang {gang} has started or is deleted, or with a higher priority")),
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            infeasible_nodes: std::collections::BTreeMap::new(),
        }
    }
}

/// Places for a gang where the fewest nodes have to be emptied: pods of gangs first, which are more likely to end. `None`
/// where it would not fit into an empty cluster.
fn choose(
    snapshot: &Snapshot,
    request: &PlanningRequest,
    ends: impl Fn(&PodUid) -> bool,
) -> Option<Vec<(PodUid, Charge)>> {
    let mut nodes: Vec<(usize, &NodeName)> =
        snapshot.node_names().map(|name| (snapshot.charged_to(name).count(), name)).collect();
    nodes.sort();
    let attempt = |emptied: usize, all: bool| {
        let mut thought = snapshot.clone();
        for (_, name) in &nodes[..emptied] {
            for (uid, _) in snapshot.charged_to(name).filter(|(uid, _)| all || ends(uid)) {
                thought.release(uid);
            }
        }
        planner::plan(&thought, std::slice::from_ref(request)).0.gangs.pop()
    };
    let (all, mut found) =
        [false, true].into_iter().find_map(|all| Some((all, attempt(nodes.len(), all)?)))?;
    // With more nodes emptied it fits all the more: the least number is found by halving.
    let (mut least, mut most) = (0, nodes.len());
    while least < most {
        let middle = least + (most - least) / 2;
        match attempt(middle, all) {
            Some(planned) => (most, found) = (middle, planned),
            None => least = middle + 1,
        }
    }
    let shape_of = |uid: &PodUid| request.members.iter().find(|m| m.uid == *uid).map(|m| m.shape.clone());
    let places = found.assignments.into_iter().filter_map(|place| {
        let shape = shape_of(&place.uid)?;
        let cards =
            if shape.share.is_some() { CardAllocation::Known(place.cards) } else { CardAllocation::Unshared };
        let charge = Charge { key: Some(place.key), node: place.node, shape, cards, state: Why::Reserved };
        Some((PodUid::from(&*format!("held/{}", place.uid)), charge))
    });
    Some(places.collect())
}
