//! The JSON patch (RFC 6902) for one pod, written by hand: few operations, each resting on what the pod really has.
//!
//! An operation that replaces something, or goes into the middle of a list, follows a `test` of what it stands on.
//! Maps and lists that are missing, null or empty are added whole. Building a patch for the patched pod gives none.

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

/// The field that carries a pod's cards into its environment.
pub(super) const GPUS_FIELD_PATH: &str = "metadata.annotations['portcullis.dev/gpus']";

/// The policy by which a StatefulSet makes all its pods at once.
pub(super) const PARALLEL: &str = "Parallel";

/// What a pod is to have.
pub(super) struct PatchContents<'w> {
    /// Keys of its metadata.
    pub(super) repairs: &'w [MetadataRepair],
    /// Our scheduling gate.
    pub(super) gate: bool,
    /// The scheduler it is given to instead of the one it names.
    pub(super) scheduler: Option<&'w str>,
    /// What a VRAM member needs.
    pub(super) equipment: Option<ShareEquipment<'w>>,
}

/// What a VRAM member needs beside the gate: the toleration of shared nodes and the variable that carries its cards.
pub(super) struct ShareEquipment<'w> {
    /// The RuntimeClass it gets if it names none.
    pub(super) runtime_class: Option<&'w str>,
}

/// The operations that give the pod what it is to have and has not. Without containers there are none: the API server
/// refuses such a pod.
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

/// The operations that make a StatefulSet start its pods all at once.
pub(super) fn parallel(set: &StatefulSetView<'_>) -> Vec<PatchOperation> {
    let mut patch = Vec::new();
    let path = at(["spec", "podManagementPolicy"]);
    match set.spec.pod_management_policy.as_str() {
        "" => patch.push(add(path, json!(PARALLEL))),
        policy => replace(path, policy, PARALLEL, &mut patch),
    }
    patch
}

/// The operations that make the pods of a StatefulSet say that they are made in order.
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

/// A pod that comes with cards was copied from a running one; only the engine gives cards.
fn stale_cards(pod: &PodView<'_>, patch: &mut Vec<PatchOperation>, warnings: &mut Vec<String>) {
    if let Some(cards) = pod.metadata.annotations.text(names::GPUS_ANNOTATION) {
        let path = at(["metadata", "annotations", names::GPUS_ANNOTATION]);
        patch.push(test(path.clone(), json!(cards)));
        patch.push(PatchOperation::Remove(RemoveOperation { path }));
        warnings.push(format!(
            "{} was removed: cards are given when the gang is started",
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

/// Adds `item` to the end of a list of the spec, or adds the list.
fn append(list: [&str; 2], is_empty: bool, item: Value, patch: &mut Vec<PatchOperation>) {
    patch.push(if is_empty {
        add(at(list), Value::Array(vec![item]))
    } else {
        add(at([list[0], list[1], "-"]), item)
    });
}

/// Whether the pod has our gate.
pub(super) fn is_gated(pod: &PodView<'_>) -> bool {
    pod.spec.scheduling_gates.iter().any(|gate| gate.name.as_str() == names::GATE)
}

fn gate(pod: &PodView<'_>, patch: &mut Vec<PatchOperation>) {
    if !is_gated(pod) {
        let gates = &pod.spec.scheduling_gates;
        append(["spec", "schedulingGates"], gates.is_empty(), json!({ "name": names::GATE }), patch);
    }
}

/// Whether the pod may run on nodes whose cards are shared.
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

/// The container that a share is for, and the variable in it that says which cards.
pub(super) struct CardsVariable<'p, 'a> {
    /// `containers` or `initContainers`.
    pub(super) list: &'static str,
    /// Its place in that list.
    pub(super) index: usize,
    pub(super) container: &'p Container<'a>,
    /// The place of the variable among the container's; where it stands twice the last one counts.
    pub(super) existing: Option<usize>,
}

impl<'p, 'a> CardsVariable<'p, 'a> {
    /// In the container the pod names, else in the first. `None` when it names none of them, which the findings have
    /// refused before.
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

    /// The variable as it stands.
    pub(super) fn variable(&self) -> Option<&'p EnvVar<'a>> {
        self.container.env.as_deref()?.get(self.existing?)
    }

    /// Whether it will carry the cards that the gang is given.
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
                "{}{was} in container {} was replaced: the gang decides which cards",
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
