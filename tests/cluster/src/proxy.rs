//! A proxy in front of the API server that injects faults into the requests of the program.
//!
//! It owns one listener and the rules, which can change while it runs. A request without a rule passes
//! unchanged, and so do watches. A seeded generator decides whether a rule with a probability applies. The
//! order of requests depends on the machine, so the same seed does not give the same run.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use portcullis_core::model::random::Random;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::cluster::Cluster;

/// An action of the proxy on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// Forwards it after a delay.
    Delay(Duration),
    /// Holds it until the rule is removed.
    Hold,
    /// Closes the connection without forwarding the request.
    DropBefore,
    /// Forwards it and closes the connection without the answer: the write happens, and the client does not
    /// learn it.
    DropAfter,
    /// Answers it without forwarding it.
    Answer {
        /// HTTP status code.
        code: u16,
        /// Header `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// Forwards it and answers with another status: the write happens, and the client gets an error.
    AnswerAfter {
        /// HTTP status code.
        code: u16,
    },
    /// Cuts the answer this long after its first byte; for watches.
    CutAfter(Duration),
}

/// A fault and the requests that it applies to. The first rule that applies to a request wins.
#[derive(Clone, Debug)]
pub struct Rule {
    name: String,
    methods: Vec<Method>,
    path: String,
    /// Text that the path does not have; empty for any path.
    except: String,
    first: u64,
    last: u64,
    percent: u64,
    what: FaultAction,
}

impl Rule {
    /// A rule for every request. [`Proxy::applied`] counts it under `name`.
    pub fn new(name: impl Into<String>, what: FaultAction) -> Self {
        Self {
            name: name.into(),
            methods: Vec::new(),
            path: String::new(),
            except: String::new(),
            first: 1,
            last: u64::MAX,
            percent: 100,
            what,
        }
    }

    /// The name in the counts.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Restricts the rule to these methods.
    #[must_use]
    pub fn methods(self, methods: &[Method]) -> Self {
        Self { methods: methods.to_vec(), ..self }
    }

    /// Restricts the rule to paths with this text, query included.
    #[must_use]
    pub fn path(self, part: &str) -> Self {
        Self { path: part.to_owned(), ..self }
    }

    /// Restricts the rule to paths without this text, query included.
    pub fn except(self, part: &str) -> Self {
        Self { except: part.to_owned(), ..self }
    }

    /// Restricts the rule to the requests from `first` to `last`, counted from 1 since the rule was set.
    #[must_use]
    pub fn from_to(self, first: u64, last: u64) -> Self {
        Self { first, last, ..self }
    }

    /// Restricts the rule to the first request, and to this percentage of the others.
    #[must_use]
    pub fn percent(self, percent: u64) -> Self {
        Self { percent, ..self }
    }

    fn is_about(&self, method: &Method, path: &str) -> bool {
        (self.methods.is_empty() || self.methods.contains(method))
            && path.contains(&self.path)
            && (self.except.is_empty() || !path.contains(&self.except))
    }
}

struct ProxyState {
    rules: Vec<(Rule, u64)>,
    applied: BTreeMap<String, u64>,
    dice: Random,
}

struct Shared {
    state: Mutex<ProxyState>,
    /// Counts changes of the rules, for held requests.
    changes: watch::Sender<u64>,
    upstream: Client,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn choose(&self, method: &Method, path: &str) -> Option<Rule> {
        let mut state = self.locked();
        let ProxyState { rules, applied, dice } = &mut *state;
        for (rule, seen) in rules.iter_mut().filter(|(rule, _)| rule.is_about(method, path)) {
            *seen += 1;
            let chosen = *seen == rule.first || dice.percent(rule.percent);
            if (rule.first..=rule.last).contains(seen) && chosen {
                *applied.entry(rule.name.clone()).or_default() += 1;
                return Some(rule.clone());
            }
        }
        None
    }
}

/// Stops when dropped.
pub struct Proxy {
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy without rules in front of the API server of `cluster`, for the user of the program
    /// only.
    ///
    /// # Errors
    /// When the tests have not started the control plane, or no port is free.
    pub fn start(cluster: &Cluster, seed: u64) -> Result<Self> {
        let identity = cluster.own().identity().clone();
        let runtime = cluster.api().runtime();
        let upstream = runtime.block_on(upstream(cluster.program()))?;
        let tls = server_config(&identity.certificate, &identity.key)?;
        let listener = runtime.block_on(TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))?;
        let port = listener.local_addr()?.port();
        let mut config: Value = serde_json::from_slice(&fs::read(cluster.program())?)?;
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://127.0.0.1:{port}"));
        let kubeconfig = cluster.directory().join(format!("proxy-{port}.kubeconfig"));
        fs::write(&kubeconfig, config.to_string())?;
        let state = ProxyState { rules: Vec::new(), applied: BTreeMap::new(), dice: Random::new(seed) };
        let changes = watch::Sender::new(0);
        let shared = Arc::new(Shared { state: Mutex::new(state), changes, upstream });
        let task = runtime.spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&shared)));
        Ok(Self { kubeconfig, shared, task })
    }

    /// The kubeconfig with the address of the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Replaces the rules. Requests that a removed rule holds continue. Open watches are cut, so that the new
    /// rules apply to them too.
    pub fn set(&self, rules: impl IntoIterator<Item = Rule>) {
        self.shared.locked().rules = rules.into_iter().map(|rule| (rule, 0)).collect();
        self.shared.changes.send_modify(|count| *count += 1);
    }

    /// How often each rule has applied since the proxy started.
    pub fn applied(&self) -> BTreeMap<String, u64> {
        self.shared.locked().applied.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn upstream(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    // A watch may be idle for a long time.
    config.read_timeout = None;
    Ok(Client::try_from(config)?)
}

/// The proxy uses the certificate of the API server, which is valid for every port of 127.0.0.1.
fn server_config(certificate: &Path, key: &Path) -> Result<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| certificate.display().to_string())?;
    let key = PrivateKeyDer::from_pem_file(key).with_context(|| key.display().to_string())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?)
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((connection, _)) = listener.accept().await {
        let _ = connection.set_nodelay(true);
        tokio::spawn(serve(connection, tls.clone(), Arc::clone(&shared)));
    }
}

async fn serve(connection: TcpStream, tls: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(connection) = tls.accept(connection).await else { return };
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { answer(request, &shared).await.ok_or(Dropped) }
    });
    // An error here is an injected fault or a client that has closed.
    let _ =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), service).await;
}

/// An error that closes the connection without an answer.
#[derive(Debug)]
struct Dropped;

impl std::fmt::Display for Dropped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the proxy drops the connection")
    }
}

impl std::error::Error for Dropped {}

type AnswerBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// `None` closes the connection.
async fn answer(request: Request<Incoming>, shared: &Shared) -> Option<Response<AnswerBody>> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let rule = shared.choose(&head.method, &path);
    let body = body.collect().await.ok()?.to_bytes();
    match rule.as_ref().map(|rule| rule.what) {
        Some(FaultAction::DropBefore) => return None,
        Some(FaultAction::Answer { code, retry_after }) => return Some(status_response(code, retry_after)),
        Some(FaultAction::Delay(long)) => sleep(long).await,
        Some(FaultAction::Hold) => {
            let mut changes = shared.changes.subscribe();
            let name = rule.as_ref().map(|rule| rule.name.clone());
            while shared.locked().rules.iter().any(|(rule, _)| Some(&rule.name) == name.as_ref()) {
                changes.changed().await.ok()?;
            }
        }
        Some(FaultAction::DropAfter | FaultAction::AnswerAfter { .. } | FaultAction::CutAfter(_)) | None => {}
    }
    head.headers.remove(header::HOST);
    head.headers.remove(header::AUTHORIZATION);
    head.uri = path.parse().ok()?;
    let forwarded = Request::from_parts(head, kube::client::Body::from(body));
    let (head, body) = shared.upstream.send(forwarded).await.ok()?.into_parts();
    let end: Option<CutTime> = match rule.map(|rule| rule.what) {
        Some(FaultAction::DropAfter) => {
            let _ = body.collect().await;
            return None;
        }
        Some(FaultAction::AnswerAfter { code }) => {
            let _ = body.collect().await;
            return Some(status_response(code, None));
        }
        Some(FaultAction::CutAfter(long)) => Some(Box::pin(sleep(long))),
        // New rules cut open watches, so that the client watches again under them.
        None if path.contains("watch=1") => {
            let mut changes = shared.changes.subscribe();
            Some(Box::pin(async move {
                let _ = changes.changed().await;
            }))
        }
        _ => None,
    };
    let body = CutBody { body: BodyExt::map_err(body, Into::into).boxed_unsync(), end };
    Some(Response::from_parts(head, body.boxed_unsync()))
}

/// A `Status` as the API server writes it.
fn status_response(code: u16, retry_after: Option<u64>) -> Response<AnswerBody> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "message": format!("the proxy of the test answers {code}"),
    });
    let mut response = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        response = response.header(header::RETRY_AFTER, seconds);
    }
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never: Infallible| match never {});
    response.body(body.boxed_unsync()).expect("status codes and headers above are valid")
}

type CutTime = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A body that is cut at a given time.
struct CutBody {
    body: AnswerBody,
    end: Option<CutTime>,
}

impl Body for CutBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err(Box::new(Dropped))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
}
