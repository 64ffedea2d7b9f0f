//! The few colours we use, each with one meaning. Written through anstream, so they vanish in a pipe.

use std::io::Write;

use anstyle::{AnsiColor, Style};

/// Something is as it should be.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// Something was refused or failed.
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Something to know.
pub(super) const WARN: Style = AnsiColor::Yellow.on_default();
/// A name, a heading.
pub(super) const HEAD: Style = Style::new().bold();
/// What can be skipped on a first reading.
pub(super) const FAINT: Style = Style::new().dimmed();
/// What somebody may type.
pub(super) const TYPED: Style = AnsiColor::Cyan.on_default();

/// Neighbours on a card, in turns.
pub(super) const CARDS: [Style; 4] = [
    AnsiColor::Green.on_default(),
    AnsiColor::Blue.on_default(),
    AnsiColor::Magenta.on_default(),
    AnsiColor::Cyan.on_default(),
];

/// `text` in a style.
pub(super) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// An error on stderr. There is nobody left to tell when even that fails.
pub(super) fn complain(message: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{} {message}", styled(BAD, "error:"));
}
