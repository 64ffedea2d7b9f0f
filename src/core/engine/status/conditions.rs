//! `status.conditions` by the conventions of Kubernetes, for `kubectl wait` and for tools.
//!
//! Conditions follow from the status and hold no state of their own. A condition without content yet is left
//! out (unknown); one that exists stays. `lastTransitionTime` changes only when the status of the condition
//! changes.

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
    let known = |kind| stored.iter().find(|c| c.kind == kind);
    let mut list = Vec::new();
    let mut say = |kind, holds: bool, reason: &str, message: String| {
        let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
        let since = known(kind).filter(|c| c.status == status).map(|c| c.last_transition_time);
        list.push(Condition {
            kind,
            status,
            reason: reason.to_owned(),
            message,
            last_transition_time: since.unwrap_or(Time(now.0 / 1000 * 1000)),
            observed_generation: generation,
        });
    };
    let reason = wanted.reason.map_or("Unknown", |reason| reason.as_str());
    let message = || wanted.message.clone();
    let planned = matches!(wanted.phase, Phase::Planned | Phase::Lifting | Phase::Admitted | Phase::Torn);
    match wanted.phase {
        Phase::Gathering => say(ConditionType::Complete, false, reason, message()),
        _ => {
            let some = wanted.phase == Phase::Waiting && wanted.members < wanted.min_member;
            let held = wanted.plan.as_ref().is_some_and(|plan| !plan.placeholders.is_empty());
            let text = match wanted.min_member {
                least if wanted.phase == Phase::Admitted && (1..least).contains(&wanted.started_with) => {
                    let had = wanted.started_with;
                    format!(
                        "it was complete with {had} {}, and its owners want {least}",
                        if had == 1 { "member" } else { "members" }
                    )
                }
                least if some || held => {
                    format!("the group wants {least} members, and the missing ones are known")
                }
                1 => "the group wants 1 member, and it is here".to_owned(),
                least => format!("the group wants {least} members, and they are here"),
            };
            say(ConditionType::Complete, true, "Complete", text);
        }
    }
    if let Some(plan) = wanted.plan.as_ref().filter(|_| planned) {
        let members = plan.members.len();
        let mut text =
            format!("{members} {} a place", if members == 1 { "member has" } else { "members have" });
        if !plan.placeholders.is_empty() {
            let reserved = placeholders_summary(&plan.placeholders);
            text = format!("{text}, and capacity is reserved for {reserved}");
        }
        say(ConditionType::Planned, true, "Planned", text);
    } else if wanted.phase == Phase::Waiting || (!planned && known(ConditionType::Planned).is_some()) {
        say(ConditionType::Planned, false, reason, message());
    }
    match wanted.phase {
        Phase::Admitted => say(ConditionType::Admitted, true, "Admitted", message()),
        Phase::Torn => say(ConditionType::Admitted, false, reason, message()),
        Phase::Planned | Phase::Lifting if inputs.grows => {
            let text =
                format!("{} of {} members are bound, and more of them start", wanted.bound, wanted.members);
            say(ConditionType::Admitted, true, "Admitted", text);
        }
        Phase::Planned | Phase::Lifting => {
            let text = format!("{} of {} members are bound", wanted.bound, wanted.members);
            say(ConditionType::Admitted, false, reason, text);
        }
        Phase::Gathering | Phase::Waiting => {
            if known(ConditionType::Admitted).is_some() {
                say(ConditionType::Admitted, false, reason, message());
            }
        }
    }
    if wanted.phase == Phase::Torn {
        say(ConditionType::Torn, true, reason, message());
    } else if known(ConditionType::Torn).is_some() {
        say(ConditionType::Torn, false, reason, message());
    }
    if wanted.reason == Some(Reason::SchedulingTimeout) {
        say(ConditionType::SchedulingTimeout, true, reason, message());
    } else if known(ConditionType::SchedulingTimeout).is_some() {
        say(ConditionType::SchedulingTimeout, false, reason, message());
    }
    if inputs.stale {
        say(ConditionType::Stale, true, "StaleJob", message());
    } else if known(ConditionType::Stale).is_some() {
        say(ConditionType::Stale, false, reason, message());
    }
    match inputs.elastic {
        ElasticCondition::Absent => {}
        ElasticCondition::Unchanged => {
            if let Some(before) = known(ConditionType::Elastic) {
                say(
                    ConditionType::Elastic,
                    before.status == ConditionStatus::True,
                    &before.reason,
                    before.message.clone(),
                );
            }
        }
        ElasticCondition::Known { holds, reason, message } => {
            say(ConditionType::Elastic, holds, reason, message);
        }
    }
    let mut doubt = |kind, found: Option<String>, code: [&str; 2], all_well: &str| match found {
        Some(text) => say(kind, false, code[0], text),
        None if known(kind).is_some() => say(kind, true, code[1], all_well.to_owned()),
        None => {}
    };
    doubt(
        ConditionType::PriorityClassFound,
        inputs.class_missing,
        ["PriorityClassNotFound", "Found"],
        "the PriorityClass that the group names exists",
    );
    doubt(
        ConditionType::SizeAgrees,
        inputs.size_conflict,
        ["SizesDiffer", "SizesAgree"],
        "the pods say what the group object says",
    );
    list
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
