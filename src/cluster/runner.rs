//! The loop that owns the engine: events go in one after the other, effects go out.
//!
//! Invariants:
//! - The engine receives only events of the current term. Each term has its own channels, so the events of an
//!   older term are dropped.
//! - A replica that does not lead watches nothing for the engine.
//! - The engine has its own thread, so a large plan never delays a review.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use portcullis_core::engine::{Action, Change, Effect, Engine, EngineSettings, Event};
use portcullis_core::model::{Epoch, Time};
use portcullis_core::planner::PlanningCase;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use portcullis_edge::{TakeoverResult, WatchEvent, WatchedKey, WatchedObject, engine_event};

use super::capacity::CapacityReporter;
use super::effects::{EffectSender, action_name};
use super::event_recorder::EventRecorder;
use super::failpoint::{Side, reached};
use super::gangs::{GangCounts, GangUids};
use super::watch::WatchDriver;
use crate::telemetry::ClusterMetrics;

/// Watch events that may wait for the engine. When the queue is full, reading of the watches pauses.
const MAX_QUEUED_WATCH_EVENTS: usize = 4096;
/// Inputs after which the engine plans, even if more inputs wait.
const MAX_INPUTS_PER_STEP: usize = 1000;
/// Longest sleep of the loop. The time of day may jump, so timers are checked at least this often.
const MAX_SLEEP: Duration = Duration::from_secs(5);
/// Longest pause after planning.
const MAX_PLANNING_PAUSE: Duration = Duration::from_millis(100);

/// A term: the time during which this replica leads under one epoch.
struct LeaderTerm {
    epoch: Epoch,
    /// Aborts the takeover.
    takeover: AbortHandle,
    /// The result of the takeover; `None` after it was received.
    listed: Option<oneshot::Receiver<TakeoverResult>>,
    /// The events of the watches, which start after the takeover.
    watch_events: mpsc::Receiver<WatchEvent>,
    watch_sender: mpsc::Sender<WatchEvent>,
}

impl Drop for LeaderTerm {
    fn drop(&mut self) {
        self.takeover.abort();
    }
}

/// The engine loop and its channels.
pub(super) struct EngineLoop {
    pub watches: WatchDriver,
    pub metrics: ClusterMetrics,
    pub effects: EffectSender,
    pub recorder: EventRecorder,
    pub gang_uids: GangUids,
    pub gang_counts: GangCounts,
    pub lease_events: mpsc::UnboundedReceiver<Event>,
    pub answers: mpsc::UnboundedReceiver<Event>,
    pub step_downs: mpsc::UnboundedSender<Epoch>,
    pub capacity: CapacityReporter,
}

/// An input of the loop.
enum LoopInput {
    /// The lease was acquired or lost.
    Lease(Event),
    /// The answer to an effect.
    Answer(Event),
    /// The end of the takeover of this epoch.
    Listed(Epoch, TakeoverResult),
    /// An event of a watch.
    Watch(WatchEvent),
    /// A timer.
    Time,
    /// The process shuts down.
    Stop,
}

impl EngineLoop {
    /// Runs until `stop` is sent or its sender is dropped.
    pub(super) async fn run(mut self, settings: EngineSettings, mut stop: oneshot::Receiver<()>) {
        let mut engine = Engine::new(settings);
        let mut term = None;
        let mut pause = PlanningPause::default();
        let mut unreported = true;
        loop {
            let sleep = pause.sleep(engine.next_timer());
            let sleep = match self.capacity.time_until_due(&engine, unreported) {
                Some(due) => sleep.min(due),
                None => sleep,
            };
            let mut input = self.next_input(&mut term, &mut stop, sleep).await;
            let started = Instant::now();
            let mut taken = 0;
            let mut queued = Vec::new();
            loop {
                match input {
                    LoopInput::Stop => return,
                    LoopInput::Time => {}
                    other => {
                        pause.pending = true;
                        unreported = true;
                        self.take(other, &mut queued, &mut engine, &mut term);
                    }
                }
                taken += 1;
                match self.queued_input(&mut term) {
                    Some(next) if taken < MAX_INPUTS_PER_STEP => input = next,
                    _ => break,
                }
            }
            if pause.may_tick(engine.next_timer()) {
                let before = Instant::now();
                queued.push(Event::Tick);
                self.step(&mut engine, &mut term, &mut queued);
                pause.ticked(before, engine.next_timer());
                let backlog = term.as_ref().map_or(0, |term| term.watch_events.len());
                self.metrics.observe_engine_step(started.elapsed(), backlog);
            } else {
                self.step(&mut engine, &mut term, &mut queued);
            }
            if self.capacity.report(&engine, unreported) {
                unreported = false;
            }
        }
    }

    async fn next_input(
        &mut self,
        term: &mut Option<LeaderTerm>,
        stop: &mut oneshot::Receiver<()>,
        sleep: Duration,
    ) -> LoopInput {
        let of_term = async {
            match term {
                None => std::future::pending().await,
                Some(term) => term.next().await,
            }
        };
        tokio::select! {
            biased;
            _ = stop => LoopInput::Stop,
            Some(event) = self.lease_events.recv() => LoopInput::Lease(event),
            Some(event) = self.answers.recv() => LoopInput::Answer(event),
            news = of_term => news,
            () = tokio::time::sleep(sleep) => LoopInput::Time,
        }
    }

    /// An input that has arrived already.
    fn queued_input(&mut self, term: &mut Option<LeaderTerm>) -> Option<LoopInput> {
        if let Ok(event) = self.lease_events.try_recv() {
            return Some(LoopInput::Lease(event));
        }
        if let Ok(event) = self.answers.try_recv() {
            return Some(LoopInput::Answer(event));
        }
        term.as_mut().and_then(|term| term.watch_events.try_recv().ok()).map(LoopInput::Watch)
    }

    /// Queues an input for the engine. The start and the end of a term reach the engine at once.
    fn take(
        &mut self,
        input: LoopInput,
        queued: &mut Vec<Event>,
        engine: &mut Engine,
        term: &mut Option<LeaderTerm>,
    ) {
        match input {
            LoopInput::Lease(event) => {
                self.step(engine, term, queued);
                // Events of the older term are dropped with its channels.
                self.end_term(term);
                queued.push(event);
                self.step(engine, term, queued);
            }
            LoopInput::Answer(event) => {
                self.gang_counts.answered(&event);
                queued.push(event);
            }
            LoopInput::Listed(epoch, TakeoverResult { listed, gang_uids, watchers }) => {
                tracing::info!(
                    %epoch,
                    gangs = listed.gangs.as_ref().map_or(0, Vec::len),
                    pods = listed.pods.as_ref().map_or(0, Vec::len),
                    nodes = listed.nodes.as_ref().map_or(0, Vec::len),
                    groups = listed.groups.values().map(Vec::len).sum::<usize>(),
                    "takeover complete: every kind is listed"
                );
                for (gang, uid) in &gang_uids {
                    self.gang_uids.set(gang, uid);
                }
                self.gang_counts.listed(&listed);
                queued.push(Event::Listed(epoch, listed));
                self.step(engine, term, queued);
                // The watches start after the engine has the lists, so each change comes after the object it
                // changes.
                if let Some(term) = term {
                    for watcher in watchers {
                        let (watches, sender) = (self.watches.clone(), term.watch_sender.clone());
                        tokio::spawn(async move { watches.follow(watcher, sender).await });
                    }
                }
            }
            LoopInput::Watch(WatchEvent::Changed(change)) => {
                match &change {
                    Change::Set(WatchedObject::Gang(record, uid)) => self.gang_uids.set(&record.gang, uid),
                    Change::Gone(WatchedKey::Gang(gang)) => self.gang_uids.remove(gang),
                    _ => {}
                }
                if let Some(event) = engine_event(change) {
                    self.gang_counts.changed(&event);
                    queued.push(event);
                }
            }
            LoopInput::Watch(WatchEvent::ListComplete) | LoopInput::Time | LoopInput::Stop => {}
        }
    }

    /// Passes the queued events to the engine and starts its effects.
    fn step(&mut self, engine: &mut Engine, term: &mut Option<LeaderTerm>, queued: &mut Vec<Event>) {
        let violations = engine.invariant_violations();
        let (refuted, _) = engine.refuted_plans();
        for effect in engine.steps(queued.drain(..), now()) {
            self.perform(effect, term);
        }
        self.metrics.count_invariant_violations(engine.invariant_violations().saturating_sub(violations));
        if let (number, Some(case)) = engine.refuted_plans()
            && number > refuted
        {
            self.report_refuted_plans(number - refuted, case);
        }
    }

    /// Logs, counts and keeps a plan that the check of plans has refuted.
    fn report_refuted_plans(&self, number: u64, case: &PlanningCase) {
        let gang = case.gangs.first().map(|request| request.gang.to_string()).unwrap_or_default();
        let problem = case.violations.join("; ");
        tracing::error!(
            gang,
            problem,
            "a plan was withheld: the check of plans refuted it, see /refuted-plan"
        );
        match serde_json::to_string(case) {
            Ok(case) => self.metrics.count_refuted_plans(number, case.into()),
            Err(error) => tracing::error!(%error, "the refuted plan cannot be written as JSON"),
        }
    }

    fn perform(&mut self, effect: Effect, term: &mut Option<LeaderTerm>) {
        match &effect.action {
            Action::List => self.begin_term(effect.epoch, term),
            Action::StepDown => {
                self.end_term(term);
                // The election is gone when the process ends.
                let _ = self.step_downs.send(effect.epoch);
            }
            Action::RecordEvent(note) => {
                reached(Side::Before, action_name(&effect.action));
                self.gang_counts.recorded(note);
                self.recorder.record(note.clone());
            }
            _ => self.effects.send(effect),
        }
    }

    /// Starts a term with a takeover.
    fn begin_term(&mut self, epoch: Epoch, term: &mut Option<LeaderTerm>) {
        reached(Side::Before, "List");
        let (sender, listed) = oneshot::channel();
        let (watch_sender, watch_events) = mpsc::channel(MAX_QUEUED_WATCH_EVENTS);
        let watches = self.watches.clone();
        let takeover = tokio::spawn(async move {
            let _ = sender.send(watches.take_over().await);
        });
        let takeover = takeover.abort_handle();
        *term = Some(LeaderTerm { epoch, takeover, listed: Some(listed), watch_events, watch_sender });
    }

    /// Ends the term. Its watches end, because their receiver is dropped.
    fn end_term(&mut self, term: &mut Option<LeaderTerm>) {
        *term = None;
        self.gang_counts.clear();
        self.gang_uids.clear();
    }
}

impl LeaderTerm {
    async fn next(&mut self) -> LoopInput {
        if let Some(listed) = &mut self.listed {
            match listed.await {
                Ok(result) => {
                    self.listed = None;
                    return LoopInput::Listed(self.epoch, result);
                }
                // The takeover was aborted: the term is over.
                Err(_) => std::future::pending().await,
            }
        }
        match self.watch_events.recv().await {
            Some(event) => LoopInput::Watch(event),
            // Not reached: the term holds a sender itself.
            None => std::future::pending().await,
        }
    }
}

/// Pauses between plans: after a plan, the loop collects inputs for as long as the plan took, because they
/// may change the next plan. So the engine plans at most half of the time.
#[derive(Default)]
struct PlanningPause {
    /// Whether the engine received an input since the last tick.
    pending: bool,
    not_before: Option<Instant>,
    /// The timer that the last tick was for. A timer that does not move on causes no further tick.
    fired: Option<Time>,
}

impl PlanningPause {
    /// How long the loop may sleep. `timer`: the next timer of the engine.
    fn sleep(&self, timer: Option<Time>) -> Duration {
        let pause = self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        if self.pending {
            return pause;
        }
        let timer = timer.filter(|timer| Some(*timer) != self.fired);
        timer.map_or(MAX_SLEEP, |at| at.since(now()).max(pause)).min(MAX_SLEEP)
    }

    fn may_tick(&self, timer: Option<Time>) -> bool {
        let due = timer.is_some_and(|at| at <= now());
        (self.pending || due) && self.not_before.is_none_or(|at| at <= Instant::now())
    }

    fn ticked(&mut self, before: Instant, timer: Option<Time>) {
        let now = Instant::now();
        self.pending = false;
        self.fired = timer.filter(|at| *at <= self::now());
        self.not_before = Some(now + now.duration_since(before).min(MAX_PLANNING_PAUSE));
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
