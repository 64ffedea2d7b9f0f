//! `portcullis version`: the version, and the kinds of pod groups that this binary supports.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use portcullis_core::dialect;
use serde_json::json;

use super::exit_status::ExitStatus;
use super::styles;

/// Show the version and the supported kinds of pod groups
#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &VersionArgs) -> Result<ExitStatus> {
    let mut out = anstream::stdout().lock();
    let version = env!("CARGO_PKG_VERSION");
    let groups: Vec<(String, String)> = dialect::group_resources()
        .map(|(id, resource)| {
            (id.to_string(), format!("{}/{} {}", resource.group, resource.version, resource.kind))
        })
        .collect();
    if args.json {
        let groups: Vec<_> = groups.iter().map(|(id, kind)| json!({"dialect": id, "kind": kind})).collect();
        writeln!(out, "{}", json!({"version": version, "groups": groups}))?;
    } else {
        writeln!(out, "{} {version}", styles::styled(styles::HEAD, "portcullis"))?;
        for (id, kind) in groups {
            writeln!(out, "  reads groups of {id}: {kind}")?;
        }
    }
    Ok(ExitStatus::Success)
}
