//! `portcullis replay`: evaluates recorded requests with an old and a new policy set, and reports the
//! differences.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use portcullis_policy::{
    AdmissionOutcome, AdmissionRequest, ClusterData, DifferenceKind, compare_outcomes, display_name,
};
use serde_json::{Value, json};

use super::exit_status::ExitStatus;
use super::policy_set::{LoadedPolicies, ensure_namespace, read_cluster_data};
use super::styles::{self, styled};

const LONG: &str = "\
Evaluate recorded requests with an old and a new policy set, and report which requests get another answer.

A recording is a JSON file with one AdmissionReview, or a file with one JSON value per line: AdmissionReviews, or events of \
the API server's audit log. In a directory, all .json, .jsonl and .log files are read. To record requests, configure the \
audit policy of the API server and use the audit log:

  apiVersion: audit.k8s.io/v1
  kind: Policy
  rules:
    - level: Request
      verbs: [create, update]
      omitStages: [RequestReceived]
      resources: [{group: \"\", resources: [pods]}]";

const EXAMPLES: &str = "\
Examples:
  portcullis replay --old policies/ --new candidate/ /var/log/kubernetes/audit.log
  kubectl get namespaces -o json > namespaces.json
  portcullis replay --old policies/ --new candidate/ --cluster namespaces.json recorded/ -o json

Exit codes:
  0  no differences
  1  at least one request would be newly denied, newly allowed or changed differently
  2  a policy set or a recording cannot be read
  3  bad arguments";

/// Compare an old and a new policy set on recorded requests
#[derive(Debug, Args)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub(super) struct ReplayArgs {
    /// The active set: files or directories; may be repeated
    #[arg(long, required = true, value_name = "PATH")]
    old: Vec<PathBuf>,
    /// The candidate set: files or directories; may be repeated
    #[arg(long, required = true, value_name = "PATH")]
    new: Vec<PathBuf>,
    /// Recordings: files or directories; - for standard input
    #[arg(required = true, value_name = "RECORDED")]
    recorded: Vec<PathBuf>,
    /// Objects of the cluster (Namespaces, classes, groups) as printed by kubectl; may be repeated
    #[arg(long, value_name = "FILE")]
    cluster: Vec<PathBuf>,
    /// Output format: table or json
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: ReplayFormat,
    /// Maximum number of lines in the table; 0 for all
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    most: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ReplayFormat {
    Table,
    Json,
}

/// One difference, for one object and policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DifferenceRow {
    change: DifferenceKind,
    policy: String,
    object: String,
    detail: String,
}

/// The result of a replay.
#[derive(Debug, Default)]
struct ReplayReport {
    reviews: usize,
    /// Number of values without a request and an object, such as reads in an audit log.
    skipped: usize,
    changes: BTreeMap<DifferenceKind, usize>,
    rows: BTreeMap<DifferenceRow, usize>,
}

pub(super) fn run(args: &ReplayArgs) -> Result<ExitStatus> {
    let (Some(old), Some(new)) = (LoadedPolicies::load(&args.old)?, LoadedPolicies::load(&args.new)?) else {
        return Ok(ExitStatus::Failure);
    };
    let mut data = read_cluster_data(&args.cluster)?;
    let files = files(&args.recorded)?;
    let progress = progress(&files);
    let mut report = ReplayReport::default();
    for file in &files {
        read(file, &progress, &mut |value| match review_of(value) {
            Some(review) => report.compare(&old, &new, &review, &mut data),
            None => report.skipped += 1,
        })?;
    }
    progress.finish_and_clear();
    match args.output {
        ReplayFormat::Table => report.table(args.most)?,
        ReplayFormat::Json => report.json()?,
    }
    Ok(if report.changes.is_empty() { ExitStatus::Success } else { ExitStatus::Negative })
}

impl ReplayReport {
    fn compare(
        &mut self,
        old: &LoadedPolicies,
        new: &LoadedPolicies,
        review: &Value,
        data: &mut ClusterData,
    ) {
        let Some(request) = AdmissionRequest::from_review(review) else {
            self.skipped += 1;
            return;
        };
        self.reviews += 1;
        ensure_namespace(data, request.namespace());
        let (before, after) = (
            AdmissionOutcome::evaluate(&old.set, &request, data),
            AdmissionOutcome::evaluate(&new.set, &request, data),
        );
        let object = request.object().unwrap_or(&Value::Null);
        let found = compare_outcomes(object, &before.combined(), &after.combined());
        if let Some(first) = found.first() {
            *self.changes.entry(first.kind).or_default() += 1;
        }
        let place = match request.namespace() {
            "" => String::new(),
            namespace => format!("{namespace}/"),
        };
        for difference in found {
            let object = format!("{} {place}{}", request.kind(), display_name(&request));
            let row = DifferenceRow {
                change: difference.kind,
                policy: difference.policy,
                object,
                detail: difference.detail,
            };
            *self.rows.entry(row).or_default() += 1;
        }
    }

    fn count(&self, change: DifferenceKind) -> usize {
        self.changes.get(&change).copied().unwrap_or_default()
    }

    fn table(&self, most: usize) -> Result<()> {
        let mut out = anstream::stdout().lock();
        let most = if most == 0 { usize::MAX } else { most };
        if !self.rows.is_empty() {
            let mut table = Table::new();
            table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
            table.set_header(["WOULD BE", "BY POLICY", "OBJECT", "TIMES", "WHY"]);
            for (row, times) in self.rows.iter().take(most) {
                table.add_row([word(row.change), &row.policy, &row.object, &times.to_string(), &row.detail]);
            }
            for line in table.to_string().lines() {
                writeln!(out, "{}", line.trim_end())?;
            }
            if let Some(more @ 1..) = self.rows.len().checked_sub(most) {
                writeln!(out, "and {more} more (--most 0 shows all)")?;
            }
            writeln!(out)?;
        }
        let skipped = match self.skipped {
            0 => String::new(),
            count => format!(" ({count} values without a request and object skipped)"),
        };
        let (denied, allowed, changed) = (
            self.count(DifferenceKind::WouldDeny),
            self.count(DifferenceKind::WouldAllow),
            self.count(DifferenceKind::OtherPatch),
        );
        let style = if denied > 0 { styles::BAD } else { styles::GOOD };
        writeln!(
            out,
            "{} requests{skipped}: {}, {allowed} newly allowed, {changed} changed, {} unchanged",
            self.reviews,
            styled(style, format!("{denied} newly denied")),
            self.reviews - denied - allowed - changed
        )?;
        Ok(())
    }

    fn json(&self) -> Result<()> {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|(row, times)| {
                json!({"change": row.change.as_str(), "policy": row.policy, "object": row.object, "times": times, "why": row.detail})
            })
            .collect();
        let report = json!({
            "requests": self.reviews,
            "passedOver": self.skipped,
            "newlyDenied": self.count(DifferenceKind::WouldDeny),
            "newlyAllowed": self.count(DifferenceKind::WouldAllow),
            "changed": self.count(DifferenceKind::OtherPatch),
            "differences": rows,
        });
        writeln!(anstream::stdout().lock(), "{report:#}")?;
        Ok(())
    }
}

fn word(change: DifferenceKind) -> &'static str {
    match change {
        DifferenceKind::WouldDeny => "denied",
        DifferenceKind::WouldAllow => "allowed",
        DifferenceKind::OtherPatch => "changed",
    }
}

/// Returns the review of a recorded value: an AdmissionReview, or an audit event of a write with its object.
fn review_of(value: Value) -> Option<Value> {
    if value["kind"] == "AdmissionReview" {
        return value["request"].is_object().then_some(value);
    }
    let object = value.get("requestObject").filter(|object| object.is_object())?;
    let operation = match value["verb"].as_str()? {
        "create" => "CREATE",
        "update" => "UPDATE",
        _ => return None,
    };
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = json!({"group": group, "version": version, "kind": object["kind"]});
    let resource = json!({
        "group": text("/objectRef/apiGroup"), "version": text("/objectRef/apiVersion"), "resource": text("/objectRef/resource")
    });
    Some(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": text("/auditID"), "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "subResource": text("/objectRef/subresource"), "name": text("/objectRef/name"),
            "namespace": text("/objectRef/namespace"), "operation": operation, "userInfo": value["user"],
            "object": object, "oldObject": null, "dryRun": false,
        },
    }))
}

/// Returns the files of all paths, in order.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut below = Vec::new();
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", path.display()))?.path();
            let suffix = entry.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
            if ["json", "jsonl", "log"].contains(&suffix) {
                below.push(entry);
            }
        }
        below.sort();
        files.append(&mut below);
    }
    Ok(files)
}

/// Calls `each` with every JSON value of a file.
fn read(path: &Path, progress: &ProgressBar, each: &mut dyn FnMut(Value)) -> Result<()> {
    let name = path.display();
    let input: Box<dyn std::io::Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).with_context(|| format!("cannot read {name}"))?)
    };
    let mut input = BufReader::new(progress.wrap_read(input));
    if input.fill_buf().with_context(|| format!("cannot read {name}"))?.is_empty() {
        return Ok(());
    }
    let values = serde_json::Deserializer::from_reader(input).into_iter::<Value>();
    for (index, value) in values.enumerate() {
        let value = value.with_context(|| format!("{name}: value {} is no JSON", index + 1))?;
        each(value);
    }
    Ok(())
}

/// Returns a progress bar over all bytes, hidden if stderr is not a terminal.
fn progress(files: &[PathBuf]) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bytes = files.iter().filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum();
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}, {eta} left") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_events_of_writes_become_requests() {
        let event = |verb: &str| {
            json!({
                "kind": "Event", "apiVersion": "audit.k8s.io/v1", "auditID": "a-1", "verb": verb,
                "user": {"username": "dev"},
                "objectRef": {"resource": "pods", "namespace": "ml", "name": "x", "apiVersion": "v1"},
                "requestObject": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}},
            })
        };
        let review = review_of(event("create")).expect("a request");
        let request = AdmissionRequest::from_review(&review).expect("it has one");
        assert_eq!((request.operation(), request.namespace(), request.kind()), ("CREATE", "ml", "Pod"));
        assert_eq!(request.resource().resource, "pods");
        assert_eq!(review["request"]["userInfo"]["username"], "dev");
        assert!(
            review_of(event("get")).is_none()
                && review_of(json!({"kind": "Event", "verb": "create"})).is_none()
        );
        assert!(review_of(json!({"kind": "AdmissionReview"})).is_none());
    }
}
