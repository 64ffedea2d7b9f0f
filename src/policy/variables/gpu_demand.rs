//! Who uses and waits for how much: the fields of `queue` and `quota`.

use portcullis_cel::{Error, Value};

use super::gang::{GangAttributes, GpuAmounts};
use super::{FieldResult, FieldValue, number};
use crate::input::ClusterData;
use crate::input::{CapacityReport, GpuDemand};

const NOT_TOLD: &str = "the capacity of the cluster is not known here yet: the leading replica tells it within seconds of its start";
const NO_QUEUE: &str = "this object names no queue: ask for queue.name first";
/// What was told this many seconds ago is not known any more: a leader tells it anew four times as often.
const LONGEST_AGE: i64 = 120;

/// What the leader has told, while it still holds.
///
/// # Errors
/// Why it is not known, in a sentence.
pub(super) fn capacity(cluster: &ClusterData) -> Result<&CapacityReport, String> {
    let capacity = cluster.capacity.as_deref().ok_or(NOT_TOLD)?;
    let age = cluster.now.saturating_sub(capacity.at.unwrap_or(cluster.now));
    if age.saturating_abs() <= LONGEST_AGE {
        return Ok(capacity);
    }
    let (minutes, when) = (age.unsigned_abs() / 60, if age > 0 { "old" } else { "ahead of the clock here" });
    Err(format!(
        "the capacity of the cluster is not known here: what the leading replica last told (ConfigMap portcullis-capacity) is {minutes} minutes \
         {when}, and it holds for {LONGEST_AGE} seconds. A leader tells it anew every 30 seconds: portcullis doctor says whether one leads, \
         and its log why it cannot write"
    ))
}

/// Of the queue that the object names.
pub(super) fn queue(gang: &GangAttributes, cluster: &ClusterData) -> Vec<FieldValue> {
    let demand = match capacity(cluster) {
        Ok(_) if gang.queue.is_empty() => Err(NO_QUEUE.to_owned()),
        Ok(capacity) => Ok((capacity, capacity.queues.get(&gang.queue).copied().unwrap_or_default())),
        Err(why) => Err(why),
    };
    let mut fields = vec![("name", Ok(Value::string(gang.queue.as_str())))];
    fields.extend(numbers(gang, &demand));
    fields
}

/// Of the namespace of the request.
pub(super) fn quota(gang: &GangAttributes, namespace: &str, cluster: &ClusterData) -> Vec<FieldValue> {
    let demand = capacity(cluster)
        .map(|capacity| (capacity, capacity.namespaces.get(namespace).copied().unwrap_or_default()));
    let mut fields = vec![("namespace", Ok(Value::string(namespace)))];
    fields.extend(numbers(gang, &demand));
    fields
}

fn numbers(gang: &GangAttributes, demand: &Result<(&CapacityReport, GpuDemand), String>) -> Vec<FieldValue> {
    let told = |of: &dyn Fn(&CapacityReport, &GpuDemand) -> u64| -> FieldResult {
        let number = |(capacity, demand): &(&CapacityReport, GpuDemand)| number(of(capacity, demand));
        demand.as_ref().map(number).map_err(|why| Error::new(why.clone()))
    };
    let say = |of: &dyn Fn(&GpuDemand) -> u64| told(&|_, demand| of(demand));
    vec![
        ("known", Ok(Value::Bool(demand.is_ok()))),
        ("gpus", say(&|demand| demand.total().gpus)),
        ("gpusRunning", say(&|demand| demand.running.gpus)),
        ("gpusWaiting", say(&|demand| demand.waiting.gpus)),
        ("gpusAfter", told(&|capacity, demand| after(gang, capacity, demand).gpus)),
        ("vramMiB", say(&|demand| demand.total().vram_mib)),
        ("vramMiBRunning", say(&|demand| demand.running.vram_mib)),
        ("vramMiBWaiting", say(&|demand| demand.waiting.vram_mib)),
        ("vramMiBAfter", told(&|capacity, demand| after(gang, capacity, demand).vram_mib)),
        ("pods", say(&|demand| demand.total().pods)),
        ("gangs", say(&|demand| demand.running.gangs.max(demand.waiting.gangs))),
    ]
}

/// What it will be with all of the gang: what is counted of the gang is taken out, and its whole put in. Both are of the same moment,
/// so members that have come since then are counted once.
fn after(gang: &GangAttributes, capacity: &CapacityReport, demand: &GpuDemand) -> GpuAmounts {
    let now = demand.total();
    let now = GpuAmounts { gpus: now.gpus, vram_mib: now.vram_mib };
    if !gang.new {
        return now;
    }
    let counted = gang.key().and_then(|key| capacity.gangs.get(&key)).copied().unwrap_or_default();
    let with = |now: u64, counted: u64, own: u64, all: u64| {
        now.saturating_sub(counted).saturating_add(counted.saturating_add(own).max(all))
    };
    GpuAmounts {
        gpus: with(now.gpus, counted.gpus, gang.own.gpus, gang.all.gpus),
        vram_mib: with(now.vram_mib, counted.vram_mib, gang.own.vram_mib, gang.all.vram_mib),
    }
}
