//! The file format. Unknown fields are errors; every error names file and line.

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

/// A scenario that cannot be read or played. The sentence begins with file and line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct ScenarioError {
    /// The file, as it was named by the caller.
    pub file: String,
    /// The line, from 1; 0 when the problem has no place.
    pub line: u64,
    /// What is wrong and how to mend it.
    pub problem: String,
}

/// A Go duration: `250ms`, `5s`, `2m`, `1h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        portcullis_text::duration::parse(&text).map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is no length of time: write 250ms, 5s, 2m or 1h"))
        })
    }
}

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scenario {
    /// Where it was read from.
    #[serde(skip)]
    pub file: String,
    /// Short name, for lists.
    pub name: String,
    /// What it tells, for people.
    #[serde(default)]
    pub story: String,
    /// What the engines go by.
    #[serde(default)]
    pub settings: SettingsSpec,
    /// What is there at the beginning.
    #[serde(default)]
    pub cluster: ClusterSpec,
    /// What happens.
    pub steps: Vec<Spanned<Step>>,
}

/// What the engines go by, as far as a scenario wants it otherwise than usual.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct SettingsSpec {
    /// How many replicas; two when not said.
    pub replicas: Option<usize>,
    /// How long a lifted gang may take to be bound.
    pub bind_timeout: Option<TimeSpan>,
    /// Which nodes share their cards: `labelled` or `any`.
    pub sharing: Option<SharingSpec>,
    /// What becomes of a torn gang: `hold` or `evict`.
    pub on_torn: Option<TornSpec>,
    /// What becomes of a gang that does not start in time: `requeue` or `delete`.
    pub on_timeout: Option<TimeoutSpec>,
    /// What becomes of a gang that was whole and has lost members: `evict` or `keep`.
    pub on_stale: Option<StaleSpec>,
    /// After how long.
    pub stale_grace: Option<TimeSpan>,
    /// After how long the room of a gang is held for it; `0s` is never.
    pub hold_after: Option<TimeSpan>,
    /// How long room is held for members to come while none comes.
    pub reserve_for: Option<TimeSpan>,
    /// When members are nominated before they are lifted: `always`, `contended` or `never`.
    pub nominate: Option<NominateSpec>,
    /// Whether members without a VRAM share are pinned for good.
    pub pin_all: Option<bool>,
    /// Chance decides who takes how long, and some things go wrong by themselves.
    pub chaos: Option<RandomFaults>,
}

/// A cluster in which everything overtakes everything, and what goes wrong in it by itself, in percent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct RandomFaults {
    /// Where chance begins.
    pub seed: u64,
    /// What goes wrong.
    pub faults: FaultRates,
}

/// Which nodes share their cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SharingSpec {
    /// Those with label and taint.
    Labelled,
    /// All on which nothing holds a whole GPU.
    Any,
}

/// When members are nominated before they are lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NominateSpec {
    /// Always.
    Always,
    /// While a pod of no gang waits for a scheduler.
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

/// What becomes of a torn gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TornSpec {
    /// It is left as it is.
    Hold,
    /// Its members are deleted.
    Evict,
}

/// What becomes of a gang that does not start in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TimeoutSpec {
    /// It goes on waiting.
    Requeue,
    /// Its pods are deleted.
    Delete,
}

/// What becomes of a gang that was whole and has lost members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StaleSpec {
    /// The others are deleted.
    Evict,
    /// The others are kept.
    Keep,
}

impl SettingsSpec {
    /// The options of the simulation.
    pub fn options(&self) -> SimOptions {
        let usual = EngineSettings::default();
        let settings = EngineSettings {
            bind_timeout: self.bind_timeout.map_or(usual.bind_timeout, |span| span.0),
            sharing: match self.sharing {
                None | Some(SharingSpec::Labelled) => SharingMode::Labelled,
                Some(SharingSpec::Any) => SharingMode::Any,
            },
            on_torn: match self.on_torn {
                None | Some(TornSpec::Hold) => OnTorn::Hold,
                Some(TornSpec::Evict) => OnTorn::Evict,
            },
            nominate: self.nominate.map_or(usual.nominate, NominateSpec::setting),
            pin_all: self.pin_all.unwrap_or(usual.pin_all),
            on_timeout: match self.on_timeout {
                None | Some(TimeoutSpec::Requeue) => OnTimeout::Requeue,
                Some(TimeoutSpec::Delete) => OnTimeout::Delete,
            },
            on_stale: match self.on_stale {
                None | Some(StaleSpec::Evict) => OnStale::Evict,
                Some(StaleSpec::Keep) => OnStale::Keep,
            },
            stale_grace: self.stale_grace.map_or(usual.stale_grace, |span| span.0),
            hold_after: self.hold_after.map_or(usual.hold_after, |span| span.0),
            reserve_for: self.reserve_for.map_or(usual.reserve_for, |span| span.0),
            ..usual
        };
        let calm = SimOptions { replicas: self.replicas.unwrap_or(2), settings, ..SimOptions::default() };
        match &self.chaos {
            None => calm,
            Some(chaos) => SimOptions {
                timing: Timing::jittery(),
                faults: chaos.faults.clone(),
                random_ties: true,
                ..calm
            },
        }
    }
}

/// What is there at the beginning.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Nodes, in short form.
    pub nodes: Vec<NodeSpec>,
    /// Everything else, as ordinary Kubernetes YAML: nodes in full, priority classes, pods that run already.
    pub manifests: Option<Spanned<String>>,
}

/// One step. Of the actions that are named all are done, in the order of the fields here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Step {
    /// What a person should read here.
    pub say: Option<String>,
    /// Something that goes wrong, now or at a moment of the lift protocol.
    pub fault: Option<Spanned<FaultSpec>>,
    /// `kubectl apply`: ordinary Kubernetes YAML.
    pub apply: Option<Spanned<String>>,
    /// Objects that are applied; only where a scenario is made by a program.
    #[serde(skip)]
    pub objects: Vec<Value>,
    /// Objects that are stored past every rule: what a bug or an older release may have left behind.
    pub inject: Option<Spanned<String>>,
    /// Objects that are injected; only where a scenario is made by a program.
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
    /// The containers of these pods end by themselves, well.
    pub finish: Option<OneOrMany>,
    /// These pods end by themselves, badly: a container that is not started again, or an eviction by the kubelet.
    pub fail: Option<OneOrMany>,
    /// A container of each of these pods crashes, and waits for its next start.
    pub crash: Option<OneOrMany>,
    /// Somebody else removes their own gate: pod to gate.
    pub ungate: BTreeMap<String, String>,
    /// No more faults from now on: every replica is up, every request gets through.
    pub stop_faults: bool,
    /// Time passes.
    pub advance: Option<TimeSpan>,
    /// Whether the cluster settles after this step; it does when not said.
    pub settle: Option<bool>,
    /// What cannot be done, because the object is not there any more, is left undone.
    pub tolerant: bool,
    /// What must be seen once everything has settled.
    pub expect: Option<Spanned<Expect>>,
}

/// One name or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// All of them.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// Something that goes wrong; exactly one of the mishaps.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct FaultSpec {
    /// Not now, but right after the leader has sent so many effects of this sort.
    pub after: Option<FaultTrigger>,
    /// How many of them; 1 when not said.
    pub count: Option<u32>,
    /// The leader dies and starts again after this time.
    pub kill_leader: Option<TimeSpan>,
    /// The leader stops and goes on after this time.
    pub pause_leader: Option<TimeSpan>,
    /// This replica dies and starts again after the time of `lasts`.
    pub kill: Option<usize>,
    /// This replica stops and goes on after the time of `lasts`.
    pub pause: Option<usize>,
    /// How long it lasts, where that is not said elsewhere; 5 seconds when not said.
    pub lasts: Option<TimeSpan>,
    /// The leader's clock jumps ahead by this much.
    pub jump_clock: Option<TimeSpan>,
    /// A node is cordoned.
    pub cordon: Option<String>,
    /// A node stops answering.
    pub node_lost: Option<String>,
    /// A node answers again.
    pub node_back: Option<String>,
    /// The scheduler forgets what was nominated.
    pub restart_scheduler: bool,
    /// Every watch of this kind breaks, for the time of `lasts`.
    pub break_watches: Option<String>,
}

impl FaultSpec {
    /// The one mishap it names.
    ///
    /// # Errors
    /// A sentence when it names none or several.
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
    /// Reads a scenario; `file` is only for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line: syntax, an unknown field, a manifest inside that is no YAML.
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
        let text = "name: x\nstory: y\nsteps:\n- apply: |\n    apiVersion: v1\n    kind: Pod\n    a: y\n    b: 0o17\n";
        let scenario = Scenario::parse("s.yaml", text).unwrap();
        let block = scenario.steps[0].value.apply.as_ref().expect("a manifest");
        let expected = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "a": true, "b": 15});
        assert_eq!(scenario.documents(block).unwrap(), [expected]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let head = "name: x\nstory: y\nsteps:\n";
        for (steps, line, part) in [
            ("- aply: |\n    a: b\n", 4, "aply"),
            ("- advance: 5 parsecs\n", 4, "length of time"),
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
