//! The variable `cluster`: the GPUs of the cluster and how many are free.

use std::collections::BTreeMap;

use portcullis_cel::{Error, Key, Value};
use portcullis_core::capacity::{CapacityReport, GpuModelCapacity};

use super::{FieldResult, FieldValue, map, number};

/// A field of `cluster` and its models, and how the values of several models are combined.
struct CapacityField {
    name: &'static str,
    of: fn(&GpuModelCapacity) -> u64,
    combine: fn(u64, u64) -> u64,
}

const CAPACITY_FIELDS: &[CapacityField] = &[
    CapacityField { name: "nodes", of: |model| model.nodes, combine: u64::saturating_add },
    CapacityField { name: "cards", of: |model| model.cards, combine: u64::saturating_add },
    CapacityField { name: "freeCards", of: |model| model.free_cards, combine: u64::saturating_add },
    CapacityField { name: "largestNodeCards", of: |model| model.largest_node_cards, combine: u64::max },
    CapacityField { name: "vramMiB", of: |model| model.vram_mib, combine: u64::saturating_add },
    CapacityField { name: "freeVramMiB", of: |model| model.free_vram_mib, combine: u64::saturating_add },
    CapacityField { name: "largestCardMiB", of: |model| model.largest_card_mib, combine: u64::max },
    CapacityField { name: "largestFreeMiB", of: |model| model.largest_free_mib, combine: u64::max },
];

/// Returns the fields from the leader's report.
pub(super) fn fields(capacity: &Result<&CapacityReport, String>) -> Vec<FieldValue> {
    let known = |value: &dyn Fn(&CapacityReport) -> Value<'static>| -> FieldResult {
        capacity.as_ref().map(|capacity| value(capacity)).map_err(|why| Error::new(why.clone()))
    };
    let figures = CAPACITY_FIELDS.iter().map(|figure| {
        let sum = known(&|capacity| number(capacity.models.values().map(figure.of).fold(0, figure.combine)));
        (figure.name, sum)
    });
    let models =
        known(&|capacity| map(capacity.models.iter().map(|(name, model)| (name.clone(), of_model(model)))));
    [("known", Ok(Value::Bool(capacity.is_ok()))), ("models", models)].into_iter().chain(figures).collect()
}

fn of_model(model: &GpuModelCapacity) -> Value<'static> {
    let fields: BTreeMap<_, _> = CAPACITY_FIELDS
        .iter()
        .map(|figure| (Key::String(portcullis_cel::Text::Borrowed(figure.name)), number((figure.of)(model))))
        .collect();
    Value::map(fields)
}
