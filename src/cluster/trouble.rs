//! Why a kind cannot be read, and that it is said once: also by a replica that leads again and finds what it has found before.

use std::mem::discriminant;
use std::sync::{Arc, Mutex};

use super::client::{Lost, Reply};
use super::kinds::Kind;

/// Why a list could not be read, or a watch could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    #[error("it is not installed: {0}")]
    Absent(String),
    #[error("{0}")]
    Forbidden(String),
    /// The version asked for is too old (410).
    #[error("{0}")]
    Expired(String),
    #[error("{0}")]
    Failed(String),
}

impl From<Lost> for Trouble {
    fn from(lost: Lost) -> Self {
        Self::Failed(lost.0)
    }
}

impl From<Reply> for Trouble {
    fn from(reply: Reply) -> Self {
        let message = reply.message();
        match reply.code {
            404 => Self::Absent(message),
            401 | 403 => Self::Forbidden(message),
            410 => Self::Expired(message),
            code => Self::Failed(format!("{code}: {message}")),
        }
    }
}

/// What the log has said of each kind that cannot be read, and not yet taken back: for the life of the process.
#[derive(Clone, Debug, Default)]
pub(super) struct Complaints(Arc<Mutex<Vec<(Kind, Trouble)>>>);

impl Complaints {
    /// Says once what is wrong with a kind, until something else is.
    pub(super) fn complain(&self, kind: Kind, trouble: &Trouble) {
        {
            let mut said = self.lock();
            let same = |was: &Trouble| discriminant(was) == discriminant(trouble);
            if said.iter().any(|(other, was)| *other == kind && same(was)) {
                return;
            }
            said.retain(|(other, _)| *other != kind);
            said.push((kind, trouble.clone()));
        }
        let (optional, kind, verbs) = (kind.optional(), kind.name(), "get, list and watch");
        match trouble {
            Trouble::Absent(_) if optional => {
                tracing::debug!(kind, "this kind is not installed; it is looked for every few seconds");
            }
            Trouble::Absent(problem) => {
                tracing::error!(kind, problem, "this kind is not installed: apply manifests/");
            }
            Trouble::Forbidden(problem) => {
                tracing::error!(
                    kind,
                    problem,
                    "we may not read this kind: RBAC has to allow {verbs} in all namespaces"
                );
            }
            Trouble::Expired(_) => {
                tracing::debug!(kind, "a watch fell too far behind; everything is listed anew");
            }
            Trouble::Failed(problem) => {
                tracing::warn!(kind, problem, "the API server cannot be read; trying again");
            }
        }
    }

    /// Takes back what was said, where that was an error.
    pub(super) fn all_is_well(&self, kind: Kind) {
        let mut said = self.lock();
        let Some(place) = said.iter().position(|(other, _)| *other == kind) else { return };
        if let (_, Trouble::Forbidden(_) | Trouble::Failed(_)) = said.swap_remove(place) {
            tracing::info!(kind = kind.name(), "this kind can be read again");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Kind, Trouble)>> {
        // Nothing here panics half way through a change.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
