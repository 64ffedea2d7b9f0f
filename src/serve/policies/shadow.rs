//! Shadow evaluation: a candidate set evaluates reviews after the active set has answered them.
//!
//! Invariants: no answer waits for the candidate or depends on it. The queue before it is bounded in number
//! and size; what does not fit is counted as skipped. A candidate that cannot be loaded only stops the
//! comparison.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use portcullis_core::admission::Hook;
use portcullis_policy::{
    AdmissionRequest, ClusterData, DataDependencies, DifferenceKind, HookOutcome, PolicySet, WorkBudget,
    compare_outcomes,
};
use serde_json::{Value, json};

use super::{FailedReload, load_set};
use crate::background::spawn_background_loop;
use crate::policy_files::{self, Fingerprint};
use crate::telemetry::{PolicyMetrics, PolicySetRole};

/// Maximum number of reviews that wait for the comparison.
const MAX_QUEUED_REVIEWS: usize = 32;
/// Maximum size of a review that is compared.
const MAX_REVIEW_BYTES: usize = 128 * 1024;
/// Maximum number of differences that are remembered as logged.
const MAX_LOGGED_DIFFERENCES: usize = 1000;

/// A review that the active set has answered.
struct AnsweredReview {
    hook: Hook,
    review: Value,
    outcome: HookOutcome,
    cluster_data: Arc<ClusterData>,
    active_hash: String,
}

/// Loads the candidate set and compares its answers with those of the active set.
pub(super) struct ShadowEvaluator {
    paths: Vec<PathBuf>,
    candidate: ArcSwapOption<PolicySet>,
    /// Why the current files cannot be used.
    failed_reload: ArcSwapOption<FailedReload>,
    queue: SyncSender<AnsweredReview>,
    metrics: PolicyMetrics,
    fingerprint: Mutex<Option<Fingerprint>>,
}

impl ShadowEvaluator {
    /// Loads the candidate, if it has no errors, and starts the comparison thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(paths: Vec<PathBuf>, metrics: PolicyMetrics) -> io::Result<Arc<Self>> {
        let (queue, answered_reviews) = sync_channel(MAX_QUEUED_REVIEWS);
        let evaluator = Arc::new(Self {
            paths,
            candidate: ArcSwapOption::empty(),
            failed_reload: ArcSwapOption::empty(),
            queue,
            metrics,
            fingerprint: Mutex::default(),
        });
        evaluator.reload_if_changed();
        let weak_evaluator = Arc::downgrade(&evaluator);
        let mut logged = LoggedDifferences::default();
        spawn_background_loop("portcullis-shadow", move || {
            let Ok(answered) = answered_reviews.recv() else { return ControlFlow::Break(()) };
            let Some(evaluator) = weak_evaluator.upgrade() else { return ControlFlow::Break(()) };
            evaluator.compare(&answered, &mut logged);
            ControlFlow::Continue(())
        })?;
        Ok(evaluator)
    }

    fn set_candidate(&self, set: PolicySet) {
        let (hash, count) = (set.hash().to_owned(), set.policies().len());
        self.candidate.store(Some(Arc::new(set)));
        // After the candidate, so that reviews are compared wherever the metric shows it.
        self.metrics.set_loaded(PolicySetRole::Shadow, &hash, count, SystemTime::now());
        tracing::info!(shadow = hash, count, "candidate policy set loaded for shadow evaluation");
    }

    /// Loads the files if they have changed. If they have errors, the previous candidate stays.
    pub(super) fn reload_if_changed(&self) {
        let mut fingerprint = self.fingerprint.lock().unwrap_or_else(PoisonError::into_inner);
        if fingerprint.is_some() && policy_files::fingerprint(&self.paths).ok() == *fingerprint {
            return;
        }
        let (read_fingerprint, loaded) = match policy_files::read_files(&self.paths) {
            Ok((read_fingerprint, files)) => (Some(read_fingerprint), load_set(&files)),
            Err(error) => (None, Err(error.to_string())),
        };
        *fingerprint = read_fingerprint;
        let problem = match loaded {
            Ok(loaded) => {
                self.failed_reload.store(None);
                return self.set_candidate(loaded.set);
            }
            Err(problem) => problem,
        };
        // Unreadable files are tried every second and reported once.
        let already_reported =
            self.failed_reload.load().as_ref().is_some_and(|failed| failed.text == problem);
        if fingerprint.is_none() && already_reported {
            return;
        }
        if self.candidate.load().is_some() {
            tracing::error!(
                problem,
                "candidate policy reload failed; the previous candidate is still evaluated"
            );
        } else {
            tracing::error!(problem, "candidate policies cannot be loaded; shadow evaluation is off");
        }
        self.failed_reload.store(Some(Arc::new(FailedReload::now(problem))));
    }

    /// The candidate's hash and its last failed reload, for `/policies`.
    pub(super) fn status_json(&self) -> Value {
        let mut status = json!({"hash": self.candidate.load().as_ref().map(|set| set.hash())});
        if let Some(failed) = &*self.failed_reload.load() {
            status["lastReload"] = failed.to_json();
        }
        status
    }

    /// The cluster facts that the candidate needs.
    pub(super) fn data_dependencies(&self) -> DataDependencies {
        self.candidate.load().as_ref().map(|set| set.data_dependencies()).unwrap_or_default()
    }

    /// Queues an answered review for comparison, or counts it as skipped.
    pub(super) fn enqueue(
        &self,
        hook: Hook,
        bytes: usize,
        review: Value,
        outcome: HookOutcome,
        cluster_data: &Arc<ClusterData>,
        active_hash: &str,
    ) {
        if self.candidate.load().is_none() {
            return;
        }
        let queued = bytes <= MAX_REVIEW_BYTES && {
            let (cluster_data, active_hash) = (Arc::clone(cluster_data), active_hash.to_owned());
            self.queue.try_send(AnsweredReview { hook, review, outcome, cluster_data, active_hash }).is_ok()
        };
        if !queued {
            self.metrics.count_shadow_review(false);
        }
    }

    fn compare(&self, answered: &AnsweredReview, logged: &mut LoggedDifferences) {
        let Some(candidate) = self.candidate.load_full() else { return };
        let Some(request) = AdmissionRequest::from_review(&answered.review) else { return };
        self.metrics.count_shadow_review(true);
        let (hook, effort) = (answered.hook, WorkBudget::unlimited());
        let Some(outcome) =
            HookOutcome::evaluate(&candidate, hook, &request, &answered.cluster_data, &effort)
        else {
            return;
        };
        let object = request.object().unwrap_or(&Value::Null);
        for difference in compare_outcomes(object, &answered.outcome, &outcome) {
            let change = difference.kind.as_str();
            self.metrics.count_shadow_difference(&difference.policy, change);
            if logged.is_new(candidate.hash(), &answered.active_hash, &difference.policy, difference.kind) {
                tracing::info!(
                    policy = difference.policy,
                    change,
                    kind = request.kind(),
                    namespace = request.namespace(),
                    name = portcullis_policy::display_name(&request),
                    detail = difference.detail,
                    policies = answered.active_hash,
                    shadow = candidate.hash(),
                    "candidate policy set would answer differently"
                );
            }
        }
    }
}

/// The differences that were logged for the current pair of sets.
#[derive(Default)]
struct LoggedDifferences {
    /// Hashes of the candidate and the active set.
    sets: (String, String),
    logged: BTreeSet<(String, DifferenceKind)>,
}

impl LoggedDifferences {
    /// Whether a difference was not logged for this pair of sets; remembers it.
    fn is_new(&mut self, candidate: &str, active: &str, policy: &str, change: DifferenceKind) -> bool {
        if (self.sets.0.as_str(), self.sets.1.as_str()) != (candidate, active) {
            *self = Self { sets: (candidate.to_owned(), active.to_owned()), logged: BTreeSet::new() };
        }
        self.logged.len() < MAX_LOGGED_DIFFERENCES && self.logged.insert((policy.to_owned(), change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_logged_once_for_each_pair_of_sets() {
        let mut logged = LoggedDifferences::default();
        assert!(logged.is_new("b", "a", "p", DifferenceKind::WouldDeny));
        assert!(!logged.is_new("b", "a", "p", DifferenceKind::WouldDeny));
        assert!(logged.is_new("b", "a", "p", DifferenceKind::WouldAllow));
        assert!(logged.is_new("b", "a", "q", DifferenceKind::WouldDeny));
        assert!(logged.is_new("c", "a", "p", DifferenceKind::WouldDeny));
    }
}
