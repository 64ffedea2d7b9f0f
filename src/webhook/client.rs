//! A small client of the webhook: one kept-alive TLS connection, one review at a time, as the API server does it.

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

/// Why a review did not come back.
#[derive(Debug, thiserror::Error)]
pub enum ReviewClientError {
    /// The certificate of the authority is not PEM.
    #[error("the CA certificate cannot be read: {0}")]
    Authority(String),
    /// No connection, or no TLS over it.
    #[error("no connection to the webhook at {address}: {source}")]
    Connect {
        /// Where it should have been.
        address: SocketAddr,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection to the webhook broke: {0}")]
    Broken(#[from] hyper::Error),
    /// The webhook answered with something other than a review.
    #[error("the webhook answered {status}: {sentence}")]
    Refused {
        /// The HTTP status.
        status: StatusCode,
        /// Why.
        sentence: String,
    },
}

/// Sends reviews to one webhook. Opens its connection when first used, and again when the server closed it.
pub struct ReviewClient {
    address: SocketAddr,
    connector: TlsConnector,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl ReviewClient {
    /// A client of the webhook at `address` that trusts the authority `ca_pem` and nobody else. The server must have
    /// `localhost` among its names.
    ///
    /// # Errors
    /// When `ca_pem` is no certificate.
    ///
    /// # Panics
    /// Never: ring supports the default versions of TLS.
    pub fn new(address: SocketAddr, ca_pem: &str) -> Result<Self, ReviewClientError> {
        let unreadable = |problem: String| ReviewClientError::Authority(problem);
        let authority = CertificateDer::from_pem_slice(ca_pem.as_bytes())
            .map_err(|error| unreadable(error.to_string()))?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority).map_err(|error| unreadable(error.to_string()))?;
        let tls = rustls::ClientConfig::builder_with_provider(certs::provider())
            .with_safe_default_protocol_versions()
            .expect("ring has cipher suites for TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { address, connector: TlsConnector::from(Arc::new(tls)), connection: Mutex::new(None) })
    }

    /// Sends one review and returns the body of the answer.
    ///
    /// # Errors
    /// When there is no connection, it breaks, or the answer is not 200.
    pub async fn review(&self, hook: Hook, body: impl Into<Bytes>) -> Result<Vec<u8>, ReviewClientError> {
        self.send(Route::Gangs(hook), body).await
    }

    /// The same for any path.
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
            sentence: String::from_utf8_lossy(&body).trim_end().to_owned(),
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
                tracing::debug!(%error, "a client connection ended early");
            }
        });
        Ok(sender)
    }
}
