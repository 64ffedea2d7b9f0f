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
mod convert;
#[cfg(test)]
mod depth_tests;
mod evaluation;
mod matching;
mod merge;
mod mutating;
mod params;
mod patch;
mod selector;
mod size;
mod strict;
mod validating;

use std::ops::BitOr as _;

use crate::effort::Effort;
use crate::exception::Excepted;
use crate::judgement::{Judgement, Mutation};
use crate::request::{Request, text};
use crate::world::{Wishes, World};

use evaluation::Hearing;
use matching::Asked;
pub use mutating::Mutating;
use mutating::Run;
pub use params::Params;
pub(crate) use selector::Selector;
pub use validating::Validating;

/// All rules that are evaluated together.
#[derive(Debug, Default)]
pub struct Rules {
    validating: Vec<Validating>,
    mutating: Vec<Mutating>,
    params: Params,
}

impl Rules {
    /// Puts policies into the order in which they are asked.
    #[must_use]
    pub fn new(mut validating: Vec<Validating>, mut mutating: Vec<Mutating>, params: Params) -> Self {
        validating.sort_by(|a, b| a.name().cmp(b.name()));
        mutating.sort_by(|a, b| a.name().cmp(b.name()));
        Self { validating, mutating, params }
    }

    /// What all policies ask of the world.
    #[must_use]
    pub fn wishes(&self) -> Wishes {
        let validating = self.validating.iter().map(Validating::wishes);
        let all = validating.chain(self.mutating.iter().map(Mutating::wishes));
        all.fold(Wishes::default(), Wishes::bitor)
    }

    /// What the validating policies say.
    #[must_use]
    pub fn validate(&self, request: &Request<'_>, world: &World) -> Judgement {
        self.validate_within(&Effort::unlimited(), request, world)
    }

    pub(crate) fn validate_within(&self, effort: &Effort, request: &Request<'_>, world: &World) -> Judgement {
        let mut judgement = Judgement::default();
        let asked = Asked::new(*request, request.object());
        if asked.is_unseen() {
            return judgement;
        }
        let hearing = Hearing::new(request, world, &self.params, effort);
        for policy in &self.validating {
            policy.judge(&asked, &hearing, &mut judgement);
        }
        judgement
    }

    /// What the mutating policies make of the object.
    #[must_use]
    pub fn mutate(&self, request: &Request<'_>, world: &World) -> Mutation {
        self.mutate_within(&Effort::unlimited(), request, world, &|_| None)
    }

    /// The same without policies that are excepted.
    pub(crate) fn mutate_within(
        &self,
        effort: &Effort,
        request: &Request<'_>,
        world: &World,
        excepting: &dyn Fn(&str) -> Option<Excepted>,
    ) -> Mutation {
        let Some(object) = request.object() else { return Mutation::default() };
        if self.mutating.is_empty()
            || request.operation() == "DELETE"
            || Asked::new(*request, None).is_unseen()
        {
            return Mutation::default();
        }
        let hearing = Hearing::new(request, world, &self.params, effort);
        Run::new(*request, object.clone(), &hearing).all(&self.mutating, excepting)
    }
}
