//! Results of an evaluation: denials, warnings, audit annotations and mutations.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// One rule that denies a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Name of the policy.
    pub policy: String,
    /// Name of the binding.
    pub binding: String,
    /// JSON pointer of the rule within its policy: `/spec/validations/0`.
    pub rule: String,
    /// The field of the object that the denial is about, if the rule names one: `spec.containers[0].image`.
    pub field: Option<String>,
    /// The API server's message: `ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no`.
    pub message: String,
    /// The message of the rule alone, such as `no`.
    pub detail: String,
    /// The reason of the status: `Invalid`, `Forbidden`, ...
    pub reason: String,
}

/// A denial that an exception allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedException {
    /// Name of the exception.
    pub exception: String,
    /// The owner of the exception.
    pub owner: String,
    /// The reason of the exception.
    pub reason: String,
    /// The policy that would have denied.
    pub policy: String,
    /// The message that it would have denied with.
    pub message: String,
}

/// The result of the validating policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationResult {
    /// Denials in the order of the API server; empty if the request is allowed.
    pub denials: Vec<Denial>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Audit annotations by `POLICY/KEY`.
    pub audit: BTreeMap<String, String>,
    /// Errors that `failurePolicy: Ignore` ignored, for the log.
    pub ignored_errors: Vec<String>,
    /// Denials that exceptions allowed, for log and audit.
    pub applied_exceptions: Vec<AppliedException>,
}

impl ValidationResult {
    /// Returns the warnings with the detail first, because kubectl cuts long lines. The API server's text
    /// starts with policy and binding.
    #[must_use]
    pub fn user_warnings(&self) -> Vec<String> {
        let one = |warning: &String| {
            let rest = warning.strip_prefix("Validation failed for ValidatingAdmissionPolicy '")?;
            let (policy, rest) = rest.split_once("' with binding '")?;
            let (_, detail) = rest.split_once("': ")?;
            Some(format!("{detail} (policy {policy})"))
        };
        self.warnings.iter().map(|warning| one(warning).unwrap_or_else(|| warning.clone())).collect()
    }
}

/// The result of the mutating policies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MutationResult {
    /// The mutated object; `None` if nothing changed.
    pub object: Option<Json>,
    /// Names of the policies that changed the object, in order.
    pub changed_by: Vec<String>,
    /// Denials: mutations that failed with `failurePolicy: Fail`.
    pub denials: Vec<Denial>,
    /// Errors that `failurePolicy: Ignore` ignored, for the log.
    pub ignored_errors: Vec<String>,
    /// Policies that were not evaluated because of an exception.
    pub applied_exceptions: Vec<AppliedException>,
}
