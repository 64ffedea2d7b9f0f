//! Reports of small clusters.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::capacity_report;
use crate::engine::{Change, Engine, EngineSettings, Event, ListedObjects};
use crate::model::{Epoch, Time};
use crate::objects::{Node, names};
use crate::pod::Pod;

const NOW: Time = Time(1_800_000_000_000);

fn node(name: &str, product: Option<&str>, gpus: &str, shared: bool) -> Node {
    let mut labels = json!({"nvidia.com/gpu.count": gpus, "nvidia.com/gpu.memory": "40960"});
    if let Some(product) = product {
        labels[names::NVIDIA_GPU_PRODUCT] = product.into();
    }
    let mut taints = json!([]);
    if shared {
        labels["portcullis.dev/gpu-sharing"] = "vram".into();
        taints = json!([{"key": "portcullis.dev/gpu-sharing", "value": "vram", "effect": "NoSchedule"}]);
    }
    let node = json!({
        "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": gpus},
                   "conditions": [{"type": "Ready", "status": "True"}]}
    });
    Node::read(&node.to_string()).expect("a node")
}

/// A node of another vendor, or one whose cards are time-sliced.
fn node_with(name: &str, labels: &Value, allocatable: &Value) -> Node {
    let node = json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    });
    Node::read(&node.to_string()).expect("a node")
}

/// A pod without a gang that requests one resource. It may have gates of other controllers.
fn alone(name: &str, node: &str, resource: &str, number: u32, gates: &[&str]) -> Pod {
    let gates: Vec<_> = gates.iter().map(|gate| json!({"name": gate})).collect();
    let containers = json!([{"name": "c", "resources": {"limits": {resource: number.to_string()}}}]);
    let mut spec = json!({"containers": containers, "schedulingGates": gates});
    if !node.is_empty() {
        spec["nodeName"] = node.into();
    }
    let pod = json!({
        "metadata": {"namespace": "ml", "name": name, "uid": name, "resourceVersion": "1"},
        "spec": spec, "status": {"phase": "Pending"}
    });
    Pod::read(&pod.to_string()).expect("a pod")
}

/// A leading engine with these nodes and pods.
fn engine(nodes: Vec<Node>, pods: Vec<Pod>) -> Engine {
    let mut engine = Engine::new(EngineSettings::default());
    engine.step(Event::LeaseAcquired(Epoch(1)), NOW);
    let listed = ListedObjects {
        nodes: Some(nodes),
        pods: Some(pods),
        gangs: Some(Vec::new()),
        ..ListedObjects::default()
    };
    engine.step(Event::Listed(Epoch(1), listed), NOW);
    engine
}

fn pod(name: &str, node: &str, annotations: &[(&str, &str)], gpus: u32) -> Pod {
    let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
    let mut limits = json!({});
    if gpus > 0 {
        limits["nvidia.com/gpu"] = gpus.to_string().into();
    }
    let mut spec = json!({"containers": [{"name": "c", "resources": {"limits": limits}}]});
    if node.is_empty() {
        spec["schedulingGates"] = json!([{"name": names::GATE}]);
    } else {
        spec["nodeName"] = node.into();
    }
    let pod = json!({
        "metadata": {"namespace": "ml", "name": name, "uid": name, "resourceVersion": "1", "annotations": annotations},
        "spec": spec, "status": {"phase": if node.is_empty() { "Pending" } else { "Running" }}
    });
    Pod::read(&pod.to_string()).expect("a pod")
}

#[test]
fn a_report_sums_nodes_and_pods() {
    let engine = engine(
        vec![
            node("a", Some("A100"), "8", false),
            node("b", Some("A100"), "4", true),
            node("c", None, "2", false),
        ],
        vec![
            pod("alone", "a", &[], 3),
            pod(
                "one",
                "b",
                &[("pod-group-name", "app"), ("gpu-memory", "10000"), ("portcullis.dev/gpus", "0")],
                0,
            ),
            pod("two", "", &[("pod-group-name", "app"), ("gpu-memory", "8000")], 0),
            pod("idle", "c", &[], 0),
        ],
    );
    let report = serde_json::to_value(capacity_report(&engine)).expect("a report is valid JSON");
    assert_eq!(
        report,
        json!({
            "models": {
                "A100": {"nodes": 2, "cards": 12, "vramMiB": 12 * 40_960, "largestCardMiB": 40_960, "largestNodeCards": 8,
                         "freeCards": 5, "freeVramMiB": 4 * 40_960 - 10_000, "largestFreeMiB": 40_960},
                "unknown": {"nodes": 1, "cards": 2, "vramMiB": 2 * 40_960, "largestCardMiB": 40_960,
                            "largestNodeCards": 2, "freeCards": 2},
            },
            "namespaces": {"ml": {"running": {"pods": 2, "gpus": 3, "vramMiB": 10_000, "gangs": 1},
                                  "waiting": {"pods": 1, "vramMiB": 8_000, "gangs": 1}}},
            "gangs": {"ml/app": {"pods": 2, "vramMiB": 18_000, "gangs": 1}},
        })
    );
}

/// Returns the part of an engine's report under a JSON pointer.
fn reported(engine: &Engine, pointer: &str) -> Value {
    let report = serde_json::to_value(capacity_report(engine)).expect("a report is valid JSON");
    report.pointer(pointer).cloned().unwrap_or_default()
}

#[test]
fn gpus_of_every_vendor_are_counted() {
    let engine = engine(
        vec![
            node_with("amd", &json!({}), &json!({"amd.com/gpu": "8", "pods": "10"})),
            node_with("intel", &json!({}), &json!({"gpu.intel.com/i915": "2", "pods": "10"})),
        ],
        vec![alone("a", "amd", "amd.com/gpu", 5, &[]), alone("b", "intel", "gpu.intel.com/i915", 1, &[])],
    );
    let models = json!({"unknown": {"nodes": 2, "cards": 10, "largestNodeCards": 8, "freeCards": 4}});
    assert_eq!(reported(&engine, "/models"), models);
    assert_eq!(reported(&engine, "/namespaces/ml"), json!({"running": {"pods": 2, "gpus": 6}}));
}

#[test]
fn a_time_sliced_card_counts_once_per_replica() {
    let labels = json!({"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.memory": "1000",
        "nvidia.com/gpu.product": "T4-SHARED"});
    for resource in ["nvidia.com/gpu", "nvidia.com/gpu.shared"] {
        let engine = engine(
            vec![node_with("a", &labels, &json!({resource: "8", "pods": "10"}))],
            vec![alone("one", "a", resource, 1, &[])],
        );
        let model = json!({"nodes": 1, "cards": 8, "vramMiB": 2000, "largestCardMiB": 1000, "largestNodeCards": 8,
            "freeCards": 7});
        assert_eq!(reported(&engine, "/models/T4-SHARED"), model, "{resource}");
        assert_eq!(reported(&engine, "/namespaces/ml/running/gpus"), 1, "{resource}");
    }
}

#[test]
fn an_unavailable_card_counts_as_a_card_that_is_not_free() {
    let labels = json!({"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "A100"});
    let engine = engine(vec![node_with("a", &labels, &json!({"nvidia.com/gpu": "7", "pods": "10"}))], vec![]);
    let model = json!({"nodes": 1, "cards": 8, "largestNodeCards": 8, "freeCards": 7});
    assert_eq!(reported(&engine, "/models/A100"), model);
}

#[test]
fn waiting_pods_without_a_gang_count_until_they_run_or_are_deleted() {
    let gpu = names::NVIDIA_GPU;
    let waits = |name: &str, gates: &[&str]| alone(name, "", gpu, 2, gates);
    let mut engine = engine(
        vec![node("a", Some("A100"), "8", false)],
        vec![waits("one", &[]), waits("two", &[]), waits("held", &["kueue.x-k8s.io/admission"])],
    );
    assert_eq!(reported(&engine, "/namespaces/ml"), json!({"waiting": {"pods": 3, "gpus": 6}}));
    engine.step(Event::Pod(Change::Set(alone("one", "a", gpu, 2, &[]))), NOW);
    let both = json!({"running": {"pods": 1, "gpus": 2}, "waiting": {"pods": 2, "gpus": 4}});
    assert_eq!(reported(&engine, "/namespaces/ml"), both);
    engine.step(Event::Pod(Change::Gone("two".into())), NOW);
    for uid in ["one", "held"] {
        engine.step(Event::Pod(Change::Gone(uid.into())), NOW);
    }
    assert_eq!(reported(&engine, "/namespaces"), Value::Null);
}
