//! A candidate set beside the one that answers: asked after the answer is given, on a thread of its own, about as many reviews as it
//! has time for.
//!
//! Invariants: no answer waits for it or depends on it; what waits for it is bounded in number and size; what it cannot load takes
//! nothing away but the comparison.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use portcullis_core::admission::Hook;
use portcullis_policy::{Change, Effort, Outcome, Request, Set, Wishes, World, differences};
use serde_json::{Value, json};

use super::files::{self, Fingerprint};
use super::{Trouble, loaded};
use crate::background::turns;
use crate::telemetry::{PolicyMetrics, PolicySetRole};

/// Reviews that may wait. More are not compared.
const WAITING: usize = 32;
/// The largest review that is kept for a comparison, in bytes.
const LARGEST: usize = 128 * 1024;
/// Differences that are remembered as logged, by policy and change.
const LOGGED: usize = 1000;

/// A review that was answered.
struct Answered {
    hook: Hook,
    review: Value,
    outcome: Outcome,
    world: Arc<World>,
    live: String,
}

/// The candidate.
pub(super) struct Shadow {
    paths: Vec<PathBuf>,
    set: ArcSwapOption<Set>,
    /// Why the files as they are now cannot be used.
    trouble: ArcSwapOption<Trouble>,
    queue: SyncSender<Answered>,
    metrics: PolicyMetrics,
    seen: Mutex<Option<Fingerprint>>,
}

impl Shadow {
    /// Loads the candidate, if it can be loaded.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(super) fn start(paths: Vec<PathBuf>, metrics: PolicyMetrics) -> io::Result<Arc<Self>> {
        let (queue, waiting) = sync_channel(WAITING);
        let shadow = Arc::new(Self {
            paths,
            set: ArcSwapOption::empty(),
            trouble: ArcSwapOption::empty(),
            queue,
            metrics,
            seen: Mutex::default(),
        });
        shadow.look();
        let worker = Arc::downgrade(&shadow);
        let mut logged = Logged::default();
        turns("portcullis-shadow", move || {
            let Ok(answered) = waiting.recv() else { return ControlFlow::Break(()) };
            let Some(shadow) = worker.upgrade() else { return ControlFlow::Break(()) };
            shadow.compare(&answered, &mut logged);
            ControlFlow::Continue(())
        })?;
        Ok(shadow)
    }

    fn take(&self, set: Set) {
        let (hash, count) = (set.hash().to_owned(), set.policies().len());
        self.metrics.set_loaded(PolicySetRole::Shadow, &hash, count, SystemTime::now());
        tracing::info!(shadow = hash, count, "shadow policies are loaded: they answer nothing");
        self.set.store(Some(Arc::new(set)));
    }

    /// Loads the files again when they have changed; what cannot be loaded leaves the candidate as it was.
    pub(super) fn look(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_some() && files::fingerprint(&self.paths).ok() == *seen {
            return;
        }
        let (fingerprint, candidate) = match files::read(&self.paths) {
            Ok((fingerprint, files)) => (Some(fingerprint), loaded(&files)),
            Err(error) => (None, Err(error.to_string())),
        };
        *seen = fingerprint;
        let text = match candidate {
            Ok(candidate) => {
                self.trouble.store(None);
                return self.take(candidate.set);
            }
            Err(text) => text,
        };
        // What cannot be read is tried every second, and said once.
        if seen.is_none() && self.trouble.load().as_ref().is_some_and(|trouble| trouble.text == text) {
            return;
        }
        if self.set.load().is_some() {
            tracing::error!("the changed shadow policies cannot be used; those before are compared:\n{text}");
        } else {
            tracing::error!(
                "the shadow policies cannot be used; nothing is compared until they are mended:\n{text}"
            );
        }
        self.trouble.store(Some(Arc::new(Trouble::now(text))));
    }

    /// Which set it is, and why it is not that of the files, for people and programs.
    pub(super) fn list(&self) -> Value {
        let mut list = json!({"hash": self.set.load().as_ref().map(|set| set.hash())});
        if let Some(trouble) = &*self.trouble.load() {
            list["lastReload"] = trouble.list();
        }
        list
    }

    /// What has to be known of the world to judge by it.
    pub(super) fn wishes(&self) -> Wishes {
        self.set.load().as_ref().map(|set| set.wishes()).unwrap_or_default()
    }

    /// Has an answered review compared, if there is time for it.
    pub(super) fn offer(
        &self,
        hook: Hook,
        bytes: usize,
        review: Value,
        outcome: Outcome,
        world: &Arc<World>,
        live: &str,
    ) {
        if self.set.load().is_none() {
            return;
        }
        let taken = bytes <= LARGEST && {
            let answered =
                Answered { hook, review, outcome, world: Arc::clone(world), live: live.to_owned() };
            self.queue.try_send(answered).is_ok()
        };
        if !taken {
            self.metrics.count_shadow_review(false);
        }
    }

    fn compare(&self, answered: &Answered, logged: &mut Logged) {
        let Some(candidate) = self.set.load_full() else { return };
        let Some(request) = Request::of_review(&answered.review) else { return };
        self.metrics.count_shadow_review(true);
        let (hook, effort) = (answered.hook, Effort::unlimited());
        let Some(outcome) = Outcome::of(&candidate, hook, &request, &answered.world, &effort) else { return };
        let object = request.object().unwrap_or(&Value::Null);
        for difference in differences(object, &answered.outcome, &outcome) {
            let change = difference.change.as_str();
            self.metrics.count_shadow_difference(&difference.policy, change);
            if logged.is_new(candidate.hash(), &answered.live, &difference.policy, difference.change) {
                tracing::info!(
                    policy = difference.policy,
                    change,
                    kind = request.kind(),
                    namespace = request.namespace(),
                    name = portcullis_policy::display_name(&request),
                    detail = difference.detail,
                    policies = answered.live,
                    shadow = candidate.hash(),
                    "the shadow policies would answer otherwise"
                );
            }
        }
    }
}

/// Which differences were logged, of these two sets.
#[derive(Default)]
struct Logged {
    sets: (String, String),
    told: BTreeSet<(String, Change)>,
}

impl Logged {
    fn is_new(&mut self, candidate: &str, live: &str, policy: &str, change: Change) -> bool {
        if (self.sets.0.as_str(), self.sets.1.as_str()) != (candidate, live) {
            *self = Self { sets: (candidate.to_owned(), live.to_owned()), told: BTreeSet::new() };
        }
        self.told.len() < LOGGED && self.told.insert((policy.to_owned(), change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_logged_once_for_each_pair_of_sets() {
        let mut logged = Logged::default();
        assert!(logged.is_new("b", "a", "p", Change::WouldDeny));
        assert!(!logged.is_new("b", "a", "p", Change::WouldDeny));
        assert!(logged.is_new("b", "a", "p", Change::WouldAllow));
        assert!(logged.is_new("b", "a", "q", Change::WouldDeny));
        assert!(logged.is_new("c", "a", "p", Change::WouldDeny));
    }
}
