//! The queue of complete gangs: planning order, and which gangs the planner need not be asked about.
//!
//! Most gangs in a long queue ask for the same, and most events free no capacity. So gangs with equal
//! requests share an entry (`RequestSignature`), and one that does not fit stands for all behind it. A gang
//! that did not fit is not planned again before capacity is freed (`Snapshot::take_grown`), a node changes,
//! or the gang changes (`mark_for_planning`): assigning capacity to others cannot make it fit. So the cost of
//! an event does not depend on the number of waiting gangs. The plans equal those of planning every gang in
//! every round; debug builds compare both, see `comparison`. A search that ran out of steps proves nothing:
//! such a gang is planned in every round.
//!
//! [`head_of_line`] reserves capacity for the oldest gang that does not fit. [`timeout`] ends attempts to
//! start. `minResources` of Coscheduling and Volcano (`planner/min_resources.rs`) is a sum over feasible
//! nodes. It is checked when all members of a gang without started members have nodes, and reserves nothing:
//! two groups may count the same free GPUs, and the first in the queue gets them.

#[cfg(debug_assertions)]
mod comparison;
pub(in crate::engine) mod head_of_line;
pub(in crate::engine) mod timeout;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::dialect::Quorum;
use crate::engine::protocol::plan_progress::{PlanInput, Progress};
use crate::engine::protocol::{PlanRecord, PlannedMember};
use crate::engine::{Engine, StepContext};
use crate::model::{GangId, Reason, Resources, Str, Time};
use crate::planner::{self, PlannedGang, PlanningOutcome, PlanningRequest, WaitingMember};
use crate::shape::Shape;

/// The place of a gang in the queue: gangs with started members first, then by priority, then by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::engine) struct QueueRank {
    /// No member has started. `false` sorts first.
    pub not_started: bool,
    /// Higher priorities sort first.
    pub priority: Reverse<i32>,
    /// Creation of the oldest waiting member, or the end of the last start timeout.
    pub since: Time,
    /// The gang, as tie-break.
    pub gang: GangId,
}

/// Minimum interval between updates of the wait reason of a waiting gang.
const MIN_REPLAN_INTERVAL: Duration = Duration::from_secs(1);
/// Lower bound of that interval for each queued gang: at most twenty updates each second.
const REPLAN_INTERVAL_PER_GANG: Duration = Duration::from_millis(50);

/// Everything about a gang that decides whether it fits. Gangs with equal signatures fit alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::engine) struct RequestSignature {
    /// Role and resource requests of each waiting member, sorted.
    members: Vec<(Option<Str>, Arc<Shape>)>,
    quorum: Quorum,
    active: BTreeMap<Option<Str>, u32>,
    minimum: Resources,
    together: Option<Str>,
}

impl RequestSignature {
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

/// The complete gangs without a plan under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Queue {
    ranks: BTreeMap<QueueRank, Arc<RequestSignature>>,
    /// The same ranks by signature. There are no empty sets.
    by_signature: BTreeMap<Arc<RequestSignature>, BTreeSet<QueueRank>>,
}

impl Queue {
    fn insert(&mut self, rank: QueueRank, signature: RequestSignature) {
        let signature = match self.by_signature.get_key_value(&signature) {
            Some((known, _)) => known.clone(),
            None => Arc::new(signature),
        };
        self.by_signature.entry(signature.clone()).or_default().insert(rank.clone());
        self.ranks.insert(rank, signature);
    }

    fn remove(&mut self, rank: &QueueRank) {
        let Some(signature) = self.ranks.remove(rank) else {
            debug_assert!(false, "the queue holds the rank of every queued gang");
            return;
        };
        if let Some(ranks) = self.by_signature.get_mut(&signature) {
            ranks.remove(rank);
            if ranks.is_empty() {
                self.by_signature.remove(&signature);
            }
        }
    }

    /// Position of a gang, from 1.
    pub(in crate::engine) fn position(&self, rank: &QueueRank) -> u32 {
        u32::try_from(self.ranks.range(..=rank).count()).unwrap_or(u32::MAX)
    }

    /// Interval after which the wait reason of a gang is updated.
    pub(in crate::engine) fn replan_interval(&self) -> Duration {
        let waiting = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        MIN_REPLAN_INTERVAL.max(REPLAN_INTERVAL_PER_GANG.saturating_mul(waiting))
    }

    /// Whether the queue is too long to update every wait reason at the minimum interval.
    fn is_long(&self) -> bool {
        self.replan_interval() > MIN_REPLAN_INTERVAL
    }

    /// The next rank from this bound on.
    pub(in crate::engine) fn after(
        &self,
        from: &Bound<QueueRank>,
    ) -> Option<(&QueueRank, &Arc<RequestSignature>)> {
        self.ranks.range((from.as_ref(), Bound::Unbounded)).next()
    }

    /// The next rank with this signature.
    fn next_with_signature(&self, signature: &RequestSignature, after: &QueueRank) -> Option<QueueRank> {
        let ranks = self.by_signature.get(signature)?;
        ranks.range((Bound::Excluded(after), Bound::Unbounded)).next().cloned()
    }
}

impl Engine {
    /// Has the next planning round enqueue the gang again: its request or its rank may have changed.
    pub(in crate::engine) fn mark_for_planning(&mut self, id: &GangId) {
        if !self.changed_gangs.contains(id) {
            self.changed_gangs.insert(id.clone());
        }
        self.plan_needed = true;
    }

    /// Removes a gang from the queue.
    pub(in crate::engine) fn dequeue(&mut self, id: &GangId) {
        if let Some(rank) = self.gangs.get_mut(id).and_then(|gang| gang.queueing.rank.take()) {
            self.queue.remove(&rank);
        }
    }

    fn enqueue(&mut self, id: &GangId) {
        self.dequeue(id);
        let Some((rank, request)) = self.planning_request(id) else { return };
        self.queue.insert(rank.clone(), RequestSignature::of(&request));
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.queueing.rank = Some(rank);
        }
    }

    /// Plans every complete gang without a plan under way that may fit, in queue order.
    pub(in crate::engine) fn plan_queue(&mut self, step: &mut StepContext) {
        let grown = std::mem::take(&mut self.capacity_grew) || self.snapshot.take_grown();
        let fresh = std::mem::take(&mut self.changed_gangs);
        for id in &fresh {
            self.enqueue(id);
        }
        let mut grown = self.renew_head_of_line(grown, step.now) || grown;
        #[cfg(debug_assertions)]
        let expected = self.plan_without_shortcut();
        let mut agenda: BTreeSet<QueueRank> =
            fresh.iter().filter_map(|id| self.gangs.get(id)?.queueing.rank.clone()).collect();
        if grown {
            agenda.extend(self.queue.by_signature.values().filter_map(|ranks| ranks.first().cloned()));
        }
        let mut full: BTreeSet<Arc<RequestSignature>> = BTreeSet::new();
        while let Some(rank) = agenda.pop_first() {
            // A gang that has been planned in this round has left the queue.
            let Some(signature) = self.queue.ranks.get(&rank).cloned() else { continue };
            let id = &rank.gang;
            // A changed gang is planned in any case, so that it has a wait reason.
            if full.contains(&signature) && !fresh.contains(id) {
                continue;
            }
            // In a long queue, a gang that has a wait reason and is still infeasible gets a new one only at
            // its interval: an explanation costs several times as much as the check.
            if self.queue.is_long() && !fresh.contains(id) && self.is_still_infeasible(id) {
                full.insert(signature);
                continue;
            }
            let reserved = self.head_of_line.is_some();
            let fits = self.plan_one(&rank, step);
            if reserved && self.head_of_line.is_none() {
                // The head-of-line reservation is gone: its capacity is available to all gangs.
                grown = true;
                full.clear();
                agenda.extend(
                    self.queue.by_signature.keys().filter_map(|l| self.queue.next_with_signature(l, &rank)),
                );
            }
            match fits {
                FitResult::No => {
                    full.insert(signature);
                }
                FitResult::Yes | FitResult::Unsure if grown => {
                    agenda.extend(self.queue.next_with_signature(&signature, &rank));
                }
                FitResult::Yes | FitResult::Unsure => {}
            }
            if fits == FitResult::Unsure {
                // Plan it again in the next round, which may find an answer.
                self.changed_gangs.insert(rank.gang);
            }
        }
        #[cfg(debug_assertions)]
        if let Some(expected) = expected {
            self.assert_planned(expected);
        }
    }

    fn is_still_infeasible(&self, id: &GangId) -> bool {
        let has_reason = self.gangs.get(id).is_some_and(|gang| gang.queueing.wait_reason.is_some());
        has_reason
            && self
                .planning_request(id)
                .is_some_and(|(_, request)| planner::is_unschedulable(&self.snapshot, &request))
    }

    /// Plans one gang of the queue.
    fn plan_one(&mut self, rank: &QueueRank, step: &mut StepContext) -> FitResult {
        let id = &rank.gang;
        let Some((_, request)) = self.planning_request(id) else { return FitResult::No };
        let (mut plan, mut report) = planner::plan(&self.snapshot, std::slice::from_ref(&request));
        let room = plan.gangs.first().map(|planned| planned.assignments.len());
        if let (Some(room), Some(reservation)) = (room, self.head_of_line_before(rank).cloned()) {
            (plan, report) = self.plan_beside_head_of_line(&reservation, &request);
            if let Some(PlanningOutcome::Waiting(why)) = report.outcomes.get_mut(id)
                && why.reason != Reason::SearchExhausted
            {
                *why = self.explain_head_of_line_wait(&reservation, room);
            }
        }
        let placed = plan.gangs.into_iter().next();
        let fits = placed.is_some();
        if let Some(placed) = placed {
            self.start_plan(placed, &request, step);
        }
        let explanation = match report.outcomes.remove(id) {
            Some(PlanningOutcome::Waiting(explanation)) => Some(explanation),
            Some(PlanningOutcome::Placed { unplaced, .. }) => unplaced,
            None => None,
        };
        let unsure = explanation.as_ref().is_some_and(|why| why.reason == Reason::SearchExhausted);
        let verdict = explanation;
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.timers.last_planned = Some(step.now);
            if gang.queueing.wait_reason != verdict {
                gang.queueing.wait_reason = verdict;
            }
            // Also if the wait reason is the same: the position in the queue may have changed.
            step.touch(id);
        }
        match (fits, unsure) {
            (true, _) => FitResult::Yes,
            (false, true) => FitResult::Unsure,
            (false, false) => FitResult::No,
        }
    }

    fn start_plan(&mut self, planned: PlannedGang, request: &PlanningRequest, step: &mut StepContext) {
        self.dequeue(&planned.gang);
        self.head_of_line = self.head_of_line.take().filter(|reservation| reservation.gang != planned.gang);
        // Lifted members of the earlier plan that are not bound keep their assignment.
        let underway = (self.gangs.get(&planned.gang).and_then(|g| g.lifecycle.progress.plan()).into_iter())
            .flat_map(|plan| &plan.members)
            .filter(|m| self.members.get(&m.uid).is_some_and(|m| m.unbound()));
        let mut members: Vec<PlannedMember> = underway.cloned().collect();
        // Existing placeholders keep their assignment too.
        let mut placeholders = self.placeholders_of(&planned.gang);
        for place in planned.assignments {
            if self.members.contains_key(&place.uid) {
                let (pod, uid) = (place.key.name, place.uid);
                members.push(PlannedMember { pod, uid, node: place.node, gpus: place.cards });
            } else if let Some(member) = request.members.iter().find(|m| m.uid == place.uid) {
                placeholders.push(self.new_placeholder(member, &place, &placeholders));
            }
        }
        let reserved_until = (!placeholders.is_empty()).then(|| step.now.after(self.settings.reserve_for));
        let record = PlanRecord {
            epoch: step.epoch,
            deadline: step.now.after(self.settings.bind_timeout),
            members,
            placeholders,
            reserved_until,
            released: 0,
        };
        self.advance_plan(&planned.gang, PlanInput::Planned(record), step);
    }

    /// Rank and planner request of a gang. `None` if it is incomplete, needs no plan or is being lifted.
    pub(in crate::engine) fn planning_request(&self, id: &GangId) -> Option<(QueueRank, PlanningRequest)> {
        let gang = self.gangs.get(id)?;
        let free = match &gang.lifecycle.progress {
            Progress::Undecided => true,
            Progress::Recorded(plan) => {
                plan.members.iter().all(|m| self.members.get(&m.uid).is_none_or(|m| !m.pod.gated()))
            }
            Progress::Recording(_) | Progress::Dropping(..) => false,
        };
        let group = self.group(id)?;
        let mut counts = self.count_members(id);
        let settled = !counts.ready.iter().any(|uid| self.members.get(uid).is_some_and(|m| m.must_fence));
        if !free
            || !settled
            || !gang.lifecycle.expired.is_empty()
            || counts.ready.is_empty()
            || !self.are_owners_known(id, &counts)
        {
            return None;
        }
        // Placeholders count like started members.
        let mut counted = counts.active.clone();
        for place in self.placeholders_of(id) {
            *counted.entry(place.role).or_default() += 1;
        }
        let alone = self.independent_members(id, &counts);
        let (quorum, missing) = if alone.is_empty() {
            let mut here = counted.clone();
            for pod in counts.ready.iter().filter_map(|uid| self.members.get(uid)) {
                *here.entry(crate::engine::members::role(&pod.pod).cloned()).or_default() += 1;
            }
            let missing = self.missing_members(id, here.clone());
            if missing.is_empty() && !group.quorum.is_satisfied(&here) {
                return None;
            }
            let quorum = if missing.is_empty() {
                group.quorum.without_launcher(&here)
            } else {
                self.full_quorum(id, group)
            };
            (quorum, missing)
        } else {
            counts.ready = alone;
            (Quorum::Count(0), Vec::new())
        };
        let ready = || counts.ready.iter().filter_map(|uid| self.members.get(uid)).map(|m| &m.pod);
        let class =
            group.priority_class.as_ref().and_then(|class| self.priority_classes.as_ref()?.get(class));
        let priority = class.copied().or_else(|| ready().map(|pod| pod.priority).max()).unwrap_or(0);
        let created = ready().map(|pod| pod.created).min().unwrap_or_default();
        let age = gang.lifecycle.timeout.and_then(|timeout| timeout.last_expiry).unwrap_or(created);
        // Members of a started gang, replacements and scale-ups, go first.
        let started = counts.started() > 0;
        let members = ready().map(|pod| WaitingMember {
            uid: pod.uid.clone(),
            key: pod.key.clone(),
            role: pod.membership.as_ref().and_then(|m| m.role.clone()),
            shape: pod.shape.clone(),
        });
        let members = members.chain(self.placeholder_requests(id, missing)).collect();
        let request = PlanningRequest {
            gang: id.clone(),
            members,
            quorum,
            active: counted,
            min_resources: if started { Resources::default() } else { group.min_resources.clone() },
            topology_key: group.policies.topology.clone().filter(|_| !started),
            gang_nodes: counts.nodes,
        };
        let rank =
            QueueRank { not_started: !started, priority: Reverse(priority), since: age, gang: id.clone() };
        Some((rank, request))
    }
}

/// The result of planning one gang.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FitResult {
    /// The gang, or a part of it that may start, has nodes.
    Yes,
    /// The gang does not fit.
    No,
    /// The search stopped before it was sure.
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

    /// Debug builds compare every planning round with one without the shortcut. This test does it on long
    /// queues, with capacity that is freed and taken, and gangs that arrive, have equal or different
    /// requests, and lose members.
    #[test]
    fn the_shortcut_plans_the_same_as_planning_every_gang() {
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
            // Nearly full at first, so that a long queue forms.
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
            planned += engine.gangs.values().filter(|gang| gang.lifecycle.progress.plan().is_some()).count();
        }
        assert!(planned > 200, "only {planned} gangs were planned");
    }
}
