//! Drives the takeover and the watchers of a leader: lists in pages and watches of the simulated API server.

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_core::engine::Event;
use portcullis_core::model::{Epoch, Time};
use portcullis_edge::{
    ListRequest, ReadFailure, Takeover, TakeoverStep, WatchEnd, WatchEvent, WatchRequest, WatchedKind,
    Watcher, WatcherStep, engine_event,
};

use super::{Cluster, DelayRange, START, SimEvent};
use crate::api::{ObjectKind, WriteRecord};

/// Interval of the bookmarks on an open watch: the API server sends one about once a minute.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// How long a client waits for a response, in milliseconds.
const CLIENT_TIMEOUT: DelayRange = DelayRange(3000, 10_000);

/// Who reads a page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListReader {
    /// The takeover of the term.
    Takeover,
    /// The watcher of this kind.
    Watcher(WatchedKind),
}

/// A message between a replica and the API server, or a timer of its watches. Belongs to one term.
#[derive(Clone, Debug)]
pub(super) enum WatchMessage {
    /// The takeover runs what is due.
    Takeover,
    /// A watcher runs what is due.
    Watcher(WatchedKind),
    /// A request for a page reaches the API server. Without an answer when `answered` is false.
    List { reader: ListReader, kind: WatchedKind, request: ListRequest, answered: bool },
    /// A page, or a failure, reaches the replica.
    Page(ListReader, Result<String, ReadFailure>),
    /// A request for a watch reaches the API server.
    Open(WatchedKind, WatchRequest),
    /// The answer to a request for a watch reaches the replica.
    Opened(WatchedKind, u64, Result<(), ReadFailure>),
    /// A line of this connection reaches the replica.
    Line(WatchedKind, u64, String),
    /// The replica notices the end of this connection.
    Ended(WatchedKind, u64, WatchEnd),
    /// The API server sends a bookmark on this connection.
    Bookmark(WatchedKind, u64),
    /// The API server closes this connection after `timeoutSeconds`.
    Close(WatchedKind, u64),
}

/// A term of one replica: from the engine's request for a list to the end of its lease.
#[derive(Clone, Debug)]
pub(super) struct LeaderTerm {
    /// Number of the term, unique in the replica. Messages of an older term are dropped.
    number: u64,
    epoch: Epoch,
    takeover: Option<Takeover>,
    watches: BTreeMap<WatchedKind, WatchStream>,
}

/// A watcher and its connection.
#[derive(Clone, Debug)]
struct WatchStream {
    watcher: Watcher,
    /// The connection that the API server writes to, and that the replica reads. Both ends forget it when it
    /// breaks.
    connection: Option<u64>,
    /// When the last line on it arrives: lines keep their order.
    last_due: Time,
}

/// The kind in the store that a watched kind stands for.
fn stored_kind(kind: WatchedKind) -> Option<ObjectKind> {
    match kind {
        WatchedKind::Gangs => Some(ObjectKind::Gang),
        WatchedKind::Pods => Some(ObjectKind::Pod),
        WatchedKind::Nodes => Some(ObjectKind::Node),
        WatchedKind::Groups(kind) => Some(ObjectKind::Group(kind)),
        WatchedKind::PriorityClasses => Some(ObjectKind::PriorityClass),
        WatchedKind::Namespaces => Some(ObjectKind::Namespace),
        WatchedKind::RuntimeClasses | WatchedKind::ForPolicies(_) => None,
    }
}

fn watched_kind(kind: ObjectKind) -> Option<WatchedKind> {
    match kind {
        ObjectKind::Gang => Some(WatchedKind::Gangs),
        ObjectKind::Pod => Some(WatchedKind::Pods),
        ObjectKind::Node => Some(WatchedKind::Nodes),
        ObjectKind::Group(kind) => Some(WatchedKind::Groups(kind)),
        ObjectKind::PriorityClass => Some(WatchedKind::PriorityClasses),
        ObjectKind::Namespace => Some(WatchedKind::Namespaces),
        _ => None,
    }
}

impl Cluster {
    /// Starts a term: the engine has requested the lists of all kinds.
    pub(super) fn begin_term(&mut self, index: usize, epoch: Epoch) {
        let mut random = self.random.fork();
        let takeover = Takeover::new(self.options.timing.page_limit, &mut random);
        let replica = &mut self.replicas[index];
        replica.terms += 1;
        let number = replica.terms;
        replica.term = Some(LeaderTerm { number, epoch, takeover: Some(takeover), watches: BTreeMap::new() });
        self.watch_message(index, WatchMessage::Takeover);
    }

    /// Ends the term: its watches end with it.
    pub(super) fn end_term(&mut self, index: usize) {
        self.replicas[index].term = None;
    }

    /// One page of a list, as JSON.
    pub(super) fn list_page(
        &mut self,
        kind: WatchedKind,
        request: &ListRequest,
    ) -> Result<String, ReadFailure> {
        let kind = stored_kind(kind).ok_or_else(|| ReadFailure::Absent("no such kind".to_owned()))?;
        let page = self.api.list_page(kind, request.limit, &request.continue_token);
        page.map_err(|status| ReadFailure::of_status(status.code, status.message))
    }

    /// Delivers a message of this term at once.
    pub(super) fn deliver(&mut self, index: usize, life: u64, term: u64, message: WatchMessage) {
        let current = self.replicas[index].term.as_ref().map(|term| term.number);
        if self.replicas[index].has_ended(life) || current != Some(term) {
            return;
        }
        match message {
            WatchMessage::Takeover => self.step_takeover(index),
            WatchMessage::Watcher(kind) => self.step_watcher(index, kind),
            WatchMessage::List { reader, kind, request, answered } => {
                let page = self.list_page(kind, &request);
                if answered {
                    self.watch_message_after(
                        self.options.timing.answer,
                        index,
                        WatchMessage::Page(reader, page),
                    );
                }
            }
            WatchMessage::Page(reader, page) => self.page_arrived(index, reader, &page),
            WatchMessage::Open(kind, request) => self.open_watch(index, kind, &request),
            WatchMessage::Opened(kind, connection, answer) => {
                let now = self.monotonic();
                let Some(stream) = self.stream(index, kind) else { return };
                let broken = answer.is_ok() && stream.connection != Some(connection);
                stream.watcher.opened(answer, now);
                if broken {
                    stream.watcher.step(now);
                    stream.watcher.ended(WatchEnd::Broken("the connection broke".to_owned()), now);
                }
                self.step_watcher(index, kind);
            }
            WatchMessage::Line(kind, connection, line) => {
                let now = self.monotonic();
                let Some(stream) = self.stream(index, kind) else { return };
                if stream.connection == Some(connection) {
                    stream.watcher.line(line.as_bytes(), now);
                    self.step_watcher(index, kind);
                }
            }
            WatchMessage::Ended(kind, connection, end) => {
                let now = self.monotonic();
                let Some(stream) = self.stream(index, kind) else { return };
                let open = stream.connection.is_none_or(|open| open == connection);
                if open && stream.watcher.step(now) == WatcherStep::ReadLine {
                    stream.connection = None;
                    stream.watcher.ended(end, now);
                    self.step_watcher(index, kind);
                }
            }
            WatchMessage::Bookmark(kind, connection) => self.send_bookmark(index, kind, connection),
            WatchMessage::Close(kind, connection) => {
                let Some(stream) = self.stream(index, kind) else { return };
                if stream.connection == Some(connection) {
                    let at = stream.last_due;
                    self.watch_message_at(at, index, WatchMessage::Ended(kind, connection, WatchEnd::Closed));
                }
            }
        }
    }

    fn stream(&mut self, index: usize, kind: WatchedKind) -> Option<&mut WatchStream> {
        self.replicas[index].term.as_mut()?.watches.get_mut(&kind)
    }

    fn watch_message(&mut self, index: usize, message: WatchMessage) {
        self.watch_message_at(self.now(), index, message);
    }

    fn watch_message_after(&mut self, delay: DelayRange, index: usize, message: WatchMessage) {
        let delay = Duration::from_millis(self.random.between(delay.0, delay.1));
        self.watch_message_at(self.now().after(delay), index, message);
    }

    fn watch_message_at(&mut self, at: Time, index: usize, message: WatchMessage) {
        let replica = &self.replicas[index];
        let Some(term) = &replica.term else { return };
        let happening = SimEvent::Watch(index, replica.life, term.number, Box::new(message));
        self.push_at(at.max(self.now()), happening);
    }

    fn step_takeover(&mut self, index: usize) {
        let now = self.monotonic();
        let Some(term) = self.replicas[index].term.as_mut() else { return };
        let Some(takeover) = term.takeover.as_mut() else { return };
        match takeover.step(now) {
            TakeoverStep::Wait(until) => {
                self.watch_message_at(START.after(until.0), index, WatchMessage::Takeover);
            }
            TakeoverStep::List(kind, request) => {
                self.last_activity = self.now();
                self.send_list(index, ListReader::Takeover, kind, request);
            }
            TakeoverStep::Done => {
                let Some(takeover) = term.takeover.take() else { return };
                let (epoch, result) = (term.epoch, takeover.finish());
                let mut kinds = Vec::new();
                for watcher in result.watchers {
                    let kind = watcher.kind();
                    kinds.push(kind);
                    let stream = WatchStream { watcher, connection: None, last_due: START };
                    term.watches.insert(kind, stream);
                }
                self.tell_replica(index, Event::Listed(epoch, result.listed));
                for kind in kinds {
                    self.step_watcher(index, kind);
                }
            }
        }
    }

    fn step_watcher(&mut self, index: usize, kind: WatchedKind) {
        let now = self.monotonic();
        let Some(stream) = self.stream(index, kind) else { return };
        let events = stream.watcher.take_events();
        stream.watcher.take_reports();
        let step = stream.watcher.step(now);
        for event in events {
            if let WatchEvent::Changed(change) = event
                && let Some(event) = engine_event(change)
            {
                self.tell_replica(index, event);
            }
        }
        match step {
            WatcherStep::Wait(until) => {
                self.watch_message_at(START.after(until.0), index, WatchMessage::Watcher(kind));
            }
            WatcherStep::List(request) => self.send_list(index, ListReader::Watcher(kind), kind, request),
            WatcherStep::OpenWatch(request) => self.send_open(index, kind, request),
            // The stream delivers the next line, or its end, as an event.
            WatcherStep::ReadLine => {}
        }
    }

    /// The failure of a list or watch request, and the delay until the replica sees it. `None` when the
    /// request succeeds.
    fn watch_fault(&mut self) -> Option<(ReadFailure, DelayRange)> {
        let faults = self.options.faults.clone();
        if faults == super::FaultRates::default() {
            return None;
        }
        let timeout = || ReadFailure::Failed("no answer".to_owned());
        if self.random.percent((faults.request_lost + faults.answer_lost).div_ceil(4)) {
            return Some((timeout(), CLIENT_TIMEOUT));
        }
        if self.random.percent(faults.refused) {
            let code = if self.random.percent(50) { 500 } else { 429 };
            return Some((ReadFailure::of_status(code, "fault".to_owned()), self.options.timing.answer));
        }
        None
    }

    fn send_list(&mut self, index: usize, reader: ListReader, kind: WatchedKind, request: ListRequest) {
        let fault = self.watch_fault();
        let answered = fault.is_none();
        if let Some((failure, delay)) = fault {
            self.watch_message_after(delay, index, WatchMessage::Page(reader, Err(failure)));
        }
        let message = WatchMessage::List { reader, kind, request, answered };
        self.watch_message_after(self.options.timing.request, index, message);
    }

    fn page_arrived(&mut self, index: usize, reader: ListReader, page: &Result<String, ReadFailure>) {
        let now = self.monotonic();
        let page = page.as_ref().map(|page| page.as_bytes()).map_err(Clone::clone);
        match reader {
            ListReader::Takeover => {
                let term = self.replicas[index].term.as_mut();
                let Some(takeover) = term.and_then(|term| term.takeover.as_mut()) else { return };
                takeover.page(page, now);
                takeover.take_reports();
                self.step_takeover(index);
            }
            ListReader::Watcher(kind) => {
                let Some(stream) = self.stream(index, kind) else { return };
                stream.watcher.page(page, now);
                self.step_watcher(index, kind);
            }
        }
    }

    fn send_open(&mut self, index: usize, kind: WatchedKind, request: WatchRequest) {
        match self.watch_fault() {
            Some((failure, delay)) => {
                self.watch_message_after(delay, index, WatchMessage::Opened(kind, 0, Err(failure)));
            }
            None => {
                self.watch_message_after(
                    self.options.timing.request,
                    index,
                    WatchMessage::Open(kind, request),
                );
            }
        }
    }

    /// The API server opens a watch and sends all changes since the version of the request.
    fn open_watch(&mut self, index: usize, kind: WatchedKind, request: &WatchRequest) {
        let Some(stored) = stored_kind(kind) else { return };
        let missed = self.api.changes_since(stored, &request.resource_version);
        let range = self.options.timing.answer;
        let due = self.now().after(Duration::from_millis(self.random.between(range.0, range.1)));
        let lines = match missed {
            Ok(lines) => lines,
            Err(status) => {
                let failure = ReadFailure::of_status(status.code, status.message);
                self.watch_message_at(due, index, WatchMessage::Opened(kind, 0, Err(failure)));
                return;
            }
        };
        self.connections += 1;
        let connection = self.connections;
        let Some(stream) = self.stream(index, kind) else { return };
        stream.connection = Some(connection);
        stream.last_due = due;
        self.watch_message_at(due, index, WatchMessage::Opened(kind, connection, Ok(())));
        for line in lines {
            self.send_line(index, kind, connection, line);
        }
        let bookmark = self.now().after(BOOKMARK_INTERVAL);
        self.watch_message_at(bookmark, index, WatchMessage::Bookmark(kind, connection));
        let close = self.now().after(request.timeout);
        self.watch_message_at(close, index, WatchMessage::Close(kind, connection));
    }

    /// Sends a bookmark on an open connection. All earlier writes are on it, so the watch may resume here.
    fn send_bookmark(&mut self, index: usize, kind: WatchedKind, connection: u64) {
        let Some(stored) = stored_kind(kind) else { return };
        let line = self.api.bookmark_line(stored);
        if self.stream(index, kind).and_then(|stream| stream.connection) != Some(connection) {
            return;
        }
        self.send_line(index, kind, connection, line);
        let next = self.now().after(BOOKMARK_INTERVAL);
        self.watch_message_at(next, index, WatchMessage::Bookmark(kind, connection));
    }

    /// Puts a line onto a connection.
    fn send_line(&mut self, index: usize, kind: WatchedKind, connection: u64, line: String) {
        let DelayRange(low, high) = self.options.timing.watch;
        let lag = self.random.below(self.options.faults.watch_lag_ms + 1);
        let due = self.now().after(Duration::from_millis(self.random.between(low, high) + lag));
        let Some(stream) = self.stream(index, kind) else { return };
        stream.last_due = stream.last_due.max(due);
        let due = stream.last_due;
        self.watch_message_at(due, index, WatchMessage::Line(kind, connection, line));
    }

    /// Sends a write to the replica that watches its kind.
    pub(super) fn watch(&mut self, index: usize, write: &WriteRecord) {
        let Some(kind) = watched_kind(write.key.kind) else { return };
        if !self.replicas[index].alive() {
            return;
        }
        let Some(connection) = self.stream(index, kind).and_then(|stream| stream.connection) else { return };
        let gap = self.options.faults.watch_gap;
        if gap > 0 && self.random.percent(gap) {
            let after = Duration::from_millis(self.random.between(10, 20_000));
            self.break_watch(index, write.key.kind, after);
            return;
        }
        if let Some(line) = self.api.watch_line(write) {
            self.send_line(index, kind, connection, line);
        }
    }

    /// Breaks a replica's watch of a kind. Lines on their way are lost. The replica notices after
    /// `noticed_after`.
    pub fn break_watch(&mut self, index: usize, kind: ObjectKind, noticed_after: Duration) {
        let Some(kind) = watched_kind(kind) else { return };
        let Some(stream) = self.stream(index, kind) else { return };
        let Some(connection) = stream.connection.take() else { return };
        let end = WatchEnd::Broken("the connection broke".to_owned());
        let at = self.now().after(noticed_after);
        self.watch_message_at(at, index, WatchMessage::Ended(kind, connection, end));
    }
}

impl WatchMessage {
    /// Whether the message is a timer of an open watch, which is no activity.
    pub(super) fn is_timer(&self) -> bool {
        matches!(self, Self::Bookmark(..) | Self::Close(..))
    }

    /// Whether the replica handles the message. A paused replica handles it when it continues.
    pub(super) fn reaches_replica(&self) -> bool {
        !matches!(self, Self::List { .. } | Self::Open(..) | Self::Bookmark(..) | Self::Close(..))
    }
}
