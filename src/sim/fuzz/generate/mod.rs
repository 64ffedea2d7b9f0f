//! Generates a scenario from a seed or from bytes: a cluster, its gangs, and operations (`operations.rs`).

mod operations;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use serde_saphyr::{Location, Spanned};

use crate::cluster::FaultRates;
use crate::scenario::{
    ClusterSpec, NodeSpec, NominateSpec, RandomFaults, Scenario, SettingsSpec, Step, TimeSpan,
};
use crate::stack_fixtures::{StackFixture, stacks};
use portcullis_core::model::random::Random;
use portcullis_core::objects::names;

/// The scenario of this seed. The same seed always gives the same scenario.
pub fn generate(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let swarm = random.fork();
    scenario(format!("seed-{seed}"), random, swarm)
}

/// The scenario of these bytes. The first bytes decide the kinds of faults, the next the nodes, the gangs and
/// the rest. Missing bytes are replaced by the random numbers of seed 0.
pub fn generate_from_bytes(bytes: &[u8]) -> Scenario {
    let (swarm, rest) = bytes.split_at(SWARM_BYTES.min(bytes.len()));
    scenario("bytes".to_owned(), Random::from_bytes(rest), Random::from_bytes(swarm))
}

/// Number of bytes that decide which kinds of faults are on, and their rates, when all are on: two for each
/// of eight rates, one more for the rate with the widest range, one for each of nine kinds of injected fault.
const SWARM_BYTES: usize = 26;

fn scenario(name: String, mut random: Random, mut swarm: Random) -> Scenario {
    let nodes = nodes(&mut random);
    let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
    let random_faults = RandomFaults { seed: random.draw() >> 1, faults: faults(&mut swarm) };
    let settings = SettingsSpec {
        replicas: Some(if random.percent(30) { 3 } else { 2 }),
        bind_timeout: Some(seconds(15)),
        on_torn: random.percent(40).then_some(super::super::scenario::TornSpec::Evict),
        torn_retries: None,
        torn_timeout: None,
        sharing: random.percent(15).then_some(super::super::scenario::SharingSpec::Any),
        nominate: random.percent(15).then_some({
            // The middle value is the default and the most frequent.
            if random.percent(50) { NominateSpec::Never } else { NominateSpec::Always }
        }),
        pin_all: random.percent(15).then_some(true),
        on_timeout: random.percent(30).then_some(super::super::scenario::TimeoutSpec::Delete),
        on_stale: random.percent(30).then_some(super::super::scenario::StaleSpec::Keep),
        stale_grace: Some(seconds(random.between(2, 20))),
        hold_after: Some(seconds(if random.percent(50) { 0 } else { random.between(1, 20) })),
        reserve_for: Some(seconds(random.between(5, 60))),
        random_faults: Some(random_faults),
    };
    let mut maker = ScenarioGenerator {
        stacks: stacks(),
        gangs: Vec::new(),
        nodes: names,
        specs: nodes.clone(),
        fault_kinds: FaultKinds::pick(&mut swarm),
        pods: Vec::new(),
        owners: Vec::new(),
        random,
    };
    let mut steps = Vec::new();
    let gangs = maker.random.between(1, 5);
    for index in 0..gangs {
        maker.gang(index, &mut steps);
    }
    // Users act independently: steps of different gangs mix, the steps of one gang stay in order.
    let count = maker.random.between(5, 20);
    for _ in 0..count {
        let step = maker.operation();
        let place = usize::try_from(maker.random.below(steps.len() as u64 + 1)).unwrap_or(0);
        steps.insert(place, step);
    }
    for step in &mut steps {
        let wait = match maker.random.below(10) {
            0..=4 => maker.random.below(80),
            5..=7 => maker.random.below(1500),
            8 => maker.random.below(8000),
            _ => maker.random.below(25_000),
        };
        step.advance = Some(TimeSpan(Duration::from_millis(wait)));
        step.settle = Some(false);
        step.tolerant = true;
    }
    steps.push(Step { stop_faults: true, advance: Some(seconds(90)), ..Step::default() });
    steps.push(Step { advance: Some(seconds(30)), ..Step::default() });
    Scenario {
        file: name.clone(),
        name,
        description: String::new(),
        settings,
        cluster: ClusterSpec { nodes, manifests: None },
        steps: steps.into_iter().map(spanned).collect(),
    }
}

fn seconds(seconds: u64) -> TimeSpan {
    TimeSpan(Duration::from_secs(seconds))
}

fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}

fn nodes(random: &mut Random) -> Vec<NodeSpec> {
    let count = random.between(1, 4);
    (0..count)
        .map(|index| {
            let gpus = random.percent(85);
            NodeSpec {
                name: format!("node-{index}"),
                cards: if gpus { u32::try_from(random.between(1, 3)).unwrap_or(1) } else { 0 },
                vram_mib: if gpus && random.percent(95) {
                    [16_000, 24_000, 32_768][pick(random, 3)]
                } else {
                    0
                },
                time_sliced: random.percent(20).then_some(4),
                shared: gpus && random.percent(65),
                cpu: Some(random.between(4, 16).to_string()),
                memory: Some("64Gi".to_owned()),
                pods: random.percent(10).then_some(4),
                // For gangs with a rack topology.
                labels: BTreeMap::from([("rack".to_owned(), format!("rack-{}", index / 2))]),
                ..NodeSpec::default()
            }
        })
        .collect()
}

fn pick(random: &mut Random, count: u64) -> usize {
    usize::try_from(random.below(count)).unwrap_or(0)
}

/// Switches each kind of fault on in some seeds only.
fn faults(swarm: &mut Random) -> FaultRates {
    let mut some = |most: u64| if swarm.percent(35) { swarm.between(1, most) } else { 0 };
    FaultRates {
        refused: some(15),
        conflict: some(15),
        request_lost: some(10),
        answer_lost: some(15),
        late: some(15),
        watch_gap: some(8),
        watch_lag_ms: some(4000),
        lease_error: some(60),
    }
}

/// The kinds of fault that can happen in this seed.
#[derive(Debug)]
struct FaultKinds(Vec<u64>);

/// Number of kinds of fault in [`ScenarioGenerator::fault`].
const FAULT_KINDS: u64 = 9;

impl FaultKinds {
    fn pick(swarm: &mut Random) -> Self {
        Self((0..FAULT_KINDS).filter(|_| swarm.percent(55)).collect())
    }
}

/// A generated gang.
#[derive(Clone, Debug)]
struct GeneratedGang {
    namespace: &'static str,
    name: String,
    /// Index of its stack.
    stack: usize,
    size: u32,
    /// Annotations.
    policies: Vec<(&'static str, String)>,
    /// `minResources`, for groups that have the field.
    minimum: Option<Value>,
    group: Option<Value>,
    pods: Vec<Value>,
}

struct ScenarioGenerator {
    random: Random,
    stacks: Vec<StackFixture>,
    gangs: Vec<GeneratedGang>,
    nodes: Vec<String>,
    specs: Vec<NodeSpec>,
    fault_kinds: FaultKinds,
    pods: Vec<String>,
    owners: Vec<String>,
}

impl ScenarioGenerator {
    fn gang(&mut self, index: u64, steps: &mut Vec<Step>) {
        let random = &mut self.random;
        let namespace = if random.percent(20) { "other" } else { "default" };
        // The same name in two namespaces means two gangs.
        let name = if random.percent(15) { "same".to_owned() } else { format!("g{index}") };
        let size = random.between(1, 5);
        let least = match random.below(10) {
            0 => size + 1,
            1..=3 => random.between(1, size),
            _ => size,
        };
        let least = u32::try_from(least).unwrap_or(1);
        let sort = random.below(10);
        // Only KAI itself knows shares of cards, but pods of every stack can have them.
        let stack = if random.percent(30) { 0 } else { pick(random, self.stacks.len() as u64) };
        let with_object = !self.stacks[stack].declares || random.percent(60);
        let policies = self.policies();
        let minimum = self.minimum();
        let mut gang = GeneratedGang {
            namespace,
            name,
            stack,
            size: least,
            policies,
            minimum,
            group: None,
            pods: Vec::new(),
        };
        gang.group = self.group(&gang, least).filter(|_| with_object);
        let size = u32::try_from(size).unwrap_or(1);
        let elastic =
            gang.policies.iter().any(|(key, word)| *key == names::ELASTIC_ANNOTATION && word == "true");
        gang.pods = if elastic && self.random.percent(80) {
            self.owners(&gang, size, sort)
        } else {
            (0..size).map(|pod| self.pod(&gang, pod, sort)).collect()
        };
        if !elastic && let Some(objects) = self.one_after_the_other(&gang) {
            self.pods.extend(gang.pods.iter().map(target));
            self.gangs.push(gang);
            steps.extend(objects.into_iter().map(|object| Step { objects: vec![object], ..Step::default() }));
            return;
        }
        let mut objects = gang.pods.clone();
        let place =
            if self.random.percent(75) { 0 } else { pick(&mut self.random, objects.len() as u64 + 1) };
        if let Some(group) = &gang.group {
            objects.insert(place, group.clone());
        }
        for object in &gang.pods {
            let name = target(object);
            if object["kind"] == "Pod" { self.pods.push(name) } else { self.owners.push(name) }
        }
        self.gangs.push(gang);
        if self.random.percent(50) {
            steps.push(Step { objects, ..Step::default() });
        } else {
            steps.extend(objects.into_iter().map(|object| Step { objects: vec![object], ..Step::default() }));
        }
    }

    /// Some gangs have members that are created only after others have started: an ordered StatefulSet, or
    /// workers whose leader or driver starts first.
    fn one_after_the_other(&mut self, gang: &GeneratedGang) -> Option<Vec<Value>> {
        let stack = &self.stacks[gang.stack];
        let first = gang.pods.first()?;
        let mut pods = gang.pods.clone();
        let mut objects: Vec<Value> = gang.group.iter().cloned().collect();
        match stack.name {
            "lws with its set" if self.random.percent(60) => {
                let worker = json!({ "metadata": { "annotations": first["metadata"]["annotations"] }, "spec": first["spec"] });
                let set = objects.first_mut()?;
                set["spec"]["startupPolicy"] = json!("LeaderReady");
                set["spec"]["leaderWorkerTemplate"]["workerTemplate"] = worker;
                objects.extend(pods);
            }
            "yunikorn" if self.random.percent(60) => {
                let requests = first["spec"]["containers"][0]["resources"]["requests"].clone();
                let roles = [("driver", 1), ("workers", gang.size.saturating_sub(1))];
                let roles = roles.map(
                    |(name, least)| json!({ "name": name, "minMember": least, "minResource": requests }),
                );
                let driver = &mut pods[0]["metadata"];
                driver["labels"][names::SPARK_ROLE_LABEL] = json!(names::SPARK_DRIVER);
                driver["annotations"][names::YUNIKORN_TASK_GROUPS] = json!(json!(roles).to_string());
                objects.extend(pods);
            }
            // Pods of one template have one role, and the name of their set.
            name if !name.starts_with("lws") && self.random.percent(25) => {
                let mut metadata = first["metadata"].clone();
                metadata.as_object_mut()?.remove("name");
                metadata["annotations"][names::ORDERED_ANNOTATION] = json!(names::ORDERED_KEEP);
                objects.push(json!({
                    "apiVersion": "apps/v1", "kind": "StatefulSet",
                    "metadata": {"name": gang.name, "namespace": gang.namespace},
                    "spec": {"replicas": gang.pods.len(), "template": {"metadata": metadata, "spec": first["spec"]}},
                }));
            }
            _ => return None,
        }
        Some(objects)
    }

    fn group(&self, gang: &GeneratedGang, size: u32) -> Option<Value> {
        let mut group = self.stacks[gang.stack].object?(&gang.name, size);
        group["metadata"]["namespace"] = json!(gang.namespace);
        put_policies(&mut group["metadata"], &gang.policies);
        if group["spec"].get("minMember").is_some()
            && let Some(minimum) = &gang.minimum
        {
            group["spec"]["minResources"] = minimum.clone();
        }
        Some(group)
    }

    fn minimum(&mut self) -> Option<Value> {
        let random = &mut self.random;
        random.percent(20).then(|| match random.below(3) {
            0 => json!({ "nvidia.com/gpu": random.between(1, 4) }),
            1 => json!({ "cpu": random.between(1, 24).to_string(), "memory": "8Gi" }),
            _ => json!({ "cpu": random.between(1, 12).to_string(), "nvidia.com/gpu": 1, "pods": 3 }),
        })
    }

    /// Timeout and policies of a gang.
    fn policies(&mut self) -> Vec<(&'static str, String)> {
        let random = &mut self.random;
        let mut annotations = Vec::new();
        if random.percent(35) {
            // Longer than the quiet period of settling. Otherwise a Deployment recreates what a timeout
            // deletes, for ever.
            annotations.push((names::TIMEOUT_ANNOTATION, format!("{}s", random.between(8, 30))));
        }
        for (key, words) in [
            (names::ON_TIMEOUT_ANNOTATION, ["requeue", "delete"]),
            (names::ON_STALE_ANNOTATION, ["evict", "keep"]),
            (names::ON_TORN_ANNOTATION, ["hold", "evict"]),
            (names::PIN_ANNOTATION, ["false", "true"]),
        ] {
            if random.percent(20) {
                annotations.push((key, words[pick(random, 2)].to_owned()));
            }
        }
        if random.percent(20) {
            annotations.push((names::TOPOLOGY_ANNOTATION, ["rack", "zone"][pick(random, 2)].to_owned()));
        }
        if random.percent(25) {
            annotations.push((names::ELASTIC_ANNOTATION, "true".to_owned()));
        }
        if random.percent(20) {
            let grace = if random.percent(20) { "-1s".to_owned() } else { format!("{}s", random.below(20)) };
            annotations.push((names::STALE_GRACE_ANNOTATION, grace));
        }
        annotations
    }

    /// The owners of the pods of an elastic gang: one or two.
    fn owners(&mut self, gang: &GeneratedGang, size: u32, sort: u64) -> Vec<Value> {
        let first = if size > 1 && self.random.percent(40) { size / 2 } else { size };
        let owners = [(0, first), (1, size - first)].into_iter().filter(|(_, replicas)| *replicas > 0);
        let owners: Vec<(u32, u32)> = owners.collect();
        owners.into_iter().map(|(index, replicas)| self.owner(gang, index, replicas, sort)).collect()
    }

    fn owner(&mut self, gang: &GeneratedGang, index: u32, replicas: u32, sort: u64) -> Value {
        let mut template = self.pod(gang, 1, sort);
        let (mut metadata, spec) = (template["metadata"].take(), template["spec"].take());
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("name");
            metadata.remove("namespace");
        }
        let random = &mut self.random;
        let spec = json!({ "metadata": metadata, "spec": spec });
        let (kind, spec) = match random.below(10) {
            0..=1 => (
                "StatefulSet",
                json!({"replicas": replicas, "podManagementPolicy": "Parallel", "template": spec}),
            ),
            2 => {
                let completions = u64::from(replicas) + random.below(3);
                ("Job", json!({"parallelism": replicas, "completions": completions, "template": spec}))
            }
            _ => {
                let numbers = [0, 1, 1, 2, 5];
                let rolling = json!({
                    "maxSurge": numbers[pick(random, 5)], "maxUnavailable": numbers[pick(random, 5)],
                });
                let strategy = if random.percent(15) {
                    json!({"type": "Recreate"})
                } else {
                    json!({"type": "RollingUpdate", "rollingUpdate": rolling})
                };
                ("Deployment", json!({"replicas": replicas, "strategy": strategy, "template": spec}))
            }
        };
        let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        json!({
            "apiVersion": version, "kind": kind,
            "metadata": {"name": format!("{}-{index}", gang.name), "namespace": gang.namespace}, "spec": spec,
        })
    }

    /// Changes the template, so that it is rolled out.
    fn rolled(&mut self, gang: &GeneratedGang) -> Vec<Value> {
        let mut owners: Vec<Value> =
            gang.pods.iter().filter(|object| object["kind"] == "Deployment").cloned().collect();
        for owner in &mut owners {
            owner["spec"]["template"]["metadata"]["annotations"]["version"] =
                json!(self.random.below(3).to_string());
        }
        owners
    }

    /// `sort`: 0-5 shares by memory, 6 by fraction, 7 whole GPUs, 8-9 no GPU.
    fn pod(&mut self, gang: &GeneratedGang, index: u32, sort: u64) -> Value {
        let mut made = (self.stacks[gang.stack].pod)(&gang.name, index, gang.size);
        let random = &mut self.random;
        let mut metadata = made["metadata"].take();
        if metadata["name"].is_null() {
            metadata["name"] = json!(format!("{}-{index}", gang.name));
        }
        metadata["namespace"] = json!(gang.namespace);
        put_policies(&mut metadata, &gang.policies);
        let mut requests = json!({"cpu": format!("{}m", random.between(1, 12) * 250)});
        match sort {
            0..=5 => {
                metadata["annotations"]["gpu-memory"] = json!((random.between(1, 16) * 1000).to_string());
                if random.percent(10) {
                    metadata["annotations"]["gpu-fraction-num-devices"] = json!("2");
                }
            }
            6 => metadata["annotations"]["gpu-fraction"] = json!(["0.25", "0.5", "0.75"][pick(random, 3)]),
            7 => requests["nvidia.com/gpu"] = json!(random.between(1, 2).to_string()),
            _ => requests["cpu"] = json!(format!("{}", random.between(1, 6))),
        }
        let mut limits = requests.clone();
        if let Some(limits) = limits.as_object_mut() {
            limits.remove("cpu");
        }
        let mut spec = made["spec"].take();
        spec["containers"] = json!([{"name": "main", "image": "app:1", "resources": {"requests": requests, "limits": limits}}]);
        if random.percent(8) {
            spec["schedulingGates"] = json!([{"name": "example.com/other"}]);
        }
        if random.percent(10) {
            spec["nodeSelector"] =
                json!({"kubernetes.io/hostname": self.nodes[pick(random, self.nodes.len() as u64)]});
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    }
}

fn put_policies(metadata: &mut Value, policies: &[(&str, String)]) {
    for (key, word) in policies {
        metadata["annotations"][*key] = json!(word);
    }
}

/// `pod/namespace/name`.
fn target(object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or("");
    let kind = object["kind"].as_str().unwrap_or("").to_lowercase();
    format!("{kind}/{}/{}", text("namespace"), text("name"))
}
