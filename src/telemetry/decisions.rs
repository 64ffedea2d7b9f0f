//! The decision log: one line for each review that changed or denied an object.
//!
//! The same denial is logged once per minute, because a ReplicaSet controller retries a denied pod for ever.
//! The next line has the number of suppressed lines in the field `repeated`.

use std::time::{Duration, Instant};

use portcullis_core::admission::{AdmissionVerdict, ReviewSummary};

use super::repeated::RepeatedLines;
use crate::route::Route;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DenialKey {
    hook: &'static str,
    namespace: String,
    name: String,
    causes: Vec<String>,
}

/// Writes the log lines of reviews.
#[derive(Default)]
pub struct DecisionLog {
    denials: RepeatedLines<DenialKey>,
}

impl DecisionLog {
    /// Writes the line of one review, unless it repeats a recent denial.
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
                "review completed"
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
                "review completed"
            ),
            AdmissionVerdict::Denied => {
                let Some(repeated) = self.record_denial(route, summary, now) else { return };
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
                    "review completed"
                );
            }
        }
    }

    /// Records a denial. Returns the number of lines suppressed since the last one, or `None` to suppress
    /// this one too.
    fn record_denial(&self, route: Route, summary: &ReviewSummary, now: Instant) -> Option<u64> {
        let denial = DenialKey {
            hook: route.as_str(),
            namespace: summary.namespace.clone(),
            name: summary.name.clone(),
            causes: summary.causes.clone(),
        };
        self.denials.record(denial, now)
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
            log.record_denial(
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
    fn denials_of_another_object_cause_or_hook_are_logged_separately() {
        let (log, now) = (DecisionLog::default(), Instant::now());
        assert_eq!(log.record_denial(Route::Gangs(Hook::Validate), &denial("a", "both"), now), Some(0));
        assert_eq!(log.record_denial(Route::Gangs(Hook::Validate), &denial("b", "both"), now), Some(0));
        assert_eq!(log.record_denial(Route::Gangs(Hook::Validate), &denial("a", "range"), now), Some(0));
        assert_eq!(log.record_denial(Route::Gangs(Hook::Mutate), &denial("a", "both"), now), Some(0));
        assert_eq!(log.record_denial(Route::Gangs(Hook::Mutate), &denial("a", "both"), now), None);
    }
}
