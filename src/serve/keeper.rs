//! Keeps the certificates of a replica: looks, does the next step, and looks again.
//!
//! What to do is decided in [`crate::certs`]; here are only the requests. Every replica does it. That needs no leader,
//! because every write holds for one version of one object only: the Secret is replaced by compare-and-swap, and the
//! patch of a webhook configuration tests the version that was read *before* the Secret was, so that a slow replica never
//! puts an old bundle over a new one. Who loses reads again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::api::{ApiRequest, ApiResource, ApiResponse, ApiVerb};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::certs::{
    CertificateError, Kept, LiveCertificate, Names, Registration, Situation, Step, Validity, carry_out,
};
use crate::cluster::Client;
use crate::serve::policies::coverage::REGISTRATION;
use crate::telemetry::Metrics;

/// The Secret that the replicas share.
const SECRET: &str = "portcullis-tls";
/// The name of both webhook configurations for gangs.
const CONFIGURATION: &str = "portcullis";
/// Where Secrets are.
const SECRETS: ApiResource = ApiResource { group: "", version: "v1", plural: "secrets" };
/// Where the two kinds of webhook configurations are.
const CONFIGURATIONS: [ApiResource; 2] = [
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
/// How long between two looks while there is nothing to do. Somebody who applies the manifests with another tool takes
/// caBundle away, and until it is back the pods of gangs are refused.
const CALM: Duration = Duration::from_secs(5);
/// How long before the next look after something was done or went wrong.
const BUSY: Duration = Duration::from_secs(1);

/// What went wrong at one look.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeeperError {
    #[error("{what}: {problem}")]
    Refused { what: String, problem: String },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// The keeper of one replica.
pub(super) struct Keeper {
    client: Client,
    namespace: String,
    names: Names,
    settling: Duration,
    patience: u32,
    live: Arc<LiveCertificate>,
    metrics: Arc<Metrics>,
    /// Names of webhook configurations, of both kinds each.
    configurations: Vec<&'static str>,
    served: String,
    /// `data` of the Secret when it was last as it should be: if somebody deletes it, it is put back.
    remembered: Option<Value>,
    published_since: Option<Instant>,
}

impl Keeper {
    pub(super) fn new(
        client: Client,
        namespace: String,
        names: Names,
        settling: Duration,
        replica: &str,
        live: Arc<LiveCertificate>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            client,
            namespace,
            names,
            settling,
            patience: patience(replica),
            live,
            metrics,
            configurations: configurations(false),
            served: String::new(),
            remembered: None,
            published_since: None,
        }
    }

    /// The same, for these webhook configurations.
    pub(super) fn keeping(self, configurations: Vec<&'static str>) -> Self {
        Self { configurations, ..self }
    }

    /// Looks and acts, for ever.
    pub(super) async fn run(mut self) {
        let mut complaint = String::new();
        loop {
            let pause = match self.look().await {
                Ok(false) => {
                    complaint.clear();
                    CALM
                }
                Ok(true) => BUSY,
                Err(error) => {
                    self.metrics.count_certificate_reload_failure();
                    let text = error.to_string();
                    // Said once, not every second of an outage.
                    if text != complaint {
                        tracing::warn!(
                            problem = text,
                            "the certificates could not be kept; the previous one is still served"
                        );
                        complaint = text;
                    }
                    BUSY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// One look. Whether something was done, so that it is worth looking again soon.
    async fn look(&mut self) -> Result<bool, KeeperError> {
        let now = SystemTime::now();
        // The order matters: see the module's description.
        let mut registrations = Vec::new();
        for (name, resource) in self.named() {
            match self.send(resource, "", name, ApiVerb::Get).await? {
                Some(object) => registrations.push((name, resource, Registration::read(&object))),
                None => tracing::debug!(kind = resource.plural, name, "the webhook is not registered"),
            }
        }
        let secret = self.send(SECRETS, &self.namespace, SECRET, ApiVerb::Get).await?;
        if let (None, Some(data)) = (&secret, &self.remembered) {
            tracing::warn!(secret = SECRET, "the Secret is gone; it is put back as it was");
            self.write(None, data.clone()).await?;
            return Ok(true);
        }
        let (mut kept, problems) = secret.as_ref().map(read_secret).unwrap_or_default();
        for problem in &problems {
            tracing::warn!(
                problem,
                secret = SECRET,
                "the Secret is not as it should be; what is missing is made anew"
            );
        }
        self.remembered =
            secret.as_ref().filter(|_| problems.is_empty()).map(|secret| secret["data"].clone());
        self.serve(&kept, now)?;

        let bundle = kept.bundle_pem();
        let mut acted = false;
        if !bundle.is_empty() && kept.authority.is_some() {
            acted = self.publish(&registrations, &bundle).await?;
        }
        if acted || bundle.is_empty() {
            self.published_since = None;
        } else {
            self.published_since.get_or_insert_with(Instant::now);
        }
        let situation = Situation {
            kept: &kept,
            published_for: self.published_since.map(|since| since.elapsed()),
            names: &self.names,
            now,
            settling: self.settling,
            patience: self.patience,
        };
        let step = situation.next();
        if step == Step::Rest {
            return Ok(acted);
        }
        carry_out(step, &mut kept, &self.names, now)?;
        let data: Value =
            kept.data().into_iter().map(|(key, text)| (key.to_owned(), STANDARD.encode(text))).collect();
        if self.write(secret.as_ref(), data).await? {
            tracing::info!(?step, secret = SECRET, authorities = kept.bundle.len(), "certificates renewed");
            self.serve(&kept, now)?;
        }
        Ok(true)
    }

    /// New handshakes get the leaf of the Secret, if it is another one and works.
    fn serve(&mut self, kept: &Kept, now: SystemTime) -> Result<(), KeeperError> {
        let Some(leaf) = kept.leaf.as_ref().filter(|leaf| leaf.certificate_pem != self.served) else {
            return Ok(());
        };
        if !kept.leaf_is_trusted(now) {
            return Ok(());
        }
        self.live.replace(leaf.presented()?);
        self.served.clone_from(&leaf.certificate_pem);
        tracing::info!(
            good_for_hours = hours_left(leaf.validity, now),
            "new connections get the certificate of the Secret"
        );
        Ok(())
    }

    fn named(&self) -> Vec<(&'static str, ApiResource)> {
        let each = |name: &&'static str| CONFIGURATIONS.map(|resource| (*name, resource));
        self.configurations.iter().flat_map(each).collect()
    }

    /// Whether anything had to be written.
    async fn publish(
        &self,
        registrations: &[(&'static str, ApiResource, Registration)],
        bundle: &str,
    ) -> Result<bool, KeeperError> {
        let mut acted = false;
        for (name, resource, registration) in registrations {
            let Some(patch) = registration.patch(bundle) else { continue };
            acted = true;
            let hooks = registration.strangers(bundle).join(" ");
            if self.send(*resource, "", name, ApiVerb::JsonPatch(patch)).await?.is_some() {
                tracing::info!(kind = resource.plural, name, hooks, "caBundle written");
            }
        }
        Ok(acted)
    }

    /// Replaces the Secret, or makes it. `false` when somebody else was quicker.
    async fn write(&self, seen: Option<&Value>, data: Value) -> Result<bool, KeeperError> {
        let mut object = seen.cloned().unwrap_or_else(|| {
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": SECRET,
                    "namespace": self.namespace,
                    "labels": {"app.kubernetes.io/name": "portcullis", "app.kubernetes.io/part-of": "portcullis"}
                },
                "type": "kubernetes.io/tls"
            })
        });
        object["data"] = data;
        let verb = if seen.is_some() { ApiVerb::Update(object) } else { ApiVerb::Create(object) };
        Ok(self.send(SECRETS, &self.namespace, SECRET, verb).await?.is_some())
    }

    /// The object; `None` when it is not there, or when a write met another version than it was made for.
    async fn send(
        &self,
        resource: ApiResource,
        namespace: &str,
        name: &str,
        verb: ApiVerb,
    ) -> Result<Option<Value>, KeeperError> {
        let doing = match &verb {
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
        let refused = |problem: String| KeeperError::Refused {
            what: format!("{doing} {} {name}", resource.plural),
            problem,
        };
        match self.client.send(&request).await {
            ApiResponse::Object(json) => {
                let object = serde_json::from_str(&json);
                object.map(Some).map_err(|e| refused(format!("the answer cannot be read: {e}")))
            }
            ApiResponse::Status { code: 404 | 409, .. } => Ok(None),
            // The answer to a JSON patch whose `test` fails.
            ApiResponse::Status { code: 422, message }
                if message.contains("the server rejected our request") =>
            {
                Ok(None)
            }
            ApiResponse::Status { code, message } => Err(refused(format!("{code}: {message}"))),
            ApiResponse::Lost => Err(refused("no answer of the API server".to_owned())),
        }
    }
}

/// The webhook configurations that are ours, by name.
pub(super) fn configurations(policies: bool) -> Vec<&'static str> {
    std::iter::once(CONFIGURATION).chain(policies.then_some(REGISTRATION)).collect()
}

/// What a Secret holds, and what is wrong with it.
pub(crate) fn read_secret(secret: &Value) -> (Kept, Vec<String>) {
    let data = secret["data"].as_object().into_iter().flatten();
    let decoded = data.filter_map(|(key, value)| Some((key.clone(), STANDARD.decode(value.as_str()?).ok()?)));
    Kept::read(&decoded.collect())
}

fn hours_left(validity: Validity, now: SystemTime) -> u64 {
    validity.not_after.duration_since(now).unwrap_or_default().as_secs() / 3600
}

/// 0 to 50, the same for the same name: FNV-1a, spread over the range.
fn patience(replica: &str) -> u32 {
    let hash = replica
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash % 51
}
