//! One connection: TLS handshake, HTTP, and the timers that close it.
//!
//! hyper's header timeout also runs while a kept-alive connection is idle. It would cut the idle connections
//! of the API server after seconds. This module tells the two apart: [`ConnectionActivity`] records when a
//! request head started and when the last answer was sent, and [`decide`] turns that into an action.
//! Limitation: a partial head that arrives in one read with the previous request is not noticed until more
//! bytes arrive. The idle timer closes such a connection.

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

/// Timeouts of one connection.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Timeout of the TLS handshake.
    pub handshake: Duration,
    /// Timeout of a request head, from its first byte; on a new connection, from the end of the handshake.
    pub head: Duration,
    /// Maximum time between two requests. It is longer than the 90 s after which the API server closes an
    /// idle connection. If the client closes first, no request can arrive at a connection that the server is
    /// closing.
    pub idle: Duration,
    /// Maximum age of a connection; then the server asks the client to reconnect. Without this limit, an API
    /// server keeps using the replica that it connected to first.
    pub age: Duration,
    /// Timeout for closing a connection gracefully.
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
    /// The age limit of one connection: 80% to 120% of `age`, spread by the number of the connection.
    /// Connections that were opened at the same time therefore do not reconnect at the same time.
    fn age_limit(&self, number: u64) -> Duration {
        // 21 and 64 have no common factor: the steps visit all 64 slots, and consecutive numbers land far
        // apart.
        let slot = u32::try_from(number.wrapping_mul(21) % 64).unwrap_or(0);
        self.age / 5 * 4 + self.age * 2 / 5 / 64 * slot
    }

    /// Interval of the timer checks: half of the shortest timeout, so no timeout is exceeded by more than
    /// half.
    fn check_interval(&self) -> Duration {
        (self.head.min(self.idle).min(self.closing) / 2).max(Duration::from_millis(10))
    }
}

/// One accepted connection.
pub(super) struct Connection {
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: ConnectionLimits,
    age_limit: Duration,
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
        let age_limit = limits.age_limit(number);
        Self { tls, router, limits, age_limit, metrics, stage }
    }

    /// Serves the connection until either side closes it. The handshake runs in the task of the connection,
    /// so a client that stalls in it does not delay other clients.
    pub(super) async fn serve(self, stream: TcpStream) {
        let _open = self.metrics.as_ref().map(|metrics| metrics.track_connection());
        // An answer is one small write, so Nagle's algorithm only adds delay.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "setting TCP_NODELAY failed");
        }
        let Some(acceptor) = &self.tls else { return self.serve_http(stream, false).await };
        match tokio::time::timeout(self.limits.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                self.serve_http(stream, http2).await;
            }
            Ok(Err(error)) => self.report_failed_handshake(&error.to_string()),
            Err(_) => self.report_failed_handshake("timeout"),
        }
    }

    fn report_failed_handshake(&self, problem: &str) {
        tracing::debug!(problem, "TLS handshake failed");
        if let Some(metrics) = &self.metrics {
            metrics.count_handshake_failure();
        }
    }

    async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        mut self,
        stream: S,
        http2: bool,
    ) {
        let activity = Arc::new(ConnectionActivity::new(http2));
        let stream = TokioIo::new(ActivityStream { stream, activity: Arc::clone(&activity) });
        // The handshake negotiated the protocol. Detection by the first bytes would wait for them without a
        // timeout.
        let builder = http_builder(http2);
        let (router, stage, age_limit) = (self.router.clone(), self.stage.clone(), self.age_limit);
        let service_activity = Arc::clone(&activity);
        let service = service_fn(move |request: Request<Incoming>| {
            let active_request = ConnectionActivity::begin_request(&service_activity);
            let (mut router, stage) = (router.clone(), stage.clone());
            async move {
                let http2 = request.version() == Version::HTTP_2;
                let Ok(mut response) = router.call(request.map(Body::new)).await;
                // The client retries after 429. A new connection may reach another replica.
                let overloaded = response.status() == StatusCode::TOO_MANY_REQUESTS;
                let shutting_down = *stage.borrow() > ShutdownStage::Serving;
                let is_last = overloaded || shutting_down || active_request.connection_age() >= age_limit;
                if is_last && !http2 {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let mut http = std::pin::pin!(builder.serve_connection(stream, service));
        let mut tick = tokio::time::interval(self.limits.check_interval());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut closing_since = None;
        let mut stage_sender_alive = true;
        loop {
            tokio::select! {
                ended = &mut http => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "connection broke");
                    }
                    return;
                }
                changed = self.stage.changed(), if stage_sender_alive => stage_sender_alive = changed.is_ok(),
                _ = tick.tick() => {}
            }
            let state = activity.state(*self.stage.borrow());
            match (decide(&state, &self.limits, self.age_limit), closing_since) {
                (ConnectionAction::Cut, _) => return,
                (ConnectionAction::Close, None) => {
                    closing_since = Some(Instant::now());
                    http.as_mut().graceful_shutdown();
                }
                (ConnectionAction::Close, Some(since))
                    if since.elapsed() >= self.limits.closing && !state.busy =>
                {
                    return;
                }
                (ConnectionAction::Close | ConnectionAction::Keep, _) => {}
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

/// The next action on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionAction {
    Keep,
    /// Close gracefully: active requests finish.
    Close,
    /// Close at once.
    Cut,
}

/// State of a connection at one moment.
#[derive(Clone, Debug)]
struct ConnectionState {
    stage: ShutdownStage,
    http2: bool,
    /// At least one request is active.
    busy: bool,
    /// Time since the first byte of an incomplete request head.
    head_for: Option<Duration>,
    /// The connection has answered a request.
    answered: bool,
    /// Time since the last answer, or since the connection was opened.
    quiet_for: Duration,
    age: Duration,
}

/// Returns the next action on a connection.
fn decide(state: &ConnectionState, limits: &ConnectionLimits, age_limit: Duration) -> ConnectionAction {
    let slow_head = state.head_for.is_some_and(|time| time >= limits.head);
    match state {
        // Requests have their own deadlines. A connection is never cut while a request is active.
        ConnectionState { busy: false, .. } if slow_head => ConnectionAction::Cut,
        ConnectionState { stage: ShutdownStage::Draining, .. } => ConnectionAction::Close,
        // HTTP/2 has a frame for it (GOAWAY), which can be sent at any time without a race. HTTP/1.1 needs a
        // header in the next answer. A connection that was opened for a request answers that request first.
        ConnectionState { stage: ShutdownStage::NotReady, http2: true, answered: true, .. } => {
            ConnectionAction::Close
        }
        ConnectionState { http2: true, answered: true, age, .. } if *age >= age_limit => {
            ConnectionAction::Close
        }
        ConnectionState { busy: false, quiet_for, .. } if *quiet_for >= limits.idle => {
            ConnectionAction::Close
        }
        ConnectionState { .. } => ConnectionAction::Keep,
    }
}

/// Marks a time that is not set: no head has started, or nothing was answered.
const UNSET_MS: u64 = u64::MAX;

/// Activity of a connection, in milliseconds since it was opened. Its stream and its requests write, its
/// timer reads. The values are independent of each other, so relaxed ordering is enough.
struct ConnectionActivity {
    opened: Instant,
    http2: bool,
    active_requests: AtomicUsize,
    head_since_ms: AtomicU64,
    answered_at_ms: AtomicU64,
}

impl ConnectionActivity {
    /// Returns the activity of a new connection. The timeout of the first request head starts at once.
    fn new(http2: bool) -> Self {
        Self {
            opened: Instant::now(),
            http2,
            active_requests: AtomicUsize::new(0),
            head_since_ms: AtomicU64::new(0),
            answered_at_ms: AtomicU64::new(UNSET_MS),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(UNSET_MS - 1)
    }

    /// Records received bytes. Over HTTP/2 they may be pings, so they do not start a request head.
    fn record_bytes(&self) {
        let idle = self.active_requests.load(Ordering::Relaxed) == 0;
        if idle && !self.http2 && self.head_since_ms.load(Ordering::Relaxed) == UNSET_MS {
            self.head_since_ms.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    fn begin_request(this: &Arc<Self>) -> ActiveRequest {
        this.active_requests.fetch_add(1, Ordering::Relaxed);
        this.head_since_ms.store(UNSET_MS, Ordering::Relaxed);
        ActiveRequest(Arc::clone(this))
    }

    fn state(&self, stage: ShutdownStage) -> ConnectionState {
        let now = self.now_ms();
        let since = |then: u64| Duration::from_millis(now.saturating_sub(then));
        let head = self.head_since_ms.load(Ordering::Relaxed);
        let answered = self.answered_at_ms.load(Ordering::Relaxed);
        ConnectionState {
            stage,
            http2: self.http2,
            busy: self.active_requests.load(Ordering::Relaxed) > 0,
            head_for: (head != UNSET_MS).then(|| since(head)),
            answered: answered != UNSET_MS,
            quiet_for: since(if answered == UNSET_MS { 0 } else { answered }),
            age: Duration::from_millis(now),
        }
    }
}

/// Guard of an active request. Dropping it records the answer.
struct ActiveRequest(Arc<ConnectionActivity>);

impl ActiveRequest {
    fn connection_age(&self) -> Duration {
        self.0.opened.elapsed()
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.answered_at_ms.store(self.0.now_ms(), Ordering::Relaxed);
        self.0.active_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that records received bytes.
struct ActivityStream<S> {
    stream: S,
    activity: Arc<ConnectionActivity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ActivityStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.activity.record_bytes();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ActivityStream<S> {
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

    fn fresh() -> ConnectionState {
        ConnectionState {
            stage: ShutdownStage::Serving,
            http2: false,
            busy: false,
            answered: true,
            head_for: None,
            quiet_for: SECOND,
            age: SECOND,
        }
    }

    fn check(state: &ConnectionState, expected: ConnectionAction) {
        let limits = ConnectionLimits::default();
        assert_eq!(decide(state, &limits, limits.age), expected, "{state:?}");
    }

    #[test]
    fn timeouts_and_shutdown_close_connections_but_never_cut_active_requests() {
        check(&fresh(), ConnectionAction::Keep);
        check(&ConnectionState { head_for: Some(4 * SECOND), ..fresh() }, ConnectionAction::Keep);
        check(&ConnectionState { head_for: Some(5 * SECOND), ..fresh() }, ConnectionAction::Cut);
        check(&ConnectionState { quiet_for: 119 * SECOND, ..fresh() }, ConnectionAction::Keep);
        check(&ConnectionState { quiet_for: 120 * SECOND, ..fresh() }, ConnectionAction::Close);
        check(&ConnectionState { quiet_for: 120 * SECOND, busy: true, ..fresh() }, ConnectionAction::Keep);
        check(&ConnectionState { age: 1000 * SECOND, ..fresh() }, ConnectionAction::Keep);
        check(
            &ConnectionState { age: 1000 * SECOND, http2: true, busy: true, ..fresh() },
            ConnectionAction::Close,
        );
        check(&ConnectionState { stage: ShutdownStage::NotReady, ..fresh() }, ConnectionAction::Keep);
        check(
            &ConnectionState { stage: ShutdownStage::NotReady, http2: true, ..fresh() },
            ConnectionAction::Close,
        );
        check(
            &ConnectionState { stage: ShutdownStage::NotReady, http2: true, answered: false, ..fresh() },
            ConnectionAction::Keep,
        );
        check(
            &ConnectionState { stage: ShutdownStage::Draining, answered: false, ..fresh() },
            ConnectionAction::Close,
        );
        check(
            &ConnectionState { stage: ShutdownStage::Draining, busy: true, ..fresh() },
            ConnectionAction::Close,
        );
        check(
            &ConnectionState { stage: ShutdownStage::Draining, head_for: Some(5 * SECOND), ..fresh() },
            ConnectionAction::Cut,
        );
    }

    #[test]
    fn connections_opened_at_the_same_time_have_different_age_limits() {
        let limits = ConnectionLimits::default();
        let mut ages: Vec<_> = (0..64).map(|number| limits.age_limit(number)).collect();
        assert!(ages.iter().all(|age| (80 * SECOND..120 * SECOND).contains(age)), "{ages:?}");
        assert!(ages.windows(2).all(|pair| pair[0].abs_diff(pair[1]) >= 10 * SECOND), "{ages:?}");
        ages.sort();
        ages.dedup();
        assert_eq!(ages.len(), 64);
    }
}
