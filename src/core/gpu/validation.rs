//! Validation of a pod's GPU requests: all contradictions and invalid values at once.
//!
//! The first sentences are those of KAI's admission (pkg/binder/plugins/gpusharing/gpu-request, up to v0.17),
//! because users search for them. KAI reports only the first problem. Portcullis reports all of them, and
//! also what KAI accepts: MIG slices and DRA claims beside a share, and numbers that KAI's scheduler cannot
//! parse.

use std::collections::BTreeSet;

use super::device_claims::{DeviceClaim, DeviceKind, GpuRules, device_claims};
use super::share::{self, FractionReading};
use crate::model::{Finding, FindingRule, quoted};
use crate::objects::names;
use crate::objects::view::PodView;

const MPS_ALONE: &str = "MPS is only supported with GPU fraction request";
const FRACTION_AND_WHOLE: &str = "cannot have both GPU fraction request and whole GPU resource request/limit";
const MEMORY_AND_WHOLE: &str = "cannot request both GPU and GPU memory";
const DEVICES_ALONE: &str =
    "cannot request multiple fractional devices without specifying fraction portion or gpu-memory";
const MEMORY_VALUE: &str = "gpu-memory annotation value must be a positive integer greater than 0";
const FRACTION_VALUE: &str = "gpu-fraction annotation value must be a positive number smaller than 1.0";
const FRACTION_FORM: &str = "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation .given value: ";
const DEVICES_VALUE: &str = "fraction count annotation value must be a positive integer greater than 0";

/// Whether the pod has an annotation that requests a share, valid or not.
pub fn asks_for_share(pod: &PodView<'_>) -> bool {
    let annotations = &pod.metadata.annotations;
    annotations.contains(names::GPU_MEMORY) || annotations.contains(names::GPU_FRACTION)
}

/// All findings on the GPU requests of a pod, in the order of KAI's checks, then by field. Without findings
/// [`super::GpuShare::of`] returns the share if there is one.
pub fn findings(pod: &PodView<'_>, rules: &GpuRules) -> Vec<Finding> {
    let annotation = |key: &str| pod.metadata.annotations.text(key);
    let memory = annotation(names::GPU_MEMORY);
    let fraction = annotation(names::GPU_FRACTION);
    let devices = annotation(names::GPU_FRACTION_NUM_DEVICES);
    let container = annotation(names::GPU_FRACTION_CONTAINER);
    let mps = annotation(names::MPS);
    let mut found = GpuFindings(Vec::new());

    if memory.is_none() && fraction.is_none() {
        found.without_share(mps, devices, container);
        return found.0;
    }
    if !rules.sharing {
        found.sharing_disabled(pod, memory, fraction);
    }
    let claims = device_claims(pod, rules);
    if let Some(fraction) = fraction
        && !claims.is_empty()
    {
        found.fraction_and_whole(fraction, &claims);
    }
    if let Some(memory) = memory {
        found.memory_and_whole(memory, fraction, &claims);
        found.memory_value(memory);
    }
    if let Some(fraction) = fraction {
        found.fraction_value(fraction);
    }
    if let Some(devices) = devices {
        found.devices_value(devices);
    }
    if let Some(container) = container {
        found.container(pod, container);
    }
    found.0
}

/// A quoted name for a message, or the text for a missing name.
pub(super) fn shown(name: &str) -> String {
    if name.is_empty() { "without a name".to_owned() } else { quoted(name) }
}

/// A number as the user wrote it; quoted when it is not a number.
pub(super) fn shown_number(text: &str) -> String {
    let plain = text.len() <= 20 && !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    if plain { text.to_owned() } else { quoted(text) }
}

fn annotation_field(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

struct GpuFindings(Vec<Finding>);

impl GpuFindings {
    fn add(&mut self, field: String, value: &str, rule: FindingRule, message: String) {
        self.0.push(Finding { field, value: value.to_owned(), rule, message });
    }

    fn without_share(&mut self, mps: Option<&str>, devices: Option<&str>, container: Option<&str>) {
        if let Some(value @ "true") = mps {
            let message = format!(
                "{MPS_ALONE}: this pod asks for no share of a card. Remove the annotation mps, or add gpu-memory (MiB) \
                 or gpu-fraction."
            );
            self.add(annotation_field(names::MPS), value, FindingRule::MpsWithoutShare, message);
        }
        if let Some(value) = devices {
            let message = format!(
                "{DEVICES_ALONE}: the annotation requests {} cards, and no annotation sets the share of each. Add gpu-memory (MiB) or \
                 gpu-fraction, or remove gpu-fraction-num-devices and ask for whole GPUs.",
                shown_number(value)
            );
            self.add(
                annotation_field(names::GPU_FRACTION_NUM_DEVICES),
                value,
                FindingRule::DevicesWithoutShare,
                message,
            );
        }
        if let Some(value) = container {
            let message = format!(
                "cannot choose a container for a share without specifying fraction portion or gpu-memory: container {} \
                 is named, and no annotation sets its share of a card. Add gpu-memory (MiB) or gpu-fraction, or remove \
                 gpu-fraction-container-name.",
                shown(value)
            );
            self.add(
                annotation_field(names::GPU_FRACTION_CONTAINER),
                value,
                FindingRule::ContainerWithoutShare,
                message,
            );
        }
    }

    fn sharing_disabled(&mut self, pod: &PodView<'_>, memory: Option<&str>, fraction: Option<&str>) {
        let name =
            if pod.metadata.name.is_empty() { &pod.metadata.generate_name } else { &pod.metadata.name };
        for (key, value) in [(names::GPU_FRACTION, fraction), (names::GPU_MEMORY, memory)] {
            let Some(value) = value else { continue };
            let message = format!(
                "attempting to create a pod {}/{name} with gpu sharing request, while GPU sharing is disabled: {key} asks \
                 for {} of a card. Remove the annotation and ask for whole GPUs, or ask the platform team to allow \
                 sharing.",
                pod.metadata.namespace,
                quoted(value)
            );
            self.add(annotation_field(key), value, FindingRule::SharingDisabled, message);
        }
    }

    fn fraction_and_whole(&mut self, fraction: &str, claims: &[DeviceClaim]) {
        let share = format!("{} of a shared card", shown_fraction(fraction));
        self.contradiction(
            names::GPU_FRACTION,
            fraction,
            FindingRule::FractionAndWhole,
            FRACTION_AND_WHOLE,
            &share,
            claims,
        );
    }

    fn memory_and_whole(&mut self, memory: &str, fraction: Option<&str>, claims: &[DeviceClaim]) {
        let share = match share::memory(memory) {
            Some(mib) => format!("{mib} of a shared card"),
            None => format!("{} MiB of a shared card", quoted(memory)),
        };
        if !claims.is_empty() {
            self.contradiction(
                names::GPU_MEMORY,
                memory,
                FindingRule::MemoryAndWhole,
                MEMORY_AND_WHOLE,
                &share,
                claims,
            );
        }
        if let Some(fraction) = fraction {
            let message = format!(
                "{MEMORY_AND_WHOLE}: this pod asks for {share} (gpu-memory) and for {} of one (gpu-fraction). Keep one: \
                 remove the annotation gpu-fraction, or remove the annotation gpu-memory.",
                shown_fraction(fraction)
            );
            self.add(annotation_field(names::GPU_MEMORY), memory, FindingRule::MemoryAndWhole, message);
        }
    }

    /// One finding at the annotation with all claims, and one at every field that contradicts it.
    fn contradiction(
        &mut self,
        key: &str,
        value: &str,
        rule: FindingRule,
        headline: &str,
        share: &str,
        claims: &[DeviceClaim],
    ) {
        let one = |claim: &DeviceClaim| match claim.kind {
            DeviceKind::Claim => format!("and {}", claim.description),
            DeviceKind::Whole | DeviceKind::Mig => format!("and, {}", claim.description),
        };
        let all = claims.iter().map(one).collect::<Vec<_>>().join(", ");
        let places = claims.iter().map(|c| resource_of(&c.field)).collect::<BTreeSet<_>>();
        let remove = places.into_iter().collect::<Vec<_>>().join(" and ");
        let whole = match remove.as_str() {
            names::NVIDIA_GPU | names::AMD_GPU | names::INTEL_GPU => "for a whole GPU".to_owned(),
            _ => format!("to keep {remove}"),
        };
        let fix =
            format!("Keep one: remove the annotation {key} {whole}, or remove {remove} to share a card.");
        let message = format!("{headline}: this pod asks for {share} {all}. {fix}");
        self.add(annotation_field(key), value, rule, message);
        for claim in claims {
            let message = format!(
                "{headline}: {} contradicts the annotation {key} ({}). {fix}",
                quoted(&claim.value),
                quoted(value)
            );
            self.add(claim.field.clone(), &claim.value, rule, message);
        }
    }

    fn memory_value(&mut self, value: &str) {
        if share::memory(value).is_some() {
            return;
        }
        let detail = if !value.is_empty()
            && value.bytes().all(|b| b.is_ascii_digit())
            && !value.trim_start_matches('0').is_empty()
        {
            format!("{} is too large (at most {} MiB)", quoted(value), i64::MAX)
        } else {
            format!("{} is not one", quoted(value))
        };
        let message = format!(
            "{MEMORY_VALUE}: {detail}. Write MiB of one card as digits only, for example gpu-memory: \"8000\"."
        );
        self.add(annotation_field(names::GPU_MEMORY), value, FindingRule::MemoryValue, message);
    }

    fn fraction_value(&mut self, value: &str) {
        let message = match share::fraction(value) {
            FractionReading::Sound(_) => return,
            FractionReading::OutOfRange => format!(
                "{FRACTION_VALUE}: {} is not. Write a part of one card, for example gpu-fraction: \"0.5\"; for whole cards \
                 remove the annotation and use limits nvidia.com/gpu.",
                quoted(value)
            ),
            FractionReading::BadForm => format!(
                "{FRACTION_FORM}{}. Write a part of one card, for example gpu-fraction: \"0.5\" or \"5e-1\".",
                if value.len() <= 64 { value.escape_debug().to_string() } else { quoted(value) }
            ),
        };
        self.add(annotation_field(names::GPU_FRACTION), value, FindingRule::FractionValue, message);
    }

    fn devices_value(&mut self, value: &str) {
        if share::devices(value).is_none() {
            let message = format!(
                "{DEVICES_VALUE}: {} is not one (at most {}). Write the number of cards as digits only, for example \
                 gpu-fraction-num-devices: \"2\", or remove the annotation for one card.",
                quoted(value),
                u32::MAX
            );
            self.add(
                annotation_field(names::GPU_FRACTION_NUM_DEVICES),
                value,
                FindingRule::DevicesValue,
                message,
            );
        }
    }

    fn container(&mut self, pod: &PodView<'_>, value: &str) {
        let all = || pod.spec.init_containers.iter().chain(&pod.spec.containers).map(|c| c.name.as_str());
        if all().any(|name| name == value) {
            return;
        }
        let closest = crate::model::closest(value, all());
        let fix = match closest {
            Some(name) => format!("Did you mean {}?", quoted(name)),
            None => format!("The containers are: {}.", all().map(quoted).collect::<Vec<_>>().join(", ")),
        };
        let message = format!(
            "failed to get fraction container ref: container with name {value} not found for fraction request. {fix} \
             Correct the annotation, or remove it for the first container.",
            value = if value.len() <= 64 { value.escape_debug().to_string() } else { quoted(value) }
        );
        self.add(
            annotation_field(names::GPU_FRACTION_CONTAINER),
            value,
            FindingRule::UnknownContainer,
            message,
        );
    }
}

fn shown_fraction(fraction: &str) -> String {
    if matches!(share::fraction(fraction), FractionReading::Sound(_)) && fraction.len() <= 20 {
        fraction.to_owned()
    } else {
        quoted(fraction)
    }
}

/// The resource of a field path: the text in its last brackets, or the list of claims.
fn resource_of(field: &str) -> &str {
    match field.rsplit_once('[') {
        Some(("spec.resourceClaims", _)) | None => "spec.resourceClaims",
        Some((_, rest)) => rest.trim_end_matches(']'),
    }
}

#[cfg(test)]
#[path = "validation_tests.rs"]
mod tests;
