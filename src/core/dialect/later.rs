//! Members that are made only after others of their gang have started: who says so, and what they will ask for.
//!
//! A gang whose members come one after the other never gathers. Where it is known what those to come will ask for, it is
//! planned with them, and their room is held until they are here. Three things say so: a pod that was made in order (those
//! after it are copies of it), a driver that carries the task groups of its application, and a LeaderWorkerSet whose leaders
//! go first. What asks for an unknown amount is never waited for here: it gathers as everybody does.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::group::count;
use crate::model::{DialectId, GangId, Str};
use crate::objects::affinity::Toleration;
use crate::objects::view::PodView;
use crate::objects::{Shape, names};

/// What a pod says of members of its gang that are made only after it has started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Later {
    /// They are made like itself.
    Copies,
    /// What a member of each role asks for.
    Roles(BTreeMap<Str, Arc<Shape>>),
    /// It is one pod of a replica of this size; the group object of the set says whether its leader goes first, and what
    /// its workers ask for.
    Replica {
        /// The set.
        set: GangId,
        /// The leader and its workers.
        size: u32,
    },
}

/// The workers of a set whose leaders go first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workers {
    /// With their leader.
    pub size: u32,
    /// What each asks for.
    pub shape: Arc<Shape>,
}

impl Later {
    /// What the keys say that mean the same in every stack.
    pub(super) fn of(pod: &PodView<'_>) -> Option<Self> {
        let meta = &pod.metadata;
        if keeps_order(pod) {
            return Some(Self::Copies);
        }
        let set = meta.labels.text(names::LWS_NAME_LABEL).filter(|set| !set.is_empty())?;
        let size = meta.annotations.text(names::LWS_SIZE_ANNOTATION).and_then(count)?;
        Some(Self::Replica { set: GangId::new(DialectId::Lws, meta.namespace.as_str(), set), size })
    }
}

/// Whether the pod is one of those that are made one after the other.
pub(super) fn keeps_order(pod: &PodView<'_>) -> bool {
    pod.metadata.annotations.text(names::ORDERED_ANNOTATION) == Some(names::ORDERED_KEEP)
}

/// What a pod of this template asks for, as admission will have it.
pub(super) fn shape_of(template: &PodView<'_>) -> Result<Arc<Shape>, String> {
    let mut shape = Shape::of(template)?;
    let shared = Toleration::of_shared_nodes();
    if shape.share.is_some() && !shape.tolerations.contains(&shared) {
        shape.tolerations.push(shared);
    }
    Ok(Arc::new(shape))
}

/// What a pod asks for that is described by requests and a few fields of a pod's spec beside them.
pub(super) fn shape_of_parts(requests: &Value, spec: &BTreeMap<&str, &Value>) -> Result<Arc<Shape>, String> {
    let mut pod =
        json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": requests } }] } });
    for (field, value) in spec {
        pod["spec"][*field] = (*value).clone();
    }
    let text = pod.to_string();
    let view: PodView<'_> = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    shape_of(&view)
}
