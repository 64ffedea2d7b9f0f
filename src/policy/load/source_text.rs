//! The text of a file, with lines and columns.

use std::ops::Range;

use super::{Problem, SourceFile};
use crate::diagnostic::Severity;

/// Maximum size of a policy file.
const MAX_FILE_BYTES: usize = 8 << 20;

/// A file with valid UTF-8.
#[derive(Debug)]
pub(super) struct SourceText<'a> {
    pub(super) name: &'a str,
    /// The text without a byte order mark.
    pub(super) text: &'a str,
    /// Byte offsets of the line starts.
    lines: Vec<usize>,
}

impl<'a> SourceText<'a> {
    /// Returns the text of a file.
    ///
    /// # Errors
    /// The file is too large or not UTF-8.
    pub(super) fn of(file: &'a SourceFile) -> Result<Self, Box<Problem>> {
        let whole = |message: String| {
            Box::new(Problem {
                severity: Severity::Error,
                file: file.name.clone(),
                line: 0,
                column: 0,
                length: 1,
                message,
                suggestion: None,
                about: None,
            })
        };
        if file.bytes.len() > MAX_FILE_BYTES {
            return Err(whole(format!(
                "the file has {} MiB, more than {}",
                file.bytes.len() >> 20,
                MAX_FILE_BYTES >> 20
            )));
        }
        if file.bytes.starts_with(&[0xFF, 0xFE]) || file.bytes.starts_with(&[0xFE, 0xFF]) {
            return Err(whole("the file is UTF-16: save it as UTF-8".to_owned()));
        }
        match str::from_utf8(&file.bytes) {
            Ok(text) => Ok(Self::new(&file.name, text.strip_prefix('\u{feff}').unwrap_or(text))),
            Err(error) => {
                let good = str::from_utf8(&file.bytes[..error.valid_up_to()]).unwrap_or_default();
                let (line, column) = Self::new(&file.name, good).position(good.len());
                let byte = file.bytes.get(error.valid_up_to()).copied().unwrap_or_default();
                let message = format!("the byte 0x{byte:02X} is not UTF-8: save the file as UTF-8");
                Err(Box::new(Problem { line, column, ..*whole(message) }))
            }
        }
    }

    pub(super) fn new(name: &'a str, text: &'a str) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { name, text, lines: std::iter::once(0).chain(starts).collect() }
    }

    /// Returns line and column of a byte, both from 1. The column counts characters.
    pub(super) fn position(&self, byte: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= byte);
        let start = self.lines[line - 1];
        let column = self.text.get(start..byte).map_or(0, |before| before.chars().count());
        (line, column + 1)
    }

    /// Returns a problem at a byte range. If the range has several lines, the problem is at the first one.
    pub(super) fn problem(&self, severity: Severity, span: &Range<usize>, message: String) -> Problem {
        let (line, column) = self.position(span.start);
        let shown = self.text.get(span.clone()).unwrap_or_default();
        let length = shown.lines().next().unwrap_or_default().trim_end().chars().count().max(1);
        Problem {
            severity,
            file: self.name.to_owned(),
            line,
            column,
            length,
            message,
            suggestion: None,
            about: None,
        }
    }

    /// Whether the file is JSON, by its name or first character.
    pub(super) fn is_json(&self) -> bool {
        let suffix = self.name.rsplit('.').next().unwrap_or_default();
        suffix.eq_ignore_ascii_case("json") || self.text.trim_start().starts_with('{')
    }
}
