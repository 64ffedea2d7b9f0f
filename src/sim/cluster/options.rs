//! Options of a simulated cluster: delays, and rates of random faults.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use portcullis_core::engine::EngineSettings;

/// Minimum and maximum of a random delay, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayRange(pub u64, pub u64);

/// The options of a simulated cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// Number of replicas of the engine.
    pub replicas: usize,
    /// Settings of the engines.
    pub settings: EngineSettings,
    /// Delays.
    pub timing: Timing,
    /// Rates of random faults.
    pub faults: FaultRates,
    /// Whether the scheduler breaks ties randomly instead of by name.
    pub random_ties: bool,
    /// Whether every engine step runs a second time on a copy, to check that the result is the same.
    pub step_twice: bool,
    /// Whether all events are recorded for [`super::Cluster::take_trace`].
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

/// Delays of the simulated components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From a decision until the request leaves the replica.
    pub send: DelayRange,
    /// From the replica to the API server.
    pub request: DelayRange,
    /// From the API server back to the replica.
    pub answer: DelayRange,
    /// From a write to the watches.
    pub watch: DelayRange,
    /// From the inbox to the engine.
    pub wake: DelayRange,
    /// From a change to the scheduler's next pod.
    pub schedule: DelayRange,
    /// From binding to running.
    pub start: DelayRange,
    /// From the deletion of a bound pod until it is gone.
    pub grace: DelayRange,
    /// From a change to the reconciliation of the workload controllers.
    pub reconcile: DelayRange,
    /// Interval of the timers of an engine.
    pub tick: Duration,
    /// Time without activity after which the cluster has settled.
    pub quiet: Duration,
    /// Time after which the pods of a node that is not ready are deleted.
    pub give_up: Duration,
    /// Objects on a page of a list.
    pub page_limit: usize,
    /// Writes that the API server keeps for watches that resume.
    pub history_limit: usize,
}

impl Timing {
    /// Fixed delays, for scenario files.
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
            tick: Duration::from_secs(1),
            quiet: Duration::from_millis(2500),
            give_up: Duration::from_secs(60),
            page_limit: 500,
            history_limit: 10_000,
        }
    }

    /// Random delays, so that messages overtake each other. For random scenarios.
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
            tick: Duration::from_secs(2),
            quiet: Duration::from_millis(4500),
            page_limit: 5,
            history_limit: 60,
            ..Self::steady()
        }
    }
}

/// Rates of random faults, in percent of all requests or watch events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct FaultRates {
    /// The API server answers 500 or 429.
    pub refused: u64,
    /// The API server answers 409 although nothing has changed.
    pub conflict: u64,
    /// A request is lost without an error.
    pub request_lost: u64,
    /// A request is carried out, and its response is lost.
    pub answer_lost: u64,
    /// A request arrives after the sender's timeout.
    pub late: u64,
    /// A watch breaks at this event and must be restarted.
    pub watch_gap: u64,
    /// Additional delay of a watch event, up to this number of milliseconds.
    pub watch_lag_ms: u64,
    /// The lease cannot be read or renewed.
    pub lease_error: u64,
}
