//! What the edge keeps of each gang: the UID of our object, for events, and its phase, for metrics.
//!
//! Bound: one small entry for each `Gang` object there is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use portcullis_core::engine::{Change, Event, GangEvent, GangRecord, ListedObjects, Phase, RequestOutcome};
use portcullis_core::model::{GangId, Reason, Str};

use super::lease::{Floor, epoch_of};
use crate::telemetry::ClusterMetrics;

/// UIDs of our own objects. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory(Arc<Mutex<BTreeMap<GangId, Str>>>);

impl Directory {
    pub(super) fn note(&self, gang: &GangId, uid: &Str) {
        self.lock().insert(gang.clone(), uid.clone());
    }

    pub(super) fn forget(&self, gang: &GangId) {
        self.lock().remove(gang);
    }

    pub(super) fn uid(&self, gang: &GangId) -> Option<Str> {
        self.lock().get(gang).cloned()
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<GangId, Str>> {
        // Nothing in here can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Phases and waiting times.
pub(super) struct Census {
    metrics: ClusterMetrics,
    floor: Floor,
    gangs: BTreeMap<GangId, Entry>,
    counts: BTreeMap<Phase, i64>,
}

struct Entry {
    phase: Phase,
    /// When it was first seen; `None` where it was there before we led: then nobody knows how long it has waited.
    first: Option<Instant>,
}

impl Census {
    pub(super) fn new(metrics: ClusterMetrics, floor: Floor) -> Self {
        Self { metrics, floor, gangs: BTreeMap::new(), counts: BTreeMap::new() }
    }

    /// Nothing is known any more.
    pub(super) fn clear(&mut self) {
        self.gangs.clear();
        self.counts.clear();
        self.metrics.set_gangs(&self.counts);
    }

    pub(super) fn listed(&mut self, world: &ListedObjects) {
        for record in world.gangs.iter().flatten() {
            self.set(record, None);
        }
        self.metrics.set_gangs(&self.counts);
    }

    pub(super) fn told(&mut self, event: &Event) {
        match event {
            Event::Gang(Change::Set(record)) => self.set(record, Some(Instant::now())),
            Event::Gang(Change::Gone(gang)) => {
                if let Some(entry) = self.gangs.remove(gang) {
                    self.count(entry.phase, -1);
                }
            }
            _ => return,
        }
        self.metrics.set_gangs(&self.counts);
    }

    /// What a write of ours met may be newer than we are.
    pub(super) fn answered(&self, event: &Event) {
        if let Event::Answer { outcome: RequestOutcome::Gang(record), .. } = event {
            self.floor.raise(epoch_of(&record.status));
        }
    }

    /// People are told something: that a gang is lifted ends its waiting.
    pub(super) fn said(&mut self, note: &GangEvent) {
        if note.reason == Reason::Lifted
            && let Some(first) = self.gangs.get_mut(&note.gang).and_then(|entry| entry.first.take())
        {
            self.metrics.observe_gang_wait(first.elapsed());
        }
    }

    fn set(&mut self, record: &GangRecord, now: Option<Instant>) {
        self.floor.raise(epoch_of(&record.status));
        let phase = record.status.phase;
        let before = match self.gangs.get_mut(&record.gang) {
            Some(entry) => Some(std::mem::replace(&mut entry.phase, phase)),
            None => {
                self.gangs.insert(record.gang.clone(), Entry { phase, first: now });
                None
            }
        };
        if let Some(before) = before {
            self.count(before, -1);
        }
        self.count(phase, 1);
    }

    fn count(&mut self, phase: Phase, by: i64) {
        *self.counts.entry(phase).or_default() += by;
    }
}
