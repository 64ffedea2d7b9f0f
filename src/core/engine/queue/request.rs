//! What a gang asks of the planner.

use std::cmp::Reverse;

use crate::dialect::Quorum;
use crate::engine::members::missing::MissingMember;
use crate::engine::members::{MemberCounts, RoleCounts, role};
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::queue::QueueRank;
use crate::engine::state::{EngineView, Gang};
use crate::model::{PodUid, Resources, Time};
use crate::planner::{PlanningRequest, WaitingMember};
use crate::pod::Pod;

impl Gang {
    /// Rank and planner request of the gang. `None` if it is incomplete, needs no plan or is being lifted.
    pub(in crate::engine) fn planning_request(
        &self,
        view: &EngineView<'_>,
    ) -> Option<(QueueRank, PlanningRequest)> {
        let counts = self.count_members();
        if !self.may_be_planned(view, &counts) {
            return None;
        }
        // Placeholders count like started members.
        let mut active = counts.active.clone();
        for place in self.placeholders() {
            *active.entry(place.role.clone()).or_default() += 1;
        }
        let alone = self.independent_members(view, &counts);
        let (ready, quorum, missing) = if alone.is_empty() {
            let (quorum, missing) = self.open_quorum(view, &counts, &active)?;
            (&counts.ready, quorum, missing)
        } else {
            (&alone, Quorum::Count(0), Vec::new())
        };
        let group = self.group(view)?;
        // Members of a started gang, replacements and scale-ups, go first.
        let started = counts.started() > 0;
        let members = self.pods(ready).map(|pod| WaitingMember {
            uid: pod.uid.clone(),
            key: pod.key.clone(),
            role: role(pod).cloned(),
            labels: pod.labels.clone(),
            shape: pod.shape.clone(),
        });
        let request = PlanningRequest {
            gang: self.id.clone(),
            members: members.chain(self.placeholder_requests(missing)).collect(),
            quorum,
            active,
            min_resources: if started { Resources::default() } else { group.min_resources.clone() },
            topology_key: group.policies.topology.clone().filter(|_| !started),
            gang_nodes: counts.nodes.clone(),
        };
        let created = self.pods(ready).map(|pod| pod.created).min().unwrap_or_default();
        let last_expiry = self.lifecycle.timeout.and_then(|timeout| timeout.last_expiry);
        let rank = QueueRank {
            not_started: !started,
            priority: Reverse(self.priority(view, self.pods(ready))),
            since: last_expiry.unwrap_or(created),
            gang: self.id.clone(),
        };
        Some((rank, request))
    }

    /// Whether the gang has ready members, no plan that is under way, and nothing is open about its size.
    fn may_be_planned(&self, view: &EngineView<'_>, counts: &MemberCounts) -> bool {
        let free = match &self.lifecycle.progress {
            Progress::Undecided => true,
            Progress::Recorded(plan) => !self.has_gated(plan),
            Progress::Recording(_) | Progress::Dropping(..) => false,
        };
        let settled = |uid: &PodUid| self.members.get(uid).is_none_or(|member| !member.must_fence);
        free && self.lifecycle.expired.is_empty()
            && self.lifecycle.refused_lift.is_none()
            && !counts.ready.is_empty()
            && counts.ready.iter().all(settled)
            && self.are_owners_known(view, counts)
    }

    /// The quorum of a gang whose members start together, and its missing members. `None` if the gang is not
    /// complete.
    fn open_quorum(
        &self,
        view: &EngineView<'_>,
        counts: &MemberCounts,
        active: &RoleCounts,
    ) -> Option<(Quorum, Vec<MissingMember>)> {
        let group = self.group(view)?;
        let mut present = active.clone();
        for (role, number) in &counts.ready_by_role {
            *present.entry(role.clone()).or_default() += number;
        }
        let missing = self.missing_members(view, present.clone());
        if !missing.is_empty() {
            return Some((self.full_quorum(view, group), missing));
        }
        (group.quorum.is_satisfied(&present)).then(|| (group.quorum.without_launcher(&present), missing))
    }

    /// The priority of the PriorityClass that the group names, otherwise the highest of these pods.
    fn priority<'a>(&self, view: &EngineView<'_>, pods: impl Iterator<Item = &'a Pod>) -> i32 {
        let class = self.group(view).and_then(|group| group.priority_class.as_ref());
        let value = class.and_then(|class| view.priority_classes?.get(class)).copied();
        value.or_else(|| pods.map(|pod| pod.priority).max()).unwrap_or(0)
    }

    /// Whether the wait reason of a queued gang is so old that it is updated.
    pub(in crate::engine) fn is_replan_due(&self, view: &EngineView<'_>) -> bool {
        let interval = view.queue.replan_interval();
        let due = |last: Time| view.now.since(last) >= interval || view.now < last;
        self.queueing.rank.is_some() && self.timers.last_planned.is_some_and(due)
    }
}
