//! What an event on the group object says, in the words of its stack.
//!
//! Our own object, the pods and the log have our reason codes; who looks at the group finds what the guides of that stack
//! speak of. The sentence is ours, because it says more, but where a stack has one that people look for.

use crate::model::Reason;

/// News of a gang, as it is told to everybody.
#[derive(Clone, Copy, Debug)]
pub struct GroupNews<'n> {
    /// Its code.
    pub reason: Reason,
    /// The sentence.
    pub message: &'n str,
    /// How many live pods the gang has.
    pub members: u32,
    /// How many have to be there.
    pub least: u32,
    /// How many of its live pods are on a node.
    pub scheduled: u32,
    /// How many of its live pods are held by scheduling gates of others.
    pub held: u32,
}

impl GroupNews<'_> {
    /// What it is to a scheduler: cannot be placed, or is placed. Other news are ours, and have no other words.
    pub(super) fn kind(&self) -> Option<NewsKind> {
        match self.reason {
            Reason::Lifted => Some(NewsKind::Scheduled),
            reason if reason.is_unschedulable() => Some(NewsKind::Unschedulable),
            _ => None,
        }
    }

    /// In the words that most stacks share.
    pub(super) fn event(&self) -> Option<GroupEvent> {
        let reason = match self.kind()? {
            NewsKind::Unschedulable => "Unschedulable",
            NewsKind::Scheduled => "Scheduled",
        };
        Some(GroupEvent { reason, message: self.message.to_owned() })
    }
}

/// What news are to a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewsKind {
    /// There is no room for the gang.
    Unschedulable,
    /// It has its places.
    Scheduled,
}

/// An event on a group object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupEvent {
    /// Its reason.
    pub reason: &'static str,
    /// Its note.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{GroupKind, dialect, group_kinds};
    use crate::model::DialectId;

    #[test]
    fn each_stack_has_its_words() {
        let of_kind = |kind: GroupKind, reason: Reason, expected: Option<(&'static str, &str)>| {
            let news = GroupNews { reason, message: "because", members: 4, least: 3, scheduled: 1, held: 1 };
            let said = dialect(kind.dialect()).event(kind, &news);
            let said = said.as_ref().map(|event| (event.reason, event.message.as_str()));
            assert_eq!(said, expected, "{kind:?} {reason}");
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
