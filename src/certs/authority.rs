//! The certificate authority of Portcullis and the leaf certificates that it signs.
//!
//! All keys are ECDSA P-256: a signature costs a thirtieth of RSA-2048, and every TLS client supports it.
//! The private key of the authority is never written to a file. It is in memory and, in a cluster, in a
//! Secret.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;

use super::live_certificate::ServerCertificate;
use super::validity::{parse_certificate, validity_of};
use super::{CertificateError, Validity, provider};

/// Validity period of an authority.
pub const AUTHORITY_LIFETIME: Duration = Duration::from_secs(365 * 86_400);

/// Validity period of a leaf.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// How far `notBefore` lies in the past, for clients whose clock is slow.
pub(super) const MAX_CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// The subject alternative names of a leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// DNS names, such as `portcullis.portcullis-system.svc`.
    pub dns: Vec<String>,
    /// IP addresses, such as `127.0.0.1`.
    pub addresses: Vec<IpAddr>,
}

impl CertificateNames {
    /// Returns `localhost` and the loopback addresses.
    pub fn loopback() -> Self {
        Self {
            dns: vec!["localhost".to_owned()],
            addresses: vec![[127, 0, 0, 1].into(), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16])],
        }
    }

    /// Returns the DNS names of a Service.
    pub fn of_service(name: &str, namespace: &str) -> Self {
        let dns = ["svc", "svc.cluster.local"].map(|suffix| format!("{name}.{namespace}.{suffix}"));
        Self { dns: dns.into(), addresses: Vec::new() }
    }

    /// Returns the names of both, without duplicates.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.dns.extend(other.dns.iter().filter(|name| !self.dns.contains(name)).cloned());
        all.addresses.extend(other.addresses.iter().filter(|address| !self.addresses.contains(address)));
        all
    }

    /// Whether these names include all of `wanted`.
    pub fn cover(&self, wanted: &Self) -> bool {
        wanted.dns.iter().all(|name| self.dns.contains(name))
            && wanted.addresses.iter().all(|address| self.addresses.contains(address))
    }
}

/// A certificate authority with its private key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    validity: Validity,
}

/// A server certificate with its private key.
pub struct Leaf {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// The certificate as PEM.
    pub certificate_pem: String,
    /// The private key as PEM (PKCS#8). Secret.
    pub key_pem: String,
    /// The validity period.
    pub validity: Validity,
    key: Vec<u8>,
}

impl Authority {
    /// Creates an authority that is valid for [`AUTHORITY_LIFETIME`] from `now`.
    ///
    /// # Errors
    /// If the crypto library fails.
    pub fn new(now: SystemTime) -> Result<Self, CertificateError> {
        let validity = Validity { not_before: now - MAX_CLOCK_SKEW, not_after: now + AUTHORITY_LIFETIME };
        let mut parameters = parameters("Portcullis webhook CA", validity);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = parameters.self_signed(&key)?;
        Ok(Self {
            certificate: certificate.der().clone(),
            certificate_pem: certificate.pem(),
            issuer: Issuer::new(parameters, key),
            validity,
        })
    }

    /// Reads an authority from its certificate and the key that [`Authority::key_pem`] returned.
    ///
    /// # Errors
    /// If either is not PEM, or the key does not belong to the certificate.
    pub fn read(certificate_pem: &str, key_pem: &str) -> Result<Self, CertificateError> {
        let undecodable =
            |problem: &dyn std::fmt::Display| CertificateError::Undecodable(problem.to_string());
        let certificate =
            CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|e| undecodable(&e))?;
        let key = KeyPair::from_pem(key_pem)?;
        let validity = validity_of(&certificate)?;
        if parse_certificate(&certificate)?.public_key().raw != key.subject_public_key_info() {
            return Err(undecodable(&"the private key of the authority belongs to another certificate"));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { issuer, certificate_pem: certificate_pem.to_owned(), certificate, validity })
    }

    /// Returns the certificate of the authority as PEM, for clients and `caBundle`.
    pub fn pem(&self) -> String {
        self.certificate_pem.clone()
    }

    /// Returns the certificate of the authority.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns the private key as PEM (PKCS#8). Secret: with it, an attacker can impersonate the webhook.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// The validity period.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Signs a new leaf with a new key. The leaf is valid for [`LEAF_LIFETIME`] from `now`, and never longer
    /// than the authority.
    ///
    /// # Errors
    /// If a name is not allowed in a certificate, or the crypto library fails.
    pub fn issue(&self, names: &CertificateNames, now: SystemTime) -> Result<Leaf, CertificateError> {
        let validity = Validity {
            not_before: (now - MAX_CLOCK_SKEW).max(self.validity.not_before),
            not_after: (now + LEAF_LIFETIME).min(self.validity.not_after),
        };
        let mut parameters = parameters("Portcullis webhook", validity);
        parameters.use_authority_key_identifier_extension = true;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in &names.dns {
            let name =
                Ia5String::try_from(name.as_str()).map_err(|_| CertificateError::BadName(name.clone()))?;
            parameters.subject_alt_names.push(SanType::DnsName(name));
        }
        parameters.subject_alt_names.extend(names.addresses.iter().copied().map(SanType::IpAddress));

        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Ok(Leaf {
            certificate_pem: certificate.pem(),
            certificate: certificate.der().clone(),
            key_pem: key.serialize_pem(),
            key: key.serialize_der(),
            validity,
        })
    }
}

impl Leaf {
    /// Reads a leaf from its two PEM texts. Further certificates of the chain are ignored.
    ///
    /// # Errors
    /// If either is not PEM.
    pub fn read(certificate_pem: &str, key_pem: &str) -> Result<Self, CertificateError> {
        let undecodable =
            |problem: &dyn std::fmt::Display| CertificateError::Undecodable(problem.to_string());
        let certificate =
            CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|e| undecodable(&e))?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|e| undecodable(&e))?;
        Ok(Self {
            validity: validity_of(&certificate)?,
            certificate,
            certificate_pem: certificate_pem.to_owned(),
            key: key.secret_pkcs8_der().to_vec(),
            key_pem: key_pem.to_owned(),
        })
    }

    /// Returns the subject alternative names.
    ///
    /// # Errors
    /// If the certificate cannot be decoded.
    pub fn names(&self) -> Result<CertificateNames, CertificateError> {
        let certificate = parse_certificate(&self.certificate)?;
        let mut names = CertificateNames::default();
        let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return Ok(names) };
        for name in &alternatives.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => {
                    let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                    names.addresses.extend(four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)));
                }
                _ => {}
            }
        }
        Ok(names)
    }

    /// Returns the leaf in the form that a TLS server presents.
    ///
    /// # Errors
    /// If the crypto library rejects its own key.
    pub fn server_certificate(&self) -> Result<ServerCertificate, CertificateError> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let certified = CertifiedKey::from_der(vec![self.certificate.clone()], key, &provider())
            .map_err(CertificateError::Mismatch)?;
        Ok(ServerCertificate { key: Arc::new(certified), validity: self.validity })
    }
}

/// Returns the parameters that all certificates have in common. rcgen derives the serial number from a hash
/// of the public key. Every certificate has a new key, so the number is as random as the key.
fn parameters(common_name: &str, validity: Validity) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, common_name);
    parameters.not_before = validity.not_before.into();
    parameters.not_after = validity.not_after.into();
    parameters
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::*;

    use super::*;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn the_authority_may_sign_leaves_and_nothing_else() {
        let authority = Authority::new(now()).unwrap();
        let pem = authority.pem();
        let (_, pem) = parse_x509_pem(pem.as_bytes()).unwrap();
        let certificate = pem.parse_x509().unwrap();
        let constraints = certificate.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, Some(0));
        let usage = certificate.key_usage().unwrap().unwrap().value;
        assert!(usage.key_cert_sign() && !usage.digital_signature());
        let valid = certificate.validity();
        assert_eq!(valid.not_before.timestamp(), 1_800_000_000 - 3600);
        assert_eq!(valid.not_after.timestamp(), 1_800_000_000 + 365 * 86_400);
    }

    #[test]
    fn a_leaf_carries_the_names_and_is_signed_by_its_authority_only() {
        let (ours, other) = (Authority::new(now()).unwrap(), Authority::new(now()).unwrap());
        let mut names = CertificateNames::loopback();
        names.dns.push("portcullis.portcullis-system.svc".to_owned());
        let leaf = ours.issue(&names, now()).unwrap();
        let (_, certificate) = parse_x509_certificate(&leaf.certificate).unwrap();
        let sans = certificate.subject_alternative_name().unwrap().unwrap();
        let texts: Vec<String> = sans.value.general_names.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 4, "{texts:?}");
        assert!(texts.iter().any(|text| text.contains("portcullis.portcullis-system.svc")), "{texts:?}");
        assert!(!certificate.is_ca());
        assert_eq!(certificate.validity().not_after.timestamp(), 1_800_000_000 + 30 * 86_400);

        for (authority, accepted) in [(&ours, true), (&other, false)] {
            assert_eq!(accepts(authority, &leaf), accepted);
        }
    }

    /// Whether a client that trusts only `authority` accepts `leaf` for `localhost`.
    fn accepts(authority: &Authority, leaf: &Leaf) -> bool {
        use rustls::client::danger::ServerCertVerifier;
        use rustls::pki_types::{ServerName, UnixTime};
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.certificate().clone()).unwrap();
        let verifier =
            rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
                .build()
                .unwrap();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let name = ServerName::try_from("localhost").unwrap();
        verifier.verify_server_cert(&leaf.certificate, &[], &name, &[], time).is_ok()
    }

    #[test]
    fn two_certificates_never_share_a_serial_number_or_key() {
        let authority = Authority::new(now()).unwrap();
        let one = authority.issue(&CertificateNames::loopback(), now()).unwrap();
        let two = authority.issue(&CertificateNames::loopback(), now()).unwrap();
        let serial = |leaf: &Leaf| parse_x509_certificate(&leaf.certificate).unwrap().1.raw_serial().to_vec();
        assert_ne!(serial(&one), serial(&two));
        assert_ne!(one.key_pem, two.key_pem);
    }

    #[test]
    fn what_was_written_is_read_again_and_goes_on_signing() {
        let first = Authority::new(now()).unwrap();
        let again = Authority::read(&first.pem(), &first.key_pem()).unwrap();
        assert_eq!(again.validity(), first.validity());
        let leaf = again.issue(&CertificateNames::loopback(), now()).unwrap();
        assert!(accepts(&first, &leaf));
        let read = Leaf::read(&leaf.certificate_pem, &leaf.key_pem).unwrap();
        assert_eq!((read.validity, read.names().unwrap()), (leaf.validity, CertificateNames::loopback()));
        read.server_certificate().unwrap();

        let other = Authority::new(now()).unwrap();
        let error = Authority::read(&first.pem(), &other.key_pem()).err().unwrap().to_string();
        assert!(error.contains("another certificate"), "{error}");
        assert!(Authority::read("nothing", &first.key_pem()).is_err());
        assert!(Leaf::read(&leaf.certificate_pem, "nothing").is_err());
    }

    #[test]
    fn a_leaf_never_outlives_its_authority() {
        let authority = Authority::new(now()).unwrap();
        let late = now() + AUTHORITY_LIFETIME - Duration::from_secs(86_400);
        let leaf = authority.issue(&CertificateNames::loopback(), late).unwrap();
        assert_eq!(leaf.validity.not_after, authority.validity().not_after);
    }

    #[test]
    fn a_name_outside_ascii_is_refused_by_name() {
        let names = CertificateNames { dns: vec!["fähre.local".to_owned()], addresses: vec![] };
        let error = Authority::new(now()).unwrap().issue(&names, now()).err().unwrap();
        assert!(error.to_string().contains("fähre.local"), "{error}");
    }
}
