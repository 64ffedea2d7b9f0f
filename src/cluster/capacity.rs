//! What the leader tells of the cluster's GPUs, for policies: computed from the engine's own snapshot, kept
//! in one ConfigMap.
//!
//! Invariants: only a leader writes, at most every [`PAUSE`], and only when something is different from what
//! was last written or that is [`REFRESH`] ago, so that readers can tell what still holds from what nobody
//! tells any more; unless an expression of a policy in force, or of a candidate beside it, asks for it
//! (`Set::wishes`), nothing is computed at all.

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

/// The ConfigMap, in our own namespace.
pub(crate) const NAME: &str = "portcullis-capacity";
/// Its one key.
pub(crate) const KEY: &str = "capacity.json";
const CONFIG_MAPS: ApiResource = ApiResource { group: "", version: "v1", plural: "configmaps" };
/// How long between two writes, and between two looks of those who read.
pub(super) const PAUSE: Duration = Duration::from_secs(2);
/// How long after a telling the next one comes, when nothing has changed: policies take no numbers that are
/// older than four of these.
const REFRESH: Duration = Duration::from_secs(30);
/// How long after a failed request the next one is sent.
const AGAIN: Duration = Duration::from_secs(10);
/// Nodes with cards that do not say which.
const UNKNOWN: &str = "unknown";
/// etcd takes no larger object; far above what 1,000 namespaces and 5,000 gangs come to.
const LARGEST: usize = 900_000;

/// What the engine's loop gives away, at most every [`PAUSE`].
pub(super) struct CapacityReporter {
    wanted: watch::Receiver<bool>,
    out: watch::Sender<Option<CapacityReport>>,
    /// When it last looked, and when what came of it last went out.
    looked: Option<Instant>,
    told: Option<Instant>,
}

impl CapacityReporter {
    /// A reporter, and where its reports come out.
    pub(super) fn new(wanted: watch::Receiver<bool>) -> (Self, watch::Receiver<Option<CapacityReport>>) {
        let (out, reports) = watch::channel(None);
        (Self { wanted, out, looked: None, told: None }, reports)
    }

    /// How long the loop may sleep before it reports again; `None` while nobody wants to know. `news`:
    /// something has happened since it last looked.
    pub(super) fn due(&self, engine: &Engine, news: bool) -> Option<Duration> {
        let wanted = *self.wanted.borrow() && engine.leads();
        let (since, pause) = if news { (self.looked, PAUSE) } else { (self.told, REFRESH) };
        wanted.then(|| since.map_or(Duration::ZERO, |since| pause.saturating_sub(since.elapsed())))
    }

    /// Reports, if it is time. Whether there is nothing more to say until something happens or it gets old.
    pub(super) fn report(&mut self, engine: &Engine, news: bool) -> bool {
        if !engine.leads() {
            // Whoever leads next says the rest.
            self.out.send_if_modified(|report| report.take().is_some());
            (self.looked, self.told) = (None, None);
            return false;
        }
        if self.due(engine, news) != Some(Duration::ZERO) {
            return false;
        }
        self.looked = Some(Instant::now());
        let report = of(engine);
        let old = self.told.is_none_or(|told| told.elapsed() >= REFRESH);
        let told = self.out.send_if_modified(|last| {
            // The same numbers at another time are no news.
            let report = CapacityReport { at: last.as_ref().and_then(|last| last.at), ..report };
            let tell = old || last.as_ref() != Some(&report);
            if tell {
                *last = Some(CapacityReport { at: Some(seconds_now()), ..report });
            }
            tell
        });
        if told {
            self.told = self.looked;
        }
        true
    }
}

/// Writes what is reported, for ever.
pub(super) async fn publish(
    client: Client,
    namespace: String,
    mut reports: watch::Receiver<Option<CapacityReport>>,
) {
    let mut complaint = String::new();
    while reports.changed().await.is_ok() {
        let Some(report) = reports.borrow_and_update().clone() else { continue };
        let pause = match write(&client, &namespace, &report).await {
            Ok(()) => {
                complaint.clear();
                PAUSE
            }
            Err(problem) => {
                if problem != complaint {
                    tracing::warn!(problem, config_map = NAME, "capacity could not be told to policies");
                    complaint = problem;
                }
                // The same report is told again.
                reports.mark_changed();
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn write(client: &Client, namespace: &str, report: &CapacityReport) -> Result<(), String> {
    let mut text = serde_json::to_string(report).map_err(|error| error.to_string())?;
    if text.len() > LARGEST {
        // Without the gangs the sums still hold; a gang that is applied again then counts twice.
        let fewer = CapacityReport { gangs: BTreeMap::new(), ..report.clone() };
        text = serde_json::to_string(&fewer).map_err(|error| error.to_string())?;
    }
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace, "labels": {
            "app.kubernetes.io/name": "portcullis", "app.kubernetes.io/part-of": "portcullis"}},
        "data": {KEY: text},
    });
    let patch = json!({"data": {KEY: text}});
    match ask(client, namespace, ApiVerb::MergePatch(patch)).await {
        ApiResponse::Object(_) => Ok(()),
        ApiResponse::Status { code: 404, .. } => {
            match ask(client, namespace, ApiVerb::Create(object)).await {
                ApiResponse::Object(_) => Ok(()),
                other => Err(refusal(&other)),
            }
        }
        other => Err(refusal(&other)),
    }
}

async fn ask(client: &Client, namespace: &str, verb: ApiVerb) -> ApiResponse {
    let request = ApiRequest {
        verb,
        resource: CONFIG_MAPS,
        namespace: namespace.to_owned(),
        name: NAME.to_owned(),
        subresource: None,
    };
    client.send(&request).await
}

fn refusal(response: &ApiResponse) -> String {
    match response {
        ApiResponse::Object(_) => "an unexpected answer".to_owned(),
        ApiResponse::Status { code, message } => format!("{code}: {message}"),
        ApiResponse::Lost => "no answer of the API server".to_owned(),
    }
}

/// What the leader has written.
///
/// # Errors
/// Why it cannot be read. Where there is none it is `None`.
pub(super) async fn read(client: &Client, namespace: &str) -> Result<Option<CapacityReport>, String> {
    match ask(client, namespace, ApiVerb::Get).await {
        ApiResponse::Object(json) => {
            let object: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
            let text = object["data"][KEY].as_str().ok_or_else(|| format!("it has no key {KEY}"))?;
            serde_json::from_str(text).map(Some).map_err(|error| error.to_string())
        }
        ApiResponse::Status { code: 404, .. } => Ok(None),
        other => Err(refusal(&other)),
    }
}

/// What is to be told of what an engine knows.
fn of(engine: &Engine) -> CapacityReport {
    let (snapshot, rules) = (engine.snapshot(), GpuRules::default());
    let mut sums = Sums::default();
    let mut members: BTreeSet<&PodUid> = BTreeSet::new();
    for asking in engine.member_views() {
        members.insert(&asking.pod.uid);
        let vram = vram(snapshot, &asking.pod.uid, &asking.pod.shape);
        let Some(asked) = asked(&asking.pod.shape, vram, &rules) else { continue };
        let queue = asking.queue.map(|queue| &**queue);
        sums.add(&asking.pod.key.namespace, queue, Some(asking.gang), asking.placed, asked);
    }
    for (uid, charge) in snapshot.charges().filter(|(uid, _)| !members.contains(uid)) {
        let Some(key) = &charge.key else { continue };
        if let Some(asked) = asked(&charge.shape, vram(snapshot, uid, &charge.shape), &rules) {
            sums.add(&key.namespace, None, None, true, asked);
        }
    }
    for UnplacedPod { uid, key, shape } in engine.unplaced_pods() {
        if let Some(asked) = asked(shape, vram(snapshot, uid, shape), &rules) {
            sums.add(&key.namespace, None, None, false, asked);
        }
    }
    CapacityReport { models: models(snapshot, &rules), ..sums.told() }
}

/// MiB of a share, over all its cards: a fraction counts where its node is known.
fn vram(snapshot: &Snapshot, uid: &PodUid, shape: &Shape) -> u64 {
    let Some(share) = &shape.share else { return 0 };
    let node = snapshot.charged(uid).and_then(|charge| snapshot.node(&charge.node));
    let card = node.and_then(|node| node.gpus.vram_each).unwrap_or_default();
    share.on_card(card).0.saturating_mul(share.devices.into())
}

/// What a pod asks of GPUs; `None` when it asks for nothing.
fn asked(shape: &Shape, vram_mib: u64, rules: &GpuRules) -> Option<GpuUsage> {
    let gpus = rules.whole_gpus(|name| shape.requests.extended(name));
    (gpus > 0 || shape.share.is_some()).then_some(GpuUsage { pods: 1, gpus, vram_mib, gangs: 0 })
}

/// What is added up, with the gangs that are counted once for each sum.
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
    fn add(&mut self, gang: Option<&'e GangId>, placed: bool, asked: GpuUsage) {
        let (sum, gangs) = if placed {
            (&mut self.demand.running, &mut self.running)
        } else {
            (&mut self.demand.waiting, &mut self.waiting)
        };
        *sum += asked;
        gangs.extend(gang);
    }

    fn told(self) -> GpuDemand {
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
        asked: GpuUsage,
    ) {
        self.namespaces.entry(namespace.to_owned()).or_default().add(gang, placed, asked);
        if let Some(queue) = queue {
            self.queues.entry(queue.to_owned()).or_default().add(gang, placed, asked);
        }
        if let Some(gang) = gang {
            let sum = self.gangs.entry(format!("{namespace}/{}", gang.object_name())).or_default();
            *sum += asked;
            sum.gangs = 1;
        }
    }

    fn told(self) -> CapacityReport {
        let told = |sums: BTreeMap<String, Sum<'e>>| {
            sums.into_iter().map(|(name, sum)| (name, sum.told())).collect()
        };
        CapacityReport {
            at: None,
            models: BTreeMap::new(),
            namespaces: told(self.namespaces),
            queues: told(self.queues),
            gangs: self.gangs,
        }
    }
}

/// The cards, by model.
fn models(snapshot: &Snapshot, rules: &GpuRules) -> BTreeMap<String, GpuModelCapacity> {
    let mut models: BTreeMap<String, GpuModelCapacity> = BTreeMap::new();
    for used in snapshot.nodes() {
        let gpus = &used.node.gpus;
        let physical = u64::from(gpus.cards);
        // A card that is sick, or whose plugin starts anew, is missing of what pods may use now; one that is
        // time-sliced is in it several times.
        let cards = rules.whole_gpus(|name| used.node.allocatable.extended(name)).max(physical);
        if cards == 0 {
            continue;
        }
        let product = used.node.labels.get(names::NVIDIA_GPU_PRODUCT).map_or(UNKNOWN, |name| name);
        let model = models.entry(product.to_owned()).or_default();
        let each = gpus.vram_each.unwrap_or_default().0;
        model.nodes += 1;
        model.cards = model.cards.saturating_add(cards);
        model.vram_mib = model.vram_mib.saturating_add(each.saturating_mul(physical));
        model.largest_card_mib = model.largest_card_mib.max(each);
        model.largest_node_cards = model.largest_node_cards.max(cards);
        let takes_pods = used.node.ready && !used.node.unschedulable;
        if used.card_state == CardState::Open {
            for card in used.cards().filter(|_| takes_pods) {
                model.free_vram_mib += card.free.0;
                model.largest_free_mib = model.largest_free_mib.max(card.free.0);
            }
        } else if takes_pods {
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

    /// A pod of no gang that asks for one resource; behind the gate of somebody else, or for the scheduler to
    /// place.
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

    /// An engine that leads, and knows of these nodes and pods.
    fn engine(nodes: Vec<Node>, pods: Vec<Pod>) -> Engine {
        let mut engine = Engine::new(EngineSettings::default());
        engine.step(Event::LeaseAcquired(Epoch(1)), NOW);
        let world = ListedObjects {
            nodes: Some(nodes),
            pods: Some(pods),
            groups: BTreeMap::new(),
            gangs: Some(Vec::new()),
            priority_classes: Some(Vec::new()),
        };
        engine.step(Event::Listed(Epoch(1), world), NOW);
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
    fn what_is_told_adds_up() {
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
        let told = serde_json::to_value(of(&engine)).expect("it can be written");
        assert_eq!(
            told,
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

    /// What comes of an engine under a JSON pointer.
    fn told(engine: &Engine, pointer: &str) -> Value {
        let told = serde_json::to_value(of(engine)).expect("it can be written");
        told.pointer(pointer).cloned().unwrap_or_default()
    }

    #[test]
    fn gpus_of_every_vendor_are_there_and_are_asked_for() {
        let engine = engine(
            vec![
                node_with("amd", &json!({}), &json!({"amd.com/gpu": "8", "pods": "10"})),
                node_with("intel", &json!({}), &json!({"gpu.intel.com/i915": "2", "pods": "10"})),
            ],
            vec![alone("a", "amd", "amd.com/gpu", 5, &[]), alone("b", "intel", "gpu.intel.com/i915", 1, &[])],
        );
        let models = json!({"unknown": {"nodes": 2, "cards": 10, "largestNodeCards": 8, "freeCards": 4}});
        assert_eq!(told(&engine, "/models"), models);
        assert_eq!(told(&engine, "/namespaces/ml"), json!({"running": {"pods": 2, "gpus": 6}}));
    }

    #[test]
    fn time_sliced_cards_are_there_as_often_as_pods_can_ask_for_them() {
        let labels = json!({"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.memory": "1000",
            "nvidia.com/gpu.product": "T4-SHARED"});
        for resource in ["nvidia.com/gpu", "nvidia.com/gpu.shared"] {
            let engine = engine(
                vec![node_with("a", &labels, &json!({resource: "8", "pods": "10"}))],
                vec![alone("one", "a", resource, 1, &[])],
            );
            let model = json!({"nodes": 1, "cards": 8, "vramMiB": 2000, "largestCardMiB": 1000, "largestNodeCards": 8,
                "freeCards": 7});
            assert_eq!(told(&engine, "/models/T4-SHARED"), model, "{resource}");
            assert_eq!(told(&engine, "/namespaces/ml/running/gpus"), 1, "{resource}");
        }
    }

    #[test]
    fn cards_that_a_node_does_not_offer_for_now_can_be_had_again() {
        let labels = json!({"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "A100"});
        let engine =
            engine(vec![node_with("a", &labels, &json!({"nvidia.com/gpu": "7", "pods": "10"}))], vec![]);
        let model = json!({"nodes": 1, "cards": 8, "largestNodeCards": 8, "freeCards": 7});
        assert_eq!(told(&engine, "/models/A100"), model);
    }

    #[test]
    fn pods_of_no_gang_that_wait_are_counted_until_they_run_or_are_gone() {
        let gpu = names::NVIDIA_GPU;
        let waits = |name: &str, gates: &[&str]| alone(name, "", gpu, 2, gates);
        let mut engine = engine(
            vec![node("a", Some("A100"), "8", false)],
            vec![waits("one", &[]), waits("two", &[]), waits("held", &["kueue.x-k8s.io/admission"])],
        );
        assert_eq!(told(&engine, "/namespaces/ml"), json!({"waiting": {"pods": 3, "gpus": 6}}));
        engine.step(Event::Pod(Change::Set(alone("one", "a", gpu, 2, &[]))), NOW);
        let both = json!({"running": {"pods": 1, "gpus": 2}, "waiting": {"pods": 2, "gpus": 4}});
        assert_eq!(told(&engine, "/namespaces/ml"), both);
        engine.step(Event::Pod(Change::Gone("two".into())), NOW);
        engine
            .step(Event::Relisted(ListedObjects { pods: Some(Vec::new()), ..ListedObjects::default() }), NOW);
        assert_eq!(told(&engine, "/namespaces"), Value::Null);
    }

    #[test]
    fn the_same_numbers_are_told_again_before_they_are_taken_for_old() {
        let engine = engine(vec![node("a", Some("A100"), "8", false)], vec![]);
        let (_wish, wanted) = watch::channel(true);
        let (mut reporter, mut reports) = CapacityReporter::new(wanted);
        let ago = |time| Instant::now().checked_sub(time).expect("this machine has been up for a minute");
        let mut look = |reporter: &mut CapacityReporter, news| {
            let looked = reporter.report(&engine, news);
            (looked, reports.has_changed().expect("it is there"), reports.borrow_and_update().clone())
        };
        let (_, told, first) = look(&mut reporter, true);
        let first = first.expect("it leads");
        assert!(told && first.at.is_some_and(|at| at > 1_700_000_000), "{first:?}");
        // Something has happened, and the numbers are the same.
        reporter.looked = Some(ago(PAUSE));
        assert_eq!(look(&mut reporter, true), (true, false, Some(first.clone())));
        assert!(reporter.due(&engine, false).is_some_and(|due| due > PAUSE));
        assert!(!look(&mut reporter, false).0, "nothing has happened");
        // Nothing happens for long.
        reporter.told = Some(ago(REFRESH));
        assert_eq!(reporter.due(&engine, false), Some(Duration::ZERO));
        let (looked, told, again) = look(&mut reporter, false);
        assert!(looked && told, "as if it had been deleted meanwhile");
        assert_eq!(CapacityReport { at: first.at, ..again.expect("it leads") }, first);
        assert!(!look(&mut reporter, false).0, "it was told a moment ago");
    }
}
