//! Findings: what is wrong with an object, with the field, the value, the rule and the fix.

/// The rule that a finding reports: a stable code for logs, metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingRule {
    /// A pod requests a share of a GPU and GPU sharing is disabled.
    SharingDisabled,
    /// `mps` without a request for a share.
    MpsWithoutShare,
    /// `gpu-fraction` beside whole GPUs, MIG slices or DRA claims.
    FractionAndWhole,
    /// `gpu-memory` beside whole GPUs, MIG slices, DRA claims or `gpu-fraction`.
    MemoryAndWhole,
    /// `gpu-fraction-num-devices` without a request for a share.
    DevicesWithoutShare,
    /// `gpu-memory` is not a positive integer, or too large.
    MemoryValue,
    /// `gpu-fraction` is not a number between 0 and 1.
    FractionValue,
    /// `gpu-fraction-num-devices` is not a positive integer.
    DevicesValue,
    /// `gpu-fraction-container-name` does not name a container of the pod.
    UnknownContainer,
    /// `gpu-fraction-container-name` without a request for a share.
    ContainerWithoutShare,
    /// Two keys of the same dialect name different groups.
    GroupsDiffer,
    /// A pod names groups of two dialects.
    TwoGroups,
    /// The size of a gang is not a number, or unreadable.
    SizeValue,
    /// An update moves a pod to another group, or out of its group.
    GroupChanged,
    /// An update changes the GPU share of a started gang member.
    ShareChanged,
    /// A member is created without the scheduling gate of Portcullis.
    GateMissing,
    /// A member with a GPU share is created without the toleration of shared nodes.
    TolerationMissing,
    /// A member with a GPU share is created without the environment variable that names its GPU.
    CardsUnknown,
}

impl FindingRule {
    /// The code in logs and metrics.
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

    /// The `reason` of the cause in a `Status`, with the values of `metav1.CauseType`.
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

/// One violation of a rule. The message is complete in itself, because kubectl prints only the messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// Path of the field, such as `metadata.annotations[gpu-memory]`.
    pub field: String,
    /// The value of the field.
    pub value: String,
    /// The violated rule.
    pub rule: FindingRule,
    /// What is wrong and how to fix it, without the field path.
    pub message: String,
}
