//! Injected faults: at once, or at a step of the lift protocol. For example, the simulation kills the leader
//! right after its second lift, or cordons a node right after a plan was written.

use std::time::Duration;

use super::Cluster;
use crate::api::{LiftPolicy, ObjectKind};
use portcullis_core::engine::Action;

/// A step of the lift protocol: the leader has just sent an effect of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultTrigger {
    /// A plan is written to the `Gang` object.
    Plan,
    /// A member is nominated to its node.
    Nominate,
    /// The lease is read before lifting.
    Verify,
    /// A gate is removed.
    Lift,
    /// A new leader fences a member.
    Fence,
    /// Any request.
    Request,
}

impl FaultTrigger {
    pub(super) fn of(action: &Action) -> Option<Self> {
        Some(match action {
            Action::WriteGang { status, .. } if status.plan.is_some() => Self::Plan,
            Action::Nominate { .. } => Self::Nominate,
            Action::ReadLease => Self::Verify,
            Action::Lift { .. } => Self::Lift,
            Action::Fence { .. } => Self::Fence,
            _ => return None,
        })
    }
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Kills the leader, which restarts after this time.
    KillLeader(Duration),
    /// Pauses the leader for this time.
    PauseLeader(Duration),
    /// Kills this replica, which restarts after this time.
    Kill(usize, Duration),
    /// Pauses this replica for this time.
    Pause(usize, Duration),
    /// Cordons (`true`) or uncordons a node.
    Cordon(String, bool),
    /// Sets the condition `Ready` of a node.
    Ready(String, bool),
    /// Restarts the scheduler, which forgets nominations.
    RestartScheduler,
    /// A plugin of the scheduler refuses a node (`true`), or accepts it again. Portcullis does not know why.
    SchedulerRefuses(String, bool),
    /// Breaks the watches of this kind in every replica for this time.
    BreakWatches(ObjectKind, Duration),
    /// A policy refuses to lift the pods of this name or `KEY=VALUE` label. `None` removes the policy.
    RefuseLifts(Option<String>),
    /// Moves the leader's clock ahead by this time.
    JumpClock(Duration),
}

/// A fault that waits for its trigger.
#[derive(Clone, Debug)]
pub(super) struct ArmedFault {
    moment: FaultTrigger,
    count: u32,
    fault: InjectedFault,
}

impl Cluster {
    /// Injects a fault at once.
    pub fn inject_fault(&mut self, fault: &InjectedFault) {
        let leader = self.leader();
        self.trace(|| format!("FAULT {fault:?}, leader {leader:?}"));
        match fault {
            InjectedFault::KillLeader(time) => leader.into_iter().for_each(|leader| self.kill(leader, *time)),
            InjectedFault::PauseLeader(time) => {
                leader.into_iter().for_each(|leader| self.pause(leader, *time));
            }
            InjectedFault::Kill(replica, time) if *replica < self.replicas.len() => {
                self.kill(*replica, *time);
            }
            InjectedFault::Pause(replica, time) if *replica < self.replicas.len() => {
                self.pause(*replica, *time);
            }
            InjectedFault::Kill(..) | InjectedFault::Pause(..) => {}
            InjectedFault::Cordon(node, cordoned) => {
                self.cordon(node, *cordoned);
            }
            InjectedFault::Ready(node, ready) => {
                self.set_ready(node, *ready);
            }
            InjectedFault::RestartScheduler => self.restart_scheduler(),
            InjectedFault::SchedulerRefuses(node, refused) => self.refuse_node(node, *refused),
            InjectedFault::BreakWatches(kind, time) => {
                (0..self.replicas.len()).for_each(|index| self.break_watch(index, *kind, *time));
            }
            InjectedFault::RefuseLifts(pods) => {
                self.api.lift_policy = pods.clone().map(|pods| LiftPolicy { pods });
            }
            InjectedFault::JumpClock(time) => {
                leader.into_iter().for_each(|leader| self.jump_clock(leader, *time));
            }
        }
    }

    /// Injects a fault right after the leader has sent this number of effects of a kind.
    pub fn arm(&mut self, moment: FaultTrigger, count: u32, fault: InjectedFault) {
        self.armed_faults.push(ArmedFault { moment, count: count.max(1), fault });
    }

    /// Whether a fault still waits for its trigger.
    pub fn has_armed_faults(&self) -> bool {
        !self.armed_faults.is_empty()
    }

    pub(super) fn trigger_armed_faults(&mut self, index: usize, moment: Option<FaultTrigger>) {
        if self.armed_faults.is_empty() || self.leader() != Some(index) {
            return;
        }
        let mut due = Vec::new();
        self.armed_faults.retain_mut(|armed| {
            if Some(armed.moment) == moment || armed.moment == FaultTrigger::Request {
                armed.count -= 1;
                if armed.count == 0 {
                    due.push(armed.fault.clone());
                }
            }
            armed.count > 0
        });
        for fault in due {
            self.inject_fault(&fault);
        }
    }
}
