//! The verdicts of kube-scheduler's own plugins on generated clusters (`tests/scheduler` writes them),
//! compared with the planner's, for every pod and node.
//!
//! Known differences are in `scheduler_differences.tsv`, each with its reason.

use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::*;
use crate::objects::view::PodView;
use crate::planner::overlay::SnapshotOverlay;
use crate::planner::pod_rules::GangPodRules;
use crate::planner::requirements::{InfeasibleReason, PodRequirements};
use crate::pod::Pod;

/// The plugins that the planner models.
const MODELLED: &[&str] = &[
    "InterPodAffinity",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "PodTopologySpread",
    "TaintToleration",
];

/// The plugin whose refusal a reason of the planner is.
fn plugin_of(reason: InfeasibleReason) -> &'static str {
    match reason {
        InfeasibleReason::Cordoned => "NodeUnschedulable",
        InfeasibleReason::Taint { .. } => "TaintToleration",
        InfeasibleReason::NodeAffinity => "NodeAffinity",
        InfeasibleReason::HostPort => "NodePorts",
        InfeasibleReason::SpreadLabelMissing | InfeasibleReason::TopologySpread => "PodTopologySpread",
        InfeasibleReason::PodAffinity
        | InfeasibleReason::PodAntiAffinity
        | InfeasibleReason::ExistingPodAntiAffinity => "InterPodAffinity",
        InfeasibleReason::TooManyPods
        | InfeasibleReason::Gpus
        | InfeasibleReason::Extended(_)
        | InfeasibleReason::Cpu
        | InfeasibleReason::Memory
        | InfeasibleReason::EphemeralStorage => "NodeResourcesFit",
        InfeasibleReason::NotReady
        | InfeasibleReason::CardsUnavailable(_)
        | InfeasibleReason::SharedByVram
        | InfeasibleReason::Refused(_)
        | InfeasibleReason::Vram => "none",
    }
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The pods of a case that count, by name.
fn read_pods(case: &Value) -> Vec<Pod> {
    let read = |pod: &Value| {
        let mut pod = pod.clone();
        let uid = format!("{}/{}", text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
        pod["metadata"]["uid"] = uid.into();
        Pod::read(&pod.to_string()).expect("a pod of the tables")
    };
    list(case, "pods").iter().map(read).filter(|pod| !pod.finished()).collect()
}

fn cluster_of(case: &Value) -> Snapshot {
    let mut snapshot = Snapshot::new(SharingMode::Labelled);
    for node in list(case, "nodes") {
        let mut node = Node::read(&node.to_string()).expect("a node of the tables");
        // The scheduler goes by taints alone.
        node.ready = true;
        snapshot.set_node(node);
    }
    for namespace in list(case, "namespaces") {
        let labels = namespace["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.map(|(key, value)| (str(key), str(text(value)))).collect();
        snapshot.set_namespace(&str(text(&namespace["metadata"]["name"])), Some(labels));
    }
    snapshot
}

fn add_pod(snapshot: &mut Snapshot, pod: &Pod, node: &NodeName) {
    let charge = Charge {
        key: Some(pod.key.clone()),
        node: node.clone(),
        labels: pod.labels.clone(),
        terminating: pod.terminating,
        shape: pod.shape.clone(),
        cards: CardAllocation::Unshared,
        state: ChargeState::Bound,
    };
    snapshot.charge(&pod.uid, charge);
}

/// The planner's verdict on each node: the first reason, and the reasons of the two plugins about pods.
struct Verdict {
    first: Option<InfeasibleReason>,
    spread: Option<InfeasibleReason>,
    affinity: Option<InfeasibleReason>,
}

/// `Verdict` of every node, and whether InterPodAffinity skips the pod. A plugin that skips a pod does not
/// see pods that are nominated either.
fn judge(snapshot: &Snapshot, labels: &PodLabels, shape: &Arc<Shape>, skipped: bool) -> (Vec<Verdict>, bool) {
    let mut request = gang("judged", [Shape::clone(shape)]);
    request.members[0].labels = labels.clone();
    let need = PodRequirements::new(&request.members[0].shape, snapshot);
    let overlay = SnapshotOverlay::new(snapshot);
    let rules = GangPodRules::new(&request, &overlay);
    let judge_node = |node: u32, state: &crate::snapshot::NodeState| {
        let rules = rules.as_ref().map(|rules| rules.check_alone(node));
        let (spread, affinity) = rules.unwrap_or((None, None));
        let affinity = affinity.filter(|_| !skipped);
        let own = need.check_class(state).and_then(|_| need.fits(&state.node, &state.free_resources));
        Verdict { first: own.err().or(spread).or(affinity), spread, affinity }
    };
    let skips = rules.as_ref().is_none_or(GangPodRules::skips_affinity);
    ((0..).zip(snapshot.states()).map(|(node, state)| judge_node(node, state)).collect(), skips)
}

/// The reasons of a plugin by node name.
fn refusals<'v>(judged: &'v Value, snapshot: &'v Snapshot) -> BTreeMap<(&'v str, &'v str), &'v str> {
    let mut refusals = BTreeMap::new();
    for refusal in list(judged, "refusals") {
        let (plugin, reason) = (text(&refusal["plugin"]), text(&refusal["reasons"][0]));
        let nodes: Vec<&str> = if text(&refusal["stage"]) == "PreFilter" {
            snapshot.node_names().map(NodeName::as_str).collect()
        } else {
            list(refusal, "nodes").iter().map(text).collect()
        };
        refusals.extend(nodes.into_iter().map(|node| ((node, plugin), reason)));
    }
    refusals
}

/// Compares the verdicts on one pod, and adds a line for each difference.
fn compare(
    name: &str,
    snapshot: &Snapshot,
    judged: &Value,
    verdicts: &[Verdict],
    differences: &mut Vec<String>,
) {
    let refusals = refusals(judged, snapshot);
    for (state, verdict) in snapshot.states().iter().zip(verdicts) {
        let node = state.node.name.as_str();
        let expected: Vec<&str> =
            MODELLED.iter().copied().filter(|plugin| refusals.contains_key(&(node, *plugin))).collect();
        let ours = verdict.first.map(plugin_of);
        let agrees = match ours {
            None => expected.is_empty(),
            Some(plugin) => expected.contains(&plugin),
        };
        if !agrees {
            differences.push(format!("{name}\t{node}\tplanner: {ours:?}, scheduler: {expected:?}"));
        }
        for (plugin, reason) in
            [("PodTopologySpread", verdict.spread), ("InterPodAffinity", verdict.affinity)]
        {
            let theirs = refusals.get(&(node, plugin)).copied();
            let ours = reason.map(|reason| {
                crate::planner::survey::NodeSurvey::default()
                    .unschedulable_reason(reason, &PodRequirements::new(&Shape::default(), snapshot))
                    .to_string()
            });
            if ours.as_deref() != theirs {
                differences
                    .push(format!("{name}\t{node}\t{plugin}: planner: {ours:?}, scheduler: {theirs:?}"));
            }
        }
    }
}

fn compare_case(case: &Value, differences: &mut Vec<String>) -> usize {
    let pods = read_pods(case);
    let mut bound = cluster_of(case);
    for pod in &pods {
        if let Some(node) = &pod.node {
            add_pod(&mut bound, pod, node);
        }
    }
    let judged_pods = list(case, "judged");
    for judged in judged_pods {
        let name = format!("{}/{}", text(&case["case"]), text(&judged["pod"]["metadata"]["name"]));
        for (form, pod) in [("pod", &judged["pod"]), ("submitted", &judged["submitted"])] {
            if pod.is_null() {
                continue;
            }
            let mut pod = pod.clone();
            if form == "pod" {
                pod["metadata"]["uid"] = "judged".into();
            }
            let json = pod.to_string();
            let view: PodView<'_> = serde_json::from_str(&json).expect("a judged pod");
            if !view.spec.node_name.is_empty() {
                continue;
            }
            let (labels, shape) =
                (PodLabels::read(&view.metadata), Arc::new(Shape::of(&view).expect("a shape")));
            let (mut verdicts, skips) = judge(&bound, &labels, &shape, false);
            let nominated =
                || pods.iter().filter(|pod| pod.node.is_none()).filter(|p| p.priority >= view.spec.priority);
            if nominated().any(|pod| pod.nominated.is_some()) {
                // A node has to be feasible with the pods that are nominated to it, and without them.
                for (index, without) in verdicts.iter_mut().enumerate() {
                    let node = &bound.states()[index].node.name;
                    let mut with = bound.clone();
                    for pod in nominated().filter(|pod| pod.nominated.as_ref() == Some(node)) {
                        add_pod(&mut with, pod, node);
                    }
                    let with = judge(&with, &labels, &shape, skips).0.swap_remove(index);
                    *without = Verdict {
                        first: with.first.or(without.first),
                        spread: with.spread.or(without.spread),
                        affinity: with.affinity.or(without.affinity),
                    };
                }
            }
            compare(&format!("{name}/{form}"), &bound, judged, &verdicts, differences);
        }
    }
    judged_pods.len()
}

fn compare_group(group: &str, least: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/scheduler")
        .join(format!("{group}.jsonl.gz"));
    let packed = std::fs::read(&path).expect("the tables are in the repository");
    let mut lines = String::new();
    flate2::read::MultiGzDecoder::new(&*packed).read_to_string(&mut lines).expect("gzip");
    let (mut judged, mut differences) = (0, Vec::new());
    for line in lines.lines() {
        let case: Value = serde_json::from_str(line).expect("a case");
        judged += compare_case(&case, &mut differences);
    }
    assert!(judged >= least, "{group}: {judged} pods");
    let known: BTreeSet<&str> = include_str!("scheduler_differences.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split('\t').next())
        .collect();
    let pod_of = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
    let found: BTreeSet<String> = differences.iter().map(|line| pod_of(line)).collect();
    let of_group = |pod: &&&str| pod.starts_with(&format!("{group}-"));
    let settled: Vec<&&str> = known.iter().filter(of_group).filter(|pod| !found.contains(**pod)).collect();
    assert!(settled.is_empty(), "scheduler_differences.tsv lists pods that agree: {settled:?}");
    differences.retain(|line| !known.contains(&*pod_of(line)));
    let shown = differences.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{group}: {} differences:\n{shown}", differences.len());
}

#[test]
fn node_plugins_agree() {
    compare_group("node", 4000);
}

#[test]
fn node_resources_fit_agrees() {
    compare_group("resources", 3900);
}

#[test]
fn inter_pod_affinity_agrees() {
    compare_group("affinity", 4500);
}

#[test]
fn pod_topology_spread_agrees() {
    compare_group("spread", 3800);
}

#[test]
fn hostname_labels_need_not_name_the_node() {
    compare_group("hostnames", 900);
}

#[test]
fn nominated_pods_count() {
    compare_group("nominated", 1500);
}
