//! The missing members of a gang: members whose pods do not exist yet, as far as their requests are known.

use std::sync::Arc;

use crate::dialect::{FutureMembers, Group, Quorum};
use crate::engine::members::{MemberCounts, RoleCounts, role};
use crate::engine::state::{EngineView, Gang, GroupObjects};
use crate::model::{Str, str};
use crate::objects::{PodLabels, names};
use crate::pod::Pod;
use crate::shape::Shape;

/// Upper bound of placeholders per gang. A larger number is treated as a typo and the gang is not planned.
const MAX_PLACEHOLDERS_PER_GANG: usize = 2048;

/// A missing member, whose pod does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct MissingMember {
    pub role: Option<Str>,
    /// Without labels where only the shape of the member is known.
    pub labels: PodLabels,
    pub shape: Arc<Shape>,
}

impl Gang {
    /// The members that are missing beside these counts, so that the gang is complete. Empty if none is
    /// missing, or if the requests of one of them are unknown.
    pub(in crate::engine) fn missing_members(
        &self,
        view: &EngineView<'_>,
        mut counts: RoleCounts,
    ) -> Vec<MissingMember> {
        let Some(group) = self.group(view) else { return Vec::new() };
        // Waiting pods first: their affinity contains no node of a lift.
        let mut pods: Vec<(&Pod, &FutureMembers)> = (self.members.values())
            .filter(|member| member.live() && (member.ready() || !member.pod.gated()))
            .filter_map(|member| Some((&member.pod, future_members(&member.pod)?)))
            .collect();
        if pods.is_empty() {
            return Vec::new();
        }
        pods.sort_by_key(|(pod, _)| (!pod.gated(), pod.created, &pod.key));
        let quorum = self.full_quorum(view, group);
        let mut missing = Vec::new();
        let sources = MemberSources { pods, group_objects: view.group_objects };
        sources.fill_quorum(&quorum, None, &mut counts, &mut missing);
        let known = missing.len() <= MAX_PLACEHOLDERS_PER_GANG && quorum.is_satisfied(&counts);
        if known { missing } else { Vec::new() }
    }

    /// The quorum if missing members count: a group that lets a leader start alone means its workers too.
    pub(in crate::engine) fn full_quorum(&self, view: &EngineView<'_>, group: &Group) -> Quorum {
        let Quorum::Count(least) = group.quorum else { return group.quorum.clone() };
        let pods = self.members.values().map(|member| &member.pod);
        let replicas = pods.filter_map(|pod| match future_members(pod)? {
            FutureMembers::Replica { set, size } if view.group_objects.get(set)?.workers.is_some() => {
                Some(*size)
            }
            _ => None,
        });
        Quorum::Count(replicas.max().unwrap_or(0).max(least))
    }

    /// Whether the gang is a replica of a set that the engine does not know: its leader may be one that
    /// starts first.
    pub(in crate::engine) fn is_replica_of_unknown_set(&self, view: &EngineView<'_>) -> bool {
        let mut future = self.members.values().filter_map(|member| future_members(&member.pod));
        future.any(|future| match future {
            FutureMembers::Replica { set, .. } => view.group_objects.get(set).is_none(),
            FutureMembers::Copies | FutureMembers::Roles(_) => false,
        })
    }

    /// Whether the existing members and the known missing ones complete the gang.
    pub(in crate::engine) fn is_complete_with_placeholders(
        &self,
        view: &EngineView<'_>,
        counts: &MemberCounts,
    ) -> bool {
        !counts.ready.is_empty() && !self.missing_members(view, counts.present_by_role()).is_empty()
    }
}

/// What a pod declares about members that do not exist yet.
fn future_members(pod: &Pod) -> Option<&FutureMembers> {
    pod.membership.as_ref()?.declared.as_ref()?.future_members.as_ref()
}

/// The pods that describe missing members, the most reliable first.
struct MemberSources<'a> {
    pods: Vec<(&'a Pod, &'a FutureMembers)>,
    group_objects: &'a GroupObjects,
}

impl MemberSources<'_> {
    /// Adds missing members until the counts satisfy this quorum, of the subgroup with this name if one is
    /// given. Members with unknown requests are left out.
    fn fill_quorum(
        &self,
        quorum: &Quorum,
        name: Option<&str>,
        counts: &mut RoleCounts,
        found: &mut Vec<MissingMember>,
    ) {
        match quorum {
            Quorum::Count(least) => {
                let of = |role: &Option<Str>| name.is_none_or(|name| subgroup_name(role.as_ref()) == name);
                let present: u32 = counts.iter().filter(|(role, _)| of(role)).map(|(_, number)| number).sum();
                let missing = least.saturating_sub(present);
                if missing == 0 {
                    return;
                }
                let mut described =
                    self.pods.iter().filter_map(|(pod, future)| self.member(pod, future, name));
                let Some(one) = described.next() else { return };
                *counts.entry(one.role.clone()).or_default() += missing;
                let limit = MAX_PLACEHOLDERS_PER_GANG.saturating_add(1).saturating_sub(found.len());
                found.extend(std::iter::repeat_n(
                    one,
                    usize::try_from(missing).unwrap_or(MAX_PLACEHOLDERS_PER_GANG).min(limit),
                ));
            }
            Quorum::Groups { children, .. } => {
                for (name, child) in children {
                    self.fill_quorum(child, Some(name), counts, found);
                }
            }
            Quorum::Total { min_members: least, quorum } => {
                self.fill_quorum(quorum, None, counts, found);
                self.fill_quorum(&Quorum::Count(*least), None, counts, found);
            }
        }
    }

    /// The missing member that a pod describes, for this subgroup if one is named.
    fn member(&self, pod: &Pod, future: &FutureMembers, name: Option<&str>) -> Option<MissingMember> {
        match future {
            FutureMembers::Copies => {
                let role = role(pod);
                name.is_none_or(|name| subgroup_name(role) == name).then(|| MissingMember {
                    role: role.cloned(),
                    labels: pod.labels.clone(),
                    shape: pod.shape.clone(),
                })
            }
            FutureMembers::Roles(roles) => {
                let (role, shape) = roles.get_key_value(name?)?;
                let labels = PodLabels::new(&pod.key.namespace, []);
                Some(MissingMember { role: Some(role.clone()), labels, shape: shape.clone() })
            }
            FutureMembers::Replica { set, .. } => {
                let workers = self.group_objects.get(set)?.workers.as_ref()?;
                let role = name.map(str).filter(|name| &**name != names::KAI_DEFAULT_SUBGROUP);
                let labels = PodLabels::new(&pod.key.namespace, []);
                Some(MissingMember { role, labels, shape: workers.shape.clone() })
            }
        }
    }
}

/// The subgroup of a role.
pub(in crate::engine) fn subgroup_name(role: Option<&Str>) -> &str {
    role.map_or(names::KAI_DEFAULT_SUBGROUP, |role| role)
}
