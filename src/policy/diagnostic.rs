//! Errors and warnings in a document, located by JSON pointer. They do not depend on where the document came
//! from.

/// Whether a set with this diagnostic can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The set loads.
    Warning,
    /// The set does not load.
    Error,
}

/// An error or a warning at one value of a document. `load::Problem` is a diagnostic with its line and
/// column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// JSON pointer (RFC 6901) of the value: `/spec/validations/0/expression`.
    pub pointer: String,
    /// Whether the diagnostic is about the key and not about its value, as for unknown keys.
    pub at_key: bool,
    /// Byte offset within the value, if the value is the source of an expression.
    pub offset: Option<usize>,
    /// What is wrong, without the location.
    pub message: String,
    /// A replacement that the user may have meant.
    pub suggestion: Option<String>,
}

impl Diagnostic {
    /// Returns an error at a value.
    pub fn error(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            pointer: pointer.into(),
            at_key: false,
            offset: None,
            message: message.into(),
            suggestion: None,
        }
    }

    /// Returns a warning at a value.
    pub fn warning(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(pointer, message) }
    }

    /// Moves the diagnostic from the value to its key.
    #[must_use]
    pub fn at_key(self) -> Self {
        Self { at_key: true, ..self }
    }

    /// Adds the byte offset within an expression.
    #[must_use]
    pub fn at(self, offset: usize) -> Self {
        Self { offset: Some(offset), ..self }
    }

    /// Adds a replacement that the user may have meant.
    #[must_use]
    pub fn suggest(self, suggestion: Option<String>) -> Self {
        Self { suggestion, ..self }
    }
}
