//! The cluster edge: what the engine is told comes from watches, what it wants done goes out as requests.
//!
//! Owns every connection to the API server, the lease, and the one engine of this replica. The only user of the
//! Kubernetes client. Decides nothing about pods or gangs: the engine does.
//!
//! ```text
//! client.rs    one request in, one status out; never retries
//! lines.rs     the lines of a watch
//! kinds.rs     what is watched and how it is read
//! watch.rs     one kind: list, watch, resume, relist
//! takeover.rs  reading everything at the start of leading
//! lease.rs     who leads, under which epoch
//! runner.rs    the loop around the engine
//! effects.rs   effects as requests, answers as events
//! announce.rs  notes as events and log lines
//! gangs.rs     UIDs and phases of our own objects, for events and metrics
//! facts.rs     what reviews may know of the cluster
//! world.rs     what policies may know of it
//! capacity.rs  what the leader tells policies of GPUs
//! random.rs    jitter, names
//! failpoint.rs where tests kill the process
//! ```

mod announce;
pub(crate) mod capacity;
mod client;
mod effects;
mod facts;
mod failpoint;
mod gangs;
mod kinds;
mod lease;
mod lines;
mod random;
mod runner;
mod takeover;
mod trouble;
mod watch;
#[cfg(test)]
mod watch_tests;
mod world;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use portcullis_core::admission::KnownClasses;
use portcullis_core::engine::EngineSettings;
use tokio::sync::{mpsc, oneshot, watch as channel};

use crate::telemetry::ClusterMetrics;
use announce::Announcer;
use capacity::Reporter;
use effects::Effects;
use gangs::{Census, Directory};
use lease::{Election, Floor, Lease};
use runner::Runner;
use trouble::Complaints;

pub use announce::{REPORTING_CONTROLLER, Teller};
pub use client::{
    APPLY_PATCH, Client, ClientError, FIELD_MANAGER, JSON, JSON_PATCH, Lost, MERGE_PATCH, REQUEST_TIMEOUT,
    Reply, collection_path,
};
pub use lines::Lines;
pub use world::Audience;

/// How long requests that are under way at the end are waited for, before the lease is given back.
const SETTLE: Duration = Duration::from_secs(3);

/// What the edge goes by.
#[derive(Clone)]
pub struct Options {
    /// Where the lease is.
    pub namespace: String,
    /// Name of the lease.
    pub lease: String,
    /// Under which name the lease is held: unlike that of any other process and of any earlier life of this one
    /// ([`identity`]).
    pub identity: String,
    /// What the engine goes by.
    pub engine: EngineSettings,
    /// How many requests of the engine may be under way at once. A busy API server shares itself among requests, so
    /// with a few of them gangs would wait behind everybody else's pods.
    pub concurrency: u32,
    /// Who wants to know more of the cluster, for policies.
    pub audience: Option<Audience>,
}

impl Options {
    /// The ordinary options of a replica in this namespace.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            lease: "portcullis".to_owned(),
            identity: identity("portcullis"),
            engine: EngineSettings::default(),
            concurrency: 128,
            audience: None,
        }
    }
}

/// A name for this life of this process: that of the replica (in a cluster the pod's name) and chance.
pub fn identity(replica: &str) -> String {
    format!("{replica}_{}", random::name())
}

/// Why the edge stopped before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A bug: the engine panicked. The lease was given back.
    #[error("the engine has panicked, which is a bug: report it with the log lines before this one ({0})")]
    Engine(String),
    /// No connections of the engine's own.
    #[error(transparent)]
    Client(ClientError),
    /// The system has no thread, or no file descriptor, for the engine.
    #[error("the engine cannot start: {0}. Look at the limits of this process (threads, open files)")]
    Thread(std::io::Error),
}

/// Takes part in leading until `shutdown` is done, and keeps `facts` up to date meanwhile. Then gives the lease back and
/// returns.
///
/// # Errors
/// When the engine cannot start, or has panicked.
pub async fn run(
    client: Client,
    options: Options,
    facts: Arc<ArcSwap<KnownClasses>>,
    metrics: ClusterMetrics,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let client = client.counted(metrics.clone());
    let lease = Lease {
        client: client.clone(),
        namespace: options.namespace.clone(),
        name: options.lease.clone(),
        identity: options.identity.clone(),
    };
    let (floor, directory) = (Floor::default(), Directory::default());
    let (news, lease_news) = mpsc::unbounded_channel();
    let (step_down, stepping_down) = mpsc::unbounded_channel();
    let (answer, answers) = mpsc::unbounded_channel();

    // Its own connections, because each lives on the thread that opened it.
    let engines = client.apart().map_err(RunError::Client)?;
    let effects = Effects::new(
        engines.clone(),
        Arc::new(Lease { client: engines.clone(), ..lease.clone() }),
        metrics.clone(),
        options.concurrency.max(1),
        answer,
    );
    let announcer = Announcer::start(client.clone(), metrics.clone(), directory.clone(), &options.identity);
    let election = Election::new(lease, floor.clone(), metrics.clone(), news);
    let election = tokio::spawn(election.run(stepping_down));
    let wanted = wanted(options.audience.as_ref());
    let (reporter, reports) = Reporter::new(wanted);
    let (own, teller) = (options.namespace.clone(), client.clone());
    let runner = Runner {
        client: engines,
        metrics: metrics.clone(),
        effects: effects.clone(),
        announcer,
        directory,
        complaints: Complaints::default(),
        census: Census::new(metrics.clone(), floor),
        lease_news,
        answers,
        stepping_down: step_down.clone(),
        reporter,
    };
    let (stop, stopped) = oneshot::channel();
    // A plan takes milliseconds of a processor at a stretch: not on a thread that answers reviews. And what the watches
    // tell goes from the wire to the engine on one thread: where every frame wakes another one, a busy machine falls so
    // far behind that the API server ends the watch.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(RunError::Thread)?;
    let mut engine = tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            runner.run(options.engine, stopped).await;
            effects.settle(SETTLE).await;
        });
    });
    let ended = tokio::select! {
        ended = &mut engine => Some(ended),
        () = shutdown => None,
        () = async {
            match options.audience {
                Some(audience) => {
                    let publishing = capacity::publish(teller, own.clone(), reports);
                    tokio::join!(world::keep(client, metrics, own, facts, audience), publishing);
                }
                None => facts::keep(client, metrics, facts).await,
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
    drop(step_down);
    // The election ends when nobody can tell it to step down any more.
    if let Err(error) = election.await {
        tracing::error!(%error, "the election has panicked");
    }
    ended.map_err(|error| RunError::Engine(error.to_string()))
}

/// Whether anybody asks for capacity, as it changes.
fn wanted(audience: Option<&Audience>) -> channel::Receiver<bool> {
    let (say, wanted) = channel::channel(false);
    if let Some(audience) = audience {
        let mut wishes = audience.wishes.clone();
        tokio::spawn(async move {
            loop {
                say.send_replace(wishes.borrow_and_update().capacity);
                if wishes.changed().await.is_err() {
                    return;
                }
            }
        });
    }
    wanted
}
