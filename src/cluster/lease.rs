//! The lease: who leads, and under which epoch.
//!
//! `spec.leaseTransitions` is the epoch. It goes up by one with every acquisition, also when the same process takes the
//! lease again, and never goes back: where the lease was deleted, or somebody set it back, the highest epoch that any
//! `Gang` object tells of is where it goes on from. So nothing needs to be stored beside the lease and the gangs.
//!
//! Invariants:
//! - every write is a compare-and-swap on the version that was read, so of two who want it one gets it;
//! - another's lease is taken only after *we* have seen it unchanged for its whole duration, by our own monotonic clock:
//!   no time of day is compared, and a clock that is wrong costs nothing;
//! - whoever cannot renew says so before anybody else can have waited that long. Nothing rests on that: the fencing rules
//!   of the engine hold for a leader that sleeps through its own end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use portcullis_core::engine::{Event, GangStatus, RequestOutcome};
use portcullis_core::model::Epoch;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::client::{Client, FIELD_MANAGER, JSON, Lost, MERGE_PATCH, Reply};
use super::kinds::{Kind, Object};
use super::random::between;
use super::trouble::Trouble;
use super::watch::Follower;
use crate::telemetry::ClusterMetrics;

/// How long a lease is good for after its last renewal.
const DURATION: Duration = Duration::from_secs(6);
/// How often the leader renews.
const RENEW: Duration = Duration::from_secs(2);
/// A leader that could not renew for this long stops leading.
const GIVE_UP: Duration = Duration::from_secs(4);
/// How soon after a failed renewal it is tried again.
const RENEW_AGAIN: Duration = Duration::from_millis(250);
/// How often the others look.
const LOOK: (Duration, Duration) = (Duration::from_millis(700), Duration::from_millis(1000));
/// A request about the lease that takes longer is as good as lost.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Which lease, and who we are.
#[derive(Clone)]
pub(super) struct Lease {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// Unlike that of any other process, and of any earlier life of this one.
    pub identity: String,
}

/// The highest epoch that was seen anywhere: a new one is higher.
#[derive(Clone, Debug, Default)]
pub(super) struct Floor(Arc<AtomicU64>);

impl Floor {
    /// This epoch exists.
    pub(super) fn raise(&self, epoch: Epoch) {
        self.0.fetch_max(epoch.0, Ordering::Relaxed);
    }

    fn above(&self, transitions: u64) -> Epoch {
        Epoch(self.0.load(Ordering::Relaxed).max(transitions) + 1)
    }
}

/// A lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    version: String,
    holder: String,
    transitions: u64,
    duration: Duration,
}

impl Reading {
    fn of(reply: &Reply) -> Result<Self, Trouble> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
            #[serde(default)]
            spec: Option<Spec>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            resource_version: String,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            holder_identity: Option<String>,
            lease_transitions: Option<u64>,
            lease_duration_seconds: Option<u64>,
        }
        let object: Object = serde_json::from_slice(&reply.body)
            .map_err(|e| Trouble::Failed(format!("the lease cannot be read: {e}")))?;
        let spec = object.spec.unwrap_or_default();
        Ok(Self {
            version: object.metadata.resource_version,
            holder: spec.holder_identity.unwrap_or_default(),
            transitions: spec.lease_transitions.unwrap_or(0),
            duration: spec.lease_duration_seconds.map_or(DURATION, Duration::from_secs),
        })
    }
}

impl Lease {
    /// Reads it afresh, for the engine: whether it names us, under this epoch.
    pub(super) async fn verify(&self, epoch: Epoch) -> RequestOutcome {
        match self.read().await {
            Ok(Some(lease)) => {
                RequestOutcome::Lease { ours: lease.holder == self.identity && lease.transitions == epoch.0 }
            }
            Ok(None) => RequestOutcome::Lease { ours: false },
            Err(Trouble::Failed(_)) => RequestOutcome::Unknown,
            Err(trouble) => RequestOutcome::Refused(trouble.to_string()),
        }
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    /// `None`: there is no such lease.
    async fn read(&self) -> Result<Option<Reading>, Trouble> {
        let path = format!("{}/{}", self.collection(), self.name);
        let reply = in_time(self.client.get(&path)).await?;
        match reply.code {
            404 => Ok(None),
            _ if reply.ok() => Reading::of(&reply).map(Some),
            _ => Err(reply.into()),
        }
    }

    /// Writes `spec` where the lease is still at this version. `Ok(None)`: it is not, or it is gone.
    async fn swap(&self, version: &str, spec: &Value) -> Result<Option<Reading>, Trouble> {
        let path = format!("{}/{}?fieldManager={FIELD_MANAGER}", self.collection(), self.name);
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        let request = self.client.request(Method::PATCH, &path, MERGE_PATCH, patch.to_string().into_bytes());
        let reply = in_time(request).await?;
        match reply.code {
            404 | 409 => Ok(None),
            _ if reply.ok() => Reading::of(&reply).map(Some),
            _ => Err(reply.into()),
        }
    }

    /// Makes it. `Ok(None)`: somebody else did.
    async fn create(&self, spec: &Value) -> Result<Option<Reading>, Trouble> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}", self.collection());
        let labels =
            json!({"app.kubernetes.io/name": "portcullis", "app.kubernetes.io/part-of": "portcullis"});
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels},
            "spec": spec,
        });
        let request = self.client.request(Method::POST, &path, JSON, object.to_string().into_bytes());
        let reply = in_time(request).await?;
        match reply.code {
            409 => Ok(None),
            _ if reply.ok() => Reading::of(&reply).map(Some),
            _ => Err(reply.into()),
        }
    }

    fn taken(&self, epoch: Epoch) -> Value {
        let now = now();
        json!({
            "holderIdentity": self.identity, "leaseDurationSeconds": DURATION.as_secs(),
            "acquireTime": now, "renewTime": now, "leaseTransitions": epoch.0,
        })
    }
}

async fn in_time(request: impl Future<Output = Result<Reply, Lost>>) -> Result<Reply, Trouble> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(reply) => Ok(reply?),
        Err(_) => Err(Trouble::Failed(format!("no answer within {PATIENCE:?}"))),
    }
}

/// `metav1.MicroTime`. Written for people: nobody compares it.
fn now() -> String {
    micro_time(SystemTime::now())
}

/// RFC 3339 with microseconds, as the API server wants it in leases and events.
pub(super) fn micro_time(time: SystemTime) -> String {
    portcullis_text::Timestamp::from(time).format(portcullis_text::timestamp::Fraction::Micros)
}

/// How we hold it.
struct Held {
    epoch: Epoch,
    version: String,
    /// When the last renewal that succeeded was sent.
    renewed: Instant,
}

/// Another's lease, and since when it looks like this.
struct Other {
    reading: Reading,
    since: Instant,
}

/// Renews the lease, takes it when it is free or has run out, and tells the engine.
pub(super) struct Election {
    lease: Lease,
    floor: Floor,
    metrics: ClusterMetrics,
    news: mpsc::UnboundedSender<Event>,
    held: Option<Held>,
    other: Option<Other>,
    complained: Option<Trouble>,
}

impl Election {
    pub(super) fn new(
        lease: Lease,
        floor: Floor,
        metrics: ClusterMetrics,
        news: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self { lease, floor, metrics, news, held: None, other: None, complained: None }
    }

    /// Runs until `stepping_down` is closed, and gives the lease back then.
    pub(super) async fn run(mut self, mut stepping_down: mpsc::UnboundedReceiver<Epoch>) {
        let mut wait = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                epoch = stepping_down.recv() => match epoch {
                    Some(epoch) if self.held.as_ref().is_some_and(|held| held.epoch == epoch) => {
                        tracing::warn!(%epoch, "a newer leader's work was seen: stepping down");
                        self.give_back().await;
                        wait = between(LOOK.0, LOOK.1);
                    }
                    Some(_) => {}
                    None => break,
                },
                () = tokio::time::sleep(wait) => wait = self.turn().await,
            }
        }
        self.give_back().await;
    }

    /// Does what is due, and says when to look again.
    async fn turn(&mut self) -> Duration {
        let outcome = if self.held.is_some() { self.renew().await } else { self.look().await };
        match outcome {
            Ok(wait) => {
                if self.complained.take().is_some() {
                    tracing::info!("the lease can be read and written again");
                }
                wait
            }
            Err(trouble) => {
                if self.complained.as_ref() != Some(&trouble) {
                    let (namespace, name) = (&self.lease.namespace, &self.lease.name);
                    tracing::warn!(namespace, name, problem = %trouble, "the lease cannot be read or written");
                }
                self.complained = Some(trouble);
                match &self.held {
                    Some(held) if held.renewed.elapsed() < GIVE_UP => RENEW_AGAIN,
                    Some(_) => {
                        self.lost("it could not be renewed in time");
                        between(LOOK.0, LOOK.1)
                    }
                    None => between(LOOK.0, LOOK.1),
                }
            }
        }
    }

    async fn renew(&mut self) -> Result<Duration, Trouble> {
        let Some(held) = &self.held else { return Ok(Duration::ZERO) };
        if held.renewed.elapsed() >= GIVE_UP {
            self.lost("it was not renewed in time; this process was stopped or starved of CPU");
            return Ok(Duration::ZERO);
        }
        let (version, sent) = (held.version.clone(), Instant::now());
        let left = GIVE_UP.saturating_sub(held.renewed.elapsed());
        let spec = json!({"renewTime": now()});
        let renewal = tokio::time::timeout(left, self.lease.swap(&version, &spec)).await;
        let renewal = renewal.unwrap_or_else(|_| Err(Trouble::Failed("no answer in time".to_owned())));
        match renewal? {
            Some(reading) => {
                if let Some(held) = &mut self.held {
                    held.version = reading.version;
                    held.renewed = sent;
                }
                Ok(RENEW.saturating_sub(sent.elapsed()))
            }
            // Taken by somebody, or only touched by somebody: a look tells.
            None => match self.lease.read().await? {
                Some(lease) if self.is_held_as(&lease) => {
                    if let Some(held) = &mut self.held {
                        held.version = lease.version;
                    }
                    Ok(Duration::ZERO)
                }
                Some(lease) => {
                    self.lost(&format!("{} has it", quoted(&lease.holder)));
                    self.saw(lease);
                    Ok(between(LOOK.0, LOOK.1))
                }
                None => {
                    self.lost("it was deleted");
                    Ok(Duration::ZERO)
                }
            },
        }
    }

    fn is_held_as(&self, lease: &Reading) -> bool {
        let held = self.held.as_ref().map(|held| held.epoch.0);
        lease.holder == self.lease.identity && Some(lease.transitions) == held
    }

    async fn look(&mut self) -> Result<Duration, Trouble> {
        let Some(lease) = self.lease.read().await? else {
            self.floor.raise(self.highest_in_gangs().await?);
            let (epoch, sent) = (self.floor.above(0), Instant::now());
            if let Some(reading) = self.lease.create(&self.lease.taken(epoch)).await? {
                self.won(epoch, reading, sent);
                return Ok(RENEW);
            }
            return Ok(Duration::ZERO);
        };
        let free = lease.holder.is_empty() || lease.holder == self.lease.identity;
        self.saw(lease.clone());
        let over = self.other.as_ref().is_some_and(|other| other.since.elapsed() >= other.reading.duration);
        if !free && !over {
            return Ok(between(LOOK.0, LOOK.1));
        }
        let (epoch, sent) = (self.floor.above(lease.transitions), Instant::now());
        if let Some(reading) = self.lease.swap(&lease.version, &self.lease.taken(epoch)).await? {
            self.won(epoch, reading, sent);
            return Ok(RENEW);
        }
        Ok(between(LOOK.0, LOOK.1))
    }

    /// Takes note of what another's lease looks like: the clock starts again whenever it has changed.
    fn saw(&mut self, lease: Reading) {
        self.floor.raise(Epoch(lease.transitions));
        if self.other.as_ref().is_none_or(|other| other.reading != lease) {
            self.other = Some(Other { reading: lease, since: Instant::now() });
        }
    }

    fn won(&mut self, epoch: Epoch, reading: Reading, sent: Instant) {
        tracing::info!(%epoch, identity = self.lease.identity, "leading");
        self.floor.raise(epoch);
        self.held = Some(Held { epoch, version: reading.version, renewed: sent });
        self.other = None;
        self.metrics.set_leading(true);
        // Nobody listens when the process ends.
        let _ = self.news.send(Event::LeaseAcquired(epoch));
    }

    fn lost(&mut self, why: &str) {
        if let Some(held) = self.held.take() {
            tracing::warn!(epoch = %held.epoch, why, "not leading any more");
            self.metrics.set_leading(false);
            let _ = self.news.send(Event::LeaseLost);
        }
    }

    /// Lets go of the lease, so that somebody else need not wait for its end.
    async fn give_back(&mut self) {
        let Some(held) = self.held.take() else { return };
        self.metrics.set_leading(false);
        let _ = self.news.send(Event::LeaseLost);
        let spec = json!({"holderIdentity": null, "renewTime": now()});
        match self.lease.swap(&held.version, &spec).await {
            Ok(Some(_)) => tracing::info!(epoch = %held.epoch, "gave the lease back"),
            Ok(None) => {}
            Err(trouble) => {
                tracing::warn!(problem = %trouble, "the lease could not be given back; others wait for its end");
            }
        }
    }

    /// The highest epoch that any plan or status was written under.
    async fn highest_in_gangs(&self) -> Result<Epoch, Trouble> {
        let mut gangs = Follower::new(self.lease.client.clone(), self.metrics.clone(), Kind::Gangs);
        let mut highest = Epoch::default();
        let each = |object| {
            if let Object::Gang(record, _) = object {
                highest = highest.max(epoch_of(&record.status));
            }
        };
        match gangs.list(each).await {
            Ok(()) | Err(Trouble::Absent(_)) => Ok(highest),
            Err(trouble) => Err(trouble),
        }
    }
}

/// The newest epoch that a status tells of.
pub(super) fn epoch_of(status: &GangStatus) -> Epoch {
    status.plan.as_ref().map(|plan| plan.epoch).unwrap_or_default().max(status.epoch)
}

fn quoted(holder: &str) -> String {
    if holder.is_empty() { "nobody".to_owned() } else { format!("{holder:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_the_api_server_wants_them() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_266_000_001_234);
        assert_eq!(micro_time(time), "2026-11-21T13:00:00.001234Z");
    }

    #[test]
    fn epochs_only_go_up_whatever_the_lease_says() {
        let floor = Floor::default();
        assert_eq!(floor.above(0), Epoch(1));
        floor.raise(Epoch(7));
        assert_eq!(floor.above(3), Epoch(8), "a lease that was set back");
        assert_eq!(floor.above(9), Epoch(10));
    }

    #[test]
    fn a_lease_is_read_whatever_is_missing_in_it() {
        let read = |json: &str| {
            Reading::of(&Reply { code: 200, body: json.to_owned().into(), retry_after: None }).ok()
        };
        let bare = Reading { version: "7".into(), holder: String::new(), transitions: 0, duration: DURATION };
        assert_eq!(read(r#"{"metadata":{"resourceVersion":"7"}}"#), Some(bare.clone()));
        assert_eq!(
            read(
                r#"{"metadata":{"resourceVersion":"7"},"spec":{"holderIdentity":"a","leaseTransitions":3,"leaseDurationSeconds":15}}"#
            ),
            Some(Reading { holder: "a".into(), transitions: 3, duration: Duration::from_secs(15), ..bare })
        );
        assert_eq!(read("{}"), None);
    }
}
