//! Whether a node can still be used as a plan says.

use crate::engine::protocol::Placeholder;
use crate::model::NodeName;
use crate::objects::names;
use crate::pod::Pod;
use crate::shape::Shape;
use crate::snapshot::{CardState, Snapshot};

/// The reason why a planned pod cannot use a node any more. `None` while it can.
pub(in crate::engine) fn node_unfit_reason(
    snapshot: &Snapshot,
    pod: &Pod,
    name: &NodeName,
) -> Option<String> {
    let Some(node) = snapshot.node(name) else { return Some(format!("node {name} is gone")) };
    if !node.ready {
        return Some(format!("node {name} is not ready"));
    }
    if !pod.shape.node_affinity.matches(&node.name, &node.labels) {
        return Some(format!(
            "node {name} no longer matches the node selector or affinity of {}",
            pod.key.name
        ));
    }
    let tolerated = |taint| pod.shape.tolerations.iter().any(|t| t.tolerates(taint));
    if let Some(taint) = node.taints.iter().find(|taint| taint.forbids() && !tolerated(taint)) {
        return Some(format!("node {name} has the taint {taint}, which {} does not tolerate", pod.key.name));
    }
    if node.unschedulable && !node.taints.iter().any(|t| &*t.key == names::TAINT_UNSCHEDULABLE) {
        return Some(format!("node {name} is cordoned"));
    }
    if pod.shape.share.is_some() && snapshot.card_state(name) != Some(CardState::Open) {
        return Some(format!("node {name} no longer shares its cards"));
    }
    overbooked_reason(snapshot, name, &pod.shape)
}

/// The reason why a node cannot keep a reservation. `None` while it can.
pub(in crate::engine) fn reservation_unfit_reason(
    snapshot: &Snapshot,
    place: &Placeholder,
) -> Option<String> {
    let name = &place.node;
    let Some(node) = snapshot.node(name) else { return Some(format!("node {name} is gone")) };
    if !node.ready {
        return Some(format!("node {name} is not ready"));
    }
    overbooked_reason(snapshot, name, &place.shape)
}

fn overbooked_reason(snapshot: &Snapshot, name: &NodeName, shape: &Shape) -> Option<String> {
    snapshot.overbooked_for(name, shape).map(|what| format!("node {name} has no room any more: {what}"))
}
