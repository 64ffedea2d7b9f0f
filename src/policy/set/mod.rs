//! The policy set: all policies of one load, evaluated together and swapped as a whole.

mod exception;

pub use exception::PolicyException;

use crate::api::ResourceRule;
use crate::evaluation::{CompiledPolicies, MutationResult, ValidationResult};
use crate::input::{AdmissionRequest, ClusterData, DataDependencies, WorkBudget};
use exception::{active_exceptions, apply, exception_for};

/// A policy of a set, and where its source is.
#[derive(Clone, Debug, Default)]
pub struct PolicyEntry {
    /// `ValidatingAdmissionPolicy`, `MutatingAdmissionPolicy` or `GangPolicy`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// The file name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// Requests that the policy validates: the `resourceRules` of its `matchConstraints`.
    pub validates: Vec<ResourceRule>,
    /// Requests that the policy may mutate.
    pub mutates: Vec<ResourceRule>,
}

/// All policies of one load. A set is immutable and cheap to share.
#[derive(Debug, Default)]
pub struct PolicySet {
    hash: String,
    policies: Vec<PolicyEntry>,
    rules: CompiledPolicies,
    exceptions: Vec<PolicyException>,
}

impl PolicySet {
    pub(crate) fn new(
        hash: String,
        policies: Vec<PolicyEntry>,
        rules: CompiledPolicies,
        exceptions: Vec<PolicyException>,
    ) -> Self {
        Self { hash, policies, rules, exceptions }
    }

    /// SHA-256 over all files, in hex. It identifies the set in logs, metrics and denials.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the policies, ordered by file and line.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = &PolicyEntry> {
        self.policies.iter()
    }

    /// Returns the parts of [`ClusterData`] that the expressions of the policies read.
    #[must_use]
    pub fn data_dependencies(&self) -> DataDependencies {
        self.rules.data_dependencies()
    }

    /// Returns all exceptions, including expired ones.
    #[must_use]
    pub fn exceptions(&self) -> &[PolicyException] {
        &self.exceptions
    }

    /// Evaluates the validating policies and applies the exceptions.
    #[must_use]
    pub fn validate(&self, request: &AdmissionRequest<'_>, cluster: &ClusterData) -> ValidationResult {
        self.validate_within(&WorkBudget::unlimited(), request, cluster)
    }

    /// Same as [`Self::validate`]. The result must be discarded if the work budget is exhausted.
    pub(crate) fn validate_within(
        &self,
        work_budget: &WorkBudget,
        request: &AdmissionRequest<'_>,
        cluster: &ClusterData,
    ) -> ValidationResult {
        let mut validation = self.rules.validate(request, cluster, work_budget);
        let exceptions = active_exceptions(&self.exceptions, request, cluster.now);
        // A GangPolicy denies under its own name, so exceptions name it and not the translated policy.
        let names = self.policies.iter().map(|policy| policy.name.as_str());
        apply(&mut validation, &exceptions, names);
        validation
    }

    /// Evaluates the mutating policies. A policy with a matching exception is not evaluated.
    #[must_use]
    pub fn mutate(&self, request: &AdmissionRequest<'_>, cluster: &ClusterData) -> MutationResult {
        self.mutate_within(&WorkBudget::unlimited(), request, cluster)
    }

    /// Same as [`Self::mutate`]. The result must be discarded if the work budget is exhausted.
    pub(crate) fn mutate_within(
        &self,
        work_budget: &WorkBudget,
        request: &AdmissionRequest<'_>,
        cluster: &ClusterData,
    ) -> MutationResult {
        let exceptions = active_exceptions(&self.exceptions, request, cluster.now);
        let exception_for = |policy: &str| exception_for(policy, &exceptions);
        self.rules.mutate(request, cluster, work_budget, &exception_for)
    }
}

#[cfg(test)]
mod tests;
