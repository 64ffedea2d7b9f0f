//! A webhook server on loopback and its clients. The body of a request selects what the reviewer does.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use portcullis::certs::{Authority, CertificateNames, LiveCertificate, provider};
use portcullis::telemetry::Metrics;
use portcullis::webhook::{
    PolicyEndpoints, ReviewHandler, ShutdownReport, WebhookConfig, WebhookDependencies, run,
};
use portcullis_core::admission::{AdmissionVerdict, ReviewError, ReviewOutcome, ReviewSummary};
use rustls::SupportedProtocolVersion;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Upper bound of every wait. A busy machine needs longer than usual; only an event that never comes reaches
/// it.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// The body of every answer of the reviewer.
pub(crate) const ANSWER: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#;

/// Blocks reviews of the body `hold` until [`Gate::open`].
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        tokio::task::block_in_place(|| {
            let mut state = self.state.lock().unwrap();
            state.0 += 1;
            self.changed.notify_all();
            let opened = self.changed.wait_while(state, |state| !state.1).unwrap();
            drop(opened);
        });
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    /// Waits until `count` reviews have reached the gate.
    pub(crate) fn wait_for(&self, count: usize) {
        tokio::task::block_in_place(|| {
            let state = self.state.lock().unwrap();
            let (seen, result) =
                self.changed.wait_timeout_while(state, WAIT_TIMEOUT, |state| state.0 < count).unwrap();
            drop(seen);
            assert!(!result.timed_out(), "fewer than {count} reviews reached the gate");
        });
    }
}

/// A reviewer that reads its behaviour from the body: `panic`, `hold`, `bad` or `unpatchable`. It allows
/// every other body.
pub(crate) fn reviewer(gate: &Arc<Gate>) -> ReviewHandler {
    let gate = Arc::clone(gate);
    Arc::new(move |_, body| {
        match body {
            b"panic" => panic!("asked to"),
            b"hold" => gate.pass(),
            b"unpatchable" => return Err(ReviewError::Unpatchable("asked to".to_owned())),
            b"bad" => return Err(ReviewError::Malformed("asked to".to_owned())),
            _ => {}
        }
        Ok(ReviewOutcome {
            body: ANSWER.into(),
            summary: ReviewSummary {
                uid: "u".to_owned(),
                operation: "CREATE".to_owned(),
                namespace: "default".to_owned(),
                name: "model-1".to_owned(),
                verdict: AdmissionVerdict::Allowed,
                causes: Vec::new(),
                warnings: 0,
                patch_operations: 0,
                policies: None,
            },
        })
    })
}

/// The same reviewer for the policy paths. `hold` and `panic` need the slow lane, so the webhook calls them
/// twice.
fn policies(gate: &Arc<Gate>) -> PolicyEndpoints {
    let (review, asked) = (reviewer(gate), Mutex::new(HashMap::<Vec<u8>, usize>::new()));
    PolicyEndpoints {
        review: Arc::new(move |hook, body, _| {
            let count = {
                let mut asked = asked.lock().unwrap();
                let count = asked.entry(body.to_owned()).or_default();
                *count += 1;
                *count
            };
            if matches!(body, b"hold" | b"panic") && count % 2 == 1 {
                return Ok(None);
            }
            review(hook, body).map(Some)
        }),
        status_json: Arc::new(String::new),
    }
}

pub(crate) struct Server {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) admin: std::net::SocketAddr,
    pub(crate) authority: Authority,
    pub(crate) live: Arc<LiveCertificate>,
    pub(crate) gate: Arc<Gate>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<ShutdownReport>,
}

/// A configuration without a shutdown delay.
pub(crate) fn config() -> WebhookConfig {
    WebhookConfig { shutdown_delay: Duration::ZERO, drain_timeout: WAIT_TIMEOUT, ..WebhookConfig::default() }
}

pub(crate) async fn start(config: WebhookConfig) -> Server {
    start_at(config, SystemTime::now).await
}

pub(crate) async fn start_at(
    config: WebhookConfig,
    clock: impl Fn() -> SystemTime + Send + Sync + 'static,
) -> Server {
    let gate = Arc::new(Gate::default());
    let authority = Authority::new(SystemTime::now()).unwrap();
    let leaf = authority.issue(&CertificateNames::loopback(), SystemTime::now()).unwrap();
    let live = Arc::new(LiveCertificate::new(leaf.server_certificate().unwrap()));
    let service = WebhookDependencies {
        review: reviewer(&gate),
        policies: Some(policies(&gate)),
        certificate: Arc::clone(&live),
        metrics: Arc::new(Metrics::new()),
        clock: Arc::new(clock),
        readiness_checks: Vec::new(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admin_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, admin) = (listener.local_addr().unwrap(), admin_listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = stopped.await;
    };
    let running = tokio::spawn(run(listener, admin_listener, config, service, shutdown));
    Server { address, admin, authority, live, gate, stop: Some(stop), running }
}

impl Server {
    /// Asks the server to stop.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the server has stopped.
    pub(crate) async fn ended(self) -> ShutdownReport {
        self.running.await.unwrap()
    }

    pub(crate) async fn tls(
        &self,
        protocols: &[&str],
        versions: &[&'static SupportedProtocolVersion],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.tls_trusting(&self.authority, protocols, versions).await
    }

    pub(crate) async fn tls_trusting(
        &self,
        authority: &Authority,
        protocols: &[&str],
        versions: &[&'static SupportedProtocolVersion],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(tls)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    }

    /// A TLS connection on which the client has sent nothing yet.
    pub(crate) async fn silent(&self) -> TlsStream<TcpStream> {
        self.tls(&["http/1.1"], rustls::ALL_VERSIONS).await.unwrap()
    }

    pub(crate) async fn http1(&self) -> Session {
        let (session, connection) = http1::handshake(TokioIo::new(self.silent().await)).await.unwrap();
        tokio::spawn(connection);
        Session::One(session)
    }

    pub(crate) async fn http2(&self) -> Session {
        let stream = self.tls(&["h2"], rustls::ALL_VERSIONS).await.unwrap();
        Session::over(stream).await
    }

    /// Sends one review on a new connection.
    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.http1().await.post(path, body).await
    }

    /// Sends bytes on a new connection and returns everything that the server sends until it closes.
    pub(crate) async fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.silent().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        until_closed(&mut stream).await
    }

    /// GET of a path on the admin port.
    pub(crate) async fn admin(&self, path: &str) -> Reply {
        let stream = TcpStream::connect(self.admin).await.unwrap();
        let (mut session, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(path).header("host", "localhost").body(Full::<Bytes>::default()).unwrap();
        Reply::read(session.send_request(request).await.unwrap()).await
    }

    /// The value of one metric; 0 when it is absent.
    pub(crate) async fn metric(&self, series: &str) -> u64 {
        let text = self.admin("/metrics").await.text;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')).unwrap_or("0");
        value.parse().unwrap()
    }

    /// Waits until a metric has a value: some change after the client has its answer.
    pub(crate) async fn metric_becomes(&self, series: &str, expected: u64) {
        wait_until(&format!("{series} is {expected}"), async || self.metric(series).await == expected).await;
    }
}

/// Waits until a condition holds.
///
/// # Panics
/// After [`WAIT_TIMEOUT`], with the description of the condition.
pub(crate) async fn wait_until(description: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < deadline, "after {WAIT_TIMEOUT:?} still not: {description}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads until the server closes the connection. Panics after [`WAIT_TIMEOUT`].
pub(crate) async fn until_closed(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    let read = async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            bytes.extend_from_slice(&buffer[..count]);
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, read).await.expect("the server never closed the connection");
    String::from_utf8(bytes).unwrap()
}

/// A client connection that is kept alive.
pub(crate) enum Session {
    One(http1::SendRequest<Full<Bytes>>),
    Two(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

impl Session {
    /// A client for the protocol that the handshake negotiated.
    pub(crate) async fn over(stream: TlsStream<TcpStream>) -> Self {
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let (session, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .unwrap();
            tokio::spawn(connection);
            return Self::Two(session);
        }
        let (session, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self::One(session)
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Reply {
        self.try_post(path, body).await.unwrap()
    }

    pub(crate) async fn try_post(&mut self, path: &str, body: &str) -> hyper::Result<Reply> {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(request.body(Full::from(body.to_owned())).unwrap()).await
    }

    pub(crate) async fn send(&mut self, mut request: Request<Full<Bytes>>) -> hyper::Result<Reply> {
        let response = match self {
            Self::One(session) => {
                request.headers_mut().insert("host", "localhost".parse().unwrap());
                session.ready().await?;
                session.send_request(request).await?
            }
            Self::Two(session) => {
                *request.uri_mut() = format!("https://localhost{}", request.uri()).parse().unwrap();
                session.ready().await?;
                session.send_request(request).await?
            }
        };
        Ok(Reply::read(response).await)
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    async fn read(response: Response<hyper::body::Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Self { status: head.status, headers: head.headers, text: String::from_utf8(bytes.into()).unwrap() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn is_answer(&self) {
        assert_eq!((self.status, self.text.as_str()), (StatusCode::OK, ANSWER), "{self:?}");
    }

    /// Checks the status, and that the text is a sentence with all these words.
    #[track_caller]
    pub(crate) fn is_refusal(&self, status: u16, words: &[&str]) {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("text/plain; charset=utf-8"));
        for word in words {
            assert!(self.text.contains(word), "{word:?} is not in {:?}", self.text);
        }
        assert!(self.text.ends_with(".\n"), "a sentence: {:?}", self.text);
    }
}
