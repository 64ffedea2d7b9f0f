//! Amounts and refusals in words.

use super::need::{Denial, Need};
use super::report::UnschedulableReason;
use super::survey::Survey;
use crate::model::{MilliCpu, Reason};
use crate::objects::names;
use crate::snapshot::CardState;

/// Something that is counted and can be short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount<'a> {
    Cpu,
    Memory,
    EphemeralStorage,
    Gpus,
    Extended(&'a str),
    Vram,
}

impl<'a> Amount<'a> {
    /// What a denial says is short; `None` where it is not about an amount.
    pub(super) fn of(denial: Denial, need: &Need<'a>) -> Option<Self> {
        Some(match denial {
            Denial::Cpu => Self::Cpu,
            Denial::Memory => Self::Memory,
            Denial::EphemeralStorage => Self::EphemeralStorage,
            Denial::Gpus => Self::Gpus,
            Denial::Extended(index) => Self::Extended(need.extended_name(index)),
            Denial::Vram => Self::Vram,
            _ => return None,
        })
    }

    /// `4 cores`, `16 GiB`, `2 GPUs`, `8000 MiB`, `3 example.com/fpga`. Exact, whatever it takes.
    pub(super) fn say(self, amount: u64) -> String {
        match self {
            Self::Cpu => MilliCpu(amount).to_string(),
            Self::Memory | Self::EphemeralStorage => bytes(amount),
            Self::Gpus => format!("{amount} GPU{}", if amount == 1 { "" } else { "s" }),
            Self::Extended(name) => format!("{amount} {name}"),
            Self::Vram => format!("{amount} MiB"),
        }
    }

    /// The same where it is not clear what is meant: `16 GiB memory`, `8000 MiB VRAM`.
    pub(super) fn name(self, amount: u64) -> String {
        let said = self.say(amount);
        match self {
            Self::Cpu => format!("{said} of cpu"),
            Self::Memory => format!("{said} memory"),
            Self::EphemeralStorage => format!("{said} ephemeral-storage"),
            Self::Gpus | Self::Extended(_) => said,
            Self::Vram => format!("{said} VRAM"),
        }
    }

    /// What is missing: `8000 MiB more VRAM`, `2 more GPUs`.
    pub(super) fn more(self, amount: u64) -> String {
        let said = self.say(amount);
        match self {
            Self::Cpu => format!("{said} more cpu"),
            Self::Memory => format!("{said} more memory"),
            Self::EphemeralStorage => format!("{said} more ephemeral-storage"),
            Self::Gpus => format!("{amount} more GPU{}", if amount == 1 { "" } else { "s" }),
            Self::Extended(name) => format!("{amount} more {name}"),
            Self::Vram => format!("{said} more VRAM"),
        }
    }

    /// `3 of 4 cores`: the unit once where it is the same.
    pub(super) fn part(self, free: u64, of: u64) -> String {
        let (free, of) = match self {
            Self::Gpus | Self::Extended(_) => (free.to_string(), of.to_string()),
            _ => (self.say(free), self.say(of)),
        };
        let unit = |text: &str| text.split_once(' ').map(|(_, unit)| unit.trim_end_matches('s').to_owned());
        match free.split_once(' ') {
            Some((number, _)) if unit(&free) == unit(&of) => format!("{number} of {of}"),
            _ => format!("{free} of {of}"),
        }
    }
}

/// Bytes in the largest unit that tells them exactly, to a tenth.
fn bytes(amount: u64) -> String {
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

/// A refusal as it is counted in reports.
pub(super) fn refusal(denial: Denial, need: &Need<'_>, survey: &Survey) -> UnschedulableReason {
    let about = |reason, what: &str| UnschedulableReason::Detailed(reason, what.to_owned());
    match denial {
        Denial::NotReady => about(Reason::NodeUnavailable, "not ready"),
        Denial::Cordoned => about(Reason::NodeUnavailable, "cordoned"),
        Denial::Taint { index, .. } => {
            UnschedulableReason::Detailed(Reason::UntoleratedTaint, survey.taints[index as usize].to_string())
        }
        Denial::Choice => UnschedulableReason::Plain(Reason::NodeAffinityMismatch),
        Denial::Cards(state) => match state {
            CardState::NoCards => about(Reason::NoSharedNode, "no GPU"),
            CardState::Open | CardState::NotShared => UnschedulableReason::Plain(Reason::NoSharedNode),
            CardState::LabelOnly => {
                about(Reason::NoSharedNode, "label portcullis.dev/gpu-sharing=vram without the taint")
            }
            CardState::TaintOnly => {
                about(Reason::NoSharedNode, "taint portcullis.dev/gpu-sharing=vram without the label")
            }
            CardState::Mig => about(Reason::NoSharedNode, "cards cut into MIG slices"),
            CardState::MissingVramLabel => UnschedulableReason::Plain(Reason::MissingVramLabel),
            CardState::WholeGpusHeld => {
                about(Reason::InsufficientVram, "cards unknown: a pod holds nvidia.com/gpu there")
            }
            CardState::UnknownShare => about(
                Reason::InsufficientVram,
                "cards unknown: a pod shares cards there and does not say which",
            ),
        },
        Denial::SharedNode => {
            about(Reason::InsufficientExtended, &format!("{} (cards are shared by VRAM)", names::NVIDIA_GPU))
        }
        Denial::Pods => UnschedulableReason::Plain(Reason::TooManyPods),
        Denial::Port => {
            let ports: Vec<String> = need
                .shape
                .host_ports
                .iter()
                .map(|(_, protocol, port)| format!("{port}/{protocol}"))
                .collect();
            UnschedulableReason::Detailed(Reason::HostPortConflict, ports.join(", "))
        }
        Denial::Vram => UnschedulableReason::Plain(Reason::InsufficientVram),
        Denial::Gpus => about(Reason::InsufficientExtended, names::NVIDIA_GPU),
        Denial::Extended(index) => about(Reason::InsufficientExtended, need.extended_name(index)),
        Denial::Cpu => UnschedulableReason::Plain(Reason::InsufficientCpu),
        Denial::Memory => UnschedulableReason::Plain(Reason::InsufficientMemory),
        Denial::EphemeralStorage => UnschedulableReason::Plain(Reason::InsufficientEphemeralStorage),
    }
}
