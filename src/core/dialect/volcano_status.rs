//! The status of a Volcano PodGroup in Volcano's words, for clusters in which Volcano itself is not there to write it.

use serde_json::{Value, json};

use super::event::NewsKind;
use super::{GroupEvent, GroupNews, GroupPhase, GroupStatus};

pub(super) fn status(status: &GroupStatus) -> Value {
    let phase = match status.phase {
        GroupPhase::Gathering => "Pending",
        GroupPhase::Waiting | GroupPhase::Starting => "Inqueue",
        GroupPhase::Running => "Running",
        GroupPhase::Finished => "Completed",
        GroupPhase::Torn => "Unknown",
    };
    let unschedulable = || unschedulable(status.members, status.scheduled, status.least, &status.message);
    let (kind, reason, message) = match status.phase {
        GroupPhase::Gathering => (
            "Unschedulable",
            "NotEnoughTasks",
            format!(
                "Not enough valid tasks for gang-scheduling, valid: {}, min: {}; {}",
                status.members, status.least, status.message
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

fn unschedulable(members: u32, scheduled: u32, least: u32, why: &str) -> String {
    let waiting = members.saturating_sub(scheduled);
    format!(
        "{waiting}/{members} tasks in gang unschedulable: pod group is not ready, {waiting} Pending, {least} minAvailable; {why}"
    )
}

/// Which pod went where is for the `Gang` object: of a group that starts Volcano says nothing but that.
pub(super) fn event(news: &GroupNews<'_>) -> Option<GroupEvent> {
    let GroupNews { message, members, least, scheduled, .. } = *news;
    let (reason, message) = match news.kind()? {
        NewsKind::Unschedulable => ("Unschedulable", unschedulable(members, scheduled, least, message)),
        NewsKind::Scheduled => ("Scheduled", "pod group is ready".to_owned()),
    };
    Some(GroupEvent { reason, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Time;

    #[test]
    fn a_gang_is_told_in_the_words_of_volcano() {
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
            let said = status(&GroupStatus {
                phase,
                members: 4,
                least: 4,
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
            assert_eq!(said, expected);
        }
    }
}
