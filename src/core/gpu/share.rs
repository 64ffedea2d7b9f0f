//! Shares of a card, as pods request them by annotation.

use super::GpuRules;
use crate::model::{Quantity, VramMib};
use crate::objects::names;
use crate::objects::view::PodView;
use serde::{Deserialize, Serialize};

/// How much of each card a pod requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ShareSize {
    /// `gpu-memory`.
    Vram(VramMib),
    /// `gpu-fraction` in billionths of a card. Capacity is counted in integers only.
    Fraction(u64),
}

/// A share of one or more cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GpuShare {
    /// The size on each card.
    pub size: ShareSize,
    /// Number of different cards of one node.
    pub devices: u32,
}

impl GpuShare {
    /// The share that a pod requests; `None` without one, and when the default [`GpuRules`] reject it
    /// (see [`super::findings`]).
    pub fn of(pod: &PodView<'_>) -> Option<Self> {
        if !super::asks_for_share(pod) || !super::findings(pod, &GpuRules::default()).is_empty() {
            return None;
        }
        let annotation = |key| pod.metadata.annotations.text(key);
        let devices = annotation(names::GPU_FRACTION_NUM_DEVICES).map_or(Some(1), devices)?;
        let size = match annotation(names::GPU_MEMORY) {
            Some(mib) => ShareSize::Vram(memory(mib)?),
            None => match fraction(annotation(names::GPU_FRACTION)?) {
                FractionReading::Sound(billionths) => ShareSize::Fraction(billionths),
                FractionReading::OutOfRange | FractionReading::BadForm => return None,
            },
        };
        Some(Self { size, devices })
    }

    /// MiB on a card of this size. A fraction is rounded up, so shares never add up to more than the card.
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

/// The value of `gpu-fraction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FractionReading {
    /// Valid: billionths of a card, at least one and less than the whole card.
    Sound(u64),
    /// Not a number, or not between 0 and 1.
    OutOfRange,
    /// A number for Go's `ParseFloat` that is not a Kubernetes quantity (`NaN`, `0x1p-1`).
    BadForm,
}

/// Digits only, as Go's `ParseUint` in base 10: no sign, no spaces, no suffix.
fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Value of `gpu-memory`. KAI's scheduler parses an `i64` and ignores larger values; Portcullis rejects them.
pub(super) fn memory(text: &str) -> Option<VramMib> {
    digits(text).filter(|mib| *mib > 0 && i64::try_from(*mib).is_ok()).map(VramMib)
}

/// Value of `gpu-fraction-num-devices`.
pub(super) fn devices(text: &str) -> Option<u32> {
    digits(text).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)
}

/// Value of `gpu-fraction`: a float between 0 and 1 and a quantity, as KAI requires. A value finer than a
/// billionth is rounded up, but never to a whole card.
pub(super) fn fraction(text: &str) -> FractionReading {
    const WHOLE: i128 = 1_000_000_000;
    let unsigned = text.trim_start_matches(['+', '-']);
    if unsigned.get(..2).is_some_and(|p| p.eq_ignore_ascii_case("0x")) {
        return FractionReading::BadForm;
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_nan() => FractionReading::BadForm,
        Ok(number) if number > 0.0 && number < 1.0 => match Quantity::parse(text) {
            Ok(quantity) => {
                FractionReading::Sound(u64::try_from(quantity.nanos().clamp(1, WHOLE - 1)).unwrap_or(1))
            }
            Err(_) => FractionReading::BadForm,
        },
        _ => FractionReading::OutOfRange,
    }
}
