//! The times of each pod by the clock of the loader, from the answers to its creates and from one watch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use portcullis::cluster::Client;
use serde::Deserialize;
use tokio::sync::Notify;

use super::follow::Follow;

/// All pods of the load carry this label; its value is `load`.
pub(super) const LABEL: &str = "portcullis-bench";

/// The times of one pod.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    /// When the create was answered.
    pub(super) created: Option<Instant>,
    /// The duration of the create.
    pub(super) took: Duration,
    /// When the pod was first seen without a gate.
    pub(super) free: Option<Instant>,
    /// When the pod was first seen bound.
    pub(super) bound: Option<Instant>,
}

/// All pods by gang and member number.
pub(super) struct Marks {
    marks: Mutex<Vec<Vec<Mark>>>,
    /// Notified at every change.
    pub(super) changed: Notify,
}

impl Marks {
    pub(super) fn new(gangs: usize, size: usize) -> Arc<Self> {
        Arc::new(Self { marks: Mutex::new(vec![vec![Mark::default(); size]; gangs]), changed: Notify::new() })
    }

    pub(super) fn all(&self) -> MutexGuard<'_, Vec<Vec<Mark>>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn created(&self, gang: usize, member: usize, sent: Instant) {
        let now = Instant::now();
        let mut marks = self.all();
        let mark = &mut marks[gang][member];
        (mark.created, mark.took) = (Some(now), now - sent);
    }

    /// The numbers of completely bound gangs and of bound pods.
    pub(super) fn bound(&self) -> (usize, usize) {
        let marks = self.all();
        let whole = marks.iter().filter(|gang| gang.iter().all(|m| m.bound.is_some())).count();
        (whole, marks.iter().flatten().filter(|m| m.bound.is_some()).count())
    }

    fn seen(&self, line: &[u8]) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct MarkedEvent {
            object: Pod,
        }
        #[derive(Deserialize)]
        struct Pod {
            metadata: MarkedMetadata,
            #[serde(default)]
            spec: MarkedSpec,
        }
        #[derive(Deserialize)]
        struct MarkedMetadata {
            name: Option<String>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct MarkedSpec {
            scheduling_gates: Vec<serde::de::IgnoredAny>,
            node_name: Option<String>,
        }
        let event: MarkedEvent = serde_json::from_slice(line).context("a line of the watch")?;
        let name = event.object.metadata.name.unwrap_or_default();
        let Some((gang, member)) = place(&name) else { return Ok(()) };
        let now = Instant::now();
        let mut marks = self.all();
        let Some(mark) = marks.get_mut(gang).and_then(|gang| gang.get_mut(member)) else { return Ok(()) };
        if event.object.spec.scheduling_gates.is_empty() {
            mark.free.get_or_insert(now);
        }
        if event.object.spec.node_name.is_some() {
            mark.bound.get_or_insert(now);
        }
        drop(marks);
        self.changed.notify_one();
        Ok(())
    }
}

/// `gang-12-3` is member 3 of gang 12.
fn place(name: &str) -> Option<(usize, usize)> {
    let (gang, member) = name.strip_prefix("gang-")?.split_once('-')?;
    Some((gang.parse().ok()?, member.parse().ok()?))
}

/// Starts the watch. It misses no later change.
pub(super) async fn watch(
    api: &Client,
    marks: &Arc<Marks>,
) -> anyhow::Result<tokio::task::JoinHandle<anyhow::Result<()>>> {
    let mut pods = Follow::from_now(api, &format!("/api/v1/pods?labelSelector={LABEL}%3Dload")).await?;
    let marks = Arc::clone(marks);
    Ok(tokio::spawn(async move {
        loop {
            marks.seen(&pods.next().await?)?;
        }
    }))
}
