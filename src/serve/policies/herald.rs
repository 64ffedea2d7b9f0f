//! What the cluster is told of the policies of this replica: an event on our Deployment when a reload fails and when it is mended,
//! and a line in the log for each policy about something that the API server does not send.

use std::time::Duration;

use portcullis_core::api::{ApiRequest, ApiResource, ApiResponse, ApiVerb};
use serde_json::Value;

use super::Policies;
use super::coverage::{REGISTRATION, unsent};
use crate::cluster::{self, Client, Teller};
use crate::serve::ServeOptions;
use crate::telemetry::ClusterMetrics;

/// A rollout registers and starts us at the same time: the registration is looked at when that is over.
const SETTLED: Duration = Duration::from_secs(10);

/// Tells, for ever.
pub(crate) async fn run(
    client: Client,
    options: &ServeOptions,
    metrics: ClusterMetrics,
    policies: &Policies,
) {
    let identity = cluster::identity(&options.name);
    let teller = Teller::start(client.clone(), metrics, &options.namespace, &identity);
    let mut news = policies.news();
    let mut failed = false;
    loop {
        let current = news.borrow_and_update().clone();
        match &current.trouble {
            Some(problem) => {
                failed = true;
                let kept: String = current.hash.chars().take(12).collect();
                let message = format!(
                    "{}: the changed policies cannot be used, set {kept} stays in force: {problem}",
                    options.name
                );
                teller.tell("PolicyReloadFailed", &message, true);
            }
            None => {
                if std::mem::take(&mut failed) {
                    let now: String = current.hash.chars().take(12).collect();
                    let message =
                        format!("{}: policies are loaded again: set {now} is in force", options.name);
                    teller.tell("PolicyReloaded", &message, false);
                }
            }
        }
        let checking = async {
            tokio::time::sleep(SETTLED).await;
            if current.trouble.is_none() {
                check(&client, policies).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            changed = news.changed() => if changed.is_err() { std::future::pending::<()>().await },
            () = checking => {}
        }
    }
}

async fn check(client: &Client, policies: &Policies) {
    let mutating = configuration(client, "mutatingwebhookconfigurations").await;
    let validating = configuration(client, "validatingwebhookconfigurations").await;
    for sentence in unsent(policies.listed().iter(), mutating.as_ref(), validating.as_ref()) {
        tracing::warn!("{sentence}");
    }
}

/// `None` where it is not registered, or may not be read: the doctor says more.
async fn configuration(client: &Client, plural: &'static str) -> Option<Value> {
    let request = ApiRequest {
        verb: ApiVerb::Get,
        resource: ApiResource { group: "admissionregistration.k8s.io", version: "v1", plural },
        namespace: String::new(),
        name: REGISTRATION.to_owned(),
        subresource: None,
    };
    match client.send(&request).await {
        ApiResponse::Object(json) => serde_json::from_str(&json).ok(),
        ApiResponse::Status { .. } | ApiResponse::Lost => None,
    }
}
