//! A set of policies that is evaluated together and swapped as a whole.

use crate::judgement::{Judgement, Mutation};
use crate::request::Request;
use crate::world::World;

/// All policies of one load. Cheap to share, never changed.
#[derive(Debug, Default)]
pub struct Set {
    hash: String,
}

impl Set {
    /// SHA-256 over all files, in hex: names the set in logs, metrics and denials.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// What the validating policies say.
    #[must_use]
    pub fn validate(&self, _request: &Request<'_>, _world: &World) -> Judgement {
        Judgement::default()
    }

    /// What the mutating policies make of the object.
    #[must_use]
    pub fn mutate(&self, _request: &Request<'_>, _world: &World) -> Mutation {
        Mutation::default()
    }
}
