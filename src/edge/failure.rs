//! Why a read failed.

/// Why a list, a watch or a request about the lease failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// The API server does not know the resource (404): its CRD is not installed.
    #[error("not installed: {0}")]
    Absent(String),
    /// Authentication or authorization failed (401, 403).
    #[error("{0}")]
    Forbidden(String),
    /// The requested resource version is too old (410).
    #[error("{0}")]
    Expired(String),
    /// Any other error, or no answer.
    #[error("{0}")]
    Failed(String),
}

impl ReadFailure {
    /// The failure that an HTTP status code and the message of its `Status` body stand for.
    pub fn of_status(code: u16, message: String) -> Self {
        match code {
            404 => Self::Absent(message),
            401 | 403 => Self::Forbidden(message),
            410 => Self::Expired(message),
            code => Self::Failed(format!("{code}: {message}")),
        }
    }
}
