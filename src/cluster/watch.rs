//! Follows one kind: a consistent list in pages, then a watch from there, for as long as anybody listens.
//!
//! Invariants:
//! - changes of one object are told in order, and a watch goes on exactly where its list was read;
//! - an object that cannot be read is counted and named once, and the listener keeps its last reading;
//! - an object that was told of and is in no list any more is told as gone, also after any gap.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use portcullis_core::engine::Change;
use tokio::sync::mpsc;

use super::announce::Announcer;
use super::client::{Client, Lost, collection_path};
use super::kinds::{self, Key, Kind, Object, Page, WatchLine};
use super::random::{Backoff, between};
use super::trouble::{Complaints, Trouble};
use crate::telemetry::{ClusterMetrics, WatchEnd};

/// Objects on a page of a list, as kubectl asks for.
const PAGE: usize = 500;
/// How long the API server is asked to keep a watch open; by chance, so that not all of them end at once.
const OPEN_FOR: (Duration, Duration) = (Duration::from_secs(5 * 60), Duration::from_secs(9 * 60));
/// Bookmarks come about once a minute. Nothing for longer than this, and the connection is taken for dead.
const PATIENCE: Duration = Duration::from_secs(150);
/// How often a kind that is not installed is asked for again.
const ABSENT: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(6));
/// How often a kind that we may not read is asked for again.
const FORBIDDEN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));
/// How soon a watch that was of use is opened again.
const AGAIN: Duration = Duration::from_millis(10);
/// A watch that lasted this long was healthy.
const HEALTHY: Duration = Duration::from_secs(10);
/// How many unreadable objects of a kind are remembered as named.
const NAMED: usize = 1000;

/// What a follower tells.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are changes, and they are moved twice")]
pub(super) enum Seen {
    /// A change.
    Change(Change<Object, Key>),
    /// A list was read to its end: everything that is there has been told.
    Complete,
}

/// One kind, and what was told of it.
pub(super) struct Follower {
    client: Client,
    metrics: ClusterMetrics,
    kind: Kind,
    /// Where a watch may go on; `None` when everything has to be listed.
    version: Option<String>,
    /// Everything that was told to be there.
    known: BTreeSet<Key>,
    /// Unreadable objects that were named.
    unreadable: BTreeSet<Key>,
    /// Who tells people of objects that cannot be read.
    announcer: Option<Announcer>,
    complaints: Complaints,
}

impl Follower {
    pub(super) fn new(client: Client, metrics: ClusterMetrics, kind: Kind) -> Self {
        Self {
            client,
            metrics,
            kind,
            version: None,
            known: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            announcer: None,
            complaints: Complaints::default(),
        }
    }

    /// The same, which also has an event written about each object that cannot be read: once for each.
    pub(super) fn telling(self, announcer: &Announcer) -> Self {
        Self { announcer: Some(announcer.clone()), ..self }
    }

    /// The same, with what was said of its kind before: by a follower of an earlier term of leading.
    pub(super) fn after(self, complaints: &Complaints) -> Self {
        Self { complaints: complaints.clone(), ..self }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Reads everything consistently; `each` is given every readable object, also those read before a failure. A watch
    /// goes on from here.
    pub(super) async fn list(&mut self, mut each: impl FnMut(Object)) -> Result<(), Trouble> {
        let mut missing = self.known.clone();
        let mut next = Some(String::new());
        while let Some(token) = next.take() {
            let (objects, more) = self.page(&token, &mut missing).await?;
            objects.into_iter().for_each(&mut each);
            next = more;
        }
        for key in missing {
            self.known.remove(&key);
        }
        Ok(())
    }

    /// Tells everything that is there, and then everything that is not there any more.
    async fn relist(&mut self, out: &mpsc::Sender<Seen>) -> Result<(), Trouble> {
        let mut missing = self.known.clone();
        let mut next = Some(String::new());
        while let Some(token) = next.take() {
            let (objects, more) = self.page(&token, &mut missing).await?;
            for object in objects {
                // A listener that is gone ends the loop of the caller.
                let _ = out.send(Seen::Change(Change::Set(object))).await;
            }
            next = more;
        }
        self.all_is_well();
        self.tell_gone(missing, out).await;
        Ok(())
    }

    async fn tell_gone(&mut self, keys: BTreeSet<Key>, out: &mpsc::Sender<Seen>) {
        for key in keys {
            self.known.remove(&key);
            let _ = out.send(Seen::Change(Change::Gone(key))).await;
        }
        let _ = out.send(Seen::Complete).await;
    }

    /// The readable objects of one page, and what asks for the next one. What is on it is taken out of `missing`, also
    /// when it cannot be read: then its last reading stands.
    async fn page(
        &mut self,
        token: &str,
        missing: &mut BTreeSet<Key>,
    ) -> Result<(Vec<Object>, Option<String>), Trouble> {
        let collection = collection_path(&self.kind.resource(), "");
        let path = match token {
            "" => format!("{collection}?limit={PAGE}"),
            token => format!("{collection}?limit={PAGE}&continue={}", query_value(token)),
        };
        let reply = self.client.get(&path).await?;
        if !reply.ok() {
            return Err(reply.into());
        }
        let page: Page<'_> = serde_json::from_slice(&reply.body)
            .map_err(|e| Trouble::Failed(format!("the list cannot be read: {e}")))?;
        let mut objects = Vec::with_capacity(page.items.as_ref().map_or(0, Vec::len));
        for item in page.items.iter().flatten() {
            match self.kind.read(item.get()) {
                Ok(object) => {
                    let key = object.key();
                    missing.remove(&key);
                    self.unreadable.remove(&key);
                    self.known.insert(key);
                    objects.push(object);
                }
                Err(error) => {
                    if let Some(key) = self.cannot_read(item.get(), &error) {
                        missing.remove(&key);
                    }
                }
            }
        }
        let more = page.metadata.r#continue.as_str();
        if more.is_empty() {
            self.version = Some(page.metadata.resource_version.as_str().to_owned());
            return Ok((objects, None));
        }
        Ok((objects, Some(more.to_owned())))
    }

    /// Follows the kind until nobody listens any more: goes on from the last list, if there was one.
    pub(super) async fn follow(mut self, out: mpsc::Sender<Seen>) {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        while !out.is_closed() {
            let going_on = async {
                if self.version.is_some() {
                    self.watch(&out, &mut backoff).await
                } else {
                    self.relist(&out).await
                }
            };
            let outcome = tokio::select! {
                outcome = going_on => outcome,
                () = out.closed() => return,
            };
            let Err(trouble) = outcome else { continue };
            let wait = match &trouble {
                Trouble::Absent(_) => {
                    // Its objects went with it.
                    let known = self.known.clone();
                    self.tell_gone(known, &out).await;
                    self.version = None;
                    between(ABSENT.0, ABSENT.1)
                }
                Trouble::Forbidden(_) => between(FORBIDDEN.0, FORBIDDEN.1),
                Trouble::Expired(_) => {
                    self.version = None;
                    self.metrics.count_watch_end(self.kind.label(), WatchEnd::Expired);
                    backoff.fail()
                }
                Trouble::Failed(_) => backoff.fail(),
            };
            self.complain(&trouble);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = out.closed() => return,
            }
        }
    }

    pub(super) fn complain(&self, trouble: &Trouble) {
        self.complaints.complain(self.kind, trouble);
    }

    pub(super) fn all_is_well(&self) {
        self.complaints.all_is_well(self.kind);
    }

    /// One watch, to its end.
    async fn watch(&mut self, out: &mpsc::Sender<Seen>, backoff: &mut Backoff) -> Result<(), Trouble> {
        let collection = collection_path(&self.kind.resource(), "");
        let seconds = between(OPEN_FOR.0, OPEN_FOR.1).as_secs();
        let version = self.version.as_deref().unwrap_or_default();
        let path = format!(
            "{collection}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}"
        );
        let started = Instant::now();
        let mut lines = self.client.lines(&path).await??;
        self.all_is_well();
        let mut told = false;
        loop {
            match lines.next(PATIENCE).await {
                Ok(Some(line)) => {
                    self.line(&line, out).await?;
                    told = true;
                }
                Ok(None) => {
                    self.metrics.count_watch_end(self.kind.label(), WatchEnd::Closed);
                    break;
                }
                Err(Lost(problem)) => {
                    self.metrics.count_watch_end(self.kind.label(), WatchEnd::Broken);
                    tracing::debug!(
                        kind = self.kind.name(),
                        problem,
                        "a watch broke; it goes on where it was"
                    );
                    break;
                }
            }
        }
        // A busy API server ends the watches of whoever reads slowly: what they have missed must not wait long.
        if told || started.elapsed() >= HEALTHY {
            backoff.succeed();
            tokio::time::sleep(AGAIN).await;
        } else {
            tokio::time::sleep(backoff.fail()).await;
        }
        Ok(())
    }

    async fn line(&mut self, line: &Bytes, out: &mpsc::Sender<Seen>) -> Result<(), Trouble> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let read: WatchLine<'_> = serde_json::from_slice(line)
            .map_err(|e| Trouble::Failed(format!("a line of a watch cannot be read: {e}")))?;
        let json = read.object.get();
        let change = match read.r#type.as_str() {
            "ADDED" | "MODIFIED" => match self.kind.read(json) {
                Ok(object) => {
                    let key = object.key();
                    self.unreadable.remove(&key);
                    self.known.insert(key);
                    Some(Change::Set(object))
                }
                Err(error) => {
                    self.cannot_read(json, &error);
                    None
                }
            },
            "DELETED" => match self.kind.key(json) {
                Ok(key) => {
                    self.known.remove(&key);
                    self.unreadable.remove(&key);
                    Some(Change::Gone(key))
                }
                Err(error) => {
                    self.cannot_read(json, &error);
                    None
                }
            },
            "BOOKMARK" => None,
            _ => return Err(Trouble::Expired(format!("the watch ended with {json}"))),
        };
        if let Some(change) = change {
            let _ = out.send(Seen::Change(change)).await;
        }
        if let Some(version) = kinds::version(json) {
            self.version = Some(version);
        }
        Ok(())
    }

    /// Counts and names an object that cannot be read; its key, if at least that can be.
    fn cannot_read(&mut self, json: &str, error: &portcullis_core::objects::ReadError) -> Option<Key> {
        self.metrics.count_unreadable(self.kind.label());
        let key = self.kind.key(json).ok();
        let named = match &key {
            Some(key) => self.unreadable.len() >= NAMED || !self.unreadable.insert(key.clone()),
            None => false,
        };
        if !named {
            tracing::warn!(
                kind = self.kind.name(),
                problem = %error,
                "an object cannot be read and is left as it was last read; the others go on"
            );
            if let (Some(announcer), Some(regarding)) = (&self.announcer, self.kind.regarding(json)) {
                announcer.unreadable(regarding, &error.to_string());
            }
        }
        key
    }
}

/// A value within a query: everything but unreserved characters is escaped (RFC 3986).
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
