//! One log line for each decision that changed or denied something.
//!
//! A ReplicaSet controller tries a denied pod again and again, for ever. The same denial is therefore logged once in
//! [`REPEATED_LOG_INTERVAL`]; the line after that says how often it was left out in between.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use moka::sync::Cache;
use portcullis_core::admission::{AdmissionVerdict, ReviewSummary};

use crate::route::Route;

/// How long a denial that was logged is left out when it repeats.
pub const REPEATED_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How many different denials are remembered. One more pushes out the least used: a line too many, never a line lost.
const REMEMBERED: u64 = 1024;

/// A denial that is not repeated for this long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Denial {
    hook: &'static str,
    namespace: String,
    name: String,
    causes: Vec<String>,
}

#[derive(Debug)]
struct Seen {
    logged: Instant,
    left_out: u64,
}

/// Writes the decision lines.
pub struct DecisionLog {
    denials: Cache<Denial, Arc<Mutex<Seen>>>,
}

impl Default for DecisionLog {
    fn default() -> Self {
        Self { denials: Cache::builder().max_capacity(REMEMBERED).time_to_idle(FORGOTTEN_AFTER).build() }
    }
}

impl DecisionLog {
    /// Writes the line of one decision, or leaves it out.
    pub fn write(&self, route: Route, summary: &ReviewSummary, took: Duration, now: Instant) {
        let (hook_name, verdict) = (route.as_str(), summary.verdict.as_str());
        let duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let ReviewSummary { uid, operation, namespace, name, warnings, patch_operations, .. } = summary;
        let policies = summary.policies.as_deref();
        match summary.verdict {
            AdmissionVerdict::Untouched | AdmissionVerdict::Allowed => tracing::debug!(
                hook = hook_name,
                verdict,
                operation,
                namespace,
                name,
                uid,
                warnings,
                duration_us,
                "reviewed"
            ),
            AdmissionVerdict::Patched => tracing::info!(
                hook = hook_name,
                verdict,
                operation,
                namespace,
                name,
                uid,
                policies,
                patch_operations,
                warnings,
                duration_us,
                "reviewed"
            ),
            AdmissionVerdict::Denied => {
                let Some(repeated) = self.denied(route, summary, now) else { return };
                let causes = summary.causes.join("; ");
                tracing::info!(
                    hook = hook_name,
                    verdict,
                    operation,
                    namespace,
                    name,
                    uid,
                    policies,
                    causes,
                    repeated,
                    duration_us,
                    "reviewed"
                );
            }
        }
    }

    /// Whether to log this denial: `Some` with the number of times it was left out since the last line, or `None`.
    fn denied(&self, route: Route, summary: &ReviewSummary, now: Instant) -> Option<u64> {
        let denial = Denial {
            hook: route.as_str(),
            namespace: summary.namespace.clone(),
            name: summary.name.clone(),
            causes: summary.causes.clone(),
        };
        let mut first = false;
        let seen = self.denials.get_with(denial, || {
            first = true;
            Arc::new(Mutex::new(Seen { logged: now, left_out: 0 }))
        });
        if first {
            return Some(0);
        }
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(seen.logged) < REPEATED_LOG_INTERVAL {
            seen.left_out += 1;
            return None;
        }
        seen.logged = now;
        Some(std::mem::take(&mut seen.left_out))
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::admission::Hook;

    use super::*;

    fn denial(name: &str, cause: &str) -> ReviewSummary {
        ReviewSummary {
            uid: "u".to_owned(),
            operation: "CREATE".to_owned(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            verdict: AdmissionVerdict::Denied,
            causes: vec![cause.to_owned()],
            warnings: 0,
            patch_operations: 0,
            policies: None,
        }
    }

    #[test]
    fn the_same_denial_is_logged_once_a_minute_with_a_count() {
        let (log, start) = (DecisionLog::default(), Instant::now());
        let at = |seconds| {
            log.denied(
                Route::Gangs(Hook::Validate),
                &denial("model-*", "both"),
                start + Duration::from_secs(seconds),
            )
        };
        assert_eq!(at(0), Some(0));
        assert_eq!(at(1), None);
        assert_eq!(at(59), None);
        assert_eq!(at(60), Some(2));
        assert_eq!(at(61), None);
        assert_eq!(at(300), Some(1));
    }

    #[test]
    fn another_object_cause_or_hook_is_another_denial() {
        let (log, now) = (DecisionLog::default(), Instant::now());
        assert_eq!(log.denied(Route::Gangs(Hook::Validate), &denial("a", "both"), now), Some(0));
        assert_eq!(log.denied(Route::Gangs(Hook::Validate), &denial("b", "both"), now), Some(0));
        assert_eq!(log.denied(Route::Gangs(Hook::Validate), &denial("a", "range"), now), Some(0));
        assert_eq!(log.denied(Route::Gangs(Hook::Mutate), &denial("a", "both"), now), Some(0));
        assert_eq!(log.denied(Route::Gangs(Hook::Mutate), &denial("a", "both"), now), None);
    }
}
