//! An API server that breaks on purpose: it stands between the program and the real one and does to requests what its rules say.
//!
//! It owns one listener and the rules, which can change while it runs. Everything that no rule is about goes through as it came,
//! watches as they flow. Whether a rule with a chance strikes is drawn from a generator with a seed; in which order requests come is
//! up to the machine, so a seed gives the same dice, not the same run.

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

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is passed on so much later.
    Delay(Duration),
    /// It is kept until the rule is taken away.
    Hold,
    /// The connection ends, and the API server never hears of it.
    DropBefore,
    /// The API server answers, and the connection ends: done, and nobody is told.
    DropAfter,
    /// Answered by the proxy; the API server never hears of it.
    Answer {
        /// HTTP status code.
        code: u16,
        /// Header `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// Passed on, and then answered by the proxy: done, and something else is told.
    AnswerAfter {
        /// HTTP status code.
        code: u16,
    },
    /// The answer breaks off so long after its first byte: for watches.
    CutAfter(Duration),
}

/// Which requests something happens to. Of several rules that are about a request the first that strikes counts.
#[derive(Clone, Debug)]
pub struct Rule {
    name: String,
    methods: Vec<Method>,
    path: String,
    first: u64,
    last: u64,
    percent: u64,
    what: What,
}

impl Rule {
    /// For every request at first. `name` is what [`Proxy::struck`] counts it under.
    pub fn new(name: impl Into<String>, what: What) -> Self {
        Self {
            name: name.into(),
            methods: Vec::new(),
            path: String::new(),
            first: 1,
            last: u64::MAX,
            percent: 100,
            what,
        }
    }

    /// What it is counted under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Only for these methods.
    #[must_use]
    pub fn methods(self, methods: &[Method]) -> Self {
        Self { methods: methods.to_vec(), ..self }
    }

    /// Only where the path with its query contains this.
    #[must_use]
    pub fn path(self, part: &str) -> Self {
        Self { path: part.to_owned(), ..self }
    }

    /// Only from the `first` to the `last` of these requests, counted from 1 since the rule was set.
    #[must_use]
    pub fn from_to(self, first: u64, last: u64) -> Self {
        Self { first, last, ..self }
    }

    /// Only for the first of these requests, and by chance for so many of a hundred of the others.
    #[must_use]
    pub fn percent(self, percent: u64) -> Self {
        Self { percent, ..self }
    }

    fn is_about(&self, method: &Method, path: &str) -> bool {
        (self.methods.is_empty() || self.methods.contains(method)) && path.contains(&self.path)
    }
}

struct State {
    rules: Vec<(Rule, u64)>,
    struck: BTreeMap<String, u64>,
    dice: Random,
}

struct Shared {
    state: Mutex<State>,
    /// Counts changes of the rules, for those that are held.
    changes: watch::Sender<u64>,
    upstream: Client,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn choose(&self, method: &Method, path: &str) -> Option<Rule> {
        let mut state = self.locked();
        let State { rules, struck, dice } = &mut *state;
        for (rule, seen) in rules.iter_mut().filter(|(rule, _)| rule.is_about(method, path)) {
            *seen += 1;
            let chosen = *seen == rule.first || dice.percent(rule.percent);
            if (rule.first..=rule.last).contains(seen) && chosen {
                *struck.entry(rule.name.clone()).or_default() += 1;
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
    /// Starts one in front of the API server of `cluster`, for the user that the program is; it knows no other. It breaks nothing yet.
    ///
    /// # Errors
    /// When the control plane is not ours, or nothing can listen.
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
        let state = State { rules: Vec::new(), struck: BTreeMap::new(), dice: Random::new(seed) };
        let changes = watch::Sender::new(0);
        let shared = Arc::new(Shared { state: Mutex::new(state), changes, upstream });
        let task = runtime.spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&shared)));
        Ok(Self { kubeconfig, shared, task })
    }

    /// The kubeconfig that leads through it.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// From now on these rules and no others. What is held by a rule that is gone goes on; open watches break off, so that
    /// the rules are about them too.
    pub fn set(&self, rules: impl IntoIterator<Item = Rule>) {
        self.shared.locked().rules = rules.into_iter().map(|rule| (rule, 0)).collect();
        self.shared.changes.send_modify(|count| *count += 1);
    }

    /// How often each rule has struck since the proxy was started.
    pub fn struck(&self) -> BTreeMap<String, u64> {
        self.shared.locked().struck.clone()
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
    // A watch may be silent for long.
    config.read_timeout = None;
    Ok(Client::try_from(config)?)
}

/// The proxy shows the API server's own certificate: it is good for 127.0.0.1, whatever the port.
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
    // An error is what the rules asked for, or a client that has gone.
    let _ =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), service).await;
}

/// The connection ends without an answer.
#[derive(Debug)]
struct Dropped;

impl std::fmt::Display for Dropped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the proxy drops the connection")
    }
}

impl std::error::Error for Dropped {}

type AnswerBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// `None`: the connection ends.
async fn answer(request: Request<Incoming>, shared: &Shared) -> Option<Response<AnswerBody>> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let rule = shared.choose(&head.method, &path);
    let body = body.collect().await.ok()?.to_bytes();
    match rule.as_ref().map(|rule| rule.what) {
        Some(What::DropBefore) => return None,
        Some(What::Answer { code, retry_after }) => return Some(made_up(code, retry_after)),
        Some(What::Delay(long)) => sleep(long).await,
        Some(What::Hold) => {
            let mut changes = shared.changes.subscribe();
            let name = rule.as_ref().map(|rule| rule.name.clone());
            while shared.locked().rules.iter().any(|(rule, _)| Some(&rule.name) == name.as_ref()) {
                changes.changed().await.ok()?;
            }
        }
        Some(What::DropAfter | What::AnswerAfter { .. } | What::CutAfter(_)) | None => {}
    }
    head.headers.remove(header::HOST);
    head.headers.remove(header::AUTHORIZATION);
    head.uri = path.parse().ok()?;
    let forwarded = Request::from_parts(head, kube::client::Body::from(body));
    let (head, body) = shared.upstream.send(forwarded).await.ok()?.into_parts();
    let end: Option<End> = match rule.map(|rule| rule.what) {
        Some(What::DropAfter) => {
            let _ = body.collect().await;
            return None;
        }
        Some(What::AnswerAfter { code }) => {
            let _ = body.collect().await;
            return Some(made_up(code, None));
        }
        Some(What::CutAfter(long)) => Some(Box::pin(sleep(long))),
        // New rules are about what is watched as well: it is asked for again.
        None if path.contains("watch=1") => {
            let mut changes = shared.changes.subscribe();
            Some(Box::pin(async move {
                let _ = changes.changed().await;
            }))
        }
        _ => None,
    };
    let body = Cut { body: BodyExt::map_err(body, Into::into).boxed_unsync(), end };
    Some(Response::from_parts(head, body.boxed_unsync()))
}

/// As the API server says it.
fn made_up(code: u16, retry_after: Option<u64>) -> Response<AnswerBody> {
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

type End = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A body that breaks off at some time.
struct Cut {
    body: AnswerBody,
    end: Option<End>,
}

impl Body for Cut {
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
