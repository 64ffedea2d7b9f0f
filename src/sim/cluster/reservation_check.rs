//! Checks whether a gang that fits waits for the head-of-line reservation of another gang.

use std::time::Duration;

use portcullis_core::engine::{GangStatus, Phase};
use portcullis_core::model::{Reason, Time};
use portcullis_core::planner::{self, PlanningRequest};
use portcullis_core::snapshot::Snapshot;

/// The gang that has the head-of-line reservation of the leader.
#[derive(Clone, Copy)]
pub(super) struct ReservationHolder<'a> {
    /// What the gang asks of the planner.
    pub request: &'a PlanningRequest,
    /// The stored status of the gang.
    pub status: &'a GangStatus,
}

impl ReservationHolder<'_> {
    /// Whether the gang may have the reservation: it has waited long enough, does not fit, and would fit into
    /// an empty cluster.
    fn may_hold(&self, snapshot: &Snapshot, hold_after: Duration, now: Time) -> bool {
        let fits = |snapshot: &Snapshot| {
            let (plan, _) = planner::plan(snapshot, std::slice::from_ref(self.request));
            !plan.gangs.is_empty()
        };
        let mut empty = snapshot.clone();
        for uid in snapshot.charges().map(|(uid, _)| uid).collect::<Vec<_>>() {
            empty.release(uid);
        }
        !hold_after.is_zero()
            && self.status.phase == Phase::Waiting
            && now.since(self.status.since) >= hold_after
            && !fits(snapshot)
            && fits(&empty)
    }
}

/// Whether a gang with this status waits for the reservation of this holder: the status names the holder, and
/// the holder may have a reservation.
pub(super) fn waits_for_reservation(
    status: &GangStatus,
    holder: ReservationHolder<'_>,
    snapshot: &Snapshot,
    hold_after: Duration,
    now: Time,
) -> bool {
    // The reason of a gang whose start timeout is over is the timeout, whatever the gang waits for.
    let explained = matches!(status.reason, Some(Reason::HeadOfLineReservation | Reason::SchedulingTimeout));
    let named = status.waiting_for == format!("gang {} to start", holder.request.gang);
    explained && named && holder.may_hold(snapshot, hold_after, now)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use portcullis_core::dialect::Quorum;
    use portcullis_core::model::{DialectId, GangId, Resources};
    use portcullis_core::objects::Node;
    use portcullis_core::planner::WaitingMember;
    use portcullis_core::pod::Pod;
    use portcullis_core::snapshot::{CardAllocation, Charge, ChargeState, SharingMode};

    const HOLD_AFTER: Duration = Duration::from_secs(60);
    const NOW: Time = Time(1_000_000);

    fn pod(name: &str, cpu: u32) -> Pod {
        let json = format!(
            r#"{{"metadata":{{"namespace":"x","name":"{name}","uid":"{name}","resourceVersion":"1"}},
                "spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}}}"#
        );
        Pod::read(&json).expect("the pod above can be read")
    }

    fn request(gang: &str, cpu: u32) -> PlanningRequest {
        let pod = pod(gang, cpu);
        PlanningRequest {
            gang: GangId::new(DialectId::Kai, "x", gang),
            members: vec![WaitingMember {
                uid: pod.uid,
                key: pod.key,
                role: None,
                labels: pod.labels,
                shape: pod.shape,
            }],
            quorum: Quorum::Count(1),
            active: BTreeMap::new(),
            min_resources: Resources::default(),
            topology_key: None,
            gang_nodes: BTreeSet::new(),
        }
    }

    /// A node with 8 CPUs, of which a pod uses 4.
    fn half_used() -> Snapshot {
        let node = r#"{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"8","memory":"8Gi","pods":"110"},
            "conditions":[{"type":"Ready","status":"True"}]}}"#;
        let mut snapshot = Snapshot::new(SharingMode::Labelled);
        let node = Node::read(node).expect("the node above can be read");
        let used = pod("used", 4);
        let charge = Charge {
            key: Some(used.key),
            node: node.name.clone(),
            labels: used.labels,
            terminating: false,
            shape: used.shape,
            cards: CardAllocation::Unshared,
            state: ChargeState::Bound,
        };
        snapshot.set_node(node);
        snapshot.charge(&used.uid, charge);
        snapshot
    }

    fn waiting(reason: Reason, waiting_for: &str) -> GangStatus {
        GangStatus {
            phase: Phase::Waiting,
            reason: Some(reason),
            waiting_for: waiting_for.to_owned(),
            since: Time(NOW.0 - 60_000),
            ..GangStatus::default()
        }
    }

    /// Whether a gang with this reason waits for a holder that needs this much.
    fn waits(reason: Reason, waiting_for: &str, holder: &str, cpu: u32) -> bool {
        let (request, status) = (request(holder, cpu), waiting(Reason::InsufficientCpu, "capacity"));
        let holder = ReservationHolder { request: &request, status: &status };
        waits_for_reservation(&waiting(reason, waiting_for), holder, &half_used(), HOLD_AFTER, NOW)
    }

    #[test]
    fn a_wait_is_explained_by_the_named_holder_only() {
        let large = request("large", 8).gang;
        let named = format!("gang {large} to start");
        assert!(waits(Reason::HeadOfLineReservation, &named, "large", 8));
        assert!(waits(Reason::SchedulingTimeout, &named, "large", 8));
        // The holder is another gang, which may have a reservation too.
        assert!(!waits(Reason::HeadOfLineReservation, &named, "other", 8));
        // The start timeout is over, and the gang waits for something else.
        assert!(!waits(Reason::SchedulingTimeout, "capacity", "large", 8));
        assert!(!waits(Reason::Queued, &named, "large", 8));
        // The holder fits, or does not fit into an empty cluster.
        assert!(!waits(Reason::HeadOfLineReservation, &named, "large", 4));
        assert!(!waits(Reason::HeadOfLineReservation, &named, "large", 9));
    }
}
