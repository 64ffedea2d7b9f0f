//! Logs once why a kind cannot be read, also across terms of leading.

use std::mem::discriminant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_edge::{ReadFailure, WatchedKind};

/// The failure that was logged last for each kind that cannot be read. Lives as long as the process. Cheap to
/// clone; all clones share their content.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureLog(Arc<Mutex<Vec<(WatchedKind, ReadFailure)>>>);

impl FailureLog {
    /// Logs why a kind cannot be read, unless a failure of the same sort was logged last.
    pub(super) fn failed(&self, kind: WatchedKind, failure: &ReadFailure) {
        {
            let mut logged = self.lock();
            let same = |last: &ReadFailure| discriminant(last) == discriminant(failure);
            if logged.iter().any(|(other, last)| *other == kind && same(last)) {
                return;
            }
            logged.retain(|(other, _)| *other != kind);
            logged.push((kind, failure.clone()));
        }
        let (optional, kind) = (kind.optional(), kind.name());
        match failure {
            ReadFailure::Absent(_) if optional => {
                tracing::debug!(kind, "optional kind not installed; listing it again every few seconds");
            }
            ReadFailure::Absent(problem) => {
                tracing::error!(kind, problem, "required kind not installed: apply manifests/");
            }
            ReadFailure::Forbidden(problem) => {
                tracing::error!(
                    kind,
                    problem,
                    "reading this kind is forbidden: allow get, list and watch in all namespaces in RBAC"
                );
            }
            ReadFailure::Expired(_) => {
                tracing::debug!(kind, "resource version of the watch expired; listing the kind again");
            }
            ReadFailure::Failed(problem) => {
                tracing::warn!(kind, problem, "reading from the API server failed; trying again");
            }
        }
    }

    /// Logs that a kind can be read again, if a failure was logged as a warning or an error.
    pub(super) fn succeeded(&self, kind: WatchedKind) {
        let mut logged = self.lock();
        let Some(index) = logged.iter().position(|(other, _)| *other == kind) else { return };
        if let (_, ReadFailure::Forbidden(_) | ReadFailure::Failed(_)) = logged.swap_remove(index) {
            tracing::info!(kind = kind.name(), "reading this kind succeeds again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(WatchedKind, ReadFailure)>> {
        // No code panics in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
