//! `portcullis test`: runs the test cases of policies. `portcullis_policy::cases` runs and compares each
//! case; this module finds the files and prints the results.

mod junit;
mod output;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};
use portcullis_policy::cases::{CaseReport, TestCase};
use portcullis_policy::{
    PolicySet, Problem, Severity, SourceFile, load, read_manifest, read_test_suites, render_problems,
};
use regex::Regex;

use super::exit_status::ExitStatus;
use super::styles;
use crate::clock::seconds_now;
use crate::policy_files::{self, POLICY_FILE_EXTENSIONS};

const LONG: &str = "\
Run the test cases of policies, without a cluster.

A case has an object (or a manifest with several), optional cluster facts, and the expected result: allowed, denied with a \
message, or changed. Cases are in files that end in .test.yaml, beside the policies. limits.test.yaml tests the files in its \
field `policies`, or limits.yaml, or else all files of its directory.

  apiVersion: portcullis.dev/v1alpha1
  kind: PolicyTest
  metadata: {name: no-latest}
  cases:
  - name: an image without a tag is refused
    object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: train}]}}
    expect: {verdict: denied, message: \"has no tag\"}";

const EXAMPLES: &str = "\
Examples:
  portcullis test policies/                            all cases below a directory
  portcullis test policies/ --run 'latest|no tag'      cases whose `file/case` matches
  portcullis test policies/limits.test.yaml -o json    for programs
  portcullis test policies/ -o junit > junit.xml       for a build server

Exit codes:
  0  all cases passed
  1  at least one case failed
  2  a policy or a case is invalid
  3  bad arguments, or nothing to test";

/// Run the test cases of policy files
#[derive(Debug, Args)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub(super) struct TestArgs {
    /// Test files, or directories to search recursively
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Run only cases whose `FILE/NAME` matches this regular expression
    #[arg(long, value_name = "REGEX")]
    run: Option<String>,
    /// Output format: table, json, junit (build servers)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_possible_values = true)]
    output: TestFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TestFormat {
    Table,
    Json,
    Junit,
}

/// The result of a case.
struct CaseResult {
    /// The file of the case.
    file: String,
    /// Its line there.
    line: usize,
    /// Its name.
    name: String,
    /// The report, or why the case could not run.
    result: Result<CaseReport, String>,
    took: Duration,
}

impl CaseResult {
    fn holds(&self) -> bool {
        self.result.as_ref().is_ok_and(|report| report.mismatches.is_empty())
    }
}

/// Policy sets by their files. Several test files may test the same policies.
#[derive(Default)]
struct PolicySetCache {
    known: BTreeMap<Vec<PathBuf>, Option<PolicySet>>,
    /// Whether a policy or a case is invalid.
    has_errors: bool,
}

pub(super) fn run(args: &TestArgs) -> Result<ExitStatus> {
    let wanted = match args.run.as_deref().map(Regex::new).transpose() {
        Ok(wanted) => wanted,
        Err(error) => return Ok(usage(&format!("--run is not a regular expression: {error}"))),
    };
    let mut found = Vec::new();
    for path in &args.paths {
        if !path.exists() {
            return Ok(usage(&format!("{}: there is no such file or directory", path.display())));
        }
        if path.is_dir() {
            found.extend(policy_files::list_files(path)?.into_iter().filter(|path| is_cases(path)));
        } else {
            found.push(path.clone());
        }
    }
    if found.is_empty() {
        return Ok(usage("there are no cases: their files end in .test.yaml, .test.yml or .test.json"));
    }
    found.dedup();
    let mut sets = PolicySetCache::default();
    let mut ran = Vec::new();
    for path in &found {
        run_file(path, wanted.as_ref(), &mut sets, &mut ran)?;
    }
    if ran.is_empty() && !sets.has_errors {
        return Ok(usage("no case matches --run"));
    }
    match args.output {
        TestFormat::Table => output::table(&ran)?,
        TestFormat::Json => output::json(&ran)?,
        TestFormat::Junit => junit::print(&ran)?,
    }
    let broken = sets.has_errors || ran.iter().any(|case| case.result.is_err());
    Ok(match ran.iter().all(CaseResult::holds) {
        _ if broken => ExitStatus::Failure,
        true => ExitStatus::Success,
        false => ExitStatus::Negative,
    })
}

fn usage(message: &str) -> ExitStatus {
    styles::print_error(message);
    ExitStatus::Usage
}

/// Returns the name of a YAML or JSON file without its extension.
fn stem(path: &Path) -> Option<&str> {
    policy_files::is_policy_file(path).then(|| path.file_stem()?.to_str()).flatten()
}

fn is_cases(path: &Path) -> bool {
    stem(path).is_some_and(|stem| stem.ends_with(".test"))
}

/// Runs the cases of a file.
fn run_file(
    path: &Path,
    wanted: Option<&Regex>,
    sets: &mut PolicySetCache,
    ran: &mut Vec<CaseResult>,
) -> Result<()> {
    let source = policy_files::read_file(path)?;
    let cases = read_test_suites(&source);
    sets.report_errors(&cases.problems, std::slice::from_ref(&source));
    let directory = path.parent().unwrap_or(Path::new(""));
    for (suite, lines) in &cases.suites {
        let policies = policies(path, &suite.policies)?;
        let Some(set) = sets.of(&policies)? else { continue };
        for (case, line) in suite.cases.iter().zip(lines) {
            let full = format!("{}/{}", source.name, case.name);
            if wanted.is_some_and(|wanted| !wanted.is_match(&full)) {
                continue;
            }
            let started = Instant::now();
            let result = run_case(case, set, directory);
            let (file, name) = (source.name.clone(), case.name.clone());
            ran.push(CaseResult { file, line: *line, name, result, took: started.elapsed() });
        }
    }
    Ok(())
}

fn run_case(case: &TestCase, set: &PolicySet, directory: &Path) -> Result<CaseReport, String> {
    let mut beside = Vec::new();
    if let Some(name) = &case.file {
        let source = policy_files::read_file(&directory.join(name)).map_err(|error| error.to_string())?;
        let (objects, problems) = read_manifest(&source);
        if let Some(problem) = problems.iter().find(|problem| problem.severity == Severity::Error) {
            return Err(problem.one_line());
        }
        beside = objects;
    }
    Ok(case.run(set, &beside, seconds_now()))
}

/// Returns the policy files that a test file tests.
fn policies(path: &Path, named: &[String]) -> Result<Vec<PathBuf>> {
    let directory = path.parent().unwrap_or(Path::new(""));
    if !named.is_empty() {
        return Ok(named.iter().map(|name| directory.join(name)).collect());
    }
    let own = stem(path).unwrap_or_default();
    let own = own.strip_suffix(".test").unwrap_or(own);
    let beside = POLICY_FILE_EXTENSIONS
        .iter()
        .map(|suffix| directory.join(format!("{own}.{suffix}")))
        .find(|path| path.is_file());
    if let Some(beside) = beside {
        return Ok(vec![beside]);
    }
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let is_policy = |path: &PathBuf| path.is_file() && !is_cases(path);
    Ok(policy_files::list_entries(directory)?.into_iter().filter(is_policy).collect())
}

impl PolicySetCache {
    /// Prints errors. Warnings are for `portcullis check`.
    fn report_errors(&mut self, problems: &[Problem], files: &[SourceFile]) {
        let errors: Vec<Problem> =
            problems.iter().filter(|problem| problem.severity == Severity::Error).cloned().collect();
        if !errors.is_empty() {
            self.has_errors = true;
            anstream::eprintln!("{}", render_problems(&errors, files).trim_end());
        }
    }

    /// Returns the set of these files, or `None` if it is invalid. Errors are printed once.
    fn of(&mut self, paths: &[PathBuf]) -> Result<Option<&PolicySet>> {
        if !self.known.contains_key(paths) {
            let files =
                paths.iter().map(|path| policy_files::read_file(path)).collect::<Result<Vec<_>, _>>()?;
            let loaded = load(&files);
            self.report_errors(&loaded.problems, &files);
            self.known.insert(paths.to_vec(), loaded.set);
        }
        Ok(self.known.get(paths).and_then(Option::as_ref))
    }
}
