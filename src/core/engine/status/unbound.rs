//! Why lifted members are not bound: what the engine knows of their nodes, and what their scheduler reports.
//!
//! The text of a scheduler is on one line and of bounded length ([`crate::pod::Pod::scheduler_message`]).
//! Members with equal reasons share one sentence.

use std::collections::BTreeMap;

use crate::engine::members::node_fitness::node_unfit_reason;
use crate::engine::protocol::PlanRecord;
use crate::engine::state::{EngineView, Gang};
use crate::model::Str;

/// A sentence names at most this many members before "and N more".
const MAX_NAMED_PODS: usize = 3;
/// At most this many different reasons are listed.
const MAX_REASONS: usize = 3;

impl Gang {
    /// For each reason why lifted members of the plan are not bound, a sentence with these members.
    pub(super) fn unbound_sentences(&self, view: &EngineView<'_>, plan: &PlanRecord) -> Vec<String> {
        let unbound = self.present(plan).filter(|(_, member)| member.unbound());
        let reasons = unbound.map(|(planned, member)| {
            let own = node_unfit_reason(view.snapshot, &member.pod, &planned.node);
            let why = match (own, &member.pod.scheduler_message) {
                (Some(own), Some(said)) => format!("{own}; the scheduler reports: {said}"),
                (Some(own), None) => own,
                (None, Some(said)) => format!("the scheduler reports: {said}"),
                (None, None) => format!("the scheduler has not tried {} yet", planned.node),
            };
            (why, &planned.pod)
        });
        sentences(reasons, "not bound")
    }

    /// The same for members that a scheduler has refused, and nothing about those that it has not tried yet.
    pub(super) fn refused_sentences(&self, plan: &PlanRecord) -> Vec<String> {
        let refused = self.present(plan).filter_map(|(planned, member)| {
            let said = member.pod.scheduler_message.as_ref().filter(|_| member.unbound())?;
            Some((format!("the scheduler reports: {said}"), &planned.pod))
        });
        sentences(refused, "not bound yet")
    }
}

/// One sentence for each reason: `a, b, c and 5 more not bound: REASON`. Reasons with the most members first.
fn sentences<'p>(reasons: impl Iterator<Item = (String, &'p Str)>, what: &str) -> Vec<String> {
    let mut pods_by_reason: BTreeMap<String, Vec<&Str>> = BTreeMap::new();
    for (reason, pod) in reasons {
        pods_by_reason.entry(reason).or_default().push(pod);
    }
    let mut groups: Vec<(String, Vec<&Str>)> = pods_by_reason.into_iter().collect();
    groups.sort_by(|(a, pods), (b, others)| (others.len(), a).cmp(&(pods.len(), b)));
    let untold: usize = groups.iter().skip(MAX_REASONS).map(|(_, pods)| pods.len()).sum();
    let told = groups.iter().take(MAX_REASONS);
    let mut lines: Vec<String> =
        told.map(|(reason, pods)| format!("{} {what}: {reason}", named(pods))).collect();
    if untold > 0 {
        lines.push(format!("{untold} more {what}, for other reasons"));
    }
    lines
}

/// `a`, `a and b`, `a, b, c and 5 more`.
fn named(pods: &[&Str]) -> String {
    let mut names: Vec<String> = pods.iter().take(MAX_NAMED_PODS).map(ToString::to_string).collect();
    if pods.len() > MAX_NAMED_PODS {
        names.push(format!("{} more", pods.len() - MAX_NAMED_PODS));
    }
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::str;

    #[test]
    fn equal_reasons_share_a_sentence_and_few_members_are_named() {
        let check = |reasons: &[(&str, u32)], expected: &[&str]| {
            let pods: Vec<(String, Str)> = (reasons.iter())
                .flat_map(|(why, count)| {
                    (0..*count).map(move |n| ((*why).to_owned(), str(format!("{why}{n}"))))
                })
                .collect();
            let told = sentences(pods.iter().map(|(why, pod)| (why.clone(), pod)), "not bound");
            assert_eq!(told, expected);
        };
        check(&[], &[]);
        check(&[("x", 1)], &["x0 not bound: x"]);
        check(&[("x", 1), ("y", 2)], &["y0 and y1 not bound: y", "x0 not bound: x"]);
        check(&[("x", 9)], &["x0, x1, x2 and 6 more not bound: x"]);
        let all = [("a", 4), ("b", 3), ("c", 3), ("d", 2), ("e", 1)];
        check(
            &all,
            &[
                "a0, a1, a2 and 1 more not bound: a",
                "b0, b1 and b2 not bound: b",
                "c0, c1 and c2 not bound: c",
                "3 more not bound, for other reasons",
            ],
        );
    }
}
