//! The users of a test cluster: certificates, tokens and kubeconfig files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::json;

/// The namespace that Portcullis is installed in.
pub const NAMESPACE: &str = "portcullis-system";
/// The user of the program: its service account.
pub const PROGRAM_USER: &str = "system:serviceaccount:portcullis-system:portcullis";
/// The groups of [`PROGRAM_USER`].
pub const PROGRAM_GROUPS: [&str; 3] =
    ["system:serviceaccounts", "system:serviceaccounts:portcullis-system", "system:authenticated"];

/// The tokens are constants, because they grant access only to a temporary cluster on the loopback address.
const ADMIN_TOKEN: &str = "admin-of-the-test-cluster";
const PROGRAM_TOKEN: &str = "portcullis-of-the-test-cluster";

/// The files of one cluster.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Certificate of the authority that signed the API server's.
    pub authority: PathBuf,
    /// The API server's certificate.
    pub certificate: PathBuf,
    /// The key of [`Identity::certificate`].
    pub key: PathBuf,
    /// Public key of service account tokens.
    pub tokens_public: PathBuf,
    /// Private key of service account tokens.
    pub tokens_private: PathBuf,
    /// Users of the API server with their tokens.
    pub users: PathBuf,
    /// kubeconfig of an administrator.
    pub admin: PathBuf,
    /// kubeconfig of [`PROGRAM_USER`].
    pub program: PathBuf,
}

impl Identity {
    /// Writes all of them into `directory`; the kubeconfigs name `server` (`https://127.0.0.1:PORT`).
    ///
    /// # Errors
    /// When a file cannot be written or the crypto library fails.
    pub fn write(directory: &Path, server: &str) -> Result<Self> {
        let file = |name: &str| directory.join(name);
        let identity = Self {
            authority: file("ca.crt"),
            certificate: file("apiserver.crt"),
            key: file("apiserver.key"),
            tokens_public: file("service-accounts.pub"),
            tokens_private: file("service-accounts.key"),
            users: file("users.csv"),
            admin: file("admin.kubeconfig"),
            program: file("portcullis.kubeconfig"),
        };
        let (authority, certificate, key) = certificates()?;
        let tokens = KeyPair::generate()?;
        fs::write(&identity.authority, &authority)?;
        fs::write(&identity.certificate, certificate)?;
        fs::write(&identity.key, key)?;
        fs::write(&identity.tokens_public, tokens.public_key_pem())?;
        fs::write(&identity.tokens_private, tokens.serialize_pem())?;
        let users = format!(
            "{ADMIN_TOKEN},admin,admin,\"system:masters\"\n{PROGRAM_TOKEN},{PROGRAM_USER},portcullis,\"{}\"\n",
            PROGRAM_GROUPS.join(",")
        );
        fs::write(&identity.users, users)?;
        for (path, user, token) in
            [(&identity.admin, "admin", ADMIN_TOKEN), (&identity.program, "portcullis", PROGRAM_TOKEN)]
        {
            // JSON is valid YAML, the format of a kubeconfig.
            let config = json!({
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "portcullis-test", "cluster": {"server": server, "certificate-authority": identity.authority}}],
                "users": [{"name": user, "user": {"token": token}}],
                "contexts": [{"name": "portcullis-test", "context": {"cluster": "portcullis-test", "user": user, "namespace": "default"}}],
                "current-context": "portcullis-test",
            });
            fs::write(path, serde_json::to_string_pretty(&config)?)
                .with_context(|| path.display().to_string())?;
        }
        Ok(identity)
    }
}

/// Certificate of a new authority, certificate of the API server, and its key; all PEM.
fn certificates() -> Result<(String, String, String)> {
    let now = SystemTime::now();
    let lifetime = |parameters: &mut CertificateParams| {
        parameters.not_before = (now - Duration::from_secs(3600)).into();
        parameters.not_after = (now + Duration::from_secs(30 * 86_400)).into();
    };
    let mut parameters = CertificateParams::new(Vec::new())?;
    lifetime(&mut parameters);
    parameters.distinguished_name.push(DnType::CommonName, "test cluster CA");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?;

    let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let mut parameters = CertificateParams::new(names.map(str::to_owned))?;
    lifetime(&mut parameters);
    parameters.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    let key = KeyPair::generate()?;
    let certificate = parameters.signed_by(&key, &authority)?;
    Ok((authority.pem(), certificate.pem(), key.serialize_pem()))
}
