//! The command line options of `portcullis serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use portcullis_core::admission;
use portcullis_core::dialect::{OnStale, OnTimeout, OnTorn};
use portcullis_core::engine::{EngineSettings, GroupStatusMode, NominationMode};
use portcullis_core::snapshot::SharingMode;

use crate::telemetry::LogFormat;

/// Options of `portcullis serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeOptions {
    /// Run the webhook alone, without a cluster, to try it out
    #[arg(long)]
    pub standalone: bool,

    /// Address for reviews (TLS); port 0 for any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8443")]
    pub bind: SocketAddr,

    /// Address for probes and metrics (plain HTTP)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub admin_bind: SocketAddr,

    /// Certificate chain (PEM, leaf first) to serve instead of an own certificate; reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Standalone: directory for the generated certificates [default: certs/local if there is a directory
    /// certs, else a temporary directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub certs_dir: Option<PathBuf>,

    /// Additional DNS name in the certificate; may be repeated
    #[arg(long, value_name = "NAME")]
    pub dns_name: Vec<String>,

    /// How long a new authority must be in caBundle before it signs, so that every API server has read it
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub authority_settling: Duration,

    /// Format of the log lines
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// Maximum number of concurrent reviews, and the same number in the slow lane for long policy reviews
    /// [default: the number of cores]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_concurrent: Option<u16>,

    /// How long to keep serving after SIGTERM while readiness fails, so that endpoints are updated
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub shutdown_delay: Duration,

    /// Namespace of the Lease, the Secret and the Service
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", default_value = "portcullis-system")]
    pub namespace: String,

    /// Name of this replica, for the Lease and the log
    #[arg(long, value_name = "NAME", env = "POD_NAME", default_value = "portcullis")]
    pub name: String,

    /// Schedulers that do not run in this cluster, separated by commas: new gang members that name one get
    /// default-scheduler
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub rewrite_schedulers: Vec<String>,

    /// Policy files or directories; may be repeated. They are reloaded when they change
    #[arg(long, value_name = "PATH", help_heading = "Policies")]
    pub policies: Vec<PathBuf>,

    /// Candidate policies for shadow evaluation: different answers are counted and logged, the requests are
    /// not affected. An invalid candidate is logged and not evaluated; may be repeated
    #[arg(long, value_name = "PATH", help_heading = "Policies", requires = "policies")]
    pub shadow_policies: Vec<PathBuf>,

    /// Options of the engine
    #[command(flatten)]
    pub engine: EngineOptions,
}

impl ServeOptions {
    /// Returns the settings of admission.
    pub fn admission(&self) -> admission::AdmissionSettings {
        let names = self.rewrite_schedulers.iter().filter(|name| !name.is_empty());
        admission::AdmissionSettings {
            rewritten_schedulers: names.cloned().collect(),
            ..admission::AdmissionSettings::default()
        }
    }
}

/// Options of the engine.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineOptions {
    /// Maximum time from removing the gates of a gang until all its pods are bound; after that the gang is
    /// torn
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub bind_timeout: Duration,

    /// Which nodes share their GPU cards
    #[arg(long, value_enum, default_value_t)]
    pub sharing: SharingArg,

    /// What to do with a torn gang whose group has no annotation portcullis.dev/on-torn
    #[arg(long, value_enum, default_value_t)]
    pub on_torn: OnTornArg,

    /// How often the unbound members of a torn gang are replaced before the whole gang is evicted, with
    /// --on-torn=retry
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub torn_retries: u32,

    /// How long a torn gang may hold its nodes before the whole gang is evicted, with --on-torn=retry
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub torn_timeout: Duration,

    /// What to do with a gang that has not started within its timeout and whose group has no annotation
    /// portcullis.dev/on-timeout
    #[arg(long, value_enum, default_value_t)]
    pub on_timeout: OnTimeoutArg,

    /// What to do with a stale gang (it was complete and lost members) whose group has no annotation
    /// portcullis.dev/on-stale
    #[arg(long, value_enum, default_value_t)]
    pub on_stale: OnStaleArg,

    /// How long a gang may miss members before it is treated as stale, so that its controller can replace
    /// them. A group overrides it with portcullis.dev/stale-grace or KAI's spec.stalenessGracePeriod
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub stale_grace: Duration,

    /// Waiting time after which nodes are reserved for the oldest gang that does not fit; until then smaller
    /// gangs may use them; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub hold_after: Duration,

    /// How long capacity stays reserved for planned members whose pods are not created yet, while none of
    /// them is created
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub reserve_for: Duration,

    /// When to set status.nominatedNodeName on members, so that the scheduler reserves their nodes
    #[arg(long, value_enum, default_value_t)]
    pub nominate: NominateArg,

    /// Whether to write the status of pod groups
    #[arg(long, value_enum, default_value_t)]
    pub group_status: GroupStatusArg,

    /// Pin every member to its planned node by required node affinity, not only members with a share of a
    /// card or without a nomination. A group overrides it with portcullis.dev/pin
    #[arg(long)]
    pub pin_all: bool,
}

/// `--sharing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SharingArg {
    /// Nodes with the label and taint portcullis.dev/gpu-sharing=vram
    #[default]
    Label,
    /// Every node on which no pod uses nvidia.com/gpu: for a workstation or a tutorial cluster
    Any,
}

/// `--on-torn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnTornArg {
    /// Evict the pods that are not bound, so that their owners create them again, and then all pods
    #[default]
    Retry,
    /// Keep its pods
    Hold,
    /// Evict its pods, so that it can start again
    Evict,
}

/// `--on-timeout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnTimeoutArg {
    /// Move it behind the other gangs of its priority
    #[default]
    Requeue,
    /// Evict its pods, which are all still gated
    Delete,
}

/// `--on-stale`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnStaleArg {
    /// Evict its remaining pods, so that it can start again as a whole
    #[default]
    Evict,
    /// Keep its remaining pods
    Keep,
}

/// `--nominate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum NominateArg {
    /// Every member
    Always,
    /// Every member, but only while pods outside of gangs wait for the scheduler
    #[default]
    Contended,
    /// No member
    Never,
}

/// `--group-status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GroupStatusArg {
    /// Unless another controller writes the status, or the pods name a gang scheduler
    #[default]
    Auto,
    /// Do not write it
    Never,
}

impl EngineOptions {
    /// Returns the settings of the engine.
    pub fn settings(&self) -> EngineSettings {
        EngineSettings {
            bind_timeout: self.bind_timeout,
            sharing: match self.sharing {
                SharingArg::Label => SharingMode::Labelled,
                SharingArg::Any => SharingMode::Any,
            },
            on_torn: match self.on_torn {
                OnTornArg::Retry => OnTorn::Retry,
                OnTornArg::Hold => OnTorn::Hold,
                OnTornArg::Evict => OnTorn::Evict,
            },
            torn_retries: self.torn_retries,
            torn_timeout: self.torn_timeout,
            on_timeout: match self.on_timeout {
                OnTimeoutArg::Requeue => OnTimeout::Requeue,
                OnTimeoutArg::Delete => OnTimeout::Delete,
            },
            on_stale: match self.on_stale {
                OnStaleArg::Evict => OnStale::Evict,
                OnStaleArg::Keep => OnStale::Keep,
            },
            stale_grace: self.stale_grace,
            hold_after: self.hold_after,
            reserve_for: self.reserve_for,
            nominate: match self.nominate {
                NominateArg::Always => NominationMode::Always,
                NominateArg::Contended => NominationMode::Contended,
                NominateArg::Never => NominationMode::Never,
            },
            pin_all: self.pin_all,
            group_status: match self.group_status {
                GroupStatusArg::Auto => GroupStatusMode::Auto,
                GroupStatusArg::Never => GroupStatusMode::Never,
            },
            ..EngineSettings::default()
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    portcullis_text::duration::parse(text)
        .ok_or_else(|| format!("{text:?} is not a duration: write for example 10s, 500ms or 1m30s"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCommand {
        #[command(flatten)]
        engine: EngineOptions,
    }

    #[test]
    fn defaults_match_those_of_the_engine() {
        assert_eq!(TestCommand::parse_from(["serve"]).engine.settings(), EngineSettings::default());
        let arguments = "serve --bind-timeout 5s --sharing any --on-torn evict --torn-retries 1 --torn-timeout 2m --nominate never --pin-all --group-status never --on-timeout delete --on-stale keep --stale-grace 30s --hold-after 0s --reserve-for 1m";
        let settings = TestCommand::parse_from(arguments.split(' ')).engine.settings();
        let expected = EngineSettings {
            bind_timeout: Duration::from_secs(5),
            sharing: SharingMode::Any,
            on_torn: OnTorn::Evict,
            torn_retries: 1,
            torn_timeout: Duration::from_secs(120),
            nominate: NominationMode::Never,
            pin_all: true,
            group_status: GroupStatusMode::Never,
            on_timeout: OnTimeout::Delete,
            on_stale: OnStale::Keep,
            stale_grace: Duration::from_secs(30),
            hold_after: Duration::ZERO,
            reserve_for: Duration::from_secs(60),
            ..EngineSettings::default()
        };
        assert_eq!(settings, expected);
    }
}
