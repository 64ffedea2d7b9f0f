//! Certificates in files: a local run writes its own; a user or cert-manager provides files that may change.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::live_certificate::ServerCertificate;
use super::validity::validity_of;
use super::{Authority, CertificateError, Leaf, provider};

/// Paths of the files that a local run has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFiles {
    /// The certificate of the authority, which a client must trust.
    pub authority: PathBuf,
    /// The leaf.
    pub certificate: PathBuf,
    /// The key of the leaf, mode 0600.
    pub key: PathBuf,
}

/// Writes `ca.crt`, `tls.crt` and `tls.key` (mode 0600) into `directory`. Creates the directory if it is
/// missing. Each file is replaced atomically, so a reader never sees a partial file. The private key of the
/// authority is never written.
///
/// # Errors
/// If the directory or a file cannot be written.
pub fn write_local(
    directory: &Path,
    authority: &Authority,
    leaf: &Leaf,
) -> Result<LocalFiles, CertificateError> {
    fs::create_dir_all(directory)
        .map_err(|source| CertificateError::File { path: directory.to_owned(), source })?;
    let files = LocalFiles {
        authority: directory.join("ca.crt"),
        certificate: directory.join("tls.crt"),
        key: directory.join("tls.key"),
    };
    replace(&files.authority, &authority.pem(), 0o644)?;
    replace(&files.key, &leaf.key_pem, 0o600)?;
    replace(&files.certificate, &leaf.certificate_pem, 0o644)?;
    Ok(files)
}

fn replace(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, path)
    };
    write().map_err(|source| CertificateError::File { path: path.to_owned(), source })
}

/// A certificate and a key in files that may change at any time, as a mounted Secret does.
///
/// Every poll reads the files and compares them byte for byte, which is cheap. A file watch would miss
/// changes: a mounted Secret changes by renaming a symbolic link two directories up.
#[derive(Debug)]
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    seen: Option<(Vec<u8>, Vec<u8>)>,
}

impl CertificateFiles {
    /// Sets the paths; nothing is read yet.
    pub fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key, seen: None }
    }

    /// Returns the certificate if it has changed since the last poll, else `None`. An invalid pair is
    /// reported once, and again only after it changes.
    ///
    /// # Errors
    /// If a file cannot be read or is not PEM, or the key does not belong to the certificate. A pair that is
    /// being replaced file by file is in this state for a moment: keep the previous certificate and poll
    /// again.
    pub fn poll(&mut self) -> Result<Option<ServerCertificate>, CertificateError> {
        let bytes = (read(&self.certificate)?, read(&self.key)?);
        if self.seen.as_ref() == Some(&bytes) {
            return Ok(None);
        }
        let presented = self.decode(&bytes.0, &bytes.1);
        self.seen = Some(bytes);
        presented.map(Some)
    }

    fn decode(&self, certificate: &[u8], key: &[u8]) -> Result<ServerCertificate, CertificateError> {
        let not_pem =
            |path: &Path, problem: String| CertificateError::NotPem { path: path.to_owned(), problem };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| not_pem(&self.certificate, error.to_string()))?;
        let Some(leaf) = chain.first() else {
            return Err(not_pem(&self.certificate, "there is no certificate in it".to_owned()));
        };
        let validity = validity_of(leaf)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| not_pem(&self.key, format!("no private key in it: {error}")))?;
        let certified =
            CertifiedKey::from_der(chain, key, &provider()).map_err(CertificateError::Mismatch)?;
        Ok(ServerCertificate { key: Arc::new(certified), validity })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|source| CertificateError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::certs::CertificateNames;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("portcullis-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn written_files_can_be_read_and_the_key_has_mode_0600() {
        let directory = directory("certs-written");
        let authority = Authority::new(now()).unwrap();
        let leaf = authority.issue(&CertificateNames::loopback(), now()).unwrap();
        let files = write_local(&directory, &authority, &leaf).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&files.key), 0o600);
        assert!(!fs::read_to_string(&files.authority).unwrap().contains("PRIVATE"));

        let mut source = CertificateFiles::new(files.certificate, files.key);
        assert_eq!(source.poll().unwrap().unwrap().validity, leaf.validity);
        assert!(source.poll().unwrap().is_none(), "nothing changed");
        fs::remove_dir_all(directory).unwrap();
    }

    /// The kubelet does the same: the files are links through `..data`, and `..data` is renamed.
    #[test]
    fn a_renamed_symbolic_link_is_noticed_every_time() {
        let directory = directory("certs-linked");
        let authority = Authority::new(now()).unwrap();
        let mut source = CertificateFiles::new(directory.join("tls.crt"), directory.join("tls.key"));
        for round in 0..3u64 {
            let issued = now() + Duration::from_secs(round * 86_400);
            let leaf = authority.issue(&CertificateNames::loopback(), issued).unwrap();
            write_local(&directory.join(format!("..{round}")), &authority, &leaf).unwrap();
            let link = directory.join("..data_tmp");
            std::os::unix::fs::symlink(format!("..{round}"), &link).unwrap();
            fs::rename(&link, directory.join("..data")).unwrap();
            if round == 0 {
                for name in ["tls.crt", "tls.key"] {
                    std::os::unix::fs::symlink(format!("..data/{name}"), directory.join(name)).unwrap();
                }
            }
            assert_eq!(source.poll().unwrap().unwrap().validity, leaf.validity, "round {round}");
            assert!(source.poll().unwrap().is_none());
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn an_invalid_pair_is_reported_once_and_a_corrected_one_is_used() {
        let directory = directory("certs-bad");
        let authority = Authority::new(now()).unwrap();
        let one = authority.issue(&CertificateNames::loopback(), now()).unwrap();
        let two = authority.issue(&CertificateNames::loopback(), now()).unwrap();
        let files = write_local(&directory, &authority, &one).unwrap();
        let mut source = CertificateFiles::new(files.certificate.clone(), files.key.clone());
        source.poll().unwrap();

        fs::write(&files.certificate, &two.certificate_pem).unwrap();
        assert!(matches!(source.poll(), Err(CertificateError::Mismatch(_))));
        assert!(source.poll().unwrap().is_none(), "reported once");
        fs::write(&files.key, &two.key_pem).unwrap();
        assert!(source.poll().unwrap().is_some(), "corrected");

        fs::write(&files.certificate, "nothing").unwrap();
        let error = source.poll().unwrap_err().to_string();
        assert!(error.contains("tls.crt") && error.contains("PEM"), "{error}");
        fs::remove_file(&files.key).unwrap();
        assert!(source.poll().unwrap_err().to_string().contains("tls.key"));
        fs::remove_dir_all(directory).unwrap();
    }
}
