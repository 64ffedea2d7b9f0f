//! Rules over requests: `ValidatingAdmissionPolicy` and `MutatingAdmissionPolicy` with the meaning that the API server of 1.36 gives
//! them, in its words. Policies are asked in the order of their names, and so are the bindings of one policy; the API server's own
//! order is random.
//!
//! ```text
//! matching      is the request meant? rules, selectors, other versions       compile     expressions -> programs, or faults
//! evaluation    variables, conditions, budgets of one request                params      objects that bindings hand to policies
//! validating    decisions: deny, warn, audit                                 mutating    patches: applied in order, and once more
//! patch         RFC 6902 as the API server applies it                        merge       apply configurations
//! ```
//!
//! Invariant: what one request costs is bounded, whatever the rules are: by the API server's budgets and by [`portcullis_cel::MAX_EXPRESSION_WORK`].

mod compile;
mod context;
#[cfg(test)]
mod depth_tests;
mod matching;
mod mutating;
mod params;
mod patch;
mod result;
mod selector;
mod validating;

use std::ops::BitOr as _;

use crate::input::{AdmissionRequest, ClusterData, DataDependencies, WorkBudget};

use context::EvaluationContext;
use matching::RequestAttributes;
use mutating::MutationRun;

pub use mutating::MutatingPolicy;
pub use params::ParamStore;
pub use result::{AppliedException, Denial, MutationResult, ValidationResult};
pub(crate) use selector::LabelMatcher;
pub use validating::ValidatingPolicy;

/// All rules that are evaluated together.
#[derive(Debug, Default)]
pub struct CompiledPolicies {
    validating: Vec<ValidatingPolicy>,
    mutating: Vec<MutatingPolicy>,
    params: ParamStore,
}

impl CompiledPolicies {
    /// Puts policies into the order in which they are asked.
    #[must_use]
    pub fn new(
        mut validating: Vec<ValidatingPolicy>,
        mut mutating: Vec<MutatingPolicy>,
        params: ParamStore,
    ) -> Self {
        validating.sort_by(|a, b| a.name().cmp(b.name()));
        mutating.sort_by(|a, b| a.name().cmp(b.name()));
        Self { validating, mutating, params }
    }

    /// What all policies ask of the world.
    #[must_use]
    pub fn data_dependencies(&self) -> DataDependencies {
        let validating = self.validating.iter().map(ValidatingPolicy::data_dependencies);
        let all = validating.chain(self.mutating.iter().map(MutatingPolicy::data_dependencies));
        all.fold(DataDependencies::default(), DataDependencies::bitor)
    }

    /// What the validating policies say.
    #[must_use]
    pub fn validate(&self, request: &AdmissionRequest<'_>, cluster: &ClusterData) -> ValidationResult {
        self.validate_within(&WorkBudget::unlimited(), request, cluster)
    }

    pub(crate) fn validate_within(
        &self,
        work_budget: &WorkBudget,
        request: &AdmissionRequest<'_>,
        cluster: &ClusterData,
    ) -> ValidationResult {
        let mut validation = ValidationResult::default();
        let attributes = RequestAttributes::new(*request, request.object());
        if attributes.is_unseen() {
            return validation;
        }
        let context = EvaluationContext::new(request, cluster, &self.params, work_budget);
        for policy in &self.validating {
            policy.judge(&attributes, &context, &mut validation);
        }
        validation
    }

    /// What the mutating policies make of the object.
    #[must_use]
    pub fn mutate(&self, request: &AdmissionRequest<'_>, cluster: &ClusterData) -> MutationResult {
        self.mutate_within(&WorkBudget::unlimited(), request, cluster, &|_| None)
    }

    /// The same without policies that are excepted.
    pub(crate) fn mutate_within(
        &self,
        work_budget: &WorkBudget,
        request: &AdmissionRequest<'_>,
        cluster: &ClusterData,
        excepting: &dyn Fn(&str) -> Option<AppliedException>,
    ) -> MutationResult {
        let Some(object) = request.object() else { return MutationResult::default() };
        if self.mutating.is_empty()
            || request.operation() == "DELETE"
            || RequestAttributes::new(*request, None).is_unseen()
        {
            return MutationResult::default();
        }
        let context = EvaluationContext::new(request, cluster, &self.params, work_budget);
        MutationRun::new(*request, object.clone(), &context).all(&self.mutating, excepting)
    }
}
