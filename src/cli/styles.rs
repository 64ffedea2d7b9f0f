//! The text styles of terminal output, each with one meaning. `anstream` removes them if the output is not a
//! terminal.

use std::io::Write;

use anstyle::{AnsiColor, Style};

/// Success.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// A failure or a denial.
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
/// A warning.
pub(super) const WARN: Style = AnsiColor::Yellow.on_default();
/// A name or a heading.
pub(super) const HEAD: Style = Style::new().bold();
/// A detail.
pub(super) const FAINT: Style = Style::new().dimmed();
/// A command to type.
pub(super) const COMMAND: Style = AnsiColor::Cyan.on_default();

/// Styles of neighbouring pods on a card.
pub(super) const CARDS: [Style; 4] = [
    AnsiColor::Green.on_default(),
    AnsiColor::Blue.on_default(),
    AnsiColor::Magenta.on_default(),
    AnsiColor::Cyan.on_default(),
];

/// Returns `text` in a style.
pub(super) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Prints an error to stderr. A failure to print is ignored, because there is no other output.
pub(super) fn print_error(message: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{} {message}", styled(BAD, "error:"));
}
