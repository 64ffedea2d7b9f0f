//! The content of the `Gang` object: status and durable plan.

use serde::{Deserialize, Serialize};

use super::Placeholder;
use super::condition::Condition;
use crate::model::{Epoch, GangId, NodeName, PodUid, Reason, ResourceVersion, Str, Time};

/// A `Gang` object as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GangRecord {
    /// The gang of the object.
    pub gang: GangId,
    /// Version of the object.
    pub resource_version: ResourceVersion,
    /// `metadata.generation`: the number of changes of the spec.
    pub generation: u64,
    /// Status of the object.
    pub status: GangStatus,
}

/// The phase of a gang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Members are missing.
    #[default]
    Gathering,
    /// All members are there, and they do not fit.
    Waiting,
    /// A plan is durable.
    Planned,
    /// The engine removes the gates of all planned members.
    Lifting,
    /// Every planned member is bound.
    Admitted,
    /// The gang is lifted, and after the deadline not every member is bound.
    Torn,
}

impl Phase {
    /// The name of the phase in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gathering => "Gathering",
            Self::Waiting => "Waiting",
            Self::Planned => "Planned",
            Self::Lifting => "Lifting",
            Self::Admitted => "Admitted",
            Self::Torn => "Torn",
        }
    }
}

/// `status` of a `Gang` object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangStatus {
    /// The epoch of the leader that wrote the status. A leader that reads a newer epoch than its own steps
    /// down.
    pub epoch: Epoch,
    /// The phase.
    pub phase: Phase,
    /// The reason for the phase, as a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The reason for the phase, as a sentence with numbers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What would make the gang fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The number of members that the gang needs.
    pub min_member: u32,
    /// Ready or started members of the needed ones: `3/3`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ready: String,
    /// What is missing, in a few words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
    /// The number of live members.
    pub members: u32,
    /// The number of bound members.
    pub bound: u32,
    /// The sum of the resource requests of all members.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub needs: String,
    /// Position in the queue, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Since when the gang is in this phase.
    pub since: Time,
    /// Conditions, for `kubectl wait` and for tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The number of members when the gang was last complete. Zero before that, and after members have
    /// succeeded: then the gang is on its way to its end.
    #[serde(skip_serializing_if = "is_zero")]
    pub started_with: u32,
    /// The retries of a torn gang. Absent unless the policy is to retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn: Option<TornRecord>,
    /// Pods that the engine deletes, because the gang timed out, went stale or is torn. The engine never
    /// lifts one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expired: Vec<PodUid>,
    /// The durable plan. The engine lifts only members of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanRecord>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The retries of a torn gang, from its first missed deadline until all members are bound or none is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TornRecord {
    /// The first missed deadline.
    pub since: Time,
    /// How often unbound members were evicted.
    #[serde(skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// Other members ran already at the first missed deadline: the unbound members are replacements or a
    /// scale-up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub had_started: bool,
}

/// A durable plan: pods and their nodes, with the epoch of the leader that decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRecord {
    /// The epoch of the leader.
    pub epoch: Epoch,
    /// Time by which every member should be bound. After it, the gang is torn.
    pub deadline: Time,
    /// The assignment of each member.
    pub members: Vec<PlannedMember>,
    /// Reservations for members whose pods do not exist yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placeholders: Vec<Placeholder>,
    /// When the reservations expire, unless a member is created by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_until: Option<Time>,
    /// The number of reservations that were released before a member used them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub released: u32,
}

/// The assignment of one member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedMember {
    /// Name of the pod, in the namespace of the gang.
    pub pod: Str,
    /// UID of the pod.
    pub uid: PodUid,
    /// The node.
    pub node: NodeName,
    /// The cards, by index on the node. Empty for a pod without a share of a card.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
}
