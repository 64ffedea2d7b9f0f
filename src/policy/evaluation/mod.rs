//! Evaluation of `ValidatingAdmissionPolicy` and `MutatingAdmissionPolicy` with the meaning and the messages
//! of the API server 1.36, oddities included.
//!
//! | module | does |
//! |---|---|
//! | `matching`, `selector` | does a request match? rules, selectors, equivalent versions |
//! | `params` | the objects that bindings pass to policies |
//! | `compile` | expressions to programs, or diagnostics |
//! | `context` | variables, match conditions and budgets of one request |
//! | `validating` | rules to denials, warnings and audit annotations |
//! | `mutating`, `patch` | patches, applied in order and reinvoked once |
//! | `result` | what an evaluation returns |
//!
//! Two differences from the API server are intended. Policies and bindings are evaluated in the order of
//! their names, where the API server's order is random. And the API server fills in defaults
//! (`imagePullPolicy`, `terminationMessagePath`) after each mutation, here only after the webhook's answer,
//! so a second policy does not see them. Every other difference is listed with its reason in
//! `tests/data/policies/differences.json`; `tests/differential.rs` fails on any other one and on one that has
//! disappeared.
//!
//! Invariant: the API server's budgets and [`portcullis_cel::MAX_EXPRESSION_WORK`] bound the cost of every
//! request, whatever the policies say.

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

/// All compiled policies of a set.
#[derive(Debug, Default)]
pub struct CompiledPolicies {
    validating: Vec<ValidatingPolicy>,
    mutating: Vec<MutatingPolicy>,
    params: ParamStore,
}

impl CompiledPolicies {
    /// Sorts policies into the order in which they are evaluated.
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

    /// Returns what the policies read from [`ClusterData`].
    #[must_use]
    pub fn data_dependencies(&self) -> DataDependencies {
        let validating = self.validating.iter().map(ValidatingPolicy::data_dependencies);
        let all = validating.chain(self.mutating.iter().map(MutatingPolicy::data_dependencies));
        all.fold(DataDependencies::default(), DataDependencies::bitor)
    }

    /// Evaluates the validating policies. The result must be discarded if the work budget is exhausted.
    #[must_use]
    pub fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        cluster: &ClusterData,
        work_budget: &WorkBudget,
    ) -> ValidationResult {
        let mut validation = ValidationResult::default();
        let attributes = RequestAttributes::new(*request, request.object());
        if attributes.is_never_matched() {
            return validation;
        }
        let context = EvaluationContext::new(request, cluster, &self.params, work_budget);
        for policy in &self.validating {
            policy.evaluate_request(&attributes, &context, &mut validation);
        }
        validation
    }

    /// Evaluates the mutating policies, without those that an exception covers. The result must be discarded
    /// if the work budget is exhausted.
    #[must_use]
    pub fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        cluster: &ClusterData,
        work_budget: &WorkBudget,
        exception_for: &dyn Fn(&str) -> Option<AppliedException>,
    ) -> MutationResult {
        let Some(object) = request.object() else { return MutationResult::default() };
        if self.mutating.is_empty()
            || request.operation() == "DELETE"
            || RequestAttributes::new(*request, None).is_never_matched()
        {
            return MutationResult::default();
        }
        let context = EvaluationContext::new(request, cluster, &self.params, work_budget);
        MutationRun::new(*request, object.clone(), &context).all(&self.mutating, exception_for)
    }
}
