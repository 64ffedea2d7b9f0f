//! A candidate set beside the one that answers: asked after the answer is given, on a thread of its own, about as many reviews as it
//! has time for.
//!
//! Invariants: no answer waits for it or depends on it; what waits for it is bounded in number and size; what it cannot load takes
//! nothing away but the comparison.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::anyhow;
use arc_swap::ArcSwapOption;
use portcullis_core::admission::Hook;
use portcullis_policy::{Change, Effort, Outcome, Request, Set, Wishes, World, differences};
use serde_json::Value;

use super::files::{self, Fingerprint};
use super::loaded;
use crate::background::turns;
use crate::telemetry::{PolicyMetrics, SetRole};

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
    queue: SyncSender<Answered>,
    metrics: PolicyMetrics,
    seen: Mutex<Option<(Fingerprint, String)>>,
}

impl Shadow {
    /// Loads the candidate.
    ///
    /// # Errors
    /// When it has an error: whoever names one on the command line wants it to be compared.
    pub(super) fn start(paths: Vec<PathBuf>, metrics: PolicyMetrics) -> anyhow::Result<Arc<Self>> {
        let (fingerprint, files) = files::read(&paths)?;
        let candidate =
            loaded(&files).map_err(|text| anyhow!("the shadow policies cannot be used:\n\n{text}"))?;
        let (queue, waiting) = sync_channel(WAITING);
        let shadow = Arc::new(Self {
            paths,
            set: ArcSwapOption::empty(),
            queue,
            metrics,
            seen: Mutex::new(Some((fingerprint, String::new()))),
        });
        shadow.take(candidate.set);
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
        self.metrics.loaded(SetRole::Shadow, &hash, count, SystemTime::now());
        tracing::info!(shadow = hash, count, "shadow policies are loaded: they answer nothing");
        self.set.store(Some(Arc::new(set)));
    }

    /// Loads the files again when they have changed; what cannot be loaded leaves the candidate as it was.
    pub(super) fn look(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let fingerprint = files::fingerprint(&self.paths);
        if let (Ok(now), Some((before, _))) = (&fingerprint, &*seen)
            && now == before
        {
            return;
        }
        let problem = match files::read(&self.paths).map(|(fingerprint, files)| (fingerprint, loaded(&files)))
        {
            Ok((fingerprint, candidate)) => {
                let problem = candidate.map(|candidate| self.take(candidate.set)).err().unwrap_or_default();
                *seen = Some((fingerprint, problem.clone()));
                problem
            }
            Err(error) => {
                let (problem, told) = (error.to_string(), seen.as_ref().map(|(_, told)| told.clone()));
                *seen = Some((Fingerprint::default(), problem.clone()));
                if told.as_ref() == Some(&problem) { String::new() } else { problem }
            }
        };
        if !problem.is_empty() {
            tracing::error!(
                "the changed shadow policies cannot be used; those before are compared:\n{problem}"
            );
        }
    }

    /// Which set it is.
    pub(super) fn hash(&self) -> String {
        self.set.load().as_ref().map(|set| set.hash().to_owned()).unwrap_or_default()
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
        let taken = bytes <= LARGEST && {
            let answered =
                Answered { hook, review, outcome, world: Arc::clone(world), live: live.to_owned() };
            self.queue.try_send(answered).is_ok()
        };
        if !taken {
            self.metrics.shadowed(false);
        }
    }

    fn compare(&self, answered: &Answered, logged: &mut Logged) {
        let Some(candidate) = self.set.load_full() else { return };
        let Some(request) = Request::of_review(&answered.review) else { return };
        self.metrics.shadowed(true);
        let (hook, effort) = (answered.hook, Effort::unlimited());
        let Some(outcome) = Outcome::of(&candidate, hook, &request, &answered.world, &effort) else { return };
        let object = request.object().unwrap_or(&Value::Null);
        for difference in differences(object, &answered.outcome, &outcome) {
            let change = difference.change.as_str();
            self.metrics.shadow_differs(&difference.policy, change);
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
