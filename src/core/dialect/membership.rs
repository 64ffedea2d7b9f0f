//! The gang and role of a pod, and what the pod declares about its gang.

use std::time::Duration;

use super::duration;
use super::future_members::FutureMembers;
use super::gang_policies::GangPolicies;
use super::quorum::Quorum;
use crate::model::{GangId, Str};
use crate::objects::names;
use crate::objects::view::PodView;

/// The gang and role of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    /// The gang.
    pub gang: GangId,
    /// The subgroup or role within the gang; `None` where the pod names none.
    pub role: Option<Str>,
    /// What the pod declares about its gang. A group object overrides it.
    pub declared: Option<PodDeclaration>,
}

impl Membership {
    /// Whether both have the same gang and role. Declarations are not compared.
    pub fn same_gang_and_role(&self, other: &Self) -> bool {
        (&self.gang, &self.role) == (&other.gang, &other.role)
    }
}

/// What a pod declares about its gang in its own metadata.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodDeclaration {
    /// When the gang is complete; `None` where the pod does not declare it.
    pub quorum: Option<Quorum>,
    /// How long the gang may wait for its start.
    pub timeout: Option<Duration>,
    /// Policies of the gang.
    pub policies: GangPolicies,
    /// Members that are created only after this pod has started.
    pub future_members: Option<FutureMembers>,
}

impl PodDeclaration {
    /// Reads the annotations that all stacks share and adds `quorum`, which the keys of one stack declare.
    /// `None` when the pod declares nothing.
    pub(super) fn read(pod: &PodView<'_>, quorum: Option<Quorum>) -> Option<Self> {
        let timeout = pod.metadata.annotations.text(names::TIMEOUT_ANNOTATION).and_then(duration::parse);
        let policies = GangPolicies::read(&pod.metadata, &mut Vec::new());
        let future_members = FutureMembers::read(pod);
        let is_empty =
            quorum.is_none() && timeout.is_none() && policies.is_empty() && future_members.is_none();
        (!is_empty).then_some(Self { quorum, timeout, policies, future_members })
    }
}

/// How certain it is that a pod belongs to a gang. The strongest link of all dialects decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LinkStrength {
    /// A user or the owner of the pod named the gang.
    Explicit,
    /// The gang follows from other properties of the pod.
    Implied,
    /// The controller of a gang scheduler created a group for the pod after the pod was created.
    Generated,
}

/// Whether a name ends in a UID, as names that controllers generate do.
pub(super) fn ends_in_uid(name: &str) -> bool {
    const UID_BYTES: usize = 36;
    let Some(start) = name.len().checked_sub(UID_BYTES) else { return false };
    let Some(uid) = name.get(start..) else { return false };
    uid.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}
