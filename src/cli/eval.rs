//! `portcullis eval`: evaluates a CEL expression over an object, by `portcullis_policy::trial`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use portcullis_policy::{AdmissionRequest, ClusterData, expression, render_problems};
use serde_json::Value as Json;

use super::exit_status::ExitStatus;
use super::{manifest, styles};

const LONG: &str = "\
Check an expression as in a policy and evaluate it over an object. Prints the value, its type and its cost.

The variables are those of a policy: object, oldObject, request, namespaceObject, params, and those of Portcullis (gang, \
gpu, ...), as far as they are known without a cluster.";

const EXAMPLES: &str = "\
Examples:
  portcullis eval '1 + 1'
  portcullis eval 'object.spec.containers.all(c, has(c.resources.limits))' -f pod.yaml
  portcullis eval 'request.userInfo.username' -f review.json       an AdmissionReview
  portcullis eval 'object.spec.replicas <= int(params.data.most)' -f app.yaml --params limits.yaml
  kubectl get pod a -o yaml | portcullis eval 'gpu.vramMiB' -f -

Exit codes:
  0  the expression has a value
  1  the evaluation failed
  2  the expression is invalid, or a file cannot be read
  3  bad arguments";

/// Evaluate a CEL expression over an object
#[derive(Debug, Args)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub(super) struct EvalArgs {
    /// The CEL expression
    #[arg(value_name = "EXPRESSION")]
    expression: String,
    /// The object to create, or an AdmissionReview; YAML or JSON, - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The object in the variable params
    #[arg(long, value_name = "FILE")]
    params: Option<PathBuf>,
}

pub(super) fn run(args: &EvalArgs) -> Result<ExitStatus> {
    let request = match &args.file {
        Some(path) => request(&read_object(path)?)?,
        None => Json::Object(serde_json::Map::new()),
    };
    let params = args.params.as_deref().map(read_object).transpose()?;
    let source = &args.expression;
    let files = [expression::as_file(source)];
    let mut out = anstream::stdout().lock();
    let trial = match expression::evaluate(
        source,
        &AdmissionRequest { json: &request },
        params.as_ref(),
        &ClusterData::default(),
    ) {
        Ok(trial) => trial,
        Err(problems) => {
            write!(out, "{}", render_problems(&problems, &files))?;
            return Ok(ExitStatus::Failure);
        }
    };
    if !trial.warnings.is_empty() {
        write!(anstream::stderr().lock(), "{}", render_problems(&trial.warnings, &files))?;
    }
    let cost = format!("{}, cost {} of {}", trial.type_name, trial.cost, trial.cost_limit);
    match trial.value {
        Ok(value) => {
            writeln!(out, "{value}")?;
            writeln!(out, "{}", styles::styled(styles::FAINT, cost))?;
            Ok(ExitStatus::Success)
        }
        Err(error) => {
            writeln!(out, "{} {error}", styles::styled(styles::BAD, "no value:"))?;
            writeln!(out, "{}", styles::styled(styles::FAINT, cost))?;
            Ok(ExitStatus::Negative)
        }
    }
}

/// Reads a file with one object.
fn read_object(path: impl AsRef<Path>) -> Result<Json> {
    let path = path.as_ref();
    let name = path.display();
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?
    };
    let mut documents = match manifest::read(&text) {
        Ok(documents) => documents,
        Err(problem) => bail!("{name}:{}: {}", problem.line.unwrap_or(0), problem.problem),
    };
    match (documents.pop(), documents.len()) {
        (Some(document), 0) => Ok(document.value),
        (None, _) => bail!("{name} contains no object"),
        (Some(_), more) => bail!("{name} contains {} objects: give one", more + 1),
    }
}

/// Returns the request of an AdmissionReview, or a request that creates the object.
fn request(object: &Json) -> Result<Json> {
    if object.get("kind").and_then(Json::as_str) == Some("AdmissionReview") {
        return match AdmissionRequest::from_review(object) {
            Some(request) => Ok(request.json.clone()),
            None => bail!("the AdmissionReview has no request"),
        };
    }
    Ok(expression::create_request(object))
}
