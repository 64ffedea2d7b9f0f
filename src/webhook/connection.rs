//! One connection: handshake, HTTP, and the timers that end it.
//!
//! hyper's own header timeout runs while a kept-alive connection idles, too, and would cut the API server's idle
//! connections after seconds. So the two are told apart here: [`Progress`] notes when the bytes of a head began to
//! come and when the last answer was given, and [`judge`] says what that means. (A part of a head that came in one
//! piece with the request before it goes unnoticed until more of it comes; such a connection ends as an idle one does.)

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::ShutdownStage;
use crate::telemetry::Metrics;

/// How long a connection may take for what.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// For the head of a request, from its first byte; on a new connection, from the end of the handshake.
    pub head: Duration,
    /// Between requests. Longer than the 90 s after which the API server closes an idle connection by itself: when
    /// the client closes first, no request can meet a connection that is just being closed.
    pub idle: Duration,
    /// How old a connection may get before the client is asked for a new one. Without that, an API server stays with
    /// the replica it found first.
    pub age: Duration,
    /// How long a connection that was asked to close may take to do so.
    pub closing: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(5),
            idle: Duration::from_secs(120),
            age: Duration::from_secs(100),
            closing: Duration::from_secs(10),
        }
    }
}

impl ConnectionLimits {
    /// The age limit of one connection: four fifths to six fifths of `age`, spread by the connection's number, so that
    /// connections opened together do not all come back together.
    fn age_of(&self, number: u64) -> Duration {
        // A step of 21 of 64 visits all 64 places before it repeats, and neighbours land far apart.
        let place = u32::try_from(number.wrapping_mul(21) % 64).unwrap_or(0);
        self.age / 5 * 4 + self.age * 2 / 5 / 64 * place
    }

    /// How often to look at the timers: often enough that nothing lasts half as long again as it may.
    fn tick(&self) -> Duration {
        (self.head.min(self.idle).min(self.closing) / 2).max(Duration::from_millis(10))
    }
}

/// One accepted connection on its way.
pub(super) struct Connection {
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: ConnectionLimits,
    age: Duration,
    metrics: Option<Arc<Metrics>>,
    stage: watch::Receiver<ShutdownStage>,
}

impl Connection {
    pub(super) fn new(
        number: u64,
        tls: Option<TlsAcceptor>,
        router: Router,
        limits: ConnectionLimits,
        metrics: Option<Arc<Metrics>>,
        stage: watch::Receiver<ShutdownStage>,
    ) -> Self {
        let age = limits.age_of(number);
        Self { tls, router, limits, age, metrics, stage }
    }

    /// Serves the connection until either side ends it. The handshake happens here, in the connection's own task: a
    /// client that stalls in it keeps nobody else waiting.
    pub(super) async fn serve(self, stream: TcpStream) {
        let _open = self.metrics.as_ref().map(|metrics| metrics.track_connection());
        // An answer is one small write; waiting for more to send with it only adds delay.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let Some(acceptor) = &self.tls else { return self.serve_http(stream, false).await };
        match tokio::time::timeout(self.limits.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                self.serve_http(stream, http2).await;
            }
            Ok(Err(error)) => self.handshake_failed(&error.to_string()),
            Err(_) => self.handshake_failed("it took too long"),
        }
    }

    fn handshake_failed(&self, problem: &str) {
        tracing::debug!(problem, "a TLS handshake failed");
        if let Some(metrics) = &self.metrics {
            metrics.count_handshake_failure();
        }
    }

    async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        mut self,
        stream: S,
        http2: bool,
    ) {
        let progress = Arc::new(Progress::new(http2));
        let stream = TokioIo::new(Heard { stream, progress: Arc::clone(&progress) });
        // The protocol is the one that the handshake agreed on; guessing it from the first bytes would wait for them
        // without a timer.
        let builder = http_builder(http2);
        let (router, stage, age) = (self.router.clone(), self.stage.clone(), self.age);
        let answering = Arc::clone(&progress);
        let service = service_fn(move |request: Request<Incoming>| {
            let request_underway = Progress::begin(&answering);
            let (mut router, stage) = (router.clone(), stage.clone());
            async move {
                let http2 = request.version() == Version::HTTP_2;
                let Ok(mut response) = router.call(request.map(Body::new)).await;
                // Who is sent away because we are full tries again; on a new connection, that may be another replica.
                let full = response.status() == StatusCode::TOO_MANY_REQUESTS;
                let last = full || *stage.borrow() > ShutdownStage::Serving || request_underway.age() >= age;
                if last && !http2 {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let mut http = std::pin::pin!(builder.serve_connection(stream, service));
        let mut tick = tokio::time::interval(self.limits.tick());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut closing_since = None;
        let mut stage_known = true;
        loop {
            tokio::select! {
                ended = &mut http => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                    return;
                }
                changed = self.stage.changed(), if stage_known => stage_known = changed.is_ok(),
                _ = tick.tick() => {}
            }
            let seen = progress.seen(*self.stage.borrow());
            match (judge(&seen, &self.limits, self.age), closing_since) {
                (Judgement::Cut, _) => return,
                (Judgement::Close, None) => {
                    closing_since = Some(Instant::now());
                    http.as_mut().graceful_shutdown();
                }
                (Judgement::Close, Some(since)) if since.elapsed() >= self.limits.closing && !seen.busy => {
                    return;
                }
                (Judgement::Close | Judgement::Keep, _) => {}
            }
        }
    }
}

fn http_builder(http2: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(64)
        .max_header_list_size(16 * 1024)
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

/// What to do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Keep,
    /// Ask the client to go; requests that are underway finish.
    Close,
    /// End it now.
    Cut,
}

/// What a connection looks like at one moment.
#[derive(Clone, Debug)]
struct Seen {
    stage: ShutdownStage,
    http2: bool,
    /// A request is being answered.
    busy: bool,
    /// How long the head of a request has been coming.
    head_for: Option<Duration>,
    /// It has answered a request.
    answered: bool,
    /// How long since the last answer, or since it was opened.
    quiet_for: Duration,
    age: Duration,
}

/// Judges a connection.
fn judge(seen: &Seen, limits: &ConnectionLimits, age_limit: Duration) -> Judgement {
    let slow_head = seen.head_for.is_some_and(|time| time >= limits.head);
    match seen {
        // A request has its own deadlines; a connection is never cut under one.
        Seen { busy: false, .. } if slow_head => Judgement::Cut,
        Seen { stage: ShutdownStage::Draining, .. } => Judgement::Close,
        // Over HTTP/2 "no more requests here" is a frame of its own, and can be sent at any time without a race. Over
        // HTTP/1.1 it is a header of the next answer. A connection that was opened for a request gets its answer first.
        Seen { stage: ShutdownStage::NotReady, http2: true, answered: true, .. } => Judgement::Close,
        Seen { http2: true, answered: true, age, .. } if *age >= age_limit => Judgement::Close,
        Seen { busy: false, quiet_for, .. } if *quiet_for >= limits.idle => Judgement::Close,
        Seen { .. } => Judgement::Keep,
    }
}

/// No head is coming; nothing was answered.
const NONE: u64 = u64::MAX;

/// What a connection did, in milliseconds since it was opened. Written by its stream and its requests, read by its
/// timer; each value stands for itself, so relaxed ordering is enough.
struct Progress {
    opened: Instant,
    http2: bool,
    requests: AtomicUsize,
    head_since: AtomicU64,
    answered_at: AtomicU64,
}

impl Progress {
    /// A new connection owes us a head.
    fn new(http2: bool) -> Self {
        Self {
            opened: Instant::now(),
            http2,
            requests: AtomicUsize::new(0),
            head_since: AtomicU64::new(0),
            answered_at: AtomicU64::new(NONE),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(NONE - 1)
    }

    /// Bytes came in. Over HTTP/2 they may be pings, which say nothing about requests.
    fn heard(&self) {
        let idle = self.requests.load(Ordering::Relaxed) == 0;
        if idle && !self.http2 && self.head_since.load(Ordering::Relaxed) == NONE {
            self.head_since.store(self.now(), Ordering::Relaxed);
        }
    }

    fn begin(this: &Arc<Self>) -> Underway {
        this.requests.fetch_add(1, Ordering::Relaxed);
        this.head_since.store(NONE, Ordering::Relaxed);
        Underway(Arc::clone(this))
    }

    fn seen(&self, stage: ShutdownStage) -> Seen {
        let now = self.now();
        let since = |then: u64| Duration::from_millis(now.saturating_sub(then));
        let head = self.head_since.load(Ordering::Relaxed);
        let answered = self.answered_at.load(Ordering::Relaxed);
        Seen {
            stage,
            http2: self.http2,
            busy: self.requests.load(Ordering::Relaxed) > 0,
            head_for: (head != NONE).then(|| since(head)),
            answered: answered != NONE,
            quiet_for: since(if answered == NONE { 0 } else { answered }),
            age: Duration::from_millis(now),
        }
    }
}

/// A request is underway until this is dropped.
struct Underway(Arc<Progress>);

impl Underway {
    fn age(&self) -> Duration {
        self.0.opened.elapsed()
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.answered_at.store(self.0.now(), Ordering::Relaxed);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that notes when bytes come in.
struct Heard<S> {
    stream: S,
    progress: Arc<Progress>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.progress.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn fresh() -> Seen {
        Seen {
            stage: ShutdownStage::Serving,
            http2: false,
            busy: false,
            answered: true,
            head_for: None,
            quiet_for: SECOND,
            age: SECOND,
        }
    }

    fn check(seen: &Seen, expected: Judgement) {
        let limits = ConnectionLimits::default();
        assert_eq!(judge(seen, &limits, limits.age), expected, "{seen:?}");
    }

    #[test]
    fn a_connection_is_judged_by_what_it_does() {
        check(&fresh(), Judgement::Keep);
        check(&Seen { head_for: Some(4 * SECOND), ..fresh() }, Judgement::Keep);
        check(&Seen { head_for: Some(5 * SECOND), ..fresh() }, Judgement::Cut);
        check(&Seen { quiet_for: 119 * SECOND, ..fresh() }, Judgement::Keep);
        check(&Seen { quiet_for: 120 * SECOND, ..fresh() }, Judgement::Close);
        check(&Seen { quiet_for: 120 * SECOND, busy: true, ..fresh() }, Judgement::Keep);
        check(&Seen { age: 1000 * SECOND, ..fresh() }, Judgement::Keep);
        check(&Seen { age: 1000 * SECOND, http2: true, busy: true, ..fresh() }, Judgement::Close);
        check(&Seen { stage: ShutdownStage::NotReady, ..fresh() }, Judgement::Keep);
        check(&Seen { stage: ShutdownStage::NotReady, http2: true, ..fresh() }, Judgement::Close);
        check(
            &Seen { stage: ShutdownStage::NotReady, http2: true, answered: false, ..fresh() },
            Judgement::Keep,
        );
        check(&Seen { stage: ShutdownStage::Draining, answered: false, ..fresh() }, Judgement::Close);
        check(&Seen { stage: ShutdownStage::Draining, busy: true, ..fresh() }, Judgement::Close);
        check(
            &Seen { stage: ShutdownStage::Draining, head_for: Some(5 * SECOND), ..fresh() },
            Judgement::Cut,
        );
    }

    #[test]
    fn connections_that_were_opened_together_do_not_age_together() {
        let limits = ConnectionLimits::default();
        let mut ages: Vec<_> = (0..64).map(|number| limits.age_of(number)).collect();
        assert!(ages.iter().all(|age| (80 * SECOND..120 * SECOND).contains(age)), "{ages:?}");
        assert!(ages.windows(2).all(|pair| pair[0].abs_diff(pair[1]) >= 10 * SECOND), "{ages:?}");
        ages.sort();
        ages.dedup();
        assert_eq!(ages.len(), 64);
    }
}
