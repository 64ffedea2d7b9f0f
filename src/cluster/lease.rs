//! Drives the [`Election`] of `portcullis_edge` over HTTP, and reads the lease for the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::Method;
use portcullis_core::engine::{Event, RequestOutcome};
use portcullis_core::model::Epoch;
use portcullis_edge::{
    Election, ElectionReport, ElectionRequest, ElectionStep, LIST_PAGE_LIMIT, LeaseReading, ReadFailure,
    WatchedKind,
};
use serde_json::json;
use tokio::sync::mpsc;

use super::client::{Client, FIELD_MANAGER, JSON, Lost, MERGE_PATCH, Reply};
use super::random;
use super::watch::{WatchDriver, monotonic_now};
use crate::telemetry::ClusterMetrics;

/// How long the engine's read of the lease may take. A slower answer counts as lost.
const VERIFY_TIMEOUT: Duration = Duration::from_millis(1500);

/// The lease object, and the identity of this process.
#[derive(Clone)]
pub(super) struct LeaseClient {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// Differs from that of any other process and of any earlier life of this one.
    pub identity: String,
}

/// The highest epoch that this process has seen. Cheap to clone; all clones share their content.
#[derive(Clone, Debug, Default)]
pub(super) struct EpochFloor(Arc<AtomicU64>);

impl EpochFloor {
    /// Raises the floor to this epoch.
    pub(super) fn raise(&self, epoch: Epoch) {
        self.0.fetch_max(epoch.0, Ordering::Relaxed);
    }

    fn get(&self) -> Epoch {
        Epoch(self.0.load(Ordering::Relaxed))
    }
}

impl LeaseClient {
    /// Reads the lease for the engine: whether it names this process under this epoch.
    pub(super) async fn verify(&self, epoch: Epoch) -> RequestOutcome {
        let reading = self.send(&ElectionRequest::Read, VERIFY_TIMEOUT).await;
        LeaseReading::verify(reading, &self.identity, epoch)
    }

    async fn send(
        &self,
        request: &ElectionRequest,
        timeout: Duration,
    ) -> Result<Option<LeaseReading>, ReadFailure> {
        let reply = match tokio::time::timeout(timeout, self.exchange(request)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(Lost(problem))) => return Err(ReadFailure::Failed(problem)),
            Err(_) => return Err(ReadFailure::Failed(format!("no answer within {timeout:?}"))),
        };
        request.interpret(reply.code, &reply.body, || reply.message())
    }

    async fn exchange(&self, request: &ElectionRequest) -> Result<Reply, Lost> {
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        let object = format!("{collection}/{}", self.name);
        let now = micro_time(SystemTime::now());
        match request {
            ElectionRequest::Read => self.client.get(&object).await,
            ElectionRequest::Create(change) => {
                let path = format!("{collection}?fieldManager={FIELD_MANAGER}");
                let labels = json!({"app.kubernetes.io/name": "portcullis", "app.kubernetes.io/part-of": "portcullis"});
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels},
                    "spec": change.spec(&self.identity, &now),
                });
                self.client.request(Method::POST, &path, JSON, lease.to_string().into_bytes()).await
            }
            ElectionRequest::Update { resource_version, change } => {
                let path = format!("{object}?fieldManager={FIELD_MANAGER}");
                let patch = json!({
                    "metadata": {"resourceVersion": resource_version},
                    "spec": change.spec(&self.identity, &now),
                });
                self.client.request(Method::PATCH, &path, MERGE_PATCH, patch.to_string().into_bytes()).await
            }
            ElectionRequest::ListGangs(_) => Err(Lost("not a request about the lease".to_owned())),
        }
    }
}

/// RFC 3339 with microseconds (`metav1.MicroTime`), as leases and events need it.
pub(super) fn micro_time(time: SystemTime) -> String {
    portcullis_text::Timestamp::from(time).format(portcullis_text::timestamp::Fraction::Micros)
}

/// Runs an election and sends its results to the engine.
pub(super) struct ElectionDriver {
    pub lease: LeaseClient,
    pub epoch_floor: EpochFloor,
    pub metrics: ClusterMetrics,
    pub events: mpsc::UnboundedSender<Event>,
}

impl ElectionDriver {
    /// Runs until `step_downs` is closed, and then releases the lease.
    pub(super) async fn run(self, mut step_downs: mpsc::UnboundedReceiver<Epoch>) {
        let lists = WatchDriver::new(self.lease.client.clone(), self.metrics.clone());
        let identity = self.lease.identity.clone();
        let mut election = Election::new(identity, LIST_PAGE_LIMIT, random::seeded());
        let mut last_failure = None;
        loop {
            election.raise_epoch_floor(self.epoch_floor.get());
            let step = election.step(monotonic_now());
            self.report(&mut election, &lists, &mut last_failure);
            match step {
                ElectionStep::Wait(until) => tokio::select! {
                    biased;
                    epoch = step_downs.recv() => match epoch {
                        Some(epoch) => election.step_down(epoch),
                        None => election.shut_down(),
                    },
                    () = tokio::time::sleep(until.since(monotonic_now())) => {}
                },
                ElectionStep::Send { request: ElectionRequest::ListGangs(request), .. } => {
                    let answer = lists.list_page(WatchedKind::Gangs, &request).await;
                    election.gangs(answer.as_deref().map_err(Clone::clone), monotonic_now());
                }
                ElectionStep::Send { request, timeout } => {
                    let timeout = timeout.unwrap_or(super::REQUEST_TIMEOUT);
                    let answer = self.lease.send(&request, timeout).await;
                    election.lease(answer, monotonic_now());
                }
                ElectionStep::Done => return,
            }
            self.report(&mut election, &lists, &mut last_failure);
        }
    }

    fn report(&self, election: &mut Election, lists: &WatchDriver, last_failure: &mut Option<ReadFailure>) {
        // The receiver is gone when the process ends.
        let send = |event| drop(self.events.send(event));
        for report in election.take_reports() {
            match report {
                ElectionReport::Acquired(epoch) => {
                    tracing::info!(%epoch, identity = election.identity(), "acquired the lease; leading");
                    self.metrics.set_leading(true);
                    send(Event::LeaseAcquired(epoch));
                }
                ElectionReport::Lost { epoch, reason } => {
                    tracing::warn!(%epoch, reason, "lost the lease; not leading any more");
                    self.metrics.set_leading(false);
                    send(Event::LeaseLost);
                }
                ElectionReport::Resigned { epoch, newer_leader } => {
                    if newer_leader {
                        tracing::warn!(%epoch, "stepping down: an object names a newer epoch");
                    }
                    self.metrics.set_leading(false);
                    send(Event::LeaseLost);
                }
                ElectionReport::Released(epoch) => tracing::info!(%epoch, "released the lease"),
                ElectionReport::ReleaseFailed(failure) => {
                    tracing::warn!(
                        problem = %failure,
                        "releasing the lease failed; other replicas wait until it expires"
                    );
                }
                ElectionReport::Failed(failure) => {
                    if last_failure.as_ref() != Some(&failure) {
                        let (namespace, name) = (&self.lease.namespace, &self.lease.name);
                        tracing::warn!(namespace, name, problem = %failure, "reading or writing the lease failed");
                    }
                    *last_failure = Some(failure);
                }
                ElectionReport::Succeeded => {
                    if last_failure.take().is_some() {
                        tracing::info!("reading and writing the lease succeeds again");
                    }
                }
                ElectionReport::Gangs(report) => lists.report(WatchedKind::Gangs, report),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_microseconds_as_the_api_server_requires() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_266_000_001_234);
        assert_eq!(micro_time(time), "2026-11-21T13:00:00.001234Z");
    }

    #[test]
    fn the_epoch_floor_never_goes_down() {
        let floor = EpochFloor::default();
        floor.raise(Epoch(7));
        floor.raise(Epoch(3));
        assert_eq!(floor.get(), Epoch(7));
    }
}
