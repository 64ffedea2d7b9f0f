//! The memory of refusals: shapes that a scheduler did not bind where they were planned.
//!
//! A scheduler may know reasons that the planner does not: a plugin, an extender, a volume. The memory keeps
//! the planner from repeating the same plan. A refusal is forgotten when its node changes, when a pod that is
//! bound to the node changes, and after [`REFUSAL_MEMORY`], because the reason may also be elsewhere in the
//! cluster.
//!
//! The memory is not durable. A new leader starts without it, which is harmless: at worst it plans the same
//! once more, the scheduler refuses again, and the number of retries of the gang is durable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{NodeName, Str, Time};
use crate::shape::Shape;

/// After this time a refusal is forgotten.
pub(super) const REFUSAL_MEMORY: Duration = Duration::from_secs(600);
/// Upper bound of remembered refusals. Beyond it the oldest one is forgotten.
const MAX_REFUSALS: usize = 512;

/// Refused shapes by node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Refusals {
    /// By node and shape: the message of the scheduler, and when it was remembered.
    by_node: BTreeMap<(NodeName, Arc<Shape>), (Str, Time)>,
}

impl Refusals {
    pub(super) fn add(&mut self, node: &NodeName, shape: &Arc<Shape>, message: &Str, now: Time) {
        self.by_node.insert((node.clone(), shape.clone()), (message.clone(), now));
        if self.by_node.len() > MAX_REFUSALS {
            let oldest = self.by_node.iter().min_by_key(|(_, (_, since))| *since);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.by_node.remove(&oldest);
            }
        }
    }

    /// The nodes that refused a shape, with the message.
    pub(super) fn of(&self, shape: &Shape) -> impl Iterator<Item = (&NodeName, &Str)> {
        let equal = self.by_node.iter().filter(move |((_, refused), _)| **refused == *shape);
        equal.map(|((node, _), (message, _))| (node, message))
    }

    /// Every refusal: node, shape, message.
    pub(super) fn all(&self) -> impl Iterator<Item = (&NodeName, &Arc<Shape>, &Str)> {
        self.by_node.iter().map(|((node, shape), (message, _))| (node, shape, message))
    }

    /// Forgets the refusals of a node. Returns whether there were any.
    pub(super) fn forget_node(&mut self, node: &NodeName) -> bool {
        let before = self.by_node.len();
        if before > 0 {
            self.by_node.retain(|(name, _), _| name != node);
        }
        self.by_node.len() < before
    }

    pub(super) fn next_end(&self) -> Option<Time> {
        self.by_node.values().map(|(_, since)| since.after(REFUSAL_MEMORY)).min()
    }

    /// Forgets the refusals that have ended, and those of a clock that jumped back. Returns whether there
    /// were any.
    pub(super) fn forget_old(&mut self, now: Time) -> bool {
        let before = self.by_node.len();
        self.by_node.retain(|_, (_, since)| *since <= now && now < since.after(REFUSAL_MEMORY));
        self.by_node.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MilliCpu, Resources, str};

    #[test]
    fn refusals_are_bounded_and_end() {
        let shape = |cpu| {
            let requests = Resources { cpu: MilliCpu(cpu), ..Resources::default() };
            Arc::new(Shape { requests, ..Shape::default() })
        };
        let mut refusals = Refusals::default();
        let node = NodeName::from("n");
        for number in 0..2 * MAX_REFUSALS as u64 {
            refusals.add(&node, &shape(number), &str("no"), Time(number));
        }
        assert_eq!(refusals.by_node.len(), MAX_REFUSALS);
        assert_eq!(refusals.of(&shape(0)).count(), 0);
        let last = 2 * MAX_REFUSALS as u64 - 1;
        assert_eq!(refusals.of(&shape(last)).collect::<Vec<_>>(), [(&node, &str("no"))]);
        let end = Time(last).after(REFUSAL_MEMORY);
        assert!(refusals.forget_old(Time(end.0 - 1)));
        assert_eq!(refusals.next_end(), Some(end));
        assert!(refusals.forget_old(end));
        assert_eq!(refusals, Refusals::default());
        refusals.add(&node, &shape(1), &str("no"), Time(1));
        assert!(!refusals.forget_node(&NodeName::from("other")));
        assert!(refusals.forget_node(&node));
    }
}
