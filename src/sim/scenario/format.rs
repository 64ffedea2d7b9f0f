//! The file format of scenarios. Unknown fields are errors; every error names file and line.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::{Expect, NodeSpec};
use crate::api::ObjectKind;
use crate::cluster::{FaultRates, FaultTrigger, InjectedFault, SimOptions, Timing};
use portcullis_core::dialect::{OnStale, OnTimeout, OnTorn};
use portcullis_core::engine::{EngineSettings, NominationMode};
use portcullis_core::snapshot::SharingMode;

/// A scenario that cannot be read or played. The message starts with file and line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct ScenarioError {
    /// The file name that the caller passed.
    pub file: String,
    /// The line, from 1; 0 when the problem has no line.
    pub line: u64,
    /// What is wrong and how to fix it.
    pub problem: String,
}

/// A Go duration: `250ms`, `5s`, `2m`, `1h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        portcullis_text::duration::parse(&text).map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is not a duration: write 250ms, 5s, 2m or 1h"))
        })
    }
}

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scenario {
    /// The file it was read from.
    #[serde(skip)]
    pub file: String,
    /// Name.
    pub name: String,
    /// What the scenario shows, in one or two sentences.
    #[serde(default)]
    pub description: String,
    /// Settings of the engines.
    #[serde(default)]
    pub settings: SettingsSpec,
    /// The cluster at the start.
    #[serde(default)]
    pub cluster: ClusterSpec,
    /// The steps.
    pub steps: Vec<Spanned<Step>>,
}

/// Settings of the engines that differ from the defaults.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct SettingsSpec {
    /// Number of replicas. Default 2.
    pub replicas: Option<usize>,
    /// Time limit from lifting a gang to binding all members.
    pub bind_timeout: Option<TimeSpan>,
    /// Nodes that share their cards: `labelled` or `any`.
    pub sharing: Option<SharingSpec>,
    /// Policy for torn gangs: `retry`, `hold` or `evict`.
    pub on_torn: Option<TornSpec>,
    /// Retries of a torn gang before it is evicted as a whole.
    pub torn_retries: Option<u32>,
    /// How long a torn gang is retried.
    pub torn_timeout: Option<TimeSpan>,
    /// Policy for gangs that do not start in time: `requeue` or `delete`.
    pub on_timeout: Option<TimeoutSpec>,
    /// Policy for stale gangs: `evict` or `keep`.
    pub on_stale: Option<StaleSpec>,
    /// Grace period of stale gangs.
    pub stale_grace: Option<TimeSpan>,
    /// Waiting time after which a gang gets the head-of-line reservation; `0s` is never.
    pub hold_after: Option<TimeSpan>,
    /// How long reservations of placeholders are kept while no member arrives.
    pub reserve_for: Option<TimeSpan>,
    /// When the engine nominates members before lifting: `always`, `contended` or `never`.
    pub nominate: Option<NominateSpec>,
    /// Whether members without a VRAM share are pinned by required node affinity.
    pub pin_all: Option<bool>,
    /// Random delays and random faults.
    pub random_faults: Option<RandomFaults>,
}

/// Random delays, so that messages overtake each other, and rates of random faults in percent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct RandomFaults {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Fault rates.
    pub faults: FaultRates,
}

/// The nodes that share their cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SharingSpec {
    /// Nodes with label and taint.
    Labelled,
    /// All nodes where no pod has a whole GPU.
    Any,
}

/// When the engine nominates members before lifting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NominateSpec {
    /// Always.
    Always,
    /// While a pod without a gang waits for a scheduler.
    Contended,
    /// Never.
    Never,
}

impl NominateSpec {
    fn setting(self) -> NominationMode {
        match self {
            Self::Always => NominationMode::Always,
            Self::Contended => NominationMode::Contended,
            Self::Never => NominationMode::Never,
        }
    }
}

/// Policy for torn gangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TornSpec {
    /// Replace the unbound members, and later all of them.
    Retry,
    /// Leave the gang as it is.
    Hold,
    /// Delete its members.
    Evict,
}

/// Policy for gangs that do not start in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TimeoutSpec {
    /// The gang waits again.
    Requeue,
    /// Delete its pods.
    Delete,
}

/// Policy for stale gangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StaleSpec {
    /// Delete the remaining pods.
    Evict,
    /// Keep the remaining pods.
    Keep,
}

impl SettingsSpec {
    /// The options of the simulation.
    pub fn options(&self) -> SimOptions {
        let defaults = EngineSettings::default();
        let settings = EngineSettings {
            bind_timeout: self.bind_timeout.map_or(defaults.bind_timeout, |span| span.0),
            sharing: match self.sharing {
                None | Some(SharingSpec::Labelled) => SharingMode::Labelled,
                Some(SharingSpec::Any) => SharingMode::Any,
            },
            on_torn: match self.on_torn {
                None | Some(TornSpec::Retry) => OnTorn::Retry,
                Some(TornSpec::Hold) => OnTorn::Hold,
                Some(TornSpec::Evict) => OnTorn::Evict,
            },
            torn_retries: self.torn_retries.unwrap_or(defaults.torn_retries),
            torn_timeout: self.torn_timeout.map_or(defaults.torn_timeout, |span| span.0),
            nominate: self.nominate.map_or(defaults.nominate, NominateSpec::setting),
            pin_all: self.pin_all.unwrap_or(defaults.pin_all),
            on_timeout: match self.on_timeout {
                None | Some(TimeoutSpec::Requeue) => OnTimeout::Requeue,
                Some(TimeoutSpec::Delete) => OnTimeout::Delete,
            },
            on_stale: match self.on_stale {
                None | Some(StaleSpec::Evict) => OnStale::Evict,
                Some(StaleSpec::Keep) => OnStale::Keep,
            },
            stale_grace: self.stale_grace.map_or(defaults.stale_grace, |span| span.0),
            hold_after: self.hold_after.map_or(defaults.hold_after, |span| span.0),
            reserve_for: self.reserve_for.map_or(defaults.reserve_for, |span| span.0),
            ..defaults
        };
        let without_faults =
            SimOptions { replicas: self.replicas.unwrap_or(2), settings, ..SimOptions::default() };
        match &self.random_faults {
            None => without_faults,
            Some(random) => SimOptions {
                timing: Timing::jittery(),
                faults: random.faults.clone(),
                random_ties: true,
                ..without_faults
            },
        }
    }
}

/// The cluster at the start.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Nodes, in short form.
    pub nodes: Vec<NodeSpec>,
    /// Further objects as Kubernetes YAML: complete nodes, priority classes, pods that already run.
    pub manifests: Option<Spanned<String>>,
}

/// One step. All its actions are done, in the order of the fields here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Step {
    /// Explanation for the reader.
    pub say: Option<String>,
    /// A fault, now or at a step of the lift protocol.
    pub fault: Option<Spanned<FaultSpec>>,
    /// `kubectl apply`: Kubernetes YAML.
    pub apply: Option<Spanned<String>>,
    /// Objects to apply. Only in generated scenarios.
    #[serde(skip)]
    pub objects: Vec<Value>,
    /// Objects to store without validation, as a bug or an older release may have stored them.
    pub inject: Option<Spanned<String>>,
    /// Objects to store without validation. Only in generated scenarios.
    #[serde(skip)]
    pub inject_objects: Vec<Value>,
    /// `kubectl delete`: `pod/large-job` or `pod/ns/large-job`.
    pub delete: Option<OneOrMany>,
    /// `kubectl scale`: Deployment (or `statefulset/name`, `job/name`) to replicas.
    pub scale: BTreeMap<String, u64>,
    /// `kubectl taint`: node to `key=value:Effect`, or `key=value:Effect-` to remove it.
    pub taint: BTreeMap<String, String>,
    /// `kubectl cordon`.
    pub cordon: Option<OneOrMany>,
    /// `kubectl uncordon`.
    pub uncordon: Option<OneOrMany>,
    /// Pods whose containers succeed.
    pub finish: Option<OneOrMany>,
    /// Pods that fail: a container that is not restarted, or an eviction by the kubelet.
    pub fail: Option<OneOrMany>,
    /// Pods of which a container crashes and is restarted later.
    pub crash: Option<OneOrMany>,
    /// Gates of other controllers that are removed, by pod.
    pub ungate: BTreeMap<String, String>,
    /// Ends all faults: every replica runs, every request arrives.
    pub stop_faults: bool,
    /// Advances the time.
    pub advance: Option<TimeSpan>,
    /// Whether to wait until the cluster settles. Default true.
    pub settle: Option<bool>,
    /// Skips actions whose object does not exist.
    pub tolerant: bool,
    /// The expected state after the cluster has settled.
    pub expect: Option<Spanned<Expect>>,
}

/// One name or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One name.
    One(String),
    /// Several names.
    Many(Vec<String>),
}

impl OneOrMany {
    /// All names.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// A fault. Exactly one kind must be given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct FaultSpec {
    /// Happens right after the leader has sent `count` effects of this kind, instead of now.
    pub after: Option<FaultTrigger>,
    /// Number of effects. Default 1.
    pub count: Option<u32>,
    /// Kills the leader, which restarts after this time.
    pub kill_leader: Option<TimeSpan>,
    /// Pauses the leader for this time.
    pub pause_leader: Option<TimeSpan>,
    /// Kills this replica, which restarts after `lasts`.
    pub kill: Option<usize>,
    /// Pauses this replica for `lasts`.
    pub pause: Option<usize>,
    /// Duration of faults that do not state one themselves. Default 5 seconds.
    pub lasts: Option<TimeSpan>,
    /// Moves the leader's clock ahead by this time.
    pub jump_clock: Option<TimeSpan>,
    /// Cordons a node.
    pub cordon: Option<String>,
    /// A node becomes not ready.
    pub node_lost: Option<String>,
    /// A node becomes ready again.
    pub node_back: Option<String>,
    /// A policy of another team refuses to lift the pods of this name or `KEY=VALUE` label.
    pub refuse_lifts: Option<String>,
    /// That policy is removed.
    pub accept_lifts: bool,
    /// Restarts the scheduler, which forgets nominations.
    pub restart_scheduler: bool,
    /// A plugin of the scheduler refuses a node, for a reason that Portcullis does not know.
    pub scheduler_refuses: Option<String>,
    /// The plugin accepts the node again.
    pub scheduler_accepts: Option<String>,
    /// Breaks every watch of this kind for `lasts`.
    pub break_watches: Option<String>,
}

impl FaultSpec {
    /// The fault.
    ///
    /// # Errors
    /// A sentence when it has no kind or several.
    pub fn injected_fault(&self) -> Result<InjectedFault, String> {
        let lasts = self.lasts.map_or(Duration::from_secs(5), |span| span.0);
        let kind = match &self.break_watches {
            None => None,
            Some(name) => {
                let kind = ObjectKind::named(name)
                    .ok_or_else(|| format!("breakWatches: there is no kind {name:?}"))?;
                Some(InjectedFault::BreakWatches(kind, lasts))
            }
        };
        let named: Vec<InjectedFault> = [
            self.kill_leader.map(|span| InjectedFault::KillLeader(span.0)),
            self.pause_leader.map(|span| InjectedFault::PauseLeader(span.0)),
            self.kill.map(|replica| InjectedFault::Kill(replica, lasts)),
            self.pause.map(|replica| InjectedFault::Pause(replica, lasts)),
            self.jump_clock.map(|span| InjectedFault::JumpClock(span.0)),
            self.cordon.clone().map(|node| InjectedFault::Cordon(node, true)),
            self.node_lost.clone().map(|node| InjectedFault::Ready(node, false)),
            self.node_back.clone().map(|node| InjectedFault::Ready(node, true)),
            self.scheduler_refuses.clone().map(|node| InjectedFault::SchedulerRefuses(node, true)),
            self.scheduler_accepts.clone().map(|node| InjectedFault::SchedulerRefuses(node, false)),
            self.refuse_lifts.clone().map(|pods| InjectedFault::RefuseLifts(Some(pods))),
            self.accept_lifts.then_some(InjectedFault::RefuseLifts(None)),
            self.restart_scheduler.then_some(InjectedFault::RestartScheduler),
            kind,
        ]
        .into_iter()
        .flatten()
        .collect();
        match <[InjectedFault; 1]>::try_from(named) {
            Ok([fault]) => Ok(fault),
            Err(named) => Err(format!("a fault has exactly one kind, this one has {}", named.len())),
        }
    }
}

impl Scenario {
    /// Reads a scenario. `file` is only for messages.
    ///
    /// # Errors
    /// The first problem with its line: syntax, an unknown field, an invalid manifest.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let fail = |line, problem| ScenarioError { file: file.to_owned(), line, problem };
        let mut scenario: Self = serde_saphyr::from_str(text).map_err(|e| {
            let line = e.location().map_or(0, |location| location.line());
            fail(line, e.without_snippet().to_string())
        })?;
        scenario.file = file.to_owned();
        let blocks = scenario.steps.iter().flat_map(|step| [&step.value.apply, &step.value.inject]).flatten();
        for block in blocks.chain(&scenario.cluster.manifests) {
            scenario.documents(block)?;
        }
        for step in &scenario.steps {
            if let Some(fault) = &step.value.fault {
                fault.value.injected_fault().map_err(|problem| fail(fault.referenced.line(), problem))?;
            }
        }
        Ok(scenario)
    }

    /// The objects in a block of Kubernetes YAML.
    pub(super) fn documents(&self, block: &Spanned<String>) -> Result<Vec<Value>, ScenarioError> {
        let (nodes, issues) = portcullis_text::yaml::read(&block.value, false);
        if let Some(issue) = issues.into_iter().find(|issue| !issue.is_warning) {
            let before = block.value.get(..issue.span.start).unwrap_or_default();
            let within = u64::try_from(before.matches('\n').count() + 1).unwrap_or(u64::MAX);
            let line = block.referenced.line() + within;
            return Err(ScenarioError { file: self.file.clone(), line, problem: issue.message });
        }
        let documents: Vec<Value> = nodes.iter().map(portcullis_text::yaml::Node::json).collect();
        for document in &documents {
            if let Err(status) = ObjectKind::of(document) {
                let line = block.referenced.line();
                return Err(ScenarioError { file: self.file.clone(), line, problem: status.message });
            }
        }
        Ok(documents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kubectl reads YAML 1.1: `y` is a boolean and `0o17` an octal number.
    #[test]
    fn manifests_are_read_as_kubectl_reads_them() {
        let text = "name: x\ndescription: y\nsteps:\n- apply: |\n    apiVersion: v1\n    kind: Pod\n    a: y\n    b: 0o17\n";
        let scenario = Scenario::parse("s.yaml", text).unwrap();
        let block = scenario.steps[0].value.apply.as_ref().expect("a manifest");
        let expected = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "a": true, "b": 15});
        assert_eq!(scenario.documents(block).unwrap(), [expected]);
    }

    #[test]
    fn errors_name_the_line() {
        let head = "name: x\ndescription: y\nsteps:\n";
        for (steps, line, part) in [
            ("- aply: |\n    a: b\n", 4, "aply"),
            ("- advance: 5 parsecs\n", 4, "not a duration"),
            ("- say: hello\n- apply: |\n    apiVersion: v1\n    kind: Pod\n    a: [\n", 8, ""),
            ("- apply: |\n    apiVersion: v1\n    kind: Pot\n", 4, "no matches for kind \"Pot\""),
            ("- fault: {cordon: a, nodeLost: b}\n", 4, "exactly one kind"),
        ] {
            let error = Scenario::parse("s.yaml", &format!("{head}{steps}")).unwrap_err();
            assert!(error.problem.contains(part), "{error}");
            assert!(error.line.abs_diff(line) <= 1, "{error}, expected line {line}");
            assert!(error.to_string().starts_with("s.yaml:"), "{error}");
        }
        let good = "- advance: 5s\n- expect: {running: [a]}\n- scale: {model-1: 2}\n";
        let scenario = Scenario::parse("s.yaml", &format!("{head}{good}")).unwrap();
        assert_eq!(scenario.steps[0].value.advance, Some(TimeSpan(Duration::from_secs(5))));
    }
}
