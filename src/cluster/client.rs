//! The connection to the API server: one request in, one status and body out.
//!
//! Owns configuration, TLS, credentials, the connection pool and the time a request may take. Never retries:
//! every status reaches the caller, because only the caller knows what a repeated write would mean.
//! Invariant: every request that is not a watch comes back within [`REQUEST_TIMEOUT`], as a status or as
//! [`Lost`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use portcullis_core::api::{ApiRequest, ApiResource, ApiResponse, ApiVerb};
pub use portcullis_core::objects::names::FIELD_MANAGER;
use serde::Deserialize;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use super::lines::Lines;
use crate::telemetry::{ClusterMetrics, ResponseCode};

/// How long a request may take, from asking for a connection to the last byte of the answer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are kept this long; the API server closes them after a good deal longer.
const POOL_IDLE: Duration = Duration::from_secs(60);
const POOL_SIZE: usize = 128;
/// Noticed within a minute and a half when a peer is gone without a word.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// A page of 500 pods of a few tens of kilobytes each is the most that is asked for at once.
const LARGEST_BODY: usize = 256 * 1024 * 1024;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither a kubeconfig nor a service account.
    #[error(
        "no cluster to talk to: {0}. Set KUBECONFIG, or run as a pod with a service account (automountServiceAccountToken: true)"
    )]
    Config(String),
    /// The configuration names something that cannot be used.
    #[error("the configuration of the cluster cannot be used: {0}")]
    Unusable(String),
}

/// A request that got no answer: it may have been carried out, may not, and may still be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Lost(pub String);

/// What the API server answered.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status code.
    pub code: u16,
    /// The whole body.
    pub body: Bytes,
    /// How long the server asks to be left alone (`Retry-After`).
    pub retry_after: Option<Duration>,
}

impl Reply {
    /// Whether the status is 2xx.
    pub fn ok(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// `message` of the `Status` that is the body of every refusal, or the start of the body where it is
    /// none.
    pub fn message(&self) -> String {
        #[derive(Deserialize)]
        struct Status {
            message: Option<String>,
        }
        let text = || String::from_utf8_lossy(&self.body).trim().chars().take(500).collect();
        serde_json::from_slice::<Status>(&self.body).ok().and_then(|s| s.message).unwrap_or_else(text)
    }
}

/// A client of one API server. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
    server: String,
    metrics: Option<ClusterMetrics>,
    config: Arc<Config>,
}

impl Client {
    /// Connects as `KUBECONFIG` or `~/.kube/config` says, else as the service account of this pod.
    ///
    /// # Errors
    /// When there is neither, or what there is cannot be used.
    pub async fn infer() -> Result<Self, ClientError> {
        let config = Config::infer().await.map_err(|e| ClientError::Config(e.to_string()))?;
        Self::new(config)
    }

    /// Connects as the kubeconfig at `path` says, by its current context.
    ///
    /// # Errors
    /// When it cannot be read or used.
    pub async fn of_kubeconfig(path: &Path) -> Result<Self, ClientError> {
        let unreadable = |e: &dyn std::fmt::Display| ClientError::Config(format!("{}: {e}", path.display()));
        let kubeconfig = Kubeconfig::read_from(path).map_err(|e| unreadable(&e))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Self::new(config.map_err(|e| unreadable(&e))?)
    }

    /// Connects as `config` says. Nothing is sent yet.
    ///
    /// # Errors
    /// When its certificates or credentials cannot be read, or it asks for a proxy.
    pub fn new(config: Config) -> Result<Self, ClientError> {
        let unusable = |e: &dyn std::fmt::Display| ClientError::Unusable(e.to_string());
        if let Some(proxy) = &config.proxy_url {
            return Err(unusable(&format!(
                "it asks for the proxy {proxy}, and proxies are not supported: remove proxy-url"
            )));
        }
        // The crates below may each bring a provider of their own; with two, rustls refuses to choose. An
        // error says that one is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        // HTTP/1.1: one request after the other on each of a few connections. HTTP/2 would be
        // `.enable_http2()` on a connector of our own.
        let tls = config.rustls_https_connector_with_connector(tcp).map_err(|e| unusable(&e))?;
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_SIZE)
            .build::<_, Body>(tls);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().map_err(|e| unusable(&e))?)
            .layer(config.extra_headers_layer().map_err(|e| unusable(&e))?)
            .service(http.map_err(BoxError::from));
        let server = config.cluster_url.to_string();
        let kube = kube::Client::new(service, config.default_namespace.clone());
        Ok(Self { kube, server, metrics: None, config: Arc::new(config) })
    }

    /// The same client with connections of its own.
    ///
    /// # Errors
    /// When its certificates or credentials can no longer be read.
    pub fn apart(&self) -> Result<Self, ClientError> {
        Ok(Self { metrics: self.metrics.clone(), ..Self::new(Config::clone(&self.config))? })
    }

    /// The same client, whose requests are counted.
    #[must_use]
    pub fn counted(self, metrics: ClusterMetrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// The namespace of the kubeconfig's context, or of the service account.
    pub fn namespace(&self) -> &str {
        self.kube.default_namespace()
    }

    /// URL of the API server, for messages.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends a request about one object. `namespace` is empty for cluster-scoped kinds.
    ///
    /// A write that ends in 5xx comes back as [`ApiResponse::Lost`]: etcd may have taken it before it timed
    /// out or changed its leader. Only what admission refused is known not to be done.
    pub async fn send(&self, request: &ApiRequest) -> ApiResponse {
        respond(&request.verb, self.exchange(request).await)
    }

    /// The same with the whole reply: for callers that heed `Retry-After`.
    ///
    /// # Errors
    /// When there is no answer in time.
    pub async fn exchange(&self, request: &ApiRequest) -> Result<Reply, Lost> {
        let path = object_path(request);
        let managed = format!("{path}?fieldManager={FIELD_MANAGER}");
        let json = |value: &serde_json::Value| value.to_string().into_bytes();
        match &request.verb {
            ApiVerb::Get => self.get(&path).await,
            ApiVerb::Create(object) => {
                let collection = collection_path(&request.resource, &request.namespace);
                let path = format!("{collection}?fieldManager={FIELD_MANAGER}");
                self.request(Method::POST, &path, JSON, json(object)).await
            }
            ApiVerb::Update(object) => self.request(Method::PUT, &managed, JSON, json(object)).await,
            ApiVerb::JsonPatch(patch) => self.request(Method::PATCH, &managed, JSON_PATCH, json(patch)).await,
            ApiVerb::MergePatch(patch) => {
                self.request(Method::PATCH, &managed, MERGE_PATCH, json(patch)).await
            }
            // Without force: fields that somebody else has written stay theirs.
            ApiVerb::Apply(object) => self.request(Method::PATCH, &managed, APPLY_PATCH, json(object)).await,
            ApiVerb::Delete { uid, resource_version } => {
                let options = delete_options(uid.as_deref(), resource_version.as_deref());
                self.request(Method::DELETE, &path, JSON, json(&options)).await
            }
        }
    }

    /// Reads a path of the API server, with its query if it needs one.
    ///
    /// # Errors
    /// When there is no answer in time.
    pub async fn get(&self, path: &str) -> Result<Reply, Lost> {
        self.request(Method::GET, path, JSON, Vec::new()).await
    }

    /// Sends any request. `content_type` is that of `body`; it is not sent when the body is empty.
    ///
    /// # Errors
    /// When there is no answer in time.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Reply, Lost> {
        let described = format!("{method} {path}");
        let verb = verb(&method, path, content_type);
        let exchange = async {
            let response = self.kube.send(build(method, path, content_type, body)?).await;
            let response = response.map_err(|e| Lost(sentence(&e)))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, LARGEST_BODY).collect().await;
            let body = body.map_err(|e| Lost(format!("the answer broke off: {e}")))?.to_bytes();
            let retry_after = head.headers.get(header::RETRY_AFTER);
            let seconds = retry_after.and_then(|v| v.to_str().ok()?.trim().parse().ok());
            Ok(Reply { code: head.status.as_u16(), body, retry_after: seconds.map(Duration::from_secs) })
        };
        let outcome = match tokio::time::timeout(REQUEST_TIMEOUT, exchange).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(Lost(problem))) => Err(Lost(format!("{described}: {problem}"))),
            Err(_) => Err(Lost(format!("{described}: no answer within {REQUEST_TIMEOUT:?}"))),
        };
        self.count(
            verb,
            path,
            outcome.as_ref().map_or(ResponseCode::LOST, |reply| ResponseCode::of(reply.code)),
        );
        outcome
    }

    fn count(&self, verb: &str, path: &str, code: ResponseCode) {
        if let Some(metrics) = &self.metrics {
            metrics.count_request(verb, &resource(path), code);
        }
    }

    /// Opens a watch, or anything else that answers in lines. The outer error is a lost connection; the inner
    /// one a refusal. Only the head of the answer has to come in time.
    ///
    /// # Errors
    /// When there is no answer in time.
    pub async fn lines(&self, path: &str) -> Result<Result<Lines, Reply>, Lost> {
        let opening = async {
            let response = self.kube.send(build(Method::GET, path, JSON, Vec::new())?).await;
            let response = response.map_err(|e| Lost(sentence(&e)))?;
            if response.status().is_success() {
                return Ok(Ok(Lines::new(response.into_body())));
            }
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), LARGEST_BODY).collect().await;
            let body = body.map_err(|e| Lost(format!("the answer broke off: {e}")))?.to_bytes();
            Ok(Err(Reply { code, body, retry_after: None }))
        };
        let outcome = match tokio::time::timeout(REQUEST_TIMEOUT, opening).await {
            Ok(outcome) => outcome.map_err(|Lost(problem)| Lost(format!("GET {path}: {problem}"))),
            Err(_) => Err(Lost(format!("GET {path}: no answer within {REQUEST_TIMEOUT:?}"))),
        };
        let code = match &outcome {
            Ok(Ok(_)) => ResponseCode::of(200),
            Ok(Err(reply)) => ResponseCode::of(reply.code),
            Err(_) => ResponseCode::LOST,
        };
        self.count("watch", path, code);
        outcome
    }
}

/// Media type of objects.
pub const JSON: &str = "application/json";
/// Media type of RFC 6902 patches.
pub const JSON_PATCH: &str = "application/json-patch+json";
/// Media type of RFC 7386 patches.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// Media type of server-side apply, also for JSON.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

fn build(method: Method, path: &str, content_type: &str, body: Vec<u8>) -> Result<Request<Body>, Lost> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, JSON)
        .header(header::USER_AGENT, concat!("portcullis/", env!("CARGO_PKG_VERSION")));
    if !body.is_empty() {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    request.body(Body::from(body)).map_err(|e| Lost(format!("not sent: {e}")))
}

/// An error with its causes, which is where hyper and rustls say what is wrong.
fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// `/api/v1/namespaces/NAMESPACE/pods`, `/apis/GROUP/VERSION/...`; all namespaces, or a cluster-scoped kind,
/// when `namespace` is empty.
pub fn collection_path(resource: &ApiResource, namespace: &str) -> String {
    let root = match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    match namespace {
        "" => format!("{root}/{}", resource.plural),
        namespace => format!("{root}/namespaces/{namespace}/{}", resource.plural),
    }
}

fn object_path(request: &ApiRequest) -> String {
    let collection = collection_path(&request.resource, &request.namespace);
    match request.subresource {
        Some(subresource) => format!("{collection}/{}/{subresource}", request.name),
        None => format!("{collection}/{}", request.name),
    }
}

/// The verb of a request as RBAC calls it.
fn verb(method: &Method, path: &str, content_type: &str) -> &'static str {
    match *method {
        Method::GET if path.contains("?limit=") || path.contains("&limit=") => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH if content_type == APPLY_PATCH => "apply",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

/// The resource, with its subresource, that a path leads to.
fn resource(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let mut parts = path.trim_start_matches('/').split('/');
    let skipped = if parts.next() == Some("api") { 1 } else { 2 };
    let mut parts = parts.skip(skipped).peekable();
    if parts.peek() == Some(&"namespaces") {
        let namespaced = parts.clone().nth(2).is_some();
        if namespaced {
            parts.nth(1);
        }
    }
    let plural = parts.next().unwrap_or_default();
    match parts.nth(1) {
        Some(subresource) => format!("{plural}/{subresource}"),
        None => plural.to_owned(),
    }
}

fn delete_options(uid: Option<&str>, resource_version: Option<&str>) -> serde_json::Value {
    let mut preconditions = serde_json::Map::new();
    for (field, value) in [("uid", uid), ("resourceVersion", resource_version)] {
        if let Some(value) = value {
            preconditions.insert(field.to_owned(), value.into());
        }
    }
    serde_json::json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})
}

/// What a reply means to whoever asked for this.
pub(super) fn respond(verb: &ApiVerb, reply: Result<Reply, Lost>) -> ApiResponse {
    let reply = match reply {
        Ok(reply) => reply,
        Err(Lost(problem)) => {
            tracing::debug!(problem, "a request was lost");
            return ApiResponse::Lost;
        }
    };
    if reply.ok() {
        return match String::from_utf8(reply.body.into()) {
            Ok(json) => ApiResponse::Object(json),
            Err(error) => {
                tracing::warn!(%error, "an answer of the API server is no text");
                ApiResponse::Lost
            }
        };
    }
    let message = reply.message();
    // The webhooks of others run before anything is stored.
    let refused = reply.code < 500 || message.contains("failed calling webhook");
    if refused || matches!(verb, ApiVerb::Get) {
        return ApiResponse::Status { code: reply.code, message };
    }
    tracing::debug!(code = reply.code, message, "a write failed and may have been carried out");
    ApiResponse::Lost
}

#[cfg(test)]
mod tests {
    use portcullis_core::api::PODS;
    use portcullis_core::engine::wire;

    use super::*;

    fn request(resource: ApiResource, namespace: &str, subresource: Option<&'static str>) -> ApiRequest {
        let (namespace, name) = (namespace.to_owned(), "a".to_owned());
        ApiRequest { verb: ApiVerb::Get, resource, namespace, name, subresource }
    }

    #[test]
    fn objects_are_where_the_api_server_keeps_them() {
        let nodes = ApiResource { group: "", version: "v1", plural: "nodes" };
        for (request, expected) in [
            (request(PODS, "ns", None), "/api/v1/namespaces/ns/pods/a"),
            (request(PODS, "ns", Some("status")), "/api/v1/namespaces/ns/pods/a/status"),
            (request(wire::GANGS, "ns", None), "/apis/portcullis.dev/v1alpha1/namespaces/ns/gangs/a"),
            (request(nodes, "", None), "/api/v1/nodes/a"),
        ] {
            assert_eq!(object_path(&request), expected);
        }
    }

    #[test]
    fn a_write_that_may_have_been_done_is_lost_and_what_was_refused_is_not() {
        let reply = |code, message: &str| Reply {
            code,
            body: serde_json::json!({"kind": "Status", "message": message}).to_string().into(),
            retry_after: None,
        };
        let write = ApiVerb::MergePatch(serde_json::json!({}));
        let refused = |code, message: &str| ApiResponse::Status { code, message: message.to_owned() };
        for (verb, reply, expected) in [
            (&write, Ok(reply(409, "conflict")), refused(409, "conflict")),
            (&write, Ok(reply(429, "slow down")), refused(429, "slow down")),
            (&write, Ok(reply(500, "etcdserver: request timed out")), ApiResponse::Lost),
            (&write, Ok(reply(504, "timeout")), ApiResponse::Lost),
            (
                &write,
                Ok(reply(500, "Internal error occurred: failed calling webhook \"x\": refused")),
                refused(500, "Internal error occurred: failed calling webhook \"x\": refused"),
            ),
            (&ApiVerb::Get, Ok(reply(500, "etcd")), refused(500, "etcd")),
            (&ApiVerb::Get, Err(Lost("gone".to_owned())), ApiResponse::Lost),
            (
                &write,
                Ok(Reply { code: 200, body: (&b"\xff"[..]).into(), retry_after: None }),
                ApiResponse::Lost,
            ),
            (
                &write,
                Ok(Reply { code: 200, body: "{}".into(), retry_after: None }),
                ApiResponse::Object("{}".to_owned()),
            ),
        ] {
            assert_eq!(respond(verb, reply), expected);
        }
        let proxy = Reply { code: 502, body: "<html>bad gateway</html>".into(), retry_after: None };
        assert_eq!(proxy.message(), "<html>bad gateway</html>");
    }

    #[test]
    fn requests_are_counted_under_their_resource() {
        for (path, expected) in [
            ("/api/v1/namespaces/ns/pods/a?fieldManager=x", "pods"),
            ("/api/v1/namespaces/ns/pods/a/status?fieldManager=x", "pods/status"),
            ("/api/v1/pods?limit=500", "pods"),
            ("/api/v1/nodes/a", "nodes"),
            ("/api/v1/namespaces/ns", "namespaces"),
            ("/api/v1/namespaces", "namespaces"),
            ("/apis/portcullis.dev/v1alpha1/namespaces/ns/gangs/a/status", "gangs/status"),
            ("/apis/coordination.k8s.io/v1/namespaces/ns/leases", "leases"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }

    #[test]
    fn a_delete_names_what_it_means() {
        let options = delete_options(Some("u"), None);
        assert_eq!(options["preconditions"], serde_json::json!({"uid": "u"}));
    }
}
