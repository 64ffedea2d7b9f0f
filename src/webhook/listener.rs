//! The accept loop of one port: accepts connections, limits their number and drains them at shutdown.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::ShutdownStage;
use super::connection::{Connection, ConnectionLimits};
use crate::telemetry::Metrics;

/// The longest pause after a failed accept.
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);
/// The first pause after a failed accept.
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(5);

/// A listening socket with everything that its connections need.
pub(super) struct Listener {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) router: Router,
    pub(super) limits: ConnectionLimits,
    pub(super) max_connections: usize,
    pub(super) drain_timeout: Duration,
    pub(super) metrics: Option<Arc<Metrics>>,
    pub(super) stage: watch::Receiver<ShutdownStage>,
}

impl Listener {
    /// Serves until the stage is [`ShutdownStage::Draining`] and all connections are closed or
    /// `drain_timeout` has passed. Returns the number of connections that were cut.
    pub(super) async fn serve(mut self) -> usize {
        let mut connections = JoinSet::new();
        let mut backoff = Duration::ZERO;
        let mut number = 0;
        let mut stage = self.stage.clone();
        let mut draining = std::pin::pin!(async move {
            // An error means that the sender is gone. No stage can follow, so the listener drains.
            let _ = stage.wait_for(|stage| *stage == ShutdownStage::Draining).await;
        });
        loop {
            tokio::select! {
                biased;
                () = &mut draining => break,
                Some(result) = connections.join_next(), if !connections.is_empty() => log_panic(result),
                accepted = self.listener.accept(), if connections.len() < self.max_connections => match accepted {
                    Ok((stream, _)) => {
                        backoff = Duration::ZERO;
                        number += 1;
                        connections.spawn(self.connection(number).serve(stream));
                    }
                    Err(error) => {
                        backoff = next_backoff(&error, backoff);
                        tracing::warn!(%error, pause_ms = backoff.as_millis(), "accepting a connection failed");
                        tokio::time::sleep(backoff).await;
                    }
                },
            }
        }
        self.close_and_drain(connections).await
    }

    async fn close_and_drain(self, mut connections: JoinSet<()>) -> usize {
        drop(self.listener);
        let all_closed = async {
            while let Some(result) = connections.join_next().await {
                log_panic(result);
            }
        };
        // The set aborts the remaining connections when it is dropped.
        let _ = tokio::time::timeout(self.drain_timeout, all_closed).await;
        connections.len()
    }

    fn connection(&mut self, number: u64) -> Connection {
        Connection::new(
            number,
            self.tls.clone(),
            self.router.clone(),
            self.limits.clone(),
            self.metrics.clone(),
            self.stage.clone(),
        )
    }
}

fn log_panic(result: Result<(), tokio::task::JoinError>) {
    if let Err(error) = result {
        tracing::error!(
            %error,
            "connection task panicked: this is a bug in Portcullis, please report it; other connections are not affected"
        );
    }
}

/// The pause before the next accept. It is zero if the peer closed its connection before the accept. It
/// doubles for all other errors (no file descriptors, no memory), because these do not go away within
/// microseconds.
fn next_backoff(error: &io::Error, previous: Duration) -> Duration {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    match error.kind() {
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted => Duration::ZERO,
        _ => (previous * 2).clamp(MIN_ACCEPT_BACKOFF, MAX_ACCEPT_BACKOFF),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_backs_off_only_after_local_errors() {
        let no_descriptors = io::Error::other("too many open files");
        let mut backoff = Duration::ZERO;
        let mut pauses_ms = Vec::new();
        for _ in 0..10 {
            backoff = next_backoff(&no_descriptors, backoff);
            pauses_ms.push(backoff.as_millis());
        }
        assert_eq!(pauses_ms, [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        let aborted = io::Error::from(io::ErrorKind::ConnectionAborted);
        assert_eq!(next_backoff(&aborted, backoff), Duration::ZERO);
    }
}
