//! The one owner of the engine: what is told goes in, one thing after the other; what it wants done goes out.
//!
//! Invariants:
//! - only what belongs to the present term of leading is told: each term has channels of its own, and what an older
//!   term still has to say goes nowhere;
//! - a replica that does not lead holds no pods: it watches nothing here;
//! - the engine runs on a thread of its own, so that a large plan never holds up a review.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use portcullis_core::engine::{Action, Change, Effect, Engine, EngineSettings, Event, ListedObjects};
use portcullis_core::model::{Epoch, Time};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::announce::Announcer;
use super::capacity::Reporter;
use super::client::Client;
use super::effects::{Effects, action_name};
use super::failpoint::{Side, reached};
use super::gangs::{Census, Directory};
use super::kinds::{Key, Object, event};
use super::takeover::read_everything;
use super::trouble::Complaints;
use super::watch::{Follower, Seen};
use crate::telemetry::ClusterMetrics;

/// News of watches that may wait for the engine; more of it waits at the API server.
const BACKLOG: usize = 4096;
/// After so much news the engine is let plan, even if there is more.
const BATCH: usize = 1000;
/// Alarms are looked at this often, because the time of day may jump.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// The engine plans at most half of the time; but it never waits longer than this for its turn.
const LONGEST_BREATH: Duration = Duration::from_millis(100);

type Takeover = (ListedObjects, Vec<Follower>);

/// A term of leading.
struct Term {
    epoch: Epoch,
    reading: AbortHandle,
    /// What is there at the start.
    listed: Option<oneshot::Receiver<Takeover>>,
    /// What the watches tell after that.
    seen: mpsc::Receiver<Seen>,
    out: mpsc::Sender<Seen>,
}

impl Drop for Term {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// What the runner works with.
pub(super) struct Runner {
    pub client: Client,
    pub metrics: ClusterMetrics,
    pub effects: Effects,
    pub announcer: Announcer,
    pub directory: Directory,
    pub complaints: Complaints,
    pub census: Census,
    pub lease_news: mpsc::UnboundedReceiver<Event>,
    pub answers: mpsc::UnboundedReceiver<Event>,
    pub stepping_down: mpsc::UnboundedSender<Epoch>,
    pub reporter: Reporter,
}

/// What wakes the runner.
enum News {
    Lease(Event),
    Answer(Event),
    Listed(Epoch, Takeover),
    Seen(Seen),
    Time,
    Stop,
}

impl Runner {
    /// Runs until it is told to stop, or the one who tells is gone.
    pub(super) async fn run(mut self, settings: EngineSettings, mut stop: oneshot::Receiver<()>) {
        let mut engine = Engine::new(settings);
        let mut term = None;
        let mut planned = Breath::default();
        let mut unreported = true;
        loop {
            let sleep = planned.sleep(engine.next_alarm());
            // What changes is told within the pause; while nothing does, only that it still holds.
            let sleep = match self.reporter.due(&engine, unreported) {
                Some(due) => sleep.min(due),
                None => sleep,
            };
            let mut news = self.next(&mut term, &mut stop, sleep).await;
            let started = Instant::now();
            let mut taken = 0;
            let mut told = Vec::new();
            loop {
                match news {
                    News::Stop => return,
                    News::Time => {}
                    other => {
                        planned.pending = true;
                        unreported = true;
                        self.take(other, &mut told, &mut engine, &mut term);
                    }
                }
                taken += 1;
                match self.waiting(&mut term) {
                    Some(next) if taken < BATCH => news = next,
                    _ => break,
                }
            }
            if planned.may_tick(engine.next_alarm()) {
                let before = Instant::now();
                told.push(Event::Tick);
                self.step(&mut engine, &mut term, &mut told);
                planned.ticked(before, engine.next_alarm());
                let backlog = term.as_ref().map_or(0, |term| term.seen.len());
                self.metrics.observe_engine_step(started.elapsed(), backlog);
            } else {
                self.step(&mut engine, &mut term, &mut told);
            }
            if self.reporter.look(&engine, unreported) {
                unreported = false;
            }
        }
    }

    async fn next(
        &mut self,
        term: &mut Option<Term>,
        stop: &mut oneshot::Receiver<()>,
        sleep: Duration,
    ) -> News {
        let of_term = async {
            match term {
                None => std::future::pending().await,
                Some(term) => term.next().await,
            }
        };
        tokio::select! {
            biased;
            _ = stop => News::Stop,
            Some(event) = self.lease_news.recv() => News::Lease(event),
            Some(event) = self.answers.recv() => News::Answer(event),
            news = of_term => news,
            () = tokio::time::sleep(sleep) => News::Time,
        }
    }

    /// What has come already.
    fn waiting(&mut self, term: &mut Option<Term>) -> Option<News> {
        if let Ok(event) = self.lease_news.try_recv() {
            return Some(News::Lease(event));
        }
        if let Ok(event) = self.answers.try_recv() {
            return Some(News::Answer(event));
        }
        term.as_mut().and_then(|term| term.seen.try_recv().ok()).map(News::Seen)
    }

    /// Notes what the engine is to be told, with all that has come meanwhile; a term begins and ends at once.
    fn take(&mut self, news: News, told: &mut Vec<Event>, engine: &mut Engine, term: &mut Option<Term>) {
        match news {
            News::Lease(event) => {
                self.step(engine, term, told);
                // Whatever an older term still has to tell is of no concern to a newer one.
                self.end(term);
                told.push(event);
                self.step(engine, term, told);
            }
            News::Answer(event) => {
                self.census.answered(&event);
                told.push(event);
            }
            News::Listed(epoch, (world, followers)) => {
                tracing::info!(
                    %epoch,
                    gangs = world.gangs.as_ref().map_or(0, Vec::len),
                    pods = world.pods.as_ref().map_or(0, Vec::len),
                    nodes = world.nodes.as_ref().map_or(0, Vec::len),
                    groups = world.groups.values().map(Vec::len).sum::<usize>(),
                    "everything is read"
                );
                self.census.listed(&world);
                told.push(Event::Listed(epoch, world));
                self.step(engine, term, told);
                // Not before: the engine is told of changes after what they change.
                if let Some(term) = term {
                    for follower in followers {
                        tokio::spawn(follower.follow(term.out.clone()));
                    }
                }
            }
            News::Seen(Seen::Change(change)) => {
                match &change {
                    Change::Set(Object::Gang(record, uid)) => self.directory.note(&record.gang, uid),
                    Change::Gone(Key::Gang(gang)) => self.directory.forget(gang),
                    _ => {}
                }
                if let Some(event) = event(change) {
                    self.census.told(&event);
                    told.push(event);
                }
            }
            News::Seen(Seen::Complete) | News::Time | News::Stop => {}
        }
    }

    /// Tells the engine, and begins with what it wants done.
    fn step(&mut self, engine: &mut Engine, term: &mut Option<Term>, told: &mut Vec<Event>) {
        for effect in engine.steps(told.drain(..), now()) {
            self.perform(effect, term);
        }
    }

    fn perform(&mut self, effect: Effect, term: &mut Option<Term>) {
        match &effect.action {
            Action::List => self.begin(effect.epoch, term),
            Action::StepDown => {
                self.end(term);
                // The election is gone when the process ends.
                let _ = self.stepping_down.send(effect.epoch);
            }
            Action::RecordEvent(note) => {
                reached(Side::Before, action_name(&effect.action));
                self.census.said(note);
                self.announcer.tell(note.clone());
            }
            _ => self.effects.begin(effect),
        }
    }

    /// A term begins: everything is read.
    fn begin(&mut self, epoch: Epoch, term: &mut Option<Term>) {
        reached(Side::Before, "List");
        let (done, listed) = oneshot::channel();
        let (out, seen) = mpsc::channel(BACKLOG);
        let (client, metrics, directory, announcer) =
            (self.client.clone(), self.metrics.clone(), self.directory.clone(), self.announcer.clone());
        let complaints = self.complaints.clone();
        let reading = tokio::spawn(async move {
            let _ = done.send(read_everything(&client, &metrics, &directory, &announcer, &complaints).await);
        });
        *term = Some(Term { epoch, reading: reading.abort_handle(), listed: Some(listed), seen, out });
    }

    /// A term ends: its watches notice that nobody listens any more.
    fn end(&mut self, term: &mut Option<Term>) {
        *term = None;
        self.census.clear();
        self.directory.clear();
    }
}

impl Term {
    async fn next(&mut self) -> News {
        if let Some(listed) = &mut self.listed {
            match listed.await {
                Ok(takeover) => {
                    self.listed = None;
                    return News::Listed(self.epoch, takeover);
                }
                // The reading was given up: the term is over.
                Err(_) => std::future::pending().await,
            }
        }
        match self.seen.recv().await {
            Some(seen) => News::Seen(seen),
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }
}

/// When the engine may plan again: after a plan that took long it listens for as long before it plans again, because
/// what it hears may change what it would plan.
#[derive(Default)]
struct Breath {
    /// Something was told since the last tick.
    pending: bool,
    not_before: Option<Instant>,
    /// The alarm that was ticked for last: one that does not move on is not ticked for again and again.
    rung: Option<Time>,
}

impl Breath {
    fn sleep(&self, alarm: Option<Time>) -> Duration {
        let breath =
            self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        if self.pending {
            return breath;
        }
        let alarm = alarm.filter(|alarm| Some(*alarm) != self.rung);
        alarm.map_or(LONGEST_SLEEP, |at| at.since(now()).max(breath)).min(LONGEST_SLEEP)
    }

    fn may_tick(&self, alarm: Option<Time>) -> bool {
        let rings = alarm.is_some_and(|at| at <= now());
        (self.pending || rings) && self.not_before.is_none_or(|at| at <= Instant::now())
    }

    fn ticked(&mut self, before: Instant, alarm: Option<Time>) {
        let now = Instant::now();
        self.pending = false;
        self.rung = alarm.filter(|at| *at <= self::now());
        self.not_before = Some(now + now.duration_since(before).min(LONGEST_BREATH));
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
