//! Renders problems as text: message, location, source line and suggestion.
//!
//! ```text
//! error: undefined field 'contianers', where object is a Pod
//!   --> policies/gpu.yaml:14:22
//! 14 |       object.spec.contianers.all(c, has(c.resources))
//!    |                   ^^^^^^^^^^ did you mean "containers"?
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use anstyle::{AnsiColor, Style};

use crate::diagnostic::Severity;
use crate::load::{Problem, SourceFile};

/// Maximum characters of a source line that are shown.
const MAX_LINE_CHARS: usize = 160;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

fn colour(severity: Severity) -> Style {
    match severity {
        Severity::Error => AnsiColor::Red.on_default().bold(),
        Severity::Warning => AnsiColor::Yellow.on_default().bold(),
    }
}

/// Returns the word for a severity.
pub(in crate::load) fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// Renders problems as text with ANSI colours; the caller strips them for other outputs. `files` are the
/// loaded files.
#[must_use]
pub fn render_problems(problems: &[Problem], files: &[SourceFile]) -> String {
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        let text = str::from_utf8(&file.bytes).unwrap_or_default();
        lines.insert(&file.name, text.strip_prefix('\u{feff}').unwrap_or(text).split('\n').collect());
    }
    let mut shown = String::new();
    for problem in problems {
        if !shown.is_empty() {
            shown.push('\n');
        }
        let line = lines.get(problem.file.as_str()).and_then(|lines| lines.get(problem.line.checked_sub(1)?));
        render_problem(&mut shown, problem, line.map(|line| line.trim_end()));
    }
    shown
}

fn render_problem(shown: &mut String, problem: &Problem, line: Option<&str>) {
    let tint = colour(problem.severity);
    let about = problem.about.as_ref().map(|about| format!(" {DIM}({about}){DIM:#}")).unwrap_or_default();
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        shown,
        "{tint}{}{tint:#}{BOLD}: {}{BOLD:#}{about}",
        severity_name(problem.severity),
        escape_control_characters(&problem.message)
    );
    let _ = writeln!(shown, "  {DIM}-->{DIM:#} {}", escape_control_characters(&problem.place()));
    let meant = problem.suggestion.as_ref().map(|meant| format!("did you mean {meant:?}?"));
    let (Some(line), true) = (line, problem.column > 0) else {
        if let Some(meant) = meant {
            let _ = writeln!(shown, "  {tint}{meant}{tint:#}");
        }
        return;
    };
    let characters: Vec<char> = line.chars().collect();
    // A long line is cut to a window that starts shortly before the problem.
    let from = if characters.len() > MAX_LINE_CHARS {
        (problem.column - 1).saturating_sub(MAX_LINE_CHARS / 4).min(characters.len())
    } else {
        0
    };
    let to = characters.len().min(from + MAX_LINE_CHARS);
    let mut text = String::new();
    let mut pad = 0;
    let mut carets = 0;
    for (index, character) in characters.iter().enumerate().take(to).skip(from) {
        // Tabs would shift the carets in the next line.
        let (written, wide) = match character {
            '\t' => ("    ".to_owned(), 4),
            control if control.is_control() => (control.escape_default().to_string(), 0),
            other => (other.to_string(), 1),
        };
        let wide = if wide == 0 { written.chars().count() } else { wide };
        if index < problem.column - 1 {
            pad += wide;
        } else if index < problem.column - 1 + problem.length {
            carets += wide;
        }
        text.push_str(&written);
    }
    let (before, after) = (if from > 0 { "…" } else { "" }, if to < characters.len() { "…" } else { "" });
    let number = problem.line.to_string();
    let margin = " ".repeat(number.len());
    let pad = " ".repeat(pad + before.chars().count());
    let carets = "^".repeat(carets.max(1));
    let meant = meant.map(|meant| format!(" {meant}")).unwrap_or_default();
    let _ = writeln!(shown, "{DIM}{number} |{DIM:#} {before}{text}{after}");
    let _ = writeln!(shown, "{DIM}{margin} |{DIM:#} {pad}{tint}{carets}{meant}{tint:#}");
}

/// Escapes control characters, because a file can contain terminal escape sequences.
fn escape_control_characters(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
