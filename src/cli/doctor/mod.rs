//! `portcullis doctor`: looks at a cluster and says what is wrong and how to mend it.
//!
//! ```text
//! gather.rs   everything that is looked at, by requests that change nothing
//! access.rs   what the service account must be allowed to do
//! judge.rs    what it means: a list of checks, from values alone
//! registered.rs  the checks of what was installed
//! policies.rs the checks of the component policies
//! nodes.rs, waiting.rs  the checks of nodes and pods
//! show.rs     for people, and for programs
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
  portcullis doctor                      the cluster of KUBECONFIG, or of ~/.kube/config
  portcullis doctor --try-in team-a      create the trial pod (a dry run) in another namespace
  portcullis doctor --json               for programs

Nothing is changed: the pod that is created to see whether the webhook answers is a dry run.
Exit codes: 0 nothing is broken (there may be warnings), 1 something is, 2 it could not look.";

/// Look at a cluster and say what is wrong with Portcullis in it, and how to mend it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorArgs {
    /// The namespace that Portcullis is installed in
    #[arg(long, value_name = "NAME", default_value = "portcullis-system")]
    namespace: String,

    /// The namespace in which a pod of a gang is created as a dry run
    #[arg(long, value_name = "NAME", default_value = "default")]
    try_in: String,

    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DoctorArgs) -> Result<ExitStatus> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a thread to look from")?;
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
