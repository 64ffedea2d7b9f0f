//! How the checks are shown: a line each, with what to type under it; or one JSON object.

use std::io::{self, Write};

use anstyle::Style;
use serde_json::json;

use super::judge::{Check, Verdict, count};
use crate::cli::paint;

fn look(verdict: Verdict) -> (&'static str, Style) {
    match verdict {
        Verdict::Ok => ("ok  ", paint::GOOD),
        Verdict::Warn => ("warn", paint::WARN),
        Verdict::Fail => ("FAIL", paint::BAD),
    }
}

/// For people.
pub(super) fn text(out: &mut impl Write, checks: &[Check]) -> io::Result<()> {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
    for check in checks {
        let (word, style) = look(check.verdict);
        writeln!(out, "{}  {:widest$}  {}", paint::styled(style, word), check.name, check.says)?;
        for line in &check.remedy {
            let style = if line.starts_with('#') { paint::FAINT } else { paint::TYPED };
            writeln!(out, "      {}", paint::styled(style, line))?;
        }
    }
    let number = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (broken, warnings) = (number(Verdict::Fail), number(Verdict::Warn));
    match (broken, warnings) {
        (0, 0) => writeln!(out, "\nAll is well."),
        (0, _) => writeln!(out, "\nNothing is broken; {}.", count(warnings, "warning")),
        (_, 0) => writeln!(out, "\n{} broken.", count(broken, "thing")),
        _ => writeln!(out, "\n{} broken, {}.", count(broken, "thing"), count(warnings, "warning")),
    }
}

/// For programs.
pub(super) fn json(out: &mut impl Write, checks: &[Check]) -> io::Result<()> {
    let word = |verdict| match verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "fail",
    };
    let list: Vec<_> = checks
        .iter()
        .map(|check| {
            json!({"name": check.name, "verdict": word(check.verdict), "says": check.says, "remedy": check.remedy})
        })
        .collect();
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
    writeln!(out, "{:#}", json!({"verdict": word(worst), "checks": list}))
}
