//! `portcullis review`: what the webhook would answer for the manifests of a file, without a cluster.
//!
//! Asks `core::admission` by the same bytes the API server would send. Never judges by itself, except for what the API
//! server refuses before any webhook sees it (a number where text must stand).

mod ask;
mod changes;
mod find;
mod policies;
mod show;

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::manifest::{self, Document};
use super::{Outcome, paint};
use policies::{Judge, Said};

const LONG: &str = "\
Say what the webhook would answer for these manifests, without a cluster.

Reads pods, AdmissionReviews, Lists, group objects (PodGroup), and every workload that has a pod template in it: \
Deployment, StatefulSet, DaemonSet, Job, CronJob, LeaderWorkerSet, JobSet, MPIJob, PyTorchJob and others, whose pods \
are reviewed as their controller would create them.";

const EXAMPLES: &str = "\
Examples:
  portcullis review app.yaml                  what would happen at `kubectl apply`, in words
  portcullis review *.yaml -o json            for programs: one object for each pod
  portcullis review app.yaml -o patch         the JSON patches the API server would be sent
  portcullis review app.yaml -o yaml          the pods as they would be stored
  kubectl get deploy app -o yaml | portcullis review -
  portcullis review app.yaml --policies policies/   with the rules of the platform team

Exit codes:
  0  everything would be let in
  1  something would be rejected
  2  something could not be read; the place is named";

/// Say what the webhook would answer for these manifests, without a cluster
#[derive(Debug, Args)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub(super) struct Options {
    /// YAML or JSON files; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What to print: table (for people), json (for programs), yaml (the patched pods), patch (JSON patches)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_possible_values = true)]
    output: Format,
    /// Namespace of objects that name none
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Policies to judge by as well: files or directories; may be repeated
    #[arg(long, value_name = "PATH")]
    policies: Vec<PathBuf>,
    /// With --policies: what is known of the cluster (Namespaces, classes, groups, as kubectl prints them); may be repeated
    #[arg(long, value_name = "FILE", requires = "policies")]
    cluster: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Yaml,
    Patch,
}

/// A file and its text, for messages that point into it.
#[derive(Debug)]
struct Source {
    name: String,
    text: String,
}

impl Source {
    /// The text of a line, counted from 1.
    fn line(&self, number: u64) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.text.lines().nth(index)
    }
}

/// One thing that stands in a file, and what came of it.
#[derive(Debug)]
struct Reviewed {
    /// Index of the file.
    source: usize,
    /// Line where the object (or the pod template) begins.
    line: Option<u64>,
    /// Kind of the object in the file.
    kind: String,
    /// Namespace it is reviewed in.
    namespace: String,
    /// Its name, or `generateName` with a `*`.
    name: String,
    /// Field path of the pod template, for a workload.
    template: Option<String>,
    /// What kubectl would print as `Warning:`, whatever came of it.
    warnings: Vec<String>,
    /// What came of it.
    result: Verdict,
}

#[derive(Debug)]
enum Verdict {
    /// The pod is let in, with or without a patch.
    Allowed(Allowed),
    /// The pod is turned away.
    Rejected(Vec<Cause>),
    /// A group object that can be read.
    Group(find::GroupFacts),
    /// Nothing the webhook looks at.
    NotReviewed(String),
    /// Something is wrong with the file or the object itself.
    Unreadable(Vec<Cause>),
}

#[derive(Debug)]
struct Allowed {
    /// Whether the webhook has anything to do with it.
    ours: bool,
    /// RFC 6902 operations; empty for none.
    patch: Value,
    /// The pod with the patch applied.
    patched: Value,
    /// What the patch does, in words.
    changes: Vec<String>,
    /// The gang the pod would belong to.
    gang: Option<String>,
}

/// One reason for a no.
#[derive(Debug)]
struct Cause {
    /// Field path within the object of the file; empty where there is none.
    field: String,
    /// What is wrong and how to mend it.
    message: String,
    /// Line of the field in the file.
    line: Option<u64>,
    /// Whose rule it is, where it is one of a policy file.
    rule: Option<Rule>,
}

/// A rule of a policy file.
#[derive(Debug)]
struct Rule {
    /// Name of the policy.
    policy: String,
    /// `FILE:LINE`.
    place: Option<String>,
}

pub(super) fn run(options: &Options) -> Result<Outcome> {
    let rules = match Judge::load(&options.policies, &options.cluster)? {
        Some(rules) => rules,
        None => return Ok(Outcome::Broken),
    };
    let mut sources = Vec::new();
    let mut reviewed = Vec::new();
    for path in &options.files {
        let source = load(path)?;
        let index = sources.len();
        match manifest::read(&source.text) {
            Err(problem) => {
                let message = match problem.column {
                    Some(column) => format!("column {column}: {}", problem.problem),
                    None => problem.problem,
                };
                reviewed.push(unreadable(index, &source.name, problem.line, message));
            }
            Ok(documents) if documents.is_empty() => {
                let message = "there is no object in it".to_owned();
                reviewed.push(unreadable(index, &source.name, None, message));
            }
            Ok(documents) => {
                for document in &documents {
                    reviewed.extend(review(document, index, &options.namespace, &rules));
                }
            }
        }
        sources.push(source);
    }
    match options.output {
        Format::Table => show::table(&sources, &reviewed)?,
        Format::Json => show::json(&sources, &reviewed)?,
        Format::Yaml => show::objects(&sources, &reviewed)?,
        Format::Patch => show::patches(&sources, &reviewed)?,
    }
    Ok(reviewed
        .iter()
        .map(|one| match one.result {
            Verdict::Unreadable(_) => Outcome::Broken,
            Verdict::Rejected(_) => Outcome::No,
            _ => Outcome::Good,
        })
        .max()
        .unwrap_or(Outcome::Good))
}

/// A file of which nothing can be reviewed, and why.
fn unreadable(source: usize, name: &str, line: Option<u64>, message: String) -> Reviewed {
    Reviewed {
        source,
        line,
        kind: String::new(),
        namespace: String::new(),
        name: name.to_owned(),
        template: None,
        warnings: Vec::new(),
        result: Verdict::Unreadable(vec![Cause { field: String::new(), message, line, rule: None }]),
    }
}

fn load(path: &PathBuf) -> Result<Source> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input: it must be YAML or JSON in UTF-8")?;
        return Ok(Source { name: "<stdin>".to_owned(), text });
    }
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| {
        let hint = if path.is_dir() { "; name its files, for example with a *.yaml" } else { "" };
        format!("cannot read {name}{hint}")
    })?;
    Ok(Source { name, text })
}

/// Everything of one document, asked about.
fn review(document: &Document, source: usize, namespace: &str, rules: &Judge) -> Vec<Reviewed> {
    let found = find::objects(document, namespace);
    // What makes pods, and what is no pod at all, is judged by policies as it is.
    let mut said = policies::others(document, &found, rules);
    let mut refused: Vec<(String, Reviewed)> = Vec::new();
    let mut reviewed = Vec::new();
    for found in found {
        let mut warnings = Vec::new();
        if let Some(Said { causes, warnings: told }) = said.remove(&found.pointer) {
            if causes.is_empty() {
                warnings = told;
            } else {
                let one = Reviewed {
                    source,
                    line: document.line(&found.pointer),
                    kind: found.kind.clone(),
                    namespace: found.namespace.clone(),
                    name: found.name.clone(),
                    template: None,
                    warnings: told,
                    result: Verdict::Rejected(causes),
                };
                refused.push((found.pointer.clone(), one));
            }
        }
        if found.template.is_none() && refused.iter().any(|(pointer, _)| *pointer == found.pointer) {
            continue;
        }
        let result = match &found.what {
            find::What::Pod(pod) => ask::about(document, &found, pod, rules, &mut warnings),
            find::What::Group(Ok(facts)) => Verdict::Group(facts.clone()),
            find::What::Group(Err(problem)) | find::What::Unreadable(problem) => {
                Verdict::Unreadable(vec![Cause {
                    field: String::new(),
                    message: problem.clone(),
                    line: document.line(&place_of(document, &found, problem)),
                    rule: None,
                }])
            }
            find::What::Other(why) => Verdict::NotReviewed(why.clone()),
        };
        reviewed.push(Reviewed {
            source,
            line: document.line(&found.place()),
            kind: found.kind,
            namespace: found.namespace,
            name: found.name,
            template: found.template,
            warnings,
            result,
        });
    }
    refused.into_iter().map(|(_, one)| one).chain(reviewed).collect()
}

/// Where a problem that begins with a field path (`spec.minMember is ...`) stands; else where the object begins.
fn place_of(document: &Document, found: &find::Found, problem: &str) -> String {
    let object = document.value.pointer(&found.pointer).unwrap_or(&Value::Null);
    let field = problem.split([' ', ':']).next().unwrap_or_default();
    format!("{}{}", found.pointer, manifest::pointer_of(object, field))
}

/// `file:line`, or as much of it as is known.
fn place(source: &Source, line: Option<u64>) -> String {
    match line {
        Some(line) => format!("{}:{line}", source.name),
        None => source.name.clone(),
    }
}

/// A heading that names an object: `Pod model-1`, `Deployment app (spec.template)`.
fn title(one: &Reviewed) -> String {
    let name = paint::styled(paint::HEAD, format!("{} {}", one.kind, one.name));
    match &one.template {
        Some(template) => format!("{name}, pods of {template}"),
        None => name,
    }
}
