//! `status.conditions` by the conventions of Kubernetes: what holds and what does not, for `kubectl wait` and for tools.
//!
//! Owns nothing that the status does not say already. A condition that has nothing to say yet is left out (unknown); one
//! that was there stays. Its time is when its status last changed, and moves for nothing else.

use serde::{Deserialize, Serialize};

use super::types::{GangStatus, Phase};
use crate::model::{Reason, Time};

/// One entry of `status.conditions` (`metav1.Condition`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which one; there is one of each.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence with numbers.
    pub message: String,
    /// Since when `status` is as it is; whole seconds, as the API server writes `metav1.Time`.
    pub last_transition_time: Time,
    /// `metadata.generation` of the `Gang` object for which this was said.
    #[serde(default)]
    pub observed_generation: u64,
}

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionType {
    /// Enough members are there.
    Complete,
    /// Every planned member has a place, and the plan is durable.
    Planned,
    /// Every planned member is bound to a node.
    Admitted,
    /// Started, past its deadline, and not whole.
    Torn,
    /// It has not started within its timeout. Left out until that has happened once.
    SchedulingTimeout,
    /// It was whole, and has lost members since. Left out until that has happened once.
    Stale,
    /// The PriorityClass that the group names exists. Left out until it once did not.
    PriorityClassFound,
    /// It takes as many members as the owners of its pods want. Left out of gangs that are not elastic.
    Elastic,
    /// What the pods say of the size of their gang is what the group object says. Left out until it once was not.
    SizeAgrees,
}

/// `True` or `False`; what is unknown is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
}

/// What is not as it seems, and holds nobody up: a sentence for each.
#[derive(Default)]
pub(super) struct Doubts {
    /// The group names a PriorityClass that does not exist.
    pub class_missing: Option<String>,
    /// The members say another size than the group object.
    pub overruled: Option<String>,
    /// It was whole, and is not any more.
    pub stale: bool,
    /// Whether its owners say how many members it takes.
    pub elastic: ElasticSays,
    /// It is elastic and whole as it is: what starts comes in addition.
    pub grows: bool,
}

/// What is said of a gang that may follow the owners of its pods.
#[derive(Default)]
pub(super) enum ElasticSays {
    /// It does not.
    #[default]
    Nothing,
    /// They are being asked: what was said before stands.
    AsBefore,
    /// Whether they count, and why.
    This {
        /// They do.
        holds: bool,
        /// In a word.
        reason: &'static str,
        /// In a sentence.
        message: String,
    },
}

/// The conditions that go with a status.
pub(super) fn conditions(
    wanted: &GangStatus,
    stored: &[Condition],
    doubts: Doubts,
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
                        "it was whole with {had} {}, and is to have {least}",
                        if had == 1 { "member" } else { "members" }
                    )
                }
                least if some || held => {
                    format!("the group wants {least} members, and those that are not here are known to come")
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
            text = format!("{text}, and room is held for {}", super::to_come::told(&plan.placeholders));
        }
        say(ConditionType::Planned, true, "Planned", text);
    } else if wanted.phase == Phase::Waiting || (!planned && known(ConditionType::Planned).is_some()) {
        say(ConditionType::Planned, false, reason, message());
    }
    match wanted.phase {
        Phase::Admitted => say(ConditionType::Admitted, true, "Admitted", message()),
        Phase::Torn => say(ConditionType::Admitted, false, reason, message()),
        Phase::Planned | Phase::Lifting if doubts.grows => {
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
    if doubts.stale {
        say(ConditionType::Stale, true, "StaleJob", message());
    } else if known(ConditionType::Stale).is_some() {
        say(ConditionType::Stale, false, reason, message());
    }
    match doubts.elastic {
        ElasticSays::Nothing => {}
        ElasticSays::AsBefore => {
            if let Some(before) = known(ConditionType::Elastic) {
                say(
                    ConditionType::Elastic,
                    before.status == ConditionStatus::True,
                    &before.reason,
                    before.message.clone(),
                );
            }
        }
        ElasticSays::This { holds, reason, message } => say(ConditionType::Elastic, holds, reason, message),
    }
    let mut doubt = |kind, found: Option<String>, code: [&str; 2], all_well: &str| match found {
        Some(text) => say(kind, false, code[0], text),
        None if known(kind).is_some() => say(kind, true, code[1], all_well.to_owned()),
        None => {}
    };
    doubt(
        ConditionType::PriorityClassFound,
        doubts.class_missing,
        ["PriorityClassNotFound", "Found"],
        "the PriorityClass that the group names exists",
    );
    doubt(
        ConditionType::SizeAgrees,
        doubts.overruled,
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

    /// The story of one gang: each status follows the one before it, a second later.
    #[test]
    fn a_condition_moves_its_time_only_when_it_turns() {
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
            let doubts = Doubts { class_missing: missing, ..Doubts::default() };
            stored = conditions(&status, &stored, doubts, 1, Time(second * 1000 + 7));
            assert_eq!(said(&stored), expected);
        }
    }
}
