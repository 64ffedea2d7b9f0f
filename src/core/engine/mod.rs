//! The gang-admission engine: `step(Event, now) -> Vec<Effect>`.
//!
//! It gathers, queues, plans, records, nominates, lifts and observes, and never does any of it itself: effects go out,
//! watches and answers come back. It believes watches and answers, never its own intentions: nearly everything it does
//! next follows from what it knows of the objects, so that a lost answer or a crash leaves nothing to repair.
//!
//! Invariants:
//! - A gate is removed only under a plan that is durable in the `Gang` object under this engine's own epoch, after a read
//!   of the lease that was sent later than that plan became durable, and only at the very version of the pod that was
//!   known when that read was sent.
//! - Every pod that is planned or lifted and not yet bound holds its place in the snapshot; every bound pod does until
//!   it is finished or gone.
//! - At most one request is under way for each pod, each `Gang` object and the lease.
//! - State is keyed by identity and has no counters that only grow: equal knowledge is an equal engine.

mod asking;
mod conditions;
mod courtesy;
mod elastic;
mod gather;
mod groups;
mod held;
mod hold;
mod leadership;
mod lift;
mod object;
mod queue;
mod settings;
mod stale;
mod state;
mod status;
mod timeout;
mod to_come;
mod types;
mod view;
pub mod wire;

#[cfg(test)]
mod explore;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use asking::{PlanningView, UnplacedPods};
pub use conditions::{Condition, ConditionStatus, ConditionType};
pub use held::Placeholder;
pub use settings::{EngineSettings, GroupStatusMode, NominationMode, SafetyRule};
pub use types::{
    Action, Change, Effect, Event, GangEvent, GangRecord, GangStatus, ListedObjects, NodePinning, Phase,
    PlanRecord, PlannedMember, PodRef, RequestOutcome, RequestTarget,
};

use crate::model::{Epoch, GangId, PodKey, PodUid, ResourceVersion, Str, Time};
use crate::shape::Shape;
use crate::snapshot::Snapshot;
use state::{Backoff, Gang, Member, Progress, Role};

/// The engine of one replica. It plans only while it holds the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Engine {
    settings: EngineSettings,
    role: Role,
    snapshot: Snapshot,
    /// Pods that belong to gangs.
    members: BTreeMap<PodUid, Member>,
    /// Pods that belong to none and are charged to a node.
    others: BTreeSet<PodUid>,
    /// Pods that belong to none and wait for a scheduler: they could take room that is promised.
    rivals: BTreeSet<PodUid>,
    /// Pods that belong to none and are on no node, rivals among them, with what they ask for: told, and never looked at to decide.
    unplaced: BTreeMap<PodUid, (PodKey, std::sync::Arc<Shape>)>,
    /// Values of the PriorityClasses by name; `None` where they may not be read.
    priority_classes: Option<BTreeMap<Str, i32>>,
    groups: groups::Groups,
    gangs: BTreeMap<GangId, Gang>,
    /// When which gang has to be looked at again.
    alarms: BTreeSet<(Time, GangId)>,
    /// A lease read is under way: which pods it may license, at which version.
    verifying: Option<BTreeMap<PodUid, ResourceVersion>>,
    /// After reads of the lease that failed.
    lease_backoff: Backoff,
    /// Gangs with a durable plan and members that are still gated.
    lifting: BTreeSet<GangId>,
    /// Complete gangs that wait for a plan.
    queue: queue::Queue,
    /// Places that plans hold for members to come, as they are charged, and whose they are.
    places: BTreeMap<PodUid, GangId>,
    /// Room that is held for a gang that has waited for long.
    hold: Option<hold::Hold>,
    /// What would not fit into an empty cluster, as long as no node changes.
    unholdable: BTreeSet<std::sync::Arc<queue::Likeness>>,
    /// Gangs of which something changed that bears on planning.
    fresh: BTreeSet<GangId>,
    /// Something may have been freed since the queue was last planned.
    grown: bool,
    /// There is something to plan.
    replan: bool,
    /// Groups that are to be told how their gang stands.
    courtesies: courtesy::Courtesies,
}

/// What one step has to say, and what it still has to look at.
struct Step {
    now: Time,
    epoch: Epoch,
    effects: Vec<Effect>,
    touched: BTreeSet<GangId>,
}

impl Step {
    fn send(&mut self, action: Action) {
        self.effects.push(Effect { epoch: self.epoch, action });
    }

    fn touch(&mut self, gang: &GangId) {
        if !self.touched.contains(gang) {
            self.touched.insert(gang.clone());
        }
    }
}

impl Engine {
    /// An engine that knows nothing and leads nobody.
    pub fn new(settings: EngineSettings) -> Self {
        let snapshot = Snapshot::new(settings.sharing);
        Self {
            settings,
            role: Role::Following,
            snapshot,
            members: BTreeMap::new(),
            others: BTreeSet::new(),
            rivals: BTreeSet::new(),
            unplaced: BTreeMap::new(),
            priority_classes: None,
            groups: groups::Groups::default(),
            gangs: BTreeMap::new(),
            alarms: BTreeSet::new(),
            verifying: None,
            lease_backoff: Backoff::default(),
            lifting: BTreeSet::new(),
            queue: queue::Queue::default(),
            places: BTreeMap::new(),
            hold: None,
            unholdable: BTreeSet::new(),
            fresh: BTreeSet::new(),
            grown: false,
            replan: false,
            courtesies: courtesy::Courtesies::default(),
        }
    }

    /// Takes one event, at this time, and says what is to be done: see [`Engine::steps`].
    pub fn step(&mut self, event: Event, now: Time) -> Vec<Effect> {
        self.steps(std::iter::once(event), now)
    }

    /// Takes events in their order, all at this time, and says what is to be done when all of them are known: a gang that
    /// many of them are about is looked at once.
    ///
    /// Guarantees: deterministic; no effect that lifts a gate unless the rules at the head of this module hold.
    /// Assumptions: watch events of one kind come in order, and continue from the reads they follow; each answered
    /// effect is answered exactly once.
    /// Caveats: `now` may jump in either direction; only waiting, deadlines and messages depend on it.
    pub fn steps(&mut self, events: impl IntoIterator<Item = Event>, now: Time) -> Vec<Effect> {
        let epoch = self.epoch().unwrap_or_default();
        let mut step = Step { now, epoch, effects: Vec::new(), touched: BTreeSet::new() };
        for event in events {
            self.take(event, &mut step);
        }
        self.conclude(&mut step);
        step.effects
    }

    fn take(&mut self, event: Event, step: &mut Step) {
        let knows = matches!(self.role, Role::Fencing(_) | Role::Leading(_));
        match event {
            Event::LeaseAcquired(epoch) => {
                step.epoch = epoch;
                self.forget(Role::Listing(epoch));
                step.send(Action::List);
            }
            Event::LeaseLost => self.forget(Role::Following),
            Event::Listed(epoch, world) if self.role == Role::Listing(epoch) => self.take_over(world, step),
            Event::Relisted(world) if knows => self.relist(world, step),
            Event::Node(change) if knows => self.node_changed(change, step),
            Event::Pod(Change::Set(pod)) if knows => self.pod_seen(pod, step),
            Event::Pod(Change::Gone(uid)) if knows => self.pod_gone(&uid, step),
            Event::Group(change) if knows => self.group_changed(change, step),
            Event::PriorityClass(change) if knows => self.class_changed(change, step),
            Event::Gang(Change::Set(record)) if knows => self.gang_seen(record, step),
            Event::Gang(Change::Gone(gang)) if knows => self.gang_gone(&gang, step),
            Event::Answer { epoch, subject, outcome } if knows && Some(epoch) == self.epoch() => {
                self.answered(subject, outcome, step);
            }
            Event::Tick if knows => {
                // What is planned is planned on all that came before.
                self.conclude(step);
                self.tick(step);
            }
            // What a replica that does not lead is told is not kept: it lists everything when it takes over.
            Event::Listed(..)
            | Event::Relisted(_)
            | Event::Node(_)
            | Event::Pod(_)
            | Event::Group(_)
            | Event::PriorityClass(_)
            | Event::Gang(_)
            | Event::Answer { .. }
            | Event::Tick => {}
        }
    }

    /// Looks at every gang that something has happened to.
    fn conclude(&mut self, step: &mut Step) {
        self.settle(step);
        if self.snapshot.take_grown() {
            self.grown = true;
            self.replan = true;
        }
    }

    /// Capacity as this engine sees it, reservations included.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The epoch under which this engine acts, if it believes that it leads.
    pub fn epoch(&self) -> Option<Epoch> {
        match self.role {
            Role::Following => None,
            Role::Listing(epoch) | Role::Fencing(epoch) | Role::Leading(epoch) => Some(epoch),
        }
    }

    /// Whether it plans: it leads, and has fenced everything that was planned before it.
    pub fn leads(&self) -> bool {
        matches!(self.role, Role::Leading(_))
    }

    /// The first moment at which a [`Event::Tick`] would do something by itself.
    pub fn next_alarm(&self) -> Option<Time> {
        let gang = self.alarms.first().map(|(at, _)| *at);
        gang.into_iter().chain(self.lease_backoff.until()).chain(self.courtesy_alarm()).min()
    }

    fn tick(&mut self, step: &mut Step) {
        while let Some((at, gang)) = self.alarms.first().cloned() {
            if at > step.now {
                break;
            }
            self.alarms.pop_first();
            let again = self.queue.look_again();
            let Some(known) = self.gangs.get_mut(&gang) else { continue };
            known.alarm = None;
            let leads = matches!(self.role, Role::Leading(_));
            let due = |looked: Time| step.now.since(looked) >= again || step.now < looked;
            if known.rank.is_some() && known.looked.is_some_and(due) {
                self.look_at(&gang);
            }
            if leads {
                self.judge_timeout(&gang, step.now);
            }
            step.touched.insert(gang);
        }
        if self.replan && self.leads() {
            self.replan = false;
            self.plan_queue(step);
        }
        self.pay_courtesies(step);
    }

    /// Does what follows for every gang that was touched, then asks for the lease if somebody waits for it.
    fn settle(&mut self, step: &mut Step) {
        while let Some(gang) = step.touched.pop_first() {
            if matches!(self.role, Role::Following | Role::Listing(_)) {
                step.touched.clear();
                return;
            }
            self.drive(&gang, step);
        }
        self.finish_fencing(step);
        self.verify_lease(step);
    }

    fn note_lifting(&mut self, id: &GangId) {
        let gated = |uid: &PodUid| self.members.get(uid).is_some_and(|m| m.pod.gated());
        let lifting = self.gangs.get(id).is_some_and(|gang| match &gang.progress {
            Progress::Recorded(plan) => plan.members.iter().any(|m| gated(&m.uid)),
            Progress::Undecided | Progress::Recording(_) | Progress::Dropping(..) => false,
        });
        if lifting {
            self.lifting.insert(id.clone());
        } else {
            self.lifting.remove(id);
        }
    }

    /// Everything that follows for one gang from what is known of it.
    fn drive(&mut self, id: &GangId, step: &mut Step) {
        self.redeclare(id);
        if self.leads() {
            self.follow_owners(id, step);
            self.judge_plan(id, step);
            self.judge_places(id, step);
            self.judge_timeout(id, step.now);
            self.judge_stale(id, step);
        }
        self.drive_members(id, step);
        if self.leads() {
            self.delete_expired(id, step);
            self.drive_object(id, step);
            self.tell_lifted(id, step);
        }
        self.note_lifting(id);
        self.note_courtesy(id, step.now);
        self.set_alarm(id, step.now);
    }
}
