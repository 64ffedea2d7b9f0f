//! Reads every kind that the engine needs when a replica starts to lead: gangs first, then pods, then the
//! rest.
//!
//! Invariants: every list starts after the takeover, and each watcher resumes exactly at its list. The engine
//! receives the lists before any change.

use std::time::Duration;

use portcullis_core::engine::{Change, ListedObjects};
use portcullis_core::model::random::Random;
use portcullis_core::model::{Backoff, GangId, Str};

use crate::{
    ListRequest, Monotonic, ReadFailure, WatchEvent, WatchedKind, WatchedObject, Watcher, WatcherReport,
    WatcherStep,
};

/// First and longest delay before a required kind is listed again.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What the driver does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeoverStep {
    /// Wait until then.
    Wait(Monotonic),
    /// List this kind and pass the answer to [`Takeover::page`].
    List(WatchedKind, ListRequest),
    /// Every kind is read: call [`Takeover::finish`].
    Done,
}

/// The result of a takeover.
#[derive(Clone, Debug, PartialEq)]
pub struct TakeoverResult {
    /// The lists, for the engine.
    pub listed: ListedObjects,
    /// UIDs of the `Gang` objects, for events about them.
    pub gang_uids: Vec<(GangId, Str)>,
    /// One watcher for each kind. Each resumes at its list; an absent or forbidden kind is listed again.
    pub watchers: Vec<Watcher>,
}

/// A takeover in progress.
///
/// A group kind that is not installed or forbidden counts as an empty list. Without gangs, pods,
/// nodes and namespaces the engine cannot plan, so those are tried until they can be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Takeover {
    result: TakeoverResult,
    /// Kinds that are not read yet; the current one is the first.
    remaining: std::collections::VecDeque<Watcher>,
    /// Objects of the current kind from the pages so far.
    objects: Vec<WatchedObject>,
    backoff: Backoff,
    reports: Vec<(WatchedKind, WatcherReport)>,
}

impl Takeover {
    /// A takeover that has read nothing yet. `random` supplies the jitter of all watchers.
    pub fn new(page_limit: usize, random: &mut Random) -> Self {
        let watchers = WatchedKind::engine_kinds()
            .into_iter()
            .map(|kind| Watcher::new(kind, page_limit, random.fork()))
            .collect();
        let listed = ListedObjects {
            nodes: Some(Vec::new()),
            pods: Some(Vec::new()),
            groups: std::collections::BTreeMap::new(),
            gangs: Some(Vec::new()),
            priority_classes: Some(Vec::new()),
            namespaces: Some(Vec::new()),
        };
        Self {
            result: TakeoverResult { listed, gang_uids: Vec::new(), watchers: Vec::new() },
            remaining: watchers,
            objects: Vec::new(),
            backoff: Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1),
            reports: Vec::new(),
        }
    }

    /// What to do next. Returns the same step until its answer comes.
    pub fn step(&mut self, now: Monotonic) -> TakeoverStep {
        let Some(watcher) = self.remaining.front_mut() else { return TakeoverStep::Done };
        let kind = watcher.kind();
        match watcher.step(now) {
            WatcherStep::Wait(until) => TakeoverStep::Wait(until),
            WatcherStep::List(request) => TakeoverStep::List(kind, request),
            step @ (WatcherStep::OpenWatch(_) | WatcherStep::ReadLine) => {
                unreachable!("a listed kind leaves the queue: {step:?}")
            }
        }
    }

    /// Takes the answer to a [`TakeoverStep::List`]: the body of the page.
    pub fn page(&mut self, answer: Result<&[u8], ReadFailure>, now: Monotonic) {
        let Some(watcher) = self.remaining.front_mut() else { return };
        let kind = watcher.kind();
        watcher.page(answer, now);
        for event in watcher.take_events() {
            if let WatchEvent::Changed(Change::Set(object)) = event {
                self.objects.push(object);
            }
        }
        let mut failure = None;
        for report in watcher.take_reports() {
            if let WatcherReport::Failed(reason) = &report {
                failure = Some(reason.clone());
            }
            self.reports.push((kind, report));
        }
        if watcher.is_listed() {
            self.complete();
            return;
        }
        let Some(failure) = failure else { return };
        self.objects.clear();
        let skipped =
            kind.optional() && matches!(failure, ReadFailure::Absent(_) | ReadFailure::Forbidden(_));
        if skipped {
            if kind == WatchedKind::PriorityClasses {
                self.result.listed.priority_classes = None;
            }
            self.complete();
            return;
        }
        let delay = self.backoff.fail_with_jitter(watcher.random());
        watcher.retry_at(now.after(delay));
    }

    /// Continues with the next kind.
    fn complete(&mut self) {
        self.backoff.reset();
        for object in self.objects.drain(..) {
            if let WatchedObject::Gang(record, uid) = &object {
                self.result.gang_uids.push((record.gang.clone(), uid.clone()));
            }
            object.add_to(&mut self.result.listed);
        }
        self.result.watchers.extend(self.remaining.pop_front());
    }

    /// Takes the reports since the last call, in order, with the kind that each is about.
    pub fn take_reports(&mut self) -> Vec<(WatchedKind, WatcherReport)> {
        std::mem::take(&mut self.reports)
    }

    /// The lists and the watchers. Call it after [`TakeoverStep::Done`].
    pub fn finish(self) -> TakeoverResult {
        debug_assert!(self.remaining.is_empty(), "kinds that are not read: {:?}", self.remaining);
        self.result
    }
}
