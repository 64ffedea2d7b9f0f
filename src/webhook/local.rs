//! A webhook inside the process, on a loopback port over real TLS: for `demo`, simulations and tests.

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
use crate::certs::{Authority, CertificateError, CertificateNames, LiveCertificate};
use crate::telemetry::Metrics;

/// Why a local webhook failed to start.
#[derive(Debug, thiserror::Error)]
pub enum LocalWebhookError {
    /// The system has no thread or socket left.
    #[error("cannot start the local webhook: {0}")]
    System(#[from] std::io::Error),
    /// The certificate could not be created.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The client could not be created.
    #[error(transparent)]
    ReviewClient(#[from] ReviewClientError),
}

/// A running webhook with its client. It runs on its own thread, so synchronous and asynchronous code can use
/// it. It stops when it is dropped.
pub struct LocalWebhook {
    /// `None` only during drop.
    runtime: Option<Runtime>,
    client: Arc<ReviewClient>,
    address: SocketAddr,
    admin_address: SocketAddr,
    ca_pem: String,
    stop: Option<oneshot::Sender<()>>,
}

impl LocalWebhook {
    /// Starts a webhook with the production review handler.
    ///
    /// # Errors
    /// If the thread, the sockets or the certificate cannot be created.
    pub fn start(settings: AdmissionSettings) -> Result<Self, LocalWebhookError> {
        Self::start_with_handler(review_handler(settings))
    }

    /// Starts a webhook with another review handler.
    ///
    /// # Errors
    /// As [`LocalWebhook::start`].
    pub fn start_with_handler(review: ReviewHandler) -> Result<Self, LocalWebhookError> {
        Self::start_with_policies(review, None)
    }

    /// Starts a webhook that serves the policy paths as well.
    ///
    /// # Errors
    /// As [`LocalWebhook::start`].
    pub fn start_with_policies(
        review: ReviewHandler,
        policies: Option<PolicyEndpoints>,
    ) -> Result<Self, LocalWebhookError> {
        let now = SystemTime::now();
        let authority = Authority::new(now)?;
        let certificate =
            LiveCertificate::new(authority.issue(&CertificateNames::loopback(), now)?.server_certificate()?);
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
        let dependencies = WebhookDependencies {
            review,
            policies,
            certificate: Arc::new(certificate),
            metrics: Arc::new(Metrics::new()),
            clock: Arc::new(SystemTime::now),
            readiness_checks: Vec::new(),
        };
        let config = WebhookConfig { shutdown_delay: Duration::ZERO, ..WebhookConfig::default() };
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            run(listener, admin_listener, config, dependencies, shutdown).await;
        });
        let ca_pem = authority.pem();
        let client = Arc::new(ReviewClient::new(address, &ca_pem)?);
        Ok(Self { runtime: Some(runtime), client, address, admin_address, ca_pem, stop: Some(stop) })
    }

    /// The address of the TLS port, for reviews.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the plain port, for probes and metrics.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// The CA certificate.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Sends one review over the kept-alive connection and returns the body of the answer.
    ///
    /// # Errors
    /// If the connection fails or the status is not 200.
    ///
    /// # Panics
    /// If the client panics.
    pub async fn review(&self, hook: Hook, body: &[u8]) -> Result<Vec<u8>, ReviewClientError> {
        let (client, body) = (Arc::clone(&self.client), Bytes::copy_from_slice(body));
        let task = self.runtime().spawn(async move { client.review(hook, body).await });
        task.await.expect("the client does not panic and is not aborted")
    }

    /// Like [`LocalWebhook::review`], for synchronous code: blocks the calling thread.
    ///
    /// # Errors
    /// The message of the [`ReviewClientError`].
    pub fn review_blocking(&self, hook: Hook, body: &[u8]) -> Result<Vec<u8>, String> {
        self.send_blocking(Route::Gangs(hook), body)
    }

    /// Sends one review to `route` and blocks until its answer arrives.
    ///
    /// # Errors
    /// The message of the [`ReviewClientError`].
    pub fn send_blocking(&self, route: Route, body: &[u8]) -> Result<Vec<u8>, String> {
        let (client, body) = (Arc::clone(&self.client), Bytes::copy_from_slice(body));
        let (answer, answered) = mpsc::sync_channel(1);
        self.runtime().spawn(async move {
            // The receiver is gone only if the caller is gone.
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
            // It does not wait, so it is allowed inside another runtime.
            runtime.shutdown_background();
        }
    }
}
