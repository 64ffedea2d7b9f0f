//! Mishaps that wait for a moment of the lift protocol: the leader dies right after its second lift, a node is cordoned
//! as soon as a plan is written.

use std::time::Duration;

use super::Cluster;
use crate::api::ObjectKind;
use portcullis_core::engine::Action;

/// A moment of the lift protocol: an effect of this sort has just been sent.
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
    /// Any request at all.
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

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The leader dies and starts again after this time.
    KillLeader(Duration),
    /// The leader stops and goes on after this time.
    PauseLeader(Duration),
    /// This replica dies and starts again after this time.
    Kill(usize, Duration),
    /// This replica stops and goes on after this time.
    Pause(usize, Duration),
    /// A node is cordoned, or not any more.
    Cordon(String, bool),
    /// A node stops answering, or answers again.
    Ready(String, bool),
    /// The scheduler forgets what was nominated.
    RestartScheduler,
    /// The watches of this kind break, in every replica, for this time.
    BreakWatches(ObjectKind, Duration),
    /// The leader's clock jumps ahead by this much.
    JumpClock(Duration),
}

/// A fault that waits.
#[derive(Clone, Debug)]
pub(super) struct ArmedFault {
    moment: FaultTrigger,
    count: u32,
    fault: InjectedFault,
}

impl Cluster {
    /// Lets something go wrong at once.
    pub fn inject_fault(&mut self, fault: &InjectedFault) {
        let leader = self.leader();
        self.trace(|| format!("FAULT {fault:?}, leader {leader:?}"));
        match fault {
            InjectedFault::KillLeader(time) => leader.into_iter().for_each(|leader| self.kill(leader, *time)),
            InjectedFault::PauseLeader(time) => {
                leader.into_iter().for_each(|leader| self.pause(leader, *time))
            }
            InjectedFault::Kill(replica, time) if *replica < self.replicas.len() => {
                self.kill(*replica, *time)
            }
            InjectedFault::Pause(replica, time) if *replica < self.replicas.len() => {
                self.pause(*replica, *time)
            }
            InjectedFault::Kill(..) | InjectedFault::Pause(..) => {}
            InjectedFault::Cordon(node, cordoned) => {
                self.cordon(node, *cordoned);
            }
            InjectedFault::Ready(node, ready) => {
                self.set_ready(node, *ready);
            }
            InjectedFault::RestartScheduler => self.restart_scheduler(),
            InjectedFault::BreakWatches(kind, time) => {
                (0..self.replicas.len()).for_each(|index| self.break_watch(index, *kind, *time));
            }
            InjectedFault::JumpClock(time) => {
                leader.into_iter().for_each(|leader| self.jump_clock(leader, *time))
            }
        }
    }

    /// Lets something go wrong right after the leader has sent this many effects of a sort.
    pub fn arm(&mut self, moment: FaultTrigger, count: u32, fault: InjectedFault) {
        self.armed_faults.push(ArmedFault { moment, count: count.max(1), fault });
    }

    /// Whether a fault still waits for its moment.
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
