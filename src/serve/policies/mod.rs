//! The policies of a run: the set that answers, swapped as a whole, and what is known of the cluster for it.
//!
//! Owns the files, when they are loaded and what is told of that. Never decides about a request: the set does. Loading happens on a
//! thread of its own, so that no review waits for it.
//! Invariant: a set with an error never answers; what has answered goes on answering until a good one takes its place.
//!
//! ```text
//! files.rs    what is read, and whether it has changed
//! shadow.rs   a candidate beside the set that answers
//! coverage.rs what policies are about and nobody sends
//! herald.rs   what the cluster is told: events, and what is not sent
//! ```

pub(crate) mod coverage;
pub(crate) mod files;
pub(super) mod herald;
mod shadow;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anstream::adapter::strip_str;
use anyhow::anyhow;
use arc_swap::{ArcSwap, ArcSwapOption};
use portcullis_policy::{Listed, Problem, Set, Severity, SourceFile, Wishes, World, load};
use portcullis_text::Timestamp;
use portcullis_text::timestamp::Fraction;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::ServeOptions;
use crate::background::{caught, turns};
use crate::clock::seconds_now;
use crate::cluster::Audience;
use crate::telemetry::{Metrics, PolicyMetrics, PolicySetRole, REPEATED_LOG_INTERVAL};
use crate::webhook::{PolicyEndpoints, ReadinessCheck};
use files::Fingerprint;
use shadow::Shadow;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// After so many looks the files are read in any case: the times of files may lie.
const READ_ANYWAY: u32 = 60;

/// How long a replica that does not know the namespaces yet keeps out of the way. After that it answers without them.
const WORLD_PATIENCE: Duration = Duration::from_secs(15);

/// A set in force.
struct InForce {
    set: Set,
    since: SystemTime,
    /// What it was loaded with, warnings only.
    warnings: Vec<Problem>,
}

/// A reload that failed, for as long as it is the last one.
struct Trouble {
    since: SystemTime,
    /// What is wrong, as it is shown to people: several lines.
    text: String,
}

impl Trouble {
    fn now(text: String) -> Self {
        Self { since: SystemTime::now(), text }
    }

    fn list(&self) -> Value {
        json!({"failed": rfc3339(self.since), "problem": self.text})
    }
}

/// What others may want to know of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// The set in force, by its hash.
    pub(super) hash: String,
    /// Why the last reload failed; none when it did not.
    pub(super) trouble: Option<String>,
}

/// The policies of a run.
pub(super) struct Policies {
    paths: Vec<PathBuf>,
    live: ArcSwap<InForce>,
    trouble: ArcSwapOption<Trouble>,
    world: ArcSwap<World>,
    shadow: Option<Arc<Shadow>>,
    metrics: PolicyMetrics,
    news: watch::Sender<News>,
    wishes: watch::Sender<Wishes>,
    said: Said,
}

/// What was said in the last minute: a controller asks again and again.
#[derive(Default)]
struct Said(Mutex<BTreeMap<String, Instant>>);

impl Said {
    /// Texts that are remembered.
    const MOST: usize = 1000;

    fn is_news(&self, text: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.get(text).is_some_and(|at| at.elapsed() < REPEATED_LOG_INTERVAL) {
            return false;
        }
        if said.len() >= Self::MOST {
            said.clear();
        }
        said.insert(text.to_owned(), Instant::now());
        true
    }
}

/// The bytes that were looked at last, and how they looked from outside.
struct Watched {
    fingerprint: Fingerprint,
    files: Vec<SourceFile>,
    looks: u32,
    /// Why they could not be read when they were last looked at.
    unreadable: Option<String>,
}

impl Policies {
    /// Loads the policies and starts to follow their files; `shadow_paths` are those of a candidate, if any. A candidate that cannot be used
    /// is not compared.
    ///
    /// # Errors
    /// When they cannot be read, or one of them has an error: all problems as they are shown to people.
    pub(super) fn start(
        paths: Vec<PathBuf>,
        shadow_paths: &[PathBuf],
        metrics: PolicyMetrics,
    ) -> anyhow::Result<Arc<Self>> {
        let (fingerprint, files) = files::read(&paths)?;
        let live = loaded(&files).map_err(|text| anyhow!("the policies cannot be used:\n\n{text}"))?;
        let shadow = if shadow_paths.is_empty() {
            None
        } else {
            Some(Shadow::start(shadow_paths.to_vec(), metrics.clone())?)
        };
        let wishes = live.set.wishes() | shadow.as_ref().map(|shadow| shadow.wishes()).unwrap_or_default();
        let (news, _) = watch::channel(News { hash: live.set.hash().to_owned(), trouble: None });
        let policies = Arc::new(Self {
            paths,
            live: ArcSwap::from_pointee(live),
            trouble: ArcSwapOption::empty(),
            world: ArcSwap::from_pointee(World { now: seconds_now(), ..World::default() }),
            shadow,
            metrics,
            news,
            wishes: watch::channel(wishes).0,
            said: Said::default(),
        });
        policies.announce();
        let mut watched = Watched { fingerprint, files, looks: 0, unreadable: None };
        let follower = Arc::downgrade(&policies);
        // On a busy replica a reload takes longer, and no request waits for it.
        turns("portcullis-policies", move || {
            std::thread::sleep(LOOK);
            let Some(policies) = follower.upgrade() else { return ControlFlow::Break(()) };
            policies.look(&mut watched);
            ControlFlow::Continue(())
        })?;
        Ok(policies)
    }

    /// Those that the command line names, if it names any.
    ///
    /// # Errors
    /// As [`Policies::start`].
    pub(super) fn given(options: &ServeOptions, metrics: &Metrics) -> anyhow::Result<Option<Arc<Self>>> {
        if options.policies.is_empty() {
            return Ok(None);
        }
        let metrics = metrics.policies().clone();
        Self::start(options.policies.clone(), &options.shadow_policies, metrics).map(Some)
    }

    /// Takes what is known of the cluster.
    pub(super) fn audience(self: &Arc<Self>) -> Audience {
        let listener = Arc::clone(self);
        Audience {
            wishes: self.wishes.subscribe(),
            tell: Arc::new(move |world| {
                listener.world.store(Arc::new(world));
            }),
        }
    }

    /// The policies in force.
    fn listed(&self) -> Vec<Listed> {
        self.live.load().set.policies().cloned().collect()
    }

    /// What becomes of reloads.
    pub(super) fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    /// What is to be done every second.
    fn look(&self, watched: &mut Watched) {
        if let Some(shadow) = &self.shadow {
            shadow.look();
        }
        // Nobody may tell us of a cluster; exceptions end all the same. Whoever does tell us meanwhile is not undone.
        self.world.rcu(|world| {
            let told = !world.namespaces.is_empty();
            if told {
                Arc::clone(world)
            } else {
                Arc::new(World { now: seconds_now(), ..World::clone(world) })
            }
        });
        self.follow(watched);
        self.wish();
    }

    /// Asks for what both sets are judged in, if that has changed.
    fn wish(&self) {
        let shadow = self.shadow.as_ref().map(|shadow| shadow.wishes()).unwrap_or_default();
        let wishes = self.live.load().set.wishes() | shadow;
        self.wishes.send_if_modified(|before| std::mem::replace(before, wishes) != wishes);
    }

    /// Looks whether the files have changed, and loads them if they have.
    fn follow(&self, watched: &mut Watched) {
        watched.looks += 1;
        let fingerprint = files::fingerprint(&self.paths);
        if fingerprint.as_ref() == Ok(&watched.fingerprint) && watched.looks < READ_ANYWAY {
            return;
        }
        watched.looks = 0;
        let (fingerprint, files) = match files::read(&self.paths) {
            Ok(read) => read,
            Err(error) => {
                let text = error.to_string();
                // Said once, not every second.
                if watched.unreadable.as_ref() != Some(&text) {
                    self.failed(text.clone());
                }
                watched.unreadable = Some(text);
                watched.fingerprint = Fingerprint::default();
                return;
            }
        };
        watched.fingerprint = fingerprint;
        let could_be_read = watched.unreadable.take().is_none();
        if could_be_read && files == watched.files {
            return;
        }
        watched.files = files;
        self.reload(&watched.files);
    }

    fn reload(&self, files: &[SourceFile]) {
        let begun = Instant::now();
        match loaded(files) {
            Ok(next) => {
                self.metrics.count_reload(true);
                self.live.store(Arc::new(next));
                self.trouble.store(None);
                self.announce();
                tracing::info!(took_ms = begun.elapsed().as_millis(), "the new policies are in force");
            }
            Err(text) => self.failed(text),
        }
    }

    fn failed(&self, text: String) {
        self.metrics.count_reload(false);
        let hash = self.live.load().set.hash().to_owned();
        tracing::error!(
            policies = hash,
            "the changed policies cannot be used; those before stay in force:\n{text}"
        );
        self.news.send_replace(News { hash, trouble: Some(text.clone()) });
        self.trouble.store(Some(Arc::new(Trouble::now(text))));
    }

    /// Says which set is in force.
    fn announce(&self) {
        let live = self.live.load();
        let (hash, count) = (live.set.hash(), live.set.policies().len());
        self.metrics.set_loaded(PolicySetRole::Live, hash, count, live.since);
        tracing::info!(policies = hash, count, "policies are loaded");
        for warning in &live.warnings {
            tracing::warn!(policies = hash, "{}", warning.one_line());
        }
        self.news.send_replace(News { hash: hash.to_owned(), trouble: None });
    }

    /// What the webhook serves of them.
    pub(super) fn desk(self: &Arc<Self>) -> PolicyEndpoints {
        let (answering, listing) = (Arc::clone(self), Arc::clone(self));
        PolicyEndpoints {
            review: Arc::new(move |hook, body, effort| {
                let live = answering.live.load();
                let world = answering.world.load_full();
                let reviewed = portcullis_policy::review(&live.set, &world, hook, body, effort)?;
                let Some(reviewed) = reviewed else { return Ok(None) };
                answering.count(&reviewed.outcome);
                if let Some(shadow) = &answering.shadow {
                    shadow.offer(
                        hook,
                        body.len(),
                        reviewed.review,
                        reviewed.outcome,
                        &world,
                        live.set.hash(),
                    );
                }
                Ok(Some(reviewed.answer))
            }),
            list: Arc::new(move || listing.list()),
        }
    }

    fn count(&self, outcome: &portcullis_policy::Outcome) {
        for denial in outcome.denials() {
            self.metrics.count_denial(&denial.policy);
        }
        self.metrics.count_ignored_rules(outcome.ignored().len());
        for rule in outcome.ignored() {
            if self.said.is_news(rule) {
                tracing::warn!(
                    "a rule could not be evaluated and was passed over (failurePolicy: Ignore): {rule}"
                );
            }
        }
        for excepted in outcome.excepted() {
            let portcullis_policy::Excepted { exception, owner, policy, message, .. } = excepted;
            if self.said.is_news(&format!("{exception} {policy} {message}")) {
                tracing::info!(policy, exception, owner, message, "let in by an exception");
            }
        }
    }

    /// The set in force, as JSON for people and programs.
    fn list(&self) -> String {
        let live = self.live.load();
        let policies: Vec<_> = live
            .set
            .policies()
            .map(|policy| json!({"kind": policy.kind, "name": policy.name, "file": policy.file, "line": policy.line}))
            .collect();
        let mut list = json!({
            "hash": live.set.hash(),
            "since": rfc3339(live.since),
            "files": self.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
            "policies": policies,
            "warnings": live.warnings.iter().map(Problem::one_line).collect::<Vec<_>>(),
        });
        if let Some(trouble) = &*self.trouble.load() {
            list["lastReload"] = trouble.list();
        }
        if let Some(shadow) = &self.shadow {
            list["shadow"] = shadow.list();
        }
        format!("{list:#}\n")
    }

    /// Holds once the namespaces of a cluster are known, or cannot be had: a set is in force, whatever the files say now. The detail says
    /// if they say something else.
    pub(super) fn requirement(self: &Arc<Self>, in_cluster: bool) -> ReadinessCheck {
        let (policies, waiting, since) = (Arc::clone(self), Arc::clone(self), Instant::now());
        let holds = move || {
            let known = !in_cluster || !waiting.world.load().namespaces.is_empty();
            if known || since.elapsed() > WORLD_PATIENCE {
                Ok(())
            } else {
                Err("namespaces were not listed yet")
            }
        };
        ReadinessCheck::new("policies", holds).detailed(move || {
            let live = policies.live.load();
            let count = live.set.policies().len();
            let hash: String = live.set.hash().chars().take(12).collect();
            let since = rfc3339(live.since);
            match &*policies.trouble.load() {
                None => format!("{count} in force since {since}, set {hash}"),
                Some(trouble) => format!(
                    "{count} in force since {since}, set {hash}; the reload at {} failed, and nothing of it is in force:\n{}",
                    rfc3339(trouble.since),
                    trouble.text
                ),
            }
        })
    }
}

/// A set of these files, or everything that is wrong with them as it is shown to people.
fn loaded(files: &[SourceFile]) -> Result<InForce, String> {
    unless_it_panics(|| {
        let loaded = load(files).at(seconds_now());
        match loaded.set {
            Some(set) => {
                let warnings =
                    loaded.problems.into_iter().filter(|p| p.severity == Severity::Warning).collect();
                Ok(InForce { set, since: SystemTime::now(), warnings })
            }
            // Colours are for terminals: this goes into logs, events and answers.
            None => Err(strip_str(&portcullis_policy::render(&loaded.problems, files)).to_string()),
        }
    })
}

/// A panic of the loader is one more thing that may be wrong with files: what was in force stays so, and it is told like all others.
fn unless_it_panics<T>(load: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    caught(load).unwrap_or_else(|panic| {
        Err(format!("the loader panicked: {panic}. This is a bug in Portcullis: report it with these files"))
    })
}

fn rfc3339(at: SystemTime) -> String {
    Timestamp::from(at).format(Fraction::Seconds)
}
