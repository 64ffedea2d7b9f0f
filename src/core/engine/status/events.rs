//! Kubernetes events about a gang.

use crate::dialect::{self, Group, GroupEventContext};
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::protocol::{Action, ConditionStatus, ConditionType, GangEvent, GangStatus, Phase, PodRef};
use crate::engine::state::{Effects, EngineView, Gang};
use crate::engine::status::sentences::{placed, places};
use crate::model::Reason;

/// At most this many pods get an event of their own.
const MAX_PODS_PER_EVENT: usize = 16;

impl Gang {
    /// Records the events that follow from a new status.
    pub(in crate::engine) fn record_status_events(
        &self,
        stored: &GangStatus,
        wanted: &GangStatus,
        view: &EngineView<'_>,
        effects: &mut Effects,
    ) {
        for (kind, reason) in [
            (ConditionType::PriorityClassFound, Reason::PriorityClassNotFound),
            (ConditionType::SizeAgrees, Reason::SizesDiffer),
        ] {
            if let (Some(message), None) = (false_message(wanted, kind), false_message(stored, kind)) {
                self.record_event(view, reason, message, true, Vec::new(), effects);
            }
        }
        let elastic = |status: &GangStatus| {
            let found = status.conditions.iter().find(|c| c.kind == ConditionType::Elastic);
            found.map(|c| (c.status, c.reason.clone(), c.message.clone()))
        };
        if let Some((holds, why, message)) = elastic(wanted)
            && elastic(stored).is_none_or(|(held, before, _)| (held, &before) != (holds, &why))
        {
            let warning = why == "OwnersUnread";
            self.record_event(view, Reason::Elastic, message, warning, Vec::new(), effects);
        }
        let Some(reason) = wanted.reason.filter(|_| wanted.reason != stored.reason) else { return };
        let has_event = match wanted.phase {
            Phase::Waiting => reason != Reason::Queued,
            Phase::Gathering => reason != Reason::Gathering,
            // A stale gang gets its event after the grace period, and a released reservation when it is
            // released.
            Phase::Torn => !matches!(reason, Reason::StaleJob | Reason::ReservationReleased),
            Phase::Planned | Phase::Lifting | Phase::Admitted => false,
        };
        if has_event {
            let warning = wanted.phase == Phase::Torn;
            let message = wanted.message.clone();
            self.record_event(view, reason, message, warning, self.pods_for_event(), effects);
        }
    }

    /// Records once that every gate of a plan is removed.
    pub(in crate::engine) fn record_lifted_event(&mut self, view: &EngineView<'_>, effects: &mut Effects) {
        let Progress::Recorded(plan) = &self.lifecycle.progress else { return };
        if self.reported.lifted_event_recorded || self.has_gated(plan) || plan.members.is_empty() {
            return;
        }
        let counts = self.count_members();
        let mut message = format!("{} lifted: {}", placed(plan.members.len(), &counts), places(plan));
        if !plan.placeholders.is_empty() {
            let (summary, _) = self.placeholder_summary(view, plan, &counts);
            message = format!("{message}; {summary}");
        }
        self.record_event(view, Reason::Lifted, message, false, Vec::new(), effects);
        self.reported.lifted_event_recorded = true;
    }

    /// Records an event about the gang, its group and these pods.
    pub(in crate::engine) fn record_event(
        &self,
        view: &EngineView<'_>,
        reason: Reason,
        message: String,
        warning: bool,
        pods: Vec<PodRef>,
        effects: &mut Effects,
    ) {
        let group = self.group(view);
        let group_event = group.and_then(|group| {
            let counts = self.count_members();
            let context = GroupEventContext {
                reason,
                message: &message,
                members: counts.live,
                min_members: group.quorum.min_members(),
                scheduled: counts.bound,
                gated_by_others: u32::try_from(counts.held.len()).unwrap_or(u32::MAX),
            };
            dialect::group_event(group, &context)
        });
        effects.send(Action::RecordEvent(GangEvent {
            gang: self.id.clone(),
            reason,
            message,
            warning,
            group: group.and_then(Group::object_ref),
            group_event,
            pods,
        }));
    }

    /// The pods that get an event of their own: not all of a large gang, because each event is a write.
    fn pods_for_event(&self) -> Vec<PodRef> {
        let waiting = self.members.values().filter(|member| member.live() && member.pod.node.is_none());
        let mut pods: Vec<PodRef> = waiting.map(|member| PodRef::of(&member.pod)).collect();
        pods.sort();
        pods.truncate(MAX_PODS_PER_EVENT);
        pods
    }
}

/// The message of a condition that does not hold.
fn false_message(status: &GangStatus, kind: ConditionType) -> Option<String> {
    let found = status.conditions.iter().find(|c| c.kind == kind && c.status == ConditionStatus::False);
    found.map(|c| c.message.clone())
}
