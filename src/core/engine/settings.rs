//! What the engine goes by.

use std::time::Duration;

use crate::dialect::{OnStale, OnTimeout, OnTorn};
use crate::snapshot::SharingMode;

/// What the engine goes by; resolved once, at start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineSettings {
    /// How long a lifted gang may take to be bound before it is torn.
    pub bind_timeout: Duration,
    /// Which nodes share their cards.
    pub sharing: SharingMode,
    /// What becomes of a torn gang, where its group does not say.
    pub on_torn: OnTorn,
    /// Whether members are nominated to their node before they are lifted, so that the scheduler keeps the room.
    pub nominate: NominationMode,
    /// Whether members without a VRAM share are tied to their node for good also where they are nominated to it.
    /// Without a nomination they always are: a scheduler need not look at the node that is only wished for. A group may say otherwise.
    pub pin_all: bool,
    /// How long a gathering or waiting gang must have looked the same before its status is written: most gangs gather
    /// and lift within this time, and need no word about it.
    pub quiet: Duration,
    /// Whether the status of the group objects is filled in.
    pub group_status: GroupStatusMode,
    /// What becomes of a gang that has not started within its timeout, where its group does not say.
    pub on_timeout: OnTimeout,
    /// What becomes of a gang that was whole and has lost members, where its group does not say.
    pub on_stale: OnStale,
    /// How long it may be so before anything becomes of it.
    pub stale_grace: Duration,
    /// How long a gang waits, smaller ones passing it, before the room it needs is held for it; zero is for ever.
    pub hold_after: Duration,
    /// How long room is held for members that are made only after others have started, while none of them comes.
    pub reserve_for: Duration,
    /// A rule that a test has taken away, to see that its absence is noticed.
    #[cfg(any(test, feature = "sabotage"))]
    pub disabled_rule: Option<SafetyRule>,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            bind_timeout: Duration::from_secs(60),
            sharing: SharingMode::default(),
            on_torn: OnTorn::default(),
            nominate: NominationMode::default(),
            pin_all: false,
            quiet: Duration::from_millis(500),
            group_status: GroupStatusMode::default(),
            on_timeout: OnTimeout::default(),
            on_stale: OnStale::default(),
            stale_grace: Duration::from_secs(60),
            hold_after: Duration::from_secs(300),
            reserve_for: Duration::from_secs(600),
            #[cfg(any(test, feature = "sabotage"))]
            disabled_rule: None,
        }
    }
}

impl EngineSettings {
    /// Whether a rule holds. It always does, unless a test has taken it away.
    pub(super) fn keeps(&self, rule: SafetyRule) -> bool {
        #[cfg(any(test, feature = "sabotage"))]
        {
            self.disabled_rule != Some(rule)
        }
        #[cfg(not(any(test, feature = "sabotage")))]
        {
            let _ = rule;
            true
        }
    }
}

/// When members are nominated to their node before they are lifted.
///
/// A nomination keeps the scheduler from giving the room away between our decision and the bind. That can only happen
/// while a pod that is not ours waits for a scheduler; at all other times eight writes for a gang of eight buy nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NominationMode {
    /// Always.
    Always,
    /// While a pod that belongs to no gang has no gate and no node.
    #[default]
    Contended,
    /// Never.
    Never,
}

/// Whether the status of the group objects is filled in, in the words of their stack.
///
/// Where that stack's own controllers live, the status is theirs. Nobody announces that: what shows it is that somebody
/// else has written the status (`metadata.managedFields`), or that the pods are meant for that stack's scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupStatusMode {
    /// Unless somebody else has written the status of that group, or its pods name a scheduler that places gangs itself.
    #[default]
    Auto,
    /// Never.
    Never,
}

/// The rules whose absence a test must notice (see `EngineSettings::broken` under the feature `sabotage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SafetyRule {
    /// Lifts may be sent only after the plan is durable and the lease was then read and is ours.
    Verify,
    /// A lift tests the version of the pod that was known before that read.
    LiftPermit,
    /// A new leader writes every still-gated member of every plan it finds before it plans.
    Fence,
    /// Who sees a newer epoch steps down.
    NewerEpoch,
    /// Planned and lifted pods hold their place until they are bound.
    Reserve,
    /// The plan is durable before anything is lifted.
    RecordFirst,
    /// A pod that is gone frees what it held.
    ReleaseOnDelete,
    /// Nothing new of an elastic gang is planned before the owners of its pods have said how many they want.
    AskOwners,
    /// What the owners of an elastic gang want beyond what runs starts together.
    GrowTogether,
    /// That pods have expired is durable before any of them is deleted.
    ExpireFirst,
    /// What a leader finds to have expired, by the word of another, goes: it is neither planned nor forgotten.
    HeedExpired,
}
