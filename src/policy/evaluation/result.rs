//! What a set says of a request.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// One rule that refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Name of the policy.
    pub policy: String,
    /// Name of the binding.
    pub binding: String,
    /// JSON pointer of the rule within its policy: `/spec/validations/0`.
    pub rule: String,
    /// The field of the object that is at fault, where the rule says so: `spec.containers[0].image`.
    pub field: Option<String>,
    /// What the API server would say of it: `ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no`.
    pub message: String,
    /// What the rule itself says: `no`.
    pub detail: String,
    /// `Invalid`, `Forbidden`, ...: the reason of the status.
    pub reason: String,
}

/// What was let in by an exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedException {
    /// Name of the exception.
    pub exception: String,
    /// Who answers for it.
    pub owner: String,
    /// Why it is.
    pub reason: String,
    /// The policy that would have refused.
    pub policy: String,
    /// What it would have said.
    pub message: String,
}

/// What the validating policies of a set say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationResult {
    /// Why it is refused, in the order of the API server; none when it is allowed.
    pub denials: Vec<Denial>,
    /// What the user is told.
    pub warnings: Vec<String>,
    /// Audit annotations by `POLICY/KEY`.
    pub audit: BTreeMap<String, String>,
    /// Rules that could not be evaluated and whose `failurePolicy` is `Ignore`: for the log.
    pub ignored_errors: Vec<String>,
    /// What exceptions let in that would have been refused: for the log and the audit.
    pub applied_exceptions: Vec<AppliedException>,
}

impl ValidationResult {
    /// Its warnings as people are told them, with what is wrong first: of a line that is cut, that is what must be left. The API
    /// server's own words begin with policy and binding.
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

/// What the mutating policies of a set make of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MutationResult {
    /// The object as it is then; none when nothing changes.
    pub object: Option<Json>,
    /// Names of the policies that changed it, in order.
    pub changed_by: Vec<String>,
    /// Why it is refused: a mutation that failed under `failurePolicy: Fail`.
    pub denials: Vec<Denial>,
    /// Rules that could not be evaluated and whose `failurePolicy` is `Ignore`: for the log.
    pub ignored_errors: Vec<String>,
    /// Policies that were not asked because of an exception.
    pub applied_exceptions: Vec<AppliedException>,
}
