//! SIGTERM and SIGINT, for every task of the process.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// A flag that is set when the process receives SIGTERM or SIGINT. Cheap to clone.
#[derive(Clone)]
pub(super) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Listens for SIGTERM and SIGINT. The second signal ends the process at once.
    pub(super) fn listen() -> std::io::Result<Self> {
        let mut signals = SignalStreams {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        };
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            signals.next().await;
            sender.send_replace(true);
            signals.next().await;
            tracing::warn!("second stop signal received; stopping at once");
            std::process::exit(1);
        });
        Ok(Self(receiver))
    }

    /// Completes when the process is asked to stop.
    pub(super) async fn received(mut self) {
        // The sending task lives as long as the process, so this is never an error.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

struct SignalStreams {
    terminate: Signal,
    interrupt: Signal,
}

impl SignalStreams {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
