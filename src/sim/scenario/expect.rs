//! The expected state after a step.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::format::OneOrMany;
use super::runner::StepResult;
use crate::cluster::RecordedEvent;

/// The expected state after the cluster has settled. Every expectation must hold. Pods are named `name` or
/// `namespace/name`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Expect {
    /// Pods that run.
    pub running: Vec<String>,
    /// Pods that have the gate of Portcullis.
    pub gated: Vec<String>,
    /// Pods that are not gated and have no node.
    pub pending: Vec<String>,
    /// Names of pods that do not exist.
    pub gone: Vec<String>,
    /// Node of each pod.
    pub on: BTreeMap<String, String>,
    /// Assigned cards of each pod.
    pub cards: BTreeMap<String, Vec<u32>>,
    /// Allocated MiB on each card of each node.
    pub used: BTreeMap<String, Vec<u64>>,
    /// Annotations of each pod, with values.
    pub annotations: BTreeMap<String, BTreeMap<String, String>>,
    /// `kubectl get pods -l SELECTOR` lists exactly these pods.
    pub selected: BTreeMap<String, Vec<String>>,
    /// Number of pods by label selector and status (`Running: 2`).
    pub count: BTreeMap<String, BTreeMap<String, usize>>,
    /// Expected `Gang` objects by name.
    pub gangs: BTreeMap<String, GangExpect>,
    /// Expected status of group objects by name.
    pub groups: BTreeMap<String, GroupExpect>,
    /// Names of `Gang` objects that do not exist.
    pub no_gang: Vec<String>,
    /// Objects that are rejected in this step.
    pub rejected: BTreeMap<String, RejectExpect>,
    /// Parts of warnings of this step.
    pub warnings: Vec<String>,
    /// Parts of events that the engines recorded in this step, as `Reason: message`.
    pub events: Vec<String>,
    /// Number of schedulable nodes.
    pub schedulable_nodes: Option<usize>,
}

/// The expected status of a `Gang` object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct GangExpect {
    /// Phase.
    pub phase: Option<String>,
    /// Reason.
    pub reason: Option<String>,
    /// Parts of the message or remedy.
    pub message: Option<OneOrMany>,
    /// Number of members.
    pub members: Option<u32>,
    /// Number of bound members.
    pub bound: Option<u32>,
}

/// The expected status of a group object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct GroupExpect {
    /// `status.phase`.
    pub phase: Option<String>,
    /// `status.scheduled`.
    pub scheduled: Option<u32>,
    /// Parts of the message of a condition.
    pub message: Option<OneOrMany>,
}

/// The expected rejection of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct RejectExpect {
    /// The exact causes, as `field: message`.
    pub causes: Option<Vec<String>>,
    /// Parts of the output of kubectl.
    pub message: Option<OneOrMany>,
}

impl Expect {
    /// Each expectation as a sentence, with the actual state where it does not hold.
    pub(super) fn check(&self, seen: &StepResult) -> Vec<(String, Result<(), String>)> {
        let mut verdicts = Vec::new();
        self.check_pods(seen, &mut verdicts);
        self.check_gangs(seen, &mut verdicts);
        self.check_groups(seen, &mut verdicts);
        self.check_messages(seen, &mut verdicts);
        verdicts
    }

    fn check_pods(&self, seen: &StepResult, verdicts: &mut Vec<(String, Result<(), String>)>) {
        let find = |name: &str| {
            let (namespace, bare) = name.split_once('/').unwrap_or(("default", name));
            seen.pods.iter().find(|pod| &*pod.key.namespace == namespace && &*pod.key.name == bare)
        };
        let mut with = |name: &str, what: String, test: &dyn Fn(&super::PodLine) -> bool| {
            let verdict = match find(name) {
                None => Err(format!("there is no pod {name}")),
                Some(pod) if test(pod) => Ok(()),
                Some(pod) => {
                    let node = pod.node.as_deref().unwrap_or("no node");
                    Err(format!("{name} is {} on {node}, cards {:?}", pod.status, pod.cards))
                }
            };
            verdicts.push((format!("{name} {what}"), verdict));
        };
        for name in &self.running {
            with(name, "runs".to_owned(), &|pod| pod.status == "Running" && pod.node.is_some());
        }
        for name in &self.gated {
            with(name, "is gated".to_owned(), &|pod| pod.gated && pod.node.is_none());
        }
        for name in &self.pending {
            with(name, "is pending".to_owned(), &|pod| pod.status == "Pending" && pod.node.is_none());
        }
        for (name, node) in &self.on {
            with(name, format!("is on {node}"), &|pod| pod.node.as_deref() == Some(node));
        }
        for (name, cards) in &self.cards {
            with(name, format!("has cards {cards:?}"), &|pod| pod.cards == *cards);
        }
        for (name, annotations) in &self.annotations {
            for (key, value) in annotations {
                with(name, format!("has annotation {key}={value}"), &|pod| {
                    pod.annotations.iter().any(|(k, v)| k == key && v == value)
                });
            }
        }
        for name in &self.gone {
            let verdict = match find(name) {
                None => Ok(()),
                Some(pod) => Err(format!("{name} is {}", pod.status)),
            };
            verdicts.push((format!("{name} is gone"), verdict));
        }
        for (selector, names) in &self.selected {
            let mut found: Vec<String> =
                selected(seen, selector).map(|pod| pod.key.name.to_string()).collect();
            let mut names = names.clone();
            found.sort();
            names.sort();
            let text = format!("-l {selector} lists {}", names.join(", "));
            let verdict = if found == names { Ok(()) } else { Err(format!("it lists {}", found.join(", "))) };
            verdicts.push((text, verdict));
        }
        for (selector, counts) in &self.count {
            for (status, wanted) in counts {
                let found = selected(seen, selector).filter(|pod| pod.status == status).count();
                let verdict = if found == *wanted { Ok(()) } else { Err(format!("{found} are")) };
                verdicts.push((format!("{wanted} pods with {selector} are {status}"), verdict));
            }
        }
    }

    fn check_gangs(&self, seen: &StepResult, verdicts: &mut Vec<(String, Result<(), String>)>) {
        let find = |name: &str| {
            let (namespace, bare) = name.split_once('/').unwrap_or(("default", name));
            seen.gangs.iter().find(|gang| gang.namespace == namespace && gang.name == bare)
        };
        for (name, wanted) in &self.gangs {
            let Some(gang) = find(name) else {
                verdicts.push((
                    format!("there is a Gang object of gang {name}"),
                    Err("it does not exist".to_owned()),
                ));
                continue;
            };
            let status = &gang.status;
            let mut one = |what: String, holds: bool, found: String| {
                verdicts.push((format!("gang {name} {what}"), if holds { Ok(()) } else { Err(found) }));
            };
            if let Some(phase) = &wanted.phase {
                let found = status.phase.as_str();
                one(format!("is {phase}"), found == phase, format!("it is {found}: {}", status.message));
            }
            if let Some(reason) = &wanted.reason {
                let found = status.reason.map_or("", |reason| reason.as_str());
                one(
                    format!("gives reason {reason}"),
                    found == reason,
                    format!("{found}: {}", status.message),
                );
            }
            let text = format!("{} | {}", status.message, status.remedy.as_deref().unwrap_or(""));
            for part in wanted.message.iter().flat_map(OneOrMany::all) {
                one(
                    format!("reports {part:?}"),
                    text.contains(part.as_str()),
                    format!("it reports {text:?}"),
                );
            }
            if let Some(members) = wanted.members {
                one(
                    format!("has {members} members"),
                    status.members == members,
                    format!("it has {}", status.members),
                );
            }
            if let Some(bound) = wanted.bound {
                one(format!("has {bound} bound"), status.bound == bound, format!("it has {}", status.bound));
            }
        }
        for name in &self.no_gang {
            let verdict = match find(name) {
                None => Ok(()),
                Some(gang) => Err(format!("it is {}", gang.status.phase.as_str())),
            };
            verdicts.push((format!("there is no gang {name}"), verdict));
        }
        for (node, wanted) in &self.used {
            let found = seen.nodes.iter().find(|n| n.name == *node);
            let found: Vec<u64> =
                found.into_iter().flat_map(|n| &n.cards).map(|card| card.used().0).collect();
            let verdict = if found == *wanted { Ok(()) } else { Err(format!("{found:?} MiB")) };
            verdicts.push((format!("{wanted:?} MiB are allocated on {node}"), verdict));
        }
        if let Some(wanted) = self.schedulable_nodes {
            let found = seen.nodes.iter().filter(|node| node.schedulable).count();
            let verdict = if found == wanted { Ok(()) } else { Err(format!("{found} are")) };
            verdicts.push((format!("{wanted} nodes are schedulable"), verdict));
        }
    }

    fn check_groups(&self, seen: &StepResult, verdicts: &mut Vec<(String, Result<(), String>)>) {
        for (name, wanted) in &self.groups {
            let (namespace, bare) = name.split_once('/').unwrap_or(("default", name));
            let found = seen.groups.iter().find(|g| g.namespace == namespace && g.name == bare);
            let status = found.map(|group| &group.status).unwrap_or_default();
            let mut one = |what: String, holds: bool| {
                let verdict = if holds { Ok(()) } else { Err(format!("its status is {status}")) };
                verdicts.push((format!("group {name} {what}"), verdict));
            };
            if let Some(phase) = &wanted.phase {
                one(format!("is {phase}"), status["phase"] == **phase);
            }
            if let Some(scheduled) = wanted.scheduled {
                one(format!("has {scheduled} scheduled"), status["scheduled"] == scheduled);
            }
            let conditions = || status["conditions"].as_array().into_iter().flatten();
            for part in wanted.message.iter().flat_map(OneOrMany::all) {
                let matches =
                    |c: &Value| c["message"].as_str().is_some_and(|text| text.contains(part.as_str()));
                one(format!("reports {part:?}"), conditions().any(matches));
            }
        }
    }

    fn check_messages(&self, seen: &StepResult, verdicts: &mut Vec<(String, Result<(), String>)>) {
        for (name, wanted) in &self.rejected {
            let Some(rejection) = seen.rejected.iter().find(|rejection| rejection.name == *name) else {
                verdicts.push((format!("{name} is rejected"), Err("it was not".to_owned())));
                continue;
            };
            verdicts.push((format!("{name} is rejected"), Ok(())));
            if let Some(causes) = &wanted.causes {
                let found = &rejection.causes;
                let verdict = if found == causes { Ok(()) } else { Err(format!("{found:#?}")) };
                verdicts.push((format!("{name} is rejected for {causes:#?}"), verdict));
            }
            for part in wanted.message.iter().flat_map(OneOrMany::all) {
                let holds = rejection.printed.contains(part.as_str());
                let verdict = if holds { Ok(()) } else { Err(rejection.printed.clone()) };
                verdicts.push((format!("the rejection of {name} contains {part:?}"), verdict));
            }
        }
        let unexpected: Vec<&str> = seen
            .rejected
            .iter()
            .filter(|rejection| !self.rejected.contains_key(&rejection.name))
            .map(|rejection| rejection.printed.as_str())
            .collect();
        if !unexpected.is_empty() {
            verdicts.push(("nothing else is rejected".to_owned(), Err(unexpected.join("\n"))));
        }
        for part in &self.warnings {
            let holds = seen.warnings.iter().any(|warning| warning.contains(part.as_str()));
            let verdict = if holds { Ok(()) } else { Err(format!("warnings: {:?}", seen.warnings)) };
            verdicts.push((format!("a warning contains {part:?}"), verdict));
        }
        for part in &self.events {
            let line = |event: &RecordedEvent| format!("{}: {}", event.note.reason, event.note.message);
            let lines: Vec<String> = seen.events.iter().map(line).collect();
            let holds = lines.iter().any(|line| line.contains(part.as_str()));
            let verdict = if holds { Ok(()) } else { Err(format!("recorded events: {lines:#?}")) };
            verdicts.push((format!("the engine records an event with {part:?}"), verdict));
        }
    }
}

fn selected<'a>(seen: &'a StepResult, selector: &'a str) -> impl Iterator<Item = &'a super::PodLine> {
    let (key, value) = selector.split_once('=').unwrap_or((selector, ""));
    seen.pods.iter().filter(move |pod| pod.labels.iter().any(|(k, v)| k == key && v == value))
}
