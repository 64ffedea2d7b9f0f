//! The status of a KAI PodGroup in KAI's words, for clusters in which KAI itself is not there to write it.
//!
//! `phase`, `scheduled` and `running` are what its tutorials print; newer definitions have dropped some of them, and the
//! API server drops them then. `conditions` is in all of them, and says the same in a sentence.

use serde_json::{Value, json};

use super::{GroupEvent, GroupNews, GroupPhase, GroupStatus};
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

/// KAI has a word of its own for pods that are held by gates.
pub(super) fn event(news: &GroupNews<'_>) -> Option<GroupEvent> {
    if news.reason != Reason::ForeignGate {
        return news.event();
    }
    let GroupNews { message, members, least, held, .. } = news;
    let message = format!(
        "Job is not ready for scheduling. Waiting for {least} pods, currently {members} exist, {held} are gated; {message}"
    );
    Some(GroupEvent { reason: "NotReady", message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Time;

    #[test]
    fn a_gang_is_told_in_the_words_of_the_tutorials() {
        for (phase, shown, kind, holds) in [
            (GroupPhase::Gathering, "Pending", "Unschedulable", "True"),
            (GroupPhase::Waiting, "Pending", "Unschedulable", "True"),
            (GroupPhase::Starting, "Pending", "Scheduled", "False"),
            (GroupPhase::Running, "Running", "Scheduled", "True"),
            (GroupPhase::Finished, "Completed", "Scheduled", "True"),
            (GroupPhase::Torn, "Unknown", "Unschedulable", "True"),
        ] {
            let (message, since) = ("because".to_owned(), Time(1_500));
            let said = status(&GroupStatus {
                phase,
                members: 3,
                least: 3,
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
            assert_eq!(said, expected);
        }
    }
}
