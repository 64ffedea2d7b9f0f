//! The policies of a running replica: the active set, an optional candidate set, and the cluster facts for
//! both.
//!
//! Owns the policy files, their reloads and what is reported about them. It never decides about a request:
//! the policy set does. Files are loaded on a background thread, so no review waits for a reload.
//!
//! - **A set is swapped as a whole.** One set answers a review. Its hash is in the log line of every denial,
//!   in the metric `policy_set_info`, in `/policies` and in `/readyz?verbose`.
//! - **Files are read as one version** (`policy_files`), because the kubelet switches a mounted ConfigMap
//!   while it is read. Their metadata is checked every second; every minute they are read in any case.
//! - **Cluster facts are requested only if compiled expressions use them**, those of the candidate included.
//! - **The candidate costs no answer anything** (`shadow`). It evaluates after the answer, on a background
//!   thread.
//!
//! Invariant: a set with an error never answers. At start, an error ends the process. Later, the active set
//! stays active and the log, a metric, an event and `/readyz?verbose` report the error; readiness does not
//! change.
//!
//! ```text
//! shadow.rs         the candidate set beside the active one
//! reload_events.rs  events about reloads, and warnings about requests that are not sent
//! ```

pub(super) mod reload_events;
mod shadow;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anstream::adapter::strip_str;
use anyhow::anyhow;
use arc_swap::{ArcSwap, ArcSwapOption};
use portcullis_policy::{
    ClusterData, DataDependencies, PolicyEntry, PolicySet, Problem, Severity, SourceFile, load,
};
use portcullis_text::Timestamp;
use portcullis_text::timestamp::Fraction;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::background::{caught, spawn_background_loop};
use crate::clock::seconds_now;
use crate::cluster::PolicyDataSubscriber;
use crate::policy_files::{self, Fingerprint};
use crate::telemetry::{Metrics, PolicyMetrics, PolicySetRole, RepeatedLines};
use crate::webhook::{PolicyEndpoints, ReadinessCheck};
use shadow::ShadowEvaluator;

/// Interval of the metadata checks.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// After this number of checks the files are read even if their metadata is unchanged, because modification
/// times can lie.
const CHECKS_PER_FORCED_READ: u32 = 60;
/// How long a replica stays unready while the namespaces are unknown. After that it answers without them.
const NAMESPACES_TIMEOUT: Duration = Duration::from_secs(15);
/// Number of characters of a set's hash in messages.
const SHORT_HASH_CHARS: usize = 12;

/// The active policy set.
struct ActiveSet {
    set: PolicySet,
    since: SystemTime,
    /// Problems that were found during loading: warnings only.
    warnings: Vec<Problem>,
}

/// The last reload, if it failed.
struct FailedReload {
    at: SystemTime,
    /// The problems as shown to people: several lines.
    text: String,
}

impl FailedReload {
    fn now(text: String) -> Self {
        Self { at: SystemTime::now(), text }
    }

    fn to_json(&self) -> Value {
        json!({"failed": rfc3339(self.at), "problem": self.text})
    }
}

/// The state after the last reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReloadStatus {
    /// Hash of the active set.
    pub(super) hash: String,
    /// Why the last reload failed; `None` if it succeeded.
    pub(super) problem: Option<String>,
}

/// The policies of a running replica.
pub(super) struct PolicyRuntime {
    paths: Vec<PathBuf>,
    active: ArcSwap<ActiveSet>,
    failed_reload: ArcSwapOption<FailedReload>,
    cluster_data: ArcSwap<ClusterData>,
    shadow: Option<Arc<ShadowEvaluator>>,
    metrics: PolicyMetrics,
    reload_status: watch::Sender<ReloadStatus>,
    dependencies: watch::Sender<DataDependencies>,
    /// Lines about ignored rules and exceptions.
    logged: RepeatedLines<String>,
}

/// The files as they were last read.
struct WatchedFiles {
    fingerprint: Fingerprint,
    files: Vec<SourceFile>,
    checks_since_read: u32,
    /// Why the last read failed.
    read_error: Option<String>,
}

impl PolicyRuntime {
    /// Loads the policies in `paths` and follows their files. `candidate_paths` are the files of a candidate
    /// set, if any. A candidate with errors is not evaluated.
    ///
    /// # Errors
    /// If the files cannot be read or have errors: all problems as shown to people.
    pub(super) fn start(
        paths: Vec<PathBuf>,
        candidate_paths: &[PathBuf],
        metrics: PolicyMetrics,
    ) -> anyhow::Result<Arc<Self>> {
        let (fingerprint, files) = policy_files::read_files(&paths)?;
        let active = load_set(&files).map_err(|text| anyhow!("the policies cannot be used:\n\n{text}"))?;
        let shadow = if candidate_paths.is_empty() {
            None
        } else {
            Some(ShadowEvaluator::start(candidate_paths.to_vec(), metrics.clone())?)
        };
        let dependencies = active.set.data_dependencies()
            | shadow.as_ref().map(|shadow| shadow.data_dependencies()).unwrap_or_default();
        let (reload_status, _) =
            watch::channel(ReloadStatus { hash: active.set.hash().to_owned(), problem: None });
        let runtime = Arc::new(Self {
            paths,
            active: ArcSwap::from_pointee(active),
            failed_reload: ArcSwapOption::empty(),
            cluster_data: ArcSwap::from_pointee(ClusterData { now: seconds_now(), ..ClusterData::default() }),
            shadow,
            metrics,
            reload_status,
            dependencies: watch::channel(dependencies).0,
            logged: RepeatedLines::default(),
        });
        runtime.report_active_set();
        let mut watched = WatchedFiles { fingerprint, files, checks_since_read: 0, read_error: None };
        let weak_runtime = Arc::downgrade(&runtime);
        spawn_background_loop("portcullis-policies", move || {
            std::thread::sleep(FILE_CHECK_INTERVAL);
            let Some(runtime) = weak_runtime.upgrade() else { return ControlFlow::Break(()) };
            runtime.check(&mut watched);
            ControlFlow::Continue(())
        })?;
        Ok(runtime)
    }

    /// Like [`PolicyRuntime::start`], but returns `None` if `paths` is empty.
    ///
    /// # Errors
    /// As [`PolicyRuntime::start`].
    pub(super) fn start_if_configured(
        paths: &[PathBuf],
        candidate_paths: &[PathBuf],
        metrics: &Metrics,
    ) -> anyhow::Result<Option<Arc<Self>>> {
        if paths.is_empty() {
            return Ok(None);
        }
        Self::start(paths.to_vec(), candidate_paths, metrics.policies().clone()).map(Some)
    }

    /// The receiver of cluster facts.
    pub(super) fn cluster_data_subscriber(self: &Arc<Self>) -> PolicyDataSubscriber {
        let runtime = Arc::clone(self);
        PolicyDataSubscriber {
            dependencies: self.dependencies.subscribe(),
            publish: Arc::new(move |cluster_data| {
                runtime.cluster_data.store(Arc::new(cluster_data));
            }),
        }
    }

    /// The policies of the active set.
    fn policies(&self) -> Vec<PolicyEntry> {
        self.active.load().set.policies().cloned().collect()
    }

    /// The state after the last reload, as it changes.
    pub(super) fn reload_status(&self) -> watch::Receiver<ReloadStatus> {
        self.reload_status.subscribe()
    }

    /// Reloads changed files and requests the cluster facts that both sets need. Runs every second.
    fn check(&self, watched: &mut WatchedFiles) {
        if let Some(shadow) = &self.shadow {
            shadow.reload_if_changed();
        }
        // Without a cluster, only the time advances, because exceptions expire. Facts that arrive meanwhile
        // are kept.
        self.cluster_data.rcu(|cluster_data| {
            let has_cluster_facts = !cluster_data.namespaces.is_empty();
            if has_cluster_facts {
                Arc::clone(cluster_data)
            } else {
                Arc::new(ClusterData { now: seconds_now(), ..ClusterData::clone(cluster_data) })
            }
        });
        self.reload_if_changed(watched);
        self.request_facts();
    }

    /// Requests the cluster facts that both sets need, if they have changed.
    fn request_facts(&self) {
        let shadow = self.shadow.as_ref().map(|shadow| shadow.data_dependencies()).unwrap_or_default();
        let dependencies = self.active.load().set.data_dependencies() | shadow;
        self.dependencies.send_if_modified(|before| std::mem::replace(before, dependencies) != dependencies);
    }

    /// Reads the files if they may have changed, and loads them if they have.
    fn reload_if_changed(&self, watched: &mut WatchedFiles) {
        watched.checks_since_read += 1;
        let fingerprint = policy_files::fingerprint(&self.paths);
        if fingerprint.as_ref() == Ok(&watched.fingerprint)
            && watched.checks_since_read < CHECKS_PER_FORCED_READ
        {
            return;
        }
        watched.checks_since_read = 0;
        let (fingerprint, files) = match policy_files::read_files(&self.paths) {
            Ok(read) => read,
            Err(error) => {
                let text = error.to_string();
                // Reported once, not every second.
                if watched.read_error.as_ref() != Some(&text) {
                    self.report_failed_reload(text.clone());
                }
                watched.read_error = Some(text);
                watched.fingerprint = Fingerprint::default();
                return;
            }
        };
        watched.fingerprint = fingerprint;
        let was_readable = watched.read_error.take().is_none();
        if was_readable && files == watched.files {
            return;
        }
        watched.files = files;
        self.reload(&watched.files);
    }

    fn reload(&self, files: &[SourceFile]) {
        let started = Instant::now();
        match load_set(files) {
            Ok(next) => {
                self.active.store(Arc::new(next));
                self.failed_reload.store(None);
                self.report_active_set();
                // Last, so that the set is visible wherever the count is.
                self.metrics.count_reload(true);
                tracing::info!(took_ms = started.elapsed().as_millis(), "policies reloaded");
            }
            Err(text) => self.report_failed_reload(text),
        }
    }

    fn report_failed_reload(&self, text: String) {
        let hash = self.active.load().set.hash().to_owned();
        tracing::error!(
            policies = hash,
            problem = text,
            "policy reload failed; the previous set stays active"
        );
        self.reload_status.send_replace(ReloadStatus { hash, problem: Some(text.clone()) });
        self.failed_reload.store(Some(Arc::new(FailedReload::now(text))));
        self.metrics.count_reload(false);
    }

    fn report_active_set(&self) {
        let active = self.active.load();
        let (hash, count) = (active.set.hash(), active.set.policies().len());
        self.metrics.set_loaded(PolicySetRole::Live, hash, count, active.since);
        tracing::info!(policies = hash, count, "policy set active");
        for warning in &active.warnings {
            tracing::warn!(policies = hash, problem = warning.one_line(), "policy file has a warning");
        }
        self.reload_status.send_replace(ReloadStatus { hash: hash.to_owned(), problem: None });
    }

    /// The endpoints that the webhook serves for policies.
    pub(super) fn endpoints(self: &Arc<Self>) -> PolicyEndpoints {
        let (reviewing, listing) = (Arc::clone(self), Arc::clone(self));
        PolicyEndpoints {
            review: Arc::new(move |hook, body, effort| {
                let active = reviewing.active.load();
                let cluster_data = reviewing.cluster_data.load_full();
                let reviewed = portcullis_policy::review(&active.set, &cluster_data, hook, body, effort)?;
                let Some(reviewed) = reviewed else { return Ok(None) };
                reviewing.record(&reviewed.outcome);
                if let Some(shadow) = &reviewing.shadow {
                    shadow.enqueue(
                        hook,
                        body.len(),
                        reviewed.review,
                        reviewed.outcome,
                        &cluster_data,
                        active.set.hash(),
                    );
                }
                Ok(Some(reviewed.answer))
            }),
            status_json: Arc::new(move || listing.status_json()),
        }
    }

    /// Counts and logs denials, ignored rules and exceptions of one review.
    fn record(&self, outcome: &portcullis_policy::HookOutcome) {
        let now = Instant::now();
        for denial in outcome.denials() {
            self.metrics.count_denial(&denial.policy);
        }
        self.metrics.count_ignored_rules(outcome.ignored_errors().len());
        for rule in outcome.ignored_errors() {
            if let Some(repeated) = self.logged.record(rule.clone(), now) {
                tracing::warn!(
                    rule,
                    repeated,
                    "policy rule ignored: its evaluation failed (failurePolicy: Ignore)"
                );
            }
        }
        for excepted in outcome.applied_exceptions() {
            let portcullis_policy::AppliedException { exception, owner, policy, message, .. } = excepted;
            let line = format!("{exception} {policy} {message}");
            if let Some(repeated) = self.logged.record(line, now) {
                tracing::info!(
                    policy,
                    exception,
                    owner,
                    denial = message,
                    repeated,
                    "denial suppressed by a PolicyException"
                );
            }
        }
    }

    /// The body of `/policies`: the active set, the last failed reload and the candidate.
    fn status_json(&self) -> String {
        let active = self.active.load();
        let policies: Vec<_> = active
            .set
            .policies()
            .map(|policy| json!({"kind": policy.kind, "name": policy.name, "file": policy.file, "line": policy.line}))
            .collect();
        let mut status = json!({
            "hash": active.set.hash(),
            "since": rfc3339(active.since),
            "files": self.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
            "policies": policies,
            "warnings": active.warnings.iter().map(Problem::one_line).collect::<Vec<_>>(),
        });
        if let Some(failed) = &*self.failed_reload.load() {
            status["lastReload"] = failed.to_json();
        }
        if let Some(shadow) = &self.shadow {
            status["shadow"] = shadow.status_json();
        }
        format!("{status:#}\n")
    }

    /// A check that passes once the namespaces of the cluster are known, or after [`NAMESPACES_TIMEOUT`]. A
    /// failed reload does not fail it, because a set is active; its detail shows the failure.
    pub(super) fn readiness_check(self: &Arc<Self>, in_cluster: bool) -> ReadinessCheck {
        let (checking, showing, started) = (Arc::clone(self), Arc::clone(self), Instant::now());
        let check = move || {
            let known = !in_cluster || !checking.cluster_data.load().namespaces.is_empty();
            if known || started.elapsed() > NAMESPACES_TIMEOUT {
                Ok(())
            } else {
                Err("the namespaces are not listed yet")
            }
        };
        ReadinessCheck::new("policies", check).with_detail(move || showing.readiness_detail())
    }

    fn readiness_detail(&self) -> String {
        let active = self.active.load();
        let count = active.set.policies().len();
        let hash = short_hash(active.set.hash());
        let since = rfc3339(active.since);
        match &*self.failed_reload.load() {
            None => format!("{count} active since {since}, set {hash}"),
            Some(failed) => format!(
                "{count} active since {since}, set {hash}; the reload at {} failed and the previous set stays active:\n{}",
                rfc3339(failed.at),
                failed.text
            ),
        }
    }
}

/// Loads a set, or returns all problems as shown to people.
fn load_set(files: &[SourceFile]) -> Result<ActiveSet, String> {
    panics_as_problems(|| {
        let loaded = load(files).warn_expired(seconds_now());
        match loaded.set {
            Some(set) => {
                let warnings =
                    loaded.problems.into_iter().filter(|p| p.severity == Severity::Warning).collect();
                Ok(ActiveSet { set, since: SystemTime::now(), warnings })
            }
            // Colours are for terminals. This text goes into logs, events and HTTP answers.
            None => Err(strip_str(&portcullis_policy::render_problems(&loaded.problems, files)).to_string()),
        }
    })
}

/// Turns a panic of the loader into a problem of the files, so that the active set stays active.
fn panics_as_problems<T>(load: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    caught(load).unwrap_or_else(|panic| {
        Err(format!("the loader panicked: {panic}. This is a bug in Portcullis: report it with these files"))
    })
}

fn short_hash(hash: &str) -> String {
    hash.chars().take(SHORT_HASH_CHARS).collect()
}

fn rfc3339(at: SystemTime) -> String {
    Timestamp::from(at).format(Fraction::Seconds)
}
