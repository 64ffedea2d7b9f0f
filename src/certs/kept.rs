//! What the replicas share: the content of the Secret, read and written. Pure.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::validity::validity_of;
use super::{Authority, CertificateError, Leaf, Names, Validity, provider};

/// Key of the Secret: all authorities that clients are to trust, PEM, the one that signs first.
pub(super) const BUNDLE: &str = "ca.crt";
/// Key of the Secret: the private key of the authority that signs.
pub(super) const AUTHORITY_KEY: &str = "ca.key";
/// Key of the Secret: the leaf.
pub(super) const LEAF: &str = "tls.crt";
/// Key of the Secret: the private key of the leaf.
pub(super) const LEAF_KEY: &str = "tls.key";

/// A certificate that clients are to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// From when to when it is good.
    pub validity: Validity,
    /// The same certificate as PEM.
    pub pem: String,
}

/// What the replicas share.
#[derive(Default)]
pub struct Kept {
    /// The authority that signs; its certificate is the first of `bundle`.
    pub authority: Option<Authority>,
    /// What clients are to trust: the authority that signs, then older ones whose leaves may still be in use.
    pub bundle: Vec<Trusted>,
    /// The leaf, with a key that belongs to it.
    pub leaf: Option<Leaf>,
}

impl Kept {
    /// Reads the decoded `data` of the Secret. What cannot be used is left out and named: somebody may have
    /// edited it, and the answer to that is to make it anew.
    pub fn read(data: &BTreeMap<String, Vec<u8>>) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let text = |key: &str| data.get(key).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let mut kept = Self::default();
        for part in CertificateDer::pem_slice_iter(text(BUNDLE).unwrap_or_default().as_bytes()) {
            match part.map_err(|e| e.to_string()).and_then(|c| trusted(c).map_err(|e| e.to_string())) {
                Ok(one) => kept.bundle.push(one),
                Err(problem) => problems.push(format!("{BUNDLE}: {problem}")),
            }
        }
        match (kept.bundle.first(), text(AUTHORITY_KEY)) {
            (Some(first), Some(key)) => match Authority::read(&first.pem, &key) {
                Ok(authority) => kept.authority = Some(authority),
                Err(error) => problems.push(format!("{AUTHORITY_KEY}: {error}")),
            },
            (Some(_), None) => problems.push(format!("{AUTHORITY_KEY} is missing")),
            (None, _) => problems.push(format!("{BUNDLE} holds no certificate")),
        }
        match (text(LEAF), text(LEAF_KEY)) {
            (Some(certificate), Some(key)) => {
                let leaf = Leaf::read(&certificate, &key).and_then(|leaf| leaf.presented().map(|_| leaf));
                match leaf {
                    Ok(leaf) => kept.leaf = Some(leaf),
                    Err(error) => problems.push(format!("{LEAF}, {LEAF_KEY}: {error}")),
                }
            }
            _ => problems.push(format!("{LEAF} or {LEAF_KEY} is missing")),
        }
        (kept, problems)
    }

    /// The `data` of the Secret, not yet encoded. What is missing is left out.
    pub fn data(&self) -> BTreeMap<&'static str, String> {
        let mut data = BTreeMap::from([(BUNDLE, self.bundle_pem())]);
        if let Some(authority) = &self.authority {
            data.insert(AUTHORITY_KEY, authority.key_pem());
        }
        if let Some(leaf) = &self.leaf {
            data.insert(LEAF, leaf.certificate_pem.clone());
            data.insert(LEAF_KEY, leaf.key_pem.clone());
        }
        data
    }

    /// What belongs into `caBundle`: every authority that is trusted, PEM.
    pub fn bundle_pem(&self) -> String {
        self.bundle.iter().map(|one| one.pem.as_str()).collect()
    }

    /// Whether a client that trusts the whole bundle takes the leaf at `now`.
    pub fn leaf_is_trusted(&self, now: SystemTime) -> bool {
        self.leaf.as_ref().is_some_and(|leaf| signed_by(&self.bundle, leaf, now))
    }

    /// Whether the leaf was signed by the authority that signs now.
    pub fn leaf_is_current(&self, now: SystemTime) -> bool {
        let Some(first) = self.bundle.first() else { return false };
        self.leaf.as_ref().is_some_and(|leaf| signed_by(std::slice::from_ref(first), leaf, now))
    }

    /// A new authority, in front of those that were trusted before.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn found_authority(&mut self, now: SystemTime) -> Result<(), CertificateError> {
        let authority = Authority::new(now)?;
        self.bundle.insert(0, trusted(authority.certificate().clone())?);
        self.authority = Some(authority);
        Ok(())
    }

    /// A new leaf by the authority that signs, good for `names` and for all that the leaf before it was good
    /// for: so two replicas that want different names agree on one leaf in the end.
    ///
    /// # Errors
    /// When it cannot be made, or there is no authority.
    pub fn issue_leaf(&mut self, names: &Names, now: SystemTime) -> Result<(), CertificateError> {
        let Some(authority) = &self.authority else {
            return Err(CertificateError::Undecodable("there is no authority to sign a leaf".to_owned()));
        };
        let before = self.leaf.as_ref().and_then(|leaf| leaf.names().ok()).unwrap_or_default();
        self.leaf = Some(authority.issue(&names.union(&before), now)?);
        Ok(())
    }
}

fn trusted(certificate: CertificateDer<'static>) -> Result<Trusted, CertificateError> {
    let validity = validity_of(&certificate)?;
    let pem = pem_of(&certificate);
    Ok(Trusted { certificate, validity, pem })
}

/// RFC 7468: lines of 64 characters.
fn pem_of(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let body = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// Whether a TLS client with these roots takes the leaf for its own first name at `now`.
fn signed_by(roots: &[Trusted], leaf: &Leaf, now: SystemTime) -> bool {
    let Ok(names) = leaf.names() else { return false };
    let name = names
        .dns
        .iter()
        .find_map(|name| ServerName::try_from(name.clone()).ok())
        .or_else(|| names.addresses.first().map(|address| ServerName::from(*address)));
    let Some(name) = name else { return false };
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().map(|root| root.certificate.clone()));
    let Ok(verifier) =
        WebPkiServerVerifier::builder_with_provider(std::sync::Arc::new(store), provider()).build()
    else {
        return false;
    };
    let Ok(since) = now.duration_since(SystemTime::UNIX_EPOCH) else { return false };
    let time = UnixTime::since_unix_epoch(since);
    verifier.verify_server_cert(&leaf.certificate, &[], &name, &[], time).is_ok()
}
