//! `portcullis check`: what is wrong with policy files, before they are used. Shows what `portcullis_policy::load` finds, never judges itself.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use portcullis_policy::{Loaded, Severity, SourceFile, annotations, json, load, render, sarif};

use super::{Outcome, paint, several};
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
pub(super) struct Options {
    /// Files and directories; - is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// What to print: text (for people), json, sarif (for code scanning), github (annotations of a workflow)
    #[arg(short, long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    output: Format,
    /// Warnings are a no, too
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Sarif,
    Github,
}

pub(super) fn run(options: &Options) -> Result<Outcome> {
    let begun = Instant::now();
    let files = read(&options.paths)?;
    let loaded = load(&files).at(seconds_now());
    let took = begun.elapsed();
    let mut out = anstream::stdout().lock();
    match options.output {
        Format::Text => {
            write!(out, "{}", render(&loaded.problems, &files))?;
            if !loaded.problems.is_empty() {
                writeln!(out)?;
            }
            writeln!(out, "{}, took {} ms", summary(&loaded), took.as_millis())?;
        }
        Format::Json => {
            let mut shown = json(&loaded.problems, &loaded.counts);
            shown["hash"] = loaded.set.as_ref().map(|set| set.hash().to_owned()).into();
            writeln!(out, "{shown:#}")?;
        }
        Format::Sarif => writeln!(out, "{:#}", sarif(&loaded.problems))?,
        Format::Github => {
            write!(out, "{}", annotations(&loaded.problems))?;
            writeln!(out, "{}", summary(&loaded))?;
        }
    }
    Ok(match (&loaded.set, loaded.problems.is_empty()) {
        (None, _) => Outcome::Broken,
        (Some(_), false) if options.strict => Outcome::No,
        _ => Outcome::Good,
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
fn summary(loaded: &Loaded) -> String {
    let counts = &loaded.counts;
    let mut parts = vec![format!(
        "{} with {}",
        several(counts.policies, "policy", "policies"),
        several(counts.rules, "rule", "rules")
    )];
    parts.push(several(counts.bindings, "binding", "bindings"));
    if counts.exceptions > 0 {
        parts.push(several(counts.exceptions, "exception", "exceptions"));
    }
    let number = |severity| loaded.problems.iter().filter(|problem| problem.severity == severity).count();
    let verdict = match (number(Severity::Error), number(Severity::Warning)) {
        (0, 0) => paint::styled(paint::GOOD, "nothing is wrong"),
        (0, warnings) => paint::styled(paint::WARN, several(warnings, "warning", "warnings")),
        (errors, 0) => paint::styled(paint::BAD, several(errors, "error", "errors")),
        (errors, warnings) => format!(
            "{}, {}",
            paint::styled(paint::BAD, several(errors, "error", "errors")),
            paint::styled(paint::WARN, several(warnings, "warning", "warnings"))
        ),
    };
    format!("{} in {}: {verdict}", parts.join(", "), several(counts.files, "file", "files"))
}
