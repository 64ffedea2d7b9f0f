//! A planning case: everything that one call of [`plan`] depends on, and its plan, as JSON.
//!
//! The engine keeps the case of the last plan that [`check()`] refuted, so that the defect can be repeated
//! elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::types::{Plan, PlanningRequest};
use super::{PlanningReport, RefutedPlan, check, plan};
use crate::model::{NodeName, PodUid, Str, Time};
use crate::objects::Node;
use crate::shape::Shape;
use crate::snapshot::{Charge, SharingMode, Snapshot};

/// The input of a planning round and its plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanningCase {
    /// Which nodes share their cards.
    pub sharing: SharingMode,
    /// The labels of namespaces.
    pub namespaces: BTreeMap<Str, BTreeMap<Str, Str>>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// What each pod holds.
    pub charges: Vec<(PodUid, Charge)>,
    /// Pods that a scheduler refused where they were planned: node, shape, message.
    pub refusals: Vec<(NodeName, Arc<Shape>, Str)>,
    /// The gangs to plan.
    pub gangs: Vec<PlanningRequest>,
    /// The plan that was made.
    pub plan: Plan,
    /// The rules that the plan breaks, a sentence each.
    pub violations: Vec<String>,
}

impl PlanningCase {
    /// The case of a refuted plan.
    pub fn new(snapshot: &Snapshot, gangs: &[PlanningRequest], refuted: &RefutedPlan) -> Self {
        Self {
            sharing: snapshot.sharing(),
            namespaces: snapshot.namespaces().clone(),
            nodes: snapshot.states().iter().map(|state| state.node.clone()).collect(),
            charges: snapshot.charges().map(|(uid, charge)| (uid.clone(), charge.clone())).collect(),
            refusals: snapshot
                .refusals()
                .map(|(node, shape, message)| (node.clone(), shape.clone(), message.clone()))
                .collect(),
            gangs: gangs.to_vec(),
            plan: refuted.plan.clone(),
            violations: refuted.violations.clone(),
        }
    }

    /// The snapshot of the case.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new(self.sharing);
        for (name, labels) in &self.namespaces {
            snapshot.set_namespace(name, Some(labels.clone()));
        }
        for node in &self.nodes {
            snapshot.set_node(node.clone());
        }
        for (uid, charge) in &self.charges {
            snapshot.charge(uid, charge.clone());
        }
        for (node, shape, message) in &self.refusals {
            snapshot.refuse(node, shape, message, Time(0));
        }
        snapshot
    }

    /// Plans the case again: the rules that the recorded plan breaks, and what the planner makes of the case
    /// now.
    ///
    /// # Panics
    /// In debug builds, if the planner still makes an invalid plan.
    pub fn replay(&self) -> (Vec<String>, Plan, PlanningReport) {
        let snapshot = self.snapshot();
        let recorded = check(&snapshot, &self.gangs, &self.plan).err().unwrap_or_default();
        let (now, report) = plan(&snapshot, &self.gangs);
        (recorded, now, report)
    }
}
