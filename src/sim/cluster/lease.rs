//! The leader's lease, as each replica sees it by its own clock.

use std::time::Duration;

use super::{Cluster, SimEvent};
use portcullis_core::engine::Event;
use portcullis_core::model::Time;

impl Cluster {
    /// Renews the lease, takes it when it is free or expired, or learns that it is lost.
    pub(super) fn look_after_lease(&mut self, index: usize, life: u64) {
        if self.replicas[index].gone(life) {
            return;
        }
        let next = self.now().after(self.options.timing.renew);
        self.push_at(next, SimEvent::Lease(index, life));
        if self.replicas[index].paused {
            return;
        }
        let clock = self.clock_of(index);
        let duration = self.options.timing.lease;
        if self.options.faults.lease_error > 0 && self.random.percent(self.options.faults.lease_error) {
            // Who cannot renew stops leading well before anybody else can take over.
            let replica = &mut self.replicas[index];
            if replica.leads() && clock.since(replica.renewed) >= duration * 2 / 3 {
                replica.epoch = None;
                self.tell_replica(index, Event::LeaseLost);
            }
            return;
        }
        let replica = &mut self.replicas[index];
        let lease = &mut self.api.lease;
        let ours = lease.holder.as_deref() == Some(replica.identity());
        let free = lease.holder.is_none() || clock >= lease.renewed.after(duration);
        if ours && replica.epoch == Some(lease.transitions) {
            lease.renewed = clock;
            replica.renewed = clock;
        } else if ours || free {
            lease.holder = Some(replica.identity().to_owned());
            lease.transitions.0 += 1;
            lease.renewed = clock;
            replica.renewed = clock;
            replica.epoch = Some(lease.transitions);
            let event = Event::LeaseAcquired(lease.transitions);
            self.tell_replica(index, event);
        } else if replica.epoch.take().is_some() {
            self.tell_replica(index, Event::LeaseLost);
        }
    }

    /// The engine has seen a newer leader: the lease, if it should still be ours, is given up.
    pub(super) fn step_down(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        replica.epoch = None;
        if self.api.lease.holder.as_deref() == Some(replica.identity()) {
            self.api.lease.holder = None;
        }
    }

    /// What time a replica thinks it is.
    pub(super) fn clock_of(&self, index: usize) -> Time {
        let ahead = self.replicas[index].clock_ahead_ms;
        self.now().after(Duration::from_millis(ahead))
    }
}
