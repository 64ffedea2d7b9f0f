//! The connection to the API server: one request in, one status and body out.
//!
//! Owns configuration, TLS, credentials, the connection pool and the request timeout. Never retries: every
//! status is returned to the caller, because only the caller knows what a repeated write would mean.
//! Invariant: every request that is not a watch returns within [`REQUEST_TIMEOUT`], as a status or as
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
use portcullis_core::api::{ApiRequest, ApiResource, ApiResponse, ApiVerb, ErrorStatus};
pub use portcullis_core::objects::names::FIELD_MANAGER;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use super::lines::Lines;
use crate::telemetry::{ClusterMetrics, ResponseCode};

/// Upper bound of a request's duration, from the wait for a connection to the last byte of the response.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are closed after this time. The API server closes them later.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_IDLE_CONNECTIONS: usize = 128;
/// Interval of TCP keepalive probes. A peer that vanished is detected within a minute and a half.
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Upper bound of a response body. The largest expected response is a page of 500 pods of a few tens of
/// kilobytes each.
const MAX_BODY_BYTES: usize = 256 * 1024 * 1024;

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No usable kubeconfig and no service account.
    #[error(
        "no cluster configuration: {0}. Set KUBECONFIG, or run as a pod with a service account (automountServiceAccountToken: true)"
    )]
    Config(String),
    /// A setting of the configuration cannot be used.
    #[error("the cluster configuration cannot be used: {0}")]
    Unusable(String),
}

/// A request without a response. The API server may have processed it, may not have, and may still do so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Lost(pub String);

/// A response of the API server.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status code.
    pub code: u16,
    /// The whole body.
    pub body: Bytes,
    /// The `Retry-After` header.
    pub retry_after: Option<Duration>,
}

impl Reply {
    /// Whether the status is 2xx.
    pub fn ok(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Returns `message` of the `Status` object in the body of an error. Returns the start of the body if it
    /// is not a `Status`.
    pub fn message(&self) -> String {
        ErrorStatus::read(self.code, &self.body).message
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
    /// Creates a client from `KUBECONFIG` or `~/.kube/config`, else from the service account of this pod.
    ///
    /// # Errors
    /// If none of them exists or can be used.
    pub async fn infer() -> Result<Self, ClientError> {
        let config = Config::infer().await.map_err(|e| ClientError::Config(e.to_string()))?;
        Self::new(config)
    }

    /// Creates a client from the current context of the kubeconfig at `path`.
    ///
    /// # Errors
    /// If it cannot be read or used.
    pub async fn from_kubeconfig(path: &Path) -> Result<Self, ClientError> {
        let unreadable = |e: &dyn std::fmt::Display| ClientError::Config(format!("{}: {e}", path.display()));
        let kubeconfig = Kubeconfig::read_from(path).map_err(|e| unreadable(&e))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Self::new(config.map_err(|e| unreadable(&e))?)
    }

    /// Creates a client from `config`. Sends nothing.
    ///
    /// # Errors
    /// If its certificates or credentials cannot be read, or it names a proxy.
    pub fn new(config: Config) -> Result<Self, ClientError> {
        let unusable = |e: &dyn std::fmt::Display| ClientError::Unusable(e.to_string());
        if let Some(proxy) = &config.proxy_url {
            return Err(unusable(&format!(
                "proxy-url is {proxy}, and proxies are not supported: remove proxy-url"
            )));
        }
        // Dependencies may enable several crypto providers, and rustls does not choose between them. The only
        // error is that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE_INTERVAL));
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        // HTTP/1.1: each of a few connections serves one request at a time. HTTP/2 would need a custom
        // connector with `.enable_http2()`.
        let tls = config.rustls_https_connector_with_connector(tcp).map_err(|e| unusable(&e))?;
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
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

    /// Returns a client with the same configuration and its own connections.
    ///
    /// # Errors
    /// If its certificates or credentials can no longer be read.
    pub fn with_own_connections(&self) -> Result<Self, ClientError> {
        Ok(Self { metrics: self.metrics.clone(), ..Self::new(Config::clone(&self.config))? })
    }

    /// Returns this client with metrics of its requests.
    #[must_use]
    pub fn with_metrics(self, metrics: ClusterMetrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Returns the namespace of the kubeconfig's context, or of the service account.
    pub fn namespace(&self) -> &str {
        self.kube.default_namespace()
    }

    /// Returns the URL of the API server, for messages.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends a request about one object. `namespace` is empty for cluster-scoped kinds.
    ///
    /// A write with a 5xx status returns [`ApiResponse::Lost`]: etcd may have stored it before it timed out
    /// or changed its leader. Only a write that admission rejected is known not to be stored.
    pub async fn send(&self, request: &ApiRequest) -> ApiResponse {
        respond(&request.verb, self.exchange(request).await)
    }

    /// Like [`Client::send`], but returns the whole reply, for callers that use `Retry-After`.
    ///
    /// # Errors
    /// If the response does not arrive within [`REQUEST_TIMEOUT`].
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
            ApiVerb::DryRunJsonPatch(patch) => {
                let path = format!("{managed}&dryRun=All");
                self.request(Method::PATCH, &path, JSON_PATCH, json(patch)).await
            }
            ApiVerb::MergePatch(patch) => {
                self.request(Method::PATCH, &managed, MERGE_PATCH, json(patch)).await
            }
            // Without force: fields of other managers stay unchanged.
            ApiVerb::Apply(object) => self.request(Method::PATCH, &managed, APPLY_PATCH, json(object)).await,
            ApiVerb::Evict { uid } => {
                let eviction = serde_json::json!({
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"namespace": request.namespace, "name": request.name},
                    "deleteOptions": delete_options(Some(uid), None),
                });
                self.request(Method::POST, &format!("{path}/eviction"), JSON, json(&eviction)).await
            }
            ApiVerb::Delete { uid, resource_version } => {
                let options = delete_options(uid.as_deref(), resource_version.as_deref());
                self.request(Method::DELETE, &path, JSON, json(&options)).await
            }
        }
    }

    /// Reads a path of the API server. `path` may contain a query.
    ///
    /// # Errors
    /// If the response does not arrive within [`REQUEST_TIMEOUT`].
    pub async fn get(&self, path: &str) -> Result<Reply, Lost> {
        self.request(Method::GET, path, JSON, Vec::new()).await
    }

    /// Sends any request. `content_type` describes `body`; it is not sent if the body is empty.
    ///
    /// # Errors
    /// If the response does not arrive within [`REQUEST_TIMEOUT`].
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
            let response = response.map_err(|e| Lost(text_with_causes(&e)))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
            let body = body.map_err(|e| Lost(format!("the response ended early: {e}")))?.to_bytes();
            let retry_after = head.headers.get(header::RETRY_AFTER);
            let seconds = retry_after.and_then(|v| v.to_str().ok()?.trim().parse().ok());
            Ok(Reply { code: head.status.as_u16(), body, retry_after: seconds.map(Duration::from_secs) })
        };
        let outcome = match tokio::time::timeout(REQUEST_TIMEOUT, exchange).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(Lost(problem))) => Err(Lost(format!("{described}: {problem}"))),
            Err(_) => Err(Lost(format!("{described}: no response within {REQUEST_TIMEOUT:?}"))),
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

    /// Opens a watch, or another response that consists of lines. The outer error is a failed connection, the
    /// inner error is an error status. Only the head of the response must arrive within [`REQUEST_TIMEOUT`].
    ///
    /// # Errors
    /// If the response does not arrive within [`REQUEST_TIMEOUT`].
    pub async fn lines(&self, path: &str) -> Result<Result<Lines, Reply>, Lost> {
        let opening = async {
            let response = self.kube.send(build(Method::GET, path, JSON, Vec::new())?).await;
            let response = response.map_err(|e| Lost(text_with_causes(&e)))?;
            if response.status().is_success() {
                return Ok(Ok(Lines::new(response.into_body())));
            }
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await;
            let body = body.map_err(|e| Lost(format!("the response ended early: {e}")))?.to_bytes();
            Ok(Err(Reply { code, body, retry_after: None }))
        };
        let outcome = match tokio::time::timeout(REQUEST_TIMEOUT, opening).await {
            Ok(outcome) => outcome.map_err(|Lost(problem)| Lost(format!("GET {path}: {problem}"))),
            Err(_) => Err(Lost(format!("GET {path}: no response within {REQUEST_TIMEOUT:?}"))),
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

/// Returns an error's text with its causes. hyper and rustls put the actual problem into the causes.
fn text_with_causes(error: &dyn std::error::Error) -> String {
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

/// Returns the path of a collection: `/api/v1/namespaces/NAMESPACE/pods`, `/apis/GROUP/VERSION/...`. An empty
/// `namespace` means all namespaces, or a cluster-scoped kind.
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

/// Returns the RBAC verb of a request.
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

/// Returns the resource of a path, with its subresource.
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

/// Translates the reply to a request into the engine's terms.
pub(super) fn respond(verb: &ApiVerb, reply: Result<Reply, Lost>) -> ApiResponse {
    let reply = match reply {
        Ok(reply) => reply,
        Err(Lost(problem)) => {
            tracing::debug!(problem, "request without a response");
            return ApiResponse::Lost;
        }
    };
    if reply.ok() {
        return match String::from_utf8(reply.body.into()) {
            Ok(json) => ApiResponse::Object(json),
            Err(error) => {
                tracing::warn!(%error, "response of the API server is not UTF-8");
                ApiResponse::Lost
            }
        };
    }
    let status = ErrorStatus::read(reply.code, &reply.body);
    // Admission webhooks run before the API server stores the object.
    let rejected =
        reply.code < 500 || status.is_webhook_denial() || status.message.contains("failed calling webhook");
    // A dry run writes nothing. An eviction that may have happened is sent again: it does no harm.
    if rejected || matches!(verb, ApiVerb::Get | ApiVerb::DryRunJsonPatch(_) | ApiVerb::Evict { .. }) {
        return ApiResponse::rejected(status);
    }
    tracing::debug!(code = reply.code, problem = status.message, "write failed with an unknown outcome");
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
    fn object_paths_match_the_api_server() {
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
    fn a_failed_write_is_lost_unless_the_api_server_rejected_it() {
        let reply = |code, message: &str| Reply {
            code,
            body: serde_json::json!({"kind": "Status", "message": message}).to_string().into(),
            retry_after: None,
        };
        let write = ApiVerb::MergePatch(serde_json::json!({}));
        let rejected = |code, message: &str| ApiResponse::Status { code, message: message.to_owned() };
        for (verb, reply, expected) in [
            (&write, Ok(reply(409, "conflict")), ApiResponse::Stale { message: "conflict".to_owned() }),
            (&write, Ok(reply(429, "slow down")), rejected(429, "slow down")),
            (&write, Ok(reply(500, "etcdserver: request timed out")), ApiResponse::Lost),
            (&write, Ok(reply(504, "timeout")), ApiResponse::Lost),
            (
                &write,
                Ok(reply(500, "Internal error occurred: failed calling webhook \"x\": refused")),
                rejected(500, "Internal error occurred: failed calling webhook \"x\": refused"),
            ),
            (&ApiVerb::Get, Ok(reply(500, "etcd")), rejected(500, "etcd")),
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
    fn delete_options_contain_only_the_given_preconditions() {
        let options = delete_options(Some("u"), None);
        assert_eq!(options["preconditions"], serde_json::json!({"uid": "u"}));
    }
}
