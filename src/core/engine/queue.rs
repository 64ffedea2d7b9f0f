//! Who is planned, in which order.

use std::cmp::Reverse;

use super::state::{Progress, Waiting};
use super::types::{PlanRecord, PlannedMember};
use super::{Engine, Step};
use crate::model::{GangId, Time};
use crate::planner::{self, GangRequest, Member, Verdict};

/// The place of a gang in the queue: those that have started and want more members first, then by priority, then by age.
type Rank = (bool, Reverse<i32>, Time, GangId);

impl Engine {
    /// Plans every complete gang that has no plan under way, in queue order.
    pub(super) fn plan_queue(&mut self, step: &mut Step) {
        let mut queue: Vec<(Rank, GangRequest)> =
            self.gangs.keys().filter_map(|id| self.planning_request(id)).collect();
        queue.sort_by(|(a, _), (b, _)| a.cmp(b));
        let requests: Vec<GangRequest> = queue.into_iter().map(|(_, request)| request).collect();
        if requests.is_empty() {
            return;
        }
        let (plan, mut report) = planner::plan(&self.snapshot, &requests);
        for planned in plan.gangs {
            // What an earlier plan has lifted and is not bound yet keeps its place under the new one.
            let underway = (self.gangs.get(&planned.gang).and_then(|g| g.progress.plan()).into_iter())
                .flat_map(|plan| &plan.members)
                .filter(|m| self.members.get(&m.uid).is_some_and(|m| m.unbound()));
            let members = underway.cloned().chain(planned.placements.into_iter().map(|p| PlannedMember {
                pod: p.key.name,
                uid: p.uid,
                node: p.node,
                gpus: p.cards,
            }));
            let record = PlanRecord {
                epoch: step.epoch,
                deadline: step.now.after(self.settings.bind_timeout),
                members: members.collect(),
            };
            self.decide(&planned.gang, record);
            step.touch(&planned.gang);
        }
        let mut position = 0;
        for request in requests {
            let id = request.gang;
            let explanation = match report.verdicts.remove(&id) {
                Some(Verdict::Waiting(explanation)) => Some(explanation),
                Some(Verdict::Placed { left, .. }) => left,
                None => None,
            };
            let Some(gang) = self.gangs.get_mut(&id) else { continue };
            let verdict = explanation.map(|explanation| {
                position += 1;
                Waiting { explanation, position }
            });
            if gang.verdict != verdict {
                gang.verdict = verdict;
                step.touch(&id);
            }
        }
    }

    /// What to ask the planner for a gang; `None` when it is not complete, wants nothing, or is being lifted.
    fn planning_request(&self, id: &GangId) -> Option<(Rank, GangRequest)> {
        let gang = self.gangs.get(id)?;
        let free = match &gang.progress {
            Progress::Undecided => true,
            Progress::Recorded(plan) => {
                plan.members.iter().all(|m| self.members.get(&m.uid).is_none_or(|m| !m.pod.gated()))
            }
            Progress::Recording(_) | Progress::Dropping(..) => false,
        };
        let group = self.groups.get(id)?;
        let census = self.census(id);
        let settled = !census.ready.iter().any(|uid| self.members.get(uid).is_some_and(|m| m.must_fence));
        if !free
            || !settled
            || census.ready.is_empty()
            || !self.complete(&group.quorum, &census, &census.ready)
        {
            return None;
        }
        let ready = || census.ready.iter().filter_map(|uid| self.members.get(uid)).map(|m| &m.pod);
        let class =
            group.priority_class.as_ref().and_then(|class| self.priority_classes.as_ref()?.get(class));
        let priority = class.copied().or_else(|| ready().map(|pod| pod.priority).max()).unwrap_or(0);
        let age = ready().map(|pod| pod.created).min().unwrap_or_default();
        let started = self.complete(&group.quorum, &census, &[]);
        let members = ready().map(|pod| Member {
            uid: pod.uid.clone(),
            key: pod.key.clone(),
            role: pod.membership.as_ref().and_then(|m| m.role.clone()),
            shape: pod.shape.clone(),
        });
        let request = GangRequest {
            gang: id.clone(),
            members: members.collect(),
            quorum: group.quorum.clone(),
            active: census.active.clone(),
        };
        Some(((!started, Reverse(priority), age, id.clone()), request))
    }
}
