//! Sums the GPUs of nodes and pods, as the engine sees them.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{CapacityReport, GpuDemand, GpuModelCapacity, GpuUsage};
use crate::engine::{Engine, UnplacedPod};
use crate::gpu::GpuRules;
use crate::model::{GangId, PodUid};
use crate::objects::names;
use crate::shape::Shape;
use crate::snapshot::{CardState, Snapshot};

/// GPU model of nodes without a product label.
const UNKNOWN_GPU_MODEL: &str = "unknown";

/// Returns the report of the engine's state, without its time.
pub fn capacity_report(engine: &Engine) -> CapacityReport {
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
