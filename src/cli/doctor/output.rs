//! How the checks are shown: a line each, with what to type under it; or one JSON object.

use std::io::{self, Write};

use anstyle::Style;
use serde_json::json;

use super::checks::{CheckLevel, DoctorCheck};
use crate::cli::styles;

fn look(verdict: CheckLevel) -> (&'static str, Style) {
    match verdict {
        CheckLevel::Ok => ("ok  ", styles::GOOD),
        CheckLevel::Warn => ("warn", styles::WARN),
        CheckLevel::Fail => ("FAIL", styles::BAD),
    }
}

/// For people.
pub(super) fn text(out: &mut impl Write, checks: &[DoctorCheck]) -> io::Result<()> {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
    for check in checks {
        let (word, style) = look(check.verdict);
        writeln!(out, "{}  {:widest$}  {}", styles::styled(style, word), check.name, check.says)?;
        for line in &check.remedy {
            let style = if line.starts_with('#') { styles::FAINT } else { styles::COMMAND };
            writeln!(out, "      {}", styles::styled(style, line))?;
        }
    }
    let number = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (broken, warnings) = (number(CheckLevel::Fail), number(CheckLevel::Warn));
    match (broken, warnings) {
        (0, 0) => writeln!(out, "\nAll is well."),
        (0, _) => writeln!(
            out,
            "\nNothing is broken; {}.",
            portcullis_text::counted(warnings, "warning", "warnings")
        ),
        (_, 0) => writeln!(out, "\n{} broken.", portcullis_text::counted(broken, "thing", "things")),
        _ => writeln!(
            out,
            "\n{} broken, {}.",
            portcullis_text::counted(broken, "thing", "things"),
            portcullis_text::counted(warnings, "warning", "warnings")
        ),
    }
}

/// For programs.
pub(super) fn json(out: &mut impl Write, checks: &[DoctorCheck]) -> io::Result<()> {
    let word = |verdict| match verdict {
        CheckLevel::Ok => "ok",
        CheckLevel::Warn => "warn",
        CheckLevel::Fail => "fail",
    };
    let list: Vec<_> = checks
        .iter()
        .map(|check| {
            json!({"name": check.name, "verdict": word(check.verdict), "says": check.says, "remedy": check.remedy})
        })
        .collect();
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(CheckLevel::Ok);
    writeln!(out, "{:#}", json!({"verdict": word(worst), "checks": list}))
}
