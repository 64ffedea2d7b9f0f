//! What the planner is asked and what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::dialect::Quorum;
use crate::model::{GangId, NodeName, PodKey, PodUid, Resources, Str};
use crate::shape::Shape;

/// Members by role.
pub(super) type Counts = BTreeMap<Option<Str>, u32>;

/// A gang that wants to start, or to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanningRequest {
    /// Which one.
    pub gang: GangId,
    /// Its members that wait behind our gate alone, in a stable order (creation, then key).
    pub members: Vec<WaitingMember>,
    /// When it is complete.
    pub quorum: Quorum,
    /// Members, by role, that are started already and still live: the quorum counts them. With the quorum met by these
    /// alone, every waiting member is planned by itself.
    pub active: BTreeMap<Option<Str>, u32>,
    /// What has to be free in all before any member starts: a sum over the nodes that is not reserved. Nothing where its
    /// group names none, and for a gang of which something has started.
    pub min_resources: Resources,
    /// The node label of which a gang that starts is to have one value, where one has room for all of it.
    pub topology_key: Option<Str>,
    /// Nodes that these are on: the waiting ones go near them where there is room.
    pub gang_nodes: BTreeSet<NodeName>,
}

/// One member to place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingMember {
    /// Identity.
    pub uid: PodUid,
    /// For messages.
    pub key: PodKey,
    /// Its role within the gang.
    pub role: Option<Str>,
    /// What it asks for.
    pub shape: Arc<Shape>,
}

/// Where one member goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Assignment {
    /// Which pod.
    pub uid: PodUid,
    /// For messages.
    pub key: PodKey,
    /// Which node.
    pub node: NodeName,
    /// Which cards of the node, for a pod that shares cards; ascending, empty for all others.
    pub cards: Vec<u32>,
}

/// All placements of one gang: enough to meet its quorum, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedGang {
    /// Which gang.
    pub gang: GangId,
    /// In the order of the request's members.
    pub assignments: Vec<Assignment>,
}

/// Every gang that fits, in the order of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The gangs.
    pub gangs: Vec<PlannedGang>,
}
