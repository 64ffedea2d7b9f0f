//! Status and events of a Volcano PodGroup in Volcano's words, for clusters without Volcano.

use serde_json::{Value, json};

use crate::dialect::group_event::{GroupEvent, GroupEventContext, SchedulingResult};
use crate::dialect::group_status::{GroupPhase, GroupStatus};

pub(super) fn status(status: &GroupStatus) -> Value {
    let phase = match status.phase {
        GroupPhase::Gathering => "Pending",
        GroupPhase::Waiting | GroupPhase::Starting => "Inqueue",
        GroupPhase::Running => "Running",
        GroupPhase::Finished => "Completed",
        GroupPhase::Torn => "Unknown",
    };
    let unschedulable =
        || unschedulable(status.members, status.scheduled, status.min_members, &status.message);
    let (kind, reason, message) = match status.phase {
        GroupPhase::Gathering => (
            "Unschedulable",
            "NotEnoughTasks",
            format!(
                "Not enough valid tasks for gang-scheduling, valid: {}, min: {}; {}",
                status.members, status.min_members, status.message
            ),
        ),
        GroupPhase::Waiting | GroupPhase::Torn => ("Unschedulable", "NotEnoughResources", unschedulable()),
        GroupPhase::Starting | GroupPhase::Running | GroupPhase::Finished => {
            ("Scheduled", "tasks in gang are ready to be scheduled", status.message.clone())
        }
    };
    let mut condition = status.condition(kind, "True");
    condition["reason"] = json!(reason);
    condition["message"] = json!(message);
    json!({
        "phase": phase,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "conditions": [condition],
    })
}

fn unschedulable(members: u32, scheduled: u32, min_members: u32, message: &str) -> String {
    let pending = members.saturating_sub(scheduled);
    format!(
        "{pending}/{members} tasks in gang unschedulable: pod group is not ready, {pending} Pending, {min_members} minAvailable; {message}"
    )
}

/// For a gang that starts, the message is Volcano's own. The `Gang` object has the nodes of the pods.
pub(super) fn event(context: &GroupEventContext<'_>) -> Option<GroupEvent> {
    let GroupEventContext { message, members, min_members, scheduled, .. } = *context;
    let (reason, message) = match context.scheduling_result()? {
        SchedulingResult::Unschedulable => {
            ("Unschedulable", unschedulable(members, scheduled, min_members, message))
        }
        SchedulingResult::Scheduled => ("Scheduled", "pod group is ready".to_owned()),
    };
    Some(GroupEvent { reason, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Time;

    #[test]
    fn the_status_has_the_phases_and_messages_of_volcano() {
        let no_room = "insufficient cpu on 1 node";
        for (phase, scheduled, shown, kind, reason, message) in [
            (
                GroupPhase::Gathering,
                0,
                "Pending",
                "Unschedulable",
                "NotEnoughTasks",
                "Not enough valid tasks for gang-scheduling, valid: 4, min: 4; insufficient cpu on 1 node",
            ),
            (
                GroupPhase::Waiting,
                0,
                "Inqueue",
                "Unschedulable",
                "NotEnoughResources",
                "4/4 tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable; insufficient cpu on 1 node",
            ),
            (
                GroupPhase::Running,
                4,
                "Running",
                "Scheduled",
                "tasks in gang are ready to be scheduled",
                no_room,
            ),
            (
                GroupPhase::Torn,
                3,
                "Unknown",
                "Unschedulable",
                "NotEnoughResources",
                "1/4 tasks in gang unschedulable: pod group is not ready, 1 Pending, 4 minAvailable; insufficient cpu on 1 node",
            ),
        ] {
            let written = status(&GroupStatus {
                phase,
                members: 4,
                min_members: 4,
                scheduled,
                running: scheduled,
                succeeded: 0,
                failed: 0,
                reason: "InsufficientCpu",
                message: no_room.to_owned(),
                since: Time(1_500),
            });
            let condition = json!({
                "type": kind, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": "1970-01-01T00:00:01Z",
            });
            let expected = json!({
                "phase": shown, "running": scheduled, "succeeded": 0, "failed": 0, "conditions": [condition]
            });
            assert_eq!(written, expected);
        }
    }
}
