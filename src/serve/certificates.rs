//! The certificate controller: reconciles the shared TLS Secret and `caBundle` of the webhook configurations.
//!
//! [`crate::certs`] decides each step; this module sends the requests. Every replica runs the controller
//! without a leader, because every write is conditional on one version of one object. The Secret is replaced
//! by compare-and-swap. The patch of a webhook configuration tests the version that was read *before* the
//! Secret, so a slow replica never replaces a new bundle with an old one. After a conflict, the controller
//! reads again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::api::{ApiRequest, ApiResource, ApiResponse, ApiVerb};
use portcullis_text::hash::fnv1a;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ServeOptions;
use crate::certs::{
    CertificateError, CertificateNames, LiveCertificate, Registration, RenewalState, RenewalStep, TlsSecret,
    Validity, apply_step,
};
use crate::cluster::Client;
use crate::installation::{
    GANG_WEBHOOK_CONFIGURATION, POLICY_WEBHOOK_CONFIGURATION, TLS_SECRET, read_tls_secret,
};
use crate::telemetry::{LastProblem, Metrics};

const SECRETS: ApiResource = ApiResource { group: "", version: "v1", plural: "secrets" };
const WEBHOOK_CONFIGURATION_RESOURCES: [ApiResource; 2] = [
    ApiResource {
        group: "admissionregistration.k8s.io",
        version: "v1",
        plural: "mutatingwebhookconfigurations",
    },
    ApiResource {
        group: "admissionregistration.k8s.io",
        version: "v1",
        plural: "validatingwebhookconfigurations",
    },
];
/// Interval of the reconciliation while nothing changes. Applying the manifests with another tool can remove
/// `caBundle`; until it is restored, the API server rejects the pods of gangs.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of the reconciliation after a change or an error.
const RECONCILE_SOON_INTERVAL: Duration = Duration::from_secs(1);
/// Upper bound of a replica's renewal delay, in thousandths of a certificate's life.
const MAX_RENEWAL_DELAY_PERMILLE: u32 = 50;

/// Why a reconciliation failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReconcileError {
    #[error("{operation}: {problem}")]
    Request { operation: String, problem: String },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// A webhook configuration as it was read.
struct PublishedBundle {
    name: &'static str,
    resource: ApiResource,
    registration: Registration,
}

/// The certificate controller of one replica.
pub(super) struct CertificateController {
    client: Client,
    namespace: String,
    names: CertificateNames,
    propagation_delay: Duration,
    renewal_delay_permille: u32,
    live: Arc<LiveCertificate>,
    metrics: Arc<Metrics>,
    /// Names of the webhook configurations. There is a mutating and a validating one of each name.
    configurations: Vec<&'static str>,
    served_certificate_pem: String,
    /// `data` of the last valid Secret. The controller restores it if the Secret is deleted.
    last_valid_data: Option<Value>,
    published_since: Option<Instant>,
}

impl CertificateController {
    pub(super) fn new(
        client: Client,
        options: &ServeOptions,
        names: CertificateNames,
        configurations: Vec<&'static str>,
        live: Arc<LiveCertificate>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            client,
            namespace: options.namespace.clone(),
            names,
            propagation_delay: options.authority_settling,
            renewal_delay_permille: renewal_delay_permille(&options.name),
            live,
            metrics,
            configurations,
            served_certificate_pem: String::new(),
            last_valid_data: None,
            published_since: None,
        }
    }

    /// Reconciles at an interval; never returns.
    pub(super) async fn run(mut self) {
        let mut last_problem = LastProblem::default();
        loop {
            let pause = match self.reconcile().await {
                Ok(false) => {
                    last_problem.clear();
                    RECONCILE_INTERVAL
                }
                Ok(true) => RECONCILE_SOON_INTERVAL,
                Err(error) => {
                    self.metrics.count_certificate_reload_failure();
                    let problem = error.to_string();
                    // Logged once, not every second of an outage.
                    if last_problem.is_new(&problem) {
                        tracing::warn!(
                            problem,
                            "certificate reconciliation failed; the previous certificate is still served"
                        );
                    }
                    RECONCILE_SOON_INTERVAL
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Reconciles once. Returns whether it changed something and should run again soon.
    async fn reconcile(&mut self) -> Result<bool, ReconcileError> {
        let now = SystemTime::now();
        // The configurations must be read before the Secret: see the module's doc.
        let published = self.read_configurations().await?;
        let secret = self.send(SECRETS, &self.namespace, TLS_SECRET, ApiVerb::Get).await?;
        if let (None, Some(data)) = (&secret, &self.last_valid_data) {
            tracing::warn!(secret = TLS_SECRET, "Secret was deleted; restoring it");
            self.write_secret(None, data.clone()).await?;
            return Ok(true);
        }
        let (mut kept, problems) = secret.as_ref().map(read_tls_secret).unwrap_or_default();
        for problem in &problems {
            tracing::warn!(problem, secret = TLS_SECRET, "Secret is invalid; creating the missing parts");
        }
        self.last_valid_data =
            secret.as_ref().filter(|_| problems.is_empty()).map(|secret| secret["data"].clone());
        self.serve(&kept, now)?;

        let bundle = kept.bundle_pem();
        let mut acted = false;
        if !bundle.is_empty() && kept.authority.is_some() {
            acted = self.publish(&published, &bundle).await?;
        }
        if acted || bundle.is_empty() {
            self.published_since = None;
        } else {
            self.published_since.get_or_insert_with(Instant::now);
        }
        let situation = RenewalState {
            kept: &kept,
            published_for: self.published_since.map(|since| since.elapsed()),
            names: &self.names,
            now,
            propagation_delay: self.propagation_delay,
            renewal_delay_permille: self.renewal_delay_permille,
        };
        let step = situation.next();
        if step == RenewalStep::Wait {
            return Ok(acted);
        }
        apply_step(step, &mut kept, &self.names, now)?;
        let data: Value =
            kept.data().into_iter().map(|(key, text)| (key.to_owned(), STANDARD.encode(text))).collect();
        if self.write_secret(secret.as_ref(), data).await? {
            tracing::info!(
                ?step,
                secret = TLS_SECRET,
                authorities = kept.bundle.len(),
                "certificates renewed"
            );
            self.serve(&kept, now)?;
        }
        Ok(true)
    }

    async fn read_configurations(&self) -> Result<Vec<PublishedBundle>, ReconcileError> {
        let mut published = Vec::new();
        for &name in &self.configurations {
            for resource in WEBHOOK_CONFIGURATION_RESOURCES {
                match self.send(resource, "", name, ApiVerb::Get).await? {
                    Some(object) => {
                        let registration = Registration::read(&object);
                        published.push(PublishedBundle { name, resource, registration });
                    }
                    None => {
                        tracing::debug!(kind = resource.plural, name, "webhook configuration does not exist");
                    }
                }
            }
        }
        Ok(published)
    }

    /// Presents the leaf of the Secret in new handshakes, if it is new and the bundle trusts it.
    fn serve(&mut self, kept: &TlsSecret, now: SystemTime) -> Result<(), ReconcileError> {
        let Some(leaf) =
            kept.leaf.as_ref().filter(|leaf| leaf.certificate_pem != self.served_certificate_pem)
        else {
            return Ok(());
        };
        if !kept.leaf_is_trusted(now) {
            return Ok(());
        }
        self.live.replace(leaf.server_certificate()?);
        self.served_certificate_pem.clone_from(&leaf.certificate_pem);
        tracing::info!(
            valid_for_hours = hours_left(leaf.validity, now),
            "new connections get the certificate of the Secret"
        );
        Ok(())
    }

    /// Writes the bundle into `caBundle` where it differs. Returns whether it wrote anything.
    async fn publish(&self, published: &[PublishedBundle], bundle: &str) -> Result<bool, ReconcileError> {
        let mut acted = false;
        for PublishedBundle { name, resource, registration } in published {
            let Some(patch) = registration.patch(bundle) else { continue };
            acted = true;
            let hooks = registration.hooks_without(bundle).join(" ");
            if self.send(*resource, "", name, ApiVerb::JsonPatch(patch)).await?.is_some() {
                tracing::info!(kind = resource.plural, name, hooks, "caBundle written");
            }
        }
        Ok(acted)
    }

    /// Replaces or creates the Secret. Returns `false` after a conflict with another writer.
    async fn write_secret(&self, current: Option<&Value>, data: Value) -> Result<bool, ReconcileError> {
        let mut object = current.cloned().unwrap_or_else(|| {
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": TLS_SECRET,
                    "namespace": self.namespace,
                    "labels": {"app.kubernetes.io/name": "portcullis", "app.kubernetes.io/part-of": "portcullis"}
                },
                "type": "kubernetes.io/tls"
            })
        });
        object["data"] = data;
        let verb = if current.is_some() { ApiVerb::Update(object) } else { ApiVerb::Create(object) };
        Ok(self.send(SECRETS, &self.namespace, TLS_SECRET, verb).await?.is_some())
    }

    /// Sends a request and returns the object. Returns `None` if the object does not exist, or if a write
    /// found another version than it expects.
    async fn send(
        &self,
        resource: ApiResource,
        namespace: &str,
        name: &str,
        verb: ApiVerb,
    ) -> Result<Option<Value>, ReconcileError> {
        let action = match &verb {
            ApiVerb::Get => "reading",
            _ => "writing",
        };
        let request = ApiRequest {
            verb,
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: None,
        };
        let failed = |problem: String| ReconcileError::Request {
            operation: format!("{action} {} {name}", resource.plural),
            problem,
        };
        match self.client.send(&request).await {
            ApiResponse::Object(json) => {
                let object = serde_json::from_str(&json);
                object.map(Some).map_err(|e| failed(format!("the response is not valid JSON: {e}")))
            }
            ApiResponse::Stale { .. } | ApiResponse::Status { code: 404, .. } => Ok(None),
            rejected => Err(failed(rejected.problem().unwrap_or_default())),
        }
    }
}

/// Names of the webhook configurations of this installation.
pub(super) fn webhook_configurations(with_policies: bool) -> Vec<&'static str> {
    let policies = with_policies.then_some(POLICY_WEBHOOK_CONFIGURATION);
    std::iter::once(GANG_WEBHOOK_CONFIGURATION).chain(policies).collect()
}

fn hours_left(validity: Validity, now: SystemTime) -> u64 {
    validity.not_after.duration_since(now).unwrap_or_default().as_secs() / 3600
}

/// Returns 0 to [`MAX_RENEWAL_DELAY_PERMILLE`], derived from the replica's name. Replicas renew at different
/// times, so usually only one of them writes.
fn renewal_delay_permille(replica: &str) -> u32 {
    let delay = fnv1a(replica) % u64::from(MAX_RENEWAL_DELAY_PERMILLE + 1);
    u32::try_from(delay).unwrap_or(MAX_RENEWAL_DELAY_PERMILLE)
}
