//! What a member declares about its gang.

use crate::dialect::{PodDeclaration, Quorum};
use crate::engine::state::MemberState;
use crate::model::{PodKey, Time};

/// A member that declares something about its gang.
#[derive(Clone, Copy)]
pub(in crate::engine) struct MemberDeclaration<'a> {
    pub member: &'a MemberState,
    pub declared: &'a PodDeclaration,
}

impl<'a> MemberDeclaration<'a> {
    /// The declaration of a member. `None` if it declares nothing.
    pub(in crate::engine) fn of(member: &'a MemberState) -> Option<Self> {
        Some(Self { member, declared: member.pod.membership.as_ref()?.declared.as_ref()? })
    }

    /// Age and name of the pod, and the quorum that it declares. Sorts by age.
    pub(in crate::engine) fn quorum(&self) -> Option<(Time, &'a PodKey, &'a Quorum)> {
        Some((self.member.pod.created, &self.member.pod.key, self.declared.quorum.as_ref()?))
    }
}
