//! The JSON patch (RFC 6902) for one pod.
//!
//! A `test` of the current value precedes every operation that replaces a value or changes an element of a
//! list. Maps and lists that are missing, null or empty are added as a whole.
//!
//! Invariant: the patch for a patched pod is empty.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde_json::{Value, json};

use crate::dialect::{MetadataMap, MetadataRepair};
use crate::model::quoted;
use crate::objects::affinity::{Taint, TaintEffect, Toleration};
use crate::objects::names;
use crate::objects::text::Entries;
use crate::objects::text::Text;
use crate::objects::view::{Container, EnvVar, PodView, StatefulSetView};

/// The field path from which the environment variable takes the pod's cards.
pub(super) const GPUS_FIELD_PATH: &str = "metadata.annotations['portcullis.dev/gpus']";

/// The `podManagementPolicy` of pods that are created all at once.
pub(super) const PARALLEL: &str = "Parallel";

/// What a pod has to contain.
pub(super) struct PatchContents<'w> {
    /// Labels and annotations to add.
    pub(super) repairs: &'w [MetadataRepair],
    /// Whether to add Portcullis's scheduling gate.
    pub(super) gate: bool,
    /// The scheduler that replaces the one in the pod.
    pub(super) scheduler: Option<&'w str>,
    /// What a VRAM member needs; `None` for other pods.
    pub(super) equipment: Option<ShareEquipment<'w>>,
}

/// What a VRAM member needs beside the gate: the toleration of shared nodes and the variable with its cards.
pub(super) struct ShareEquipment<'w> {
    /// The RuntimeClass to set if the pod names none.
    pub(super) runtime_class: Option<&'w str>,
}

/// The operations that add what is missing. A pod without containers gets none, because the API server
/// rejects it.
pub(super) fn build(
    pod: &PodView<'_>,
    contents: &PatchContents<'_>,
    warnings: &mut Vec<String>,
) -> Vec<PatchOperation> {
    let mut patch = Vec::new();
    if pod.spec.containers.is_empty() {
        return patch;
    }
    if contents.gate {
        stale_cards(pod, &mut patch, warnings);
    }
    metadata(pod, contents.repairs, &mut patch);
    if contents.gate {
        gate(pod, &mut patch);
    }
    if let Some(scheduler) = contents.scheduler {
        replace(at(["spec", "schedulerName"]), pod.spec.scheduler_name.as_str(), scheduler, &mut patch);
    }
    if let Some(equipment) = &contents.equipment {
        toleration(pod, &mut patch);
        runtime_class(pod, equipment.runtime_class, &mut patch);
        cards(pod, &mut patch, warnings);
    }
    patch
}

/// The operations that make a StatefulSet create its pods all at once.
pub(super) fn parallel(set: &StatefulSetView<'_>) -> Vec<PatchOperation> {
    let mut patch = Vec::new();
    let path = at(["spec", "podManagementPolicy"]);
    match set.spec.pod_management_policy.as_str() {
        "" => patch.push(add(path, json!(PARALLEL))),
        policy => replace(path, policy, PARALLEL, &mut patch),
    }
    patch
}

/// The operations that add the annotation for a kept order to the pods of a StatefulSet.
pub(super) fn keep_order(set: &StatefulSetView<'_>) -> Vec<PatchOperation> {
    let annotations = &set.spec.template.metadata.annotations;
    let path = ["spec", "template", "metadata", "annotations"];
    if annotations.iter().next().is_none() {
        return vec![add(at(path), json!({ names::ORDERED_ANNOTATION: names::ORDERED_KEEP }))];
    }
    vec![add(at(path.into_iter().chain([names::ORDERED_ANNOTATION])), json!(names::ORDERED_KEEP))]
}

fn at<'t>(tokens: impl IntoIterator<Item = &'t str>) -> PointerBuf {
    PointerBuf::from_tokens(tokens)
}

fn add(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path, value })
}

fn test(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path, value })
}

fn replace(path: PointerBuf, was: &str, becomes: &str, patch: &mut Vec<PatchOperation>) {
    patch.push(test(path.clone(), json!(was)));
    patch.push(PatchOperation::Replace(ReplaceOperation { path, value: json!(becomes) }));
}

fn map<'p, 'a>(pod: &'p PodView<'a>, map: MetadataMap) -> &'p Entries<'a, Text<'a>> {
    match map {
        MetadataMap::Labels => &pod.metadata.labels,
        MetadataMap::Annotations => &pod.metadata.annotations,
    }
}

/// Removes the cards of a pod that was copied from a running one: only the engine assigns cards.
fn stale_cards(pod: &PodView<'_>, patch: &mut Vec<PatchOperation>, warnings: &mut Vec<String>) {
    if let Some(cards) = pod.metadata.annotations.text(names::GPUS_ANNOTATION) {
        let path = at(["metadata", "annotations", names::GPUS_ANNOTATION]);
        patch.push(test(path.clone(), json!(cards)));
        patch.push(PatchOperation::Remove(RemoveOperation { path }));
        warnings.push(format!(
            "{} was removed: the engine assigns cards when the gang starts",
            names::GPUS_ANNOTATION
        ));
    }
}

fn metadata(pod: &PodView<'_>, repairs: &[MetadataRepair], patch: &mut Vec<PatchOperation>) {
    for field in [MetadataMap::Annotations, MetadataMap::Labels] {
        let mine = || repairs.iter().filter(move |r| r.map == field);
        for repair in mine() {
            let Some((source, key)) = repair.source else { continue };
            patch.push(test(at(["metadata", source.as_str(), key]), json!(repair.value)));
        }
        if map(pod, field).is_empty() {
            let all: serde_json::Map<_, _> =
                mine().map(|r| (r.key.to_owned(), Value::from(r.value.as_str()))).collect();
            if !all.is_empty() {
                patch.push(add(at(["metadata", field.as_str()]), Value::Object(all)));
            }
        } else {
            let added = mine().map(|r| add(at(["metadata", field.as_str(), r.key]), json!(r.value)));
            patch.extend(added);
        }
    }
}

/// Appends `item` to a list of the spec, or adds the list.
fn append(list: [&str; 2], is_empty: bool, item: Value, patch: &mut Vec<PatchOperation>) {
    patch.push(if is_empty {
        add(at(list), Value::Array(vec![item]))
    } else {
        add(at([list[0], list[1], "-"]), item)
    });
}

/// Whether the pod has Portcullis's scheduling gate.
pub(super) fn is_gated(pod: &PodView<'_>) -> bool {
    pod.spec.scheduling_gates.iter().any(|gate| gate.name.as_str() == names::GATE)
}

fn gate(pod: &PodView<'_>, patch: &mut Vec<PatchOperation>) {
    if !is_gated(pod) {
        let gates = &pod.spec.scheduling_gates;
        append(["spec", "schedulingGates"], gates.is_empty(), json!({ "name": names::GATE }), patch);
    }
}

/// Whether the pod tolerates the taint of shared nodes.
pub(super) fn tolerates_sharing(pod: &PodView<'_>) -> bool {
    let taint = Taint {
        key: names::SHARING.into(),
        value: names::SHARING_VRAM.into(),
        effect: TaintEffect::NoSchedule,
    };
    pod.spec.tolerations.iter().filter_map(Toleration::read).any(|t| t.tolerates(&taint))
}

fn toleration(pod: &PodView<'_>, patch: &mut Vec<PatchOperation>) {
    if !tolerates_sharing(pod) {
        let ours = json!({
            "key": names::SHARING, "operator": "Equal", "value": names::SHARING_VRAM, "effect": "NoSchedule"
        });
        append(["spec", "tolerations"], pod.spec.tolerations.is_empty(), ours, patch);
    }
}

fn runtime_class(pod: &PodView<'_>, class: Option<&str>, patch: &mut Vec<PatchOperation>) {
    if let Some(class) = class
        && pod.spec.runtime_class_name.is_empty()
    {
        patch.push(add(at(["spec", "runtimeClassName"]), json!(class)));
    }
}

/// The container that uses the share, and its environment variable with the cards.
pub(super) struct CardsVariable<'p, 'a> {
    /// `containers` or `initContainers`.
    pub(super) list: &'static str,
    /// Index in that list.
    pub(super) index: usize,
    pub(super) container: &'p Container<'a>,
    /// Index of the variable in the container; the last one if it occurs twice.
    pub(super) existing: Option<usize>,
}

impl<'p, 'a> CardsVariable<'p, 'a> {
    /// The variable in the container that the pod names, else in the first one. `None` when the named
    /// container does not exist, which the GPU findings deny earlier.
    pub(super) fn of(pod: &'p PodView<'a>) -> Option<Self> {
        let (list, index, container) = match pod.metadata.annotations.text(names::GPU_FRACTION_CONTAINER) {
            None => ("containers", 0, pod.spec.containers.first()?),
            Some(name) => {
                let lists =
                    [("initContainers", &pod.spec.init_containers), ("containers", &pod.spec.containers)];
                lists.into_iter().find_map(|(list, containers)| {
                    let found = containers.iter().position(|c| c.name.as_str() == name)?;
                    Some((list, found, &containers[found]))
                })?
            }
        };
        let variables = container.env.as_deref().unwrap_or_default();
        let existing = variables.iter().rposition(|v| v.name.as_str() == names::NVIDIA_VISIBLE_DEVICES);
        Some(Self { list, index, container, existing })
    }

    /// The variable of the pod.
    pub(super) fn variable(&self) -> Option<&'p EnvVar<'a>> {
        self.container.env.as_deref()?.get(self.existing?)
    }

    /// Whether it takes the cards from the pod's annotation.
    pub(super) fn is_ours(&self) -> bool {
        self.variable().is_some_and(is_ours)
    }
}

fn cards(pod: &PodView<'_>, patch: &mut Vec<PatchOperation>, warnings: &mut Vec<String>) {
    let Some(cards) = CardsVariable::of(pod).filter(|cards| !cards.is_ours()) else { return };
    let CardsVariable { list, index, container, existing } = cards;
    let variables = container.env.as_deref().unwrap_or_default();
    let index = index.to_string();
    let ours = json!({
        "name": names::NVIDIA_VISIBLE_DEVICES,
        "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": GPUS_FIELD_PATH } }
    });
    if !container.name.is_empty() {
        patch.push(test(at(["spec", list, &index, "name"]), json!(container.name.as_str())));
    }
    match existing {
        Some(place) => {
            let variable = &variables[place];
            let place = place.to_string();
            let path = ["spec", list, &index, "env", &place];
            let name = ["spec", list, &index, "env", &place, "name"];
            patch.push(test(at(name), json!(names::NVIDIA_VISIBLE_DEVICES)));
            patch.push(PatchOperation::Replace(ReplaceOperation { path: at(path), value: ours }));
            let was = match &variable.value {
                Some(value) if variable.value_from.is_none() => {
                    format!(" {}", quoted(&value.chars().take(32).collect::<String>()))
                }
                _ => String::new(),
            };
            let name: String = container.name.chars().take(24).collect();
            warnings.push(format!(
                "{}{was} in container {} was replaced: the engine assigns the cards",
                names::NVIDIA_VISIBLE_DEVICES,
                quoted(&name)
            ));
        }
        None if variables.is_empty() => {
            patch.push(add(at(["spec", list, &index, "env"]), Value::Array(vec![ours])));
        }
        None => patch.push(add(at(["spec", list, &index, "env", "-"]), ours)),
    }
}

fn is_ours(variable: &EnvVar<'_>) -> bool {
    variable.value.as_ref().is_none_or(|v| v.is_empty())
        && variable
            .value_from
            .as_ref()
            .and_then(|source| source.field_ref.as_ref())
            .is_some_and(|field| field.field_path.as_str() == GPUS_FIELD_PATH)
}
