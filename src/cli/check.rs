//! `portcullis check`: what is wrong with policy files, before they are used. Shows what `portcullis_policy::load` finds, never judges itself.

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
Read policy files and say everything that is wrong with them, with its place.

Reads ValidatingAdmissionPolicy, MutatingAdmissionPolicy, their bindings, GangPolicy, PolicyException, and any object that a binding hands \
to its policy (a ConfigMap, for example). Directories are read with all below them: .yaml, .yml and .json, but not the cases in *.test.yaml. \
All paths together are one set, as `portcullis serve --policies` reads them.";

const EXAMPLES: &str = "\
Examples:
  portcullis check policies/                       before a commit
  portcullis check --strict policies/              warnings are a no, too
  portcullis check -o github policies/             in a GitHub workflow: shown beside the lines
  portcullis check -o sarif policies/ > out.sarif  for code scanning
  kubectl get validatingadmissionpolicies -o yaml | portcullis check -

Exit codes:
  0  the set can be used
  1  it can be used, there are warnings, and --strict was given
  2  it cannot be used, or something could not be read; the place is named
  3  bad arguments";

/// Say what is wrong with policy files
#[derive(Debug, Args)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub(super) struct CheckArgs {
    /// Files and directories; - is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// What to print: text (for people), json, sarif (for code scanning), github (annotations of a workflow)
    #[arg(short, long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    output: CheckFormat,
    /// Warnings are a no, too
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

/// The files of all paths; `-` is what comes on standard input.
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

/// `5 policies with 12 rules, 5 bindings in 3 files: 2 errors, 1 warning`
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
        (0, 0) => styles::styled(styles::GOOD, "nothing is wrong"),
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
