//! The simulated cluster: an API server, a scheduler, kubelets, workload controllers and replicas of the
//! engine, as one discrete-event simulation.
//!
//! Owns the event queue. Everything happens through the queue, so the same options and the same operations
//! always have the same result. The cluster never decides anything from the state of an engine. The checker
//! reads API objects, and of the leader only the holder of the head-of-line reservation.

mod checker;
mod controllers;
mod election;
mod eviction_check;
mod injected_fault;
mod kubelet;
mod options;
mod placeholder_check;
mod quorum_history;
mod replica;
mod reservation_check;
mod scheduler;
mod scheduler_pods;
mod trace;
mod watches;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

pub use checker::{Checker, Invariant, Violation};
pub use injected_fault::{FaultTrigger, InjectedFault};
pub use kubelet::PodEnd;
pub use options::{DelayRange, FaultRates, SimOptions, Timing};
pub use replica::{RecordedEvent, Replica};

use super::api::{Actor, AdmissionWebhook, ApiServer, ObjectKey, ObjectKind, WebhookCall, WriteRecord};
use election::{ElectionAnswer, LeaseFault};
use portcullis_core::engine::{Effect, Engine, Event};
use portcullis_core::model::random::Random;
use portcullis_core::model::{NodeName, Str, Time};
use portcullis_edge::ElectionRequest;
use scheduler::Scheduler;
use watches::WatchMessage;

/// Start time of every simulation: a Saturday at one o'clock.
pub const START: Time = Time(1_795_266_000_000);

/// An event of the simulation.
#[derive(Clone, Debug)]
enum SimEvent {
    /// A replica processes its inbox.
    Wake(usize, u64),
    /// A message or timer of the watches of one term of a replica.
    Watch(usize, u64, u64, Box<WatchMessage>),
    /// An effect leaves a replica.
    Send(usize, u64, Box<Effect>),
    /// A request reaches the API server.
    Arrive(usize, u64, Box<Effect>, ResponseFate),
    /// A response reaches a replica.
    Answer(usize, u64, Box<Event>),
    /// The election of a replica runs what is due. Only the poll that was scheduled last counts.
    Election(usize, u64, u64),
    /// A request of an election reaches the API server, with the identity of its sender and the time that
    /// the response takes.
    ElectionRequest(usize, u64, String, Box<ElectionRequest>, LeaseFault, Option<Duration>),
    /// The response to a request of an election reaches the replica.
    ElectionAnswer(usize, u64, Box<ElectionAnswer>),
    /// A replica processes its timers.
    Tick(usize, u64),
    /// A killed replica restarts.
    Restart(usize),
    /// A paused replica continues.
    Resume(usize),
    /// The scheduler processes the next pod.
    Schedule,
    /// The workload controllers reconcile.
    Reconcile,
    /// A kubelet starts a pod.
    Start(ObjectKey, Str),
    /// A kubelet has stopped a pod.
    Stop(ObjectKey, Str),
    /// The pods of a node that is not ready for too long are deleted.
    GiveUp(NodeName),
}

impl SimEvent {
    /// Whether the event counts as activity. Recurring timers do not.
    fn is_work(&self) -> bool {
        match self {
            Self::Election(..)
            | Self::ElectionRequest(..)
            | Self::ElectionAnswer(..)
            | Self::Tick(..)
            | Self::GiveUp(_) => false,
            Self::Watch(_, _, _, message) => !message.is_timer(),
            _ => true,
        }
    }

    /// The replica that handles this event.
    fn receiver(&self) -> Option<usize> {
        match self {
            Self::Watch(replica, _, _, message) => message.reaches_replica().then_some(*replica),
            Self::Election(replica, ..) | Self::ElectionAnswer(replica, ..) => Some(*replica),
            _ => None,
        }
    }
}

/// What happens to the response of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseFate {
    /// The response arrives.
    Delivered,
    /// The request is carried out, and the response is lost.
    Lost,
    /// The response arrives after the sender's timeout.
    TooLate,
    /// The request is rejected with this code and not carried out.
    Rejected(u16),
}

/// The simulated cluster.
pub struct Cluster {
    /// The API server.
    pub api: ApiServer,
    options: SimOptions,
    replicas: Vec<Replica>,
    scheduler: Scheduler,
    checker: Checker,
    random: Random,
    queue: BTreeMap<(Time, u64), SimEvent>,
    sequence: u64,
    work: usize,
    last_activity: Time,
    /// Number of pods that the engines have deleted.
    evictions: u64,
    scheduling: bool,
    reconciling: bool,
    recorded_events: Vec<RecordedEvent>,
    controller_lines: Vec<String>,
    steps: u64,
    connections: u64,
    armed_faults: Vec<injected_fault::ArmedFault>,
    trace: Vec<String>,
}

impl Cluster {
    /// An empty cluster whose replicas are about to start. Pods are sent to the webhook `admit`.
    pub fn new(options: SimOptions, seed: u64, admit: Option<WebhookCall>) -> Self {
        let mut random = Random::new(seed);
        let mut api = ApiServer::new(START, AdmissionWebhook::new(admit));
        api.history_limit = options.timing.history_limit;
        let mut cluster = Self {
            api,
            scheduler: Scheduler::new(options.random_ties.then(|| random.fork())),
            replicas: Vec::new(),
            checker: Checker::new(options.settings.clone()),
            random,
            queue: BTreeMap::new(),
            sequence: 0,
            work: 0,
            last_activity: START,
            evictions: 0,
            scheduling: false,
            reconciling: false,
            recorded_events: Vec::new(),
            controller_lines: Vec::new(),
            steps: 0,
            connections: 0,
            armed_faults: Vec::new(),
            trace: Vec::new(),
            options,
        };
        for index in 0..cluster.options.replicas {
            cluster.replicas.push(Replica::new(index));
            cluster.start_replica(index);
        }
        cluster
    }

    /// Current time.
    pub fn now(&self) -> Time {
        self.api.now
    }

    /// The options of the cluster.
    pub fn options(&self) -> &SimOptions {
        &self.options
    }

    /// Number of events so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The replicas of the engine.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// The running replica that holds the lease and knows it.
    pub fn leader(&self) -> Option<usize> {
        self.replicas.iter().position(|replica| {
            replica.running() && replica.leads() && self.api.lease_holder() == Some(replica.identity())
        })
    }

    /// Events that the engines recorded since the last call.
    pub fn take_recorded_events(&mut self) -> Vec<RecordedEvent> {
        std::mem::take(&mut self.recorded_events)
    }

    /// Errors of the workload controllers since the last call, in the words of their events.
    pub fn take_controller_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.controller_lines)
    }

    /// Invariants violated since the last call.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        for problem in self.api.webhook.violations.drain(..) {
            self.checker.found(Invariant::Webhook, problem);
        }
        self.checker.take_violations()
    }

    /// Notifies watches and controllers of writes from outside. Call it after every use of [`Self::api`].
    pub fn settle_writes(&mut self) {
        for write in self.api.take_writes() {
            // Renewals of the lease never end and do not count as activity.
            if write.key.kind == ObjectKind::Lease {
                continue;
            }
            // The group status sync runs after a quiet period and does not count as activity.
            if !is_group_status_sync(&write) {
                self.last_activity = self.now();
            }
            let evicted = write.key.kind == ObjectKind::Pod && write.after.is_none();
            self.evictions += u64::from(evicted && matches!(write.actor, Actor::Engine(_)));
            self.checker.observe(&write, &self.api);
            self.trace_write(&write);
            self.publish(&write);
            self.react(&write);
        }
        self.checker.after_step(&self.api);
    }

    /// Advances the time and processes all events in between.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now().after(time);
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            self.step();
        }
        self.api.now = end;
    }

    /// Advances the time until there is no activity and a leader, where one is possible, has processed
    /// everything. Returns whether this happened within `most`.
    pub fn settle(&mut self, most: Duration) -> bool {
        let (quiet, evictions) = (self.options.timing.quiet, self.evictions);
        // Where a timeout deletes pods and a controller recreates them, the activity never ends. Each gang
        // has its own rhythm.
        self.settle_for(quiet, most) || (self.evictions > evictions + 2 && self.settle_for(quiet / 2, most))
    }

    fn settle_for(&mut self, time: Duration, most: Duration) -> bool {
        let end = self.now().after(most);
        loop {
            let possible = self.replicas.iter().any(Replica::running);
            let led = !possible || self.leader().is_some();
            let quiet = self.now() > self.last_activity.after(time);
            if self.work == 0 && led && quiet {
                return true;
            }
            if self.queue.first_key_value().is_none_or(|((at, _), _)| *at > end) {
                return false;
            }
            self.step();
        }
    }

    /// Processes the next event; false when there is none.
    pub fn step(&mut self) -> bool {
        let Some(((at, _), happening)) = self.queue.pop_first() else { return false };
        if happening.is_work() {
            self.work -= 1;
        }
        self.api.now = self.api.now.max(at);
        self.steps += 1;
        // A paused process handles no events. They wait in its sockets and timers until it resumes.
        if let Some(index) = happening.receiver()
            && self.replicas[index].paused
        {
            self.replicas[index].stalled.push(happening);
            return true;
        }
        match happening {
            SimEvent::Wake(replica, life) => self.wake(replica, life),
            SimEvent::Watch(replica, life, term, message) => self.deliver(replica, life, term, *message),
            SimEvent::Send(replica, life, effect) => self.send(replica, life, effect),
            SimEvent::Arrive(replica, life, effect, reply) => self.arrive(replica, life, &effect, reply),
            SimEvent::Answer(replica, life, event) => self.answer(replica, life, *event),
            SimEvent::Election(replica, life, poll) => self.poll_election(replica, life, poll),
            SimEvent::ElectionRequest(replica, life, identity, request, fault, back) => {
                self.election_request(replica, life, &identity, &request, fault, back);
            }
            SimEvent::ElectionAnswer(replica, life, answer) => self.election_answer(replica, life, *answer),
            SimEvent::Tick(replica, life) => self.tick(replica, life),
            SimEvent::Restart(replica) => self.restart(replica),
            SimEvent::Resume(replica) => self.resume(replica),
            SimEvent::Schedule => self.schedule(),
            SimEvent::Reconcile => self.reconcile(),
            SimEvent::Start(key, uid) => self.start_pod(&key, &uid),
            SimEvent::Stop(key, uid) => self.stop_pod(&key, &uid),
            SimEvent::GiveUp(node) => self.give_up(&node),
        }
        self.settle_writes();
        true
    }

    /// Ends all faults: every replica runs, every watch is restarted, every clock is right.
    pub fn stop_faults(&mut self) {
        self.options.faults = FaultRates::default();
        self.armed_faults.clear();
        for index in 0..self.replicas.len() {
            self.resume(index);
            self.restart(index);
            self.replicas[index].clock_ahead_ms = 0;
        }
        self.settle_writes();
    }

    /// Checks liveness after the cluster has settled: every gang that fits has started.
    pub fn check_liveness(&mut self) {
        let leader = self.leader().and_then(|index| self.replicas[index].engine());
        let holder = leader.and_then(Engine::head_of_line_holder).cloned();
        let refused = self.scheduler.refused_nodes();
        self.checker.check_liveness(&self.api, holder.as_ref(), refused);
    }

    /// Cordons or uncordons a node.
    pub fn cordon(&mut self, node: &str, cordoned: bool) -> bool {
        self.change_node(node, |object| object["spec"]["unschedulable"] = json!(cordoned))
    }

    /// Changes a node; false when it does not exist.
    pub fn change_node(&mut self, node: &str, change: impl FnOnce(&mut serde_json::Value)) -> bool {
        let key = ObjectKey::new(ObjectKind::Node, "", node);
        let Some(stored) = self.api.get(&key) else { return false };
        let uid = stored.uid.clone();
        self.api.set_status(&Actor::User, &key, &uid, change);
        self.settle_writes();
        true
    }

    fn publish(&mut self, write: &WriteRecord) {
        for index in 0..self.replicas.len() {
            self.watch(index, write);
        }
    }

    fn react(&mut self, write: &WriteRecord) {
        match write.key.kind {
            ObjectKind::Pod => {
                self.on_pod(write);
                self.wake_scheduler();
                self.wake_controllers();
            }
            ObjectKind::Node => {
                self.on_node(write);
                self.wake_scheduler();
            }
            ObjectKind::Namespace => self.wake_scheduler(),
            ObjectKind::Deployment | ObjectKind::ReplicaSet | ObjectKind::StatefulSet | ObjectKind::Job => {
                self.wake_controllers();
            }
            ObjectKind::Group(_) | ObjectKind::Gang | ObjectKind::PriorityClass | ObjectKind::Lease => {}
        }
    }

    fn push(&mut self, delay: DelayRange, happening: SimEvent) {
        let millis = self.random.between(delay.0, delay.1);
        self.push_at(self.now().after(Duration::from_millis(millis)), happening);
    }

    fn push_at(&mut self, at: Time, happening: SimEvent) {
        if happening.is_work() {
            self.work += 1;
        }
        self.sequence += 1;
        self.queue.insert((at, self.sequence), happening);
    }
}

/// Whether this is a write of a group status by an engine.
fn is_group_status_sync(write: &WriteRecord) -> bool {
    matches!(write.key.kind, ObjectKind::Group(_)) && matches!(write.actor, Actor::Engine(_))
}
