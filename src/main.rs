//! The binary: parse, run, map to an exit code.

use clap::{Parser, Subcommand};
use portcullis::serve::{ServeOptions, standalone};

/// The gang gate for GPU clusters.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the webhook
    Serve(ServeOptions),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Serve(options) => standalone(options).await,
    }
}
