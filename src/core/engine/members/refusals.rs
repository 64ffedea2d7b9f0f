//! Remembers where a scheduler did not bind a member, so that no equal member is planned there again.
//!
//! A refusal counts once the gang is torn: until the deadline the scheduler may still bind the member. It
//! counts only if nothing that the engine knows explains it: the node is still fit for the member, and its
//! capacity suffices. The memory itself is `snapshot/refusals.rs`.

use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::members::node_fitness::node_unfit_reason;
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::state::{EngineView, Gang, StepContext};
use crate::model::{GangId, NodeName, Str};
use crate::shape::Shape;

impl Gang {
    /// The refusals of members of a torn gang that are not remembered yet.
    fn new_refusals(&mut self, view: &EngineView<'_>) -> Vec<(NodeName, Arc<Shape>, Str)> {
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return Vec::new() };
        if view.now <= plan.deadline {
            return Vec::new();
        }
        let mut found = Vec::new();
        for planned in &plan.members {
            let Some(member) = self.members.get_mut(&planned.uid).filter(|member| member.unbound()) else {
                continue;
            };
            let (Some(message), Some(shape)) = (&member.pod.scheduler_message, &member.gated_shape) else {
                continue;
            };
            if member.pod.placed_by_gang_scheduler()
                || member.remembered_refusal.as_ref() == Some(message)
                || node_unfit_reason(view.snapshot, &member.pod, &planned.node).is_some()
            {
                continue;
            }
            found.push((planned.node.clone(), shape.clone(), message.clone()));
            member.remembered_refusal = Some(message.clone());
        }
        found
    }
}

impl Engine {
    /// Remembers the refusals of members of a torn gang.
    pub(in crate::engine) fn remember_refusals(&mut self, id: &GangId, step: &mut StepContext) {
        let Some((gang, view)) = self.gang_and_view(id, step.now) else { return };
        for (node, shape, message) in gang.new_refusals(&view) {
            self.snapshot.refuse(&node, &shape, &message, step.now);
        }
    }
}
