//! What the leader tells of the cluster's GPUs, for policies: computed from the engine's own snapshot, kept in one ConfigMap.
//!
//! Invariants: only a leader writes, only when something is different from what was last written, and at most every
//! [`PAUSE`]; unless an expression of a policy in force, or of a candidate beside it, asks for it (`Set::wishes`), nothing is computed at all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use portcullis_core::engine::Engine;
use portcullis_core::engine::wire::{Request, Resource, Response, Verb};
use portcullis_core::model::{GangId, PodUid};
use portcullis_core::objects::{Shape, names};
use portcullis_core::snapshot::{CardState, Snapshot};
use portcullis_policy::{Capacity, Demand, Model, Use};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::client::Client;

/// The ConfigMap, in our own namespace.
pub(crate) const NAME: &str = "portcullis-capacity";
/// Its one key.
pub(crate) const KEY: &str = "capacity.json";
const CONFIG_MAPS: Resource = Resource { group: "", version: "v1", plural: "configmaps" };
/// How long between two writes, and between two looks of those who read.
pub(super) const PAUSE: Duration = Duration::from_secs(2);
/// How long after a failed request the next one is sent.
const AGAIN: Duration = Duration::from_secs(10);
/// Nodes with cards that do not say which.
const UNKNOWN: &str = "unknown";
/// etcd takes no larger object; far above what 1,000 namespaces and 5,000 gangs come to.
const LARGEST: usize = 900_000;

/// What the engine's loop gives away, at most every [`PAUSE`].
pub(super) struct Reporter {
    wanted: watch::Receiver<bool>,
    out: watch::Sender<Option<Capacity>>,
    last: Option<Instant>,
}

impl Reporter {
    /// A reporter, and where its reports come out.
    pub(super) fn new(wanted: watch::Receiver<bool>) -> (Self, watch::Receiver<Option<Capacity>>) {
        let (out, reports) = watch::channel(None);
        (Self { wanted, out, last: None }, reports)
    }

    /// How long the loop may sleep before it reports again; `None` while nobody wants to know.
    pub(super) fn due(&self, engine: &Engine) -> Option<Duration> {
        let wanted = *self.wanted.borrow() && engine.leads();
        wanted.then(|| self.last.map_or(Duration::ZERO, |last| PAUSE.saturating_sub(last.elapsed())))
    }

    /// Reports, if it is time. Whether there is nothing more to say until something happens.
    pub(super) fn look(&mut self, engine: &Engine) -> bool {
        if !engine.leads() {
            // Whoever leads next says the rest.
            self.out.send_if_modified(|report| report.take().is_some());
            self.last = None;
            return false;
        }
        let due = self.due(engine) == Some(Duration::ZERO);
        if due {
            self.last = Some(Instant::now());
            let report = of(engine);
            self.out.send_if_modified(|last| {
                let news = last.as_ref() != Some(&report);
                if news {
                    *last = Some(report);
                }
                news
            });
        }
        due
    }
}

/// Writes what is reported, for ever.
pub(super) async fn publish(
    client: Client,
    namespace: String,
    mut reports: watch::Receiver<Option<Capacity>>,
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

async fn write(client: &Client, namespace: &str, report: &Capacity) -> Result<(), String> {
    let mut text = serde_json::to_string(report).map_err(|error| error.to_string())?;
    if text.len() > LARGEST {
        // Without the gangs the sums still hold; a gang that is applied again then counts twice.
        let fewer = Capacity { gangs: BTreeMap::new(), ..report.clone() };
        text = serde_json::to_string(&fewer).map_err(|error| error.to_string())?;
    }
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace, "labels": {
            "app.kubernetes.io/name": "portcullis", "app.kubernetes.io/part-of": "portcullis"}},
        "data": {KEY: text},
    });
    let patch = json!({"data": {KEY: text}});
    match ask(client, namespace, Verb::MergePatch(patch)).await {
        Response::Object(_) => Ok(()),
        Response::Status { code: 404, .. } => match ask(client, namespace, Verb::Create(object)).await {
            Response::Object(_) => Ok(()),
            other => Err(refusal(&other)),
        },
        other => Err(refusal(&other)),
    }
}

async fn ask(client: &Client, namespace: &str, verb: Verb) -> Response {
    let request = Request {
        verb,
        resource: CONFIG_MAPS,
        namespace: namespace.to_owned(),
        name: NAME.to_owned(),
        subresource: None,
    };
    client.send(&request).await
}

fn refusal(response: &Response) -> String {
    match response {
        Response::Object(_) => "an unexpected answer".to_owned(),
        Response::Status { code, message } => format!("{code}: {message}"),
        Response::Lost => "no answer of the API server".to_owned(),
    }
}

/// What the leader has written.
///
/// # Errors
/// Why it cannot be read. Where there is none it is `None`.
pub(super) async fn read(client: &Client, namespace: &str) -> Result<Option<Capacity>, String> {
    match ask(client, namespace, Verb::Get).await {
        Response::Object(json) => {
            let object: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
            let text = object["data"][KEY].as_str().ok_or_else(|| format!("it has no key {KEY}"))?;
            serde_json::from_str(text).map(Some).map_err(|error| error.to_string())
        }
        Response::Status { code: 404, .. } => Ok(None),
        other => Err(refusal(&other)),
    }
}

/// What is to be told of what an engine knows.
fn of(engine: &Engine) -> Capacity {
    let snapshot = engine.snapshot();
    let mut sums = Sums::default();
    let mut members: BTreeSet<&PodUid> = BTreeSet::new();
    for asking in engine.asking() {
        members.insert(&asking.pod.uid);
        let vram = vram(snapshot, &asking.pod.uid, &asking.pod.shape);
        let Some(asked) = asked(&asking.pod.shape, vram) else { continue };
        let queue = asking.queue.map(|queue| &**queue);
        sums.add(&asking.pod.key.namespace, queue, Some(asking.gang), asking.placed, asked);
    }
    for (uid, charge) in snapshot.charges().filter(|(uid, _)| !members.contains(uid)) {
        let Some(key) = &charge.key else { continue };
        if let Some(asked) = asked(&charge.shape, vram(snapshot, uid, &charge.shape)) {
            sums.add(&key.namespace, None, None, true, asked);
        }
    }
    Capacity { models: models(snapshot), ..sums.told() }
}

/// MiB of a share, over all its cards: a fraction counts where its node is known.
fn vram(snapshot: &Snapshot, uid: &PodUid, shape: &Shape) -> u64 {
    let Some(share) = &shape.share else { return 0 };
    let node = snapshot.charged(uid).and_then(|charge| snapshot.node(&charge.node));
    let card = node.and_then(|node| node.gpus.vram_each).unwrap_or_default();
    share.on_card(card).0.saturating_mul(share.devices.into())
}

/// What a pod asks of GPUs; `None` when it asks for nothing.
fn asked(shape: &Shape, vram_mib: u64) -> Option<Use> {
    let gpus = shape.requests.extended(names::NVIDIA_GPU);
    (gpus > 0 || shape.share.is_some()).then_some(Use { pods: 1, gpus, vram_mib, gangs: 0 })
}

/// What is added up, with the gangs that are counted once for each sum.
#[derive(Default)]
struct Sums<'e> {
    namespaces: BTreeMap<String, Sum<'e>>,
    queues: BTreeMap<String, Sum<'e>>,
    gangs: BTreeMap<String, Use>,
}

#[derive(Default)]
struct Sum<'e> {
    demand: Demand,
    running: BTreeSet<&'e GangId>,
    waiting: BTreeSet<&'e GangId>,
}

impl<'e> Sum<'e> {
    fn add(&mut self, gang: Option<&'e GangId>, placed: bool, asked: Use) {
        let (sum, gangs) = if placed {
            (&mut self.demand.running, &mut self.running)
        } else {
            (&mut self.demand.waiting, &mut self.waiting)
        };
        *sum += asked;
        gangs.extend(gang);
    }

    fn told(self) -> Demand {
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
        asked: Use,
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

    fn told(self) -> Capacity {
        let told = |sums: BTreeMap<String, Sum<'e>>| {
            sums.into_iter().map(|(name, sum)| (name, sum.told())).collect()
        };
        Capacity {
            models: BTreeMap::new(),
            namespaces: told(self.namespaces),
            queues: told(self.queues),
            gangs: self.gangs,
        }
    }
}

/// The cards, by model.
fn models(snapshot: &Snapshot) -> BTreeMap<String, Model> {
    let mut models: BTreeMap<String, Model> = BTreeMap::new();
    for used in snapshot.nodes() {
        let gpus = &used.node.gpus;
        let cards = u64::from(gpus.cards);
        if cards == 0 {
            continue;
        }
        let product = used.node.labels.get(names::NVIDIA_GPU_PRODUCT).map_or(UNKNOWN, |name| name);
        let model = models.entry(product.to_owned()).or_default();
        let each = gpus.vram_each.unwrap_or_default().0;
        model.nodes += 1;
        model.cards += cards;
        model.vram_mib += each.saturating_mul(cards);
        model.largest_card_mib = model.largest_card_mib.max(each);
        model.largest_node_cards = model.largest_node_cards.max(cards);
        let takes_pods = used.node.ready && !used.node.unschedulable;
        if used.card_state == CardState::Open {
            for card in used.cards().filter(|_| takes_pods) {
                model.free_vram_mib += card.free.0;
                model.largest_free_mib = model.largest_free_mib.max(card.free.0);
            }
        } else if takes_pods {
            model.free_cards += used.extended_free(names::NVIDIA_GPU).min(cards);
        }
    }
    models
}

#[cfg(test)]
mod tests {
    use portcullis_core::engine::{Event, Settings, World};
    use portcullis_core::model::{Epoch, Time};
    use portcullis_core::objects::{Node, Pod};

    use super::*;

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
        let mut engine = Engine::new(Settings::default());
        let now = Time(1_800_000_000_000);
        engine.step(Event::LeaseAcquired(Epoch(1)), now);
        let world = World {
            nodes: Some(vec![
                node("a", Some("A100"), "8", false),
                node("b", Some("A100"), "4", true),
                node("c", None, "2", false),
            ]),
            pods: Some(vec![
                pod("alone", "a", &[], 3),
                pod(
                    "one",
                    "b",
                    &[("pod-group-name", "app"), ("gpu-memory", "10000"), ("portcullis.dev/gpus", "0")],
                    0,
                ),
                pod("two", "", &[("pod-group-name", "app"), ("gpu-memory", "8000")], 0),
                pod("idle", "c", &[], 0),
            ]),
            groups: BTreeMap::new(),
            gangs: Some(Vec::new()),
            priority_classes: Some(Vec::new()),
        };
        engine.step(Event::Listed(Epoch(1), world), now);
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
}
