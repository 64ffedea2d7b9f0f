//! What the program tells: log lines and metrics, with their names in one place.
//!
//! Owns the log format, the metric names with their label values, and the rule that keeps a controller which retries
//! for ever from filling the log. Never decides anything, and never logs an object: only its name and the verdict.
//! Invariant: every label value comes from a fixed set, or names a policy of the set in force, so a client cannot make the metrics grow.

mod cluster;
mod decisions;
mod metrics;
mod policies;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use cluster::{ClusterMetrics, ResponseCode, WatchEnd};
pub use decisions::{DecisionLog, REPEATED_LOG_INTERVAL};
pub use metrics::Metrics;
pub use policies::{PolicyMetrics, PolicySetRole};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// `key=value`, one line for each event.
    #[default]
    Logfmt,
    /// One JSON object for each event.
    Json,
}

/// Starts logging to standard error. What is logged is chosen by the environment variable `PORTCULLIS_LOG`
/// (`info` when unset; `portcullis=debug` shows untouched objects and connections too).
///
/// # Errors
/// When logging was started before.
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
