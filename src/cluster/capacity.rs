//! Reports the cluster's GPU capacity to policies: computed from the engine's snapshot, stored in one
//! ConfigMap.
//!
//! Invariants: only the leader writes, at most every [`REPORT_INTERVAL`]. It writes if the numbers have
//! changed or the last write is [`REFRESH_INTERVAL`] ago, so that readers can recognize a report without a
//! writer as expired. Nothing is computed unless an expression of an active or candidate policy needs
//! capacity (`PolicySet::data_dependencies`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use portcullis_core::api::{ApiRequest, ApiResource, ApiResponse, ApiVerb};
use portcullis_core::engine::{Engine, UnplacedPod};
use portcullis_core::gpu::GpuRules;
use portcullis_core::model::{GangId, PodUid};
use portcullis_core::objects::names;
use portcullis_core::shape::Shape;
use portcullis_core::snapshot::{CardState, Snapshot};
use portcullis_policy::{CapacityReport, GpuDemand, GpuModelCapacity, GpuUsage};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::client::Client;
use crate::clock::seconds_now;

/// Name of the ConfigMap, in the namespace of the installation.
pub(crate) const CONFIG_MAP_NAME: &str = "portcullis-capacity";
/// The only key of the ConfigMap.
pub(crate) const CONFIG_MAP_KEY: &str = "capacity.json";
const CONFIG_MAPS: ApiResource = ApiResource { group: "", version: "v1", plural: "configmaps" };
/// Minimum interval between two writes, and interval between two reads of a replica.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between two reports if nothing has changed. Policies ignore a report that is older than four of
/// these intervals.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Delay between a failed request and the next one.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// GPU model of nodes without a product label.
const UNKNOWN_GPU_MODEL: &str = "unknown";
/// Upper bound of the report's size, below the object size limit of etcd. The report of 1,000 namespaces and
/// 5,000 gangs is far smaller.
const MAX_CONFIG_MAP_BYTES: usize = 900_000;

/// Sends reports from the engine's loop, at most every [`REPORT_INTERVAL`].
pub(super) struct CapacityReporter {
    wanted: watch::Receiver<bool>,
    out: watch::Sender<Option<CapacityReport>>,
    /// When the reporter last computed a report.
    computed: Option<Instant>,
    /// When the reporter last sent a report.
    sent: Option<Instant>,
}

impl CapacityReporter {
    /// Returns a reporter and the receiver of its reports.
    pub(super) fn new(wanted: watch::Receiver<bool>) -> (Self, watch::Receiver<Option<CapacityReport>>) {
        let (out, reports) = watch::channel(None);
        (Self { wanted, out, computed: None, sent: None }, reports)
    }

    /// Returns the time until the next report is due; `None` while no policy needs capacity or this replica
    /// does not lead. `changed`: the engine has handled an event since the last report was computed.
    pub(super) fn time_until_due(&self, engine: &Engine, changed: bool) -> Option<Duration> {
        let wanted = *self.wanted.borrow() && engine.leads();
        let (since, interval) =
            if changed { (self.computed, REPORT_INTERVAL) } else { (self.sent, REFRESH_INTERVAL) };
        wanted.then(|| since.map_or(Duration::ZERO, |since| interval.saturating_sub(since.elapsed())))
    }

    /// Computes a report if it is due, and sends it if it is new. Returns whether a report was computed: then
    /// the next one is due after a change or the refresh interval.
    pub(super) fn report(&mut self, engine: &Engine, changed: bool) -> bool {
        if !engine.leads() {
            // The next leader reports.
            self.out.send_if_modified(|report| report.take().is_some());
            (self.computed, self.sent) = (None, None);
            return false;
        }
        if self.time_until_due(engine, changed) != Some(Duration::ZERO) {
            return false;
        }
        self.computed = Some(Instant::now());
        let report = capacity_report(engine);
        let refresh = self.sent.is_none_or(|sent| sent.elapsed() >= REFRESH_INTERVAL);
        let sent = self.out.send_if_modified(|last| {
            // A report that differs only in its time is not sent.
            let report = CapacityReport { at: last.as_ref().and_then(|last| last.at), ..report };
            let send = refresh || last.as_ref() != Some(&report);
            if send {
                *last = Some(CapacityReport { at: Some(seconds_now()), ..report });
            }
            send
        });
        if sent {
            self.sent = self.computed;
        }
        true
    }
}

/// Writes each report to the ConfigMap. Returns when the reporter is dropped.
pub(super) async fn publish(
    client: Client,
    namespace: String,
    mut reports: watch::Receiver<Option<CapacityReport>>,
) {
    let mut logged_problem = String::new();
    while reports.changed().await.is_ok() {
        let Some(report) = reports.borrow_and_update().clone() else { continue };
        let pause = match write(&client, &namespace, &report).await {
            Ok(()) => {
                logged_problem.clear();
                REPORT_INTERVAL
            }
            Err(problem) => {
                if problem != logged_problem {
                    tracing::warn!(
                        problem,
                        config_map = CONFIG_MAP_NAME,
                        "capacity report could not be written; policies that use capacity get no new numbers"
                    );
                    logged_problem = problem;
                }
                // The same report is written again.
                reports.mark_changed();
                RETRY_DELAY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn write(client: &Client, namespace: &str, report: &CapacityReport) -> Result<(), String> {
    let mut text = serde_json::to_string(report).map_err(|error| error.to_string())?;
    if text.len() > MAX_CONFIG_MAP_BYTES {
        // The sums stay correct without the gangs. But a policy then counts a gang twice when a user applies
        // it again.
        let without_gangs = CapacityReport { gangs: BTreeMap::new(), ..report.clone() };
        text = serde_json::to_string(&without_gangs).map_err(|error| error.to_string())?;
    }
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP_NAME, "namespace": namespace, "labels": {
            "app.kubernetes.io/name": "portcullis", "app.kubernetes.io/part-of": "portcullis"}},
        "data": {CONFIG_MAP_KEY: text},
    });
    let patch = json!({"data": {CONFIG_MAP_KEY: text}});
    match send_request(client, namespace, ApiVerb::MergePatch(patch)).await {
        ApiResponse::Object(_) => Ok(()),
        ApiResponse::Status { code: 404, .. } => {
            match send_request(client, namespace, ApiVerb::Create(object)).await {
                ApiResponse::Object(_) => Ok(()),
                other => Err(describe_failure(&other)),
            }
        }
        other => Err(describe_failure(&other)),
    }
}

async fn send_request(client: &Client, namespace: &str, verb: ApiVerb) -> ApiResponse {
    let request = ApiRequest {
        verb,
        resource: CONFIG_MAPS,
        namespace: namespace.to_owned(),
        name: CONFIG_MAP_NAME.to_owned(),
        subresource: None,
    };
    client.send(&request).await
}

fn describe_failure(response: &ApiResponse) -> String {
    match response {
        ApiResponse::Object(_) => "an unexpected object in the response".to_owned(),
        ApiResponse::Stale { message } => message.clone(),
        ApiResponse::Status { code, message } => format!("{code}: {message}"),
        ApiResponse::Lost => "the API server did not answer".to_owned(),
    }
}

/// Reads the leader's report; `None` if the ConfigMap does not exist.
///
/// # Errors
/// Why the report cannot be read.
pub(super) async fn read(client: &Client, namespace: &str) -> Result<Option<CapacityReport>, String> {
    match send_request(client, namespace, ApiVerb::Get).await {
        ApiResponse::Object(json) => {
            let object: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
            let text = object["data"][CONFIG_MAP_KEY]
                .as_str()
                .ok_or_else(|| format!("the ConfigMap has no key {CONFIG_MAP_KEY}"))?;
            serde_json::from_str(text).map(Some).map_err(|error| error.to_string())
        }
        ApiResponse::Status { code: 404, .. } => Ok(None),
        other => Err(describe_failure(&other)),
    }
}

/// Computes the report from the engine's state.
fn capacity_report(engine: &Engine) -> CapacityReport {
    let (snapshot, rules) = (engine.snapshot(), GpuRules::default());
    let mut sums = Sums::default();
    let mut members: BTreeSet<&PodUid> = BTreeSet::new();
    for member in engine.member_views() {
        members.insert(&member.pod.uid);
        let vram = vram(snapshot, &member.pod.uid, &member.pod.shape);
        let Some(usage) = gpu_usage(&member.pod.shape, vram, &rules) else { continue };
        let queue = member.queue.map(|queue| &**queue);
        sums.add(&member.pod.key.namespace, queue, Some(member.gang), member.placed, usage);
    }
    for (uid, charge) in snapshot.charges().filter(|(uid, _)| !members.contains(uid)) {
        let Some(key) = &charge.key else { continue };
        if let Some(usage) = gpu_usage(&charge.shape, vram(snapshot, uid, &charge.shape), &rules) {
            sums.add(&key.namespace, None, None, true, usage);
        }
    }
    for UnplacedPod { uid, key, shape } in engine.unplaced_pods() {
        if let Some(usage) = gpu_usage(shape, vram(snapshot, uid, shape), &rules) {
            sums.add(&key.namespace, None, None, false, usage);
        }
    }
    CapacityReport { models: models(snapshot, &rules), ..sums.into_report() }
}

/// Returns the MiB that a pod requests for its shares of all its cards. A fraction of a card counts only if
/// the pod's node is known.
fn vram(snapshot: &Snapshot, uid: &PodUid, shape: &Shape) -> u64 {
    let Some(share) = &shape.share else { return 0 };
    let node = snapshot.charged(uid).and_then(|charge| snapshot.node(&charge.node));
    let card = node.and_then(|node| node.gpus.vram_each).unwrap_or_default();
    share.on_card(card).0.saturating_mul(share.devices.into())
}

/// Returns the GPU resources that a pod requests; `None` if it requests none.
fn gpu_usage(shape: &Shape, vram_mib: u64, rules: &GpuRules) -> Option<GpuUsage> {
    let gpus = rules.whole_gpus(|name| shape.requests.extended(name));
    (gpus > 0 || shape.share.is_some()).then_some(GpuUsage { pods: 1, gpus, vram_mib, gangs: 0 })
}

/// The sums of a report. Each sum counts a gang once.
#[derive(Default)]
struct Sums<'e> {
    namespaces: BTreeMap<String, Sum<'e>>,
    queues: BTreeMap<String, Sum<'e>>,
    gangs: BTreeMap<String, GpuUsage>,
}

#[derive(Default)]
struct Sum<'e> {
    demand: GpuDemand,
    running: BTreeSet<&'e GangId>,
    waiting: BTreeSet<&'e GangId>,
}

impl<'e> Sum<'e> {
    fn add(&mut self, gang: Option<&'e GangId>, placed: bool, usage: GpuUsage) {
        let (sum, gangs) = if placed {
            (&mut self.demand.running, &mut self.running)
        } else {
            (&mut self.demand.waiting, &mut self.waiting)
        };
        *sum += usage;
        gangs.extend(gang);
    }

    fn into_demand(self) -> GpuDemand {
        let count = |gangs: BTreeSet<&GangId>| u64::try_from(gangs.len()).unwrap_or(u64::MAX);
        let mut demand = self.demand;
        demand.running.gangs = count(self.running);
        demand.waiting.gangs = count(self.waiting);
        demand
    }
}

impl<'e> Sums<'e> {
    fn add(
        &mut self,
        namespace: &str,
        queue: Option<&str>,
        gang: Option<&'e GangId>,
        placed: bool,
        usage: GpuUsage,
    ) {
        self.namespaces.entry(namespace.to_owned()).or_default().add(gang, placed, usage);
        if let Some(queue) = queue {
            self.queues.entry(queue.to_owned()).or_default().add(gang, placed, usage);
        }
        if let Some(gang) = gang {
            let sum = self.gangs.entry(format!("{namespace}/{}", gang.object_name())).or_default();
            *sum += usage;
            sum.gangs = 1;
        }
    }

    fn into_report(self) -> CapacityReport {
        let demands = |sums: BTreeMap<String, Sum<'e>>| {
            sums.into_iter().map(|(name, sum)| (name, sum.into_demand())).collect()
        };
        CapacityReport {
            at: None,
            models: BTreeMap::new(),
            namespaces: demands(self.namespaces),
            queues: demands(self.queues),
            gangs: self.gangs,
        }
    }
}

/// Returns the cards by GPU model.
fn models(snapshot: &Snapshot, rules: &GpuRules) -> BTreeMap<String, GpuModelCapacity> {
    let mut models: BTreeMap<String, GpuModelCapacity> = BTreeMap::new();
    for used in snapshot.nodes() {
        let gpus = &used.node.gpus;
        let physical = u64::from(gpus.cards);
        // `allocatable` does not count an unhealthy card or a card whose device plugin restarts. It counts a
        // time-sliced card several times.
        let cards = rules.whole_gpus(|name| used.node.allocatable.extended(name)).max(physical);
        if cards == 0 {
            continue;
        }
        let product = used.node.labels.get(names::NVIDIA_GPU_PRODUCT).map_or(UNKNOWN_GPU_MODEL, |name| name);
        let model = models.entry(product.to_owned()).or_default();
        let each = gpus.vram_each.unwrap_or_default().0;
        model.nodes += 1;
        model.cards = model.cards.saturating_add(cards);
        model.vram_mib = model.vram_mib.saturating_add(each.saturating_mul(physical));
        model.largest_card_mib = model.largest_card_mib.max(each);
        model.largest_node_cards = model.largest_node_cards.max(cards);
        let schedulable = used.node.ready && !used.node.unschedulable;
        if used.card_state == CardState::Open {
            for card in used.cards().filter(|_| schedulable) {
                model.free_vram_mib += card.free.0;
                model.largest_free_mib = model.largest_free_mib.max(card.free.0);
            }
        } else if schedulable {
            let free = rules.whole_gpus(|name| used.extended_free(name));
            model.free_cards = model.free_cards.saturating_add(free);
        }
    }
    models
}

#[cfg(test)]
mod tests {
    use portcullis_core::engine::{Change, EngineSettings, Event, ListedObjects};
    use portcullis_core::model::{Epoch, Time};
    use portcullis_core::objects::Node;
    use portcullis_core::pod::Pod;

    use super::*;

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
            groups: BTreeMap::new(),
            gangs: Some(Vec::new()),
            priority_classes: Some(Vec::new()),
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
        let engine =
            engine(vec![node_with("a", &labels, &json!({"nvidia.com/gpu": "7", "pods": "10"}))], vec![]);
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

    #[test]
    fn an_unchanged_report_is_refreshed_before_it_expires() {
        let engine = engine(vec![node("a", Some("A100"), "8", false)], vec![]);
        let (_wanted_sender, wanted) = watch::channel(true);
        let (mut reporter, mut reports) = CapacityReporter::new(wanted);
        let ago = |time| Instant::now().checked_sub(time).expect("the machine has been up for a minute");
        let mut poll = |reporter: &mut CapacityReporter, changed| {
            let computed = reporter.report(&engine, changed);
            (
                computed,
                reports.has_changed().expect("the reporter exists"),
                reports.borrow_and_update().clone(),
            )
        };
        let (_, sent, first) = poll(&mut reporter, true);
        let first = first.expect("the engine leads");
        assert!(sent && first.at.is_some_and(|at| at > 1_700_000_000), "{first:?}");
        // An event has happened, and the numbers are the same.
        reporter.computed = Some(ago(REPORT_INTERVAL));
        assert_eq!(poll(&mut reporter, true), (true, false, Some(first.clone())));
        assert!(reporter.time_until_due(&engine, false).is_some_and(|due| due > REPORT_INTERVAL));
        assert!(!poll(&mut reporter, false).0, "no event has happened");
        // No event happens for the refresh interval.
        reporter.sent = Some(ago(REFRESH_INTERVAL));
        assert_eq!(reporter.time_until_due(&engine, false), Some(Duration::ZERO));
        let (computed, sent, again) = poll(&mut reporter, false);
        assert!(computed && sent, "a user may have deleted the ConfigMap meanwhile");
        assert_eq!(CapacityReport { at: first.at, ..again.expect("the engine leads") }, first);
        assert!(!poll(&mut reporter, false).0, "a report was sent a moment ago");
    }
}
