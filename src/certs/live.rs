//! The certificate that new handshakes are given, swapped while the server runs.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::Validity;

/// A chain with its key, ready for a handshake, and its dates.
#[derive(Clone, Debug)]
pub struct Presented {
    /// The chain (leaf first) and the key, known to match.
    pub key: Arc<CertifiedKey>,
    /// From when to when the leaf is good.
    pub validity: Validity,
}

/// Holds the current certificate. Reading it takes no lock, so a swap never makes a handshake wait.
pub struct LiveCertificate {
    current: ArcSwap<Presented>,
}

impl LiveCertificate {
    /// Starts with this certificate.
    pub fn new(first: Presented) -> Self {
        Self { current: ArcSwap::from_pointee(first) }
    }

    /// From now on new handshakes get `next`; open connections go on with what they have.
    pub fn replace(&self, next: Presented) {
        self.current.store(Arc::new(next));
    }

    /// The dates of the current leaf.
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
