//! A set of policies that is evaluated together and swapped as a whole.

use crate::judgement::{Judgement, Mutation};
use crate::request::Request;
use crate::spec::ResourceRule;
use crate::world::World;

/// A policy of a set, for whoever lists them.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// `ValidatingAdmissionPolicy`, `MutatingAdmissionPolicy`, `GangPolicy`, ...
    pub kind: String,
    /// Name.
    pub name: String,
    /// The file it stands in.
    pub file: String,
    /// The line in which it begins.
    pub line: usize,
    /// Which requests it is about: the `resourceRules` of its `matchConstraints`.
    pub selects: Vec<ResourceRule>,
    /// Whether it changes objects, instead of judging them.
    pub mutates: bool,
}

/// All policies of one load. Cheap to share, never changed.
#[derive(Debug, Default)]
pub struct Set {
    hash: String,
    policies: Vec<Listed>,
}

impl Set {
    /// SHA-256 over all files, in hex: names the set in logs, metrics and denials.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The policies, in order of files and places.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = &Listed> {
        self.policies.iter()
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
