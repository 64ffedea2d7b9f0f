//! Settings of the engine, and the safety rules that tests can disable.

use std::time::Duration;

use crate::dialect::{OnStale, OnTimeout, OnTorn};
use crate::snapshot::SharingMode;

/// Settings of the engine, resolved once at the start of the process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineSettings {
    /// Time from the lift of a gang to its binding. After that it is torn.
    pub bind_timeout: Duration,
    /// The nodes that share their cards.
    pub sharing: SharingMode,
    /// Policy for a torn gang whose group sets none.
    pub on_torn: OnTorn,
    /// How often the unbound members of a torn gang are replaced before the whole gang is evicted.
    pub torn_retries: u32,
    /// After this time a torn gang with the policy to retry is evicted as a whole.
    pub torn_timeout: Duration,
    /// When members are nominated to their node before they are lifted, so that the scheduler keeps the
    /// capacity.
    pub nominate: NominationMode,
    /// Whether nominated members without a share of a card are pinned with required affinity too. Members
    /// that are not nominated always are, because a scheduler need not look at a preferred node. A group may
    /// override it.
    pub pin_all: bool,
    /// How long the status of a gathering or waiting gang must be stable before it is written. Most gangs
    /// gather and lift within this time and need no such write.
    pub status_delay: Duration,
    /// Whether the engine writes the status of group objects.
    pub group_status: GroupStatusMode,
    /// Policy for a gang that has not started within its timeout, if its group sets none.
    pub on_timeout: OnTimeout,
    /// Policy for a gang that was complete and has lost members, if its group sets none.
    pub on_stale: OnStale,
    /// Grace period of a stale gang.
    pub stale_grace: Duration,
    /// After this wait the head of the queue gets a reservation. Until then smaller gangs may pass it. Zero
    /// disables reservations.
    pub hold_after: Duration,
    /// How long placeholders are reserved while no new member is created.
    pub reserve_for: Duration,
    /// A safety rule that a test has disabled, to see that its absence is noticed.
    #[cfg(any(test, feature = "sabotage"))]
    pub disabled_rule: Option<SafetyRule>,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            bind_timeout: Duration::from_secs(60),
            sharing: SharingMode::default(),
            on_torn: OnTorn::default(),
            torn_retries: 3,
            torn_timeout: Duration::from_secs(600),
            nominate: NominationMode::default(),
            pin_all: false,
            status_delay: Duration::from_millis(500),
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
    /// Whether the engine follows a safety rule. It always does, unless a test has disabled it.
    pub(super) fn enforces(&self, rule: SafetyRule) -> bool {
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
/// A nomination keeps the scheduler from assigning the capacity to another pod between the plan and the bind.
/// That can only happen while a pod without a gang waits for a scheduler. At all other times, eight writes
/// for a gang of eight gain nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NominationMode {
    /// Always.
    Always,
    /// While a pod without a gang has no gate and no node.
    #[default]
    Contended,
    /// Never.
    Never,
}

/// Whether the engine writes the status of group objects, in the terms of their stack.
///
/// If the controllers of that stack run in the cluster, the status is theirs. No API says which controller
/// owns the status of a pod group. Two signs show it: another field manager has written the status
/// (`metadata.managedFields`), or the pods name the scheduler of that stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupStatusMode {
    /// Unless another field manager has written the status of that group, or its pods name a scheduler that
    /// places gangs itself.
    #[default]
    Auto,
    /// Never.
    Never,
}

/// The safety rules. A test that disables one must fail (see `EngineSettings::disabled_rule`, feature
/// `sabotage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SafetyRule {
    /// Lifts are sent only after the plan is durable and a later read of the lease names this replica.
    Verify,
    /// A lift tests the version of the pod that was known before that read.
    LiftPermit,
    /// A new leader writes every still-gated member of every plan it finds before it plans.
    Fence,
    /// An engine that reads a newer epoch steps down.
    NewerEpoch,
    /// Planned and lifted pods are charged until they are bound.
    Reserve,
    /// The plan is durable before anything is lifted.
    RecordFirst,
    /// A deleted pod releases its charge.
    ReleaseOnDelete,
    /// An elastic gang is planned only after the owners of its pods have been read.
    AskOwners,
    /// The members of a scale-up start together.
    GrowTogether,
    /// Expiry of pods is durable before one of them is deleted.
    ExpireFirst,
    /// A leader deletes pods that a stored status calls expired, and neither plans nor forgets them.
    ObserveExpired,
}
