//! Checks of GPU nodes: missing labels, and incomplete setups of sharing.

use std::collections::BTreeSet;

use portcullis_core::objects::{GpuSharing, Node, names};
use portcullis_core::pod::{Pod, PodPhase};

use super::checks::{DoctorCheck, named};

pub(super) fn checks(nodes: &[Node], pods: &[Pod]) -> Vec<DoctorCheck> {
    let with_gpus: Vec<&Node> =
        nodes.iter().filter(|node| node.gpus.cards > 0 || node.gpus.sharing != GpuSharing::No).collect();
    if with_gpus.is_empty() {
        return vec![DoctorCheck::ok("GPU nodes", "no node has GPUs; gangs without GPUs are planned anyway")];
    }
    let mut checks = vec![memory(&with_gpus)];
    checks.extend(sharing(&with_gpus, pods));
    checks
}

fn names_of(nodes: &[&Node]) -> Vec<String> {
    nodes.iter().map(|node| node.name.to_string()).collect()
}

fn memory(nodes: &[&Node]) -> DoctorCheck {
    const NAME: &str = "GPU labels";
    let without: Vec<&Node> =
        nodes.iter().copied().filter(|node| node.gpus.vram_each.is_none() && !node.gpus.mig).collect();
    if without.is_empty() {
        return DoctorCheck::ok(
            NAME,
            format!("GPU memory is known on {}", portcullis_text::counted(nodes.len(), "node", "nodes")),
        );
    }
    let names = names_of(&without);
    let label = names::NVIDIA_GPU_MEMORY;
    DoctorCheck::warn(
        NAME,
        format!("label {label} is missing on {}: their cards cannot be shared by memory", named(&names)),
        [
            "# NVIDIA GPU feature discovery sets it. To set it by hand, in MiB of one card:".to_owned(),
            format!("kubectl label node {} {label}=MIB", names.join(" ")),
        ],
    )
}

fn sharing(nodes: &[&Node], pods: &[Pod]) -> Vec<DoctorCheck> {
    const NAME: &str = "shared nodes";
    let of = |sharing: GpuSharing| -> Vec<&Node> {
        nodes.iter().copied().filter(|node| node.gpus.sharing == sharing).collect()
    };
    let (key, value) = (names::SHARING, names::SHARING_VRAM);
    let label = |nodes: &str| format!("kubectl label node {nodes} {key}={value}");
    let taint = |nodes: &str| format!("kubectl taint node {nodes} {key}={value}:NoSchedule");
    let mut checks = Vec::new();
    let label_only = names_of(&of(GpuSharing::LabelOnly));
    if !label_only.is_empty() {
        let message = format!("{}: label without taint, so its cards are not shared", named(&label_only));
        checks.push(DoctorCheck::warn(NAME, message, [taint(&label_only.join(" "))]));
    }
    let taint_only = names_of(&of(GpuSharing::TaintOnly));
    if !taint_only.is_empty() {
        let message = format!("{}: taint without label, so its cards are not shared", named(&taint_only));
        checks.push(DoctorCheck::warn(NAME, message, [label(&taint_only.join(" "))]));
    }
    let shared = of(GpuSharing::Vram);
    let on_shared: BTreeSet<&str> = shared.iter().map(|node| &*node.name.0).collect();
    let alive = |pod: &&Pod| !matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
    let whole: Vec<&Pod> = pods
        .iter()
        .filter(alive)
        .filter(|pod| pod.node.as_ref().is_some_and(|node| on_shared.contains(&*node.0)))
        .filter(|pod| pod.shape.requests.extended(names::NVIDIA_GPU) > 0)
        .collect();
    if !whole.is_empty() {
        let pairs: Vec<String> = whole
            .iter()
            .map(|pod| format!("{} on {}", pod.key, pod.node.as_ref().map_or("", |node| &*node.0)))
            .collect();
        let message = format!(
            "pods use whole GPUs on shared nodes ({}): the cards are unknown, so these nodes accept no more shares",
            named(&pairs)
        );
        let remedy: Vec<String> = whole
            .iter()
            .take(3)
            .map(|pod| format!("kubectl delete pod -n {} {}", pod.key.namespace, pod.key.name))
            .collect();
        checks.push(DoctorCheck::warn(NAME, message, remedy));
    }
    let wants_share = |pod: &&Pod| pod.node.is_none() && pod.shape.share.is_some();
    let wanting = pods.iter().filter(alive).filter(wants_share).count();
    if shared.is_empty() && wanting > 0 {
        let message = format!("{} for a share of a card, but no node is shared", waits(wanting));
        checks.push(DoctorCheck::warn(NAME, message, [label("NODE"), taint("NODE")]));
    }
    if checks.is_empty() {
        checks.push(DoctorCheck::ok(
            NAME,
            format!("{} shared by memory", portcullis_text::counted(shared.len(), "node", "nodes")),
        ));
    }
    checks
}

fn waits(number: usize) -> String {
    if number == 1 { "1 pod waits".to_owned() } else { format!("{number} pods wait") }
}
