//! The embedded cluster: an API server, a scheduler, kubelets, workload controllers and replicas of our engine, as one
//! discrete-event simulation.
//!
//! Owns the queue of what happens next. Nothing happens outside of it, so the same options and the same operations
//! always come to the same end. It never looks into an engine to decide anything; the checker never does at all.

mod checker;
mod controllers;
mod eviction_check;
mod injected_fault;
mod kubelet;
mod lease;
mod options;
mod placeholder_check;
mod quorum_history;
mod replica;
mod scheduler;
mod trace;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

pub use checker::{Checker, Invariant, Violation};
pub use injected_fault::{FaultTrigger, InjectedFault};
pub use kubelet::PodEnd;
pub use options::{DelayRange, FaultRates, SimOptions, Timing};
pub use replica::{RecordedEvent, Replica};

use super::api::{Actor, AdmissionWebhook, ApiServer, ObjectKey, ObjectKind, WebhookCall, WriteRecord};
use portcullis_core::engine::{Effect, Event, ListedObjects};
use portcullis_core::model::random::Random;
use portcullis_core::model::{Epoch, NodeName, Str, Time};
use scheduler::Scheduler;

/// When every simulation starts: a Saturday at one o'clock.
pub const START: Time = Time(1_795_266_000_000);

/// Something that is going to happen.
#[derive(Clone, Debug)]
enum SimEvent {
    /// A replica looks into its inbox.
    Wake(usize, u64),
    /// The next event of a watch reaches a replica.
    Deliver(usize, u64, ObjectKind),
    /// A broken watch of a replica is read anew.
    Relist(usize, u64, ObjectKind),
    /// An effect leaves a replica.
    Send(usize, u64, Box<Effect>),
    /// A request reaches the API server; it answers or not.
    Arrive(usize, u64, Box<Effect>, ResponseFate),
    /// The kinds of a consistent list are read one after the other, beginning with this number.
    List(usize, u64, Epoch, usize, Box<ListedObjects>),
    /// An answer reaches a replica.
    Answer(usize, u64, Box<Event>),
    /// A replica looks after its lease.
    Lease(usize, u64),
    /// A replica looks at the time.
    Tick(usize, u64),
    /// A killed replica starts again.
    Restart(usize),
    /// A paused replica goes on.
    Resume(usize),
    /// The scheduler takes up the next pod.
    Schedule,
    /// The controllers compare what is with what should be.
    Reconcile,
    /// A kubelet starts a pod.
    Start(ObjectKey, Str),
    /// A kubelet has stopped a pod.
    Stop(ObjectKey, Str),
    /// The pods of a node that has been away for too long are given up.
    GiveUp(NodeName),
}

impl SimEvent {
    /// Whether something is under way, as opposed to a timer that always runs.
    fn is_work(&self) -> bool {
        !matches!(self, Self::Lease(..) | Self::Tick(..) | Self::GiveUp(_))
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

/// The cluster.
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
    /// How many pods the engines have deleted.
    evictions: u64,
    scheduling: bool,
    reconciling: bool,
    told: Vec<RecordedEvent>,
    controller_lines: Vec<String>,
    steps: u64,
    armed_faults: Vec<injected_fault::ArmedFault>,
    trace: Vec<String>,
}

impl Cluster {
    /// An empty cluster, its replicas about to start, with pods admitted through `admit`.
    pub fn new(options: SimOptions, seed: u64, admit: Option<WebhookCall>) -> Self {
        let mut random = Random::new(seed);
        let api = ApiServer::new(START, AdmissionWebhook::new(admit));
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
            told: Vec::new(),
            controller_lines: Vec::new(),
            steps: 0,
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

    /// What time it is.
    pub fn now(&self) -> Time {
        self.api.now
    }

    /// How the cluster was set up.
    pub fn options(&self) -> &SimOptions {
        &self.options
    }

    /// How many things have happened so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The replicas of the engine.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// The replica that holds the lease and knows it, if it is up.
    pub fn leader(&self) -> Option<usize> {
        self.replicas.iter().position(|replica| {
            replica.running()
                && replica.leads()
                && self.api.lease.holder.as_deref() == Some(replica.identity())
        })
    }

    /// What the engines have told since the last call.
    pub fn take_told(&mut self) -> Vec<RecordedEvent> {
        std::mem::take(&mut self.told)
    }

    /// What controllers could not create since the last call, as they would say it in an event.
    pub fn take_controller_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.controller_lines)
    }

    /// Rules that have been broken since the last call.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        for problem in self.api.webhook.violations.drain(..) {
            self.checker.found(Invariant::Webhook, problem);
        }
        self.checker.take()
    }

    /// Sees to what was written from outside, so that watchers and controllers learn of it. To be called after every
    /// use of [`Self::api`].
    pub fn settle_writes(&mut self) {
        for write in self.api.take_writes() {
            // A courtesy comes when all has been quiet for a while, and disturbs nothing.
            if !courtesy(&write) {
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

    /// Lets time pass, with everything that happens in it.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now().after(time);
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            self.step();
        }
        self.api.now = end;
    }

    /// Lets time pass until nothing is under way any more and a leader, where one is possible, has looked at
    /// everything; true when that came to be within `most`.
    pub fn settle(&mut self, most: Duration) -> bool {
        let (quiet, evictions) = (self.options.timing.quiet, self.evictions);
        // What a timeout deletes and a controller makes again comes and goes for ever, each gang at its own times.
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

    /// The next thing happens; false when there is none.
    pub fn step(&mut self) -> bool {
        let Some(((at, _), happening)) = self.queue.pop_first() else { return false };
        if happening.is_work() {
            self.work -= 1;
        }
        self.api.now = self.api.now.max(at);
        self.steps += 1;
        match happening {
            SimEvent::Wake(replica, life) => self.wake(replica, life),
            SimEvent::Deliver(replica, life, kind) => self.deliver(replica, life, kind),
            SimEvent::Relist(replica, life, kind) => self.relist(replica, life, kind),
            SimEvent::Send(replica, life, effect) => self.send(replica, life, effect),
            SimEvent::Arrive(replica, life, effect, reply) => self.arrive(replica, life, &effect, reply),
            SimEvent::List(replica, life, epoch, part, world) => {
                self.list(replica, life, epoch, part, world);
            }
            SimEvent::Answer(replica, life, event) => self.answer(replica, life, *event),
            SimEvent::Lease(replica, life) => self.look_after_lease(replica, life),
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

    /// No more faults from now on: every replica is up, every watch is read anew, every clock is right.
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

    /// A look at everything once nothing is under way: whoever could have started has started.
    pub fn check_liveness(&mut self) {
        self.checker.check_liveness(&self.api);
    }

    /// Cordons a node, or lets pods onto it again.
    pub fn cordon(&mut self, node: &str, cordoned: bool) -> bool {
        self.change_node(node, |object| object["spec"]["unschedulable"] = json!(cordoned))
    }

    /// Changes a node; false when there is no such node.
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
            ObjectKind::Deployment | ObjectKind::ReplicaSet | ObjectKind::StatefulSet | ObjectKind::Job => {
                self.wake_controllers()
            }
            ObjectKind::Group(_) | ObjectKind::Gang | ObjectKind::PriorityClass | ObjectKind::Namespace => {}
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

/// Whether an engine told a group how its gang stands.
fn courtesy(write: &WriteRecord) -> bool {
    matches!(write.key.kind, ObjectKind::Group(_)) && matches!(write.actor, Actor::Engine(_))
}
