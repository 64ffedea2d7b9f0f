//! A trace of all events, one line each, for replaying a seed.

use super::{Cluster, START};
use crate::api::WriteRecord;
use portcullis_core::engine::{Action, Change, Effect, Event, RequestOutcome};
use portcullis_core::pod::Pod;

impl Cluster {
    /// The trace since the last call. Empty unless [`super::SimOptions::trace`] is set.
    pub fn take_trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trace)
    }

    pub(super) fn trace(&mut self, line: impl FnOnce() -> String) {
        if self.options.trace {
            let millis = self.now().since(START).as_millis();
            self.trace.push(format!("+{}.{:03} {}", millis / 1000, millis % 1000, line()));
        }
    }

    pub(super) fn trace_write(&mut self, write: &WriteRecord) {
        self.trace(|| {
            let what = match (&write.before, &write.after) {
                (None, _) => "creates",
                (Some(_), None) => "removes",
                (Some(_), Some(_)) => "writes",
            };
            let now = write.after.as_ref().map_or_else(String::new, |after| {
                let pod = after.pod().map(|pod| format!(" {}", state(pod)));
                let gang = after
                    .gang()
                    .map(|gang| format!(" {} {}", gang.status.phase.as_str(), gang.status.message));
                format!(" v{}{}{}", after.version, pod.unwrap_or_default(), gang.unwrap_or_default())
            });
            format!("{:?} {what} {}{now}", write.actor, write.key)
        });
    }
}

/// One line for an effect.
pub(super) fn effect(effect: &Effect) -> String {
    let epoch = effect.epoch;
    let action = match &effect.action {
        Action::Lift { pod, permit, node, cards, .. } => {
            format!("lifts {} at {permit:?} to {node} {cards:?}", pod.key)
        }
        Action::WriteGang { gang, expected, status } => format!(
            "writes {gang} at v{expected}: {} {:?} {} plan {:?}",
            status.phase.as_str(),
            status.reason,
            status.message,
            status.plan.as_ref().map(|plan| plan
                .members
                .iter()
                .map(|m| m.pod.to_string())
                .collect::<Vec<_>>())
        ),
        other => format!("{other:?}"),
    };
    format!("[{epoch}] {action}")
}

/// One line for an event.
pub(super) fn event(event: &Event) -> String {
    match event {
        Event::Pod(Change::Set(pod)) => format!("pod {} {}", pod.key, state(pod)),
        Event::Gang(Change::Set(gang)) => {
            format!("gang {} v{} {}", gang.gang, gang.resource_version, gang.status.phase.as_str())
        }
        Event::Node(Change::Set(node)) => format!("node {}", node.name),
        Event::Group(Change::Set(group)) => format!("group {}/{}", group.key.namespace, group.key.name),
        Event::Listed(epoch, _) => format!("the list of epoch {epoch}"),
        Event::Answer { epoch, subject, outcome } => {
            let outcome = match outcome {
                RequestOutcome::Pod(pod) => format!("pod {}", state(pod)),
                RequestOutcome::Gang(gang) => {
                    format!("gang v{} {}", gang.resource_version, gang.status.phase.as_str())
                }
                other => format!("{other:?}"),
            };
            format!("[{epoch}] answer about {subject:?}: {outcome}")
        }
        other => format!("{other:?}"),
    }
}

fn state(pod: &Pod) -> String {
    let gated = if pod.gated() { "gated" } else { "free" };
    let node = pod.node.as_ref().map_or("-", |node| node.as_str());
    let ending = if pod.terminating { " terminating" } else { "" };
    format!("v{} {gated} on {node} {:?} {:?}{ending}", pod.resource_version, pod.gpus, pod.phase)
}
