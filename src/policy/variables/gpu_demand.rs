//! The variables `queue` and `quota`: how much is in use and how much waits.

use portcullis_cel::{Error, Value};
use portcullis_core::capacity::{CapacityReport, GpuDemand};

use super::gang::{GangAttributes, GpuAmounts};
use super::{FieldResult, FieldValue, number};
use crate::input::ClusterData;

const NO_REPORT: &str = "the capacity of the cluster is not known yet: the leading replica publishes it within seconds of its start";
const NO_QUEUE: &str = "this object names no queue: check queue.name first";
/// Maximum age of the capacity report in seconds. The leader writes it four times as often.
const MAX_REPORT_AGE_SECONDS: i64 = 120;

/// Returns the capacity report if it is recent.
///
/// # Errors
/// Why the capacity is unknown.
pub(super) fn capacity(cluster: &ClusterData) -> Result<&CapacityReport, String> {
    let capacity = cluster.capacity.as_deref().ok_or(NO_REPORT)?;
    let age = cluster.now.saturating_sub(capacity.at.unwrap_or(cluster.now));
    if age.saturating_abs() <= MAX_REPORT_AGE_SECONDS {
        return Ok(capacity);
    }
    let (minutes, when) = (age.unsigned_abs() / 60, if age > 0 { "old" } else { "ahead of the local clock" });
    Err(format!(
        "the capacity of the cluster is not known here: the last report of the leading replica (ConfigMap portcullis-capacity) is {minutes} minutes \
         {when}, and a report is valid for {MAX_REPORT_AGE_SECONDS} seconds. A leader writes it every 30 seconds: portcullis doctor reports whether a replica leads, \
         and the leader's log why it cannot write"
    ))
}

/// Returns the fields of `queue`, the queue that the object names.
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

/// Returns the fields of `quota`, the namespace of the request.
pub(super) fn quota(gang: &GangAttributes, namespace: &str, cluster: &ClusterData) -> Vec<FieldValue> {
    let demand = capacity(cluster)
        .map(|capacity| (capacity, capacity.namespaces.get(namespace).copied().unwrap_or_default()));
    let mut fields = vec![("namespace", Ok(Value::string(namespace)))];
    fields.extend(numbers(gang, &demand));
    fields
}

fn numbers(gang: &GangAttributes, demand: &Result<(&CapacityReport, GpuDemand), String>) -> Vec<FieldValue> {
    let value_of = |of: &dyn Fn(&CapacityReport, &GpuDemand) -> u64| -> FieldResult {
        let number = |(capacity, demand): &(&CapacityReport, GpuDemand)| number(of(capacity, demand));
        demand.as_ref().map(number).map_err(|why| Error::new(why.clone()))
    };
    let demand_value = |of: &dyn Fn(&GpuDemand) -> u64| value_of(&|_, demand| of(demand));
    vec![
        ("known", Ok(Value::Bool(demand.is_ok()))),
        ("gpus", demand_value(&|demand| demand.total().gpus)),
        ("gpusRunning", demand_value(&|demand| demand.running.gpus)),
        ("gpusWaiting", demand_value(&|demand| demand.waiting.gpus)),
        ("gpusAfter", value_of(&|capacity, demand| demand_after_admission(gang, capacity, demand).gpus)),
        ("vramMiB", demand_value(&|demand| demand.total().vram_mib)),
        ("vramMiBRunning", demand_value(&|demand| demand.running.vram_mib)),
        ("vramMiBWaiting", demand_value(&|demand| demand.waiting.vram_mib)),
        (
            "vramMiBAfter",
            value_of(&|capacity, demand| demand_after_admission(gang, capacity, demand).vram_mib),
        ),
        ("pods", demand_value(&|demand| demand.total().pods)),
        ("gangs", demand_value(&|demand| demand.running.gangs.max(demand.waiting.gangs))),
    ]
}

/// Returns the demand after admission of the whole gang: the counted part of the gang is subtracted and the
/// whole gang is added. Both are of the same moment, so members created since then count once.
fn demand_after_admission(
    gang: &GangAttributes,
    capacity: &CapacityReport,
    demand: &GpuDemand,
) -> GpuAmounts {
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
