//! The webhook: bytes in, bytes out, over TLS.
//!
//! Owns sockets, TLS, HTTP, limits, deadlines, shedding and draining. Never looks into an object: it carries the body
//! to a [`ReviewHandler`] and the answer back. Never sees the cluster or the engine.
//! Invariant: whatever a client sends or leaves out, it gets an HTTP status and a sentence or its connection is cut;
//! what it can make us hold is bounded (connections, bytes of bodies, requests that wait); the others are served on.
//!
//! ```text
//! accept.rs      listener -> connection task       how many, back-off
//! connection.rs  TLS handshake, HTTP, its timers   slow heads, idleness, ageing, draining
//! routes.rs      paths, media type, deadline       one request from head to answer
//! body.rs        the body, within its bounds
//! slots.rs       how many reviews at once
//! patient.rs     reviews that take long, on threads of their own
//! route.rs       who is asked by which path
//! refusal.rs     every "no" that is not a review, as a status and a sentence
//! admin.rs       probes and metrics on the plain port
//! local.rs       a server in this very process, with a client
//! ```

mod admin;
mod body;
mod client;
mod connection;
mod deadline;
mod handler;
mod listener;
mod local;
mod refusal;
mod slots;
mod slow_lane;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use portcullis_core::admission::{self, AdmissionSettings, Hook, KnownClasses, ReviewError, ReviewOutcome};
use portcullis_policy::Effort;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::certs::{self, LiveCertificate};
use crate::telemetry::Metrics;
use listener::Listener;

pub use crate::route::Route;
pub use client::{ReviewClient, ReviewClientError};
pub use connection::ConnectionLimits;
pub use local::{LocalWebhook, LocalWebhookError};

/// What answers a review. Synchronous and quick: it runs where the request runs, because handing tens of microseconds
/// of work to another thread costs as much as the work.
pub type ReviewHandler = Arc<dyn Fn(Hook, &[u8]) -> Result<ReviewOutcome, ReviewError> + Send + Sync>;

/// Where the time of day comes from.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// A reviewer that knows nothing of the cluster.
pub fn review_handler(settings: AdmissionSettings) -> ReviewHandler {
    review_handler_with_facts(settings, Arc::default())
}

/// The reviewer of the running program: whoever watches the cluster keeps what is known of it up to date.
pub fn review_handler_with_facts(
    settings: AdmissionSettings,
    facts: Arc<ArcSwap<KnownClasses>>,
) -> ReviewHandler {
    Arc::new(move |hook, body| admission::handle_review(&settings, &facts.load(), hook, body))
}

/// Limits and times of the webhook. [`WebhookConfig::default`] is meant for a cluster; tests shorten the times.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// How connections are treated.
    pub connections: ConnectionLimits,
    /// How many connections may be open at once. More wait in the kernel's queue.
    pub max_connections: usize,
    /// The largest body in bytes. An UPDATE carries two objects of up to 3 MiB each.
    pub max_body_bytes: usize,
    /// How many bytes of bodies may be held at once, over all requests.
    pub max_held_bytes: usize,
    /// How long a body may take.
    pub body_timeout: Duration,
    /// How many reviews are judged at once, and beside them as many whose policies take long.
    pub max_concurrent: usize,
    /// How many requests may wait for their turn, among the quick ones and among those that take long. One more is sent away at once.
    pub max_waiting: usize,
    /// How long a request may wait for its turn before it is sent away, to be tried at another replica.
    pub max_wait: Duration,
    /// The deadline of a request that names none in `?timeout=`.
    pub default_timeout: Duration,
    /// How long to go on serving after the order to stop, while endpoints and load balancers learn of it.
    pub shutdown_delay: Duration,
    /// How long to wait for open requests after that.
    pub drain_timeout: Duration,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            connections: ConnectionLimits::default(),
            max_connections: 1024,
            max_body_bytes: 7 * 1024 * 1024,
            max_held_bytes: 64 * 1024 * 1024,
            body_timeout: Duration::from_secs(5),
            max_concurrent: cores,
            max_waiting: 64 * cores,
            max_wait: Duration::from_secs(1),
            default_timeout: Duration::from_secs(10),
            shutdown_delay: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(15),
        }
    }
}

/// What answers a review by policies; none where it would need more than the effort it is given. What anybody may write into a policy is
/// bounded, but not quick.
pub type PolicyReviewHandler =
    Arc<dyn Fn(Hook, &[u8], &Effort) -> Result<Option<ReviewOutcome>, ReviewError> + Send + Sync>;

/// The second pair of paths, `/policies/mutate` and `/policies/validate`, where policies are given.
#[derive(Clone)]
pub struct PolicyEndpoints {
    /// Answers the reviews of these paths.
    pub review: PolicyReviewHandler,
    /// What `/policies` on the plain port says: the set that is in force, as JSON.
    pub list: Arc<dyn Fn() -> String + Send + Sync>,
}

/// What the webhook works with.
#[derive(Clone)]
pub struct WebhookDependencies {
    /// Answers the reviews.
    pub review: ReviewHandler,
    /// Answers those of the paths of policies; without it they are not there.
    pub policies: Option<PolicyEndpoints>,
    /// What new handshakes are given.
    pub certificate: Arc<LiveCertificate>,
    /// Where things are counted.
    pub metrics: Arc<Metrics>,
    /// The time of day, for the readiness check of the certificate.
    pub clock: Clock,
    /// What else must hold before this replica is ready, beside its certificate.
    pub requirements: Vec<ReadinessCheck>,
}

/// One more thing that must hold for a replica to be ready. Asked at every probe, so it must be quick.
#[derive(Clone)]
pub struct ReadinessCheck {
    name: &'static str,
    holds: Arc<dyn Fn() -> Result<(), &'static str> + Send + Sync>,
    detail: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

impl ReadinessCheck {
    /// `name` is one word for `/readyz?verbose`; the error says what is missing.
    pub fn new(
        name: &'static str,
        holds: impl Fn() -> Result<(), &'static str> + Send + Sync + 'static,
    ) -> Self {
        Self { name, holds: Arc::new(holds), detail: None }
    }

    /// The same, with more to say in `/readyz?verbose` while it holds: empty, or a text that may have several lines.
    #[must_use]
    pub fn detailed(self, detail: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { detail: Some(Arc::new(detail)), ..self }
    }
}

/// How far the webhook is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShutdownStage {
    /// Serving.
    Serving,
    /// Not ready any more, still serving, and every answer says that the connection closes.
    NotReady,
    /// No new connections; open ones end with the request they have.
    Draining,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    /// How many connections were still open when the drain timeout passed, and were cut.
    pub connections_cut: usize,
}

/// Serves the webhook on `listener` and probes and metrics on `admin_listener` until `shutdown` completes, then drains:
/// readiness fails first, serving goes on for `shutdown_delay`, then open requests have `drain_timeout` to finish.
/// Dropping the future cuts everything at once.
///
/// # Panics
/// Never by itself: ring supports both versions of TLS asked for.
pub async fn run(
    listener: TcpListener,
    admin_listener: TcpListener,
    config: WebhookConfig,
    service: WebhookDependencies,
    shutdown: impl Future<Output = ()>,
) -> ShutdownReport {
    let (stage, stage_seen) = watch::channel(ShutdownStage::Serving);
    let (admin_stage, admin_stage_seen) = watch::channel(ShutdownStage::Serving);
    let door = Listener {
        listener,
        tls: Some(TlsAcceptor::from(Arc::new(tls_config(&service.certificate)))),
        router: handler::router(&config, &service),
        limits: config.connections.clone(),
        max_connections: config.max_connections,
        drain_timeout: config.drain_timeout,
        metrics: Some(Arc::clone(&service.metrics)),
        stage: stage_seen.clone(),
    };
    let admin_door = Listener {
        listener: admin_listener,
        tls: None,
        router: admin::router(&service, stage_seen),
        limits: config.connections.clone(),
        max_connections: 64,
        drain_timeout: Duration::from_secs(1),
        metrics: None,
        stage: admin_stage_seen,
    };
    let serving = async {
        let cut = door.serve().await;
        // The probes answer to the end, so that whoever asks hears "draining" and not "connection refused".
        admin_stage.send_replace(ShutdownStage::Draining);
        cut
    };
    let leaving = async {
        shutdown.await;
        tracing::info!(delay_seconds = config.shutdown_delay.as_secs(), "stopping: not ready from now on");
        stage.send_replace(ShutdownStage::NotReady);
        tokio::time::sleep(config.shutdown_delay).await;
        stage.send_replace(ShutdownStage::Draining);
    };
    let (cut, _, ()) = tokio::join!(serving, admin_door.serve(), leaving);
    tracing::info!(connections_cut = cut, "stopped");
    ShutdownReport { connections_cut: cut }
}

fn tls_config(certificate: &Arc<LiveCertificate>) -> rustls::ServerConfig {
    let resolver: Arc<dyn rustls::server::ResolvesServerCert> = Arc::<LiveCertificate>::clone(certificate);
    let mut tls = rustls::ServerConfig::builder_with_provider(certs::provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("ring has cipher suites for TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    tls
}
