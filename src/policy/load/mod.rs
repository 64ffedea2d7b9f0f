//! Files to a [`Set`], or everything that is wrong with them.

use crate::fault::Severity;
use crate::set::Set;

/// A file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The name to show: a path as the user gave it.
    pub name: String,
    /// Its bytes, which may be no text.
    pub bytes: Vec<u8>,
}

/// Something wrong, at its place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the set can be used.
    pub severity: Severity,
    /// The file.
    pub file: String,
    /// From 1; 0 when the whole file is meant.
    pub line: usize,
    /// In characters, from 1; 0 when the whole line or file is meant.
    pub column: usize,
    /// How many characters are meant, at least 1.
    pub length: usize,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What may have been meant.
    pub suggestion: Option<String>,
    /// What it is about: `ValidatingAdmissionPolicy "no-latest"`.
    pub about: Option<String>,
}

/// What became of files.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The set; none when a problem is an error.
    pub set: Option<Set>,
    /// Everything that was found, by file and place.
    pub problems: Vec<Problem>,
}

/// Reads policy files: all of one set. Names decide the order, and the suffix (`.yaml`, `.yml`, `.json`) what is read.
#[must_use]
pub fn load(_files: &[SourceFile]) -> Loaded {
    Loaded::default()
}
