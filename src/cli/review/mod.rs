//! `portcullis review`: what the webhook would answer for the manifests of a file, without a cluster.
//!
//! Asks `core::admission` by the same bytes the API server would send. Never judges by itself, except for what the API
//! server refuses before any webhook sees it (a number where text must stand).

mod changes;
mod items;
mod output;
mod pod_review;
mod policies;

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::exit_status::ExitStatus;
use super::manifest::{self, Document};
use super::styles;
use policies::{PolicyReply, PolicyReviewer};

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
pub(super) struct ReviewArgs {
    /// YAML or JSON files; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What to print: table (for people), json (for programs), yaml (the patched pods), patch (JSON patches)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_possible_values = true)]
    output: ReviewFormat,
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
enum ReviewFormat {
    Table,
    Json,
    Yaml,
    Patch,
}

/// A file and its text, for messages that point into it.
#[derive(Debug)]
struct ManifestFile {
    name: String,
    text: String,
}

impl ManifestFile {
    /// The text of a line, counted from 1.
    fn line(&self, number: u64) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.text.lines().nth(index)
    }
}

/// One thing that stands in a file, and what came of it.
#[derive(Debug)]
struct ItemReview {
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
    result: ReviewResult,
}

#[derive(Debug)]
enum ReviewResult {
    /// The pod is let in, with or without a patch.
    Allowed(AllowedPod),
    /// The pod is turned away.
    Rejected(Vec<ReviewCause>),
    /// A group object that can be read.
    Group(items::GroupSummary),
    /// Nothing the webhook looks at.
    NotReviewed(String),
    /// Something is wrong with the file or the object itself.
    Unreadable(Vec<ReviewCause>),
}

#[derive(Debug)]
struct AllowedPod {
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
struct ReviewCause {
    /// Field path within the object of the file; empty where there is none.
    field: String,
    /// What is wrong and how to mend it.
    message: String,
    /// Line of the field in the file.
    line: Option<u64>,
    /// Whose rule it is, where it is one of a policy file.
    rule: Option<PolicyRule>,
}

/// A rule of a policy file.
#[derive(Debug)]
struct PolicyRule {
    /// Name of the policy.
    policy: String,
    /// `FILE:LINE`.
    place: Option<String>,
}

pub(super) fn run(args: &ReviewArgs) -> Result<ExitStatus> {
    let rules = match PolicyReviewer::load(&args.policies, &args.cluster)? {
        Some(rules) => rules,
        None => return Ok(ExitStatus::Failure),
    };
    let mut sources = Vec::new();
    let mut reviewed = Vec::new();
    for path in &args.files {
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
                    reviewed.extend(review(document, index, &args.namespace, &rules));
                }
            }
        }
        sources.push(source);
    }
    match args.output {
        ReviewFormat::Table => output::table(&sources, &reviewed)?,
        ReviewFormat::Json => output::json(&sources, &reviewed)?,
        ReviewFormat::Yaml => output::objects(&sources, &reviewed)?,
        ReviewFormat::Patch => output::patches(&sources, &reviewed)?,
    }
    Ok(reviewed
        .iter()
        .map(|one| match one.result {
            ReviewResult::Unreadable(_) => ExitStatus::Failure,
            ReviewResult::Rejected(_) => ExitStatus::Negative,
            _ => ExitStatus::Success,
        })
        .max()
        .unwrap_or(ExitStatus::Success))
}

/// A file of which nothing can be reviewed, and why.
fn unreadable(source: usize, name: &str, line: Option<u64>, message: String) -> ItemReview {
    ItemReview {
        source,
        line,
        kind: String::new(),
        namespace: String::new(),
        name: name.to_owned(),
        template: None,
        warnings: Vec::new(),
        result: ReviewResult::Unreadable(vec![ReviewCause {
            field: String::new(),
            message,
            line,
            rule: None,
        }]),
    }
}

fn load(path: &PathBuf) -> Result<ManifestFile> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input: it must be YAML or JSON in UTF-8")?;
        return Ok(ManifestFile { name: "<stdin>".to_owned(), text });
    }
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| {
        let hint = if path.is_dir() { "; name its files, for example with a *.yaml" } else { "" };
        format!("cannot read {name}{hint}")
    })?;
    Ok(ManifestFile { name, text })
}

/// Everything of one document, asked about.
fn review(document: &Document, source: usize, namespace: &str, rules: &PolicyReviewer) -> Vec<ItemReview> {
    let found = items::objects(document, namespace);
    // What makes pods, and what is no pod at all, is judged by policies as it is.
    let mut said = policies::others(document, &found, rules);
    let mut refused: Vec<(String, ItemReview)> = Vec::new();
    let mut reviewed = Vec::new();
    for found in found {
        let mut warnings = Vec::new();
        if let Some(PolicyReply { causes, warnings: told }) = said.remove(&found.pointer) {
            if causes.is_empty() {
                warnings = told;
            } else {
                let one = ItemReview {
                    source,
                    line: document.line(&found.pointer),
                    kind: found.kind.clone(),
                    namespace: found.namespace.clone(),
                    name: found.name.clone(),
                    template: None,
                    warnings: told,
                    result: ReviewResult::Rejected(causes),
                };
                refused.push((found.pointer.clone(), one));
            }
        }
        if found.template.is_none() && refused.iter().any(|(pointer, _)| *pointer == found.pointer) {
            continue;
        }
        let result = match &found.what {
            items::ItemContent::Pod(pod) => {
                pod_review::review_pod(document, &found, pod, rules, &mut warnings)
            }
            items::ItemContent::Group(Ok(facts)) => ReviewResult::Group(facts.clone()),
            items::ItemContent::Group(Err(problem)) | items::ItemContent::Unreadable(problem) => {
                ReviewResult::Unreadable(vec![ReviewCause {
                    field: String::new(),
                    message: problem.clone(),
                    line: document.line(&place_of(document, &found, problem)),
                    rule: None,
                }])
            }
            items::ItemContent::Other(why) => ReviewResult::NotReviewed(why.clone()),
        };
        reviewed.push(ItemReview {
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
fn place_of(document: &Document, found: &items::ReviewItem, problem: &str) -> String {
    let object = document.value.pointer(&found.pointer).unwrap_or(&Value::Null);
    let field = problem.split([' ', ':']).next().unwrap_or_default();
    format!("{}{}", found.pointer, manifest::pointer_of(object, field))
}

/// `file:line`, or as much of it as is known.
fn place(source: &ManifestFile, line: Option<u64>) -> String {
    match line {
        Some(line) => format!("{}:{line}", source.name),
        None => source.name.clone(),
    }
}

/// A heading that names an object: `Pod model-1`, `Deployment app (spec.template)`.
fn title(one: &ItemReview) -> String {
    let name = styles::styled(styles::HEAD, format!("{} {}", one.kind, one.name));
    match &one.template {
        Some(template) => format!("{name}, pods of {template}"),
        None => name,
    }
}
