//! Mishaps that wait for a moment of the lift protocol: the leader dies right after its second lift, a node is cordoned
//! as soon as a plan is written.

use std::time::Duration;

use super::Cluster;
use crate::api::Kind;
use portcullis_core::engine::Action;

/// A moment of the lift protocol: an effect of this sort has just been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Moment {
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

impl Moment {
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
pub enum Mishap {
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
    BreakWatches(Kind, Duration),
    /// The leader's clock jumps ahead by this much.
    JumpClock(Duration),
}

/// A mishap that waits.
#[derive(Clone, Debug)]
pub(super) struct Trap {
    moment: Moment,
    count: u32,
    mishap: Mishap,
}

impl Cluster {
    /// Lets something go wrong at once.
    pub fn mishap(&mut self, mishap: &Mishap) {
        let leader = self.leader();
        self.trace(|| format!("MISHAP {mishap:?}, leader {leader:?}"));
        match mishap {
            Mishap::KillLeader(time) => leader.into_iter().for_each(|leader| self.kill(leader, *time)),
            Mishap::PauseLeader(time) => leader.into_iter().for_each(|leader| self.pause(leader, *time)),
            Mishap::Kill(replica, time) if *replica < self.replicas.len() => self.kill(*replica, *time),
            Mishap::Pause(replica, time) if *replica < self.replicas.len() => self.pause(*replica, *time),
            Mishap::Kill(..) | Mishap::Pause(..) => {}
            Mishap::Cordon(node, cordoned) => {
                self.cordon(node, *cordoned);
            }
            Mishap::Ready(node, ready) => {
                self.set_ready(node, *ready);
            }
            Mishap::RestartScheduler => self.restart_scheduler(),
            Mishap::BreakWatches(kind, time) => {
                (0..self.replicas.len()).for_each(|index| self.break_watch(index, *kind, *time));
            }
            Mishap::JumpClock(time) => leader.into_iter().for_each(|leader| self.jump_clock(leader, *time)),
        }
    }

    /// Lets something go wrong right after the leader has sent this many effects of a sort.
    pub fn arm(&mut self, moment: Moment, count: u32, mishap: Mishap) {
        self.traps.push(Trap { moment, count: count.max(1), mishap });
    }

    /// Whether a mishap still waits for its moment.
    pub fn armed(&self) -> bool {
        !self.traps.is_empty()
    }

    pub(super) fn spring(&mut self, index: usize, moment: Option<Moment>) {
        if self.traps.is_empty() || self.leader() != Some(index) {
            return;
        }
        let mut due = Vec::new();
        self.traps.retain_mut(|trap| {
            if Some(trap.moment) == moment || trap.moment == Moment::Request {
                trap.count -= 1;
                if trap.count == 0 {
                    due.push(trap.mishap.clone());
                }
            }
            trap.count > 0
        });
        for mishap in due {
            self.mishap(&mishap);
        }
    }
}
