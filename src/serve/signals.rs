//! The signals that ask a process to stop, told to everybody in it.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Whether the process was asked to stop. Cheap to clone.
#[derive(Clone)]
pub(super) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Listens for SIGTERM and SIGINT. After the first one a second one ends the process at once.
    pub(super) fn listen() -> std::io::Result<Self> {
        let mut signals = Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        };
        let (tell, stop) = watch::channel(false);
        tokio::spawn(async move {
            signals.next().await;
            tell.send_replace(true);
            signals.next().await;
            tracing::warn!("stopping at once: a second signal came");
            std::process::exit(1);
        });
        Ok(Self(stop))
    }

    /// Completes when the process was asked to stop.
    pub(super) async fn asked(mut self) {
        // The task that tells lives as long as the process.
        let _ = self.0.wait_for(|asked| *asked).await;
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
