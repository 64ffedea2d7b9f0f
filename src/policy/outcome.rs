//! What a set does with a request, and where two sets do different things: what a shadow counts and a replay shows.

use std::collections::BTreeSet;

use json_patch::PatchOperation;
use portcullis_core::admission::Hook;
use serde_json::Value as Json;

use crate::effort::Effort;
use crate::exception::Excepted;
use crate::judgement::{Denial, Judgement, Mutation};
use crate::request::Request;
use crate::set::Set;
use crate::world::World;

/// What a set does with a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Its mutating policies were asked.
    Mutated(Mutation),
    /// Its validating policies were asked.
    Validated(Judgement),
}

impl Outcome {
    /// Asks the policies that this hook is for; none where the effort does not suffice.
    #[must_use]
    pub fn of(set: &Set, hook: Hook, request: &Request<'_>, world: &World, effort: &Effort) -> Option<Self> {
        let outcome = match hook {
            Hook::Mutate => Self::Mutated(set.mutate_within(effort, request, world)),
            Hook::Validate => Self::Validated(set.validate_within(effort, request, world)),
        };
        (!effort.is_spent()).then_some(outcome)
    }

    /// Why it is refused; none when it is allowed.
    #[must_use]
    pub fn denials(&self) -> &[Denial] {
        match self {
            Self::Mutated(mutation) => &mutation.denials,
            Self::Validated(judgement) => &judgement.denials,
        }
    }

    /// Rules that failed and were passed over.
    #[must_use]
    pub fn ignored(&self) -> &[String] {
        match self {
            Self::Mutated(mutation) => &mutation.ignored,
            Self::Validated(judgement) => &judgement.ignored,
        }
    }

    /// What exceptions have let in.
    #[must_use]
    pub fn excepted(&self) -> &[Excepted] {
        match self {
            Self::Mutated(mutation) => &mutation.excepted,
            Self::Validated(judgement) => &judgement.excepted,
        }
    }

    fn denied_by(&self) -> BTreeSet<&str> {
        self.denials().iter().map(|denial| denial.policy.as_str()).collect()
    }

    fn mutation(&self) -> Option<&Mutation> {
        match self {
            Self::Mutated(mutation) => Some(mutation),
            Self::Validated(_) => None,
        }
    }
}

/// What becomes of a whole review when the API server asks both hooks, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Through {
    /// The object as it is stored; none where there is none, or nothing was changed.
    pub object: Option<Json>,
    /// What the mutating policies have done.
    pub mutation: Mutation,
    /// What the validating policies say of the object as it is then; nothing where a mutating one refuses it.
    pub judgement: Judgement,
}

impl Through {
    /// Asks the mutating policies about the request, and the validating ones about what they made of it.
    #[must_use]
    pub fn of(set: &Set, request: &Request<'_>, world: &World) -> Self {
        let mutation = set.mutate(request, world);
        if !mutation.denials.is_empty() {
            return Self { object: None, mutation, judgement: Judgement::default() };
        }
        let judgement = match &mutation.object {
            None => set.validate(request, world),
            Some(object) => {
                let mut changed = request.json.clone();
                changed["object"] = object.clone();
                set.validate(&Request { json: &changed }, world)
            }
        };
        Self { object: mutation.object.clone(), mutation, judgement }
    }

    /// Why it is refused, by either.
    pub fn denials(&self) -> impl Iterator<Item = &Denial> {
        self.mutation.denials.iter().chain(&self.judgement.denials)
    }

    /// Both hooks as one, for a comparison.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let denials = self.denials().cloned().collect();
        Outcome::Mutated(Mutation { denials, ..self.mutation.clone() })
    }
}

/// What a second set does otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// It refuses what the first one allows.
    WouldDeny,
    /// It allows what the first one refuses.
    WouldAllow,
    /// Both allow it, and it makes another object of it.
    OtherPatch,
}

impl Change {
    /// For logs, metrics and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WouldDeny => "would_deny",
            Self::WouldAllow => "would_allow",
            Self::OtherPatch => "other_patch",
        }
    }
}

/// One difference, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The policy: of the second set where that refuses, of the first one where that did.
    pub policy: String,
    /// What is different.
    pub change: Change,
    /// The message of the denial, or the fields that are different.
    pub detail: String,
}

/// Where the second outcome differs from the first one, for `object` as it came: one entry for each policy, in order.
#[must_use]
pub fn differences(object: &Json, first: &Outcome, second: &Outcome) -> Vec<Difference> {
    let verdicts = (first.denials().is_empty(), second.denials().is_empty());
    let (change, denials, others) = match verdicts {
        (true, true) => return other_patch(object, first, second).into_iter().collect(),
        (false, false) => return Vec::new(),
        (true, false) => (Change::WouldDeny, second.denials(), first.denied_by()),
        (false, true) => (Change::WouldAllow, first.denials(), second.denied_by()),
    };
    let mut told = BTreeSet::new();
    let mine = denials.iter().filter(|denial| !others.contains(denial.policy.as_str()));
    mine.filter(|denial| told.insert(denial.policy.as_str()))
        .map(|denial| Difference {
            policy: denial.policy.clone(),
            change,
            detail: match &denial.field {
                Some(field) => format!("{field}: {}", denial.detail),
                None => denial.detail.clone(),
            },
        })
        .collect()
}

/// How many fields of a different object are named.
const NAMED_FIELDS: usize = 5;

fn other_patch(object: &Json, first: &Outcome, second: &Outcome) -> Option<Difference> {
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
    // Who changes it in one set alone is whose difference it is; where the same ones do, they do it in another way.
    let mut policies: Vec<&str> = of_first.symmetric_difference(&of_second).copied().collect();
    if policies.is_empty() {
        policies = of_second.into_iter().collect();
    }
    Some(Difference {
        policy: policies.join(","),
        change: Change::OtherPatch,
        detail: changed_fields(before, after),
    })
}

/// The places where two objects differ, as JSON pointers.
fn changed_fields(before: &Json, after: &Json) -> String {
    let patch = json_patch::diff(before, after);
    let paths: BTreeSet<String> = patch.0.iter().map(path_of).collect();
    let more = paths.len().saturating_sub(NAMED_FIELDS);
    let named: Vec<String> = paths.into_iter().take(NAMED_FIELDS).collect();
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

    fn judged(denials: &[&Denial]) -> Outcome {
        let denials = denials.iter().copied().cloned().collect();
        Outcome::Validated(Judgement { denials, ..Judgement::default() })
    }

    fn mutated(object: Option<Json>, by: &[&str]) -> Outcome {
        let changed_by = by.iter().map(|name| (*name).to_owned()).collect();
        Outcome::Mutated(Mutation { object, changed_by, ..Mutation::default() })
    }

    #[test]
    fn a_difference_names_the_policy_whose_it_is() {
        let object = json!({"metadata": {"labels": {"a": "1"}}});
        let check = |first: &Outcome, second: &Outcome, expected: &[(&str, Change, &str)]| {
            let found = differences(&object, first, second);
            let found: Vec<_> =
                found.iter().map(|d| (d.policy.as_str(), d.change, d.detail.as_str())).collect();
            assert_eq!(found, expected);
        };
        let (a, b) = (denial("a", None, "too much"), denial("b", Some("spec.x"), "wrong"));
        check(&judged(&[]), &judged(&[]), &[]);
        check(&judged(&[]), &judged(&[&b]), &[("b", Change::WouldDeny, "spec.x: wrong")]);
        check(&judged(&[&a]), &judged(&[]), &[("a", Change::WouldAllow, "too much")]);
        // Refused by both, whatever the words: the user sees a refusal.
        check(&judged(&[&a]), &judged(&[&b]), &[]);
        let both = [&b, &a, &b];
        check(
            &judged(&[]),
            &judged(&both),
            &[("b", Change::WouldDeny, "spec.x: wrong"), ("a", Change::WouldDeny, "too much")],
        );

        let labelled = |value: &str| Some(json!({"metadata": {"labels": {"a": value, "b": value}}}));
        check(&mutated(None, &[]), &mutated(None, &[]), &[]);
        check(&mutated(labelled("1"), &["x"]), &mutated(labelled("1"), &["y"]), &[]);
        check(
            &mutated(None, &[]),
            &mutated(labelled("1"), &["x"]),
            &[("x", Change::OtherPatch, "/metadata/labels/b")],
        );
        check(
            &mutated(labelled("1"), &["x"]),
            &mutated(labelled("2"), &["x"]),
            &[("x", Change::OtherPatch, "/metadata/labels/a, /metadata/labels/b")],
        );
    }
}
