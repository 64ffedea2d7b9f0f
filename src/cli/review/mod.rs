//! `portcullis review`: shows what the webhook would answer for manifests, without a cluster.
//!
//! It sends the bytes of the API server to `core::admission` and prints the answers. It decides only one
//! thing by itself: objects that the API server rejects before any webhook (a number instead of a string).

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
Show what the webhook would answer for these manifests, without a cluster.

The command reads pods, AdmissionReviews, Lists, pod groups, and every workload with a pod template: Deployment, \
StatefulSet, DaemonSet, Job, CronJob, LeaderWorkerSet, JobSet, MPIJob, PyTorchJob and others. It reviews the pods of a \
workload as its controller would create them.";

const EXAMPLES: &str = "\
Examples:
  portcullis review app.yaml                  the result of `kubectl apply`, as text
  portcullis review *.yaml -o json            for programs: one object per pod
  portcullis review app.yaml -o patch         the JSON patches of the webhook
  portcullis review app.yaml -o yaml          the pods as the API server would store them
  kubectl get deploy app -o yaml | portcullis review -
  portcullis review app.yaml --policies policies/   with policy files

Exit codes:
  0  all objects would be allowed
  1  at least one object would be denied
  2  at least one object cannot be read";

/// Show what the webhook would answer for these manifests, without a cluster
#[derive(Debug, Args)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub(super) struct ReviewArgs {
    /// YAML or JSON files; - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output format: table, json, yaml (the patched pods), patch (JSON patches)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_possible_values = true)]
    output: ReviewFormat,
    /// Namespace of objects without one
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Policies to evaluate as well: files or directories; may be repeated
    #[arg(long, value_name = "PATH")]
    policies: Vec<PathBuf>,
    /// With --policies: objects of the cluster (Namespaces, classes, groups) as printed by kubectl; may be
    /// repeated
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

/// A manifest file with its text, for messages that quote a line.
#[derive(Debug)]
struct ManifestFile {
    name: String,
    text: String,
}

impl ManifestFile {
    /// Returns the text of a line, counted from 1.
    fn line(&self, number: u64) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.text.lines().nth(index)
    }
}

/// An object of a file with the result of its review.
#[derive(Debug)]
struct ItemReview {
    /// Index of the file.
    source: usize,
    /// First line of the object or the pod template.
    line: Option<u64>,
    /// Kind of the object in the file.
    kind: String,
    /// Namespace it is reviewed in.
    namespace: String,
    /// Name, or `generateName` with a `*`.
    name: String,
    /// Field path of the pod template, for a workload.
    template: Option<String>,
    /// Warnings as kubectl prints them, for allowed and denied objects.
    warnings: Vec<String>,
    /// The result.
    result: ReviewResult,
}

#[derive(Debug)]
enum ReviewResult {
    /// The pod is allowed, with or without a patch.
    Allowed(AllowedPod),
    /// The object is denied.
    Rejected(Vec<ReviewCause>),
    /// A valid group object.
    Group(items::GroupSummary),
    /// The webhook does not review this object.
    NotReviewed(String),
    /// The file or the object is invalid.
    Unreadable(Vec<ReviewCause>),
}

#[derive(Debug)]
struct AllowedPod {
    /// Whether the pod concerns Portcullis: it belongs to a gang, shares a GPU, or a policy changed it.
    ours: bool,
    /// RFC 6902 operations; empty for none.
    patch: Value,
    /// The pod with the patch applied.
    patched: Value,
    /// Descriptions of the patch.
    changes: Vec<String>,
    /// The gang the pod would belong to.
    gang: Option<String>,
}

/// One cause of a denial.
#[derive(Debug)]
struct ReviewCause {
    /// Field path within the object; may be empty.
    field: String,
    /// The problem and its fix.
    message: String,
    /// Line of the field in the file.
    line: Option<u64>,
    /// The rule of a policy file, if one denied the object.
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

/// The result of a file that cannot be reviewed at all.
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

/// Reviews all objects of one document.
fn review(document: &Document, source: usize, namespace: &str, rules: &PolicyReviewer) -> Vec<ItemReview> {
    let found = items::objects(document, namespace);
    // Policies review workloads and other objects as they are in the file.
    let mut replies = policies::review_other_objects(document, &found, rules);
    let mut refused: Vec<(String, ItemReview)> = Vec::new();
    let mut reviewed = Vec::new();
    for found in found {
        let mut warnings = Vec::new();
        if let Some(PolicyReply { causes, warnings: policy_warnings }) = replies.remove(&found.pointer) {
            if causes.is_empty() {
                warnings = policy_warnings;
            } else {
                let one = ItemReview {
                    source,
                    line: document.line(&found.pointer),
                    kind: found.kind.clone(),
                    namespace: found.namespace.clone(),
                    name: found.name.clone(),
                    template: None,
                    warnings: policy_warnings,
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

/// Returns the pointer of the field that the problem starts with (`spec.minMember is ...`), or of the object.
fn place_of(document: &Document, found: &items::ReviewItem, problem: &str) -> String {
    let object = document.value.pointer(&found.pointer).unwrap_or(&Value::Null);
    let field = problem.split([' ', ':']).next().unwrap_or_default();
    format!("{}{}", found.pointer, manifest::pointer_of(object, field))
}

/// Returns `file:line`, or the file without a line.
fn place(source: &ManifestFile, line: Option<u64>) -> String {
    match line {
        Some(line) => format!("{}:{line}", source.name),
        None => source.name.clone(),
    }
}

/// Returns the heading of an object: `Pod model-1`, `Deployment app, pods of spec.template`.
fn title(one: &ItemReview) -> String {
    let name = styles::styled(styles::HEAD, format!("{} {}", one.kind, one.name));
    match &one.template {
        Some(template) => format!("{name}, pods of {template}"),
        None => name,
    }
}
