//! Drives the watchers and the takeover of `portcullis_edge` over HTTP.

use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;
use portcullis_edge::{
    LIST_PAGE_LIMIT, ListRequest, Monotonic, ReadFailure, Takeover, TakeoverResult, TakeoverStep,
    WATCH_IDLE_TIMEOUT, WatchEnd, WatchEvent, WatchRequest, WatchedKind, Watcher, WatcherReport, WatcherStep,
};
use tokio::sync::mpsc;

use super::client::{Client, Lost, Reply, collection_path};
use super::event_recorder::EventRecorder;
use super::failure_log::FailureLog;
use super::lines::Lines;
use super::random;
use crate::telemetry::{self, ClusterMetrics};

/// The time since this process first asked for it.
pub(super) fn monotonic_now() -> Monotonic {
    static START: OnceLock<Instant> = OnceLock::new();
    Monotonic(START.get_or_init(Instant::now).elapsed())
}

/// Why a reply with an error status is a failure.
pub(super) fn failure_of(reply: &Reply) -> ReadFailure {
    ReadFailure::of_status(reply.code, reply.message())
}

fn failure_of_lost(Lost(problem): Lost) -> ReadFailure {
    ReadFailure::Failed(problem)
}

/// What every watch needs. Cheap to clone.
#[derive(Clone)]
pub(super) struct WatchDriver {
    pub client: Client,
    pub metrics: ClusterMetrics,
    pub failures: FailureLog,
    /// Records an event on each object that cannot be read. `None` records none.
    pub recorder: Option<EventRecorder>,
}

impl WatchDriver {
    /// A driver that records no events and logs the failures of its own watches only.
    pub(super) fn new(client: Client, metrics: ClusterMetrics) -> Self {
        Self { client, metrics, failures: FailureLog::default(), recorder: None }
    }

    /// Reads every kind that the engine needs. Retries until the required kinds are read.
    pub(super) async fn take_over(&self) -> TakeoverResult {
        let mut takeover = Takeover::new(LIST_PAGE_LIMIT, &mut random::seeded());
        loop {
            match takeover.step(monotonic_now()) {
                TakeoverStep::Wait(until) => tokio::time::sleep(until.since(monotonic_now())).await,
                TakeoverStep::List(kind, request) => {
                    let answer = self.list_page(kind, &request).await;
                    takeover.page(answer.as_deref().map_err(Clone::clone), monotonic_now());
                }
                TakeoverStep::Done => return takeover.finish(),
            }
            for (kind, report) in takeover.take_reports() {
                self.report(kind, report);
            }
        }
    }

    /// Watches a kind from its first list on, until the receiver of `out` is dropped.
    pub(super) async fn follow_kind(&self, kind: WatchedKind, out: mpsc::Sender<WatchEvent>) {
        self.follow(Watcher::new(kind, LIST_PAGE_LIMIT, random::seeded()), out).await;
    }

    /// Runs a watcher until the receiver of `out` is dropped.
    pub(super) async fn follow(&self, mut watcher: Watcher, out: mpsc::Sender<WatchEvent>) {
        let mut lines = None;
        loop {
            tokio::select! {
                () = self.perform_step(&mut watcher, &mut lines) => {}
                () = out.closed() => return,
            }
            for report in watcher.take_reports() {
                self.report(watcher.kind(), report);
            }
            for event in watcher.take_events() {
                if out.send(event).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn perform_step(&self, watcher: &mut Watcher, lines: &mut Option<Lines>) {
        let step = watcher.step(monotonic_now());
        if step != WatcherStep::ReadLine {
            *lines = None;
        }
        match step {
            WatcherStep::Wait(until) => tokio::time::sleep(until.since(monotonic_now())).await,
            WatcherStep::List(request) => {
                let answer = self.list_page(watcher.kind(), &request).await;
                watcher.page(answer.as_deref().map_err(Clone::clone), monotonic_now());
            }
            WatcherStep::OpenWatch(request) => {
                let answer = match self.client.lines(&watch_path(watcher.kind(), &request)).await {
                    Ok(Ok(opened)) => {
                        *lines = Some(opened);
                        Ok(())
                    }
                    Ok(Err(reply)) => Err(failure_of(&reply)),
                    Err(lost) => Err(failure_of_lost(lost)),
                };
                watcher.opened(answer, monotonic_now());
            }
            WatcherStep::ReadLine => {
                let next = match lines {
                    Some(lines) => lines.next(WATCH_IDLE_TIMEOUT).await,
                    None => Err(Lost("the connection was dropped".to_owned())),
                };
                match next {
                    Ok(Some(line)) => watcher.line(&line, monotonic_now()),
                    Ok(None) => watcher.ended(WatchEnd::Closed, monotonic_now()),
                    Err(Lost(problem)) => watcher.ended(WatchEnd::Broken(problem), monotonic_now()),
                }
            }
        }
    }

    /// One page of a list.
    pub(super) async fn list_page(
        &self,
        kind: WatchedKind,
        request: &ListRequest,
    ) -> Result<Bytes, ReadFailure> {
        let reply = self.client.get(&list_path(kind, request)).await.map_err(failure_of_lost)?;
        if reply.ok() { Ok(reply.body) } else { Err(failure_of(&reply)) }
    }

    /// Logs and counts.
    pub(super) fn report(&self, kind: WatchedKind, report: WatcherReport) {
        match report {
            WatcherReport::Unreadable { error, object, first } => {
                self.metrics.count_unreadable(kind.label());
                if !first {
                    return;
                }
                tracing::warn!(
                    kind = kind.name(),
                    problem = %error,
                    "object cannot be read; its last readable state stays in use"
                );
                if let (Some(recorder), Some(object)) = (&self.recorder, object) {
                    recorder.record_unreadable(object, &error.to_string());
                }
            }
            WatcherReport::Failed(failure) => self.failures.failed(kind, &failure),
            WatcherReport::Succeeded => self.failures.succeeded(kind),
            WatcherReport::WatchEnded(end) => {
                let counted = match end {
                    WatchEnd::Closed => telemetry::WatchEnd::Closed,
                    WatchEnd::Expired => telemetry::WatchEnd::Expired,
                    WatchEnd::Broken(problem) => {
                        tracing::debug!(kind = kind.name(), problem, "watch broke; resuming it");
                        telemetry::WatchEnd::Broken
                    }
                };
                self.metrics.count_watch_end(kind.label(), counted);
            }
        }
    }
}

fn list_path(kind: WatchedKind, request: &ListRequest) -> String {
    let (collection, limit) = (collection_path(&kind.resource(), ""), request.limit);
    match request.continue_token.as_str() {
        "" => format!("{collection}?limit={limit}"),
        token => format!("{collection}?limit={limit}&continue={}", query_value(token)),
    }
}

fn watch_path(kind: WatchedKind, request: &WatchRequest) -> String {
    let collection = collection_path(&kind.resource(), "");
    let (version, seconds) = (&request.resource_version, request.timeout.as_secs());
    format!(
        "{collection}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}"
    )
}

/// Escapes a value of a query: everything but unreserved characters (RFC 3986).
fn query_value(text: &str) -> String {
    use std::fmt::Write;
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            other => {
                let _ = write!(escaped, "%{other:02X}");
            }
        }
    }
    escaped
}
