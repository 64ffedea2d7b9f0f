//! Keeps the cluster data that policies use: always namespaces and classes; gangs, group objects and capacity
//! while a policy uses them. Every replica does this, because every replica answers reviews.
//!
//! Invariants:
//! - A kind is published after one list of it is complete. While it cannot be read, its last state stays.
//! - This module writes nothing to the cluster.
//! - Without changes, data is published only every [`CLOCK_INTERVAL`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use portcullis_core::admission::KnownClasses;
use portcullis_core::capacity::CapacityReport;
use portcullis_core::dialect;
use portcullis_core::engine::Change;
use portcullis_core::model::Str;
use portcullis_edge::{PolicyKind, WatchEvent, WatchedKey, WatchedKind, WatchedObject};
use portcullis_policy::{ClusterData, DataDependencies};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};

use super::capacity;
use super::client::Client;
use super::watch::WatchDriver;
use crate::clock::seconds_now;
use crate::telemetry::{ClusterMetrics, LastProblem};

/// Least time between two publications.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(250);
/// Longest time between two publications. The published time of day decides when policy exceptions expire.
const CLOCK_INTERVAL: Duration = Duration::from_secs(5);

/// The subscriber to cluster data: the policy engine.
#[derive(Clone)]
pub struct PolicyDataSubscriber {
    /// The data that active policies use besides namespaces and classes. Gangs, once used, are watched until
    /// the process ends.
    pub dependencies: watch::Receiver<DataDependencies>,
    /// Receives all data at each publication, on a thread that answers no review.
    pub publish: Arc<dyn Fn(ClusterData) + Send + Sync>,
}

/// The objects that are read so far, and the kinds whose first list is complete.
#[derive(Clone, Default)]
struct CachedObjects {
    capacity: Option<Arc<CapacityReport>>,
    /// Copies share the objects, so a change never waits until a large data set is copied.
    objects: BTreeMap<PolicyKind, BTreeMap<(Str, Str), Arc<Value>>>,
    complete: BTreeSet<PolicyKind>,
}

/// The cache, shared by its tasks.
#[derive(Clone)]
struct PolicyDataCache {
    client: Client,
    metrics: ClusterMetrics,
    classes: Arc<ArcSwap<KnownClasses>>,
    known: Arc<Mutex<CachedObjects>>,
    changed: Arc<Notify>,
}

/// Publishes data to `subscriber` and keeps `classes` up to date for as long as the future is polled.
/// `namespace` is that of this program.
pub(super) async fn watch_policy_data(
    client: Client,
    metrics: ClusterMetrics,
    namespace: String,
    classes: Arc<ArcSwap<KnownClasses>>,
    subscriber: PolicyDataSubscriber,
) {
    let (known, changed) = (Arc::default(), Arc::default());
    let cache = PolicyDataCache { client, metrics, classes, known, changed };
    let dependencies = subscriber.dependencies.clone();
    tokio::join!(
        cache.follow(PolicyKind::Namespaces),
        cache.follow(PolicyKind::PriorityClasses),
        cache.follow(PolicyKind::RuntimeClasses),
        cache.gangs(dependencies.clone()),
        cache.capacity(namespace, dependencies),
        cache.publish(subscriber),
    );
}

/// Waits until the policies use this data; for ever when the policies are gone.
async fn used(
    dependencies: &mut watch::Receiver<DataDependencies>,
    is_used: impl FnMut(&DataDependencies) -> bool,
) {
    if dependencies.wait_for(is_used).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl PolicyDataCache {
    fn known(&self) -> MutexGuard<'_, CachedObjects> {
        // No code panics in the middle of a change.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn follow(&self, kind: PolicyKind) {
        let (out, mut seen) = mpsc::channel(64);
        let watches = WatchDriver::new(self.client.clone(), self.metrics.clone());
        let keeping = async {
            while let Some(news) = seen.recv().await {
                self.apply(kind, news);
            }
        };
        tokio::join!(watches.follow_kind(WatchedKind::ForPolicies(kind), out), keeping);
    }

    fn apply(&self, kind: PolicyKind, news: WatchEvent) {
        let mut known = self.known();
        let objects = known.objects.entry(kind).or_default();
        match news {
            WatchEvent::Changed(Change::Set(WatchedObject::ForPolicies(namespace, name, object))) => {
                objects.insert((namespace, name), Arc::new(object));
            }
            WatchEvent::Changed(Change::Gone(WatchedKey::ForPolicies(namespace, name))) => {
                objects.remove(&(namespace, name));
            }
            WatchEvent::Changed(_) => return,
            WatchEvent::ListComplete => {
                known.complete.insert(kind);
            }
        }
        if !known.complete.contains(&kind) {
            return;
        }
        let names =
            |known: &CachedObjects| known.objects[&kind].keys().map(|(_, name)| name.clone()).collect();
        match kind {
            PolicyKind::PriorityClasses => {
                let names: BTreeSet<Str> = names(&known);
                self.classes.rcu(|classes| KnownClasses {
                    priority_classes: Some(names.clone()),
                    ..KnownClasses::clone(classes)
                });
            }
            PolicyKind::RuntimeClasses => {
                let names: BTreeSet<Str> = names(&known);
                self.classes.rcu(|classes| KnownClasses {
                    runtime_classes: Some(names.clone()),
                    ..KnownClasses::clone(classes)
                });
            }
            PolicyKind::Namespaces | PolicyKind::Gangs | PolicyKind::Groups(_) => {}
        }
        drop(known);
        self.changed.notify_one();
    }

    async fn gangs(&self, mut dependencies: watch::Receiver<DataDependencies>) {
        used(&mut dependencies, |used| used.gangs).await;
        let kinds = std::iter::once(PolicyKind::Gangs).chain(dialect::group_kinds().map(PolicyKind::Groups));
        join_all(kinds.map(|kind| self.follow(kind))).await;
    }

    /// Polls the ConfigMap that the leader writes. RBAC allows `get` on this one object only, so it cannot be
    /// watched.
    async fn capacity(&self, namespace: String, mut dependencies: watch::Receiver<DataDependencies>) {
        let mut last_problem = LastProblem::default();
        loop {
            used(&mut dependencies, |used| used.capacity).await;
            match capacity::read(&self.client, &namespace).await {
                Ok(capacity) => {
                    last_problem.clear();
                    let mut known = self.known();
                    if known.capacity.as_deref() != capacity.as_ref() {
                        known.capacity = capacity.map(Arc::new);
                        drop(known);
                        self.changed.notify_one();
                    }
                }
                Err(problem) if last_problem.is_new(&problem) => {
                    tracing::warn!(
                        problem,
                        config_map = capacity::CONFIG_MAP_NAME,
                        "reading the capacity for policies failed"
                    );
                }
                Err(_) => {}
            }
            tokio::time::sleep(capacity::REPORT_INTERVAL).await;
        }
    }

    /// Publishes the first change at once, and then at most every [`PUBLISH_INTERVAL`].
    async fn publish(&self, subscriber: PolicyDataSubscriber) {
        loop {
            let _ = tokio::time::timeout(CLOCK_INTERVAL, self.changed.notified()).await;
            let (cache, publish) = (self.clone(), Arc::clone(&subscriber.publish));
            // Building a large data set, and dropping the last one, takes milliseconds: so not on a thread of
            // the runtime.
            let publishing = tokio::task::spawn_blocking(move || {
                let known = CachedObjects::clone(&cache.known());
                let data = known.published();
                if !data.namespaces.is_empty() {
                    publish(data);
                }
            });
            if let Err(error) = publishing.await {
                tracing::error!(%error, "publishing cluster data to policies panicked");
            }
            tokio::time::sleep(PUBLISH_INTERVAL).await;
        }
    }
}

impl CachedObjects {
    fn published(&self) -> ClusterData {
        let mut data =
            ClusterData { capacity: self.capacity.clone(), now: seconds_now(), ..ClusterData::default() };
        for (kind, objects) in &self.objects {
            if !self.complete.contains(kind) {
                continue;
            }
            let named = || objects.iter().map(|((_, name), object)| (name.to_string(), Value::clone(object)));
            let placed = |prefix: &str| {
                let key = |(namespace, name): &(Str, Str)| format!("{prefix}{namespace}/{name}");
                objects.iter().map(|(place, object)| (key(place), Value::clone(object))).collect::<Vec<_>>()
            };
            match kind {
                PolicyKind::Namespaces => data.namespaces = named().collect(),
                PolicyKind::PriorityClasses => data.priority_classes = Some(named().collect()),
                PolicyKind::RuntimeClasses => data.runtime_classes = Some(named().collect()),
                PolicyKind::Gangs => data.gangs = placed("").into_iter().collect(),
                PolicyKind::Groups(kind) => {
                    let resource = kind.resource();
                    data.groups.extend(placed(&format!("{}.{}/", resource.kind, resource.group)));
                }
            }
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::model::str;
    use serde_json::json;

    use super::*;

    #[test]
    fn complete_kinds_are_published_under_the_keys_of_policies() {
        let mut known = CachedObjects::default();
        let kai = dialect::group_kinds()
            .find(|kind| kind.resource().group == "scheduling.run.ai")
            .expect("KAI has one");
        let object = json!({"metadata": {"name": "x"}});
        for (kind, namespace) in [
            (PolicyKind::Namespaces, ""),
            (PolicyKind::Gangs, "ml"),
            (PolicyKind::Groups(kai), "ml"),
            (PolicyKind::PriorityClasses, ""),
        ] {
            known
                .objects
                .entry(kind)
                .or_default()
                .insert((str(namespace), str("x")), Arc::new(object.clone()));
        }
        let data = known.published();
        assert!(data.namespaces.is_empty() && data.priority_classes.is_none(), "no list is complete");
        known.complete = known.objects.keys().copied().collect();
        let data = known.published();
        assert_eq!(data.namespaces.keys().collect::<Vec<_>>(), ["x"]);
        assert_eq!(data.gangs.keys().collect::<Vec<_>>(), ["ml/x"]);
        assert_eq!(data.groups.keys().collect::<Vec<_>>(), ["PodGroup.scheduling.run.ai/ml/x"]);
        assert_eq!(data.priority_classes.map(|classes| classes.len()), Some(1));
        assert_eq!(data.runtime_classes, None);
    }
}
