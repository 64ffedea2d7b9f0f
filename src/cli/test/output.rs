//! Output of test results: text or JSON.

use std::io::Write;

use anyhow::Result;
use portcullis_policy::cases::{CaseMismatch, CaseReport};
use serde_json::json;

use super::CaseResult;
use crate::cli::styles::{BAD, FAINT, GOOD, HEAD, styled};

/// Prints one line per case below the name of its file. Failed cases show the expected and the actual value.
pub(super) fn table(ran: &[CaseResult]) -> Result<()> {
    let mut out = anstream::stdout().lock();
    let mut file = "";
    for case in ran {
        if case.file != file {
            file = &case.file;
            writeln!(out, "{}", styled(HEAD, file))?;
        }
        let (word, got) = match &case.result {
            Ok(report) if report.mismatches.is_empty() => (styled(GOOD, "ok  "), report.verdict.as_str()),
            Ok(report) => (styled(BAD, "FAIL"), report.verdict.as_str()),
            Err(_) => (styled(BAD, "FAIL"), "not run"),
        };
        writeln!(out, "  {word}  {:<8} {}", got, case.name)?;
        match &case.result {
            Ok(report) => {
                for mismatch in &report.mismatches {
                    writeln!(
                        out,
                        "        {}",
                        styled(FAINT, format!("{}:{} {}", case.file, case.line, mismatch.what))
                    )?;
                    difference(&mut out, mismatch)?;
                }
            }
            Err(why) => writeln!(out, "        {why}")?,
        }
    }
    let failed = ran.iter().filter(|case| !case.holds()).count();
    let files = ran.iter().map(|case| &case.file).collect::<std::collections::BTreeSet<_>>().len();
    let all = format!(
        "{} in {}",
        portcullis_text::counted(ran.len(), "case", "cases"),
        portcullis_text::counted(files, "file", "files")
    );
    let end = if failed == 0 { styled(GOOD, "all passed") } else { styled(BAD, format!("{failed} failed")) };
    writeln!(out, "\n{all}: {end}")?;
    Ok(())
}

/// Prints a line diff.
fn difference(out: &mut impl Write, mismatch: &CaseMismatch) -> Result<()> {
    let (expected, got): (Vec<&str>, Vec<&str>) =
        (mismatch.expected.lines().collect(), mismatch.got.lines().collect());
    let same = expected.iter().zip(&got).take_while(|(a, b)| a == b).count();
    let rest = expected.len().min(got.len()) - same;
    let ending = expected.iter().rev().zip(got.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    for line in &expected[..same] {
        writeln!(out, "            {line}")?;
    }
    for line in &expected[same..expected.len() - ending] {
        writeln!(out, "          {}", styled(BAD, format!("- {line}")))?;
    }
    for line in &got[same..got.len() - ending] {
        writeln!(out, "          {}", styled(GOOD, format!("+ {line}")))?;
    }
    for line in &expected[expected.len() - ending..] {
        writeln!(out, "            {line}")?;
    }
    Ok(())
}

/// Prints one JSON object with all cases.
pub(super) fn json(ran: &[CaseResult]) -> Result<()> {
    let case = |case: &CaseResult| {
        let mut object =
            json!({ "file": case.file, "line": case.line, "name": case.name, "holds": case.holds() });
        match &case.result {
            Ok(report) => describe(&mut object, report),
            Err(why) => object["error"] = why.as_str().into(),
        }
        object
    };
    let failed = ran.iter().filter(|case| !case.holds()).count();
    let all =
        json!({ "cases": ran.iter().map(case).collect::<Vec<_>>(), "total": ran.len(), "failed": failed });
    writeln!(anstream::stdout().lock(), "{}", serde_json::to_string_pretty(&all)?)?;
    Ok(())
}

fn describe(object: &mut serde_json::Value, report: &CaseReport) {
    object["verdict"] = report.verdict.as_str().into();
    object["denials"] = json!(report.denials);
    object["warnings"] = json!(report.warnings);
    object["policies"] = json!(report.policies);
    let mismatches = report.mismatches.iter();
    let mismatches = mismatches.map(|m| json!({ "what": m.what, "expected": m.expected, "got": m.got }));
    object["mismatches"] = mismatches.collect();
}
