//! Names of the objects that Portcullis is installed with, and the content of its TLS Secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::certs::TlsSecret;

/// Name of both webhook configurations for gangs.
pub(crate) const GANG_WEBHOOK_CONFIGURATION: &str = "portcullis";

/// Name of both webhook configurations of the component policies. It sorts before `portcullis`, so that
/// mutating policies change a pod before it gets its scheduling gate.
pub(crate) const POLICY_WEBHOOK_CONFIGURATION: &str = "policies.portcullis.dev";

/// Name of the Secret with the authority and the leaf certificate, shared by all replicas.
pub(crate) const TLS_SECRET: &str = "portcullis-tls";

/// Returns the certificates in a TLS Secret, and a description of everything that is wrong with it.
pub(crate) fn read_tls_secret(secret: &Value) -> (TlsSecret, Vec<String>) {
    let data = secret["data"].as_object().into_iter().flatten();
    let decoded = data.filter_map(|(key, value)| Some((key.clone(), STANDARD.decode(value.as_str()?).ok()?)));
    TlsSecret::read(&decoded.collect())
}
