//! A share of a card, as the pod's annotations ask for it.

use crate::model::VramMib;
use crate::objects::names;
use crate::objects::view::PodView;

/// How much of each card a pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShareSize {
    /// `gpu-memory`.
    Vram(VramMib),
    /// `gpu-fraction` in billionths of a card: integers only where capacity is concerned.
    Fraction(u64),
}

/// A share of one or more cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuShare {
    /// On each card.
    pub size: ShareSize,
    /// On how many different cards of one node.
    pub devices: u32,
}

impl GpuShare {
    /// The share a pod asks for; `None` when it asks for none, or for one that admission would have rejected.
    pub fn of(pod: &PodView<'_>) -> Option<Self> {
        let annotation = |key| pod.metadata.annotations.text(key);
        let devices = match annotation(names::GPU_FRACTION_NUM_DEVICES) {
            None => 1,
            Some(count) => count.parse().ok().filter(|n| *n > 0)?,
        };
        let size = match annotation(names::GPU_MEMORY) {
            Some(mib) => ShareSize::Vram(VramMib(mib.parse().ok().filter(|n| *n > 0)?)),
            None => ShareSize::Fraction(fraction(annotation(names::GPU_FRACTION)?)?),
        };
        Some(Self { size, devices })
    }

    /// MiB on a card of this size; a fraction is rounded up, so that shares never add up to more than the card.
    pub fn on_card(&self, card: VramMib) -> VramMib {
        match self.size {
            ShareSize::Vram(mib) => mib,
            ShareSize::Fraction(billionths) => {
                let mib = (u128::from(card.0) * u128::from(billionths)).div_ceil(1_000_000_000);
                VramMib(u64::try_from(mib).unwrap_or(u64::MAX))
            }
        }
    }
}

fn fraction(text: &str) -> Option<u64> {
    crate::model::Quantity::parse(text)
        .ok()
        .map(crate::model::Quantity::nanos)
        .filter(|n| *n > 0 && *n < 1_000_000_000)
}
