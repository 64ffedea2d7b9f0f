//! Output of the checks: one line each with the commands to fix it, or one JSON object.

use std::io::{self, Write};

use anstyle::Style;
use serde_json::json;

use super::checks::{CheckLevel, DoctorCheck};
use crate::cli::styles;

fn word_and_style(verdict: CheckLevel) -> (&'static str, Style) {
    match verdict {
        CheckLevel::Ok => ("ok  ", styles::GOOD),
        CheckLevel::Warn => ("warn", styles::WARN),
        CheckLevel::Fail => ("FAIL", styles::BAD),
    }
}

/// Prints the checks as text.
pub(super) fn text(out: &mut impl Write, checks: &[DoctorCheck]) -> io::Result<()> {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
    for check in checks {
        let (word, style) = word_and_style(check.verdict);
        writeln!(out, "{}  {:widest$}  {}", styles::styled(style, word), check.name, check.message)?;
        for line in &check.remedy {
            let style = if line.starts_with('#') { styles::FAINT } else { styles::COMMAND };
            writeln!(out, "      {}", styles::styled(style, line))?;
        }
    }
    let number = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (broken, warnings) = (number(CheckLevel::Fail), number(CheckLevel::Warn));
    match (broken, warnings) {
        (0, 0) => writeln!(out, "\nNo problems found."),
        (0, _) => {
            writeln!(out, "\nNo failures, {}.", portcullis_text::counted(warnings, "warning", "warnings"))
        }
        (_, 0) => writeln!(out, "\n{}.", portcullis_text::counted(broken, "failure", "failures")),
        _ => writeln!(
            out,
            "\n{}, {}.",
            portcullis_text::counted(broken, "failure", "failures"),
            portcullis_text::counted(warnings, "warning", "warnings")
        ),
    }
}

/// Prints the checks as one JSON object.
pub(super) fn json(out: &mut impl Write, checks: &[DoctorCheck]) -> io::Result<()> {
    let word = |verdict| match verdict {
        CheckLevel::Ok => "ok",
        CheckLevel::Warn => "warn",
        CheckLevel::Fail => "fail",
    };
    let list: Vec<_> = checks
        .iter()
        .map(|check| {
            json!({"name": check.name, "verdict": word(check.verdict), "message": check.message, "remedy": check.remedy})
        })
        .collect();
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(CheckLevel::Ok);
    writeln!(out, "{:#}", json!({"verdict": word(worst), "checks": list}))
}
