//! How a simulated cluster is set up: who takes how long, and what goes wrong how often.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use portcullis_core::engine::EngineSettings;

/// Least and most, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayRange(pub u64, pub u64);

/// Everything that is decided before a simulation starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// How many replicas of the engine.
    pub replicas: usize,
    /// What the engines go by.
    pub settings: EngineSettings,
    /// Who takes how long.
    pub timing: Timing,
    /// What goes wrong by itself.
    pub faults: FaultRates,
    /// Whether the scheduler breaks ties by chance, and not by name.
    pub random_ties: bool,
    /// Whether every step of an engine is done twice, on a copy, to see that it comes out the same.
    pub step_twice: bool,
    /// Whether everything that happens is written down, for [`super::Cluster::take_trace`].
    pub trace: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            replicas: 2,
            settings: EngineSettings::default(),
            timing: Timing::steady(),
            faults: FaultRates::default(),
            random_ties: false,
            step_twice: true,
            trace: false,
        }
    }
}

/// Who takes how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From a decision to the request leaving the replica.
    pub send: DelayRange,
    /// From there to the API server.
    pub request: DelayRange,
    /// And back.
    pub answer: DelayRange,
    /// From a write to the watchers.
    pub watch: DelayRange,
    /// From something in the inbox to the engine looking at it.
    pub wake: DelayRange,
    /// From a change to the scheduler's next pod.
    pub schedule: DelayRange,
    /// From binding to running.
    pub start: DelayRange,
    /// From deletion of a bound pod to its end.
    pub grace: DelayRange,
    /// From a change to the workload controllers.
    pub reconcile: DelayRange,
    /// How long a lease lasts without being renewed.
    pub lease: Duration,
    /// How often it is renewed, and tried for.
    pub renew: Duration,
    /// How often an engine looks at the time.
    pub tick: Duration,
    /// How long nothing has to have happened for the cluster to be quiet.
    pub quiet: Duration,
    /// How long a node may be away before its pods are given up.
    pub give_up: Duration,
}

impl Timing {
    /// Always the same: for stories.
    pub fn steady() -> Self {
        Self {
            send: DelayRange(1, 1),
            request: DelayRange(1, 1),
            answer: DelayRange(1, 1),
            watch: DelayRange(2, 2),
            wake: DelayRange(1, 1),
            schedule: DelayRange(5, 5),
            start: DelayRange(20, 20),
            grace: DelayRange(1000, 1000),
            reconcile: DelayRange(5, 5),
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(2),
            tick: Duration::from_secs(1),
            quiet: Duration::from_millis(2500),
            give_up: Duration::from_secs(60),
        }
    }

    /// Everything overtakes everything: for the random-fault run.
    pub fn jittery() -> Self {
        Self {
            send: DelayRange(0, 20),
            request: DelayRange(0, 30),
            answer: DelayRange(0, 30),
            watch: DelayRange(0, 60),
            wake: DelayRange(0, 20),
            schedule: DelayRange(0, 60),
            start: DelayRange(5, 200),
            grace: DelayRange(10, 3000),
            reconcile: DelayRange(5, 100),
            renew: Duration::from_secs(3),
            tick: Duration::from_secs(2),
            quiet: Duration::from_millis(4500),
            ..Self::steady()
        }
    }
}

/// What goes wrong by itself, in percent of all requests or watch events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct FaultRates {
    /// The API server answers 500 or 429.
    pub refused: u64,
    /// It answers 409, though nothing has changed.
    pub conflict: u64,
    /// A request never arrives, and nobody says so.
    pub request_lost: u64,
    /// It is done, and the answer is lost.
    pub answer_lost: u64,
    /// It arrives so late that the sender has given up.
    pub late: u64,
    /// A watch breaks at this event and has to be read anew.
    pub watch_gap: u64,
    /// A watch event takes up to this many milliseconds longer.
    pub watch_lag_ms: u64,
    /// The lease cannot be read or renewed.
    pub lease_error: u64,
}
