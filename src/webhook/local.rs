//! A webhook in this very process, on a loopback port, over real TLS: for `demo`, simulations and tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use portcullis_core::admission::{AdmissionSettings, Hook};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::{
    PolicyEndpoints, ReviewClient, ReviewClientError, ReviewHandler, Route, WebhookConfig,
    WebhookDependencies, review_handler, run,
};
use crate::certs::{Authority, CertificateError, LiveCertificate, Names};
use crate::telemetry::Metrics;

/// Why a local webhook did not start.
#[derive(Debug, thiserror::Error)]
pub enum LocalWebhookError {
    /// No thread or socket to be had.
    #[error("the local webhook could not start: {0}")]
    System(#[from] std::io::Error),
    /// No certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// No client for it.
    #[error(transparent)]
    ReviewClient(#[from] ReviewClientError),
}

/// A running webhook with a client for it. Runs on a thread of its own, so it can be used from synchronous and from
/// asynchronous code alike. Stops when dropped.
pub struct LocalWebhook {
    /// `None` only while it is being dropped.
    runtime: Option<Runtime>,
    client: Arc<ReviewClient>,
    address: SocketAddr,
    admin_address: SocketAddr,
    ca_pem: String,
    stop: Option<oneshot::Sender<()>>,
}

impl LocalWebhook {
    /// Starts a webhook that reviews by these settings.
    ///
    /// # Errors
    /// When no thread, socket or certificate is to be had.
    pub fn start(settings: AdmissionSettings) -> Result<Self, LocalWebhookError> {
        Self::start_with_handler(review_handler(settings))
    }

    /// The same with another reviewer.
    ///
    /// # Errors
    /// As [`LocalWebhook::start`].
    pub fn start_with_handler(review: ReviewHandler) -> Result<Self, LocalWebhookError> {
        Self::start_with_policies(review, None)
    }

    /// The same with the paths of policies.
    ///
    /// # Errors
    /// As [`LocalWebhook::start`].
    pub fn start_with_policies(
        review: ReviewHandler,
        policies: Option<PolicyEndpoints>,
    ) -> Result<Self, LocalWebhookError> {
        let now = SystemTime::now();
        let authority = Authority::new(now)?;
        let certificate = LiveCertificate::new(authority.issue(&Names::loopback(), now)?.presented()?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("portcullis-webhook")
            .enable_all()
            .build()?;
        let bind = |port| {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
            listener.set_nonblocking(true)?;
            let _inside = runtime.enter();
            TcpListener::from_std(listener)
        };
        let (listener, admin_listener) = (bind(0)?, bind(0)?);
        let (address, admin_address) = (listener.local_addr()?, admin_listener.local_addr()?);
        let service = WebhookDependencies {
            review,
            policies,
            certificate: Arc::new(certificate),
            metrics: Arc::new(Metrics::new()),
            clock: Arc::new(SystemTime::now),
            requirements: Vec::new(),
        };
        let config = WebhookConfig { shutdown_delay: Duration::ZERO, ..WebhookConfig::default() };
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            run(listener, admin_listener, config, service, shutdown).await;
        });
        let ca_pem = authority.pem();
        let client = Arc::new(ReviewClient::new(address, &ca_pem)?);
        Ok(Self { runtime: Some(runtime), client, address, admin_address, ca_pem, stop: Some(stop) })
    }

    /// Where it listens for reviews.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where probes and metrics are.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// The certificate of its authority.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Sends one review over the kept-alive connection and returns the body of the answer.
    ///
    /// # Errors
    /// When the answer is not a review, or none comes.
    ///
    /// # Panics
    /// When the client itself has a bug.
    pub async fn review(&self, hook: Hook, body: &[u8]) -> Result<Vec<u8>, ReviewClientError> {
        let (client, body) = (Arc::clone(&self.client), Bytes::copy_from_slice(body));
        let asked = self.runtime().spawn(async move { client.review(hook, body).await });
        asked.await.expect("the client neither panics nor is it aborted")
    }

    /// The same for synchronous code. Blocks the calling thread, which may be any thread.
    ///
    /// # Errors
    /// The sentence of the error.
    pub fn review_blocking(&self, hook: Hook, body: &[u8]) -> Result<Vec<u8>, String> {
        self.send_blocking(Route::Gangs(hook), body)
    }

    /// The same for any path.
    ///
    /// # Errors
    /// The sentence of the error.
    pub fn send_blocking(&self, route: Route, body: &[u8]) -> Result<Vec<u8>, String> {
        let (client, body) = (Arc::clone(&self.client), Bytes::copy_from_slice(body));
        let (answer, answered) = mpsc::sync_channel(1);
        self.runtime().spawn(async move {
            // Nobody listens any more only when the caller is gone.
            let _ = answer.send(client.send(route, body).await);
        });
        match answered.recv() {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("the local webhook stopped before it answered".to_owned()),
        }
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("present until dropped")
    }
}

impl Drop for LocalWebhook {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(runtime) = self.runtime.take() {
            // Does not wait, so it may also happen inside another runtime.
            runtime.shutdown_background();
        }
    }
}
