//! The accept loop: takes connections in, bounds their number, and sees them out.

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

/// The longest pause after an accept that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A listening socket with all that its connections need.
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
    /// Serves until the stage is [`ShutdownStage::Draining`] and the connections are gone or have had their time. Returns how
    /// many had to be cut.
    pub(super) async fn serve(mut self) -> usize {
        let mut connections = JoinSet::new();
        let mut pause = Duration::ZERO;
        let mut number = 0;
        let mut stage = self.stage.clone();
        let mut draining = std::pin::pin!(async move {
            // An error means that nobody can give the order any more, which is an order as well.
            let _ = stage.wait_for(|stage| *stage == ShutdownStage::Draining).await;
        });
        loop {
            tokio::select! {
                biased;
                () = &mut draining => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => report(ended),
                accepted = self.listener.accept(), if connections.len() < self.max_connections => match accepted {
                    Ok((stream, _)) => {
                        pause = Duration::ZERO;
                        number += 1;
                        connections.spawn(self.connection(number).serve(stream));
                    }
                    Err(error) => {
                        pause = pause_after(&error, pause);
                        tracing::warn!(%error, pause_ms = pause.as_millis(), "a connection could not be accepted");
                        tokio::time::sleep(pause).await;
                    }
                },
            }
        }
        self.close_and_wait(connections).await
    }

    async fn close_and_wait(self, mut connections: JoinSet<()>) -> usize {
        drop(self.listener);
        let all_gone = async {
            while let Some(ended) = connections.join_next().await {
                report(ended);
            }
        };
        // Whatever is left when the time is over is aborted with the set.
        let _ = tokio::time::timeout(self.drain_timeout, all_gone).await;
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

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection ended by a bug in Portcullis; the others go on");
    }
}

/// How long to wait before the next accept. A peer that went away before it was accepted is its own affair; anything
/// else (no file descriptors left, no memory) does not get better by asking at once.
fn pause_after(error: &io::Error, before: Duration) -> Duration {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    match error.kind() {
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted => Duration::ZERO,
        _ => (before * 2).clamp(Duration::from_millis(5), LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepting_backs_off_when_it_is_our_machine_that_fails() {
        let no_descriptors = io::Error::other("too many open files");
        let mut pause = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            pause = pause_after(&no_descriptors, pause);
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        let gone = io::Error::from(io::ErrorKind::ConnectionAborted);
        assert_eq!(pause_after(&gone, pause), Duration::ZERO);
    }
}
