//! Admission: decides on an `AdmissionReview`. Pure and synchronous; the webhook passes the bytes in and out.
//!
//! [`handle_review`] takes and returns bytes. [`decide`] is the same without encoding, for the command line
//! and tests. A pod that is in no group and requests no share of a card is allowed unchanged.
//!
//! Invariant: a patch is sent only after it was applied to the object and the result was reviewed again.

mod decision;
mod fuzz;
mod known_classes;
mod patch;
mod required_fields;
mod response;
mod review;
mod settings;
mod stateful_set;
mod verify;

#[cfg(test)]
mod tests;

pub use decision::{Decision, decide};
pub use fuzz::fuzz_review;
pub use known_classes::KnownClasses;
pub use response::{AdmissionResponse, DenialCause, DenialStatus};
pub use review::{API_VERSION, AdmissionReview, KIND, Operation, ReviewedPod};
pub use settings::AdmissionSettings;

/// The webhook that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// `POST /mutate`: patches the object, or denies what a patch cannot fix.
    Mutate,
    /// `POST /validate`: reviews the final object and never patches. It denies a new member without its gate.
    Validate,
}

impl Hook {
    /// For logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

/// The outcome of a well-formed review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewOutcome {
    /// The response `AdmissionReview`, ready to send.
    pub body: Vec<u8>,
    /// The decision, for the log line and the metrics.
    pub summary: ReviewSummary,
}

/// The result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdmissionVerdict {
    /// Allowed; the object is not a gang member and requests no share.
    Untouched,
    /// Allowed without a patch.
    Allowed,
    /// Allowed with a patch.
    Patched,
    /// Denied.
    Denied,
}

impl AdmissionVerdict {
    /// For logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Allowed => "allowed",
            Self::Patched => "patched",
            Self::Denied => "denied",
        }
    }
}

/// The summary of one decision, for the log line and the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewSummary {
    /// `request.uid`, which is also in the API server's audit log.
    pub uid: String,
    /// `CREATE`, `UPDATE`, ...
    pub operation: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name, or `generateName` with a `*`.
    pub name: String,
    /// The result.
    pub verdict: AdmissionVerdict,
    /// Why it was denied: one line for each cause, `field: message`.
    pub causes: Vec<String>,
    /// Number of warnings.
    pub warnings: usize,
    /// Number of patch operations.
    pub patch_operations: usize,
    /// Hash of the policy set that decided; `None` when no policy was evaluated.
    pub policies: Option<String>,
}

/// A request that cannot be reviewed. The webhook returns HTTP 400 with this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The body is not JSON or not an `AdmissionReview`.
    #[error("the body is not an AdmissionReview: {0}")]
    Malformed(String),
    /// Another version or kind.
    #[error(
        "expected apiVersion admission.k8s.io/v1, kind AdmissionReview; got apiVersion {api_version:?}, kind {kind:?}"
    )]
    WrongVersion {
        /// The API version of the body.
        api_version: String,
        /// The kind of the body.
        kind: String,
    },
    /// The review has no request or no uid.
    #[error("the AdmissionReview has no request, or the request has no uid")]
    NoRequest,
    /// The patch for the pod is wrong: a bug of Portcullis, found before the patch was sent.
    #[error(
        "the patch for this pod is wrong ({0}); this is a bug of portcullis, please report it with the pod"
    )]
    Unpatchable(String),
}

/// Reviews one request.
///
/// # Errors
/// [`ReviewError`] when the body cannot be reviewed.
pub fn handle_review(
    settings: &AdmissionSettings,
    facts: &KnownClasses,
    hook: Hook,
    body: &[u8],
) -> Result<ReviewOutcome, ReviewError> {
    let review = AdmissionReview::parse(body)?;
    let decision = decide(settings, facts, hook, &review);
    if let Some(subject) = review.pod.as_ref().filter(|_| !decision.patch.is_empty()) {
        verify::verify(settings, facts, &review, subject, &decision)?;
    }
    let name = review.display_name();
    Ok(ReviewOutcome {
        body: response::body(&review, &name, &decision),
        summary: ReviewSummary {
            uid: review.uid.to_string(),
            operation: review.operation_text.to_string(),
            namespace: review.namespace.to_string(),
            verdict: decision.verdict,
            causes: decision.causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect(),
            warnings: decision.warnings.len(),
            patch_operations: decision.patch.len(),
            policies: None,
            name,
        },
    })
}
