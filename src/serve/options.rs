//! What can be said on the command line of `portcullis serve`.

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
    /// Run the webhook alone, with no cluster, to try it out
    #[arg(long)]
    pub standalone: bool,

    /// Where to listen for reviews (TLS); port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8443")]
    pub bind: SocketAddr,

    /// Where to listen for probes and metrics (plain HTTP)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub admin_bind: SocketAddr,

    /// A certificate chain (PEM, leaf first) to use instead of one of our own; read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// The private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Standalone: where to write the certificates made for this run [default: certs/local, or a temporary directory where there is no certs/]
    #[arg(long, value_name = "DIRECTORY")]
    pub certs_dir: Option<PathBuf>,

    /// One more DNS name for the certificate; may be repeated
    #[arg(long, value_name = "NAME")]
    pub dns_name: Vec<String>,

    /// How long a new authority must have been in caBundle before it signs: until every API server has seen it there
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub authority_settling: Duration,

    /// How log lines look
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// How many reviews to judge at once, and beside them as many whose policies take long [default: one for each core]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_concurrent: Option<u16>,

    /// How long to go on serving after SIGTERM, not ready any more, while others learn of it
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub shutdown_delay: Duration,

    /// The namespace of the Lease, the Secret and the Service
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", default_value = "portcullis-system")]
    pub namespace: String,

    /// The name of this replica, for the Lease and the log
    #[arg(long, value_name = "NAME", env = "POD_NAME", default_value = "portcullis")]
    pub name: String,

    /// Schedulers that do not run here, separated by commas: new members of gangs that name one are given to default-scheduler
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub rewrite_schedulers: Vec<String>,

    /// Policy files, or directories with them; may be repeated. Read again when they change
    #[arg(long, value_name = "PATH", help_heading = "Policies")]
    pub policies: Vec<PathBuf>,

    /// A candidate set beside them: it answers nothing, what it would answer otherwise is counted and logged; one with a mistake is
    /// logged and not compared; may be repeated
    #[arg(long, value_name = "PATH", help_heading = "Policies", requires = "policies")]
    pub shadow_policies: Vec<PathBuf>,

    /// How the engine works
    #[command(flatten)]
    pub engine: EngineOptions,
}

impl ServeOptions {
    /// What admission goes by.
    pub fn admission(&self) -> admission::AdmissionSettings {
        let names = self.rewrite_schedulers.iter().filter(|name| !name.is_empty());
        admission::AdmissionSettings {
            rewritten_schedulers: names.cloned().collect(),
            ..admission::AdmissionSettings::default()
        }
    }
}

/// How the engine works.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineOptions {
    /// How long a lifted gang may take to be bound before it counts as torn
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub bind_timeout: Duration,

    /// Which nodes share their cards: those with the label and taint, or any on which nothing holds a whole GPU
    #[arg(long, value_enum, default_value_t)]
    pub sharing: Sharing,

    /// What becomes of a torn gang, where its group has no portcullis.dev/on-torn: it is left as it is, or its members are deleted
    /// so that it can be tried again
    #[arg(long, value_enum, default_value_t)]
    pub on_torn: Torn,

    /// What becomes of a gang that has not started within its timeout, where its group has no portcullis.dev/on-timeout
    #[arg(long, value_enum, default_value_t)]
    pub on_timeout: Timeout,

    /// What becomes of a gang that was whole and has lost members, where its group has no portcullis.dev/on-stale
    #[arg(long, value_enum, default_value_t)]
    pub on_stale: Stale,

    /// How long a gang may lack members before anything becomes of it: its controller may replace them. A group says
    /// otherwise by portcullis.dev/stale-grace, or KAI's spec.stalenessGracePeriod
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub stale_grace: Duration,

    /// After how long the room that a gang needs is held for it, which until then smaller ones may take; 0s is never
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub hold_after: Duration,

    /// How long room is held for members that are made only after others have started, while none of them comes
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub reserve_for: Duration,

    /// When members are nominated to their node first, so that the scheduler keeps the room
    #[arg(long, value_enum, default_value_t)]
    pub nominate: Nomination,

    /// Whether the status of group objects is filled in, where nobody of their own stack does it
    #[arg(long, value_enum, default_value_t)]
    pub group_status: GroupStatus,

    /// Tie every member to its planned node, also those that are nominated to it and have no share of a card. A group says
    /// otherwise by portcullis.dev/pin
    #[arg(long)]
    pub pin_all: bool,
}

/// `--sharing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sharing {
    /// Nodes with label and taint portcullis.dev/gpu-sharing=vram
    #[default]
    Label,
    /// Every node on which nothing holds nvidia.com/gpu: for a workstation or a tutorial cluster
    Any,
}

/// `--on-torn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Torn {
    /// Leave it as it is
    #[default]
    Hold,
    /// Delete its members
    Evict,
}

/// `--on-timeout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Timeout {
    /// It goes on waiting, behind the others of its priority
    #[default]
    Requeue,
    /// Delete its pods, which are all still gated
    Delete,
}

/// `--on-stale`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Stale {
    /// Delete what is left of it, so that it can start again as a whole
    #[default]
    Evict,
    /// Leave what is left of it alone
    Keep,
}

/// `--nominate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Nomination {
    /// Every member
    Always,
    /// Only while pods of others wait for the scheduler
    #[default]
    Contended,
    /// No member
    Never,
}

/// `--group-status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GroupStatus {
    /// Unless somebody else writes that status, or the pods name a scheduler that places gangs itself
    #[default]
    Auto,
    /// Leave it alone
    Never,
}

impl EngineOptions {
    /// What the engine goes by.
    pub fn settings(&self) -> EngineSettings {
        EngineSettings {
            bind_timeout: self.bind_timeout,
            sharing: match self.sharing {
                Sharing::Label => SharingMode::Labelled,
                Sharing::Any => SharingMode::Any,
            },
            on_torn: match self.on_torn {
                Torn::Hold => OnTorn::Hold,
                Torn::Evict => OnTorn::Evict,
            },
            on_timeout: match self.on_timeout {
                Timeout::Requeue => OnTimeout::Requeue,
                Timeout::Delete => OnTimeout::Delete,
            },
            on_stale: match self.on_stale {
                Stale::Evict => OnStale::Evict,
                Stale::Keep => OnStale::Keep,
            },
            stale_grace: self.stale_grace,
            hold_after: self.hold_after,
            reserve_for: self.reserve_for,
            nominate: match self.nominate {
                Nomination::Always => NominationMode::Always,
                Nomination::Contended => NominationMode::Contended,
                Nomination::Never => NominationMode::Never,
            },
            pin_all: self.pin_all,
            group_status: match self.group_status {
                GroupStatus::Auto => GroupStatusMode::Auto,
                GroupStatus::Never => GroupStatusMode::Never,
            },
            ..EngineSettings::default()
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    portcullis_text::duration::parse(text)
        .ok_or_else(|| format!("{text:?} is not a duration: write 10s, 500ms or 1m30s"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        engine: EngineOptions,
    }

    #[test]
    fn what_is_not_said_is_as_the_engine_has_it() {
        assert_eq!(Line::parse_from(["serve"]).engine.settings(), EngineSettings::default());
        let line = "serve --bind-timeout 5s --sharing any --on-torn evict --nominate never --pin-all --group-status never --on-timeout delete --on-stale keep --stale-grace 30s --hold-after 0s --reserve-for 1m";
        let said = Line::parse_from(line.split(' ')).engine.settings();
        let expected = EngineSettings {
            bind_timeout: Duration::from_secs(5),
            sharing: SharingMode::Any,
            on_torn: OnTorn::Evict,
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
        assert_eq!(said, expected);
    }
}
