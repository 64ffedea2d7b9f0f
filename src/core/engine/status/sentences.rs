//! Parts of sentences that a status and its events share.

use std::collections::BTreeMap;

use crate::engine::members::MemberCounts;
use crate::engine::protocol::PlanRecord;
use crate::gpu::ShareSize;
use crate::model::{Bytes, MilliCpu, VramMib};
use crate::objects::names;
use crate::shape::Shape;

/// A sentence names at most this many members before "and N more".
const MAX_NAMED_MEMBERS: usize = 8;

/// The sum of resource requests: GPUs and VRAM first, because they are scarce; CPU and memory only if there
/// is nothing else.
pub(super) fn needs(shapes: &[&Shape]) -> String {
    let mut parts = Vec::new();
    let (mut vram, mut billionths) = (VramMib::ZERO, 0_u64);
    for share in shapes.iter().filter_map(|s| s.share) {
        for _ in 0..share.devices {
            match share.size {
                ShareSize::Vram(mib) => vram = vram.saturating_add(mib),
                ShareSize::Fraction(part) => billionths = billionths.saturating_add(part),
            }
        }
    }
    if vram > VramMib::ZERO {
        parts.push(format!("{vram} VRAM"));
    }
    if billionths > 0 {
        let hundredths = billionths / 10_000_000;
        parts.push(format!("{}.{:02} GPU (fractions)", hundredths / 100, hundredths % 100));
    }
    let mut extended = BTreeMap::new();
    for (name, amount) in shapes.iter().flat_map(|s| &s.requests.extended) {
        let sum: &mut u64 = extended.entry(name).or_default();
        *sum = sum.saturating_add(*amount);
    }
    for (name, amount) in extended {
        parts.push(if &**name == names::NVIDIA_GPU {
            format!("{amount} GPU")
        } else {
            format!("{amount} {name}")
        });
    }
    if parts.is_empty() {
        let cpu = shapes.iter().fold(MilliCpu::ZERO, |sum, s| sum.saturating_add(s.requests.cpu));
        let memory = shapes.iter().fold(Bytes::ZERO, |sum, s| sum.saturating_add(s.requests.memory));
        parts.push(format!("{cpu}, {memory}"));
    }
    parts.join(", ")
}

/// `3 of 4`: planned and live members.
pub(super) fn placed(members: usize, counts: &MemberCounts) -> String {
    format!("{members} of {}", counts.live)
}

/// `app-server -> gpu-1[0], model-1 -> gpu-2[0,1], worker -> node-3`.
pub(super) fn places(plan: &PlanRecord) -> String {
    let lines: Vec<String> = (plan.members.iter())
        .map(|m| {
            let cards = m.gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let cards = if cards.is_empty() { cards } else { format!("[{cards}]") };
            format!("{} -> {}{cards}", m.pod, m.node)
        })
        .collect();
    shorten(&lines, ", ")
}

/// Joins the first lines, and counts the others.
pub(super) fn shorten(lines: &[String], separator: &str) -> String {
    let mut text = lines.iter().take(MAX_NAMED_MEMBERS).cloned().collect::<Vec<_>>().join(separator);
    if lines.len() > MAX_NAMED_MEMBERS {
        text = format!("{text}{separator}and {} more", lines.len() - MAX_NAMED_MEMBERS);
    }
    text
}
