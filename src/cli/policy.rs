//! `portcullis policy`: the variables of policy expressions, the fields of a `GangPolicy`, and the policies
//! that it expands to.

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
  portcullis policy explain research.yaml        the policies it expands to: a start for a rule that it has no field for
  portcullis policy schema > gangpolicy.json     for completion and checks in an editor

Exit codes:
  0  success
  2  a file cannot be read, or its GangPolicy is invalid
  3  bad arguments";

/// Show the variables of expressions, the fields of a GangPolicy, and the policies that it expands to
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    what: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Print all variables that Portcullis adds to those of Kubernetes: type and meaning, as Markdown
    Variables,
    /// Print every field of a GangPolicy with its default
    Defaults,
    /// Print the admission policies that each GangPolicy of a file expands to, as YAML
    Explain {
        /// Files with GangPolicies
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print the JSON Schema of a GangPolicy, for editors
    Schema,
}

pub(super) fn run(args: &PolicyArgs) -> Result<ExitStatus> {
    let mut out = anstream::stdout().lock();
    match &args.what {
        PolicyCommand::Variables => write!(out, "{}", variables::documentation())?,
        PolicyCommand::Schema => {
            writeln!(out, "{}", serde_json::to_string_pretty(&gang_policy::editor_schema())?)?;
        }
        PolicyCommand::Defaults => writeln!(out, "{}", defaults())?,
        PolicyCommand::Explain { files } => return explain_files(files),
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

fn explain_files(paths: &[PathBuf]) -> Result<ExitStatus> {
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
