//! Events on a group object, in the words of its stack.
//!
//! The `Gang` object, the pods and the log use the reason codes of Portcullis. The group object uses the
//! reasons that the guides of its stack mention. The message is that of Portcullis, because it has more
//! detail, except where users search for the message of the stack.

use crate::model::Reason;

/// A decision about a gang, with the numbers that the messages of the stacks need.
#[derive(Clone, Copy, Debug)]
pub struct GroupEventContext<'n> {
    /// Reason code.
    pub reason: Reason,
    /// Message.
    pub message: &'n str,
    /// Number of live pods.
    pub members: u32,
    /// Number of members that the gang needs.
    pub min_members: u32,
    /// Number of live pods that are on a node.
    pub scheduled: u32,
    /// Number of live pods that have scheduling gates of other controllers.
    pub gated_by_others: u32,
}

impl GroupEventContext<'_> {
    /// What the decision means in terms of a scheduler; `None` for decisions that no scheduler has a word
    /// for.
    pub(super) fn scheduling_result(&self) -> Option<SchedulingResult> {
        match self.reason {
            Reason::Lifted => Some(SchedulingResult::Scheduled),
            reason if reason.is_unschedulable() => Some(SchedulingResult::Unschedulable),
            _ => None,
        }
    }

    /// The event in the words that most stacks share.
    pub(super) fn event(&self) -> Option<GroupEvent> {
        let reason = match self.scheduling_result()? {
            SchedulingResult::Unschedulable => "Unschedulable",
            SchedulingResult::Scheduled => "Scheduled",
        };
        Some(GroupEvent { reason, message: self.message.to_owned() })
    }
}

/// A decision in terms of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchedulingResult {
    /// The gang cannot be placed.
    Unschedulable,
    /// The gang is placed.
    Scheduled,
}

/// An event to record on a group object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupEvent {
    /// `reason`.
    pub reason: &'static str,
    /// `note`.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::group::GroupKind;
    use crate::dialect::group_kinds;
    use crate::dialect::registry::dialect;
    use crate::model::DialectId;

    #[test]
    fn each_stack_has_its_own_reasons() {
        let of_kind = |kind: GroupKind, reason: Reason, expected: Option<(&'static str, &str)>| {
            let context = GroupEventContext {
                reason,
                message: "because",
                members: 4,
                min_members: 3,
                scheduled: 1,
                gated_by_others: 1,
            };
            let event = dialect(kind.dialect()).event(kind, &context);
            let event = event.as_ref().map(|event| (event.reason, event.message.as_str()));
            assert_eq!(event, expected, "{kind:?} {reason}");
        };
        let check = |id: DialectId, reason: Reason, expected: Option<(&'static str, &str)>| {
            let first = group_kinds().find(|kind| kind.dialect() == id).unwrap();
            of_kind(first, reason, expected);
        };
        let workload = group_kinds().find(|kind| kind.resource().kind == "Workload").unwrap();
        of_kind(workload, Reason::Lifted, Some(("GangScheduled", "because")));
        of_kind(workload, Reason::Torn, Some(("Unschedulable", "because")));
        let every = [DialectId::Kai, DialectId::Coscheduling, DialectId::Volcano, DialectId::Native];
        for id in every {
            for reason in [Reason::SizesDiffer, Reason::PriorityClassNotFound, Reason::Unreadable] {
                check(id, reason, None);
            }
        }
        for id in [DialectId::Kai, DialectId::Coscheduling, DialectId::Native] {
            check(id, Reason::InsufficientVram, Some(("Unschedulable", "because")));
            check(id, Reason::Torn, Some(("Unschedulable", "because")));
            check(id, Reason::Lifted, Some(("Scheduled", "because")));
        }
        check(
            DialectId::Volcano,
            Reason::UntoleratedTaint,
            Some((
                "Unschedulable",
                "3/4 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; because",
            )),
        );
        check(DialectId::Volcano, Reason::Lifted, Some(("Scheduled", "pod group is ready")));
        check(
            DialectId::Kai,
            Reason::ForeignGate,
            Some((
                "NotReady",
                "Job is not ready for scheduling. Waiting for 3 pods, currently 4 exist, 1 are gated; because",
            )),
        );
    }
}
