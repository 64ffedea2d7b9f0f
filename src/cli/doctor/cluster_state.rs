//! Reads the state of a cluster for the doctor: objects, access reviews and one dry run. It changes nothing.

use anyhow::{Context, Result, anyhow};
use futures_util::future::join_all;
use http::Method;
use portcullis_core::objects::{Node, names};
use portcullis_core::pod::Pod;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::permissions::{Permission, required_permissions};
use super::policies::CONFIG_MAP;
use crate::cluster::{Client, JSON, Lost, Reply};
use crate::installation::POLICY_WEBHOOK_CONFIGURATION;

/// The result of reading one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Lookup {
    /// The object.
    Object(Value),
    /// The object does not exist.
    #[default]
    Missing,
    /// The object cannot be read, for this reason.
    Unknown(String),
}

impl Lookup {
    pub(super) fn object(&self) -> Option<&Value> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }
}

/// The state of a cluster.
#[derive(Debug)]
pub(super) struct ClusterState {
    pub(super) server: String,
    /// `gitVersion`, such as `v1.36.3`.
    pub(super) version: String,
    pub(super) namespace: String,
    pub(super) try_in: String,
    pub(super) crd: Lookup,
    pub(super) mutating: Lookup,
    pub(super) validating: Lookup,
    /// Webhook configurations of the component policies, and the ConfigMap with its files.
    pub(super) policy_mutating: Lookup,
    pub(super) policy_validating: Lookup,
    pub(super) policy_files: Lookup,
    pub(super) guard: Lookup,
    pub(super) guard_binding: Lookup,
    /// The policy of the component gate-fallback.
    pub(super) fallback: Lookup,
    pub(super) secret: Lookup,
    pub(super) lease: Lookup,
    pub(super) deployment: Lookup,
    pub(super) nodes: Result<Vec<Node>, String>,
    pub(super) pods: Result<Vec<Pod>, String>,
    /// Names of all Leases. A scheduler with leader election has one.
    pub(super) leases: Vec<String>,
    /// Permissions of the service account, and whether they are granted; `None` if the access review failed.
    pub(super) access: Vec<(Permission, Option<bool>)>,
    /// Result of creating the trial pod: status code and body.
    pub(super) trial: (u16, Value),
}

/// Reads the state of a cluster.
///
/// # Errors
/// If the API server does not answer or rejects the credentials.
pub(super) async fn read_cluster(client: &Client, namespace: &str, try_in: &str) -> Result<ClusterState> {
    let unreachable = |Lost(problem): Lost| anyhow!("{problem}");
    let version = client
        .get("/version")
        .await
        .map_err(unreachable)
        .with_context(|| format!("the API server at {} cannot be reached", client.server()))?;
    if version.code == 401 {
        return Err(anyhow!("the API server at {} does not accept these credentials (401)", client.server()));
    }
    let version: Value = serde_json::from_slice(&version.body).unwrap_or_default();
    let registration = "/apis/admissionregistration.k8s.io/v1";
    let paths = [
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gangs.portcullis.dev".to_owned(),
        format!("{registration}/mutatingwebhookconfigurations/portcullis"),
        format!("{registration}/validatingwebhookconfigurations/portcullis"),
        format!("{registration}/mutatingwebhookconfigurations/{POLICY_WEBHOOK_CONFIGURATION}"),
        format!("{registration}/validatingwebhookconfigurations/{POLICY_WEBHOOK_CONFIGURATION}"),
        format!("/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"),
        format!("{registration}/validatingadmissionpolicies/portcullis-gate"),
        format!("{registration}/validatingadmissionpolicybindings/portcullis-gate"),
        format!("{registration}/mutatingadmissionpolicies/portcullis-gate"),
        format!("/api/v1/namespaces/{namespace}/secrets/portcullis-tls"),
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/portcullis"),
        format!("/apis/apps/v1/namespaces/{namespace}/deployments/portcullis"),
    ];
    let found: [Lookup; 12] = join_all(paths.iter().map(|path| read(client, path)))
        .await
        .try_into()
        .map_err(|_| anyhow!("as many answers as questions"))?;
    let mut found = found.into_iter();
    let mut next = || found.next().unwrap_or_default();
    let access = join_all(required_permissions().into_iter().map(|need| async move {
        let allowed = allowed(client, namespace, &need).await;
        (need, allowed)
    }));
    Ok(ClusterState {
        server: client.server().to_owned(),
        version: version["gitVersion"].as_str().unwrap_or("of unknown version").to_owned(),
        namespace: namespace.to_owned(),
        try_in: try_in.to_owned(),
        // In the order of `paths`.
        crd: next(),
        mutating: next(),
        validating: next(),
        policy_mutating: next(),
        policy_validating: next(),
        policy_files: next(),
        guard: next(),
        guard_binding: next(),
        fallback: next(),
        secret: next(),
        lease: next(),
        deployment: next(),
        nodes: list(client, "/api/v1/nodes", |text| Node::read(text).ok()).await,
        pods: list(client, "/api/v1/pods", |text| Pod::read(text).ok()).await,
        leases: list(client, "/apis/coordination.k8s.io/v1/leases", name_of).await.unwrap_or_default(),
        access: access.await,
        trial: trial(client, try_in).await,
    })
}

async fn read(client: &Client, path: &str) -> Lookup {
    match client.get(path).await {
        Ok(reply) if reply.ok() => serde_json::from_slice(&reply.body)
            .map_or_else(|e| Lookup::Unknown(e.to_string()), Lookup::Object),
        Ok(Reply { code: 404, .. }) => Lookup::Missing,
        Ok(reply) => Lookup::Unknown(format!("{}: {}", reply.code, reply.message())),
        Err(Lost(problem)) => Lookup::Unknown(problem),
    }
}

#[derive(Deserialize)]
struct ListPage<'a> {
    #[serde(default, borrow)]
    items: Vec<&'a RawValue>,
    #[serde(default)]
    metadata: ListPageMetadata,
}

#[derive(Default, Deserialize)]
struct ListPageMetadata {
    #[serde(default, rename = "continue")]
    more: String,
}

/// Reads all objects of a kind in pages. It parses each page at once, so no page stays in memory. It skips
/// objects that cannot be parsed; the engine logs those.
async fn list<T>(client: &Client, path: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    let mut more = String::new();
    loop {
        let reply = client.get(&format!("{path}?limit=500&continue={more}")).await.map_err(|Lost(p)| p)?;
        if !reply.ok() {
            return Err(format!("{}: {}", reply.code, reply.message()));
        }
        let page: ListPage<'_> = serde_json::from_slice(&reply.body).map_err(|e| e.to_string())?;
        all.extend(page.items.iter().filter_map(|item| read(item.get())));
        if page.metadata.more.is_empty() {
            return Ok(all);
        }
        // Continue tokens are base64. Only `=` and `+` need escaping.
        more = page.metadata.more.replace('=', "%3D").replace('+', "%2B");
    }
}

fn name_of(text: &str) -> Option<String> {
    let object: Value = serde_json::from_str(text).ok()?;
    object["metadata"]["name"].as_str().map(str::to_owned)
}

async fn allowed(client: &Client, namespace: &str, need: &Permission) -> Option<bool> {
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let body = need.access_review(namespace).to_string().into_bytes();
    let reply = client.request(Method::POST, path, JSON, body).await.ok().filter(Reply::ok)?;
    let answer: Value = serde_json::from_slice(&reply.body).ok()?;
    answer["status"]["allowed"].as_bool()
}

/// Creates a gang member as a dry run, so that the request takes the path of an ordinary pod. Every pod
/// security standard allows the pod. It requests a share of a card, so with every set of components both
/// hooks review it.
async fn trial(client: &Client, namespace: &str) -> (u16, Value) {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "portcullis-doctor-",
            "namespace": namespace,
            "labels": {names::KAI_GROUP_LABEL: "portcullis-doctor"},
            "annotations": {names::KAI_GROUP_ANNOTATION: "portcullis-doctor", names::GPU_MEMORY: "100"}
        },
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "trial",
                "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}},
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}
            }]
        }
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    match client.request(Method::POST, &path, JSON, pod.to_string().into_bytes()).await {
        Ok(reply) => {
            let text = || json!({"message": reply.message()});
            (reply.code, serde_json::from_slice(&reply.body).unwrap_or_else(|_| text()))
        }
        Err(Lost(problem)) => (0, json!({"message": problem})),
    }
}
