//! The content of the TLS Secret, which all replicas share. Pure: bytes in, text out.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::validity::validity_of;
use super::{Authority, CertificateError, CertificateNames, Leaf, Validity, provider};

/// Secret key of the bundle: certificates of all trusted authorities, PEM. The signing authority is the
/// first.
pub(super) const BUNDLE_KEY: &str = "ca.crt";
/// Secret key of the signing authority's private key.
pub(super) const AUTHORITY_PRIVATE_KEY_KEY: &str = "ca.key";
/// Secret key of the leaf certificate.
pub(super) const LEAF_CERTIFICATE_KEY: &str = "tls.crt";
/// Secret key of the leaf's private key.
pub(super) const LEAF_PRIVATE_KEY_KEY: &str = "tls.key";

/// The certificate of an authority that clients trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedCertificate {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// The validity period.
    pub validity: Validity,
    /// The certificate as PEM.
    pub pem: String,
}

/// The certificates in the Secret.
#[derive(Default)]
pub struct TlsSecret {
    /// The signing authority. Its certificate is the first of `bundle`.
    pub authority: Option<Authority>,
    /// Trusted authorities: the signing authority, then older ones whose leaves may still be in use.
    pub bundle: Vec<TrustedCertificate>,
    /// The leaf with its matching key.
    pub leaf: Option<Leaf>,
}

impl TlsSecret {
    /// Reads the decoded `data` of the Secret. Returns the valid parts and a list of problems. A user may
    /// have edited the Secret; the caller then creates the missing parts again.
    pub fn read(data: &BTreeMap<String, Vec<u8>>) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let text = |key: &str| data.get(key).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let mut kept = Self::default();
        for part in CertificateDer::pem_slice_iter(text(BUNDLE_KEY).unwrap_or_default().as_bytes()) {
            match part.map_err(|e| e.to_string()).and_then(|c| trusted(c).map_err(|e| e.to_string())) {
                Ok(one) => kept.bundle.push(one),
                Err(problem) => problems.push(format!("{BUNDLE_KEY}: {problem}")),
            }
        }
        match (kept.bundle.first(), text(AUTHORITY_PRIVATE_KEY_KEY)) {
            (Some(first), Some(key)) => match Authority::read(&first.pem, &key) {
                Ok(authority) => kept.authority = Some(authority),
                Err(error) => problems.push(format!("{AUTHORITY_PRIVATE_KEY_KEY}: {error}")),
            },
            (Some(_), None) => problems.push(format!("{AUTHORITY_PRIVATE_KEY_KEY} is missing")),
            (None, _) => problems.push(format!("{BUNDLE_KEY} holds no certificate")),
        }
        match (text(LEAF_CERTIFICATE_KEY), text(LEAF_PRIVATE_KEY_KEY)) {
            (Some(certificate), Some(key)) => {
                let leaf =
                    Leaf::read(&certificate, &key).and_then(|leaf| leaf.server_certificate().map(|_| leaf));
                match leaf {
                    Ok(leaf) => kept.leaf = Some(leaf),
                    Err(error) => {
                        problems.push(format!("{LEAF_CERTIFICATE_KEY}, {LEAF_PRIVATE_KEY_KEY}: {error}"));
                    }
                }
            }
            _ => problems.push(format!("{LEAF_CERTIFICATE_KEY} or {LEAF_PRIVATE_KEY_KEY} is missing")),
        }
        (kept, problems)
    }

    /// Returns the `data` of the Secret, not yet base64-encoded. Missing parts have no key.
    pub fn data(&self) -> BTreeMap<&'static str, String> {
        let mut data = BTreeMap::from([(BUNDLE_KEY, self.bundle_pem())]);
        if let Some(authority) = &self.authority {
            data.insert(AUTHORITY_PRIVATE_KEY_KEY, authority.key_pem());
        }
        if let Some(leaf) = &self.leaf {
            data.insert(LEAF_CERTIFICATE_KEY, leaf.certificate_pem.clone());
            data.insert(LEAF_PRIVATE_KEY_KEY, leaf.key_pem.clone());
        }
        data
    }

    /// Returns the value of `caBundle`: the certificates of all trusted authorities, PEM.
    pub fn bundle_pem(&self) -> String {
        self.bundle.iter().map(|one| one.pem.as_str()).collect()
    }

    /// Whether a client that trusts the bundle accepts the leaf at `now`.
    pub fn leaf_is_trusted(&self, now: SystemTime) -> bool {
        self.leaf.as_ref().is_some_and(|leaf| signed_by(&self.bundle, leaf, now))
    }

    /// Whether the current signing authority has signed the leaf.
    pub fn leaf_is_current(&self, now: SystemTime) -> bool {
        let Some(first) = self.bundle.first() else { return false };
        self.leaf.as_ref().is_some_and(|leaf| signed_by(std::slice::from_ref(first), leaf, now))
    }

    /// Creates a signing authority and puts it at the front of the bundle.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn add_authority(&mut self, now: SystemTime) -> Result<(), CertificateError> {
        let authority = Authority::new(now)?;
        self.bundle.insert(0, trusted(authority.certificate().clone())?);
        self.authority = Some(authority);
        Ok(())
    }

    /// Signs a new leaf for `names` and all names of the previous leaf. So two replicas with different names
    /// converge on one leaf.
    ///
    /// # Errors
    /// If the leaf cannot be created, or there is no signing authority.
    pub fn issue_leaf(&mut self, names: &CertificateNames, now: SystemTime) -> Result<(), CertificateError> {
        let Some(authority) = &self.authority else {
            return Err(CertificateError::Undecodable("there is no authority to sign a leaf".to_owned()));
        };
        let before = self.leaf.as_ref().and_then(|leaf| leaf.names().ok()).unwrap_or_default();
        self.leaf = Some(authority.issue(&names.union(&before), now)?);
        Ok(())
    }
}

fn trusted(certificate: CertificateDer<'static>) -> Result<TrustedCertificate, CertificateError> {
    let validity = validity_of(&certificate)?;
    let pem = pem_of(&certificate);
    Ok(TrustedCertificate { certificate, validity, pem })
}

/// Encodes a certificate as PEM: lines of 64 characters (RFC 7468).
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

/// Whether a TLS client with these roots accepts the leaf for the leaf's first name at `now`.
fn signed_by(roots: &[TrustedCertificate], leaf: &Leaf, now: SystemTime) -> bool {
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
