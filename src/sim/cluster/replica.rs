//! One replica: a process with its own engine, inbox, watches and clock. The simulation can kill, pause and
//! restart it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::watches::LeaderTerm;
use super::{Cluster, DelayRange, FaultTrigger, Invariant, ResponseFate, SimEvent};
use crate::api::Actor;
use crate::planning_comparison::PlanningComparison;
use portcullis_core::api::ApiResponse;
use portcullis_core::engine::wire;
use portcullis_core::engine::{
    Action, Change, Effect, Engine, Event, GangEvent, RequestOutcome, RequestTarget,
};
use portcullis_core::model::{Epoch, Time};
use portcullis_edge::{Election, highest_epoch};

/// How long a client waits for a response, in milliseconds.
const CLIENT_TIMEOUT: DelayRange = DelayRange(3000, 10_000);

/// An event that an engine recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Time of the event.
    pub at: Time,
    /// Index of the replica.
    pub replica: usize,
    /// The event.
    pub note: GangEvent,
}

/// A replica.
#[derive(Clone, Debug)]
pub struct Replica {
    identity: String,
    /// Number of starts. A replica ignores messages to an earlier life.
    pub(super) life: u64,
    alive: bool,
    pub(super) paused: bool,
    engine: Option<Engine>,
    inbox: VecDeque<Event>,
    woken: bool,
    pub(super) term: Option<LeaderTerm>,
    /// Number of terms as leader, over all lives.
    pub(super) terms: u64,
    /// Simulation events that reached the replica while it was paused.
    pub(super) stalled: Vec<SimEvent>,
    pub(super) election: Option<Election>,
    /// The poll of the election that was scheduled last.
    pub(super) election_poll: u64,
    /// Whether a request of the election is in flight.
    pub(super) election_busy: bool,
    /// The highest epoch that the replica has seen.
    pub(super) epoch_floor: Epoch,
    /// Effects that the engine returned and that the replica sends when it resumes.
    held: Vec<Effect>,
    under_way: BTreeSet<(Epoch, RequestTarget)>,
    pub(super) clock_ahead_ms: u64,
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
            term: None,
            terms: 0,
            stalled: Vec::new(),
            election: None,
            election_poll: 0,
            election_busy: false,
            epoch_floor: Epoch::default(),
            held: Vec::new(),
            under_way: BTreeSet::new(),
            clock_ahead_ms: 0,
        }
    }

    /// The identity that the replica writes into the lease. Every life has a different one.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether the replica is alive and not paused.
    pub fn running(&self) -> bool {
        self.alive && !self.paused
    }

    /// Whether the election of the replica holds the lease, as far as the replica knows.
    pub fn leads(&self) -> bool {
        self.election.as_ref().is_some_and(|election| election.epoch().is_some())
    }

    /// The engine; `None` while the replica is dead.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    pub(super) fn alive(&self) -> bool {
        self.alive
    }

    pub(super) fn has_ended(&self, life: u64) -> bool {
        !self.alive || self.life != life
    }
}

impl Cluster {
    pub(super) fn start_replica(&mut self, index: usize) {
        let engine = Engine::new(self.options.settings.clone());
        let (random, page_limit) = (self.random.fork(), self.options.timing.page_limit);
        let replica = &mut self.replicas[index];
        replica.life += 1;
        let life = replica.life;
        *replica = Replica {
            identity: format!("portcullis-{index}_{life}"),
            life,
            alive: true,
            engine: Some(engine),
            election: Some(Election::new(format!("portcullis-{index}_{life}"), page_limit, random)),
            terms: replica.terms,
            clock_ahead_ms: replica.clock_ahead_ms,
            ..Replica::new(index)
        };
        let after = |millis| Duration::from_millis(millis);
        let offset = u64::try_from(index).unwrap_or(0) * 100;
        self.push_at(self.now().after(after(10 + offset)), SimEvent::Election(index, life, 0));
        self.push_at(self.now().after(after(500 + offset)), SimEvent::Tick(index, life));
    }

    /// Kills a replica. It loses its state, and requests that it has sent still arrive. It restarts after
    /// `restart_after`.
    pub fn kill(&mut self, index: usize, restart_after: Duration) {
        let replica = &mut self.replicas[index];
        if !replica.alive {
            return;
        }
        replica.alive = false;
        replica.paused = false;
        replica.engine = None;
        replica.election = None;
        replica.term = None;
        replica.stalled.clear();
        self.push_at(self.now().after(restart_after), SimEvent::Restart(index));
    }

    /// Pauses a replica, as SIGSTOP does. It resumes with its old state after `resume_after`.
    pub fn pause(&mut self, index: usize, resume_after: Duration) {
        let replica = &mut self.replicas[index];
        if !replica.running() {
            return;
        }
        replica.paused = true;
        self.push_at(self.now().after(resume_after), SimEvent::Resume(index));
    }

    /// Sets a replica's clock ahead of the others.
    pub fn jump_clock(&mut self, index: usize, ahead: Duration) {
        self.replicas[index].clock_ahead_ms = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
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
        let stalled = std::mem::take(&mut self.replicas[index].stalled);
        for event in stalled {
            // The election may act before or after the engine has acted on its last state.
            let late = match event {
                SimEvent::Election(..) | SimEvent::ElectionAnswer(..) => self.random.between(0, 200),
                _ => 0,
            };
            self.push_at(self.now().after(Duration::from_millis(late)), event);
        }
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
        if self.replicas[index].has_ended(life) {
            return;
        }
        let next = self.now().after(self.options.timing.tick);
        self.push_at(next, SimEvent::Tick(index, life));
        // Called directly and not queued: the queue counts its entries as activity, and a timer is none.
        self.wake(index, life);
    }

    /// Passes all events in the inbox to the engine and then a tick, as the production edge does.
    pub(super) fn wake(&mut self, index: usize, life: u64) {
        if self.replicas[index].has_ended(life) || self.replicas[index].paused {
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
            self.trace(|| format!("replica {index} receives {}", super::trace::event(event)));
            if let Some(epoch) = epoch_in(event) {
                let floor = &mut self.replicas[index].epoch_floor;
                *floor = (*floor).max(epoch);
            }
            if let Event::Answer { epoch, subject, .. } = event {
                self.replicas[index].under_way.remove(&(*epoch, subject.clone()));
            }
        }
        let life = self.replicas[index].life;
        let Some(engine) = self.replicas[index].engine.as_mut() else { return };
        let again = self.options.step_twice.then(|| (engine.clone(), events.clone()));
        let mut comparison = PlanningComparison::default();
        let effects = if cfg!(debug_assertions) {
            engine.steps_observed(events, now, &mut comparison)
        } else {
            engine.steps(events, now)
        };
        for problem in comparison.problems {
            self.checker.found(Invariant::PlanningShortcut, problem);
        }
        engine.assert_consistent();
        if let Some((mut twin, events)) = again {
            let same = twin.steps(events.clone(), now) == effects && twin == *engine;
            if !same {
                self.checker.found(
                    Invariant::Determinism,
                    format!("the same engine state and events gave different effects: {events:?}"),
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
        if replica.has_ended(life) {
            return;
        }
        if replica.paused {
            replica.held.push(*effect);
            return;
        }
        self.trace(|| format!("replica {index}: {}", super::trace::effect(&effect)));
        match &effect.action {
            Action::StepDown => self.step_down(index, effect.epoch),
            Action::RecordEvent(note) => {
                self.recorded_events.push(RecordedEvent {
                    at: self.now(),
                    replica: index,
                    note: note.clone(),
                });
            }
            Action::List => self.begin_term(index, effect.epoch),
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
                let codes = [500, 429, 403];
                reply = ResponseFate::Rejected(*self.random.pick(&codes).unwrap_or(&500));
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
            let replica = &self.replicas[index];
            let ours = !replica.has_ended(life)
                && self.api.lease_holder() == Some(replica.identity())
                && self.api.lease_transitions() == effect.epoch;
            match reply {
                ResponseFate::Delivered => lease_answer(effect, Some(ours)),
                ResponseFate::Rejected(code) => Some(Event::Answer {
                    epoch: effect.epoch,
                    subject: RequestTarget::Lease,
                    outcome: RequestOutcome::Failed(format!("{code}: fault")),
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
        if self.replicas[index].has_ended(life) {
            return;
        }
        self.tell_replica(index, event);
    }
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

/// The object or target that a request of an effect is about; `None` without an answer.
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
        Action::Lift { pod, .. } | Action::TryLift { pod, .. } => RequestTarget::Pod(pod.uid.clone()),
        Action::WriteGroup { gang, .. } => RequestTarget::Group(gang.clone()),
        Action::ReadOwner { gang, owner } => RequestTarget::Owner(gang.clone(), owner.clone()),
        Action::List | Action::StepDown | Action::Evict { .. } | Action::RecordEvent(_) => return None,
    })
}

/// The highest epoch in the gangs of an event.
fn epoch_in(event: &Event) -> Option<Epoch> {
    match event {
        Event::Gang(Change::Set(record)) => Some(highest_epoch(&record.status)),
        Event::Answer { outcome: RequestOutcome::Gang(record), .. } => Some(highest_epoch(&record.status)),
        Event::Listed(_, listed) => {
            listed.gangs.iter().flatten().map(|record| highest_epoch(&record.status)).max()
        }
        _ => None,
    }
}
