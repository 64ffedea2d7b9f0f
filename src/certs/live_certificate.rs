//! The certificate for new TLS handshakes. It can be replaced while the server runs.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::Validity;

/// A certificate chain with its key, ready for a handshake, and its validity.
#[derive(Clone, Debug)]
pub struct ServerCertificate {
    /// The chain (leaf first) and the key, known to match.
    pub key: Arc<CertifiedKey>,
    /// The validity period of the leaf.
    pub validity: Validity,
}

/// The current certificate. Reading it takes no lock, so a replacement never makes a handshake wait.
pub struct LiveCertificate {
    current: ArcSwap<ServerCertificate>,
}

impl LiveCertificate {
    /// Returns a holder with this certificate.
    pub fn new(first: ServerCertificate) -> Self {
        Self { current: ArcSwap::from_pointee(first) }
    }

    /// Replaces the certificate for new handshakes. Open connections keep theirs.
    pub fn replace(&self, next: ServerCertificate) {
        self.current.store(Arc::new(next));
    }

    /// Returns the validity of the current leaf.
    pub fn validity(&self) -> Validity {
        self.current.load().validity
    }
}

impl ResolvesServerCert for LiveCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.load().key))
    }
}

impl fmt::Debug for LiveCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LiveCertificate").field("validity", &self.validity()).finish_non_exhaustive()
    }
}
