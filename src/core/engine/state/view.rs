//! What the logic of one gang may read besides the gang.

use std::collections::BTreeMap;

use crate::engine::queue::Queue;
use crate::engine::settings::{EngineSettings, SafetyRule};
use crate::engine::state::GroupObjects;
use crate::model::{Epoch, GangId, Str, Time};
use crate::snapshot::Snapshot;

/// What the logic of one gang may read besides the gang: a view of the engine at one time. No other gang is
/// in it.
#[derive(Clone, Copy)]
pub(in crate::engine) struct EngineView<'e> {
    pub now: Time,
    /// The epoch under which the engine acts.
    pub epoch: Epoch,
    /// Whether the engine plans and lifts.
    pub leads: bool,
    pub settings: &'e EngineSettings,
    pub snapshot: &'e Snapshot,
    pub group_objects: &'e GroupObjects,
    /// Values of the PriorityClasses by name. `None` if RBAC forbids reading them.
    pub priority_classes: Option<&'e BTreeMap<Str, i32>>,
    pub queue: &'e Queue,
    /// The gang with the head-of-line reservation.
    pub head_of_line: Option<&'e GangId>,
    /// The number of gangs with a timer. The more there are, the less often each is written.
    pub timers: u32,
    /// Whether a pod without a gang waits for a scheduler. It could take planned capacity before the bind.
    pub is_contended: bool,
}

impl EngineView<'_> {
    /// Whether the engine follows a safety rule.
    pub(in crate::engine) fn enforces(&self, rule: SafetyRule) -> bool {
        self.settings.enforces(rule)
    }
}
