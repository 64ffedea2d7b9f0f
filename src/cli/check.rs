//! `portcullis check`: validates policy files. It prints the problems that `portcullis_policy::load` finds.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use portcullis_policy::{
    LoadResult, Severity, SourceFile, load, problems_as_github_annotations, problems_as_json,
    problems_as_sarif, render_problems,
};

use super::exit_status::ExitStatus;
use super::styles;
use crate::clock::seconds_now;
use crate::policy_files;

const LONG: &str = "\
Validate policy files and print every problem with its position.

The command reads ValidatingAdmissionPolicy, MutatingAdmissionPolicy, their bindings, GangPolicy, PolicyException, and \
parameter objects of bindings (for example a ConfigMap). It reads directories recursively: .yaml, .yml and .json files, \
without the test cases in *.test.yaml. All paths form one policy set, as in `portcullis serve --policies`.";

const EXAMPLES: &str = "\
Examples:
  portcullis check policies/                       before a commit
  portcullis check --strict policies/              fail on warnings too
  portcullis check -o github policies/             in a GitHub workflow: annotations beside the lines
  portcullis check -o sarif policies/ > out.sarif  for code scanning
  kubectl get validatingadmissionpolicies -o yaml | portcullis check -

Exit codes:
  0  the set is valid
  1  the set is valid, has warnings, and --strict is set
  2  the set is invalid, or a file cannot be read
  3  bad arguments";

/// Validate policy files
#[derive(Debug, Args)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub(super) struct CheckArgs {
    /// Files and directories; - for standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Output format: text, json, sarif (code scanning), github (workflow annotations)
    #[arg(short, long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    output: CheckFormat,
    /// Exit with 1 if there are warnings
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    Text,
    Json,
    Sarif,
    Github,
}

pub(super) fn run(args: &CheckArgs) -> Result<ExitStatus> {
    let begun = Instant::now();
    let files = read(&args.paths)?;
    let loaded = load(&files).warn_expired(seconds_now());
    let took = begun.elapsed();
    let mut out = anstream::stdout().lock();
    match args.output {
        CheckFormat::Text => {
            write!(out, "{}", render_problems(&loaded.problems, &files))?;
            if !loaded.problems.is_empty() {
                writeln!(out)?;
            }
            writeln!(out, "{}, took {} ms", summary(&loaded), took.as_millis())?;
        }
        CheckFormat::Json => {
            let mut shown = problems_as_json(&loaded.problems, &loaded.counts);
            shown["hash"] = loaded.set.as_ref().map(|set| set.hash().to_owned()).into();
            writeln!(out, "{shown:#}")?;
        }
        CheckFormat::Sarif => writeln!(out, "{:#}", problems_as_sarif(&loaded.problems))?,
        CheckFormat::Github => {
            write!(out, "{}", problems_as_github_annotations(&loaded.problems))?;
            writeln!(out, "{}", summary(&loaded))?;
        }
    }
    Ok(match (&loaded.set, loaded.problems.is_empty()) {
        (None, _) => ExitStatus::Failure,
        (Some(_), false) if args.strict => ExitStatus::Negative,
        _ => ExitStatus::Success,
    })
}

/// Reads the files of all paths; `-` is standard input.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<SourceFile>> {
    let named: Vec<PathBuf> = paths.iter().filter(|path| *path != Path::new("-")).cloned().collect();
    let mut found = Vec::new();
    if !named.is_empty() {
        found = policy_files::read_files(&named)?.1;
    }
    if named.len() < paths.len() {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
        found.push(SourceFile { name: "-".to_owned(), bytes });
    }
    Ok(found)
}

/// Returns a line such as `5 policies with 12 rules, 5 bindings in 3 files: 2 errors, 1 warning`.
fn summary(loaded: &LoadResult) -> String {
    let counts = &loaded.counts;
    let mut parts = vec![format!(
        "{} with {}",
        portcullis_text::counted(counts.policies, "policy", "policies"),
        portcullis_text::counted(counts.rules, "rule", "rules")
    )];
    parts.push(portcullis_text::counted(counts.bindings, "binding", "bindings"));
    if counts.exceptions > 0 {
        parts.push(portcullis_text::counted(counts.exceptions, "exception", "exceptions"));
    }
    let number = |severity| loaded.problems.iter().filter(|problem| problem.severity == severity).count();
    let verdict = match (number(Severity::Error), number(Severity::Warning)) {
        (0, 0) => styles::styled(styles::GOOD, "no problems"),
        (0, warnings) => {
            styles::styled(styles::WARN, portcullis_text::counted(warnings, "warning", "warnings"))
        }
        (errors, 0) => styles::styled(styles::BAD, portcullis_text::counted(errors, "error", "errors")),
        (errors, warnings) => format!(
            "{}, {}",
            styles::styled(styles::BAD, portcullis_text::counted(errors, "error", "errors")),
            styles::styled(styles::WARN, portcullis_text::counted(warnings, "warning", "warnings"))
        ),
    };
    format!("{} in {}: {verdict}", parts.join(", "), portcullis_text::counted(counts.files, "file", "files"))
}
