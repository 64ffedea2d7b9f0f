//! Pods and their owners, in the form that the engine and the scheduler simulation use.
//!
//! A [`Pod`] owns its data and is small. Everything that follows from the pod alone is computed once, when it
//! is read: the gang it belongs to, its [`Shape`], how a patch can pin it to a node.

mod owner;

use std::sync::Arc;

pub use owner::OwnerState;

use crate::dialect::{self, Membership};
use crate::model::{NodeName, PodKey, PodUid, ResourceVersion, Str, Time, str};
use crate::objects::view::{Condition, PodView};
use crate::objects::{ObjectRef, PodLabels, ReadError, names};
use crate::shape::Shape;

/// Upper bound of [`Pod::scheduler_message`].
pub const MAX_SCHEDULER_MESSAGE_BYTES: usize = 320;

/// `status.phase`, as far as capacity depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    /// Not started, or in a phase this version does not know.
    #[default]
    Pending,
    /// At least one container is running.
    Running,
    /// All containers succeeded. The pod uses no capacity any more.
    Succeeded,
    /// A container failed. The pod uses no capacity any more.
    Failed,
}

/// Which parts of `spec.affinity` exist. A JSON patch that pins the pod has to add the missing ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AffinityLayout {
    /// `spec.affinity` exists.
    pub affinity: bool,
    /// `spec.affinity.nodeAffinity` exists.
    pub node_affinity: bool,
    /// The required terms; `None` where the field does not exist.
    pub required: Option<Vec<TermLayout>>,
    /// The list of preferred terms exists.
    pub preferred: bool,
}

/// Which parts of one required term exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TermLayout {
    /// The term has no requirements. It matches no node, and the API server rejects additions to it.
    pub empty: bool,
    /// The term has a `matchFields` list.
    pub has_fields: bool,
}

/// A pod as the engine sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// UID.
    pub uid: PodUid,
    /// Resource version at which it was read.
    pub resource_version: ResourceVersion,
    /// When it was created.
    pub created: Time,
    /// Scheduling gates in order.
    pub gates: Vec<Str>,
    /// The node it is bound to.
    pub node: Option<NodeName>,
    /// `status.nominatedNodeName`, set by a scheduler or by the engine.
    pub nominated: Option<NodeName>,
    /// The message of the condition `PodScheduled` while a scheduler cannot bind the pod: one line of at most
    /// [`MAX_SCHEDULER_MESSAGE_BYTES`]. `None` also where the pod belongs to no gang.
    pub scheduler_message: Option<Str>,
    /// Phase.
    pub phase: PodPhase,
    /// The pod is being deleted. It uses its capacity until it is gone.
    pub terminating: bool,
    /// `metadata.deletionTimestamp`: when the grace period of a pod that is being deleted ends. Its owner may
    /// create no replacement before. `None` also where the pod belongs to no gang.
    pub grace_end: Option<Time>,
    /// `spec.schedulerName`.
    pub scheduler: Str,
    /// Resolved priority.
    pub priority: i32,
    /// Name of its PriorityClass.
    pub priority_class: Option<Str>,
    /// Indexes of the cards that the engine assigned (`portcullis.dev/gpus`).
    pub gpus: Option<Vec<u32>>,
    /// Namespace and labels, by which rules of other pods select it.
    pub labels: PodLabels,
    /// The gang it belongs to.
    pub membership: Option<Membership>,
    /// The pod runs as long as its node: see [`PodView::is_node_bound`].
    pub node_bound: bool,
    /// Its controller. `None` also where the pod belongs to no gang.
    pub owner: Option<ObjectRef>,
    /// What the planner needs to place it.
    pub shape: Arc<Shape>,
    /// Layout of its affinity, for a patch that pins it.
    pub affinity: AffinityLayout,
}

impl Pod {
    /// Reads a pod from its JSON.
    ///
    /// # Errors
    /// When the text is not JSON, name or UID is missing, or a field has the wrong type or an invalid value.
    pub fn read(json: &str) -> Result<Self, ReadError> {
        let fail = |name: String, problem: String| ReadError { kind: "Pod", name, problem };
        let view: PodView<'_> =
            serde_json::from_str(json).map_err(|e| fail("?".to_owned(), e.to_string()))?;
        Self::from_view(&view)
            .map_err(|problem| fail(format!("{}/{}", view.metadata.namespace, view.metadata.name), problem))
    }

    /// Reads a pod from its view.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub fn from_view(view: &PodView<'_>) -> Result<Self, String> {
        let (meta, spec, status) = (&view.metadata, &view.spec, &view.status);
        if meta.name.is_empty() || meta.uid.is_empty() {
            return Err("metadata.name or metadata.uid is missing".to_owned());
        }
        let some = |text: &str| (!text.is_empty()).then(|| str(text));
        let node_affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        let affinity = AffinityLayout {
            affinity: spec.affinity.is_some(),
            node_affinity: node_affinity.is_some(),
            required: node_affinity.and_then(|n| n.required.as_ref()).map(|required| {
                let terms = required.node_selector_terms.iter();
                let none = |list: &Option<Vec<_>>| list.as_ref().is_none_or(Vec::is_empty);
                terms
                    .map(|t| TermLayout {
                        empty: none(&t.match_expressions) && none(&t.match_fields),
                        has_fields: t.match_fields.is_some(),
                    })
                    .collect()
            }),
            preferred: node_affinity.is_some_and(|n| n.preferred.is_some()),
        };
        let gpus = meta.annotations.text(names::GPUS_ANNOTATION).and_then(|list| {
            list.split(',').map(|index| index.trim().parse::<u32>().ok()).collect::<Option<Vec<_>>>()
        });
        let membership = dialect::membership(view);
        Ok(Self {
            key: PodKey::new(meta.namespace.as_str(), meta.name.as_str()),
            uid: PodUid(str(meta.uid.as_str())),
            resource_version: ResourceVersion::parse(&meta.resource_version),
            created: Time::parse_rfc3339(&meta.creation_timestamp).unwrap_or_default(),
            gates: spec.scheduling_gates.iter().map(|g| str(g.name.as_str())).collect(),
            node: some(&spec.node_name).map(NodeName),
            nominated: some(&status.nominated_node_name).map(NodeName),
            scheduler_message: membership.as_ref().and_then(|_| scheduler_message(view)),
            phase: match status.phase.as_str() {
                "Running" => PodPhase::Running,
                "Succeeded" => PodPhase::Succeeded,
                "Failed" => PodPhase::Failed,
                _ => PodPhase::Pending,
            },
            terminating: meta.deletion_timestamp.is_some(),
            grace_end: membership
                .as_ref()
                .and_then(|_| meta.deletion_timestamp.as_ref().and_then(|text| Time::parse_rfc3339(text))),
            scheduler: some(&spec.scheduler_name).unwrap_or_else(|| str(names::DEFAULT_SCHEDULER)),
            priority: spec.priority,
            priority_class: some(&spec.priority_class_name),
            gpus,
            labels: PodLabels::read(meta),
            owner: membership.as_ref().and_then(|_| ObjectRef::controller_of(meta)),
            membership,
            node_bound: view.is_node_bound(),
            shape: Arc::new(Shape::of(view)?),
            affinity,
        })
    }

    /// Whether the pod has the scheduling gate of Portcullis.
    pub fn gated(&self) -> bool {
        self.gates.iter().any(|g| &**g == names::GATE)
    }

    /// Whether the pod succeeded or failed, so that it uses no capacity any more.
    pub fn finished(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// The one node that its required affinity allows.
    pub fn pinned_to(&self) -> Option<NodeName> {
        self.shape.node_affinity.pinned_to()
    }

    /// The node that will have the pod although it is not bound yet: the one that a scheduler frees for it by
    /// preemption, or the one for which the DaemonSet controller has made it.
    pub fn awaited_node(&self) -> Option<NodeName> {
        if self.node.is_some() || !self.gates.is_empty() || self.finished() || self.terminating {
            None
        } else if self.node_bound {
            self.pinned_to()
        } else {
            self.nominated.clone()
        }
    }

    /// Whether its scheduler places gangs itself. The engine never pins or nominates such a pod.
    pub fn placed_by_gang_scheduler(&self) -> bool {
        names::GANG_SCHEDULERS.contains(&&*self.scheduler)
    }
}

/// The message of a scheduler that cannot bind a pod. A gated pod has the reason `SchedulingGated`, which
/// says nothing about nodes.
fn scheduler_message(view: &PodView<'_>) -> Option<Str> {
    let refused = |c: &&Condition<'_>| {
        c.r#type.as_str() == "PodScheduled"
            && c.status.as_str() == "False"
            && matches!(c.reason.as_str(), "Unschedulable" | "SchedulerError")
    };
    let waits = view.spec.node_name.is_empty() && view.spec.scheduling_gates.is_empty();
    let condition = view.status.conditions.iter().find(refused).filter(|_| waits)?;
    let message = portcullis_text::truncate::one_line(&condition.message, MAX_SCHEDULER_MESSAGE_BYTES);
    Some(str(if message.is_empty() { condition.reason.to_string() } else { message }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_message_of_the_scheduler_is_read_from_pods_that_wait_for_it() {
        let check = |spec: serde_json::Value, reason: &str, message: &str, expected: Option<&str>| {
            let condition =
                json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message});
            let annotations = json!({"portcullis.dev/gang": "g", "portcullis.dev/gang-size": "2"});
            let pod = json!({
                "metadata": {"namespace": "ml", "name": "a", "uid": "u", "annotations": annotations},
                "spec": spec,
                "status": {"conditions": [condition]},
            });
            let pod = Pod::read(&pod.to_string()).expect("the pod of the test can be read");
            assert_eq!(pod.scheduler_message.as_deref(), expected);
        };
        let none = "0/2 nodes are available: 2 Insufficient cpu.";
        check(json!({}), "Unschedulable", none, Some(none));
        check(json!({}), "SchedulerError", "", Some("SchedulerError"));
        check(json!({}), "SchedulingGated", none, None);
        check(json!({"nodeName": "n1"}), "Unschedulable", none, None);
        check(json!({"schedulingGates": [{"name": names::GATE}]}), "Unschedulable", none, None);
        let long = "0/2 nodes\n".repeat(1000);
        let cut = format!("{}0/2 nod…", "0/2 nodes ".repeat(31));
        check(json!({}), "Unschedulable", &long, Some(&cut));
    }
}
