//! The admission webhook server: HTTP over TLS, AdmissionReview bytes in and out.
//!
//! Owns sockets, TLS, HTTP, limits, deadlines, load shedding and draining. It passes each body to a
//! [`ReviewHandler`] and returns its answer. It never parses an object and never uses the cluster or the
//! engine.
//!
//! Invariant: every request gets an HTTP status with a message, or its connection is cut. A client can occupy
//! only a bounded number of connections, body bytes and queued requests, so other clients are still served.
//!
//! ```text
//! listener.rs    accept loop: connection limit, backoff
//! connection.rs  TLS handshake, HTTP, timeouts: slow heads, idle, maximum age, draining
//! handler.rs     paths, media type, deadline: one request from its head to its answer
//! body.rs        body limits
//! slots.rs       concurrent reviews and the queue before them
//! slow_lane.rs   long reviews on low-priority threads
//! refusal.rs     answers without a review: status and message
//! admin.rs       probes and metrics on the plain port
//! client.rs      a client of the webhook
//! local.rs       a server inside the process, with a client
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
use portcullis_policy::WorkBudget;
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

/// Answers a review. It is synchronous and runs on the thread of the request: a review takes tens of
/// microseconds, and passing it to another thread costs as much.
pub type ReviewHandler = Arc<dyn Fn(Hook, &[u8]) -> Result<ReviewOutcome, ReviewError> + Send + Sync>;

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Returns the review handler for gangs and GPU requests, without facts about the cluster.
pub fn review_handler(settings: AdmissionSettings) -> ReviewHandler {
    review_handler_with_facts(settings, Arc::default())
}

/// Returns the review handler for gangs and GPU requests. The cluster watches keep `facts` up to date.
pub fn review_handler_with_facts(
    settings: AdmissionSettings,
    facts: Arc<ArcSwap<KnownClasses>>,
) -> ReviewHandler {
    Arc::new(move |hook, body| admission::handle_review(&settings, &facts.load(), hook, body))
}

/// Limits and timeouts of the webhook. [`WebhookConfig::default`] is for a cluster; tests shorten the
/// timeouts.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// Timeouts of each connection.
    pub connections: ConnectionLimits,
    /// Maximum number of open connections. Further connections wait in the kernel's queue.
    pub max_connections: usize,
    /// Maximum size of a body. An UPDATE carries two objects of up to 3 MiB each.
    pub max_body_bytes: usize,
    /// Maximum size of all bodies in memory.
    pub max_held_bytes: usize,
    /// Timeout for reading a body.
    pub body_timeout: Duration,
    /// Maximum number of concurrent reviews in the fast lane, and the same number in the slow lane.
    pub max_concurrent: usize,
    /// Maximum number of requests that wait in each lane. Further requests are refused at once.
    pub max_waiting: usize,
    /// Maximum time that a request waits. Then it is refused, so that the API server retries with another
    /// replica.
    pub max_wait: Duration,
    /// Timeout of a request without `?timeout=`.
    pub default_timeout: Duration,
    /// How long the server keeps serving after the stop signal, until endpoints and load balancers have
    /// removed it.
    pub shutdown_delay: Duration,
    /// How long open requests may take after that.
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

/// Answers a policy review, or returns `None` if it needs more work than the budget allows. Policies are
/// bounded, but not always fast.
pub type PolicyReviewHandler =
    Arc<dyn Fn(Hook, &[u8], &WorkBudget) -> Result<Option<ReviewOutcome>, ReviewError> + Send + Sync>;

/// The policy paths: `/policies/mutate` and `/policies/validate` on the TLS port, `/policies` on the plain
/// port.
#[derive(Clone)]
pub struct PolicyEndpoints {
    /// Answers the reviews.
    pub review: PolicyReviewHandler,
    /// Returns the body of `/policies`: the active policy set as JSON.
    pub status_json: Arc<dyn Fn() -> String + Send + Sync>,
}

/// Everything that the webhook uses from outside.
#[derive(Clone)]
pub struct WebhookDependencies {
    /// Answers the reviews of gangs and GPU requests.
    pub review: ReviewHandler,
    /// Answers the policy reviews. Without it the policy paths return 404.
    pub policies: Option<PolicyEndpoints>,
    /// The certificate for new TLS handshakes.
    pub certificate: Arc<LiveCertificate>,
    /// The metrics to update.
    pub metrics: Arc<Metrics>,
    /// The clock for the readiness check of the certificate.
    pub clock: Clock,
    /// Further readiness checks, beside those of the shutdown stage and the certificate.
    pub readiness_checks: Vec<ReadinessCheck>,
}

/// A condition for the readiness of a replica. It runs at every probe, so it must be fast.
#[derive(Clone)]
pub struct ReadinessCheck {
    name: &'static str,
    check: Arc<dyn Fn() -> Result<(), &'static str> + Send + Sync>,
    detail: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

impl ReadinessCheck {
    /// Returns a check. `name` is one word for `/readyz?verbose`; the error of `check` describes the problem.
    pub fn new(
        name: &'static str,
        check: impl Fn() -> Result<(), &'static str> + Send + Sync + 'static,
    ) -> Self {
        Self { name, check: Arc::new(check), detail: None }
    }

    /// Adds a detail that `/readyz?verbose` shows while the check passes. It may be empty or have several
    /// lines.
    #[must_use]
    pub fn with_detail(self, detail: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { detail: Some(Arc::new(detail)), ..self }
    }
}

/// The stages of a graceful shutdown, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShutdownStage {
    /// Ready and serving.
    Serving,
    /// Not ready, still serving. Every answer closes its connection.
    NotReady,
    /// No new connections. Open connections close after their active request.
    Draining,
}

/// The result of a graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Number of connections that were still open after the drain timeout and were cut.
    pub connections_cut: usize,
}

/// Serves reviews on `listener`, and probes and metrics on `admin_listener`, until `shutdown` completes; then
/// it drains. Readiness fails first, the server keeps serving for `shutdown_delay`, then open requests have
/// `drain_timeout` to finish. Dropping the future cuts all connections at once.
///
/// # Panics
/// Never: ring supports TLS 1.2 and 1.3.
pub async fn run(
    listener: TcpListener,
    admin_listener: TcpListener,
    config: WebhookConfig,
    dependencies: WebhookDependencies,
    shutdown: impl Future<Output = ()>,
) -> ShutdownReport {
    let (stage, stage_receiver) = watch::channel(ShutdownStage::Serving);
    let (admin_stage, admin_stage_receiver) = watch::channel(ShutdownStage::Serving);
    let review_port = Listener {
        listener,
        tls: Some(TlsAcceptor::from(Arc::new(tls_config(&dependencies.certificate)))),
        router: handler::router(&config, &dependencies),
        limits: config.connections.clone(),
        max_connections: config.max_connections,
        drain_timeout: config.drain_timeout,
        metrics: Some(Arc::clone(&dependencies.metrics)),
        stage: stage_receiver.clone(),
    };
    let admin_port = Listener {
        listener: admin_listener,
        tls: None,
        router: admin::router(&dependencies, stage_receiver),
        limits: config.connections.clone(),
        max_connections: 64,
        drain_timeout: Duration::from_secs(1),
        metrics: None,
        stage: admin_stage_receiver,
    };
    let serve_reviews = async {
        let connections_cut = review_port.serve().await;
        // The plain port stays open until here: probes get "draining" instead of a refused connection.
        admin_stage.send_replace(ShutdownStage::Draining);
        connections_cut
    };
    let shut_down = async {
        shutdown.await;
        tracing::info!(
            delay_seconds = config.shutdown_delay.as_secs(),
            "stopping: readiness fails from now on"
        );
        stage.send_replace(ShutdownStage::NotReady);
        tokio::time::sleep(config.shutdown_delay).await;
        stage.send_replace(ShutdownStage::Draining);
    };
    let (connections_cut, _, ()) = tokio::join!(serve_reviews, admin_port.serve(), shut_down);
    tracing::info!(connections_cut, "stopped");
    ShutdownReport { connections_cut }
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
