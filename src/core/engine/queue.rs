//! Who is planned, in which order, and who need not be.
//!
//! Most gangs of a long queue are alike, and most events free nothing. So gangs that ask for the same stand together, and
//! a gang that did not fit is not asked about again until something has been freed or the gang itself has changed: what
//! is given away can only make it fit less. The plans are those of asking every gang at every turn (see the test).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::state::{Progress, Waiting};
use super::types::{PlanRecord, PlannedMember};
use super::{Engine, Step};
use crate::dialect::Quorum;
use crate::model::{GangId, Reason, Resources, Str, Time};
use crate::planner::{self, PlannedGang, PlanningOutcome, PlanningRequest, WaitingMember};
use crate::shape::Shape;
#[cfg(debug_assertions)]
use crate::snapshot::{CardAllocation, Charge, ChargeState};

/// The place of a gang in the queue: those of which something has started first, then by priority, then by age.
pub(super) type Rank = (bool, Reverse<i32>, Time, GangId);

/// How often a waiting gang is told anew how far it is, at the most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// However long the queue is, no more than twenty of them each second.
const LOOK_AGAIN_EACH: Duration = Duration::from_millis(50);

/// How long a queue may be for debug builds to compare each round of planning with the round without the shortcut.
#[cfg(debug_assertions)]
const LONGEST_CHECKED: usize = 64;

/// Everything about a gang that decides whether it fits; gangs of which all of this is equal fit or do not fit alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Likeness {
    /// Role and shape of each waiting member, sorted.
    members: Vec<(Option<Str>, Arc<Shape>)>,
    quorum: Quorum,
    active: BTreeMap<Option<Str>, u32>,
    minimum: Resources,
    together: Option<Str>,
}

impl Likeness {
    fn of(request: &PlanningRequest) -> Self {
        let mut members: Vec<_> = request.members.iter().map(|m| (m.role.clone(), m.shape.clone())).collect();
        members.sort();
        let (quorum, active) = (request.quorum.clone(), request.active.clone());
        Self {
            members,
            quorum,
            active,
            minimum: request.min_resources.clone(),
            together: request.topology_key.clone(),
        }
    }
}

/// The complete gangs that have no plan under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    ranks: BTreeMap<Rank, Arc<Likeness>>,
    /// The same by likeness; no empty sets.
    alike: BTreeMap<Arc<Likeness>, BTreeSet<Rank>>,
}

impl Queue {
    fn insert(&mut self, rank: Rank, likeness: Likeness) {
        let likeness = match self.alike.get_key_value(&likeness) {
            Some((known, _)) => known.clone(),
            None => Arc::new(likeness),
        };
        self.alike.entry(likeness.clone()).or_default().insert(rank.clone());
        self.ranks.insert(rank, likeness);
    }

    fn remove(&mut self, rank: &Rank) {
        let Some(likeness) = self.ranks.remove(rank) else { return };
        if let Some(ranks) = self.alike.get_mut(&likeness) {
            ranks.remove(rank);
            if ranks.is_empty() {
                self.alike.remove(&likeness);
            }
        }
    }

    /// Place of a gang, from 1.
    pub(super) fn position(&self, rank: &Rank) -> u32 {
        u32::try_from(self.ranks.range(..=rank).count()).unwrap_or(u32::MAX)
    }

    /// After how long a waiting gang is looked at again, to tell it how far it is.
    pub(super) fn look_again(&self) -> Duration {
        let waiting = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        LOOK_AGAIN.max(LOOK_AGAIN_EACH.saturating_mul(waiting))
    }

    /// Whether not everybody can be told at once how far it is.
    fn is_long(&self) -> bool {
        self.look_again() > LOOK_AGAIN
    }

    /// The next in line.
    pub(super) fn after(&self, from: &Bound<Rank>) -> Option<(&Rank, &Arc<Likeness>)> {
        self.ranks.range((from.as_ref(), Bound::Unbounded)).next()
    }

    /// The next of those that are alike.
    fn next_alike(&self, likeness: &Likeness, after: &Rank) -> Option<Rank> {
        let ranks = self.alike.get(likeness)?;
        ranks.range((Bound::Excluded(after), Bound::Unbounded)).next().cloned()
    }
}

impl Engine {
    /// Whether this gang can be planned, or where it stands, may have changed.
    pub(super) fn look_at(&mut self, id: &GangId) {
        if !self.fresh.contains(id) {
            self.fresh.insert(id.clone());
        }
        self.replan = true;
    }

    /// Takes a gang out of the queue.
    pub(super) fn dequeue(&mut self, id: &GangId) {
        if let Some(rank) = self.gangs.get_mut(id).and_then(|gang| gang.rank.take()) {
            self.queue.remove(&rank);
        }
    }

    fn enqueue(&mut self, id: &GangId) {
        self.dequeue(id);
        let Some((rank, request)) = self.planning_request(id) else { return };
        self.queue.insert(rank.clone(), Likeness::of(&request));
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.rank = Some(rank);
        }
    }

    /// Plans every complete gang that has no plan under way and may fit, in queue order.
    pub(super) fn plan_queue(&mut self, step: &mut Step) {
        let grown = std::mem::take(&mut self.grown) || self.snapshot.take_grown();
        let fresh = std::mem::take(&mut self.fresh);
        for id in &fresh {
            self.enqueue(id);
        }
        let mut grown = self.renew_hold(grown, step.now) || grown;
        #[cfg(debug_assertions)]
        let expected = self.plan_without_shortcut();
        let mut agenda: BTreeSet<Rank> =
            fresh.iter().filter_map(|id| self.gangs.get(id)?.rank.clone()).collect();
        if grown {
            agenda.extend(self.queue.alike.values().filter_map(|ranks| ranks.first().cloned()));
        }
        let mut full: BTreeSet<Arc<Likeness>> = BTreeSet::new();
        while let Some(rank) = agenda.pop_first() {
            let Some(likeness) = self.queue.ranks.get(&rank).cloned() else { continue };
            let id = &rank.3;
            // One that is new is asked about in any case, so that it learns what it waits for.
            if full.contains(&likeness) && !fresh.contains(id) {
                continue;
            }
            // In a long queue, one that has heard why it waits, and still does, hears it anew when it is looked at by
            // itself: explaining takes several times as long as finding out.
            if self.queue.is_long() && !fresh.contains(id) && self.still_hopeless(id) {
                full.insert(likeness);
                continue;
            }
            let held = self.hold.is_some();
            let fits = self.plan_one(&rank, step);
            if held && self.hold.is_none() {
                // What was held is anybody's.
                grown = true;
                full.clear();
                agenda.extend(self.queue.alike.keys().filter_map(|l| self.queue.next_alike(l, &rank)));
            }
            match fits {
                Fits::No => {
                    full.insert(likeness);
                }
                Fits::Yes | Fits::Unsure if grown => agenda.extend(self.queue.next_alike(&likeness, &rank)),
                Fits::Yes | Fits::Unsure => {}
            }
            if fits == Fits::Unsure {
                // The next time something is planned it may be luckier.
                self.fresh.insert(rank.3);
            }
        }
        #[cfg(debug_assertions)]
        if let Some(expected) = expected {
            self.assert_planned(expected);
        }
    }

    /// What asking every gang comes to; `None` where the queue is long, or a test has taken a rule away.
    #[cfg(debug_assertions)]
    fn plan_without_shortcut(&self) -> Option<planner::Plan> {
        if self.gangs.len() > LONGEST_CHECKED || !self.settings.keeps(super::SafetyRule::Reserve) {
            return None;
        }
        let mut queue: Vec<_> = self.gangs.keys().filter_map(|id| self.planning_request(id)).collect();
        queue.sort_by(|(a, _), (b, _)| a.cmp(b));
        let queued: Vec<&Rank> = self.queue.ranks.keys().collect();
        assert_eq!(queue.iter().map(|(rank, _)| rank).collect::<Vec<_>>(), queued, "the queue is up to date");
        let sure = |report: &planner::PlanningReport| {
            report.outcomes.values().all(
                |verdict| !matches!(verdict, PlanningOutcome::Waiting(why) if why.reason == Reason::SearchExhausted),
            )
        };
        if self.hold.is_some() {
            return self.plan_beside_hold(&queue, sure);
        }
        let requests: Vec<PlanningRequest> = queue.into_iter().map(|(_, request)| request).collect();
        let (plan, report) = planner::plan(&self.snapshot, &requests);
        sure(&report).then_some(plan)
    }

    /// The same where room is held: one after the other, and those behind the holder beside its places.
    #[cfg(debug_assertions)]
    fn plan_beside_hold(
        &self,
        queue: &[(Rank, PlanningRequest)],
        sure: impl Fn(&planner::PlanningReport) -> bool,
    ) -> Option<planner::Plan> {
        let mut hold = self.hold.as_ref();
        let mut snapshot = self.snapshot.clone();
        let mut expected = planner::Plan::default();
        for (rank, request) in queue {
            let one = std::slice::from_ref(request);
            let (mut plan, mut report) = planner::plan(&snapshot, one);
            if let Some(hold) = hold.filter(|_| self.held_before(rank).is_some() && !plan.gangs.is_empty()) {
                let mut beside = snapshot.clone();
                hold.charge(&mut beside);
                (plan, report) = planner::plan(&beside, one);
            }
            if !sure(&report) {
                return None;
            }
            hold = hold.filter(|hold| hold.gang != request.gang || plan.gangs.is_empty());
            for place in plan.gangs.iter().flat_map(|gang| &gang.assignments) {
                let member = request.members.iter().find(|m| m.uid == place.uid)?;
                let shared = member.shape.share.is_some();
                let cards = if shared {
                    CardAllocation::Known(place.cards.clone())
                } else {
                    CardAllocation::Unshared
                };
                let (key, node, shape) = (Some(place.key.clone()), place.node.clone(), member.shape.clone());
                snapshot.charge(&place.uid, Charge { key, node, shape, cards, state: ChargeState::Reserved });
            }
            expected.gangs.extend(plan.gangs);
        }
        Some(expected)
    }

    #[cfg(debug_assertions)]
    fn assert_planned(&self, expected: planner::Plan) {
        for mut planned in expected.gangs {
            let progress = self.gangs.get(&planned.gang).map(|gang| &gang.progress);
            let Some(Progress::Recording(plan)) = progress else {
                // Where a test takes the order of the record away.
                if matches!(progress, Some(Progress::Recorded(_))) {
                    continue;
                }
                panic!("{} fits and was not planned: {progress:?}", planned.gang);
            };
            let to_come = plan.placeholders.iter().map(|place| (&place.node, &place.gpus));
            let is_pod = |place: &planner::Assignment| self.members.contains_key(&place.uid);
            let places = planned.assignments.extract_if(.., |place| !is_pod(place)).collect::<Vec<_>>();
            let expected: Vec<_> = places.iter().map(|place| (&place.node, &place.cards)).collect();
            let news = plan.placeholders.len().saturating_sub(expected.len());
            assert_eq!(to_come.skip(news).collect::<Vec<_>>(), expected, "where those to come go");
            for place in planned.assignments {
                let found = plan.members.iter().find(|m| m.uid == place.uid);
                let found = found.map(|m| (&m.node, &m.gpus));
                assert_eq!(found, Some((&place.node, &place.cards)), "where {} goes", place.key);
            }
        }
    }

    fn still_hopeless(&self, id: &GangId) -> bool {
        let told = self.gangs.get(id).is_some_and(|gang| gang.verdict.is_some());
        told && self
            .planning_request(id)
            .is_some_and(|(_, request)| planner::is_unschedulable(&self.snapshot, &request))
    }

    /// Plans one gang of the queue.
    fn plan_one(&mut self, rank: &Rank, step: &mut Step) -> Fits {
        let id = &rank.3;
        let Some((_, request)) = self.planning_request(id) else { return Fits::No };
        let (mut plan, mut report) = planner::plan(&self.snapshot, std::slice::from_ref(&request));
        let room = plan.gangs.first().map(|planned| planned.assignments.len());
        if let (Some(room), Some(hold)) = (room, self.held_before(rank).cloned()) {
            (plan, report) = self.plan_beside(&hold, &request);
            if let Some(PlanningOutcome::Waiting(why)) = report.outcomes.get_mut(id)
                && why.reason != Reason::SearchExhausted
            {
                *why = self.held_for(&hold, room);
            }
        }
        let placed = plan.gangs.into_iter().next();
        let fits = placed.is_some();
        if let Some(placed) = placed {
            self.take_up(placed, &request, step);
        }
        let explanation = match report.outcomes.remove(id) {
            Some(PlanningOutcome::Waiting(explanation)) => Some(explanation),
            Some(PlanningOutcome::Placed { unplaced, .. }) => unplaced,
            None => None,
        };
        let unsure = explanation.as_ref().is_some_and(|why| why.reason == Reason::SearchExhausted);
        let verdict = explanation.map(|explanation| Waiting { explanation });
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.looked = Some(step.now);
            if gang.verdict != verdict {
                gang.verdict = verdict;
            }
            // Also where it waits for the same: its place in the queue may be another.
            step.touch(id);
        }
        match (fits, unsure) {
            (true, _) => Fits::Yes,
            (false, true) => Fits::Unsure,
            (false, false) => Fits::No,
        }
    }

    fn take_up(&mut self, planned: PlannedGang, request: &PlanningRequest, step: &mut Step) {
        self.dequeue(&planned.gang);
        self.hold = self.hold.take().filter(|hold| hold.gang != planned.gang);
        // What an earlier plan has lifted and is not bound yet keeps its place under the new one.
        let underway = (self.gangs.get(&planned.gang).and_then(|g| g.progress.plan()).into_iter())
            .flat_map(|plan| &plan.members)
            .filter(|m| self.members.get(&m.uid).is_some_and(|m| m.unbound()));
        let mut members: Vec<PlannedMember> = underway.cloned().collect();
        // And so does the room that is held for those who are still to come.
        let mut to_come = self.held_places(&planned.gang);
        for place in planned.assignments {
            if self.members.contains_key(&place.uid) {
                let (pod, uid) = (place.key.name, place.uid);
                members.push(PlannedMember { pod, uid, node: place.node, gpus: place.cards });
            } else if let Some(member) = request.members.iter().find(|m| m.uid == place.uid) {
                to_come.push(self.place_for(member, &place, &to_come));
            }
        }
        let reserved_until = (!to_come.is_empty()).then(|| step.now.after(self.settings.reserve_for));
        let record = PlanRecord {
            epoch: step.epoch,
            deadline: step.now.after(self.settings.bind_timeout),
            members,
            placeholders: to_come,
            reserved_until,
            released: 0,
        };
        self.decide(&planned.gang, record);
    }

    /// What to ask the planner for a gang; `None` when it is not complete, wants nothing, or is being lifted.
    pub(super) fn planning_request(&self, id: &GangId) -> Option<(Rank, PlanningRequest)> {
        let gang = self.gangs.get(id)?;
        let free = match &gang.progress {
            Progress::Undecided => true,
            Progress::Recorded(plan) => {
                plan.members.iter().all(|m| self.members.get(&m.uid).is_none_or(|m| !m.pod.gated()))
            }
            Progress::Recording(_) | Progress::Dropping(..) => false,
        };
        let group = self.group(id)?;
        let mut census = self.census(id);
        let settled = !census.ready.iter().any(|uid| self.members.get(uid).is_some_and(|m| m.must_fence));
        if !free
            || !settled
            || !gang.expired.is_empty()
            || census.ready.is_empty()
            || !self.owners_settled(id, &census)
        {
            return None;
        }
        // Whoever is to come and has a place counts like those that have started.
        let mut counted = census.active.clone();
        for place in self.held_places(id) {
            *counted.entry(place.role).or_default() += 1;
        }
        let alone = self.alone(id, &census);
        let (quorum, coming) = if alone.is_empty() {
            let mut here = counted.clone();
            for pod in census.ready.iter().filter_map(|uid| self.members.get(uid)) {
                *here.entry(super::gather::role(&pod.pod).cloned()).or_default() += 1;
            }
            let coming = self.to_come(id, here.clone());
            if coming.is_empty() && !group.quorum.is_satisfied(&here) {
                return None;
            }
            let quorum = if coming.is_empty() {
                group.quorum.without_launcher(&here)
            } else {
                self.whole_quorum(id, group)
            };
            (quorum, coming)
        } else {
            census.ready = alone;
            (Quorum::Count(0), Vec::new())
        };
        let ready = || census.ready.iter().filter_map(|uid| self.members.get(uid)).map(|m| &m.pod);
        let class =
            group.priority_class.as_ref().and_then(|class| self.priority_classes.as_ref()?.get(class));
        let priority = class.copied().or_else(|| ready().map(|pod| pod.priority).max()).unwrap_or(0);
        let created = ready().map(|pod| pod.created).min().unwrap_or_default();
        let age = gang.lapse.and_then(|lapse| lapse.at).unwrap_or(created);
        // What it takes to make a started gang whole again, and what it wants beyond that, goes first.
        let started = census.started() > 0;
        let members = ready().map(|pod| WaitingMember {
            uid: pod.uid.clone(),
            key: pod.key.clone(),
            role: pod.membership.as_ref().and_then(|m| m.role.clone()),
            shape: pod.shape.clone(),
        });
        let members = members.chain(self.planned_to_come(id, coming)).collect();
        let request = PlanningRequest {
            gang: id.clone(),
            members,
            quorum,
            active: counted,
            min_resources: if started { Resources::default() } else { group.min_resources.clone() },
            topology_key: group.policies.topology.clone().filter(|_| !started),
            gang_nodes: census.nodes,
        };
        Some(((!started, Reverse(priority), age, id.clone()), request))
    }
}

/// What came of asking.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fits {
    /// It, or a part of it that may start, has places.
    Yes,
    /// There is no way to place it.
    No,
    /// The search stopped before it could be sure.
    Unsure,
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::dialect::Group;
    use crate::engine::{Change, EngineSettings, Event, ListedObjects};
    use crate::model::random::Random;
    use crate::model::{DialectId, Epoch, PodUid};
    use crate::objects::Node;
    use crate::pod::Pod;

    fn pod(name: &str, group: Option<usize>, node: Option<u64>, gpus: u64) -> Pod {
        let group = group.map(|g| format!(r#""pod-group-name":"g{g}""#)).unwrap_or_default();
        let place = node.map_or_else(
            || r#""schedulingGates":[{"name":"portcullis.dev/gang"}]"#.to_owned(),
            |node| format!(r#""nodeName":"n{node}""#),
        );
        let json = format!(
            r#"{{"metadata":{{"namespace":"x","name":"{name}","uid":"{name}","resourceVersion":"1","annotations":{{{group}}}}},
                "spec":{{{place},"containers":[{{"name":"c","resources":{{"requests":{{"nvidia.com/gpu":"{gpus}"}}}}}}]}}}}"#
        );
        Pod::read(&json).expect("the pod above can be read")
    }

    fn node(index: u64) -> Node {
        let json = format!(
            r#"{{"metadata":{{"name":"n{index}"}},"status":{{"allocatable":{{"cpu":"64","memory":"1Ti","pods":"110",
                "nvidia.com/gpu":"8"}},"conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
        );
        Node::read(&json).expect("the node above can be read")
    }

    /// Debug builds compare every round with the one without the shortcut: here on long queues, with room that comes and
    /// goes and gangs that come, are alike or not, and lose members.
    #[test]
    fn the_shortcut_plans_what_asking_everybody_plans() {
        const GANGS: usize = 45;
        let mut planned = 0;
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let mut engine = Engine::new(EngineSettings::default());
            let mut now = Time(1_000_000);
            let groups = (0..GANGS).map(|g| {
                let quorum = Quorum::Count(u32::try_from(random.between(1, 3)).expect("small"));
                Group::new(GangId::new(DialectId::Kai, "x", format!("g{g}")), quorum)
                    .with_object(&format!("uid-{g}"))
            });
            let groups = crate::dialect::objects_by_kind(groups);
            // Nearly full at first: a long queue forms.
            let mut pods: Vec<Pod> =
                (0..6).map(|n| pod(&format!("foreign-{n}-7"), None, Some(n), 7)).collect();
            let mut sizes = Vec::new();
            for gang in 0..GANGS {
                sizes.push(random.between(2, 8));
                if gang < 35 {
                    pods.extend((0..3).map(|m| pod(&format!("g{gang}-{m}"), Some(gang), None, sizes[gang])));
                }
            }
            let world = ListedObjects {
                nodes: Some((0..6).map(node).collect()),
                pods: Some(pods),
                groups,
                gangs: Some(Vec::new()),
                ..ListedObjects::default()
            };
            let mut tell = |engine: &mut Engine, event| {
                now = now.after(Duration::from_millis(300));
                engine.step(event, now);
            };
            tell(&mut engine, Event::LeaseAcquired(Epoch(1)));
            tell(&mut engine, Event::Listed(Epoch(1), world));
            tell(&mut engine, Event::Tick);
            assert!(engine.queue.is_long(), "seed {seed}: {} wait", engine.queue.ranks.len());
            for _ in 0..60 {
                let (gang, member) =
                    (usize::try_from(random.below(GANGS as u64)).expect("small"), random.below(3));
                let (place, gpus) = (random.below(6), random.between(1, 7));
                let event = match random.below(5) {
                    0 => Event::Pod(Change::Set(pod(
                        &format!("foreign-{place}-{gpus}"),
                        None,
                        Some(place),
                        gpus,
                    ))),
                    1 | 2 => Event::Pod(Change::Gone(PodUid::from(&*format!("foreign-{place}-7")))),
                    3 => Event::Pod(Change::Gone(PodUid::from(&*format!("g{gang}-{member}")))),
                    _ => Event::Pod(Change::Set(pod(
                        &format!("g{gang}-{member}"),
                        Some(gang),
                        None,
                        sizes[gang],
                    ))),
                };
                tell(&mut engine, event);
                tell(&mut engine, Event::Tick);
            }
            planned += engine.gangs.values().filter(|gang| gang.progress.plan().is_some()).count();
        }
        assert!(planned > 200, "only {planned} gangs were planned");
    }
}
