//! `status.conditions` by the conventions of Kubernetes, for `kubectl wait` and for tools.
//!
//! Conditions follow from the status and hold no state of their own. A condition without content yet is left
//! out (unknown); one that exists stays. `lastTransitionTime` changes only when the status of the condition
//! changes.

use portcullis_text::counted;

use crate::engine::members::placeholders::placeholders_summary;
use crate::engine::protocol::{Condition, ConditionStatus, ConditionType, GangStatus, Phase};
use crate::model::{Reason, Time};

/// Inputs of the conditions that are not in the status.
#[derive(Default)]
pub(in crate::engine) struct ConditionInputs {
    /// The sentence about a PriorityClass that does not exist.
    pub class_missing: Option<String>,
    /// The sentence about members that declare another size than the group object.
    pub size_conflict: Option<String>,
    /// The gang is stale.
    pub stale: bool,
    /// The content of the condition `Elastic`.
    pub elastic: ElasticCondition,
    /// The gang is elastic and complete: what starts is a scale-up.
    pub grows: bool,
}

/// The content of the condition `Elastic`.
#[derive(Default)]
pub(in crate::engine) enum ElasticCondition {
    /// The gang is not elastic.
    #[default]
    Absent,
    /// The owners are being read: the stored condition stays.
    Unchanged,
    /// The owners have been read.
    Known {
        /// The owners determine the size.
        holds: bool,
        /// The reason.
        reason: &'static str,
        /// The message.
        message: String,
    },
}

/// The conditions of a status.
pub(in crate::engine) fn conditions(
    wanted: &GangStatus,
    stored: &[Condition],
    inputs: ConditionInputs,
    generation: u64,
    now: Time,
) -> Vec<Condition> {
    let mut list = ConditionList { stored, generation, now, conditions: Vec::new() };
    let reason = wanted.reason.map_or("Unknown", |reason| reason.as_str());
    list.add_complete(wanted, reason);
    list.add_planned(wanted, reason);
    list.add_admitted(wanted, reason, inputs.grows);
    let timed_out = wanted.reason == Some(Reason::SchedulingTimeout);
    let stale_reason = if inputs.stale { "StaleJob" } else { reason };
    for (kind, holds, reason) in [
        (ConditionType::Torn, wanted.phase == Phase::Torn, reason),
        (ConditionType::SchedulingTimeout, timed_out, reason),
        (ConditionType::Stale, inputs.stale, stale_reason),
    ] {
        if holds || list.stored(kind).is_some() {
            list.add(kind, holds, reason, wanted.message.clone());
        }
    }
    list.add_elastic(inputs.elastic);
    list.add_unless_problem(
        ConditionType::PriorityClassFound,
        inputs.class_missing,
        ["PriorityClassNotFound", "Found"],
        "the PriorityClass that the group names exists",
    );
    list.add_unless_problem(
        ConditionType::SizeAgrees,
        inputs.size_conflict,
        ["SizesDiffer", "SizesAgree"],
        "the pods say what the group object says",
    );
    list.conditions
}

/// New conditions, and the stored ones that they replace.
struct ConditionList<'a> {
    stored: &'a [Condition],
    generation: u64,
    now: Time,
    conditions: Vec<Condition>,
}

impl<'a> ConditionList<'a> {
    /// The stored condition of this type.
    fn stored(&self, kind: ConditionType) -> Option<&'a Condition> {
        self.stored.iter().find(|condition| condition.kind == kind)
    }

    fn add(&mut self, kind: ConditionType, holds: bool, reason: &str, message: String) {
        let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
        let since = self.stored(kind).filter(|c| c.status == status).map(|c| c.last_transition_time);
        self.conditions.push(Condition {
            kind,
            status,
            reason: reason.to_owned(),
            message,
            last_transition_time: since.unwrap_or(Time(self.now.0 / 1000 * 1000)),
            observed_generation: self.generation,
        });
    }

    fn add_complete(&mut self, wanted: &GangStatus, reason: &str) {
        if wanted.phase == Phase::Gathering {
            self.add(ConditionType::Complete, false, reason, wanted.message.clone());
        } else {
            self.add(ConditionType::Complete, true, "Complete", complete_sentence(wanted));
        }
    }

    fn add_planned(&mut self, wanted: &GangStatus, reason: &str) {
        let planned = matches!(wanted.phase, Phase::Planned | Phase::Lifting | Phase::Admitted | Phase::Torn);
        if let Some(plan) = wanted.plan.as_ref().filter(|_| planned) {
            let mut text = format!("{} a place", counted(plan.members.len(), "member has", "members have"));
            if !plan.placeholders.is_empty() {
                let reserved = placeholders_summary(&plan.placeholders);
                text = format!("{text}, and capacity is reserved for {reserved}");
            }
            self.add(ConditionType::Planned, true, "Planned", text);
        } else if wanted.phase == Phase::Waiting
            || (!planned && self.stored(ConditionType::Planned).is_some())
        {
            self.add(ConditionType::Planned, false, reason, wanted.message.clone());
        }
    }

    fn add_admitted(&mut self, wanted: &GangStatus, reason: &str, grows: bool) {
        let kind = ConditionType::Admitted;
        let (bound, members) = (wanted.bound, wanted.members);
        match wanted.phase {
            Phase::Admitted => self.add(kind, true, "Admitted", wanted.message.clone()),
            Phase::Torn => self.add(kind, false, reason, wanted.message.clone()),
            Phase::Planned | Phase::Lifting if grows => {
                let text = format!("{bound} of {members} members are bound, and more of them start");
                self.add(kind, true, "Admitted", text);
            }
            Phase::Planned | Phase::Lifting => {
                self.add(kind, false, reason, format!("{bound} of {members} members are bound"));
            }
            Phase::Gathering | Phase::Waiting => {
                if self.stored(kind).is_some() {
                    self.add(kind, false, reason, wanted.message.clone());
                }
            }
        }
    }

    fn add_elastic(&mut self, content: ElasticCondition) {
        let kind = ConditionType::Elastic;
        match content {
            ElasticCondition::Absent => {}
            ElasticCondition::Unchanged => {
                if let Some(stored) = self.stored(kind) {
                    let holds = stored.status == ConditionStatus::True;
                    self.add(kind, holds, &stored.reason, stored.message.clone());
                }
            }
            ElasticCondition::Known { holds, reason, message } => self.add(kind, holds, reason, message),
        }
    }

    /// Adds a condition that holds unless there is a problem. Left out until there was one. The codes are the
    /// reasons with and without a problem. The message is the one without a problem.
    fn add_unless_problem(
        &mut self,
        kind: ConditionType,
        problem: Option<String>,
        codes: [&str; 2],
        message_without: &str,
    ) {
        match problem {
            Some(text) => self.add(kind, false, codes[0], text),
            None if self.stored(kind).is_some() => self.add(kind, true, codes[1], message_without.to_owned()),
            None => {}
        }
    }
}

/// The message of the condition `Complete` of a complete gang.
fn complete_sentence(wanted: &GangStatus) -> String {
    let some = wanted.phase == Phase::Waiting && wanted.members < wanted.min_member;
    let reserved = wanted.plan.as_ref().is_some_and(|plan| !plan.placeholders.is_empty());
    let least = wanted.min_member;
    let started_with = wanted.started_with;
    if wanted.phase == Phase::Admitted && (1..least).contains(&started_with) {
        let members = counted(started_with, "member", "members");
        format!("it was complete with {members}, and its owners want {least}")
    } else if some || reserved {
        format!("the group wants {least} members, and the missing ones are known")
    } else if least == 1 {
        "the group wants 1 member, and it is here".to_owned()
    } else {
        format!("the group wants {least} members, and they are here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::PlanRecord;
    use crate::model::Epoch;

    fn said(list: &[Condition]) -> Vec<String> {
        list.iter()
            .map(|c| format!("{:?}={:?} {} since {}", c.kind, c.status, c.reason, c.last_transition_time.0))
            .collect()
    }

    /// One gang over time: each status follows the one before it, a second later.
    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let plan = Some(PlanRecord { epoch: Epoch(1), deadline: Time(9), ..PlanRecord::default() });
        let status = |phase, reason, plan: &Option<PlanRecord>| GangStatus {
            phase,
            reason: Some(reason),
            plan: plan.clone(),
            ..GangStatus::default()
        };
        let missing = || Some("PriorityClass \"x\" not found".to_owned());
        let story: [(GangStatus, Option<String>, &[&str]); 6] = [
            (
                status(Phase::Gathering, Reason::Gathering, &None),
                missing(),
                &[
                    "Complete=False Gathering since 1000",
                    "PriorityClassFound=False PriorityClassNotFound since 1000",
                ],
            ),
            (
                status(Phase::Waiting, Reason::InsufficientVram, &None),
                missing(),
                &[
                    "Complete=True Complete since 2000",
                    "Planned=False InsufficientVram since 2000",
                    "PriorityClassFound=False PriorityClassNotFound since 1000",
                ],
            ),
            (
                status(Phase::Waiting, Reason::Fragmented, &None),
                None,
                &[
                    "Complete=True Complete since 2000",
                    "Planned=False Fragmented since 2000",
                    "PriorityClassFound=True Found since 3000",
                ],
            ),
            (
                status(Phase::Planned, Reason::Planned, &plan),
                None,
                &[
                    "Complete=True Complete since 2000",
                    "Planned=True Planned since 4000",
                    "Admitted=False Planned since 4000",
                    "PriorityClassFound=True Found since 3000",
                ],
            ),
            (
                status(Phase::Torn, Reason::Torn, &plan),
                None,
                &[
                    "Complete=True Complete since 2000",
                    "Planned=True Planned since 4000",
                    "Admitted=False Torn since 4000",
                    "Torn=True Torn since 5000",
                    "PriorityClassFound=True Found since 3000",
                ],
            ),
            (
                status(Phase::Admitted, Reason::Admitted, &plan),
                None,
                &[
                    "Complete=True Complete since 2000",
                    "Planned=True Planned since 4000",
                    "Admitted=True Admitted since 6000",
                    "Torn=False Admitted since 6000",
                    "PriorityClassFound=True Found since 3000",
                ],
            ),
        ];
        let mut stored = Vec::new();
        for (second, (status, missing, expected)) in (1..).zip(story) {
            let inputs = ConditionInputs { class_missing: missing, ..ConditionInputs::default() };
            stored = conditions(&status, &stored, inputs, 1, Time(second * 1000 + 7));
            assert_eq!(said(&stored), expected);
        }
    }
}
