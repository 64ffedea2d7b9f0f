//! The metrics of policies. Each help text says what to do when the value is high.
//!
//! Bound: policies are labels, and those of a set that is no longer in force are forgotten with it.

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

/// Which of the two sets of a replica is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySetRole {
    /// The one that answers.
    Live,
    /// The candidate beside it.
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

/// What is counted of policies. Cheap to clone; all clones count together.
#[derive(Clone, Default)]
pub struct PolicyMetrics {
    reloads: Family<ResultLabels, Counter>,
    last_reload: Gauge,
    info: Family<SetLabels, Gauge>,
    /// What `info` says now: live and shadow.
    named: Arc<Mutex<[Option<SetLabels>; 2]>>,
    policies: Gauge,
    denials: Family<PolicyLabels, Counter>,
    ignored: Counter,
    long: Counter,
    shadow_reviews: Counter,
    shadow_skipped: Counter,
    shadow_differences: Family<DifferenceLabels, Counter>,
}

impl PolicyMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "policy_reloads",
            "Changes of the policy files that were looked at. result=failed: the last good set stays in force; the log, an event and /readyz?verbose show the problem with its line",
            self.reloads.clone(),
        );
        registry.register(
            "policy_last_reload_timestamp_seconds",
            "When the set in force was loaded, in seconds since 1970. Earlier than the last change of the files: a reload failed",
            self.last_reload.clone(),
        );
        registry.register(
            "policy_set_info",
            "The hash of the set in force (role=live) and of the candidate beside it (role=shadow). Different among replicas for minutes: a ConfigMap has not reached one of them, or a reload failed there",
            self.info.clone(),
        );
        registry.register(
            "policies",
            "Policies in force. Zero while files are given: the files hold none, /policies on this port lists what was loaded",
            self.policies.clone(),
        );
        registry.register(
            "policy_denials",
            "Requests that a policy has refused. A high rate: a controller retries a manifest that the policy does not let through; the log names the object",
            self.denials.clone(),
        );
        registry.register(
            "policy_rules_ignored",
            "Rules that could not be evaluated and were passed over (failurePolicy: Ignore). Rising: the log names rule and error; the rule protects nothing until it is mended",
            self.ignored.clone(),
        );
        registry.register(
            "policy_long_reviews",
            "Reviews that were judged on threads of their own, where nobody waits behind them: their policies make much work, or their body is larger than 256 KiB. Rising: a policy loops over much, `portcullis check` names those that may cost much; or large objects are written often",
            self.long.clone(),
        );
        registry.register(
            "policy_shadow_reviews",
            "Reviews that the candidate set was asked as well. Zero while reviews come: there is no candidate, it cannot be loaded (see the log and /policies on this port), or it has no time for them",
            self.shadow_reviews.clone(),
        );
        registry.register(
            "policy_shadow_skipped",
            "Reviews that the candidate set was not asked, because it had no time for them. Rising: the differences are a sample",
            self.shadow_skipped.clone(),
        );
        registry.register(
            "policy_shadow_differences",
            "Reviews that the candidate set would have answered otherwise. Rising: look before it takes the place of the set in force; the log has the first of each with the object",
            self.shadow_differences.clone(),
        );
    }

    /// A set is in force from now on.
    pub fn set_loaded(&self, role: PolicySetRole, hash: &str, policies: usize, at: SystemTime) {
        self.name(role, hash);
        if role == PolicySetRole::Live {
            let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            self.last_reload.set(i64::try_from(seconds).unwrap_or(i64::MAX));
            self.policies.set(i64::try_from(policies).unwrap_or(i64::MAX));
            self.denials.clear();
        }
        self.shadow_differences.clear();
    }

    fn name(&self, role: PolicySetRole, hash: &str) {
        let labels = SetLabels { role: StaticLabel(role.as_str()), hash: hash.to_owned() };
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let place = &mut named[usize::from(role == PolicySetRole::Shadow)];
        if let Some(old) = place.take() {
            self.info.remove(&old);
        }
        self.info.get_or_create(&labels).set(1);
        *place = Some(labels);
    }

    /// Changed files were loaded, or were not.
    pub fn count_reload(&self, good: bool) {
        let result = StaticLabel(if good { "success" } else { "failed" });
        self.reloads.get_or_create(&ResultLabels { result }).inc();
    }

    /// A policy of the set in force has refused a request.
    pub fn count_denial(&self, policy: &str) {
        self.denials.get_or_create(&PolicyLabels { policy: policy.to_owned() }).inc();
    }

    /// Rules were passed over.
    pub fn count_ignored_rules(&self, count: usize) {
        self.ignored.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// A review is judged where the long ones are.
    pub fn count_slow_review(&self) {
        self.long.inc();
    }

    /// The candidate was asked, or had no time.
    pub fn count_shadow_review(&self, asked: bool) {
        if asked { &self.shadow_reviews } else { &self.shadow_skipped }.inc();
    }

    /// The candidate would have answered otherwise.
    pub fn count_shadow_difference(&self, policy: &str, change: &'static str) {
        let labels = DifferenceLabels { policy: policy.to_owned(), change: StaticLabel(change) };
        self.shadow_differences.get_or_create(&labels).inc();
    }
}
