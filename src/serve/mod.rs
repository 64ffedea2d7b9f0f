//! `portcullis serve`: starts and connects webhook, engine, certificates, policies and telemetry, and stops
//! them in order.
//!
//! Owns the sockets, signals and files of the process, and the requests that update the TLS Secret and
//! `caBundle`. It never decides about reviews or gangs.
//!
//! ```text
//! options.rs       the command line options
//! standalone.rs    the webhook alone, without a cluster
//! in_cluster.rs    in a cluster: the webhook on every replica, the engine on the leader
//! certificates.rs  the shared TLS Secret, and caBundle in the webhook configurations
//! policies/        policy files: loading, reloading, the active set and the candidate
//! signals.rs       SIGTERM and SIGINT
//! ```

mod certificates;
mod in_cluster;
mod options;
mod policies;
mod signals;
mod standalone;

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;

use crate::certs::{CertificateFiles, LiveCertificate, ServerCertificate};
use crate::telemetry::{Metrics, start_logging};
use crate::webhook::WebhookConfig;
use signals::StopSignal;

pub use options::{EngineOptions, ServeOptions};

/// Interval between two reads of the files of `--tls-cert` and `--tls-key`.
const CERTIFICATE_FILE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Serves until SIGTERM or SIGINT: in a cluster, or with `--standalone` the webhook alone. It returns when
/// all requests are drained. A second signal ends the process at once.
///
/// # Errors
/// If an address is in use, a certificate cannot be created or read, or the cluster cannot be reached.
pub async fn run(options: ServeOptions) -> anyhow::Result<()> {
    start_logging(options.log_format)?;
    let stop = StopSignal::listen()?;
    if options.standalone {
        standalone::run(options, stop).await
    } else {
        in_cluster::run(options, stop).await
    }
}

async fn bind(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address} ({flag}). If another process uses that port, stop it or choose another port: \
             {flag} {}",
            SocketAddr::new(address.ip(), 0)
        )
    })
}

fn webhook_config(options: &ServeOptions) -> WebhookConfig {
    let mut config = WebhookConfig { shutdown_delay: options.shutdown_delay, ..WebhookConfig::default() };
    if let Some(max_concurrent) = options.max_concurrent {
        config.max_concurrent = max_concurrent.into();
    }
    config
}

/// Opens the files of `--tls-cert` and `--tls-key`, if given. Returns them with their current certificate.
fn open_certificate_files(
    options: &ServeOptions,
) -> anyhow::Result<Option<(CertificateFiles, ServerCertificate)>> {
    let (Some(certificate), Some(key)) = (&options.tls_cert, &options.tls_key) else { return Ok(None) };
    let mut files = CertificateFiles::new(certificate.clone(), key.clone());
    let first = files.poll()?.context("the first read of certificate files always returns a certificate")?;
    Ok(Some((files, first)))
}

/// Reads the certificate files at an interval; never returns.
async fn reload_certificate_files(mut files: CertificateFiles, live: &LiveCertificate, metrics: &Metrics) {
    loop {
        tokio::time::sleep(CERTIFICATE_FILE_CHECK_INTERVAL).await;
        replace_certificate(files.poll(), live, metrics);
    }
}

/// Presents a new certificate, if there is one. Counts and logs a failure.
fn replace_certificate<E: Display>(
    next: Result<Option<ServerCertificate>, E>,
    live: &LiveCertificate,
    metrics: &Metrics,
) {
    match next {
        Ok(None) => {}
        Ok(Some(next)) => {
            live.replace(next);
            tracing::info!("new connections get the new certificate");
        }
        Err(error) => {
            metrics.count_certificate_reload_failure();
            tracing::warn!(%error, "certificate reload failed; the previous certificate is still served");
        }
    }
}
