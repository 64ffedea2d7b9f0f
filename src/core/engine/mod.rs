//! The gang-admission engine: a state machine that takes [`Event`]s and returns [`Effect`]s.
//!
//! It gathers the members of each gang, queues complete gangs, plans them as a whole, records the plan in the
//! `Gang` object, lifts the gates and observes the result. It performs no effect itself: the cluster edge
//! does, and watches and answers come back as events. The engine trusts what it reads, never what it has
//! sent: nearly everything it does next follows from the objects as it knows them. So a lost answer or a
//! crash leaves nothing to repair.
//!
//! | module | holds |
//! |---|---|
//! | [`state`] | a gang with its members, what its logic may read besides it, and where it puts effects |
//! | [`protocol`] | inputs and outputs, the `Gang` object, the state machine of a plan, leadership, fencing |
//! | [`members`] | pods and groups: counting, elastic gangs, placeholders, stale gangs |
//! | [`queue`] | planning order, planning rounds, start timeouts, the head-of-line reservation |
//! | [`status`] | status, conditions and events of a gang, and the status of its group object |
//!
//! The logic of one gang is methods of `Gang`. They change this gang and its members, read the rest through
//! an `EngineView`, and push to `Effects`. Methods of [`Engine`] do what concerns several gangs: they take in
//! events, charge the snapshot, keep the queue and the timers, and lead.
//!
//! # Invariants
//!
//! - A gate is removed only under a plan that is durable in the `Gang` object under the epoch of this engine,
//!   after a read of the lease that was sent after the plan became durable, and only at the version of the
//!   pod that was known when that read was sent.
//! - Every planned or lifted pod that is not bound is charged to its node in the snapshot. Every bound pod is
//!   charged until it has ended or is gone.
//! - Each pod, each `Gang` object and the lease have at most one unanswered request.
//! - State is keyed by identity, and no counter only grows: engines that know the same objects are equal.
//!   `tests/explore` depends on it. The counter of invariant violations is outside of that comparison.

mod invariants;
mod members;
mod protocol;
mod queue;
mod settings;
mod state;
mod status;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use members::pending::{MemberView, UnplacedPod};
pub use protocol::{
    Action, Change, Condition, ConditionStatus, ConditionType, Effect, Event, GangEvent, GangRecord,
    GangStatus, ListedObjects, NodePinning, Phase, Placeholder, PlanRecord, PlannedMember, PodRef, Refusal,
    RequestOutcome, RequestTarget, TornRecord, wire,
};
pub use queue::{GangRank, PlanningObserver, PlanningRound, QueuedGang};
pub use settings::{EngineSettings, GroupStatusMode, NominationMode, SafetyRule};

use crate::model::{Epoch, GangId, PodKey, PodUid, ResourceVersion, Str, Time};
use crate::shape::Shape;
use crate::snapshot::Snapshot;
use invariants::{InvariantViolations, KNOWN_GANG, KNOWN_MEMBER, RefutedPlans};
use protocol::leadership::Leadership;
use protocol::plan_progress::{PlanInput, Progress};
use queue::Queue;
use queue::head_of_line::HeadOfLineReservation;
use state::{Effects, EngineView, Gang, GroupObjects, MemberState, RetrySlots, RetryTimer, StepContext};
use status::group_status_sync::GroupStatusQueue;

/// The engine of one replica. It plans only while its replica holds the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Engine {
    settings: EngineSettings,
    leadership: Leadership,
    /// Nodes and what is charged to them: bound pods, planned members and placeholders.
    snapshot: Snapshot,
    gangs: BTreeMap<GangId, Gang>,
    /// The gang of each member.
    gang_by_pod: BTreeMap<PodUid, GangId>,
    /// Pods without a gang that are charged to a node.
    charged_pods: BTreeSet<PodUid>,
    /// Pods without a gang that wait for a scheduler. They could take planned capacity before the bind.
    unscheduled_pods: BTreeSet<PodUid>,
    /// Pods without a gang and without a node, `unscheduled_pods` included, with their resource requests.
    /// Only for reports.
    unplaced_pods: BTreeMap<PodUid, (PodKey, std::sync::Arc<Shape>)>,
    /// Values of the PriorityClasses by name. `None` if RBAC forbids reading them.
    priority_classes: Option<BTreeMap<Str, i32>>,
    group_objects: GroupObjects,
    /// The timer of each gang that has one.
    timers: BTreeSet<(Time, GangId)>,
    /// The lease read that is under way: the pods that it may grant a lift permit, with their versions.
    pending_permits: Option<BTreeMap<PodUid, ResourceVersion>>,
    /// Delay after failed reads of the lease.
    lease_retry: RetryTimer,
    /// The times at which refused requests are sent again.
    retry_slots: RetrySlots,
    /// Gangs with a durable plan and members that are still gated.
    lifting: BTreeSet<GangId>,
    /// Complete gangs that wait for a plan.
    queue: Queue,
    /// The gang of each placeholder that is charged to the snapshot.
    placeholder_owners: BTreeMap<PodUid, GangId>,
    /// The reservation for the oldest gang that does not fit.
    head_of_line: Option<HeadOfLineReservation>,
    /// Requests that do not fit beside node-bound pods alone. Cleared when a node, a namespace or a
    /// node-bound pod changes; those with pod rules also when any pod changes.
    infeasible_signatures: BTreeSet<std::sync::Arc<queue::RequestSignature>>,
    /// Gangs that the next planning round enqueues again, because something that bears on planning has
    /// changed.
    changed_gangs: BTreeSet<GangId>,
    /// Capacity may have been freed since the last planning round.
    capacity_grew: bool,
    /// Pods changed since the last planning round, and a queued gang has rules about them.
    other_pods_changed: bool,
    /// The next tick plans.
    plan_needed: bool,
    /// Group objects whose status is to be written.
    group_status_queue: GroupStatusQueue,
    violations: InvariantViolations,
    refuted_plans: RefutedPlans,
}

/// What the logic of one gang may read of an engine. A macro, because a function would borrow the whole
/// engine, and the gang is borrowed mutably at the same time.
macro_rules! engine_view {
    ($engine:expr, $now:expr) => {
        EngineView {
            now: $now,
            epoch: $engine.epoch().unwrap_or_default(),
            leads: $engine.leads(),
            settings: &$engine.settings,
            snapshot: &$engine.snapshot,
            group_objects: &$engine.group_objects,
            priority_classes: $engine.priority_classes.as_ref(),
            queue: &$engine.queue,
            head_of_line: $engine.head_of_line.as_ref().map(|reservation| &reservation.gang),
            timers: u32::try_from($engine.timers.len()).unwrap_or(u32::MAX),
            is_contended: !$engine.unscheduled_pods.is_empty(),
        }
    };
}

impl Engine {
    /// An engine without any knowledge, as a follower.
    pub fn new(settings: EngineSettings) -> Self {
        let snapshot = Snapshot::new(settings.sharing);
        Self {
            settings,
            leadership: Leadership::Follower,
            snapshot,
            gangs: BTreeMap::new(),
            gang_by_pod: BTreeMap::new(),
            charged_pods: BTreeSet::new(),
            unscheduled_pods: BTreeSet::new(),
            unplaced_pods: BTreeMap::new(),
            priority_classes: None,
            group_objects: GroupObjects::default(),
            timers: BTreeSet::new(),
            pending_permits: None,
            lease_retry: RetryTimer::default(),
            retry_slots: RetrySlots::default(),
            lifting: BTreeSet::new(),
            queue: Queue::default(),
            placeholder_owners: BTreeMap::new(),
            head_of_line: None,
            infeasible_signatures: BTreeSet::new(),
            changed_gangs: BTreeSet::new(),
            capacity_grew: false,
            other_pods_changed: false,
            plan_needed: false,
            group_status_queue: GroupStatusQueue::default(),
            violations: InvariantViolations::default(),
            refuted_plans: RefutedPlans::default(),
        }
    }

    /// Takes one event at this time and returns the effects that follow. See [`Engine::steps`].
    pub fn step(&mut self, event: Event, now: Time) -> Vec<Effect> {
        self.steps(std::iter::once(event), now)
    }

    /// Takes events in order, all at this time, and returns the effects that follow from all of them. A gang
    /// that many of the events are about is looked at once.
    ///
    /// Guarantees: the result is deterministic. No effect lifts a gate unless the invariants of this module
    /// hold.
    ///
    /// Assumptions: watch events of one kind come in order and continue from the preceding list. Each effect
    /// that asks for an answer gets exactly one.
    ///
    /// Caveats: `now` may jump in either direction. Only timeouts, delays and messages depend on it.
    pub fn steps(&mut self, events: impl IntoIterator<Item = Event>, now: Time) -> Vec<Effect> {
        self.run(events, now, None)
    }

    /// The same as [`Engine::steps`], and shows every planning round to an observer.
    pub fn steps_observed(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        now: Time,
        observer: &mut dyn PlanningObserver,
    ) -> Vec<Effect> {
        self.run(events, now, Some(observer))
    }

    fn run(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        now: Time,
        observer: Option<&mut dyn PlanningObserver>,
    ) -> Vec<Effect> {
        let mut step = StepContext::new(self.epoch().unwrap_or_default(), now, observer);
        for event in events {
            self.handle_event(event, &mut step);
        }
        self.finish_batch(&mut step);
        step.into_effects()
    }

    fn handle_event(&mut self, event: Event, step: &mut StepContext<'_>) {
        let knows = matches!(self.leadership, Leadership::Fencing(_) | Leadership::Leading(_));
        match event {
            Event::LeaseAcquired(epoch) => {
                step.set_epoch(epoch);
                self.reset(Leadership::Listing(epoch));
                step.effects.send(Action::List);
            }
            Event::LeaseLost => self.reset(Leadership::Follower),
            Event::Listed(epoch, objects) if self.leadership == Leadership::Listing(epoch) => {
                self.take_over(epoch, objects, step);
            }
            Event::Node(change) if knows => self.observe_node(change, step),
            Event::Pod(Change::Set(pod)) if knows => self.observe_pod(pod, step),
            Event::Pod(Change::Gone(uid)) if knows => self.remove_pod(&uid, step),
            Event::Group(change) if knows => self.observe_group(change, step),
            Event::PriorityClass(change) if knows => self.observe_priority_class(change, step),
            Event::Namespace(change) if knows => self.observe_namespace(change),
            Event::Gang(Change::Set(record)) if knows => {
                self.observe_foreign_gang_write(&record, step.now);
                self.observe_gang_object(record, step);
            }
            Event::Gang(Change::Gone(gang)) if knows => self.remove_gang_object(&gang, step),
            Event::Answer { epoch, subject, outcome } if knows && Some(epoch) == self.epoch() => {
                self.handle_answer(subject, outcome, step);
            }
            Event::Tick if knows => {
                // The round of planning takes all earlier events into account.
                self.finish_batch(step);
                self.tick(step);
            }
            // A follower keeps nothing: it lists all objects when it takes over.
            Event::Listed(..)
            | Event::Node(_)
            | Event::Pod(_)
            | Event::Group(_)
            | Event::PriorityClass(_)
            | Event::Namespace(_)
            | Event::Gang(_)
            | Event::Answer { .. }
            | Event::Tick => {}
        }
    }

    /// Looks at every touched gang, and remembers whether capacity grew and whether pods changed.
    fn finish_batch(&mut self, step: &mut StepContext<'_>) {
        self.drive_touched(step);
        if self.snapshot.take_grown() {
            self.capacity_grew = true;
            self.plan_needed = true;
        }
        if self.snapshot.take_pods_changed() && self.queue.has_pod_rules() {
            self.other_pods_changed = true;
            self.plan_needed = true;
        }
    }

    /// Capacity as this engine sees it, reservations included.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The epoch under which this engine acts. `None` for a follower.
    pub fn epoch(&self) -> Option<Epoch> {
        match self.leadership {
            Leadership::Follower => None,
            Leadership::Listing(epoch) | Leadership::Fencing(epoch) | Leadership::Leading(epoch) => {
                Some(epoch)
            }
        }
    }

    /// Whether the engine plans: it holds the lease and has fenced the plans of older epochs.
    pub fn leads(&self) -> bool {
        matches!(self.leadership, Leadership::Leading(_))
    }

    /// The number of broken internal promises since this engine was created. Anything but zero is a defect.
    pub fn invariant_violations(&self) -> u64 {
        self.violations.count()
    }

    /// The gang with the head-of-line reservation, if there is one.
    pub fn head_of_line_holder(&self) -> Option<&GangId> {
        self.head_of_line.as_ref().map(|reservation| &reservation.gang)
    }

    /// The earliest time at which an [`Event::Tick`] does something without any other event.
    pub fn next_timer(&self) -> Option<Time> {
        let gang = self.timers.first().map(|(at, _)| *at);
        gang.into_iter()
            .chain(self.lease_retry.until())
            .chain(self.next_group_status())
            .chain(self.snapshot.next_refusal_end())
            .min()
    }

    fn tick(&mut self, step: &mut StepContext<'_>) {
        while let Some((at, id)) = self.timers.first().cloned() {
            if at > step.now {
                break;
            }
            self.timers.pop_first();
            let Some((gang, view)) = self.gang_and_view(&id, step.now) else { continue };
            gang.timers.next = None;
            let mut plan_again = gang.is_replan_due(&view);
            if view.leads {
                plan_again |= gang.forget_refused_lift(&view);
                plan_again |= gang.check_timeout(&view);
            }
            if plan_again {
                self.mark_for_planning(&id);
            }
            step.touched.insert(id);
        }
        if self.snapshot.forget_old_refusals(step.now) {
            self.plan_needed = true;
        }
        if self.plan_needed && self.leads() {
            self.plan_needed = false;
            self.plan_queue(step);
        }
        self.send_group_statuses(step);
    }

    /// Does what follows for every touched gang, then reads the lease if a member needs a lift permit.
    fn drive_touched(&mut self, step: &mut StepContext<'_>) {
        while let Some(gang) = step.touched.pop_first() {
            if matches!(self.leadership, Leadership::Follower | Leadership::Listing(_)) {
                step.touched.clear();
                return;
            }
            self.drive_gang(&gang, step);
        }
        self.finish_fencing(step);
        self.verify_lease(step);
    }

    /// Does everything that follows for one gang from what is known of it.
    fn drive_gang(&mut self, id: &GangId, step: &mut StepContext<'_>) {
        // Ordinary: a group object without a gang was touched, or the gang was forgotten earlier in this
        // step.
        if !self.gangs.contains_key(id) {
            return;
        }
        self.drive(id, step, |gang, _, _| gang.update_declared_group());
        if self.leads() {
            self.drive(id, step, Gang::update_elastic_size);
            self.remember_refusals(id, step);
            self.review_plan(id, step);
            self.review_placeholders(id, step);
            self.drive(id, step, |gang, view, _| gang.forget_refused_lift(view));
            self.drive(id, step, |gang, view, _| gang.check_timeout(view));
            self.drive(id, step, |gang, view, _| gang.check_torn(view));
            self.drive(id, step, Gang::check_stale);
        }
        self.drive(id, step, |gang, view, effects| {
            gang.drive_members(view, effects);
            false
        });
        if self.leads() {
            let Some((gang, view)) = self.gang_and_view(id, step.now) else { return };
            gang.delete_expired(&view, &mut step.effects);
            if !gang.drive_object(&view, &mut step.effects) {
                self.forget_if_empty(id, step.now);
            }
            // Ordinary: nothing is left of the gang, and the engine has forgotten it.
            if !self.gangs.contains_key(id) {
                self.lifting.remove(id);
                return;
            }
            let Some((gang, view)) = self.gang_and_view(id, step.now) else { return };
            gang.record_lifted_event(&view, &mut step.effects);
        }
        self.update_lifting_set(id);
        self.schedule_group_status(id, step.now);
        self.set_timer(id, step.now);
    }

    /// Runs a part of the logic of one gang. If it returns true, the gang is planned again.
    fn drive(
        &mut self,
        id: &GangId,
        step: &mut StepContext<'_>,
        part: impl FnOnce(&mut Gang, &EngineView<'_>, &mut Effects) -> bool,
    ) {
        let Some((gang, view)) = self.gang_and_view(id, step.now) else { return };
        if part(gang, &view, &mut step.effects) {
            self.mark_for_planning(id);
        }
    }

    fn review_plan(&mut self, id: &GangId, step: &mut StepContext<'_>) {
        let Some((gang, view)) = self.gang_and_view(id, step.now) else { return };
        if let Some(input) = gang.review_plan(&view, &mut step.effects) {
            self.advance_plan(id, input, step);
        }
    }

    fn review_placeholders(&mut self, id: &GangId, step: &mut StepContext<'_>) {
        let Some((gang, view)) = self.gang_and_view(id, step.now) else { return };
        let Some(review) = gang.review_placeholders(&view, &mut step.effects) else { return };
        self.advance_plan(id, PlanInput::Planned(review.plan), step);
        // A member without a placeholder is queued. It can be planned once this plan is durable.
        self.mark_for_planning(id);
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.reported.lifted_event_recorded = review.joined == 0;
        }
    }

    fn update_lifting_set(&mut self, id: &GangId) {
        let lifting = self.gangs.get(id).is_some_and(|gang| match &gang.lifecycle.progress {
            Progress::Recorded(plan) => gang.has_gated(plan),
            Progress::Undecided | Progress::Recording(_) | Progress::Dropping(..) => false,
        });
        if lifting {
            self.lifting.insert(id.clone());
        } else {
            self.lifting.remove(id);
        }
    }

    /// The gang with this id, and what its logic may read besides it. The caller promises that it exists.
    #[track_caller]
    fn gang_and_view(&mut self, id: &GangId, now: Time) -> Option<(&mut Gang, EngineView<'_>)> {
        let view = engine_view!(self, now);
        let gang = self.gangs.get_mut(id);
        self.violations.check(gang.is_some(), KNOWN_GANG);
        Some((gang?, view))
    }

    /// What the logic of any gang may read.
    fn view(&self, now: Time) -> EngineView<'_> {
        engine_view!(self, now)
    }

    /// The gang with this id. The caller promises that it exists.
    #[track_caller]
    fn expect_gang(&self, id: &GangId) -> Option<&Gang> {
        let gang = self.gangs.get(id);
        self.violations.check(gang.is_some(), KNOWN_GANG);
        gang
    }

    /// The member with this UID, of any gang. `None` if no gang has such a member.
    #[track_caller]
    fn member(&self, uid: &PodUid) -> Option<&MemberState> {
        let id = self.gang_by_pod.get(uid)?;
        let member = self.gangs.get(id).and_then(|gang| gang.members.get(uid));
        self.violations.check(member.is_some(), KNOWN_MEMBER);
        member
    }

    /// The member with this UID, of any gang. `None` if no gang has such a member.
    #[track_caller]
    fn member_mut(&mut self, uid: &PodUid) -> Option<&mut MemberState> {
        let id = self.gang_by_pod.get(uid)?;
        let member = self.gangs.get_mut(id).and_then(|gang| gang.members.get_mut(uid));
        self.violations.check(member.is_some(), KNOWN_MEMBER);
        member
    }
}
