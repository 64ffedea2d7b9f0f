//! Input and output of the planner: planning requests and the plan.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::dialect::Quorum;
use crate::model::{GangId, NodeName, PodKey, PodUid, Resources, Str};
use crate::objects::PodLabels;
use crate::shape::Shape;

/// Number of members by role.
pub(super) type MembersByRole = BTreeMap<Option<Str>, u32>;

/// Writes a number of members by role as a list: a key of JSON is a string.
mod members_by_role {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{MembersByRole, Str};

    pub(super) fn serialize<S: Serializer>(
        members: &MembersByRole,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(members)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MembersByRole, D::Error> {
        Ok(Vec::<(Option<Str>, u32)>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// A gang that is to be started or scaled up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanningRequest {
    /// The gang.
    pub gang: GangId,
    /// Its members that wait only for Portcullis's scheduling gate, in a stable order (creation, then key).
    pub members: Vec<WaitingMember>,
    /// The quorum that has to be met before any member starts.
    pub quorum: Quorum,
    /// Number of started and live members by role. They count for the quorum; when they meet it alone, each
    /// waiting member is planned independently.
    #[serde(with = "members_by_role")]
    pub active: BTreeMap<Option<Str>, u32>,
    /// What has to be free in total before any member starts (`minResources`): a sum over the nodes that
    /// reserves nothing. Empty when the group sets none, and for a gang with started members.
    pub min_resources: Resources,
    /// The node label that defines topology domains. A gang that starts is placed in one domain if one has
    /// capacity for all of it.
    pub topology_key: Option<Str>,
    /// Nodes of the members that are started. Waiting members are placed as near to them as capacity permits.
    pub gang_nodes: BTreeSet<NodeName>,
}

/// A member to place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingMember {
    /// Identity.
    pub uid: PodUid,
    /// For messages.
    pub key: PodKey,
    /// Its role within the gang.
    pub role: Option<Str>,
    /// Namespace and labels, by which rules of other pods select it.
    pub labels: PodLabels,
    /// What the pod requests and where it may run.
    pub shape: Arc<Shape>,
}

/// The node and cards of one member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// The pod.
    pub uid: PodUid,
    /// For messages.
    pub key: PodKey,
    /// The node.
    pub node: NodeName,
    /// The cards of the node for a pod that shares cards, by ascending index; empty for other pods.
    pub cards: Vec<u32>,
}

/// The assignments of one gang: enough to meet its quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedGang {
    /// The gang.
    pub gang: GangId,
    /// In the order of the request's members.
    pub assignments: Vec<Assignment>,
}

/// The gangs that fit, in the order of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The gangs.
    pub gangs: Vec<PlannedGang>,
}
