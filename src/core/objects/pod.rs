//! A pod as the engine sees it: owned, small, everything decided that can be decided from the pod alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::affinity::{NodeChoice, Toleration};
use super::view::PodView;
use super::{Owner, ReadError, effective_requests, names};
use crate::dialect::{self, Membership};
use crate::gpu::GpuShare;
use crate::model::{NodeName, PodKey, PodUid, ResourceVersion, Resources, Str, Time, str};

/// `status.phase`, as far as it bears on capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    /// Not started, or in a phase this version does not know.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// Ended well: uses nothing any more.
    Succeeded,
    /// Ended badly: uses nothing any more.
    Failed,
}

/// What the planner needs to know to place a pod. Pods made from one template have equal shapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// Effective requests, whole GPUs among them.
    pub requests: Resources,
    /// A share of one or more cards.
    pub share: Option<GpuShare>,
    /// Node selector and required node affinity.
    pub choice: NodeChoice,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Host ports: address (empty is all), protocol, port.
    pub host_ports: BTreeSet<HostPort>,
}

impl Shape {
    /// What a pod asks for.
    ///
    /// # Errors
    /// A sentence naming the field.
    pub fn of(view: &PodView<'_>) -> Result<Self, String> {
        let spec = &view.spec;
        let containers = spec.containers.iter().chain(&spec.init_containers);
        let host_ports = containers
            .flat_map(|c| &c.ports)
            .filter_map(|p| {
                let port = if p.host_port == 0 && spec.host_network { p.container_port } else { p.host_port };
                let protocol = if p.protocol.is_empty() { "TCP" } else { p.protocol.as_str() };
                let address = if p.host_ip.as_str() == "0.0.0.0" { "" } else { p.host_ip.as_str() };
                (port != 0).then(|| (str(address), str(protocol), port))
            })
            .collect();
        Ok(Self {
            requests: effective_requests(view)?,
            share: GpuShare::of(view),
            choice: NodeChoice::read(spec),
            tolerations: spec.tolerations.iter().filter_map(Toleration::read).collect(),
            host_ports,
        })
    }
}

/// A port on the node: address (empty means every address), protocol, number.
pub type HostPort = (Str, Str, u32);

/// How `spec.affinity` is laid out, which decides how a JSON patch has to add a pin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AffinityLayout {
    /// `spec.affinity` is there.
    pub affinity: bool,
    /// `spec.affinity.nodeAffinity` is there.
    pub node_affinity: bool,
    /// The required terms, if there is such a field.
    pub required: Option<Vec<TermLayout>>,
    /// Whether there is a list of preferred terms.
    pub preferred: bool,
}

/// How one required term is laid out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TermLayout {
    /// Requires nothing, so it matches nothing, and the API server lets nothing be added to it.
    pub empty: bool,
    /// Has a `matchFields` list.
    pub has_fields: bool,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// Identity.
    pub uid: PodUid,
    /// Version of this reading.
    pub resource_version: ResourceVersion,
    /// When it was created.
    pub created: Time,
    /// Scheduling gates in order.
    pub gates: Vec<Str>,
    /// Where it is bound.
    pub node: Option<NodeName>,
    /// Where a scheduler, or we, mean it to go.
    pub nominated: Option<NodeName>,
    /// Phase.
    pub phase: PodPhase,
    /// Being deleted: still uses what it uses.
    pub terminating: bool,
    /// Who places it.
    pub scheduler: Str,
    /// Resolved priority.
    pub priority: i32,
    /// Name of its PriorityClass.
    pub priority_class: Option<Str>,
    /// The cards it was given by us (`portcullis.dev/gpus`).
    pub gpus: Option<Vec<u32>>,
    /// The gang it belongs to.
    pub membership: Option<Membership>,
    /// What made it and takes care of it; `None` also where it belongs to no gang.
    pub owner: Option<Owner>,
    /// What it takes to place it.
    pub shape: Arc<Shape>,
    /// How a patch can pin it.
    pub affinity: AffinityLayout,
}

impl Pod {
    /// Reads a pod from its JSON.
    ///
    /// # Errors
    /// When it is no JSON, lacks name or UID, or a field we need has the wrong type or an unreadable value.
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
    /// A sentence naming the field.
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
            phase: match status.phase.as_str() {
                "Running" => PodPhase::Running,
                "Succeeded" => PodPhase::Succeeded,
                "Failed" => PodPhase::Failed,
                _ => PodPhase::Pending,
            },
            terminating: meta.deletion_timestamp.is_some(),
            scheduler: some(&spec.scheduler_name).unwrap_or_else(|| str(names::DEFAULT_SCHEDULER)),
            priority: spec.priority,
            priority_class: some(&spec.priority_class_name),
            gpus,
            owner: membership.as_ref().and_then(|_| Owner::controlling(meta)),
            membership,
            shape: Arc::new(Shape::of(view)?),
            affinity,
        })
    }

    /// Whether our gate holds it.
    pub fn gated(&self) -> bool {
        self.gates.iter().any(|g| &**g == names::GATE)
    }

    /// Whether it has ended and uses nothing any more.
    pub fn finished(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// The node its required affinity names and no other.
    pub fn pinned_to(&self) -> Option<NodeName> {
        self.shape.choice.pinned_to()
    }

    /// Whether a scheduler that places gangs itself takes care of it: then it is never pinned or nominated.
    pub fn placed_by_gang_scheduler(&self) -> bool {
        names::GANG_SCHEDULERS.contains(&&*self.scheduler)
    }
}
