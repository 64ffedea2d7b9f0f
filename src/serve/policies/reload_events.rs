//! Reports policy reloads to the cluster: an event on the Deployment after a failed reload and after its
//! repair, and a warning in the log for each policy that matches requests which the API server does not send.

use std::time::Duration;

use portcullis_core::api::{ApiRequest, ApiResource, ApiResponse, ApiVerb};
use serde_json::Value;

use super::{PolicyRuntime, short_hash};
use crate::cluster::{self, Client, DeploymentEventRecorder};
use crate::installation::POLICY_WEBHOOK_CONFIGURATION;
use crate::policy_coverage::uncovered_policies;
use crate::telemetry::ClusterMetrics;

/// A rollout changes the webhook configurations and starts the replicas at the same time. The check of the
/// configurations waits for this time.
const COVERAGE_CHECK_DELAY: Duration = Duration::from_secs(10);

/// Reports reloads; never returns. `replica` and `namespace` are those of this pod.
pub(crate) async fn run(
    client: Client,
    replica: &str,
    namespace: &str,
    metrics: ClusterMetrics,
    policies: &PolicyRuntime,
) {
    let identity = cluster::identity(replica);
    let recorder = DeploymentEventRecorder::start(client.clone(), metrics, namespace, &identity);
    let mut reload_status = policies.reload_status();
    let mut failed = false;
    loop {
        let status = reload_status.borrow_and_update().clone();
        let hash = short_hash(&status.hash);
        match &status.problem {
            Some(problem) => {
                failed = true;
                let message = format!("{replica}: policy reload failed; set {hash} stays active: {problem}");
                recorder.record("PolicyReloadFailed", &message, true);
            }
            None if std::mem::take(&mut failed) => {
                let message = format!("{replica}: policy reload succeeded; set {hash} is active");
                recorder.record("PolicyReloaded", &message, false);
            }
            None => {}
        }
        let check_coverage = async {
            tokio::time::sleep(COVERAGE_CHECK_DELAY).await;
            if status.problem.is_none() {
                log_uncovered_policies(&client, policies).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            changed = reload_status.changed() => if changed.is_err() { std::future::pending::<()>().await },
            () = check_coverage => {}
        }
    }
}

async fn log_uncovered_policies(client: &Client, policies: &PolicyRuntime) {
    let mutating = read_configuration(client, "mutatingwebhookconfigurations").await;
    let validating = read_configuration(client, "validatingwebhookconfigurations").await;
    for detail in uncovered_policies(policies.policies().iter(), mutating.as_ref(), validating.as_ref()) {
        tracing::warn!(detail, "policy matches requests that no webhook configuration sends");
    }
}

/// Returns `None` if the configuration does not exist or may not be read. `portcullis doctor` reports the
/// cause.
async fn read_configuration(client: &Client, plural: &'static str) -> Option<Value> {
    let request = ApiRequest {
        verb: ApiVerb::Get,
        resource: ApiResource { group: "admissionregistration.k8s.io", version: "v1", plural },
        namespace: String::new(),
        name: POLICY_WEBHOOK_CONFIGURATION.to_owned(),
        subresource: None,
    };
    match client.send(&request).await {
        ApiResponse::Object(json) => serde_json::from_str(&json).ok(),
        _ => None,
    }
}
