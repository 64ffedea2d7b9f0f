//! What is wrong in a document, by the path of the value: the same whether the document came from a file or from elsewhere.

/// Whether a set with this fault can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It loads, and somebody should look at it.
    Warning,
    /// It does not load.
    Error,
}

/// Something wrong at one place of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// JSON pointer (RFC 6901) of the value: `/spec/validations/0/expression`.
    pub pointer: String,
    /// The key is meant, not its value: for keys that should not be there.
    pub at_key: bool,
    /// Offset in bytes within the value, when the value is the source of an expression.
    pub offset: Option<usize>,
    /// What is wrong, in a sentence without the place.
    pub message: String,
    /// What may have been meant.
    pub suggestion: Option<String>,
}

impl Diagnostic {
    /// An error at a value.
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

    /// A warning at a value.
    pub fn warning(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(pointer, message) }
    }

    /// The same, about the key.
    #[must_use]
    pub fn at_key(self) -> Self {
        Self { at_key: true, ..self }
    }

    /// The same, at a place within an expression.
    #[must_use]
    pub fn at(self, offset: usize) -> Self {
        Self { offset: Some(offset), ..self }
    }

    /// The same, with what may have been meant.
    #[must_use]
    pub fn suggest(self, suggestion: Option<String>) -> Self {
        Self { suggestion, ..self }
    }
}
