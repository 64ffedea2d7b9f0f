//! UIDs of the `Gang` objects, for events, and counts of gangs by phase, for metrics.
//!
//! Bound: one small entry for each `Gang` object.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use portcullis_core::engine::{Change, Event, GangEvent, GangRecord, ListedObjects, Phase, RequestOutcome};
use portcullis_core::model::{GangId, Reason, Str};

use portcullis_edge::highest_epoch;

use super::lease::EpochFloor;
use crate::telemetry::ClusterMetrics;

/// UIDs of the `Gang` objects. Cheap to clone; all clones share their content.
#[derive(Clone, Debug, Default)]
pub(super) struct GangUids(Arc<Mutex<BTreeMap<GangId, Str>>>);

impl GangUids {
    pub(super) fn set(&self, gang: &GangId, uid: &Str) {
        self.lock().insert(gang.clone(), uid.clone());
    }

    pub(super) fn remove(&self, gang: &GangId) {
        self.lock().remove(gang);
    }

    pub(super) fn uid(&self, gang: &GangId) -> Option<Str> {
        self.lock().get(gang).cloned()
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<GangId, Str>> {
        // No code panics in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts gangs by phase and measures how long they wait.
pub(super) struct GangCounts {
    metrics: ClusterMetrics,
    epoch_floor: EpochFloor,
    gangs: BTreeMap<GangId, CountedGang>,
    counts: BTreeMap<Phase, i64>,
}

struct CountedGang {
    phase: Phase,
    /// When it was first seen; `None` when it existed before this replica led, because its age is unknown.
    first_seen: Option<Instant>,
}

impl GangCounts {
    pub(super) fn new(metrics: ClusterMetrics, epoch_floor: EpochFloor) -> Self {
        Self { metrics, epoch_floor, gangs: BTreeMap::new(), counts: BTreeMap::new() }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.gangs.clear();
        self.counts.clear();
        self.metrics.set_gangs(&self.counts);
    }

    pub(super) fn listed(&mut self, listed: &ListedObjects) {
        for record in listed.gangs.iter().flatten() {
            self.set(record, None);
        }
        self.metrics.set_gangs(&self.counts);
    }

    pub(super) fn changed(&mut self, event: &Event) {
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

    /// Raises the epoch floor: the object that answers a write may name a newer epoch.
    pub(super) fn answered(&self, event: &Event) {
        if let Event::Answer { outcome: RequestOutcome::Gang(record), .. } = event {
            self.epoch_floor.raise(highest_epoch(&record.status));
        }
    }

    /// Measures how long a gang waited when the engine records that it was lifted.
    pub(super) fn recorded(&mut self, note: &GangEvent) {
        if note.reason == Reason::Lifted
            && let Some(first) = self.gangs.get_mut(&note.gang).and_then(|entry| entry.first_seen.take())
        {
            self.metrics.observe_gang_wait(first.elapsed());
        }
    }

    fn set(&mut self, record: &GangRecord, now: Option<Instant>) {
        self.epoch_floor.raise(highest_epoch(&record.status));
        let phase = record.status.phase;
        let before = match self.gangs.get_mut(&record.gang) {
            Some(entry) => Some(std::mem::replace(&mut entry.phase, phase)),
            None => {
                self.gangs.insert(record.gang.clone(), CountedGang { phase, first_seen: now });
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
