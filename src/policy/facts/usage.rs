//! Who uses and waits for how much: the fields of `queue` and `quota`.

use portcullis_cel::{Error, Value};

use super::gang::{Amounts, GangFacts};
use super::{Field, Known, number};
use crate::capacity::{Capacity, Demand};
use crate::world::World;

/// What is told where the leader has not said anything.
pub(super) const CAPACITY_UNKNOWN: &str = "the capacity of the cluster is not known here yet: the leading replica tells it within seconds of its start";
const NO_QUEUE: &str = "this object names no queue: ask for queue.name first";

/// Of the queue that the object names.
pub(super) fn queue(gang: &GangFacts, world: &World) -> Vec<Field> {
    let capacity = world.capacity.as_deref();
    let demand = match capacity {
        None => Err(CAPACITY_UNKNOWN),
        Some(_) if gang.queue.is_empty() => Err(NO_QUEUE),
        Some(capacity) => Ok(capacity.queues.get(&gang.queue).copied().unwrap_or_default()),
    };
    let mut fields = vec![("name", Ok(Value::string(gang.queue.as_str())))];
    fields.extend(numbers(gang, capacity, demand));
    fields
}

/// Of the namespace of the request.
pub(super) fn quota(gang: &GangFacts, namespace: &str, world: &World) -> Vec<Field> {
    let capacity = world.capacity.as_deref();
    let demand = capacity
        .map(|capacity| capacity.namespaces.get(namespace).copied().unwrap_or_default())
        .ok_or(CAPACITY_UNKNOWN);
    let mut fields = vec![("namespace", Ok(Value::string(namespace)))];
    fields.extend(numbers(gang, capacity, demand));
    fields
}

fn numbers(
    gang: &GangFacts,
    capacity: Option<&Capacity>,
    demand: Result<Demand, &'static str>,
) -> Vec<Field> {
    let say = |of: &dyn Fn(&Demand) -> u64| -> Known {
        demand.as_ref().map(|demand| number(of(demand))).map_err(|why| Error::new(*why))
    };
    let after = |demand: &Demand| after(gang, capacity, demand);
    vec![
        ("known", Ok(Value::Bool(demand.is_ok()))),
        ("gpus", say(&|demand| demand.all().gpus)),
        ("gpusRunning", say(&|demand| demand.running.gpus)),
        ("gpusWaiting", say(&|demand| demand.waiting.gpus)),
        ("gpusAfter", say(&|demand| after(demand).gpus)),
        ("vramMiB", say(&|demand| demand.all().vram_mib)),
        ("vramMiBRunning", say(&|demand| demand.running.vram_mib)),
        ("vramMiBWaiting", say(&|demand| demand.waiting.vram_mib)),
        ("vramMiBAfter", say(&|demand| after(demand).vram_mib)),
        ("pods", say(&|demand| demand.all().pods)),
        ("gangs", say(&|demand| demand.running.gangs.max(demand.waiting.gangs))),
    ]
}

/// What it will be with all of the gang: what is counted of the gang is taken out, and its whole put in. Both are of the same moment,
/// so members that have come since then are counted once.
fn after(gang: &GangFacts, capacity: Option<&Capacity>, demand: &Demand) -> Amounts {
    let now = demand.all();
    let now = Amounts { gpus: now.gpus, vram_mib: now.vram_mib };
    if !gang.new {
        return now;
    }
    let counted = gang.key().and_then(|key| capacity?.gangs.get(&key)).copied().unwrap_or_default();
    let with = |now: u64, counted: u64, own: u64, all: u64| {
        now.saturating_sub(counted).saturating_add(counted.saturating_add(own).max(all))
    };
    Amounts {
        gpus: with(now.gpus, counted.gpus, gang.own.gpus, gang.all.gpus),
        vram_mib: with(now.vram_mib, counted.vram_mib, gang.own.vram_mib, gang.all.vram_mib),
    }
}
