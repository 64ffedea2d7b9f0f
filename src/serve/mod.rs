//! `portcullis serve`: puts certificates, webhook, engine and telemetry together.
//!
//! Owns sockets, signals and files of a run. Decides nothing about reviews or gangs.
//!
//! ```text
//! options.rs     what can be said on the command line
//! standalone.rs  the webhook alone, with no cluster, and how to reach it
//! inside.rs      in a cluster: webhook on every replica, engine on the one that leads
//! keeper.rs      the certificates that replicas share, and caBundle in our webhook configurations
//! policies/      the policy files: loaded, followed, swapped, compared with a candidate
//! signals.rs     SIGTERM and SIGINT
//! ```

mod inside;
mod keeper;
mod options;
pub(crate) mod policies;
mod signals;
mod standalone;

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;

use crate::certs::{CertificateFiles, LiveCertificate, Presented};
use crate::telemetry::{Metrics, start_logging};
use crate::webhook::WebhookConfig;
use signals::Stop;

pub(crate) use keeper::read_secret;
pub use options::{EngineOptions, ServeOptions};

/// How often given certificate files are read again.
const FILE_CHECK: Duration = Duration::from_secs(10);

/// Runs until SIGTERM or SIGINT: in a cluster, or with `--standalone` the webhook alone. Returns when everything is
/// drained; a second signal ends the process at once.
///
/// # Errors
/// When an address is taken, a certificate cannot be made or read, or there is no cluster to talk to.
pub async fn run(options: ServeOptions) -> anyhow::Result<()> {
    start_logging(options.log_format)?;
    let stop = Stop::listen()?;
    if options.standalone { standalone::run(options, stop).await } else { inside::run(options, stop).await }
}

async fn bind(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address} ({flag}). If another process has that port, stop it or choose another: {flag} {}",
            SocketAddr::new(address.ip(), 0)
        )
    })
}

fn webhook_config(options: &ServeOptions) -> WebhookConfig {
    let mut config = WebhookConfig { shutdown_delay: options.shutdown_delay, ..WebhookConfig::default() };
    if let Some(most) = options.max_concurrent {
        config.max_concurrent = most.into();
    }
    config
}

/// Reads given certificate files again, for ever.
async fn reload(mut files: CertificateFiles, live: &LiveCertificate, metrics: &Metrics) {
    loop {
        tokio::time::sleep(FILE_CHECK).await;
        swap(files.poll(), live, metrics);
    }
}

/// Presents a new certificate from now on, if there is one; says so if there should have been.
fn swap<E: Display>(next: Result<Option<Presented>, E>, live: &LiveCertificate, metrics: &Metrics) {
    match next {
        Ok(None) => {}
        Ok(Some(next)) => {
            live.replace(next);
            tracing::info!("new connections get the new certificate");
        }
        Err(error) => {
            metrics.count_certificate_reload_failure();
            tracing::warn!(%error, "there is no new certificate; the previous one is still served");
        }
    }
}
