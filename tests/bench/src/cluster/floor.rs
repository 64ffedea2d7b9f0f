//! The floor: a lower bound for every gang system on this machine. Its webhook answers every pod with the
//! same patch. A loop removes the gates of a gang as soon as it has seen all its pods, without a plan.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use http::Method;
use portcullis::cluster::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::follow::Follow;
use crate::webhook::{present, stub};

/// The hidden subcommand of the floor process.
pub(crate) const PROCESS: &str = "floor-process";

/// Serves reviews and lifts gangs until standard input ends: `[kubeconfig]`.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn process(arguments: &[String]) -> anyhow::Result<()> {
    let kubeconfig = arguments.first().context("which kubeconfig?")?;
    let api = Client::from_kubeconfig(kubeconfig.as_ref()).await?;
    tokio::select! {
        outcome = present(Arc::new(stub)) => outcome,
        outcome = lift(&api) => outcome,
    }
}

/// Registers the webhook for pods that name a group.
pub(super) fn registration(address: SocketAddr, ca_pem: &str) -> Value {
    use base64::Engine as _;
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "floor"},
        "webhooks": [{
            "name": "pods.floor.example",
            "clientConfig": {
                "url": format!("https://{address}/mutate"),
                "caBundle": base64::engine::general_purpose::STANDARD.encode(ca_pem),
            },
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            "objectSelector": {"matchExpressions": [{"key": "kai.scheduler/podgroup", "operator": "Exists"}]},
        }],
    })
}

#[derive(Deserialize)]
struct FloorEvent<T> {
    #[serde(rename = "type")]
    kind: String,
    object: T,
}

#[derive(Deserialize)]
struct Object {
    metadata: FloorMetadata,
    #[serde(default)]
    spec: FloorSpec,
}

#[derive(Deserialize)]
struct FloorMetadata {
    name: Option<String>,
    namespace: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FloorSpec {
    scheduling_gates: Vec<serde::de::IgnoredAny>,
    min_member: usize,
}

#[derive(Default)]
struct Gang {
    size: Option<usize>,
    pods: Vec<String>,
}

/// Lifts each gang when its last pod is seen.
async fn lift(api: &Client) -> anyhow::Result<()> {
    let mut pods = Follow::from_now(api, "/api/v1/pods").await?;
    let mut groups = Follow::from_now(api, "/apis/scheduling.run.ai/v2alpha2/podgroups").await?;
    let mut gangs: BTreeMap<(String, String), Gang> = BTreeMap::new();
    loop {
        let (line, of_group) = tokio::select! {
            line = pods.next() => (line?, false),
            line = groups.next() => (line?, true),
        };
        let event: FloorEvent<Object> = serde_json::from_slice(&line)?;
        if event.kind != "ADDED" {
            continue;
        }
        let FloorMetadata { name, namespace, labels } = event.object.metadata;
        let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
        let group = if of_group { Some(&name) } else { labels.get("kai.scheduler/podgroup") };
        let Some(group) = group else { continue };
        let key = (namespace, group.clone());
        let gang = gangs.entry(key.clone()).or_default();
        if of_group {
            gang.size = Some(event.object.spec.min_member);
        } else if !event.object.spec.scheduling_gates.is_empty() {
            gang.pods.push(name);
        }
        if gang.size.is_some_and(|size| gang.pods.len() >= size) {
            for pod in std::mem::take(&mut gang.pods) {
                tokio::spawn(ungate(api.clone(), key.0.clone(), pod));
            }
        }
    }
}

async fn ungate(api: Client, namespace: String, pod: String) -> anyhow::Result<()> {
    let patch = json!([
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": "portcullis.dev/gang"},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
    let body = patch.to_string().into_bytes();
    let reply = api.request(Method::PATCH, &path, "application/json-patch+json", body).await?;
    ensure!(reply.ok(), "{path}: {}", reply.message());
    Ok(())
}
