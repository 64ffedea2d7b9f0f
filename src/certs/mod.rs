//! Certificates of the webhook: made, held, swapped, written and read again.
//!
//! Owns: the certificate authority of a run, its leaves, the certificate that new handshakes are given, and
//! the rules that say when to renew and in which order an authority is rolled. Never decides what time it is:
//! wherever time matters it is an argument. Never talks to a cluster: what is kept in a Secret comes and goes
//! as values. Invariant: [`LiveCertificate`] always holds a chain whose key matches, and a swap never touches
//! a connection that is already open.

mod authority;
mod files;
mod kept;
mod live;
mod registration;
mod upkeep;
mod validity;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use authority::{AUTHORITY_LIFETIME, Authority, LEAF_LIFETIME, Leaf, Names};
pub use files::{CertificateFiles, LocalFiles, write_local};
pub use kept::{Kept, Trusted};
pub use live::{LiveCertificate, Presented};
pub use registration::Registration;
pub use upkeep::{SETTLING, Situation, Step, carry_out};
pub use validity::{RENEWAL_CHECK, Validity, validity_of};

/// What can go wrong with a certificate. Every variant says which one, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
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
    /// The dates of a certificate could not be read.
    #[error("the certificate cannot be decoded: {0}. Make it anew, or check that the file is whole")]
    Undecodable(String),
    /// A name that cannot stand in a certificate.
    #[error("{0:?} cannot stand in a certificate: a DNS name is made of letters, digits, '-' and '.'")]
    BadName(String),
    /// Making a certificate failed.
    #[error("making a certificate failed: {0}")]
    Generate(#[from] rcgen::Error),
    /// The key does not belong to the certificate, or is of a kind that cannot be used.
    #[error(
        "the private key and the certificate do not work together: {0}. Give the key that the certificate was made for"
    )]
    Mismatch(rustls::Error),
}

/// The one crypto provider of the whole program.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
