//! One replica: a process with its own engine, inbox, watches and clock, that can be killed, paused and
//! woken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{Cluster, DelayRange, FaultTrigger, Invariant, ResponseFate, SimEvent};
use crate::api::{Actor, ObjectKind, StoredObject, TypedObject, WriteRecord};
use portcullis_core::api::ApiResponse;
use portcullis_core::dialect::{self, GroupObject};
use portcullis_core::engine::wire;
use portcullis_core::engine::{
    Action, Change, Effect, Engine, Event, GangEvent, GangRecord, ListedObjects, RequestOutcome,
    RequestTarget,
};
use portcullis_core::model::{Epoch, Time};
use portcullis_core::objects::{Node, PriorityClass};
use portcullis_core::pod::Pod;

/// The kinds an engine watches, in the order in which a consistent list has to read them: the plans before
/// the pods, so that every lift of a plan that is not in the list comes after the list of pods.
pub(super) fn watched() -> impl Iterator<Item = ObjectKind> {
    let groups = dialect::group_kinds().map(ObjectKind::Group);
    [ObjectKind::Gang, ObjectKind::Pod, ObjectKind::Node]
        .into_iter()
        .chain(groups)
        .chain([ObjectKind::PriorityClass])
}

/// How long a client waits for an answer.
const CLIENT_TIMEOUT: DelayRange = DelayRange(3000, 10_000);

/// Something an engine told people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// When.
    pub at: Time,
    /// Which replica.
    pub replica: usize,
    /// What.
    pub note: GangEvent,
}

/// A replica.
#[derive(Clone, Debug)]
pub struct Replica {
    identity: String,
    /// Counts starts; whatever belongs to an earlier life is of no concern to a later one.
    life: u64,
    alive: bool,
    pub(super) paused: bool,
    engine: Option<Engine>,
    inbox: VecDeque<Event>,
    woken: bool,
    streams: BTreeMap<ObjectKind, WatchStream>,
    /// Effects and requests that waited for a paused process to go on.
    held: Vec<Effect>,
    under_way: BTreeSet<(Epoch, RequestTarget)>,
    pub(super) epoch: Option<Epoch>,
    pub(super) renewed: Time,
    pub(super) clock_ahead_ms: u64,
}

/// A watch of one kind: its events keep their order.
#[derive(Clone, Debug, Default)]
struct WatchStream {
    connected: bool,
    /// A list is being read and not delivered yet: this watch goes on from where it was read.
    held: Option<Epoch>,
    queue: VecDeque<Event>,
    last_due: Time,
}

impl Replica {
    pub(super) fn new(index: usize) -> Self {
        Self {
            identity: format!("portcullis-{index}_0"),
            life: 0,
            alive: false,
            paused: false,
            engine: None,
            inbox: VecDeque::new(),
            woken: false,
            streams: BTreeMap::new(),
            held: Vec::new(),
            under_way: BTreeSet::new(),
            epoch: None,
            renewed: Time::default(),
            clock_ahead_ms: 0,
        }
    }

    /// The name under which it holds the lease: another one in every life.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether it is up and not paused.
    pub fn running(&self) -> bool {
        self.alive && !self.paused
    }

    /// Whether it believes to lead.
    pub fn leads(&self) -> bool {
        self.epoch.is_some()
    }

    /// Its engine, while it is alive.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    pub(super) fn gone(&self, life: u64) -> bool {
        !self.alive || self.life != life
    }
}

impl Cluster {
    pub(super) fn start_replica(&mut self, index: usize) {
        let engine = Engine::new(self.options.settings.clone());
        let replica = &mut self.replicas[index];
        replica.life += 1;
        let life = replica.life;
        *replica = Replica {
            identity: format!("portcullis-{index}_{life}"),
            life,
            alive: true,
            engine: Some(engine),
            clock_ahead_ms: replica.clock_ahead_ms,
            ..Replica::new(index)
        };
        for kind in watched() {
            self.push(self.options.timing.watch, SimEvent::Relist(index, life, kind));
        }
        let after = |millis| Duration::from_millis(millis);
        let offset = u64::try_from(index).unwrap_or(0) * 100;
        self.push_at(self.now().after(after(10 + offset)), SimEvent::Lease(index, life));
        self.push_at(self.now().after(after(500 + offset)), SimEvent::Tick(index, life));
    }

    /// Kills a replica: whatever it knew is gone, whatever it has sent is on its way. It starts again after a
    /// while.
    pub fn kill(&mut self, index: usize, restart_after: Duration) {
        let replica = &mut self.replicas[index];
        if !replica.alive {
            return;
        }
        replica.alive = false;
        replica.paused = false;
        replica.engine = None;
        replica.epoch = None;
        self.push_at(self.now().after(restart_after), SimEvent::Restart(index));
    }

    /// Stops a replica in its tracks; it goes on later as if nothing had been.
    pub fn pause(&mut self, index: usize, resume_after: Duration) {
        let replica = &mut self.replicas[index];
        if !replica.running() {
            return;
        }
        replica.paused = true;
        self.push_at(self.now().after(resume_after), SimEvent::Resume(index));
    }

    /// Sets a replica's clock ahead of the others by this much.
    pub fn jump_clock(&mut self, index: usize, ahead: Duration) {
        self.replicas[index].clock_ahead_ms = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
    }

    /// Breaks a replica's watch of a kind.
    pub fn break_watch(&mut self, index: usize, kind: ObjectKind, relist_after: Duration) {
        let replica = &mut self.replicas[index];
        let life = replica.life;
        let Some(stream) = replica.streams.get_mut(&kind).filter(|stream| stream.connected) else { return };
        stream.connected = false;
        stream.queue.clear();
        self.push_at(self.now().after(relist_after), SimEvent::Relist(index, life, kind));
    }

    pub(super) fn restart(&mut self, index: usize) {
        if !self.replicas[index].alive {
            self.start_replica(index);
        }
    }

    pub(super) fn resume(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        if !replica.paused {
            return;
        }
        replica.paused = false;
        let life = replica.life;
        let held = std::mem::take(&mut replica.held);
        replica.woken = false;
        for effect in held {
            self.push(self.options.timing.send, SimEvent::Send(index, life, Box::new(effect)));
        }
        self.wake_soon(index);
        // Its own look at the lease may come before or after it has acted on what it last believed.
        self.push(DelayRange(0, 200), SimEvent::Lease(index, life));
    }

    pub(super) fn tell_replica(&mut self, index: usize, event: Event) {
        self.replicas[index].inbox.push_back(event);
        self.wake_soon(index);
    }

    fn wake_soon(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        if replica.alive && !replica.woken {
            replica.woken = true;
            let life = replica.life;
            self.push(self.options.timing.wake, SimEvent::Wake(index, life));
        }
    }

    pub(super) fn tick(&mut self, index: usize, life: u64) {
        if self.replicas[index].gone(life) {
            return;
        }
        let next = self.now().after(self.options.timing.tick);
        self.push_at(next, SimEvent::Tick(index, life));
        // Called directly: a timer is no work that is under way.
        self.wake(index, life);
    }

    /// Everything in the inbox, then a tick: so does the real edge.
    pub(super) fn wake(&mut self, index: usize, life: u64) {
        if self.replicas[index].gone(life) || self.replicas[index].paused {
            return;
        }
        self.replicas[index].woken = false;
        let events: Vec<Event> =
            self.replicas[index].inbox.drain(..).chain(std::iter::once(Event::Tick)).collect();
        self.step_engine(index, events);
    }

    fn step_engine(&mut self, index: usize, events: Vec<Event>) {
        let now = self.clock_of(index);
        for event in events.iter().filter(|event| **event != Event::Tick) {
            self.trace(|| format!("replica {index} is told {}", super::trace::event(event)));
            if let Event::Answer { epoch, subject, .. } = event {
                self.replicas[index].under_way.remove(&(*epoch, subject.clone()));
            }
        }
        let life = self.replicas[index].life;
        let Some(engine) = self.replicas[index].engine.as_mut() else { return };
        let again = self.options.step_twice.then(|| (engine.clone(), events.clone()));
        let effects = engine.steps(events, now);
        engine.snapshot().assert_consistent();
        if let Some((mut twin, events)) = again {
            let same = twin.steps(events.clone(), now) == effects && twin == *engine;
            if !same {
                self.checker.found(
                    Invariant::Determinism,
                    format!("the same engine, told the same, decided otherwise: {events:?}"),
                );
            }
        }
        for effect in effects {
            if let Some(subject) = subject_of(&effect.action)
                && !self.replicas[index].under_way.insert((effect.epoch, subject.clone()))
            {
                let action = &effect.action;
                self.checker.found(
                    Invariant::Contract,
                    format!("replica {index} has a request about {subject:?} under way and sends another: {action:?}"),
                );
            }
            self.push(self.options.timing.send, SimEvent::Send(index, life, Box::new(effect)));
        }
    }

    pub(super) fn send(&mut self, index: usize, life: u64, effect: Box<Effect>) {
        let replica = &mut self.replicas[index];
        if replica.gone(life) {
            return;
        }
        if replica.paused {
            replica.held.push(*effect);
            return;
        }
        self.trace(|| format!("replica {index}: {}", super::trace::effect(&effect)));
        match &effect.action {
            Action::StepDown => self.step_down(index),
            Action::RecordEvent(note) => {
                self.told.push(RecordedEvent { at: self.now(), replica: index, note: note.clone() });
            }
            Action::List => {
                self.last_activity = self.now();
                let request = self.options.timing.request;
                self.push(request, SimEvent::List(index, life, effect.epoch, 0, Box::default()));
            }
            _ => {
                let moment = FaultTrigger::of(&effect.action);
                self.request(index, life, effect);
                self.trigger_armed_faults(index, moment);
            }
        }
    }

    fn request(&mut self, index: usize, life: u64, effect: Box<Effect>) {
        if !matches!(effect.action, Action::WriteGroup { .. } | Action::ReadOwner { .. }) {
            self.last_activity = self.now();
        }
        let faults = self.options.faults.clone();
        let request = self.options.timing.request;
        let lost = |effect: &Effect| {
            wire::event_for(effect, ApiResponse::Lost).or_else(|| lease_answer(effect, None))
        };
        let mut reply = ResponseFate::Delivered;
        if faults != super::FaultRates::default() {
            if self.random.percent(faults.request_lost) {
                if let Some(event) = lost(&effect) {
                    self.push(CLIENT_TIMEOUT, SimEvent::Answer(index, life, Box::new(event)));
                }
                return;
            }
            if self.random.percent(faults.late) {
                if let Some(event) = lost(&effect) {
                    self.push(CLIENT_TIMEOUT, SimEvent::Answer(index, life, Box::new(event)));
                }
                let late = DelayRange(2000, 40_000);
                self.push(late, SimEvent::Arrive(index, life, effect, ResponseFate::TooLate));
                return;
            }
            if self.random.percent(faults.refused) {
                reply = ResponseFate::Rejected(if self.random.percent(50) { 500 } else { 429 });
            } else if self.random.percent(faults.conflict) {
                reply = ResponseFate::Rejected(409);
            } else if self.random.percent(faults.answer_lost) {
                reply = ResponseFate::Lost;
            }
        }
        self.push(request, SimEvent::Arrive(index, life, effect, reply));
    }

    pub(super) fn arrive(&mut self, index: usize, life: u64, effect: &Effect, reply: ResponseFate) {
        let event = if effect.action == Action::ReadLease {
            let lease = &self.api.lease;
            let replica = &self.replicas[index];
            let ours = !replica.gone(life)
                && lease.holder.as_deref() == Some(replica.identity())
                && lease.transitions == effect.epoch;
            match reply {
                ResponseFate::Delivered => lease_answer(effect, Some(ours)),
                ResponseFate::Rejected(code) => Some(Event::Answer {
                    epoch: effect.epoch,
                    subject: RequestTarget::Lease,
                    outcome: RequestOutcome::Refused(format!("{code}: fault")),
                }),
                ResponseFate::Lost | ResponseFate::TooLate => lease_answer(effect, None),
            }
        } else {
            let Some(request) = wire::request_for(effect) else { return };
            let response = match reply {
                ResponseFate::Rejected(code) => ApiResponse::Status { code, message: "fault".to_owned() },
                ResponseFate::Delivered | ResponseFate::Lost | ResponseFate::TooLate => {
                    let actor = Actor::Engine(index);
                    let response = self.api.handle(&actor, &request);
                    if reply == ResponseFate::Delivered { response } else { ApiResponse::Lost }
                }
            };
            self.checker.answered(effect, &response);
            wire::event_for(effect, response)
        };
        if reply == ResponseFate::TooLate {
            return;
        }
        let delay = if reply == ResponseFate::Lost { CLIENT_TIMEOUT } else { self.options.timing.answer };
        if let Some(event) = event {
            self.push(delay, SimEvent::Answer(index, life, Box::new(event)));
        }
    }

    pub(super) fn answer(&mut self, index: usize, life: u64, event: Event) {
        if self.replicas[index].gone(life) {
            return;
        }
        let listed = if let Event::Listed(epoch, _) = &event { Some(*epoch) } else { None };
        self.tell_replica(index, event);
        if listed.is_some() {
            self.release(index, listed);
        }
    }

    /// Lets the watches go on that a list has held.
    fn release(&mut self, index: usize, listed: Option<Epoch>) {
        let life = self.replicas[index].life;
        let now = self.now();
        for kind in watched() {
            let stream = self.replicas[index].streams.entry(kind).or_default();
            if stream.held == listed {
                stream.held = None;
                let waiting = stream.queue.len();
                let due = stream.last_due.max(now);
                for _ in 0..waiting {
                    self.push_at(due, SimEvent::Deliver(index, life, kind));
                }
            }
        }
    }

    /// Reads one kind after the other, as a real client has to. The watch of each kind goes on from there:
    /// nothing that is older than the list comes after it, and nothing newer before it.
    pub(super) fn list(
        &mut self,
        index: usize,
        life: u64,
        epoch: Epoch,
        part: usize,
        mut world: Box<ListedObjects>,
    ) {
        if self.replicas[index].gone(life) {
            return;
        }
        let Some(kind) = watched().nth(part) else {
            let event = Event::Listed(epoch, *world);
            self.push(self.options.timing.answer, SimEvent::Answer(index, life, Box::new(event)));
            return;
        };
        self.read_kind(kind, &mut world);
        let stream = self.replicas[index].streams.entry(kind).or_default();
        stream.queue.clear();
        stream.held = Some(epoch);
        self.push(self.options.timing.request, SimEvent::List(index, life, epoch, part + 1, world));
    }

    fn read_kind(&self, kind: ObjectKind, world: &mut ListedObjects) {
        let objects = self.api.list(kind).map(|(_, stored)| stored);
        match kind {
            ObjectKind::Node => {
                world.nodes = Some(objects.filter_map(StoredObject::node).map(|n| Node::clone(n)).collect());
            }
            ObjectKind::Pod => {
                world.pods = Some(objects.filter_map(StoredObject::pod).map(|p| Pod::clone(p)).collect());
            }
            ObjectKind::Group(kind) => {
                let groups = objects.filter_map(StoredObject::group).map(|g| GroupObject::clone(g));
                world.groups.insert(kind, groups.collect());
            }
            ObjectKind::Gang => {
                world.gangs =
                    Some(objects.filter_map(StoredObject::gang).map(|g| GangRecord::clone(g)).collect());
            }
            ObjectKind::PriorityClass => {
                let classes =
                    objects.filter_map(StoredObject::priority_class).map(|c| PriorityClass::clone(c));
                world.priority_classes = Some(classes.collect());
            }
            ObjectKind::Namespace
            | ObjectKind::Deployment
            | ObjectKind::ReplicaSet
            | ObjectKind::StatefulSet
            | ObjectKind::Job => {}
        }
    }

    pub(super) fn relist(&mut self, index: usize, life: u64, kind: ObjectKind) {
        if self.replicas[index].gone(life) {
            return;
        }
        let mut world = ListedObjects::default();
        self.read_kind(kind, &mut world);
        let stream = self.replicas[index].streams.entry(kind).or_default();
        stream.connected = true;
        self.enqueue(index, kind, Event::Relisted(world), false);
    }

    /// Puts a write onto a replica's watch of its kind.
    pub(super) fn watch(&mut self, index: usize, write: &WriteRecord) {
        let kind = write.key.kind;
        if !watched().any(|watched| watched == kind) || !self.replicas[index].alive {
            return;
        }
        let stream = self.replicas[index].streams.entry(kind).or_default();
        if !stream.connected {
            return;
        }
        let gap = self.options.faults.watch_gap;
        if gap > 0 && self.random.percent(gap) {
            let after = Duration::from_millis(self.random.between(10, 20_000));
            self.break_watch(index, kind, after);
            return;
        }
        if let Some(event) = watch_event(write) {
            self.enqueue(index, kind, event, true);
        }
    }

    fn enqueue(&mut self, index: usize, kind: ObjectKind, event: Event, may_lag: bool) {
        let DelayRange(low, high) = self.options.timing.watch;
        let lag = if may_lag { self.random.below(self.options.faults.watch_lag_ms + 1) } else { 0 };
        let due = self.now().after(Duration::from_millis(self.random.between(low, high) + lag));
        let life = self.replicas[index].life;
        let stream = self.replicas[index].streams.entry(kind).or_default();
        stream.last_due = stream.last_due.max(due);
        stream.queue.push_back(event);
        let due = stream.last_due;
        if stream.held.is_none() {
            self.push_at(due, SimEvent::Deliver(index, life, kind));
        }
    }

    pub(super) fn deliver(&mut self, index: usize, life: u64, kind: ObjectKind) {
        if self.replicas[index].gone(life) {
            return;
        }
        // A broken watch has thrown away what was on it; what is on it now has a delivery of its own.
        let stream = self.replicas[index].streams.entry(kind).or_default();
        if stream.held.is_some() {
            return;
        }
        if let Some(event) = stream.queue.pop_front() {
            self.tell_replica(index, event);
        }
    }
}

/// What a watch tells of a write; nothing of an object that cannot be read.
fn watch_event(write: &WriteRecord) -> Option<Event> {
    let typed = match (&write.after, &write.before) {
        (Some(after), _) => &after.typed,
        (None, Some(before)) => &before.typed,
        (None, None) => return None,
    };
    let here = write.after.is_some();
    Some(match typed {
        TypedObject::Node(node) if here => Event::Node(Change::Set(Node::clone(node))),
        TypedObject::Node(node) => Event::Node(Change::Gone(node.name.clone())),
        TypedObject::Pod(pod) if here => Event::Pod(Change::Set(Pod::clone(pod))),
        TypedObject::Pod(pod) => Event::Pod(Change::Gone(pod.uid.clone())),
        TypedObject::Group(group) if here => Event::Group(Change::Set(GroupObject::clone(group))),
        TypedObject::Group(group) => Event::Group(Change::Gone(group.key.clone())),
        TypedObject::PriorityClass(class) if here => {
            Event::PriorityClass(Change::Set(PriorityClass::clone(class)))
        }
        TypedObject::PriorityClass(class) => Event::PriorityClass(Change::Gone(class.name.clone())),
        TypedObject::Gang(gang) if here => Event::Gang(Change::Set(GangRecord::clone(gang))),
        TypedObject::Gang(gang) => Event::Gang(Change::Gone(gang.gang.clone())),
        TypedObject::Unreadable(_) | TypedObject::Other => return None,
    })
}

fn lease_answer(effect: &Effect, ours: Option<bool>) -> Option<Event> {
    let outcome = match ours {
        Some(ours) => RequestOutcome::Lease { ours },
        None => RequestOutcome::Unknown,
    };
    (effect.action == Action::ReadLease).then_some(Event::Answer {
        epoch: effect.epoch,
        subject: RequestTarget::Lease,
        outcome,
    })
}

/// What an answered effect is about.
fn subject_of(action: &Action) -> Option<RequestTarget> {
    Some(match action {
        Action::ReadLease => RequestTarget::Lease,
        Action::CreateGang { gang, .. }
        | Action::ReadGang { gang }
        | Action::WriteGang { gang, .. }
        | Action::DeleteGang { gang, .. } => RequestTarget::Gang(gang.clone()),
        Action::ReadPod { pod } | Action::Fence { pod, .. } | Action::Nominate { pod, .. } => {
            RequestTarget::Pod(pod.uid.clone())
        }
        Action::Lift { pod, .. } => RequestTarget::Pod(pod.uid.clone()),
        Action::WriteGroup { gang, .. } => RequestTarget::Group(gang.clone()),
        Action::ReadOwner { gang, owner } => RequestTarget::Owner(gang.clone(), owner.clone()),
        Action::List | Action::StepDown | Action::Evict { .. } | Action::RecordEvent(_) => return None,
    })
}
