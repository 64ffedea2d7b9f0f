//! Checks the settled cluster without faults: every gang that fits has started, and no gang is half started.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::reservation_check::{ReservationHolder, waits_for_reservation};
use super::super::{eviction_check, placeholder_check, quorum_history};
use super::{Checker, Invariant, gang_object};
use crate::api::ApiServer;
use portcullis_core::engine::Phase;
use portcullis_core::model::{GangId, NodeName, Reason, Resources, Str};
use portcullis_core::objects::{Node, names};
use portcullis_core::planner::{self, PlanningRequest, WaitingMember};
use portcullis_core::pod::Pod;
use portcullis_core::snapshot::{CardAllocation, Charge, ChargeState, Snapshot};

impl Checker {
    /// Checks the settled cluster without faults: every gang that fits has started, and no gang is half
    /// started. The holder has the head-of-line reservation of the leader. The scheduler binds no
    /// pod to a refused node.
    pub(in super::super) fn check_liveness(
        &mut self,
        api: &ApiServer,
        holder: Option<&GangId>,
        refused_nodes: &BTreeSet<NodeName>,
    ) {
        self.now = api.now;
        let (snapshot, reversed) =
            (self.snapshot(api, refused_nodes, false), self.snapshot(api, refused_nodes, true));
        snapshot.assert_consistent();
        let mut requests = Vec::new();
        let gangs: BTreeSet<&GangId> =
            api.pods().filter_map(|pod| pod.membership.as_ref().map(|m| &m.gang)).collect();
        for gang in gangs {
            let mine = |pod: &&Arc<Pod>| pod.membership.as_ref().is_some_and(|m| m.gang == *gang);
            let live: Vec<&Arc<Pod>> =
                api.pods().filter(mine).filter(|pod| !pod.terminating && !pod.finished()).collect();
            self.check_record(gang, &live, api);
            let said = quorum_history::policies(api, gang, &live);
            let grace = said.stale_grace.unwrap_or(self.settings.stale_grace);
            let kept = said.on_stale.unwrap_or(self.settings.on_stale);
            if let Some(record) = gang_object(api, gang) {
                for problem in eviction_check::overdue(&record.status, &live, kept, grace, api.now) {
                    self.found(Invariant::Liveness, format!("gang {gang}: {problem}"));
                }
            }
            let Some(quorum) = quorum_history::current(api, gang, &live) else { continue };
            let role = |pod: &Pod| pod.membership.as_ref().and_then(|m| m.role.clone());
            let mut active: BTreeMap<Option<Str>, u32> = BTreeMap::new();
            for pod in live.iter().filter(|pod| pod.gates.is_empty()) {
                *active.entry(role(pod)).or_default() += 1;
            }
            let started: Vec<&Arc<Pod>> = live.iter().copied().filter(|pod| !pod.gated()).collect();
            let mut waiting: Vec<&Arc<Pod>> =
                live.into_iter().filter(|pod| *pod.gates == [names::GATE.into()]).collect();
            if waiting.is_empty() {
                continue;
            }
            waiting.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
            let counts = active.values().any(|number| *number > 0);
            let minimum = if counts { Resources::default() } else { quorum_history::minimum(api, gang) };
            for place in gang_object(api, gang)
                .iter()
                .flat_map(|record| &record.status.plan)
                .flat_map(|p| &p.placeholders)
            {
                *active.entry(place.role.clone()).or_default() += 1;
            }
            let mut here = active.clone();
            for pod in &waiting {
                *here.entry(role(pod)).or_default() += 1;
            }
            let declaring = waiting.iter().copied().chain(started.iter().copied());
            let (quorum, missing) = placeholder_check::missing_members(api, quorum, declaring, &here);
            for member in &missing {
                *here.entry(member.role.clone()).or_default() += 1;
            }
            requests.push(PlanningRequest {
                gang: gang.clone(),
                members: waiting
                    .into_iter()
                    .map(|pod| WaitingMember {
                        uid: pod.uid.clone(),
                        key: pod.key.clone(),
                        role: role(pod),
                        labels: pod.labels.clone(),
                        shape: pod.shape.clone(),
                    })
                    .chain(missing)
                    .collect(),
                quorum: quorum.without_launcher(&here),
                active,
                min_resources: minimum,
                topology_key: None,
                gang_nodes: BTreeSet::new(),
            });
        }
        for request in &requests {
            let alone = std::slice::from_ref(request);
            let (plan, _) = planner::plan(&snapshot, alone);
            if let Err(problems) = planner::check(&snapshot, alone, &plan) {
                self.found(Invariant::AllOrNone, problems.join("; "));
            }
            let waits_for_holder = || {
                let status = &gang_object(api, &request.gang)?.status;
                let other = requests.iter().find(|other| Some(&other.gang) == holder)?;
                let holder =
                    ReservationHolder { request: other, status: &gang_object(api, &other.gang)?.status };
                let hold_after = self.settings.hold_after;
                Some(waits_for_reservation(status, holder, &snapshot, hold_after, api.now))
            };
            // A policy of another team refuses the lift.
            let is_refused = || {
                let reason = gang_object(api, &request.gang)?.status.reason;
                Some(api.lift_policy.is_some() && reason == Some(Reason::LiftRefused))
            };
            let is_kept_back = || waits_for_holder() == Some(true) || is_refused() == Some(true);
            if let Some(planned) = plan.gangs.first().filter(|_| !is_kept_back()) {
                let places: Vec<String> = planned
                    .assignments
                    .iter()
                    .map(|p| format!("{} on {} {:?}", p.key, p.node, p.cards))
                    .collect();
                self.found(
                    Invariant::Liveness,
                    format!("gang {} waits although it fits: {}", request.gang, places.join(", ")),
                );
            }
        }
        if planner::plan(&snapshot, &requests) != planner::plan(&reversed, &requests) {
            let problem = "the plan depends on the order in which nodes and pods became known";
            self.found(Invariant::Determinism, problem.to_owned());
        }
    }

    /// Checks the `Gang` object of a gang in the settled cluster.
    fn check_record(&mut self, gang: &GangId, live: &[&Arc<Pod>], api: &ApiServer) {
        let Some(record) = gang_object(api, gang) else {
            if let Some(pod) = live.iter().find(|pod| pod.gated()) {
                self.found(
                    Invariant::Explained,
                    format!("{} waits, and no Gang object {gang} reports why", pod.key),
                );
            }
            return;
        };
        let status = &record.status;
        // A gang with placeholders is in progress as long as it has reservations.
        let has_placeholders = status.plan.as_ref().is_some_and(|plan| !plan.placeholders.is_empty());
        if has_placeholders && !live.iter().any(|pod| !pod.gated()) {
            self.found(
                Invariant::Liveness,
                format!("gang {gang} has reservations, and none of its pods runs"),
            );
        }
        if !has_placeholders && matches!(status.phase, Phase::Planned | Phase::Lifting) {
            self.found(
                Invariant::Liveness,
                format!("gang {gang} stays {:?}: {}", status.phase, status.message),
            );
        }
        let planned = status.plan.iter().flat_map(|plan| &plan.members);
        let left: Vec<String> = planned
            .filter(|member| live.iter().any(|pod| pod.uid == member.uid && pod.gated()))
            .map(|member| member.pod.to_string())
            .collect();
        if !left.is_empty() {
            self.found(
                Invariant::AllOrNone,
                format!("gang {gang} ({:?}) is lifted in part: {} are left", status.phase, left.join(", ")),
            );
        }
    }

    /// Capacity from the stored objects: bound pods, and lifted pods that are not bound yet.
    fn snapshot(&self, api: &ApiServer, refused_nodes: &BTreeSet<NodeName>, reversed: bool) -> Snapshot {
        let mut snapshot = Snapshot::new(self.settings.sharing);
        for namespace in api.namespaces() {
            snapshot.set_namespace(&namespace.name, Some(namespace.labels.clone()));
        }
        let mut nodes: Vec<&Arc<Node>> = api.nodes().collect();
        let mut pods: Vec<&Arc<Pod>> = api.pods().filter(|pod| !pod.finished()).collect();
        if reversed {
            nodes.reverse();
            pods.reverse();
        }
        for pod in pods {
            let planned = pod.membership.as_ref().filter(|_| !pod.gated()).and_then(|membership| {
                let plan = gang_object(api, &membership.gang)?.status.plan.as_ref()?;
                plan.members.iter().find(|member| member.uid == pod.uid).map(|member| member.node.clone())
            });
            let pinned = if pod.gated() { None } else { pod.pinned_to() };
            // Room that the scheduler frees for a pod without a gang.
            let freed = pod.nominated.clone().filter(|_| pod.membership.is_none() && pod.gates.is_empty());
            let (node, hold) = match (&pod.node, pinned.or(planned).or(freed)) {
                (Some(node), _) => (node.clone(), ChargeState::Bound),
                (None, Some(node)) => (node, ChargeState::Reserved),
                (None, None) => continue,
            };
            let cards = match (&pod.shape.share, &pod.gpus) {
                (None, _) => CardAllocation::Unshared,
                (Some(_), Some(cards)) => CardAllocation::Known(cards.clone()),
                (Some(_), None) => CardAllocation::Unknown,
            };
            snapshot.charge(
                &pod.uid,
                Charge {
                    key: Some(pod.key.clone()),
                    node,
                    labels: pod.labels.clone(),
                    terminating: pod.terminating,
                    shape: pod.shape.clone(),
                    cards,
                    state: hold,
                },
            );
        }
        placeholder_check::charge(&mut snapshot, api);
        for node in nodes {
            let ready = node.ready && !refused_nodes.contains(&node.name);
            snapshot.set_node(Node { ready, ..Node::clone(node) });
        }
        snapshot
    }
}
