//! The queue of complete gangs, as a data structure: gangs in planning order, grouped by equal requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::dialect::Quorum;
use crate::model::{GangId, Resources, Str, Time};
use crate::objects::PodLabels;
use crate::planner::PlanningRequest;
use crate::shape::Shape;

/// The place of a gang in the queue: gangs with started members first, then by priority, then by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::engine) struct QueueRank {
    /// No member has started. `false` sorts first.
    pub not_started: bool,
    /// Higher priorities sort first.
    pub priority: Reverse<i32>,
    /// Creation of the oldest waiting member, or the end of the last start timeout.
    pub since: Time,
    /// The gang, as tie-break.
    pub gang: GangId,
}

/// Minimum interval between updates of the wait reason of a waiting gang.
const MIN_REPLAN_INTERVAL: Duration = Duration::from_secs(1);
/// Lower bound of that interval for each queued gang: at most twenty updates each second.
const REPLAN_INTERVAL_PER_GANG: Duration = Duration::from_millis(50);

/// Everything about a gang that decides whether it fits. Gangs with equal signatures fit alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::engine) struct RequestSignature {
    /// Role and resource requests of each waiting member, sorted; with its namespace and labels where any
    /// member has rules about other pods.
    members: Vec<(Option<Str>, Arc<Shape>, Option<PodLabels>)>,
    quorum: Quorum,
    active: BTreeMap<Option<Str>, u32>,
    min_resources: Resources,
    topology_key: Option<Str>,
}

impl RequestSignature {
    /// The signature of a request to the planner.
    pub(in crate::engine) fn of(request: &PlanningRequest) -> Self {
        let has_pod_rules = request.members.iter().any(|member| member.shape.pod_rules.is_some());
        let members = request.members.iter().map(|member| {
            let labels = has_pod_rules.then(|| member.labels.clone());
            (member.role.clone(), member.shape.clone(), labels)
        });
        let mut members: Vec<_> = members.collect();
        members.sort();
        Self {
            members,
            quorum: request.quorum.clone(),
            active: request.active.clone(),
            min_resources: request.min_resources.clone(),
            topology_key: request.topology_key.clone(),
        }
    }

    /// Whether an added pod can make the gang fit.
    pub(super) fn has_pod_rules(&self) -> bool {
        self.members.iter().any(|(_, shape, _)| shape.pod_rules.is_some())
    }
}

/// The complete gangs without a plan under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Queue {
    ranks: BTreeMap<QueueRank, Arc<RequestSignature>>,
    /// The same ranks by signature. There are no empty sets.
    by_signature: BTreeMap<Arc<RequestSignature>, BTreeSet<QueueRank>>,
    /// The signatures of queued gangs with rules about other pods.
    with_pod_rules: BTreeSet<Arc<RequestSignature>>,
}

impl Queue {
    /// Adds a gang with this rank.
    pub(super) fn insert(&mut self, rank: QueueRank, signature: RequestSignature) {
        let signature = match self.by_signature.get_key_value(&signature) {
            Some((known, _)) => known.clone(),
            None => Arc::new(signature),
        };
        if signature.has_pod_rules() {
            self.with_pod_rules.insert(signature.clone());
        }
        self.by_signature.entry(signature.clone()).or_default().insert(rank.clone());
        self.ranks.insert(rank, signature);
    }

    /// Removes a gang.
    pub(super) fn remove(&mut self, rank: &QueueRank) {
        let Some(signature) = self.ranks.remove(rank) else {
            debug_assert!(false, "the queue holds the rank of every queued gang");
            return;
        };
        if let Some(ranks) = self.by_signature.get_mut(&signature) {
            ranks.remove(rank);
            if ranks.is_empty() {
                self.by_signature.remove(&signature);
                if signature.has_pod_rules() {
                    self.with_pod_rules.remove(&signature);
                }
            }
        }
    }

    /// The number of queued gangs.
    #[cfg(test)]
    pub(in crate::engine) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Position of a gang, from 1.
    pub(in crate::engine) fn position(&self, rank: &QueueRank) -> u32 {
        u32::try_from(self.ranks.range(..=rank).count()).unwrap_or(u32::MAX)
    }

    /// Interval after which the wait reason of a gang is updated.
    pub(in crate::engine) fn replan_interval(&self) -> Duration {
        let waiting = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        MIN_REPLAN_INTERVAL.max(REPLAN_INTERVAL_PER_GANG.saturating_mul(waiting))
    }

    /// Whether the queue is too long to update every wait reason at the minimum interval.
    pub(in crate::engine) fn is_long(&self) -> bool {
        self.replan_interval() > MIN_REPLAN_INTERVAL
    }

    /// The signature of the gang with this rank. `None` if the gang is not queued.
    pub(super) fn signature(&self, rank: &QueueRank) -> Option<&Arc<RequestSignature>> {
        self.ranks.get(rank)
    }

    /// All ranks, in planning order.
    pub(super) fn ranks(&self) -> impl Iterator<Item = &QueueRank> {
        self.ranks.keys()
    }

    /// The first rank of each signature.
    pub(super) fn first_of_each_signature(&self) -> impl Iterator<Item = &QueueRank> {
        self.by_signature.values().filter_map(|ranks| ranks.first())
    }

    /// The next rank of each signature after this one.
    pub(super) fn next_of_each_signature(&self, after: &QueueRank) -> impl Iterator<Item = QueueRank> {
        self.by_signature.keys().filter_map(|signature| self.next_with_signature(signature, after))
    }

    /// Whether any gang has rules about other pods.
    pub(in crate::engine) fn has_pod_rules(&self) -> bool {
        !self.with_pod_rules.is_empty()
    }

    /// The first rank, after this one if given, of every signature with rules about other pods.
    pub(super) fn with_pod_rules<'q>(
        &'q self,
        after: Option<&'q QueueRank>,
    ) -> impl Iterator<Item = QueueRank> + 'q {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ranks = self.with_pod_rules.iter().filter_map(|signature| self.by_signature.get(signature));
        ranks.filter_map(move |ranks| ranks.range((from, Bound::Unbounded)).next().cloned())
    }

    /// The next rank from this bound on.
    pub(super) fn after(&self, from: &Bound<QueueRank>) -> Option<(&QueueRank, &Arc<RequestSignature>)> {
        self.ranks.range((from.as_ref(), Bound::Unbounded)).next()
    }

    /// The next rank with this signature.
    pub(super) fn next_with_signature(
        &self,
        signature: &RequestSignature,
        after: &QueueRank,
    ) -> Option<QueueRank> {
        let ranks = self.by_signature.get(signature)?;
        ranks.range((Bound::Excluded(after), Bound::Unbounded)).next().cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::DialectId;
    use crate::pod::Pod;

    /// A request of two pods: one with a rule about other pods, and one without.
    fn request(labels: [&str; 2]) -> PlanningRequest {
        let member = |app: &str, affinity: &str| {
            let json = format!(
                r#"{{"metadata":{{"namespace":"default","name":"{app}","uid":"{app}","labels":{{"app":"{app}"}}}},
                    "spec":{{"containers":[{{"name":"main"}}]{affinity}}}}}"#
            );
            let pod = Pod::read(&json).expect("the pod above can be read");
            let (labels, shape) = (pod.labels, pod.shape);
            crate::planner::WaitingMember { uid: pod.uid, key: pod.key, role: None, labels, shape }
        };
        let alone = r#","affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
            [{"labelSelector":{"matchLabels":{"app":"a"}},"topologyKey":"kubernetes.io/hostname"}]}}"#;
        PlanningRequest {
            gang: GangId::new(DialectId::Kai, "default", "g"),
            members: vec![member(labels[0], alone), member(labels[1], "")],
            quorum: Quorum::Count(2),
            active: BTreeMap::new(),
            min_resources: Resources::default(),
            topology_key: None,
            gang_nodes: BTreeSet::new(),
        }
    }

    #[test]
    fn members_that_swap_their_labels_make_another_signature() {
        let signature = |labels| RequestSignature::of(&request(labels));
        assert_eq!(signature(["a", "b"]), signature(["a", "b"]));
        assert_ne!(signature(["a", "b"]), signature(["b", "a"]));
        assert!(signature(["a", "b"]).has_pod_rules());
    }

    #[test]
    fn the_queue_knows_whether_a_gang_with_pod_rules_is_queued() {
        let rank = |name: &str| QueueRank {
            not_started: true,
            priority: Reverse(0),
            since: Time(0),
            gang: GangId::new(DialectId::Kai, "default", name),
        };
        let with_rules = RequestSignature::of(&request(["a", "b"]));
        let mut plain = request(["a", "b"]);
        plain.members.remove(0);
        let mut queue = Queue::default();
        queue.insert(rank("plain"), RequestSignature::of(&plain));
        assert!(!queue.has_pod_rules());
        queue.insert(rank("one"), with_rules.clone());
        queue.insert(rank("two"), with_rules);
        assert_eq!(queue.with_pod_rules(None).collect::<Vec<_>>(), [rank("one")]);
        queue.remove(&rank("one"));
        assert!(queue.has_pod_rules());
        queue.remove(&rank("two"));
        assert!(!queue.has_pod_rules());
    }
}
