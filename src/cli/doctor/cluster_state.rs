//! Everything the doctor looks at. Reads, questions of access, and one dry run: nothing is changed.

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

/// One object, or why there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Lookup {
    /// There it is.
    Object(Value),
    /// It does not exist.
    #[default]
    Missing,
    /// It could not be read.
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

/// What was state.
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
    /// Those of the component policies, and the ConfigMap with its files.
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
    /// Names of all Leases: a scheduler that elects a leader has one.
    pub(super) leases: Vec<String>,
    /// What the service account needs, and whether it may; `None` where that could not be asked.
    pub(super) access: Vec<(Permission, Option<bool>)>,
    /// The answer to the dry run: status code and body.
    pub(super) trial: (u16, Value),
}

/// Looks at a cluster.
///
/// # Errors
/// When the API server does not answer, or does not know who asks.
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
    let found = join_all(paths.iter().map(|path| read(client, path))).await;
    let [
        crd,
        mutating,
        validating,
        policy_mutating,
        policy_validating,
        policy_files,
        guard,
        guard_binding,
        fallback,
        secret,
        lease,
        deployment,
    ] = <[Lookup; 12]>::try_from(found).map_err(|_| anyhow!("as many answers as questions"))?;
    let access = join_all(required_permissions().into_iter().map(|need| async move {
        let allowed = allowed(client, namespace, &need).await;
        (need, allowed)
    }));
    Ok(ClusterState {
        server: client.server().to_owned(),
        version: version["gitVersion"].as_str().unwrap_or("of unknown version").to_owned(),
        namespace: namespace.to_owned(),
        try_in: try_in.to_owned(),
        crd,
        mutating,
        validating,
        policy_mutating,
        policy_validating,
        policy_files,
        guard,
        guard_binding,
        fallback,
        secret,
        lease,
        deployment,
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

/// All objects of a kind, page by page, each read at once so that no page is kept. What cannot be read is left out: the
/// engine names it in its log.
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
        // Tokens are base64, in the alphabet that needs no escaping but for its padding.
        more = page.metadata.more.replace('=', "%3D").replace('+', "%2B");
    }
}

fn name_of(text: &str) -> Option<String> {
    let object: Value = serde_json::from_str(text).ok()?;
    object["metadata"]["name"].as_str().map(str::to_owned)
}

async fn allowed(client: &Client, namespace: &str, need: &Permission) -> Option<bool> {
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let body = need.review(namespace).to_string().into_bytes();
    let reply = client.request(Method::POST, path, JSON, body).await.ok().filter(Reply::ok)?;
    let answer: Value = serde_json::from_slice(&reply.body).ok()?;
    answer["status"]["allowed"].as_bool()
}

/// Creates a pod of a gang as a dry run: the only question that goes all the way an ordinary pod goes. It is a pod that
/// any pod security standard lets through, and it wants a share of a card: such a pod cannot do without us, whatever the
/// components, and both hooks are asked about it.
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
