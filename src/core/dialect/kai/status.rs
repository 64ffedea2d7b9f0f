//! Status and events of a KAI PodGroup in KAI's words, for clusters without KAI.
//!
//! KAI's tutorials print `phase`, `scheduled` and `running`. Newer definitions lack some of these fields, and
//! the API server then drops them. All definitions have `conditions`.

use serde_json::{Value, json};

use crate::dialect::group_event::{GroupEvent, GroupEventContext};
use crate::dialect::group_status::{GroupPhase, GroupStatus};
use crate::model::Reason;

pub(super) fn status(status: &GroupStatus) -> Value {
    let phase = match status.phase {
        GroupPhase::Gathering | GroupPhase::Waiting | GroupPhase::Starting => "Pending",
        GroupPhase::Running => "Running",
        GroupPhase::Finished => "Completed",
        GroupPhase::Torn => "Unknown",
    };
    let (kind, holds) = match status.phase {
        GroupPhase::Gathering | GroupPhase::Waiting | GroupPhase::Torn => ("Unschedulable", "True"),
        GroupPhase::Starting => ("Scheduled", "False"),
        GroupPhase::Running | GroupPhase::Finished => ("Scheduled", "True"),
    };
    json!({
        "phase": phase,
        "scheduled": status.scheduled,
        "running": status.running,
        "conditions": [status.condition(kind, holds)],
    })
}

/// KAI has its own reason for pods with scheduling gates.
pub(super) fn event(context: &GroupEventContext<'_>) -> Option<GroupEvent> {
    if context.reason != Reason::ForeignGate {
        return context.event();
    }
    let GroupEventContext { message, members, min_members, gated_by_others, .. } = context;
    let message = format!(
        "Job is not ready for scheduling. Waiting for {min_members} pods, currently {members} exist, {gated_by_others} are gated; {message}"
    );
    Some(GroupEvent { reason: "NotReady", message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Time;

    #[test]
    fn the_status_has_the_phases_of_the_tutorials() {
        for (phase, shown, kind, holds) in [
            (GroupPhase::Gathering, "Pending", "Unschedulable", "True"),
            (GroupPhase::Waiting, "Pending", "Unschedulable", "True"),
            (GroupPhase::Starting, "Pending", "Scheduled", "False"),
            (GroupPhase::Running, "Running", "Scheduled", "True"),
            (GroupPhase::Finished, "Completed", "Scheduled", "True"),
            (GroupPhase::Torn, "Unknown", "Unschedulable", "True"),
        ] {
            let (message, since) = ("because".to_owned(), Time(1_500));
            let written = status(&GroupStatus {
                phase,
                members: 3,
                min_members: 3,
                scheduled: 3,
                running: 2,
                succeeded: 0,
                failed: 0,
                reason: "Why",
                message,
                since,
            });
            let condition = json!({
                "type": kind, "status": holds, "reason": "Why", "message": "because",
                "lastTransitionTime": "1970-01-01T00:00:01Z",
            });
            let expected = json!({"phase": shown, "scheduled": 3, "running": 2, "conditions": [condition]});
            assert_eq!(written, expected);
        }
    }
}
