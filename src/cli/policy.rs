//! `portcullis policy`: what there is to know about policies: the variables of expressions, the fields of a `GangPolicy`, and what one becomes.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use comfy_table::{ContentArrangement, Table, presets};
use portcullis_policy::gang_policy::{self, GANG_POLICY_FIELDS};
use portcullis_policy::{Severity, render_problems, translate_gang_policies, variables};
use serde_json::Value;

use super::exit_status::ExitStatus;
use crate::policy_files;

const EXAMPLES: &str = "\
Examples:
  portcullis policy defaults                     every field of a GangPolicy
  portcullis policy explain research.yaml        what it is evaluated as: a start for a rule that it has no field for
  portcullis policy schema > gangpolicy.json     for an editor that completes and checks

Exit codes:
  0  printed
  2  a file could not be read, or its GangPolicy is wrong: the place is named
  3  bad arguments";

/// Variables of expressions, fields of a GangPolicy and their defaults, and what one becomes
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    what: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Every variable that expressions can use besides those of Kubernetes: type and meaning, as Markdown
    Variables,
    /// Every field of a GangPolicy, with what holds when it is left out
    Defaults,
    /// The ordinary policies that each GangPolicy of a file becomes, as YAML
    Explain {
        /// Files with GangPolicies
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// The schema of a GangPolicy for editors (JSON Schema)
    Schema,
}

pub(super) fn run(args: &PolicyArgs) -> Result<ExitStatus> {
    let mut out = anstream::stdout().lock();
    match &args.what {
        PolicyCommand::Variables => write!(out, "{}", variables::documentation())?,
        PolicyCommand::Schema => {
            writeln!(out, "{}", serde_json::to_string_pretty(&gang_policy::editor_schema())?)?
        }
        PolicyCommand::Defaults => writeln!(out, "{}", defaults())?,
        PolicyCommand::Explain { files } => return explained(files),
    }
    Ok(ExitStatus::Success)
}

fn defaults() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["FIELD OF SPEC", "DEFAULT", "WHAT IT SAYS"]);
    for setting in GANG_POLICY_FIELDS {
        table.add_row([setting.path, setting.default, setting.summary]);
    }
    table
}

fn explained(paths: &[PathBuf]) -> Result<ExitStatus> {
    let mut out = anstream::stdout().lock();
    let mut outcome = ExitStatus::Success;
    for path in paths {
        let file = policy_files::read_file(path)?;
        let (policies, problems) = translate_gang_policies(&file);
        if !problems.is_empty() {
            anstream::eprintln!("{}", render_problems(&problems, std::slice::from_ref(&file)).trim_end());
        }
        if problems.iter().any(|problem| problem.severity == Severity::Error) {
            outcome = ExitStatus::Failure;
        }
        for policy in policies {
            writeln!(out, "---\n{}", yaml(&policy)?)?;
        }
    }
    Ok(outcome)
}

fn yaml(value: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(value).context("the policy cannot be written as YAML")?;
    Ok(text.trim_end().to_owned())
}
