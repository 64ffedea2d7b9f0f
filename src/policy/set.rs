//! A set of policies that is evaluated together and swapped as a whole.

use portcullis_text::hash::sha256_hex;

use crate::effort::Effort;
use crate::exception::{Exception, apply, excepting, holding};
use crate::judgement::{Judgement, Mutation};
use crate::load::SourceFile;
use crate::request::Request;
use crate::rules::Rules;
use crate::spec::ResourceRule;
use crate::world::{Wishes, World};

/// A policy of a set and where it is written.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// `ValidatingAdmissionPolicy`, `MutatingAdmissionPolicy` or `GangPolicy`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// The file.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// Which requests it judges: the `resourceRules` of its `matchConstraints`.
    pub judges: Vec<ResourceRule>,
    /// Which requests it may change.
    pub changes: Vec<ResourceRule>,
}

/// All policies of one load. Cheap to share, never changed.
#[derive(Debug, Default)]
pub struct Set {
    hash: String,
    policies: Vec<Listed>,
    rules: Rules,
    exceptions: Vec<Exception>,
}

impl Set {
    pub(crate) fn new(hash: String, policies: Vec<Listed>, rules: Rules, exceptions: Vec<Exception>) -> Self {
        Self { hash, policies, rules, exceptions }
    }

    /// SHA-256 over all files, in hex: names the set in logs, metrics and denials.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Its policies as they are written in files, by file and line.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = &Listed> {
        self.policies.iter()
    }

    /// What has to be known of the world for its policies.
    #[must_use]
    pub fn wishes(&self) -> Wishes {
        self.rules.wishes()
    }

    /// Its exceptions, also those that have ended.
    #[must_use]
    pub fn exceptions(&self) -> &[Exception] {
        &self.exceptions
    }

    /// What the validating policies say, with exceptions applied.
    #[must_use]
    pub fn validate(&self, request: &Request<'_>, world: &World) -> Judgement {
        self.validate_within(&Effort::unlimited(), request, world)
    }

    /// The same, and nothing to go by where the effort does not suffice.
    pub(crate) fn validate_within(&self, effort: &Effort, request: &Request<'_>, world: &World) -> Judgement {
        let mut judgement = self.rules.validate_within(effort, request, world);
        let exceptions = holding(&self.exceptions, request, world.now);
        // What a GangPolicy refuses, it refuses under its own name.
        let names = self.policies.iter().map(|policy| policy.name.as_str());
        apply(&mut judgement, &exceptions, names);
        judgement
    }

    /// What the mutating policies make of the object. A policy that an exception is for is not asked.
    #[must_use]
    pub fn mutate(&self, request: &Request<'_>, world: &World) -> Mutation {
        self.mutate_within(&Effort::unlimited(), request, world)
    }

    /// The same, and nothing to go by where the effort does not suffice.
    pub(crate) fn mutate_within(&self, effort: &Effort, request: &Request<'_>, world: &World) -> Mutation {
        let exceptions = holding(&self.exceptions, request, world.now);
        let excepting = |policy: &str| excepting(policy, &exceptions);
        self.rules.mutate_within(effort, request, world, &excepting)
    }
}

/// Names a set by its files: their names without directories, so that a set is the same wherever it is mounted, and their bytes.
pub(crate) fn hash(files: &[&SourceFile]) -> String {
    sha256_hex(files.iter().flat_map(|file| {
        let name = file.name.rsplit('/').next().unwrap_or_default();
        [name.as_bytes(), &file.bytes]
    }))
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
