//! The outcome of a policy set for a request, and the differences between the outcomes of two sets. Shadow
//! evaluation counts the differences, `portcullis replay` shows them.

use std::collections::BTreeSet;

use json_patch::PatchOperation;
use portcullis_core::admission::Hook;
use serde_json::Value as Json;

use crate::evaluation::{AppliedException, Denial, MutationResult, ValidationResult};
use crate::input::{AdmissionRequest, ClusterData, WorkBudget};
use crate::set::PolicySet;

/// The outcome of one webhook call.
#[derive(Clone, Debug, PartialEq)]
pub enum HookOutcome {
    /// The mutating policies were evaluated.
    Mutated(MutationResult),
    /// The validating policies were evaluated.
    Validated(ValidationResult),
}

impl HookOutcome {
    /// Evaluates the policies of this hook. `None` if the work budget is exhausted.
    #[must_use]
    pub fn evaluate(
        set: &PolicySet,
        hook: Hook,
        request: &AdmissionRequest<'_>,
        cluster: &ClusterData,
        work_budget: &WorkBudget,
    ) -> Option<Self> {
        let outcome = match hook {
            Hook::Mutate => Self::Mutated(set.mutate_within(work_budget, request, cluster)),
            Hook::Validate => Self::Validated(set.validate_within(work_budget, request, cluster)),
        };
        (!work_budget.is_exhausted()).then_some(outcome)
    }

    /// Returns the denials; none if the request is allowed.
    #[must_use]
    pub fn denials(&self) -> &[Denial] {
        match self {
            Self::Mutated(mutation) => &mutation.denials,
            Self::Validated(validation) => &validation.denials,
        }
    }

    /// Returns the errors that `failurePolicy: Ignore` ignored.
    #[must_use]
    pub fn ignored_errors(&self) -> &[String] {
        match self {
            Self::Mutated(mutation) => &mutation.ignored_errors,
            Self::Validated(validation) => &validation.ignored_errors,
        }
    }

    /// Returns the exceptions that allowed something.
    #[must_use]
    pub fn applied_exceptions(&self) -> &[AppliedException] {
        match self {
            Self::Mutated(mutation) => &mutation.applied_exceptions,
            Self::Validated(validation) => &validation.applied_exceptions,
        }
    }

    fn denied_by(&self) -> BTreeSet<&str> {
        self.denials().iter().map(|denial| denial.policy.as_str()).collect()
    }

    fn mutation(&self) -> Option<&MutationResult> {
        match self {
            Self::Mutated(mutation) => Some(mutation),
            Self::Validated(_) => None,
        }
    }
}

/// The outcome of a whole admission: both hooks, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionOutcome {
    /// The stored object; `None` if there is none or nothing was changed.
    pub object: Option<Json>,
    /// Result of the mutating policies.
    pub mutation: MutationResult,
    /// Result of the validating policies for the mutated object; empty if a mutating policy denies.
    pub validation: ValidationResult,
}

impl AdmissionOutcome {
    /// Evaluates the mutating policies, and then the validating policies for the mutated object.
    #[must_use]
    pub fn evaluate(set: &PolicySet, request: &AdmissionRequest<'_>, cluster: &ClusterData) -> Self {
        let mutation = set.mutate(request, cluster);
        if !mutation.denials.is_empty() {
            return Self { object: None, mutation, validation: ValidationResult::default() };
        }
        let validation = match &mutation.object {
            None => set.validate(request, cluster),
            Some(object) => {
                let mut changed = request.json.clone();
                changed["object"] = object.clone();
                set.validate(&AdmissionRequest { json: &changed }, cluster)
            }
        };
        Self { object: mutation.object.clone(), mutation, validation }
    }

    /// Returns the denials of both hooks.
    pub fn denials(&self) -> impl Iterator<Item = &Denial> {
        self.mutation.denials.iter().chain(&self.validation.denials)
    }

    /// Returns both hooks as one outcome, for [`compare_outcomes`].
    #[must_use]
    pub fn combined(&self) -> HookOutcome {
        let denials = self.denials().cloned().collect();
        HookOutcome::Mutated(MutationResult { denials, ..self.mutation.clone() })
    }
}

/// How the outcome of a second set differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DifferenceKind {
    /// The second set denies what the first set allows.
    WouldDeny,
    /// The second set allows what the first set denies.
    WouldAllow,
    /// Both allow it, and the mutated objects differ.
    OtherPatch,
}

impl DifferenceKind {
    /// Returns the name in logs, metrics and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WouldDeny => "would_deny",
            Self::WouldAllow => "would_allow",
            Self::OtherPatch => "other_patch",
        }
    }
}

/// One difference and the policy that causes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutcomeDifference {
    /// The policy: of the second set if that denies, of the first set if that denied.
    pub policy: String,
    /// How the outcomes differ.
    pub kind: DifferenceKind,
    /// The message of the denial, or the fields that differ.
    pub detail: String,
}

/// Returns the differences of the second outcome from the first, one per policy, in order. `object` is the
/// object of the request.
#[must_use]
pub fn compare_outcomes(object: &Json, first: &HookOutcome, second: &HookOutcome) -> Vec<OutcomeDifference> {
    let verdicts = (first.denials().is_empty(), second.denials().is_empty());
    let (change, denials, others) = match verdicts {
        (true, true) => return patch_difference(object, first, second).into_iter().collect(),
        (false, false) => return Vec::new(),
        (true, false) => (DifferenceKind::WouldDeny, second.denials(), first.denied_by()),
        (false, true) => (DifferenceKind::WouldAllow, first.denials(), second.denied_by()),
    };
    let mut reported = BTreeSet::new();
    let mine = denials.iter().filter(|denial| !others.contains(denial.policy.as_str()));
    mine.filter(|denial| reported.insert(denial.policy.as_str()))
        .map(|denial| OutcomeDifference {
            policy: denial.policy.clone(),
            kind: change,
            detail: match &denial.field {
                Some(field) => format!("{field}: {}", denial.detail),
                None => denial.detail.clone(),
            },
        })
        .collect()
}

/// Maximum number of differing fields in a message.
const MAX_NAMED_FIELDS: usize = 5;

fn patch_difference(object: &Json, first: &HookOutcome, second: &HookOutcome) -> Option<OutcomeDifference> {
    let (first, second) = (first.mutation()?, second.mutation()?);
    let before = first.object.as_ref().unwrap_or(object);
    let after = second.object.as_ref().unwrap_or(object);
    if before == after {
        return None;
    }
    let (of_first, of_second): (BTreeSet<&str>, BTreeSet<&str>) = (
        first.changed_by.iter().map(String::as_str).collect(),
        second.changed_by.iter().map(String::as_str).collect(),
    );
    // A policy that changes the object in only one of the sets causes the difference. If the same policies
    // change it in both, all of them do.
    let mut policies: Vec<&str> = of_first.symmetric_difference(&of_second).copied().collect();
    if policies.is_empty() {
        policies = of_second.into_iter().collect();
    }
    Some(OutcomeDifference {
        policy: policies.join(","),
        kind: DifferenceKind::OtherPatch,
        detail: changed_fields(before, after),
    })
}

/// Returns the JSON pointers at which two objects differ.
fn changed_fields(before: &Json, after: &Json) -> String {
    let patch = json_patch::diff(before, after);
    let paths: BTreeSet<String> = patch.0.iter().map(path_of).collect();
    let more = paths.len().saturating_sub(MAX_NAMED_FIELDS);
    let named: Vec<String> = paths.into_iter().take(MAX_NAMED_FIELDS).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

fn path_of(operation: &PatchOperation) -> String {
    operation.path().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn denial(policy: &str, field: Option<&str>, message: &str) -> Denial {
        Denial {
            policy: policy.to_owned(),
            binding: "everywhere".to_owned(),
            rule: "/spec/validations/0".to_owned(),
            field: field.map(str::to_owned),
            message: message.to_owned(),
            detail: message.to_owned(),
            reason: "Invalid".to_owned(),
        }
    }

    fn judged(denials: &[&Denial]) -> HookOutcome {
        let denials = denials.iter().copied().cloned().collect();
        HookOutcome::Validated(ValidationResult { denials, ..ValidationResult::default() })
    }

    fn mutated(object: Option<Json>, by: &[&str]) -> HookOutcome {
        let changed_by = by.iter().map(|name| (*name).to_owned()).collect();
        HookOutcome::Mutated(MutationResult { object, changed_by, ..MutationResult::default() })
    }

    #[test]
    fn a_difference_names_the_policy_whose_it_is() {
        let object = json!({"metadata": {"labels": {"a": "1"}}});
        let check = |first: &HookOutcome, second: &HookOutcome, expected: &[(&str, DifferenceKind, &str)]| {
            let found = compare_outcomes(&object, first, second);
            let found: Vec<_> =
                found.iter().map(|d| (d.policy.as_str(), d.kind, d.detail.as_str())).collect();
            assert_eq!(found, expected);
        };
        let (a, b) = (denial("a", None, "too much"), denial("b", Some("spec.x"), "wrong"));
        check(&judged(&[]), &judged(&[]), &[]);
        check(&judged(&[]), &judged(&[&b]), &[("b", DifferenceKind::WouldDeny, "spec.x: wrong")]);
        check(&judged(&[&a]), &judged(&[]), &[("a", DifferenceKind::WouldAllow, "too much")]);
        // Denied by both sets: the user sees a denial in any case, so messages do not matter.
        check(&judged(&[&a]), &judged(&[&b]), &[]);
        let both = [&b, &a, &b];
        check(
            &judged(&[]),
            &judged(&both),
            &[
                ("b", DifferenceKind::WouldDeny, "spec.x: wrong"),
                ("a", DifferenceKind::WouldDeny, "too much"),
            ],
        );

        let labelled = |value: &str| Some(json!({"metadata": {"labels": {"a": value, "b": value}}}));
        check(&mutated(None, &[]), &mutated(None, &[]), &[]);
        check(&mutated(labelled("1"), &["x"]), &mutated(labelled("1"), &["y"]), &[]);
        check(
            &mutated(None, &[]),
            &mutated(labelled("1"), &["x"]),
            &[("x", DifferenceKind::OtherPatch, "/metadata/labels/b")],
        );
        check(
            &mutated(labelled("1"), &["x"]),
            &mutated(labelled("2"), &["x"]),
            &[("x", DifferenceKind::OtherPatch, "/metadata/labels/a, /metadata/labels/b")],
        );
    }
}
