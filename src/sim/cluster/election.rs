//! Drives the election of each replica: requests about the lease as objects of the simulated API server.

use std::time::Duration;

use portcullis_core::engine::Event;
use portcullis_core::model::Time;
use portcullis_edge::{
    ElectionReport, ElectionRequest, ElectionStep, LeaseReading, Monotonic, ReadFailure, WatchedKind,
};
use serde_json::json;

use super::{Cluster, START, SimEvent};
use crate::api::{Actor, LEASE_NAME, LEASE_NAMESPACE, ObjectKey, ObjectKind, Subresource};

/// The answer to a request of an election.
#[derive(Clone, Debug)]
pub(super) enum ElectionAnswer {
    /// The answer to a request about the lease.
    Lease(Result<Option<LeaseReading>, ReadFailure>),
    /// The answer to a request for a page of the gangs.
    Gangs(Result<String, ReadFailure>),
}

/// A fault of a request of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseFault {
    /// No fault.
    None,
    /// The API server answers 500 and does nothing.
    Refused,
    /// The request is carried out and the answer is lost.
    AnswerLost,
}

impl Cluster {
    /// The monotonic clock of every replica. A jump of the time of day does not move it.
    pub(super) fn monotonic(&self) -> Monotonic {
        Monotonic(self.now().since(START))
    }

    /// Runs what is due in the election of a replica. Only the poll that was scheduled last counts.
    pub(super) fn poll_election(&mut self, index: usize, life: u64, poll: u64) {
        if self.replicas[index].has_ended(life) || self.replicas[index].election_poll != poll {
            return;
        }
        self.step_election(index);
    }

    pub(super) fn step_election(&mut self, index: usize) {
        let (now, floor) = (self.monotonic(), self.replicas[index].epoch_floor);
        let life = self.replicas[index].life;
        if self.replicas[index].election_busy {
            return;
        }
        let Some(election) = self.replicas[index].election.as_mut() else { return };
        election.raise_epoch_floor(floor);
        let step = election.step(now);
        self.report_election(index);
        match step {
            ElectionStep::Wait(until) => {
                self.replicas[index].election_poll += 1;
                let poll = self.replicas[index].election_poll;
                let at: Time = START.after(until.0).max(self.now());
                self.push_at(at, SimEvent::Election(index, life, poll));
            }
            ElectionStep::Send { request, timeout } => self.send_election(index, life, request, timeout),
            ElectionStep::Done => {}
        }
    }

    fn send_election(
        &mut self,
        index: usize,
        life: u64,
        request: ElectionRequest,
        timeout: Option<Duration>,
    ) {
        self.replicas[index].election_busy = true;
        let lists = matches!(request, ElectionRequest::ListGangs(_));
        let timeout = timeout.unwrap_or(Duration::from_secs(10));
        let lost = || {
            let failure = ReadFailure::Failed(format!("no answer within {timeout:?}"));
            if lists { ElectionAnswer::Gangs(Err(failure)) } else { ElectionAnswer::Lease(Err(failure)) }
        };
        let mut fault = LeaseFault::None;
        if self.options.faults.lease_error > 0 && self.random.percent(self.options.faults.lease_error) {
            match self.random.below(6) {
                0 => {
                    let at = self.now().after(timeout);
                    self.push_at(at, SimEvent::ElectionAnswer(index, life, Box::new(lost())));
                    return;
                }
                1 => fault = LeaseFault::AnswerLost,
                _ => fault = LeaseFault::Refused,
            }
        }
        let (request_range, answer_range) = (self.options.timing.request, self.options.timing.answer);
        let to_server = Duration::from_millis(self.random.between(request_range.0, request_range.1));
        let back = Duration::from_millis(self.random.between(answer_range.0, answer_range.1));
        let in_time = fault != LeaseFault::AnswerLost && to_server + back <= timeout;
        let back = in_time.then_some(back);
        if !in_time {
            let at = self.now().after(timeout);
            self.push_at(at, SimEvent::ElectionAnswer(index, life, Box::new(lost())));
        }
        let at = self.now().after(to_server);
        let identity = self.replicas[index].identity().to_owned();
        self.push_at(at, SimEvent::ElectionRequest(index, life, identity, Box::new(request), fault, back));
    }

    /// A request of an election reaches the API server, also when its sender has died. `back` is the time
    /// that the response takes; `None` loses it.
    pub(super) fn election_request(
        &mut self,
        index: usize,
        life: u64,
        identity: &str,
        request: &ElectionRequest,
        fault: LeaseFault,
        back: Option<Duration>,
    ) {
        let failed = || ReadFailure::of_status(500, "fault".to_owned());
        let answer = match request {
            ElectionRequest::ListGangs(_) if fault == LeaseFault::Refused => {
                ElectionAnswer::Gangs(Err(failed()))
            }
            ElectionRequest::ListGangs(list) => {
                ElectionAnswer::Gangs(self.list_page(WatchedKind::Gangs, list))
            }
            _ if fault == LeaseFault::Refused => ElectionAnswer::Lease(Err(failed())),
            request => ElectionAnswer::Lease(self.lease_request(index, identity, request)),
        };
        if let Some(back) = back {
            let at = self.now().after(back);
            self.push_at(at, SimEvent::ElectionAnswer(index, life, Box::new(answer)));
        }
    }

    fn lease_request(
        &mut self,
        index: usize,
        identity: &str,
        request: &ElectionRequest,
    ) -> Result<Option<LeaseReading>, ReadFailure> {
        let (actor, now) = (Actor::Engine(index), self.now().to_string());
        let key = ObjectKey::new(ObjectKind::Lease, LEASE_NAMESPACE, LEASE_NAME);
        let done = match request {
            ElectionRequest::Read | ElectionRequest::ListGangs(_) => self.api.read(&key),
            ElectionRequest::Create(change) => {
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"namespace": LEASE_NAMESPACE, "name": LEASE_NAME},
                    "spec": change.spec(identity, &now),
                });
                self.api.create(&actor, lease).map(|applied| applied.object)
            }
            ElectionRequest::Update { resource_version, change } => {
                let patch = json!({
                    "metadata": {"resourceVersion": resource_version}, "spec": change.spec(identity, &now),
                });
                self.api.merge_patch(&actor, &key, Subresource::None, &patch).map(|applied| applied.object)
            }
        };
        match done {
            Ok(object) => request.interpret(200, object.to_string().as_bytes(), String::new),
            Err(status) => request.interpret(status.code, b"", || status.message.clone()),
        }
    }

    pub(super) fn election_answer(&mut self, index: usize, life: u64, answer: ElectionAnswer) {
        if self.replicas[index].has_ended(life) {
            return;
        }
        let now = self.monotonic();
        self.replicas[index].election_busy = false;
        let Some(election) = self.replicas[index].election.as_mut() else { return };
        match answer {
            ElectionAnswer::Lease(answer) => election.lease(answer, now),
            ElectionAnswer::Gangs(answer) => {
                election.gangs(answer.as_deref().map(str::as_bytes).map_err(Clone::clone), now);
            }
        }
        self.report_election(index);
        self.step_election(index);
    }

    /// Passes what happened in the election to the engine. A lease event ends the term.
    fn report_election(&mut self, index: usize) {
        let Some(election) = self.replicas[index].election.as_mut() else { return };
        for report in election.take_reports() {
            let event = match report {
                ElectionReport::Acquired(epoch) => Event::LeaseAcquired(epoch),
                ElectionReport::Lost { .. } | ElectionReport::Resigned { .. } => Event::LeaseLost,
                _ => continue,
            };
            self.end_term(index);
            self.tell_replica(index, event);
        }
    }

    /// The engine saw a newer leader: the election releases the lease, if it still holds it under this epoch.
    pub(super) fn step_down(&mut self, index: usize, epoch: portcullis_core::model::Epoch) {
        self.end_term(index);
        let replica = &mut self.replicas[index];
        let Some(election) = replica.election.as_mut() else { return };
        election.step_down(epoch);
        // With a request in flight, the election steps down after its answer.
        if !replica.election_busy {
            let poll = SimEvent::Election(index, replica.life, replica.election_poll);
            self.push_at(self.now(), poll);
        }
    }

    /// The time of day by a replica's clock.
    pub(super) fn clock_of(&self, index: usize) -> Time {
        let ahead = self.replicas[index].clock_ahead_ms;
        self.now().after(Duration::from_millis(ahead))
    }
}
