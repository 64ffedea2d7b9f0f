//! The metrics of policies. Each help text says what to do if the value is high.
//!
//! Bound: policy names are labels. The series of a set are removed when another set replaces it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::metrics::StaticLabel;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SetLabels {
    role: StaticLabel,
    hash: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabels {
    policy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DifferenceLabels {
    policy: String,
    change: StaticLabel,
}

/// The role of a policy set in a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySetRole {
    /// The active set, which answers reviews.
    Live,
    /// The candidate set of the shadow evaluation.
    Shadow,
}

impl PolicySetRole {
    fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Shadow => "shadow",
        }
    }
}

/// The metrics of policies. Cheap to clone; all clones update the same values.
#[derive(Clone, Default)]
pub struct PolicyMetrics {
    reloads: Family<ResultLabels, Counter>,
    last_reload: Gauge,
    info: Family<SetLabels, Gauge>,
    /// Current labels of `info`: active set, candidate.
    info_labels: Arc<Mutex<[Option<SetLabels>; 2]>>,
    policies: Gauge,
    denials: Family<PolicyLabels, Counter>,
    ignored_rules: Counter,
    slow_reviews: Counter,
    shadow_reviews: Counter,
    shadow_skipped: Counter,
    shadow_differences: Family<DifferenceLabels, Counter>,
}

impl PolicyMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "policy_reloads",
            "Reloads of the policy files. result=failed: the previous set stays active; the log, an event and /readyz?verbose show the problem with its line",
            self.reloads.clone(),
        );
        registry.register(
            "policy_last_reload_timestamp_seconds",
            "When the active set was loaded, in Unix time. Earlier than the last change of the files: a reload failed",
            self.last_reload.clone(),
        );
        registry.register(
            "policy_set_info",
            "Hash of the active policy set (role=live) and of the candidate (role=shadow). Different between replicas for minutes: a ConfigMap has not reached one of them, or a reload failed there",
            self.info.clone(),
        );
        registry.register(
            "policies",
            "Policies in the active set. Zero with --policies: the files contain no policies; /policies on this port lists what was loaded",
            self.policies.clone(),
        );
        registry.register(
            "policy_denials",
            "Requests denied by a policy. High rate: a controller retries a denied object; the log names the object",
            self.denials.clone(),
        );
        registry.register(
            "policy_rules_ignored",
            "Rules that were ignored because their evaluation failed (failurePolicy: Ignore). Rising: the log shows the rule and its error; the rule has no effect until it is fixed",
            self.ignored_rules.clone(),
        );
        registry.register(
            "policy_long_reviews",
            "Reviews in the slow lane: their policies exceed the work budget of the fast lane, or their body is larger than 256 KiB. Rising: a policy loops over long lists (`portcullis check` names expensive policies), or clients write large objects often",
            self.slow_reviews.clone(),
        );
        registry.register(
            "policy_shadow_reviews",
            "Reviews that the candidate set evaluated. Zero during traffic: there is no candidate, it cannot be loaded (see the log and /policies on this port), or it lacks CPU time",
            self.shadow_reviews.clone(),
        );
        registry.register(
            "policy_shadow_skipped",
            "Reviews that the candidate set skipped because its queue was full or the review was too large. Rising: the differences are a sample",
            self.shadow_skipped.clone(),
        );
        registry.register(
            "policy_shadow_differences",
            "Reviews that the candidate set would answer differently. Rising: check the differences before you activate the candidate; the log has one example per policy and change",
            self.shadow_differences.clone(),
        );
    }

    /// Records a newly loaded set.
    pub fn set_loaded(&self, role: PolicySetRole, hash: &str, policies: usize, at: SystemTime) {
        self.set_info(role, hash);
        if role == PolicySetRole::Live {
            let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            self.last_reload.set(i64::try_from(seconds).unwrap_or(i64::MAX));
            self.policies.set(i64::try_from(policies).unwrap_or(i64::MAX));
            self.denials.clear();
        }
        self.shadow_differences.clear();
    }

    fn set_info(&self, role: PolicySetRole, hash: &str) {
        let labels = SetLabels { role: StaticLabel(role.as_str()), hash: hash.to_owned() };
        let mut info_labels = self.info_labels.lock().unwrap_or_else(PoisonError::into_inner);
        let current = &mut info_labels[usize::from(role == PolicySetRole::Shadow)];
        if let Some(previous) = current.take() {
            self.info.remove(&previous);
        }
        self.info.get_or_create(&labels).set(1);
        *current = Some(labels);
    }

    /// Counts a reload of changed files.
    pub fn count_reload(&self, succeeded: bool) {
        let result = StaticLabel(if succeeded { "success" } else { "failed" });
        self.reloads.get_or_create(&ResultLabels { result }).inc();
    }

    /// Counts a request that a policy of the active set denied.
    pub fn count_denial(&self, policy: &str) {
        self.denials.get_or_create(&PolicyLabels { policy: policy.to_owned() }).inc();
    }

    /// Counts rules that were ignored because their evaluation failed.
    pub fn count_ignored_rules(&self, count: usize) {
        self.ignored_rules.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Counts a review in the slow lane.
    pub fn count_slow_review(&self) {
        self.slow_reviews.inc();
    }

    /// Counts a review that the candidate evaluated or skipped.
    pub fn count_shadow_review(&self, evaluated: bool) {
        if evaluated { &self.shadow_reviews } else { &self.shadow_skipped }.inc();
    }

    /// Counts a review that the candidate would answer differently.
    pub fn count_shadow_difference(&self, policy: &str, change: &'static str) {
        let labels = DifferenceLabels { policy: policy.to_owned(), change: StaticLabel(change) };
        self.shadow_differences.get_or_create(&labels).inc();
    }
}
