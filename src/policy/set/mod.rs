//! A set of policies that is evaluated together and swapped as a whole.

mod exception;

pub use exception::PolicyException;

use crate::api::ResourceRule;
use crate::evaluation::{CompiledPolicies, MutationResult, ValidationResult};
use crate::input::{AdmissionRequest, ClusterData, DataDependencies, WorkBudget};
use exception::{apply, excepting, holding};

/// A policy of a set and where it is written.
#[derive(Clone, Debug, Default)]
pub struct PolicyEntry {
    /// `ValidatingAdmissionPolicy`, `MutatingAdmissionPolicy` or `GangPolicy`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// The file.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// Which requests it judges: the `resourceRules` of its `matchConstraints`.
    pub validates: Vec<ResourceRule>,
    /// Which requests it may change.
    pub mutates: Vec<ResourceRule>,
}

/// All policies of one load. Cheap to share, never changed.
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

    /// SHA-256 over all files, in hex: names the set in logs, metrics and denials.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Its policies as they are written in files, by file and line.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = &PolicyEntry> {
        self.policies.iter()
    }

    /// What has to be known of the world for its policies.
    #[must_use]
    pub fn data_dependencies(&self) -> DataDependencies {
        self.rules.data_dependencies()
    }

    /// Its exceptions, also those that have ended.
    #[must_use]
    pub fn exceptions(&self) -> &[PolicyException] {
        &self.exceptions
    }

    /// What the validating policies say, with exceptions applied.
    #[must_use]
    pub fn validate(&self, request: &AdmissionRequest<'_>, cluster: &ClusterData) -> ValidationResult {
        self.validate_within(&WorkBudget::unlimited(), request, cluster)
    }

    /// The same, and nothing to go by where the effort does not suffice.
    pub(crate) fn validate_within(
        &self,
        work_budget: &WorkBudget,
        request: &AdmissionRequest<'_>,
        cluster: &ClusterData,
    ) -> ValidationResult {
        let mut validation = self.rules.validate_within(work_budget, request, cluster);
        let exceptions = holding(&self.exceptions, request, cluster.now);
        // What a GangPolicy refuses, it refuses under its own name.
        let names = self.policies.iter().map(|policy| policy.name.as_str());
        apply(&mut validation, &exceptions, names);
        validation
    }

    /// What the mutating policies make of the object. A policy that an exception is for is not asked.
    #[must_use]
    pub fn mutate(&self, request: &AdmissionRequest<'_>, cluster: &ClusterData) -> MutationResult {
        self.mutate_within(&WorkBudget::unlimited(), request, cluster)
    }

    /// The same, and nothing to go by where the effort does not suffice.
    pub(crate) fn mutate_within(
        &self,
        work_budget: &WorkBudget,
        request: &AdmissionRequest<'_>,
        cluster: &ClusterData,
    ) -> MutationResult {
        let exceptions = holding(&self.exceptions, request, cluster.now);
        let excepting = |policy: &str| excepting(policy, &exceptions);
        self.rules.mutate_within(work_budget, request, cluster, &excepting)
    }
}

#[cfg(test)]
mod tests;
