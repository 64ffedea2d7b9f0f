//! `portcullis serve`: runs [`crate::serve`].

use anyhow::{Context, Result};
use clap::Args;

use super::exit_status::ExitStatus;
use crate::serve::{self, ServeOptions};

const EXAMPLES: &str = "\
In a cluster, the manifests start it (kubectl apply -k manifests/): every replica answers reviews, and the leader plans
gangs. It finds the cluster by KUBECONFIG or the service account of its pod.

Examples:
  portcullis serve --standalone                       prints the address, the CA file and a curl command
  portcullis serve --standalone --bind 127.0.0.1:0    on any free port
  curl -s http://127.0.0.1:8080/metrics               the metrics

It stops on Ctrl-C or SIGTERM, after it has answered open requests. Exit codes: 0 stopped, 2 failed to start.";

/// Run the webhook and the engine in a cluster, or the webhook alone to try it out
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    serve: ServeOptions,
}

pub(super) fn run(args: ServeArgs) -> Result<ExitStatus> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the worker threads")?;
    runtime.block_on(serve::run(args.serve))?;
    Ok(ExitStatus::Success)
}
