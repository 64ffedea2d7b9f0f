//! Watches one kind: a consistent list in pages, then a watch from the version of that list.
//!
//! Invariants:
//! - The watcher returns the changes of one object in order. A watch resumes exactly at the version of the
//!   list or of the last line.
//! - An object that cannot be read is reported, and its last readable state stays.
//! - An object that is missing in a later complete list is reported as gone.

use std::collections::BTreeSet;
use std::time::Duration;

use portcullis_core::engine::Change;
use portcullis_core::model::Backoff;
use portcullis_core::model::random::Random;
use portcullis_core::objects::ReadError;

use crate::kinds::{self, ListPage, WatchLine};
use crate::{Monotonic, ObjectReference, ReadFailure, WatchedKey, WatchedKind, WatchedObject};

/// Objects on one page of a list, as for kubectl.
pub const LIST_PAGE_LIMIT: usize = 500;
/// Silence on a watch after which the driver treats the connection as broken. The API server sends a bookmark
/// about once a minute.
pub const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// Range of the time that the API server is asked to keep a watch open. Random, so that watches do not end
/// together.
const WATCH_TIMEOUT: (Duration, Duration) = (Duration::from_secs(5 * 60), Duration::from_secs(9 * 60));
/// Range of the delay before a kind that is not installed is listed again.
const ABSENT_KIND_RETRY: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(6));
/// Range of the delay before a kind that RBAC forbids is listed again.
const FORBIDDEN_KIND_RETRY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));
/// Delay before a watch that delivered something is opened again. The API server ends the watches of slow
/// readers, and the changes that such a reader missed must not wait long.
const WATCH_RESUME_DELAY: Duration = Duration::from_millis(10);
/// Minimum duration of a healthy watch without events. A shorter one without events counts as a failure.
const HEALTHY_WATCH: Duration = Duration::from_secs(10);
/// First and longest delay after a failure.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Maximum number of unreadable objects of a kind that are remembered as reported.
const MAX_REPORTED_UNREADABLE: usize = 1000;

/// A change, or the end of a list.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all events are changes, and each is moved twice")]
pub enum WatchEvent {
    /// An object was created, changed or deleted.
    Changed(Change<WatchedObject, WatchedKey>),
    /// A list is complete: the watcher has returned every existing object.
    ListComplete,
}

/// Why a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// The server closed it.
    Closed,
    /// The connection broke, or no line arrived within [`WATCH_IDLE_TIMEOUT`]. The text is the error.
    Broken(String),
    /// The resource version was too old; the kind is listed again.
    Expired,
}

/// What a driver logs and counts.
#[derive(Clone, Debug, PartialEq)]
pub enum WatcherReport {
    /// An object cannot be read.
    Unreadable {
        /// Why.
        error: ReadError,
        /// The object, where at least its name can be read.
        object: Option<ObjectReference>,
        /// Whether this object was readable, or unknown, before.
        first: bool,
    },
    /// A list, or the opening of a watch, failed.
    Failed(ReadFailure),
    /// A list or the opening of a watch succeeded.
    Succeeded,
    /// A watch ended.
    WatchEnded(WatchEnd),
}

/// A request for one page of a list over all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// `limit`.
    pub limit: usize,
    /// `continue`; empty for the first page.
    pub continue_token: String,
}

/// A request for a watch over all namespaces, with bookmarks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// `resourceVersion`.
    pub resource_version: String,
    /// `timeoutSeconds`.
    pub timeout: Duration,
}

/// What the driver does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatcherStep {
    /// Wait until then.
    Wait(Monotonic),
    /// Send this request and pass the answer to [`Watcher::page`].
    List(ListRequest),
    /// Send this request and pass the status of the answer to [`Watcher::opened`].
    OpenWatch(WatchRequest),
    /// Read a line of the open watch: [`Watcher::line`] or [`Watcher::ended`].
    ReadLine,
}

#[derive(Clone, Debug, PartialEq)]
enum WatchState {
    /// Starts the next request at this time.
    Idle { until: Monotonic },
    /// Reads a list. `missing`: known objects that have not been on a page of it.
    Listing { continue_token: String, missing: BTreeSet<WatchedKey> },
    /// Opens a watch.
    Opening { since: Monotonic, timeout: Duration },
    /// Reads an open watch. `received`: whether any line came.
    Open { since: Monotonic, received: bool },
}

/// Watches one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Watcher {
    kind: WatchedKind,
    page_limit: usize,
    state: WatchState,
    /// Resource version at which a watch resumes; `None` when the kind must be listed.
    resource_version: Option<String>,
    /// Keys of the objects that were returned and still exist.
    known: BTreeSet<WatchedKey>,
    /// Keys of the unreadable objects that were reported.
    unreadable: BTreeSet<WatchedKey>,
    backoff: Backoff,
    random: Random,
    events: Vec<WatchEvent>,
    reports: Vec<WatcherReport>,
}

impl Watcher {
    /// A watcher that starts with a list. `random` supplies its jitter.
    pub fn new(kind: WatchedKind, page_limit: usize, random: Random) -> Self {
        Self {
            kind,
            page_limit,
            state: WatchState::Idle { until: Monotonic::default() },
            resource_version: None,
            known: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            backoff: Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1),
            random,
            events: Vec::new(),
            reports: Vec::new(),
        }
    }

    /// The kind that it watches.
    pub fn kind(&self) -> WatchedKind {
        self.kind
    }

    /// Takes the events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<WatchEvent> {
        std::mem::take(&mut self.events)
    }

    /// Takes the reports since the last call, in order.
    pub fn take_reports(&mut self) -> Vec<WatcherReport> {
        std::mem::take(&mut self.reports)
    }

    /// What to do next. Returns the same step until its answer comes.
    pub fn step(&mut self, now: Monotonic) -> WatcherStep {
        if let WatchState::Idle { until } = self.state {
            if now < until {
                return WatcherStep::Wait(until);
            }
            self.state = match self.resource_version {
                Some(_) => {
                    let timeout = self.random.duration_between(WATCH_TIMEOUT.0, WATCH_TIMEOUT.1);
                    WatchState::Opening { since: now, timeout }
                }
                None => WatchState::Listing { continue_token: String::new(), missing: self.known.clone() },
            };
        }
        match &self.state {
            WatchState::Idle { until } => WatcherStep::Wait(*until),
            WatchState::Listing { continue_token, .. } => WatcherStep::List(ListRequest {
                limit: self.page_limit,
                continue_token: continue_token.clone(),
            }),
            WatchState::Opening { timeout, .. } => WatcherStep::OpenWatch(WatchRequest {
                resource_version: self.resource_version.clone().unwrap_or_default(),
                timeout: *timeout,
            }),
            WatchState::Open { .. } => WatcherStep::ReadLine,
        }
    }

    /// Takes the answer to a [`WatcherStep::List`]: the body of the page.
    pub fn page(&mut self, answer: Result<&[u8], ReadFailure>, now: Monotonic) {
        let state = std::mem::replace(&mut self.state, WatchState::Idle { until: now });
        let WatchState::Listing { missing, .. } = state else {
            debug_assert!(false, "a page without a list request: {state:?}");
            self.state = state;
            return;
        };
        if let Err(failure) = answer.and_then(|body| self.read_page(body, missing)) {
            self.fail(failure, now);
        }
    }

    fn read_page(&mut self, body: &[u8], mut missing: BTreeSet<WatchedKey>) -> Result<(), ReadFailure> {
        let page: ListPage<'_> = serde_json::from_slice(body)
            .map_err(|error| ReadFailure::Failed(format!("unreadable list: {error}")))?;
        for item in page.items.iter().flatten() {
            match self.kind.read(item.get()) {
                Ok(object) => {
                    let key = object.key();
                    missing.remove(&key);
                    self.unreadable.remove(&key);
                    self.known.insert(key);
                    self.events.push(WatchEvent::Changed(Change::Set(object)));
                }
                // The object exists: its last readable state stays.
                Err(error) => {
                    if let Some(key) = self.report_unreadable(item.get(), error) {
                        missing.remove(&key);
                    }
                }
            }
        }
        let continue_token = page.metadata.r#continue.as_str();
        if !continue_token.is_empty() {
            self.state = WatchState::Listing { continue_token: continue_token.to_owned(), missing };
            return Ok(());
        }
        self.resource_version = Some(page.metadata.resource_version.as_str().to_owned());
        self.reports.push(WatcherReport::Succeeded);
        self.remove(missing);
        Ok(())
    }

    /// Reports these objects as gone and the list as complete.
    fn remove(&mut self, keys: BTreeSet<WatchedKey>) {
        for key in keys {
            self.known.remove(&key);
            self.events.push(WatchEvent::Changed(Change::Gone(key)));
        }
        self.events.push(WatchEvent::ListComplete);
    }

    /// Takes the answer to a [`WatcherStep::OpenWatch`].
    pub fn opened(&mut self, answer: Result<(), ReadFailure>, now: Monotonic) {
        let WatchState::Opening { since, .. } = self.state else {
            debug_assert!(false, "an answer without a watch request: {:?}", self.state);
            return;
        };
        match answer {
            Ok(()) => {
                self.reports.push(WatcherReport::Succeeded);
                self.state = WatchState::Open { since, received: false };
            }
            Err(failure) => self.fail(failure, now),
        }
    }

    /// Takes one line of the watch.
    pub fn line(&mut self, line: &[u8], now: Monotonic) {
        let WatchState::Open { received, .. } = &mut self.state else {
            debug_assert!(false, "a line without a watch: {:?}", self.state);
            return;
        };
        *received = true;
        if let Err(failure) = self.read_line(line) {
            self.fail(failure, now);
        }
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), ReadFailure> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let read: WatchLine<'_> = serde_json::from_slice(line)
            .map_err(|error| ReadFailure::Failed(format!("unreadable line of a watch: {error}")))?;
        let json = read.object.get();
        match read.r#type.as_str() {
            "ADDED" | "MODIFIED" => match self.kind.read(json) {
                Ok(object) => {
                    let key = object.key();
                    self.unreadable.remove(&key);
                    self.known.insert(key);
                    self.events.push(WatchEvent::Changed(Change::Set(object)));
                }
                Err(error) => drop(self.report_unreadable(json, error)),
            },
            "DELETED" => match self.kind.key(json) {
                Ok(key) => {
                    self.known.remove(&key);
                    self.unreadable.remove(&key);
                    self.events.push(WatchEvent::Changed(Change::Gone(key)));
                }
                Err(error) => drop(self.report_unreadable(json, error)),
            },
            "BOOKMARK" => {}
            _ => return Err(ReadFailure::Expired(format!("the watch ended with {json}"))),
        }
        if let Some(version) = kinds::resource_version(json) {
            self.resource_version = Some(version);
        }
        Ok(())
    }

    /// Takes the end of the watch.
    pub fn ended(&mut self, end: WatchEnd, now: Monotonic) {
        let WatchState::Open { since, received } = self.state else {
            debug_assert!(false, "the end of a watch that is not open: {:?}", self.state);
            return;
        };
        self.reports.push(WatcherReport::WatchEnded(end));
        let delay = if received || now.since(since) >= HEALTHY_WATCH {
            self.backoff.reset();
            WATCH_RESUME_DELAY
        } else {
            self.backoff.fail_with_jitter(&mut self.random)
        };
        self.state = WatchState::Idle { until: now.after(delay) };
    }

    /// Delays the next request until then. The takeover retries a required kind sooner than a watch does.
    pub(crate) fn retry_at(&mut self, until: Monotonic) {
        self.state = WatchState::Idle { until };
    }

    /// Whether the version to resume at is known, because a list is complete.
    pub(crate) fn is_listed(&self) -> bool {
        self.resource_version.is_some()
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn fail(&mut self, failure: ReadFailure, now: Monotonic) {
        let delay = match &failure {
            ReadFailure::Absent(_) => {
                // The objects were deleted with their CRD.
                let known = self.known.clone();
                self.remove(known);
                self.resource_version = None;
                self.random.duration_between(ABSENT_KIND_RETRY.0, ABSENT_KIND_RETRY.1)
            }
            ReadFailure::Forbidden(_) => {
                self.random.duration_between(FORBIDDEN_KIND_RETRY.0, FORBIDDEN_KIND_RETRY.1)
            }
            ReadFailure::Expired(_) => {
                self.resource_version = None;
                self.reports.push(WatcherReport::WatchEnded(WatchEnd::Expired));
                self.backoff.fail_with_jitter(&mut self.random)
            }
            ReadFailure::Failed(_) => self.backoff.fail_with_jitter(&mut self.random),
        };
        self.reports.push(WatcherReport::Failed(failure));
        self.state = WatchState::Idle { until: now.after(delay) };
    }

    /// Reports an object that cannot be read. Returns its key, if at least that can be read.
    fn report_unreadable(&mut self, json: &str, error: ReadError) -> Option<WatchedKey> {
        let key = self.kind.key(json).ok();
        let known = match &key {
            Some(key) => {
                self.unreadable.len() >= MAX_REPORTED_UNREADABLE || !self.unreadable.insert(key.clone())
            }
            None => false,
        };
        let object = self.kind.reference(json);
        self.reports.push(WatcherReport::Unreadable { error, object, first: !known });
        key
    }
}
