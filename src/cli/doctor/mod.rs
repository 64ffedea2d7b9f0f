//! `portcullis doctor`: checks an installation in a cluster, and shows what is wrong and how to fix it.
//!
//! ```text
//! cluster_state.rs  reads the state of the cluster, by requests that change nothing
//! permissions.rs    the permissions that the service account needs
//! checks.rs         runs all checks over a state: a pure function
//! installation.rs   checks of the installed objects
//! policies.rs       checks of the component policies
//! nodes.rs          checks of GPU nodes
//! gated_pods.rs     checks of waiting pods
//! output.rs         text and JSON output
//! ```

mod checks;
mod cluster_state;
mod gated_pods;
mod installation;
mod nodes;
mod output;
mod permissions;
mod policies;

#[cfg(test)]
mod tests;

use std::time::SystemTime;

use anyhow::{Context, Result};
use clap::Args;

use super::exit_status::ExitStatus;
use crate::cluster::Client;
use checks::CheckLevel;

const EXAMPLES: &str = "\
Examples:
  portcullis doctor                      check the cluster of KUBECONFIG or ~/.kube/config
  portcullis doctor --try-in team-a      create the trial pod (as a dry run) in another namespace
  portcullis doctor --json               for programs

The command changes nothing: it creates the trial pod as a dry run.
Exit codes: 0 no failures (maybe warnings), 1 at least one failure, 2 the cluster cannot be reached.";

/// Check an installation of Portcullis, and show what is wrong and how to fix it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorArgs {
    /// Namespace of the Portcullis installation
    #[arg(long, value_name = "NAME", default_value = "portcullis-system")]
    namespace: String,

    /// Namespace in which to create the trial pod (a dry run)
    #[arg(long, value_name = "NAME", default_value = "default")]
    try_in: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DoctorArgs) -> Result<ExitStatus> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the worker thread")?;
    let gathered = runtime.block_on(async {
        let client = Client::infer().await?;
        cluster_state::read_cluster(&client, &args.namespace, &args.try_in).await
    })?;
    let checks = checks::run_checks(&gathered, SystemTime::now());
    let mut out = anstream::stdout().lock();
    if args.json { output::json(&mut out, &checks) } else { output::text(&mut out, &checks) }?;
    Ok(if checks.iter().any(|check| check.verdict == CheckLevel::Fail) {
        ExitStatus::Negative
    } else {
        ExitStatus::Success
    })
}
