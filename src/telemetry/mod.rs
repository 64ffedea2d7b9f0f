//! Logging and metrics: the log format, the decision log, and all metrics with their labels and help texts.
//!
//! It also limits repeated log lines, because a controller retries a denied pod for ever. It never decides
//! anything, and it never logs an object: only its name and the verdict.
//!
//! Invariant: every label value comes from a fixed set or names a policy of the active set. A client cannot
//! create time series.

mod cluster;
mod decisions;
mod metrics;
mod policies;
mod repeated;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use cluster::{ClusterMetrics, ResponseCode, WatchEnd};
pub use decisions::DecisionLog;
pub use metrics::Metrics;
pub use policies::{PolicyMetrics, PolicySetRole};
pub use repeated::{LastProblem, RepeatedLines};

/// Format of the log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of key=value pairs for each event.
    #[default]
    Logfmt,
    /// One JSON object for each event.
    Json,
}

/// Starts logging to standard error. The environment variable `PORTCULLIS_LOG` is the filter (default `info`;
/// `portcullis=debug` also logs unchanged objects and connections).
///
/// # Errors
/// If logging was started before.
pub fn start_logging(format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_env("PORTCULLIS_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Logfmt => {
            let layer = tracing_logfmt::builder().layer().with_writer(std::io::stderr);
            registry.with(layer).try_init()?;
        }
        LogFormat::Json => {
            let layer =
                tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr);
            registry.with(layer).try_init()?;
        }
    }
    Ok(())
}
