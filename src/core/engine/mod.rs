//! The gang-admission engine: `step(Event, now) -> Vec<Effect>`.
//!
//! It gathers, queues, plans, records, nominates, lifts and observes, and never does any of it itself: effects go out,
//! watches and answers come back. It believes watches and answers, never its own intentions.

mod types;
pub mod wire;

pub use types::{
    Action, Change, Effect, Event, GangRecord, GangStatus, Note, Outcome, Phase, Pin, PlanRecord,
    PlannedMember, PodRef, Subject, World,
};

use std::time::Duration;

use crate::model::Time;
use crate::snapshot::{SharingMode, Snapshot};

/// What the engine goes by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How long a lifted gang may take to be bound before it is torn.
    pub bind_timeout: Duration,
    /// Which nodes share their cards.
    pub sharing: SharingMode,
    /// What becomes of a torn gang.
    pub on_torn: OnTorn,
    /// Whether members are nominated to their node before they are lifted, so that the scheduler keeps the room.
    pub nominate: bool,
    /// Whether members without a VRAM share are tied to their node for good, too.
    pub pin_all: bool,
}

/// What becomes of a gang that is lifted and, past its deadline, not bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnTorn {
    /// It is left as it is, and what can still be bound stays reserved.
    #[default]
    Hold,
    /// Its unbound members are deleted, so that their owners make new ones and the gang can be tried again.
    Evict,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bind_timeout: Duration::from_secs(60),
            sharing: SharingMode::default(),
            on_torn: OnTorn::default(),
            nominate: true,
            pin_all: false,
        }
    }
}

/// The engine of one replica. It plans only while it holds the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Engine {
    settings: Settings,
    snapshot: Snapshot,
}

impl Engine {
    /// An engine that knows nothing and leads nobody.
    pub fn new(settings: Settings) -> Self {
        let snapshot = Snapshot::new(settings.sharing);
        Self { settings, snapshot }
    }

    /// Takes one event, at this time, and says what is to be done.
    pub fn step(&mut self, _event: Event, _now: Time) -> Vec<Effect> {
        let _ = &self.settings;
        Vec::new()
    }

    /// Capacity as this engine sees it, reservations included.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}
