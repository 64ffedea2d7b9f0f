//! A constant stream of small gangs does not starve a large one: random arrivals on the whole simulated
//! cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::api::{Actor, ObjectKey, ObjectKind};
use super::cluster::{Cluster, PodEnd, SimOptions};
use super::scenario::NodeSpec;
use crate::fuzz::webhook;
use portcullis_core::admission;
use portcullis_core::engine::EngineSettings;
use portcullis_core::model::random::Random;

const NODES: u64 = 3;
const CORES: u64 = 8;
/// Longest run time of a small gang, in seconds.
const MAX_RUN_SECONDS: u64 = 15;
/// When the large gang is created, in seconds.
const ARRIVAL_SECONDS: u64 = 20;
const HOLD_AFTER_SECONDS: u64 = 20;

fn gang(cluster: &mut Cluster, name: &str, pods: u64, cores: u64) {
    let mut objects = vec![json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": pods},
    })];
    objects.extend((0..pods).map(|index| {
        let resources = json!({"requests": {"cpu": cores.to_string()}});
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{name}-{index}"), "namespace": "default", "annotations": {"pod-group-name": name},
            },
            "spec": {"containers": [{"name": "main", "image": "app:1", "resources": resources}]},
        })
    }));
    for object in objects {
        cluster.api.create(&Actor::User, object).expect("the manifest is valid");
        cluster.settle_writes();
    }
}

fn runs(cluster: &Cluster, name: &str) -> bool {
    let key = ObjectKey::new(ObjectKind::Pod, "default", name);
    cluster.api.get(&key).is_some_and(|pod| pod.object["status"]["phase"] == "Running")
}

/// Seconds until a gang that needs every node starts; `None` when it does not start within two minutes.
fn play(seed: u64, hold_after: u64) -> Option<u64> {
    let mut random = Random::new(seed);
    let settings =
        EngineSettings { hold_after: Duration::from_secs(hold_after), ..EngineSettings::default() };
    let options = SimOptions { replicas: 1, settings, step_twice: false, ..SimOptions::default() };
    let mut cluster = Cluster::new(options, seed, Some(webhook(admission::AdmissionSettings::default())));
    for index in 0..NODES {
        let (cpu, memory) = (Some(CORES.to_string()), Some("64Gi".to_owned()));
        let node = NodeSpec { name: format!("node-{index}"), cpu, memory, ..NodeSpec::default() };
        let object: Value = node.object().expect("the node is valid");
        cluster.api.create(&Actor::User, object).expect("the node does not exist yet");
        cluster.settle_writes();
    }
    // Name of each small pod, and its remaining run time in seconds.
    let mut small: BTreeMap<String, u64> = BTreeMap::new();
    let mut made = 0;
    for second in 0..ARRIVAL_SECONDS + 120 {
        if second == ARRIVAL_SECONDS {
            gang(&mut cluster, "large", NODES, CORES);
        }
        // There are always more small gangs than the cluster has capacity for.
        while small.len() < 14 {
            let (name, pods, cores) = (format!("small-{made}"), random.between(1, 2), random.between(1, 4));
            made += 1;
            gang(&mut cluster, &name, pods, cores);
            let length = random.between(3, MAX_RUN_SECONDS);
            small.extend((0..pods).map(|index| (format!("{name}-{index}"), length)));
        }
        cluster.advance(Duration::from_secs(1));
        small.retain(|name, left| {
            if runs(&cluster, name) {
                *left -= 1;
            }
            *left > 0 || !cluster.end_pod("default", name, PodEnd::Succeeded)
        });
        assert_eq!(cluster.take_violations(), [], "seed {seed}");
        if runs(&cluster, "large-0") {
            return Some(second - ARRIVAL_SECONDS);
        }
    }
    None
}

#[test]
fn small_gangs_do_not_starve_a_large_one() {
    let mut starved = 0;
    for seed in 0..12 {
        let started = play(seed, HOLD_AFTER_SECONDS);
        // All gangs that run when the head-of-line reservation begins have finished by then. 10 s for the
        // start itself.
        let latest = HOLD_AFTER_SECONDS + MAX_RUN_SECONDS + 10;
        assert!(started.is_some_and(|after| after <= latest), "seed {seed}: started after {started:?} s");
        starved += u32::from(play(seed, 0).is_none());
    }
    assert!(
        starved >= 6,
        "only {starved} of 12 starve without the head-of-line reservation: the test proves nothing"
    );
}
