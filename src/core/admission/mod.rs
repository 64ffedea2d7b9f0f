//! Review in, decision out. Pure and synchronous: the webhook carries bytes here and back.
//!
//! [`handle_review`] is bytes to bytes; [`decide`] is the same without the wire, for the command line and for tests. A pod that
//! is in no group and asks for no share is allowed untouched. Every patch was applied and judged again before it leaves.

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

/// Which of the two hooks was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// `POST /mutate`: may patch, and denies what cannot be mended.
    Mutate,
    /// `POST /validate`: judges the final object, never patches. A new member that comes here without its gate is denied.
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

/// An answer to a well-formed review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewOutcome {
    /// The response `AdmissionReview`, ready to send.
    pub body: Vec<u8>,
    /// What was decided, for the log line and the metrics.
    pub summary: ReviewSummary,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdmissionVerdict {
    /// None of our business.
    Untouched,
    /// Ours, and nothing to change.
    Allowed,
    /// Ours, and patched.
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

/// The facts of one decision, for the log line and the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewSummary {
    /// `request.uid`, which the API server's audit log has too.
    pub uid: String,
    /// `CREATE`, `UPDATE`, ...
    pub operation: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name, or `generateName` with a `*`.
    pub name: String,
    /// What was decided.
    pub verdict: AdmissionVerdict,
    /// Why it was denied: one line for each cause, `field: message`.
    pub causes: Vec<String>,
    /// How many warnings went with it.
    pub warnings: usize,
    /// How many operations the patch has.
    pub patch_operations: usize,
    /// Which set of policies has decided, by its hash; none where none was asked.
    pub policies: Option<String>,
}

/// A request that is no review we can answer; the webhook turns it into an HTTP 400 with this sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The body is not JSON, or not of the shape of a review.
    #[error("the body is not an AdmissionReview: {0}")]
    Malformed(String),
    /// Another version or kind.
    #[error(
        "expected apiVersion admission.k8s.io/v1, kind AdmissionReview; got apiVersion {api_version:?}, kind {kind:?}"
    )]
    WrongVersion {
        /// What it said.
        api_version: String,
        /// What it said.
        kind: String,
    },
    /// There is no request in it.
    #[error("the AdmissionReview has no request, or the request has no uid")]
    NoRequest,
    /// The patch made for the pod does not do what it should: a bug of ours, caught before it could break the request.
    #[error(
        "the patch for this pod is wrong ({0}); this is a bug of portcullis, please report it with the pod"
    )]
    Unpatchable(String),
}

/// Answers one review.
///
/// # Errors
/// [`ReviewError`] when the body is no review we can answer.
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
