//! The cluster edge: watches become events of the engine, effects of the engine become requests.
//!
//! Owns every connection to the API server, the lease, and the one engine of this replica. The only user of
//! the Kubernetes client. Makes no decision about pods or gangs: the engine does. The state machines of
//! watch, takeover and election live in `portcullis_edge`; this room gives them a connection and a clock.
//!
//! ```text
//! client.rs          one request in, one status out; never retries
//! lines.rs           the lines of a watch
//! watch.rs           drives watchers and the takeover
//! lease.rs           drives the election; reads the lease for the engine
//! runner.rs          the loop around the engine
//! effects.rs         effects as requests, answers as events
//! event_recorder.rs  Kubernetes events and log lines
//! failure_log.rs     logs once why a kind cannot be read
//! gangs.rs           UIDs and counts of `Gang` objects, for events and metrics
//! known_classes.rs   names of classes, for reviews
//! policy_data.rs     objects, for policies
//! capacity.rs        the leader's capacity report, for policies
//! random.rs          seeds and unique names
//! failpoint.rs       where tests stop or kill the process
//! ```

pub(crate) mod capacity;
mod client;
mod effects;
mod event_recorder;
mod failpoint;
mod failure_log;
mod gangs;
mod known_classes;
mod lease;
mod lines;
mod policy_data;
mod random;
mod runner;
mod watch;
#[cfg(test)]
mod watch_tests;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use portcullis_core::admission::KnownClasses;
use portcullis_core::engine::EngineSettings;
use tokio::sync::{mpsc, oneshot, watch as channel};

use crate::telemetry::ClusterMetrics;
use capacity::CapacityReporter;
use effects::EffectSender;
use event_recorder::EventRecorder;
use failure_log::FailureLog;
use gangs::{GangCounts, GangUids};
use lease::{ElectionDriver, EpochFloor, LeaseClient};
use runner::EngineLoop;
use watch::WatchDriver;

pub use client::{
    APPLY_PATCH, Client, ClientError, FIELD_MANAGER, JSON, JSON_PATCH, Lost, MERGE_PATCH, REQUEST_TIMEOUT,
    Reply, collection_path,
};
pub use event_recorder::{DeploymentEventRecorder, REPORTING_CONTROLLER};
pub use lines::Lines;
pub use policy_data::PolicyDataSubscriber;

/// How long a shutdown waits for requests in flight before it releases the lease.
const SHUTDOWN_REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Options of the cluster edge.
#[derive(Clone)]
pub struct ClusterOptions {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub lease: String,
    /// The holder identity in the lease. It differs from that of any other process and of any earlier life of
    /// this one ([`identity`]).
    pub identity: String,
    /// Settings of the engine.
    pub engine: EngineSettings,
    /// Requests of the engine that may be in flight at once. A busy API server shares its capacity among
    /// requests, so with few of them gangs would wait behind the pods of other clients.
    pub concurrency: u32,
    /// The subscriber to cluster data for policies.
    pub policy_data: Option<PolicyDataSubscriber>,
}

impl ClusterOptions {
    /// The default options of a replica in this namespace.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            lease: "portcullis".to_owned(),
            identity: identity("portcullis"),
            engine: EngineSettings::default(),
            concurrency: 128,
            policy_data: None,
        }
    }
}

/// A unique holder identity for this life of the process: the name of the replica (the pod's name) and random
/// digits.
pub fn identity(replica: &str) -> String {
    format!("{replica}_{}", random::unique_name())
}

/// Why the cluster edge stopped without a shutdown.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A bug: the engine panicked. The lease was released.
    #[error("the engine has panicked, which is a bug: report it with the log lines before this one ({0})")]
    Engine(String),
    /// The connections of the engine could not be set up.
    #[error(transparent)]
    Client(ClientError),
    /// The operating system has no thread, or no file descriptor, for the engine.
    #[error("the engine cannot start: {0}. Look at the limits of this process (threads, open files)")]
    Thread(std::io::Error),
}

/// Runs elections and the engine until `shutdown` completes, and keeps `classes` up to date meanwhile. Then
/// it releases the lease and returns.
///
/// # Errors
/// When the engine cannot start, or has panicked.
pub async fn run(
    client: Client,
    options: ClusterOptions,
    classes: Arc<ArcSwap<KnownClasses>>,
    metrics: ClusterMetrics,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let client = client.with_metrics(metrics.clone());
    let lease = LeaseClient {
        client: client.clone(),
        namespace: options.namespace.clone(),
        name: options.lease.clone(),
        identity: options.identity.clone(),
    };
    let (epoch_floor, gang_uids) = (EpochFloor::default(), GangUids::default());
    let (lease_sender, lease_events) = mpsc::unbounded_channel();
    let (step_down_sender, step_downs) = mpsc::unbounded_channel();
    let (answer_sender, answers) = mpsc::unbounded_channel();

    // The engine has its own connections, because a connection lives on the thread that opened it.
    let engine_client = client.with_own_connections().map_err(RunError::Client)?;
    let effects = EffectSender::new(
        engine_client.clone(),
        Arc::new(LeaseClient { client: engine_client.clone(), ..lease.clone() }),
        metrics.clone(),
        options.concurrency.max(1),
        answer_sender,
    );
    let recorder =
        EventRecorder::start(client.clone(), metrics.clone(), gang_uids.clone(), &options.identity);
    let election = ElectionDriver {
        lease,
        epoch_floor: epoch_floor.clone(),
        metrics: metrics.clone(),
        events: lease_sender,
    };
    let election = tokio::spawn(election.run(step_downs));
    let (reporter, reports) = CapacityReporter::new(capacity_wanted(options.policy_data.as_ref()));
    let (namespace, capacity_client) = (options.namespace.clone(), client.clone());
    let watches = WatchDriver {
        client: engine_client,
        metrics: metrics.clone(),
        failures: FailureLog::default(),
        recorder: Some(recorder.clone()),
    };
    let engine_loop = EngineLoop {
        watches,
        metrics: metrics.clone(),
        effects: effects.clone(),
        recorder,
        gang_uids,
        gang_counts: GangCounts::new(metrics.clone(), epoch_floor),
        lease_events,
        answers,
        step_downs: step_down_sender.clone(),
        capacity: reporter,
    };
    let (stop, stopped) = oneshot::channel();
    // A plan takes milliseconds of CPU time, so the engine does not run on a thread that answers reviews.
    // Watch events go from the socket to the engine on one thread: where each frame wakes another thread, a
    // busy machine falls behind and the API server closes the watch.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(RunError::Thread)?;
    let mut engine = tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            engine_loop.run(options.engine, stopped).await;
            effects.wait_until_idle(SHUTDOWN_REQUEST_TIMEOUT).await;
        });
    });
    let ended = tokio::select! {
        ended = &mut engine => Some(ended),
        () = shutdown => None,
        () = async {
            match options.policy_data {
                Some(subscriber) => {
                    let publishing = capacity::publish(capacity_client, namespace.clone(), reports);
                    let data = policy_data::watch_policy_data(client, metrics, namespace, classes, subscriber);
                    tokio::join!(data, publishing);
                }
                None => known_classes::watch_classes(client, metrics, classes).await,
            }
        } => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            let _ = stop.send(());
            engine.await
        }
    };
    // The election shuts down when every sender of step-downs is dropped.
    drop(step_down_sender);
    if let Err(error) = election.await {
        tracing::error!(%error, "election task panicked");
    }
    ended.map_err(|error| RunError::Engine(error.to_string()))
}

/// Whether an active policy uses capacity, as it changes.
fn capacity_wanted(subscriber: Option<&PolicyDataSubscriber>) -> channel::Receiver<bool> {
    let (sender, wanted) = channel::channel(false);
    if let Some(subscriber) = subscriber {
        let mut dependencies = subscriber.dependencies.clone();
        tokio::spawn(async move {
            loop {
                sender.send_replace(dependencies.borrow_and_update().capacity);
                if dependencies.changed().await.is_err() {
                    return;
                }
            }
        });
    }
    wanted
}
