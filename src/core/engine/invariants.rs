//! What the engine does when one of its own promises is broken.
//!
//! A missing entry is an ordinary case, which the code handles with `if let` or a comment, or a broken
//! promise. A broken promise panics in debug builds, in which all tests and the simulation run. In release
//! builds the engine counts it, and the cluster edge exports the count as
//! `portcullis_engine_invariant_violations_total`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Engine;
use crate::model::{GangId, PodUid};
use crate::planner::{PlanningCase, PlanningRequest, RefutedPlan};
use crate::snapshot::Snapshot;

/// Every gang that the engine touches, queues or sets a timer for is in `Engine::gangs`.
pub(super) const KNOWN_GANG: &str = "the engine knows the gang that it works on";
/// Every pod in `Engine::gang_by_pod` is a member of its gang. [`Engine::assert_consistent`] checks the other
/// direction too.
pub(super) const KNOWN_MEMBER: &str = "the gang of a pod has the pod as a member";

/// The number of broken promises. It takes no part in comparing and hashing engines: it says nothing of the
/// cluster.
#[derive(Debug, Default)]
pub(super) struct InvariantViolations(AtomicU64);

impl InvariantViolations {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Panics in debug builds if the promise does not hold, and counts it otherwise.
    #[track_caller]
    pub(super) fn check(&self, holds: bool, promise: &'static str) {
        debug_assert!(holds, "{promise}");
        if !holds {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Engine {
    /// Checks that the snapshot agrees with a recount, and that `gang_by_pod` names exactly the members of
    /// all gangs. For tests and debug runs.
    ///
    /// # Panics
    /// If one of them does not hold: a bug of the engine.
    pub fn assert_consistent(&self) {
        self.snapshot.assert_consistent();
        let members = self.gangs.iter().flat_map(|(id, gang)| gang.members.keys().map(move |uid| (uid, id)));
        let mut members: Vec<(&PodUid, &GangId)> = members.collect();
        members.sort();
        let indexed: Vec<(&PodUid, &GangId)> = self.gang_by_pod.iter().collect();
        assert_eq!(indexed, members, "the index of members names the members of all gangs");
    }
}

/// The plans that `planner::check` refuted: their number, and the last one as a case to plan again. Like
/// [`InvariantViolations`], it takes no part in comparing and hashing engines.
#[derive(Clone, Debug, Default)]
pub(super) struct RefutedPlans {
    number: u64,
    last: Option<Arc<PlanningCase>>,
}

impl RefutedPlans {
    /// Counts a refuted plan, and keeps it in place of the one before.
    pub(super) fn add(&mut self, snapshot: &Snapshot, request: &PlanningRequest, refuted: &RefutedPlan) {
        self.number += 1;
        let case = PlanningCase::new(snapshot, std::slice::from_ref(request), refuted);
        self.last = Some(Arc::new(case));
    }
}

impl Engine {
    /// The number of plans that the check of plans has refuted, and the last of them. Anything but zero is a
    /// defect of the planner.
    pub fn refuted_plans(&self) -> (u64, Option<&Arc<PlanningCase>>) {
        (self.refuted_plans.number, self.refuted_plans.last.as_ref())
    }
}

impl PartialEq for RefutedPlans {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RefutedPlans {}

impl Hash for RefutedPlans {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Clone for InvariantViolations {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.count()))
    }
}

impl PartialEq for InvariantViolations {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for InvariantViolations {}

impl Hash for InvariantViolations {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
