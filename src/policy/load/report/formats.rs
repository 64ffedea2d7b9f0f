//! Problems for programs: JSON, SARIF for code scanning, and GitHub workflow annotations.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::terminal::severity_name;
use crate::diagnostic::Severity;
use crate::load::{LoadCounts, Problem};

fn problem_as_json(problem: &Problem) -> Json {
    let mut shown = json!({
        "severity": severity_name(problem.severity),
        "file": problem.file,
        "message": problem.message,
    });
    if problem.line > 0 {
        shown["line"] = problem.line.into();
    }
    if problem.column > 0 {
        shown["column"] = problem.column.into();
        shown["length"] = problem.length.into();
    }
    if let Some(meant) = &problem.suggestion {
        shown["suggestion"] = meant.clone().into();
    }
    if let Some(about) = &problem.about {
        shown["about"] = about.clone().into();
    }
    shown
}

/// Returns problems and counts: `{"problems": [...], "counts": {...}}`. Lines and columns count from 1 and
/// are absent if unknown.
#[must_use]
pub fn problems_as_json(problems: &[Problem], counts: &LoadCounts) -> Json {
    let number = |severity: Severity| problems.iter().filter(|problem| problem.severity == severity).count();
    json!({
        "problems": problems.iter().map(problem_as_json).collect::<Vec<_>>(),
        "counts": {
            "files": counts.files,
            "policies": counts.policies,
            "rules": counts.rules,
            "bindings": counts.bindings,
            "exceptions": counts.exceptions,
            "params": counts.params,
            "errors": number(Severity::Error),
            "warnings": number(Severity::Warning),
        },
    })
}

/// Returns problems as SARIF 2.1.0.
#[must_use]
pub fn problems_as_sarif(problems: &[Problem]) -> Json {
    let results: Vec<Json> = problems
        .iter()
        .map(|problem| {
            let mut location = json!({ "artifactLocation": { "uri": uri(&problem.file) } });
            if problem.line > 0 {
                let mut region = json!({ "startLine": problem.line });
                if problem.column > 0 {
                    region["startColumn"] = problem.column.into();
                    region["endColumn"] = (problem.column + problem.length).into();
                }
                location["region"] = region;
            }
            json!({
                "ruleId": rule(problem),
                "level": severity_name(problem.severity),
                "message": { "text": sentence(problem) },
                "locations": [{ "physicalLocation": location }],
            })
        })
        .collect();
    let rules: BTreeSet<&str> = problems.iter().map(rule).collect();
    let rules: Vec<Json> = rules
        .into_iter()
        .map(|rule| {
            let text = match rule {
                "policy-error" => "A policy file that is not loaded",
                _ => "A policy file that is loaded and should be looked at",
            };
            json!({ "id": rule, "shortDescription": { "text": text } })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "portcullis",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(problem: &Problem) -> &'static str {
    match problem.severity {
        Severity::Error => "policy-error",
        Severity::Warning => "policy-warning",
    }
}

/// Returns what is wrong and the suggestion.
fn sentence(problem: &Problem) -> String {
    let about = problem.about.as_ref().map(|about| format!("{about}: ")).unwrap_or_default();
    let meant =
        problem.suggestion.as_ref().map(|meant| format!(", did you mean {meant:?}?")).unwrap_or_default();
    format!("{about}{}{meant}", problem.message)
}

/// Returns a path as a relative URI reference, percent-encoded.
fn uri(path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    let mut written = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            written.push(char::from(byte));
        } else {
            written.push_str(&format!("%{byte:02X}"));
        }
    }
    written
}

/// Returns problems as GitHub workflow commands, which GitHub shows beside the lines.
#[must_use]
pub fn problems_as_github_annotations(problems: &[Problem]) -> String {
    let mut shown = String::new();
    for problem in problems {
        let mut place = format!("file={}", property(&problem.file));
        if problem.line > 0 {
            place.push_str(&format!(",line={}", problem.line));
        }
        if problem.column > 0 {
            place.push_str(&format!(",col={},endColumn={}", problem.column, problem.column + problem.length));
        }
        shown.push_str(&format!(
            "::{} {place}::{}\n",
            severity_name(problem.severity),
            data(&sentence(problem))
        ));
    }
    shown
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
