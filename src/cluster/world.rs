//! Keeps what policies may know of the cluster: namespaces and classes always, gangs, group objects and capacity while a policy asks
//! for them. Every replica does this, because every replica answers reviews.
//!
//! Invariants: a kind is told once it was read to its end, and while it may not be read it stays as it was; nothing here ever
//! writes, and a quiet cluster is told of seldom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use portcullis_core::admission::KnownClasses;
use portcullis_core::dialect;
use portcullis_core::engine::Change;
use portcullis_core::model::Str;
use portcullis_policy::{CapacityReport, ClusterData, DataDependencies};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};

use super::capacity;
use super::client::Client;
use super::kinds::{Key, Kind, Object, Whole};
use super::watch::{Follower, Seen};
use crate::clock::seconds_now;
use crate::telemetry::ClusterMetrics;

/// How long after one telling the next one comes at the soonest.
const PAUSE: Duration = Duration::from_millis(250);
/// How often the time of day is told, by which exceptions end.
const CLOCK: Duration = Duration::from_secs(5);

/// Who wants to know.
#[derive(Clone)]
pub struct Audience {
    /// What beyond namespaces and classes. Gangs that were wished for once are followed until the process ends.
    pub wishes: watch::Receiver<DataDependencies>,
    /// Whoever takes what is known: all of it, each time, on a thread where nobody waits for an answer.
    pub tell: Arc<dyn Fn(ClusterData) + Send + Sync>,
}

/// What is known so far, and of which kinds it is all.
#[derive(Clone, Default)]
struct Known {
    capacity: Option<Arc<CapacityReport>>,
    /// Objects are shared with copies of this: who notes a change never waits until a large world is copied.
    whole: BTreeMap<Whole, BTreeMap<(Str, Str), Arc<Value>>>,
    complete: BTreeSet<Whole>,
}

/// One keeper, shared by its tasks.
#[derive(Clone)]
struct Keeper {
    client: Client,
    metrics: ClusterMetrics,
    facts: Arc<ArcSwap<KnownClasses>>,
    known: Arc<Mutex<Known>>,
    changed: Arc<Notify>,
}

/// Keeps the world of `audience`, and `facts`, for as long as it is polled. `namespace` is our own.
pub(super) async fn keep(
    client: Client,
    metrics: ClusterMetrics,
    namespace: String,
    facts: Arc<ArcSwap<KnownClasses>>,
    audience: Audience,
) {
    let (known, changed) = (Arc::default(), Arc::default());
    let keeper = Keeper { client, metrics, facts, known, changed };
    let wishes = audience.wishes.clone();
    tokio::join!(
        keeper.follow(Whole::Namespaces),
        keeper.follow(Whole::PriorityClasses),
        keeper.follow(Whole::RuntimeClasses),
        keeper.gangs(wishes.clone()),
        keeper.capacity(namespace, wishes),
        keeper.tell(audience),
    );
}

/// Waits until a wish is there; for ever when nobody can wish any more.
async fn wished(wishes: &mut watch::Receiver<DataDependencies>, wish: impl FnMut(&DataDependencies) -> bool) {
    if wishes.wait_for(wish).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Keeper {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing in here can panic half way.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn follow(&self, whole: Whole) {
        let (out, mut seen) = mpsc::channel(64);
        let follower = Follower::new(self.client.clone(), self.metrics.clone(), Kind::Whole(whole));
        let keeping = async {
            while let Some(news) = seen.recv().await {
                self.note(whole, news);
            }
        };
        tokio::join!(follower.follow(out), keeping);
    }

    fn note(&self, whole: Whole, news: Seen) {
        let mut known = self.known();
        let objects = known.whole.entry(whole).or_default();
        match news {
            Seen::Change(Change::Set(Object::Whole(namespace, name, object))) => {
                objects.insert((namespace, name), Arc::new(object));
            }
            Seen::Change(Change::Gone(Key::Whole(namespace, name))) => {
                objects.remove(&(namespace, name));
            }
            Seen::Change(_) => return,
            Seen::Complete => {
                known.complete.insert(whole);
            }
        }
        if !known.complete.contains(&whole) {
            return;
        }
        let names = |known: &Known| known.whole[&whole].keys().map(|(_, name)| name.clone()).collect();
        match whole {
            Whole::PriorityClasses => {
                let names: BTreeSet<Str> = names(&known);
                self.facts.rcu(|facts| KnownClasses {
                    priority_classes: Some(names.clone()),
                    ..KnownClasses::clone(facts)
                });
            }
            Whole::RuntimeClasses => {
                let names: BTreeSet<Str> = names(&known);
                self.facts.rcu(|facts| KnownClasses {
                    runtime_classes: Some(names.clone()),
                    ..KnownClasses::clone(facts)
                });
            }
            Whole::Namespaces | Whole::Gangs | Whole::Groups(_) => {}
        }
        drop(known);
        self.changed.notify_one();
    }

    async fn gangs(&self, mut wishes: watch::Receiver<DataDependencies>) {
        wished(&mut wishes, |wishes| wishes.gangs).await;
        let kinds = std::iter::once(Whole::Gangs).chain(dialect::group_kinds().map(Whole::Groups));
        join_all(kinds.map(|kind| self.follow(kind))).await;
    }

    /// Reads what the leader writes. Our right is to this one object, and nothing about it is urgent, so it is read again and again.
    async fn capacity(&self, namespace: String, mut wishes: watch::Receiver<DataDependencies>) {
        let mut complaint = String::new();
        loop {
            wished(&mut wishes, |wishes| wishes.capacity).await;
            match capacity::read(&self.client, &namespace).await {
                Ok(capacity) => {
                    complaint.clear();
                    let mut known = self.known();
                    if known.capacity.as_deref() != capacity.as_ref() {
                        known.capacity = capacity.map(Arc::new);
                        drop(known);
                        self.changed.notify_one();
                    }
                }
                Err(problem) if problem != complaint => {
                    tracing::warn!(problem, config_map = capacity::NAME, "capacity is not known to policies");
                    complaint = problem;
                }
                Err(_) => {}
            }
            tokio::time::sleep(capacity::PAUSE).await;
        }
    }

    /// Tells the first change at once, and then all that came during a pause.
    async fn tell(&self, audience: Audience) {
        loop {
            let _ = tokio::time::timeout(CLOCK, self.changed.notified()).await;
            let (keeper, tell) = (self.clone(), Arc::clone(&audience.tell));
            // Making a large world, and dropping the one before it, takes milliseconds: not on a thread that answers reviews.
            let telling = tokio::task::spawn_blocking(move || {
                let known = Known::clone(&keeper.known());
                let world = known.told();
                if !world.namespaces.is_empty() {
                    tell(world);
                }
            });
            if let Err(error) = telling.await {
                tracing::error!(%error, "what is known of the cluster could not be told to policies");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Known {
    fn told(&self) -> ClusterData {
        let mut world =
            ClusterData { capacity: self.capacity.clone(), now: seconds_now(), ..ClusterData::default() };
        for (kind, objects) in &self.whole {
            if !self.complete.contains(kind) {
                continue;
            }
            let named = || objects.iter().map(|((_, name), object)| (name.to_string(), Value::clone(object)));
            let placed = |prefix: &str| {
                let key = |(namespace, name): &(Str, Str)| format!("{prefix}{namespace}/{name}");
                objects.iter().map(|(place, object)| (key(place), Value::clone(object))).collect::<Vec<_>>()
            };
            match kind {
                Whole::Namespaces => world.namespaces = named().collect(),
                Whole::PriorityClasses => world.priority_classes = Some(named().collect()),
                Whole::RuntimeClasses => world.runtime_classes = Some(named().collect()),
                Whole::Gangs => world.gangs = placed("").into_iter().collect(),
                Whole::Groups(kind) => {
                    let resource = kind.resource();
                    world.groups.extend(placed(&format!("{}.{}/", resource.kind, resource.group)));
                }
            }
        }
        world
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::model::str;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_told_is_all_there_is_of_a_kind_under_the_keys_of_policies() {
        let mut known = Known::default();
        let kai = dialect::group_kinds()
            .find(|kind| kind.resource().group == "scheduling.run.ai")
            .expect("KAI has one");
        let object = json!({"metadata": {"name": "x"}});
        for (kind, namespace) in [
            (Whole::Namespaces, ""),
            (Whole::Gangs, "ml"),
            (Whole::Groups(kai), "ml"),
            (Whole::PriorityClasses, ""),
        ] {
            known.whole.entry(kind).or_default().insert((str(namespace), str("x")), Arc::new(object.clone()));
        }
        let world = known.told();
        assert!(
            world.namespaces.is_empty() && world.priority_classes.is_none(),
            "nothing was read to its end"
        );
        known.complete = known.whole.keys().copied().collect();
        let world = known.told();
        assert_eq!(world.namespaces.keys().collect::<Vec<_>>(), ["x"]);
        assert_eq!(world.gangs.keys().collect::<Vec<_>>(), ["ml/x"]);
        assert_eq!(world.groups.keys().collect::<Vec<_>>(), ["PodGroup.scheduling.run.ai/ml/x"]);
        assert_eq!(world.priority_classes.map(|classes| classes.len()), Some(1));
        assert_eq!(world.runtime_classes, None);
    }
}
