//! What is wrong with an object: the place, the value, the rule and the way out, each finding complete in itself.

/// The rule a finding stands on: a stable code for logs, metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingRule {
    /// A share of a card is asked for and sharing is switched off.
    SharingDisabled,
    /// `mps` without a share.
    MpsWithoutShare,
    /// `gpu-fraction` beside whole GPUs, MIG slices or DRA claims.
    FractionAndWhole,
    /// `gpu-memory` beside whole GPUs, MIG slices, DRA claims or `gpu-fraction`.
    MemoryAndWhole,
    /// `gpu-fraction-num-devices` without a share.
    DevicesWithoutShare,
    /// `gpu-memory` is no positive whole number, or too large to count with.
    MemoryValue,
    /// `gpu-fraction` is no number between 0 and 1.
    FractionValue,
    /// `gpu-fraction-num-devices` is no positive whole number.
    DevicesValue,
    /// `gpu-fraction-container-name` names no container of the pod.
    UnknownContainer,
    /// `gpu-fraction-container-name` without a share.
    ContainerWithoutShare,
    /// Two keys of one pair name different groups.
    GroupsDiffer,
    /// One pod names groups in two dialects.
    TwoGroups,
    /// How many members a gang takes is no number, or cannot be read.
    SizeValue,
    /// An existing pod is moved to another group, or out of its group.
    GroupChanged,
    /// The share of a started gang member is changed.
    ShareChanged,
    /// A member is created without our scheduling gate.
    GateMissing,
    /// A member with a share of a card is created without the toleration of shared nodes.
    TolerationMissing,
    /// A member with a share of a card is created without the variable that tells it which card is its own.
    CardsUnknown,
}

impl FindingRule {
    /// The code as logs and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SharingDisabled => "SharingDisabled",
            Self::MpsWithoutShare => "MpsWithoutShare",
            Self::FractionAndWhole => "FractionAndWhole",
            Self::MemoryAndWhole => "MemoryAndWhole",
            Self::DevicesWithoutShare => "DevicesWithoutShare",
            Self::MemoryValue => "MemoryValue",
            Self::FractionValue => "FractionValue",
            Self::DevicesValue => "DevicesValue",
            Self::UnknownContainer => "UnknownContainer",
            Self::ContainerWithoutShare => "ContainerWithoutShare",
            Self::GroupsDiffer => "GroupsDiffer",
            Self::TwoGroups => "TwoGroups",
            Self::SizeValue => "SizeValue",
            Self::GroupChanged => "GroupChanged",
            Self::ShareChanged => "ShareChanged",
            Self::GateMissing => "GateMissing",
            Self::TolerationMissing => "TolerationMissing",
            Self::CardsUnknown => "CardsUnknown",
        }
    }

    /// The `reason` of the cause in a `Status`, in the words of Kubernetes (`metav1.CauseType`).
    pub fn cause_type(self) -> &'static str {
        match self {
            Self::MemoryValue
            | Self::FractionValue
            | Self::DevicesValue
            | Self::GroupsDiffer
            | Self::SizeValue
            | Self::GroupChanged
            | Self::ShareChanged => "FieldValueInvalid",
            Self::UnknownContainer => "FieldValueNotFound",
            Self::GateMissing | Self::TolerationMissing | Self::CardsUnknown => "FieldValueRequired",
            Self::SharingDisabled
            | Self::MpsWithoutShare
            | Self::FractionAndWhole
            | Self::MemoryAndWhole
            | Self::DevicesWithoutShare
            | Self::TwoGroups
            | Self::ContainerWithoutShare => "FieldValueForbidden",
        }
    }
}

/// One thing that is wrong. The message stands alone: kubectl prints findings as a list and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// Path of the field, such as `metadata.annotations[gpu-memory]`.
    pub field: String,
    /// What stands there.
    pub value: String,
    /// The rule it breaks.
    pub rule: FindingRule,
    /// What is wrong and what to do, without the path.
    pub message: String,
}
