//! Resources that can be short, and the texts for amounts of them.

use super::requirements::{InfeasibleReason, PodRequirements};
use crate::model::MilliCpu;

/// A resource of which a node or a card can have too little. Amounts are in the units of
/// [`crate::model::Resources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceKind<'a> {
    Cpu,
    Memory,
    EphemeralStorage,
    Gpus,
    Extended(&'a str),
    Vram,
}

impl<'a> ResourceKind<'a> {
    /// The resource that is short by this reason; `None` when the reason is not about an amount.
    pub(super) fn of(reason: InfeasibleReason, need: &PodRequirements<'a>) -> Option<Self> {
        Some(match reason {
            InfeasibleReason::Cpu => Self::Cpu,
            InfeasibleReason::Memory => Self::Memory,
            InfeasibleReason::EphemeralStorage => Self::EphemeralStorage,
            InfeasibleReason::Gpus => Self::Gpus,
            InfeasibleReason::Extended(index) => Self::Extended(need.extended_name(index)),
            InfeasibleReason::Vram => Self::Vram,
            _ => return None,
        })
    }

    /// The exact amount with its unit: `4 cores`, `16 GiB`, `2 GPUs`, `8000 MiB`, `3 example.com/fpga`.
    pub(super) fn format(self, amount: u64) -> String {
        match self {
            Self::Cpu => MilliCpu(amount).to_string(),
            Self::Memory | Self::EphemeralStorage => format_bytes(amount),
            Self::Gpus => format!("{amount} GPU{}", if amount == 1 { "" } else { "s" }),
            Self::Extended(name) => format!("{amount} {name}"),
            Self::Vram => format!("{amount} MiB"),
        }
    }

    /// The amount with unit and resource: `16 GiB memory`, `8000 MiB VRAM`.
    pub(super) fn format_with_name(self, amount: u64) -> String {
        let text = self.format(amount);
        match self {
            Self::Cpu => format!("{text} of cpu"),
            Self::Memory => format!("{text} memory"),
            Self::EphemeralStorage => format!("{text} ephemeral-storage"),
            Self::Gpus | Self::Extended(_) => text,
            Self::Vram => format!("{text} VRAM"),
        }
    }

    /// The missing amount: `8000 MiB more VRAM`, `2 more GPUs`.
    pub(super) fn format_missing(self, amount: u64) -> String {
        let text = self.format(amount);
        match self {
            Self::Cpu => format!("{text} more cpu"),
            Self::Memory => format!("{text} more memory"),
            Self::EphemeralStorage => format!("{text} more ephemeral-storage"),
            Self::Gpus => format!("{amount} more GPU{}", if amount == 1 { "" } else { "s" }),
            Self::Extended(name) => format!("{amount} more {name}"),
            Self::Vram => format!("{text} more VRAM"),
        }
    }

    /// A part of a total: `3 of 4 cores`. An equal unit is written once.
    pub(super) fn format_part(self, part: u64, total: u64) -> String {
        let (part, total) = match self {
            Self::Gpus | Self::Extended(_) => (part.to_string(), total.to_string()),
            _ => (self.format(part), self.format(total)),
        };
        let unit = |text: &str| text.split_once(' ').map(|(_, unit)| unit.trim_end_matches('s').to_owned());
        match part.split_once(' ') {
            Some((number, _)) if unit(&part) == unit(&total) => format!("{number} of {total}"),
            _ => format!("{part} of {total}"),
        }
    }

    /// Ascending amounts as a sum: `4000 + 8000 + 8000 MiB`, or `64 x 8000 MiB` for more than four or equal
    /// ones.
    pub(super) fn format_sum(self, amounts: &[u64]) -> String {
        if let [one] = amounts {
            return self.format(*one);
        }
        if amounts.len() <= 4 && amounts.first() != amounts.last() {
            let without_unit = |amount: &u64| match self {
                Self::Vram | Self::Gpus => amount.to_string(),
                _ => self.format(*amount),
            };
            let (last, rest) = amounts.split_last().expect("more than one, see above");
            let rest: Vec<String> = rest.iter().map(without_unit).collect();
            return format!("{} + {}", rest.join(" + "), self.format(*last));
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for amount in amounts {
            match runs.last_mut() {
                Some((size, number)) if size == amount => *number += 1,
                _ => runs.push((*amount, 1)),
            }
        }
        let runs: Vec<String> =
            runs.iter().map(|(size, number)| format!("{number} x {}", self.format(*size))).collect();
        runs.join(" + ")
    }
}

/// Bytes in the largest unit that is exact to a tenth.
fn format_bytes(amount: u64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        let one = 1_u64 << shift;
        if amount >= one && (u128::from(amount) * 10).is_multiple_of(u128::from(one)) {
            return match (amount / one, (u128::from(amount) * 10 / u128::from(one)) % 10) {
                (whole, 0) => format!("{whole} {unit}"),
                (whole, tenth) => format!("{whole}.{tenth} {unit}"),
            };
        }
    }
    format!("{amount} B")
}
