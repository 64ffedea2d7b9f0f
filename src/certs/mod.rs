//! Certificates of the webhook: created, read, written and replaced at run time.
//!
//! Owns the certificate authority, its leaves, the certificate for new handshakes, and the rules for renewal
//! and for the rotation of the authority. Never reads the clock: the time is always an argument. Never sends
//! requests to a cluster: the content of the Secret is passed as values. Invariant: [`LiveCertificate`]
//! always holds a chain with its matching key, and a replacement never affects an open connection.

mod authority;
mod files;
mod live_certificate;
mod registration;
mod renewal;
mod tls_secret;
mod validity;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use authority::{AUTHORITY_LIFETIME, Authority, CertificateNames, LEAF_LIFETIME, Leaf};
pub use files::{CertificateFiles, LocalFiles, write_local};
pub use live_certificate::{LiveCertificate, ServerCertificate};
pub use registration::Registration;
pub use renewal::{BUNDLE_PROPAGATION_DELAY, RenewalState, RenewalStep, apply_step};
pub use tls_secret::{TlsSecret, TrustedCertificate};
pub use validity::{RENEWAL_CHECK_INTERVAL, Validity, validity_of};

/// Why a certificate cannot be created, read or used. Every variant names the certificate and the fix.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file holds no certificate or no key.
    #[error("{path}: {problem}. It must be PEM: a certificate chain (leaf first) in one file, its private key in the other", path = path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What was missing or malformed.
        problem: String,
    },
    /// A certificate or its dates could not be decoded.
    #[error("the certificate cannot be decoded: {0}. Create a new one, or check that the file is complete")]
    Undecodable(String),
    /// A name that is not allowed in a certificate.
    #[error("{0:?} is not allowed in a certificate: a DNS name consists of letters, digits, '-' and '.'")]
    BadName(String),
    /// The certificate could not be created.
    #[error("creating a certificate failed: {0}")]
    Generate(#[from] rcgen::Error),
    /// The key does not belong to the certificate, or its type is not supported.
    #[error(
        "the private key does not match the certificate: {0}. Provide the key that the certificate was created for"
    )]
    Mismatch(rustls::Error),
}

/// Returns the crypto provider that the whole program uses.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
