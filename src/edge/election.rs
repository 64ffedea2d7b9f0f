//! Leader election on a `Lease`: which replica leads, and under which epoch.
//!
//! `spec.leaseTransitions` is the epoch. Every acquisition raises it by at least one, also when the same
//! process acquires again. It never goes back: where the lease was deleted or reset, the next epoch is above
//! every epoch that any `Gang` object names. So the lease and the gangs are the only stored state.
//!
//! Invariants:
//! - Every write is a compare-and-swap on the version that was read, so one of two candidates wins.
//! - A replica takes over another's lease only after it has seen that lease unchanged for the whole lease
//!   duration, by its own monotonic clock. No time of day is compared, so a wrong clock does no harm.
//! - A leader that cannot renew stops leading before another replica can have waited that long. Safety does
//!   not depend on it: the engine's fencing rules hold for a leader that sleeps past the end of its lease.

use std::time::Duration;

use portcullis_core::engine::Change;
use portcullis_core::model::Epoch;
use portcullis_core::model::random::Random;

use crate::{
    LeaseChange, LeaseReading, ListRequest, Monotonic, ReadFailure, WatchEvent, WatchedKind, WatchedObject,
    Watcher, WatcherReport, WatcherStep, highest_epoch,
};

/// How often the leader renews.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// A leader that could not renew for this long stops leading.
const RENEW_DEADLINE: Duration = Duration::from_secs(4);
/// Delay between a failed renewal and the next attempt.
const RENEW_RETRY: Duration = Duration::from_millis(250);
/// Range of the interval at which other replicas read the lease.
const READ_INTERVAL: (Duration, Duration) = (Duration::from_millis(700), Duration::from_millis(1000));
/// How long a request about the lease may take. A slower answer counts as lost.
const LEASE_REQUEST_TIMEOUT: Duration = Duration::from_millis(1500);

/// A request of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionRequest {
    /// Read the lease.
    Read,
    /// Create the lease with this change as its `spec`.
    Create(LeaseChange),
    /// Merge this change into the lease, only if it is at this version.
    Update {
        /// The expected `metadata.resourceVersion`.
        resource_version: String,
        /// The change.
        change: LeaseChange,
    },
    /// List the `Gang` objects, to find the highest epoch. Pass the answer to [`Election::gangs`].
    ListGangs(ListRequest),
}

impl ElectionRequest {
    /// Interprets an HTTP response. `Ok(None)` means that the lease does not exist, or that the
    /// compare-and-swap did not match.
    ///
    /// # Errors
    /// When the API server refuses for another reason, or the lease cannot be read.
    pub fn interpret(
        &self,
        code: u16,
        body: &[u8],
        message: impl FnOnce() -> String,
    ) -> Result<Option<LeaseReading>, ReadFailure> {
        match (self, code) {
            (_, 200..300) => LeaseReading::parse(body).map(Some),
            (Self::Read, 404) | (Self::Create(_), 409) | (Self::Update { .. }, 404 | 409) => Ok(None),
            _ => Err(ReadFailure::of_status(code, message())),
        }
    }
}

/// What the driver does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionStep {
    /// Wait until then, or until [`Election::step_down`] or [`Election::shut_down`] is called.
    Wait(Monotonic),
    /// Send this request. When no answer comes in time, answer with [`ReadFailure::Failed`].
    Send {
        /// What is requested.
        request: ElectionRequest,
        /// How long the answer may take; `None` leaves it to the client.
        timeout: Option<Duration>,
    },
    /// The election is shut down and the lease is released.
    Done,
}

/// A result of the election, for the engine and the log.
#[derive(Clone, Debug, PartialEq)]
pub enum ElectionReport {
    /// This replica leads under this epoch.
    Acquired(Epoch),
    /// This replica does not lead any more.
    Lost {
        /// The epoch that ended.
        epoch: Epoch,
        /// Why.
        reason: String,
    },
    /// This replica stopped leading by itself and releases the lease.
    Resigned {
        /// The epoch that ended.
        epoch: Epoch,
        /// Whether the reason is that the engine saw a newer epoch.
        newer_leader: bool,
    },
    /// The lease is released.
    Released(Epoch),
    /// The lease could not be released; other replicas wait until it expires.
    ReleaseFailed(ReadFailure),
    /// A request about the lease failed.
    Failed(ReadFailure),
    /// A request about the lease succeeded.
    Succeeded,
    /// A report of the list of gangs.
    Gangs(WatcherReport),
}

#[derive(Clone, Debug, PartialEq)]
enum ElectionState {
    /// Starts the next request at this time.
    Idle { until: Monotonic },
    /// Reads the lease as a candidate.
    Reading,
    /// There is no lease: reads the highest epoch from the gangs before it creates one.
    ReadingGangs { watcher: Box<Watcher>, highest: Epoch },
    /// Creates the lease.
    Creating { epoch: Epoch, sent: Monotonic },
    /// Takes a free or expired lease.
    Acquiring { epoch: Epoch, resource_version: String, sent: Monotonic },
    /// Renews.
    Renewing { sent: Monotonic },
    /// A renewal did not match: reads who holds the lease.
    CheckingHolder,
    /// Releases the lease of this epoch.
    Releasing { epoch: Epoch, resource_version: String },
    /// Shut down.
    Done,
}

/// The lease while this replica holds it.
#[derive(Clone, Debug, PartialEq)]
struct HeldLease {
    epoch: Epoch,
    resource_version: String,
    /// When the last successful renewal was sent.
    renewed: Monotonic,
}

/// The lease of another replica, and the time of its last observed change.
#[derive(Clone, Debug, PartialEq)]
struct ObservedLease {
    reading: LeaseReading,
    since: Monotonic,
}

/// The election of one replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Election {
    identity: String,
    page_limit: usize,
    random: Random,
    state: ElectionState,
    held: Option<HeldLease>,
    observed: Option<ObservedLease>,
    /// The highest epoch that the replica has seen; a new epoch is higher.
    epoch_floor: Epoch,
    /// The epoch whose leader is asked to step down.
    step_down: Option<Epoch>,
    shut_down: bool,
    reports: Vec<ElectionReport>,
}

impl Election {
    /// A candidate. `identity` differs from that of every other process and of every earlier life of this
    /// one.
    pub fn new(identity: String, page_limit: usize, random: Random) -> Self {
        Self {
            identity,
            page_limit,
            random,
            state: ElectionState::Idle { until: Monotonic::default() },
            held: None,
            observed: None,
            epoch_floor: Epoch::default(),
            step_down: None,
            shut_down: false,
            reports: Vec::new(),
        }
    }

    /// The epoch under which this replica leads, as far as it knows; `None` while it does not lead.
    pub fn epoch(&self) -> Option<Epoch> {
        self.held.as_ref().map(|held| held.epoch)
    }

    /// The identity that the replica writes into the lease.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Makes every later epoch higher than this one.
    pub fn raise_epoch_floor(&mut self, epoch: Epoch) {
        self.epoch_floor = self.epoch_floor.max(epoch);
    }

    /// Releases the lease if it is still held under this epoch: the engine saw a newer leader.
    pub fn step_down(&mut self, epoch: Epoch) {
        self.step_down = Some(epoch);
    }

    /// Releases the lease if it is held, and ends.
    pub fn shut_down(&mut self) {
        self.shut_down = true;
    }

    /// Takes the reports since the last call, in order.
    pub fn take_reports(&mut self) -> Vec<ElectionReport> {
        std::mem::take(&mut self.reports)
    }

    /// What to do next. Returns the same request until its answer comes.
    pub fn step(&mut self, now: Monotonic) -> ElectionStep {
        if let ElectionState::Idle { until } = self.state {
            self.start(until, now);
        }
        let lease = |request| ElectionStep::Send { request, timeout: Some(LEASE_REQUEST_TIMEOUT) };
        match &mut self.state {
            ElectionState::Idle { until } => ElectionStep::Wait(*until),
            ElectionState::Reading | ElectionState::CheckingHolder => lease(ElectionRequest::Read),
            ElectionState::ReadingGangs { watcher, .. } => match watcher.step(now) {
                WatcherStep::List(request) => {
                    ElectionStep::Send { request: ElectionRequest::ListGangs(request), timeout: None }
                }
                WatcherStep::Wait(until) => ElectionStep::Wait(until),
                step @ (WatcherStep::OpenWatch(_) | WatcherStep::ReadLine) => {
                    unreachable!("the watcher is dropped after its list: {step:?}")
                }
            },
            ElectionState::Creating { epoch, .. } => {
                lease(ElectionRequest::Create(LeaseChange::Acquire(*epoch)))
            }
            ElectionState::Acquiring { epoch, resource_version, .. } => {
                let resource_version = resource_version.clone();
                lease(ElectionRequest::Update { resource_version, change: LeaseChange::Acquire(*epoch) })
            }
            ElectionState::Renewing { sent } => {
                let (resource_version, left) = match &self.held {
                    Some(held) => (
                        held.resource_version.clone(),
                        RENEW_DEADLINE.saturating_sub(sent.since(held.renewed)),
                    ),
                    None => (String::new(), Duration::ZERO),
                };
                ElectionStep::Send {
                    request: ElectionRequest::Update { resource_version, change: LeaseChange::Renew },
                    timeout: Some(left.min(LEASE_REQUEST_TIMEOUT)),
                }
            }
            ElectionState::Releasing { resource_version, .. } => {
                let resource_version = resource_version.clone();
                lease(ElectionRequest::Update { resource_version, change: LeaseChange::Release })
            }
            ElectionState::Done => ElectionStep::Done,
        }
    }

    /// Leaves the idle state when a request is due.
    fn start(&mut self, until: Monotonic, now: Monotonic) {
        let newer_leader = self.step_down.take().is_some_and(|epoch| self.epoch() == Some(epoch));
        if self.shut_down || newer_leader {
            if let Some(held) = self.held.take() {
                self.reports.push(ElectionReport::Resigned { epoch: held.epoch, newer_leader });
                let resource_version = held.resource_version;
                self.state = ElectionState::Releasing { epoch: held.epoch, resource_version };
            } else {
                self.state = ElectionState::Done;
            }
            return;
        }
        if now < until {
            return;
        }
        match &self.held {
            Some(held) if now.since(held.renewed) < RENEW_DEADLINE => {
                self.state = ElectionState::Renewing { sent: now };
            }
            Some(_) => {
                self.lose("the lease was not renewed in time: this process was stopped or starved of CPU");
                self.state = ElectionState::Reading;
            }
            None => self.state = ElectionState::Reading,
        }
    }

    /// Takes the answer to a request about the lease, as [`ElectionRequest::interpret`] returns it.
    pub fn lease(&mut self, answer: Result<Option<LeaseReading>, ReadFailure>, now: Monotonic) {
        let state = std::mem::replace(&mut self.state, ElectionState::Idle { until: now });
        if let ElectionState::Releasing { epoch, .. } = state {
            match answer {
                Ok(Some(_)) => self.reports.push(ElectionReport::Released(epoch)),
                Ok(None) => {}
                Err(failure) => self.reports.push(ElectionReport::ReleaseFailed(failure)),
            }
            self.read_later(now);
            return;
        }
        match answer {
            Ok(lease) => {
                self.answered(state, lease, now);
                // Several requests in a row count as one success, after the last.
                if matches!(self.state, ElectionState::Idle { .. }) {
                    self.reports.push(ElectionReport::Succeeded);
                }
            }
            Err(failure) => self.fail(failure, now),
        }
    }

    fn answered(&mut self, state: ElectionState, lease: Option<LeaseReading>, now: Monotonic) {
        match (state, lease) {
            (ElectionState::Reading, Some(lease)) => self.consider(lease, now),
            (ElectionState::Reading, None) => {
                let watcher = Box::new(Watcher::new(WatchedKind::Gangs, self.page_limit, self.random.fork()));
                self.state = ElectionState::ReadingGangs { watcher, highest: Epoch::default() };
            }
            (ElectionState::Creating { epoch, sent }, Some(lease))
            | (ElectionState::Acquiring { epoch, sent, .. }, Some(lease)) => {
                self.win(epoch, lease, sent);
                self.state = ElectionState::Idle { until: now.after(RENEW_INTERVAL) };
            }
            // Another replica created it: read it at once.
            (ElectionState::Creating { .. }, None) => {}
            (ElectionState::Acquiring { .. }, None) => self.read_later(now),
            (ElectionState::Renewing { sent }, Some(lease)) => {
                if let Some(held) = &mut self.held {
                    held.resource_version = lease.resource_version;
                    held.renewed = sent;
                }
                self.state = ElectionState::Idle { until: sent.after(RENEW_INTERVAL).max(now) };
            }
            // Another replica acquired the lease, or another client changed it.
            (ElectionState::Renewing { .. }, None) => self.state = ElectionState::CheckingHolder,
            (ElectionState::CheckingHolder, Some(lease)) => {
                let same = |held: &&mut HeldLease| {
                    lease.holder == self.identity && lease.transitions == held.epoch.0
                };
                if let Some(held) = self.held.as_mut().filter(same) {
                    held.resource_version = lease.resource_version;
                } else {
                    let holder = match lease.holder.as_str() {
                        "" => "no replica holds the lease".to_owned(),
                        holder => format!("{holder:?} holds the lease"),
                    };
                    self.lose(&holder);
                    self.observe(lease, now);
                    self.read_later(now);
                }
            }
            (ElectionState::CheckingHolder, None) => self.lose("the lease was deleted"),
            (
                state @ (ElectionState::Idle { .. }
                | ElectionState::ReadingGangs { .. }
                | ElectionState::Releasing { .. }
                | ElectionState::Done),
                _,
            ) => debug_assert!(false, "an answer about the lease without a request: {state:?}"),
        }
    }

    /// Acquires the lease if it is free or expired.
    fn consider(&mut self, lease: LeaseReading, now: Monotonic) {
        let free = lease.holder.is_empty() || lease.holder == self.identity;
        self.observe(lease.clone(), now);
        let expired =
            self.observed.as_ref().is_some_and(|other| now.since(other.since) >= other.reading.duration);
        if !free && !expired {
            self.read_later(now);
            return;
        }
        let epoch = self.next_epoch(lease.transitions);
        let resource_version = lease.resource_version;
        self.state = ElectionState::Acquiring { epoch, resource_version, sent: now };
    }

    /// Takes the answer to [`ElectionRequest::ListGangs`]: the body of the page.
    pub fn gangs(&mut self, answer: Result<&[u8], ReadFailure>, now: Monotonic) {
        let ElectionState::ReadingGangs { watcher, highest } = &mut self.state else {
            debug_assert!(false, "a page of gangs without a request: {:?}", self.state);
            return;
        };
        watcher.page(answer, now);
        for event in watcher.take_events() {
            if let WatchEvent::Changed(Change::Set(WatchedObject::Gang(record, _))) = event {
                *highest = (*highest).max(highest_epoch(&record.status));
            }
        }
        let mut failure = None;
        for report in watcher.take_reports() {
            match report {
                WatcherReport::Failed(reason) => failure = Some(reason),
                other => self.reports.push(ElectionReport::Gangs(other)),
            }
        }
        let listed = watcher.is_listed();
        let highest = *highest;
        match failure {
            None if !listed => {}
            // Without the CRD there are no gangs.
            None | Some(ReadFailure::Absent(_)) => {
                self.raise_epoch_floor(highest);
                self.state = ElectionState::Creating { epoch: self.next_epoch(0), sent: now };
            }
            Some(failure) => self.fail(failure, now),
        }
    }

    fn next_epoch(&self, transitions: u64) -> Epoch {
        Epoch(self.epoch_floor.0.max(transitions) + 1)
    }

    /// Records the lease of another replica. Each change restarts its expiry.
    fn observe(&mut self, lease: LeaseReading, now: Monotonic) {
        self.raise_epoch_floor(Epoch(lease.transitions));
        if self.observed.as_ref().is_none_or(|observed| observed.reading != lease) {
            self.observed = Some(ObservedLease { reading: lease, since: now });
        }
    }

    fn win(&mut self, epoch: Epoch, lease: LeaseReading, sent: Monotonic) {
        self.raise_epoch_floor(epoch);
        self.held = Some(HeldLease { epoch, resource_version: lease.resource_version, renewed: sent });
        self.observed = None;
        self.reports.push(ElectionReport::Acquired(epoch));
    }

    fn lose(&mut self, reason: &str) {
        if let Some(held) = self.held.take() {
            self.reports.push(ElectionReport::Lost { epoch: held.epoch, reason: reason.to_owned() });
        }
    }

    fn fail(&mut self, failure: ReadFailure, now: Monotonic) {
        self.reports.push(ElectionReport::Failed(failure));
        match &self.held {
            Some(held) if now.since(held.renewed) < RENEW_DEADLINE => {
                self.state = ElectionState::Idle { until: now.after(RENEW_RETRY) };
            }
            Some(_) => {
                self.lose("the lease could not be renewed in time");
                self.read_later(now);
            }
            None => self.read_later(now),
        }
    }

    fn read_later(&mut self, now: Monotonic) {
        let delay = self.random.duration_between(READ_INTERVAL.0, READ_INTERVAL.1);
        self.state = ElectionState::Idle { until: now.after(delay) };
    }
}
