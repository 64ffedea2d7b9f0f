//! A client of the webhook: one kept-alive TLS connection, one review at a time, like the API server.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use portcullis_core::admission::Hook;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use super::Route;
use crate::certs;

/// Why a review got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReviewClientError {
    /// The CA certificate is not PEM.
    #[error("cannot read the CA certificate: {0}")]
    InvalidCa(String),
    /// The TCP connection or the TLS handshake failed.
    #[error("cannot connect to the webhook at {address}: {source}")]
    Connect {
        /// Address of the webhook.
        address: SocketAddr,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection to the webhook broke: {0}")]
    Broken(#[from] hyper::Error),
    /// The webhook answered with a status other than 200.
    #[error("the webhook answered {status}: {message}")]
    Refused {
        /// HTTP status.
        status: StatusCode,
        /// Body of the response.
        message: String,
    },
}

/// Sends reviews to one webhook. It connects on first use and reconnects after the server has closed the
/// connection.
pub struct ReviewClient {
    address: SocketAddr,
    connector: TlsConnector,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl ReviewClient {
    /// Returns a client of the webhook at `address` that trusts only the CA `ca_pem`. The server certificate
    /// must be valid for `localhost`.
    ///
    /// # Errors
    /// If `ca_pem` is not a certificate.
    ///
    /// # Panics
    /// Never: ring supports the default TLS versions.
    pub fn new(address: SocketAddr, ca_pem: &str) -> Result<Self, ReviewClientError> {
        let invalid = |problem: String| ReviewClientError::InvalidCa(problem);
        let authority =
            CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|error| invalid(error.to_string()))?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority).map_err(|error| invalid(error.to_string()))?;
        let tls = rustls::ClientConfig::builder_with_provider(certs::provider())
            .with_safe_default_protocol_versions()
            .expect("ring has cipher suites for TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { address, connector: TlsConnector::from(Arc::new(tls)), connection: Mutex::new(None) })
    }

    /// Sends one review to the gang endpoint of `hook` and returns the body of the answer.
    ///
    /// # Errors
    /// If the connection fails or the status is not 200.
    pub async fn review(&self, hook: Hook, body: impl Into<Bytes>) -> Result<Vec<u8>, ReviewClientError> {
        self.send(Route::Gangs(hook), body).await
    }

    /// Sends one review to `route` and returns the body of the answer.
    ///
    /// # Errors
    /// As [`ReviewClient::review`].
    pub async fn send(&self, route: Route, body: impl Into<Bytes>) -> Result<Vec<u8>, ReviewClientError> {
        let mut slot = self.connection.lock().await;
        let mut connection = match slot.take() {
            Some(mut open) => match open.ready().await {
                Ok(()) => open,
                Err(_) => self.connect().await?,
            },
            None => self.connect().await?,
        };
        let request = Request::post(format!("{}?timeout=10s", route.path()))
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))
            .expect("every part of this request is legal");
        let response = connection.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        *slot = Some(connection);
        if status == StatusCode::OK {
            return Ok(body.into());
        }
        Err(ReviewClientError::Refused {
            status,
            message: String::from_utf8_lossy(&body).trim_end().to_owned(),
        })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ReviewClientError> {
        let failed = |source| ReviewClientError::Connect { address: self.address, source };
        let stream = TcpStream::connect(self.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let name = ServerName::try_from("localhost").expect("a legal name");
        let stream = self.connector.connect(name, stream).await.map_err(failed)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "client connection broke");
            }
        });
        Ok(sender)
    }
}
