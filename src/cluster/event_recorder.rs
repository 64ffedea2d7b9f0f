//! Records events (`events.k8s.io/v1`) and log lines for users.
//!
//! An event with pods reports a problem or a wait. It is recorded on the gang, on its group object and on
//! those pods. An event without pods reports success and is recorded once: on the group object where there is
//! one, because the status of the `Gang` object says the same. The group object gets the reason and message
//! of its own stack. A repeated event on the same object extends a series instead of creating a new event.
//!
//! Bounds: queued events, events a second, remembered series. Events above a bound are dropped and counted;
//! the status of the gang says the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use portcullis_core::api::ApiResource;
use portcullis_core::engine::{GangEvent, wire};
use portcullis_core::model::Reason;
use portcullis_edge::ObjectReference;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::client::{Client, JSON, MERGE_PATCH, collection_path};
use super::gangs::GangUids;
use super::lease::micro_time;
use super::random;
use crate::telemetry::ClusterMetrics;

/// Events that may wait in the queue.
const MAX_QUEUED_EVENTS: usize = 1024;
/// Rate limit: events a second on average.
const EVENTS_PER_SECOND: u32 = 25;
/// Events that may be sent at once after a quiet time.
const EVENT_BURST: u32 = 100;
/// A repetition within this time extends the series.
const SERIES_WINDOW: Duration = Duration::from_secs(30 * 60);
/// Least time between two writes of a series.
const SERIES_WRITE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of event series that are remembered.
const MAX_REMEMBERED_SERIES: usize = 4096;
/// Longest `note` of an event that the API server accepts.
const MAX_EVENT_NOTE_BYTES: usize = 1024;
/// `reportingController` of the recorded events.
pub const REPORTING_CONTROLLER: &str = "portcullis.dev/gang";

const EVENTS: ApiResource = ApiResource { group: "events.k8s.io", version: "v1", plural: "events" };

/// Handle of the event recorder. Recording never blocks; a full queue drops the event and counts it. Cheap to
/// clone.
#[derive(Clone)]
pub(super) struct EventRecorder {
    queue: mpsc::Sender<QueuedEvent>,
    metrics: ClusterMetrics,
}

impl EventRecorder {
    /// Starts the task that writes events. It ends when every handle is dropped.
    pub(super) fn start(
        client: Client,
        metrics: ClusterMetrics,
        gang_uids: GangUids,
        identity: &str,
    ) -> Self {
        let (queue, events) = mpsc::channel(MAX_QUEUED_EVENTS);
        let writer = EventWriter {
            client,
            metrics: metrics.clone(),
            gang_uids,
            instance: identity.chars().take(128).collect(),
            series: BTreeMap::new(),
            rate_limit: EventRateLimit::new(),
        };
        tokio::spawn(writer.run(events));
        Self { queue, metrics }
    }

    /// Logs an event of the engine and queues it.
    pub(super) fn record(&self, note: GangEvent) {
        let (gang, dialect, reason) = (note.gang.to_string(), note.gang.dialect, note.reason);
        if note.warning {
            tracing::warn!(gang, %dialect, %reason, detail = note.message, "gang event recorded");
        } else {
            tracing::info!(gang, %dialect, %reason, detail = note.message, "gang event recorded");
        }
        self.enqueue(QueuedEvent::GangEvent(note));
    }

    /// Queues an event on an object that cannot be read. The caller logs it.
    pub(super) fn record_unreadable(&self, regarding: ObjectReference, problem: &str) {
        let message =
            format!("Portcullis cannot read this object and uses its last readable state: {problem}");
        self.enqueue(QueuedEvent::Unreadable(regarding, message));
    }

    fn enqueue(&self, event: QueuedEvent) {
        if self.queue.try_send(event).is_err() {
            self.metrics.count_event(false);
        }
    }
}

/// Records events on the Deployment of this program. Cheap to clone.
#[derive(Clone)]
pub struct DeploymentEventRecorder {
    recorder: EventRecorder,
    regarding: ObjectReference,
}

impl DeploymentEventRecorder {
    /// Starts a recorder. `namespace` is that of the Deployment; `identity` names the reporting replica.
    pub fn start(client: Client, metrics: ClusterMetrics, namespace: &str, identity: &str) -> Self {
        let regarding = ObjectReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: namespace.into(),
            name: "portcullis".into(),
            uid: None,
        };
        Self { recorder: EventRecorder::start(client, metrics, GangUids::default(), identity), regarding }
    }

    /// Queues an event. A repetition within half an hour extends the series of the first one.
    pub fn record(&self, reason: &'static str, message: &str, warning: bool) {
        self.recorder.enqueue(QueuedEvent::Other {
            regarding: self.regarding.clone(),
            reason,
            message: message.to_owned(),
            warning,
        });
    }
}

/// An event in the queue.
enum QueuedEvent {
    /// Of the engine, about a gang.
    GangEvent(GangEvent),
    /// About an object that cannot be read.
    Unreadable(ObjectReference, String),
    /// Of another part of this program.
    Other { regarding: ObjectReference, reason: &'static str, message: String, warning: bool },
}

/// The namespace of events about an object.
fn event_namespace(object: &ObjectReference) -> &str {
    if object.namespace.is_empty() { "default" } else { &object.namespace }
}

/// Object, reason and note: equal keys belong to one series.
type SeriesKey = (ObjectReference, &'static str, String);

struct EventSeries {
    /// Name of the event object.
    event: Arc<str>,
    count: u32,
    last: Instant,
    written: Instant,
}

struct EventWriter {
    client: Client,
    metrics: ClusterMetrics,
    gang_uids: GangUids,
    instance: String,
    series: BTreeMap<SeriesKey, EventSeries>,
    rate_limit: EventRateLimit,
}

impl EventWriter {
    async fn run(mut self, mut events: mpsc::Receiver<QueuedEvent>) {
        while let Some(event) = events.recv().await {
            match event {
                QueuedEvent::GangEvent(note) => {
                    for (regarding, reason, message) in recorded_on(&note, &self.gang_uids) {
                        self.write(regarding, reason, message, note.warning).await;
                    }
                }
                QueuedEvent::Unreadable(regarding, message) => {
                    self.write(regarding, Reason::Unreadable.as_str(), &message, true).await;
                }
                QueuedEvent::Other { regarding, reason, message, warning } => {
                    self.write(regarding, reason, &message, warning).await;
                }
            }
        }
    }

    async fn write(
        &mut self,
        regarding: ObjectReference,
        reason: &'static str,
        message: &str,
        warning: bool,
    ) {
        let now = Instant::now();
        let key = (regarding, reason, truncated_note(message));
        if let Some(series) = self.series.get_mut(&key).filter(|s| now.duration_since(s.last) < SERIES_WINDOW)
        {
            series.count = series.count.saturating_add(1);
            series.last = now;
            if now.duration_since(series.written) < SERIES_WRITE_INTERVAL {
                return;
            }
            series.written = now;
            let (event, count) = (series.event.clone(), series.count);
            let patch =
                json!({"series": {"count": count, "lastObservedTime": micro_time(SystemTime::now())}});
            let path = format!("{}/{event}", collection_path(&EVENTS, event_namespace(&key.0)));
            if self.send(Method::PATCH, &path, MERGE_PATCH, &patch).await != Some(404) {
                return;
            }
            // The API server has deleted the event: create a new one.
        }
        // kubectl sorts events by a time that `events.k8s.io` does not let clients set. So the names decide
        // the order.
        let about: String = key.0.name.chars().take(200).collect();
        let event: Arc<str> = format!("{about}.{}", random::time_ordered_name()).into();
        let object = event_object(&event, &key, warning, &self.instance);
        let path = collection_path(&EVENTS, event_namespace(&key.0));
        if self.send(Method::POST, &path, JSON, &object).await.is_some_and(|code| code < 300) {
            self.remember(key, EventSeries { event, count: 1, last: now, written: now });
        }
    }

    fn remember(&mut self, key: SeriesKey, series: EventSeries) {
        if self.series.len() >= MAX_REMEMBERED_SERIES {
            let old = |series: &EventSeries| series.last.elapsed() >= SERIES_WINDOW / 2;
            self.series.retain(|_, series| !old(series));
            if self.series.len() >= MAX_REMEMBERED_SERIES {
                self.series.clear();
            }
        }
        self.series.insert(key, series);
    }

    /// Sends a request and returns its status code; `None` when there is no answer.
    async fn send(&mut self, method: Method, path: &str, media: &str, body: &Value) -> Option<u16> {
        self.rate_limit.take().await;
        let reply = self.client.request(method, path, media, body.to_string().into_bytes()).await;
        let sent = reply.as_ref().is_ok_and(super::client::Reply::ok);
        let expected = reply.as_ref().is_ok_and(|reply| reply.code == 404);
        if sent || !expected {
            self.metrics.count_event(sent);
        }
        match reply {
            Ok(reply) => {
                if !sent && !expected {
                    tracing::debug!(
                        code = reply.code,
                        problem = reply.message(),
                        "API server rejected an event"
                    );
                }
                Some(reply.code)
            }
            Err(lost) => {
                tracing::debug!(problem = %lost, "no answer to an event");
                None
            }
        }
    }
}

/// The objects that an event of the engine is recorded on, each with reason and message.
fn recorded_on<'n>(
    note: &'n GangEvent,
    gang_uids: &GangUids,
) -> Vec<(ObjectReference, &'static str, &'n str)> {
    let ours = |regarding| (regarding, note.reason.as_str(), note.message.as_str());
    let namespace = note.gang.namespace.clone();
    let gang = || ObjectReference {
        api_version: format!("{}/{}", wire::GANGS.group, wire::GANGS.version).into(),
        kind: "Gang".into(),
        namespace: namespace.clone(),
        name: note.gang.object_name(),
        uid: gang_uids.uid(&note.gang),
    };
    let group = note.group.as_ref().map(|group| {
        let regarding = ObjectReference {
            api_version: group.api_version.clone(),
            kind: group.kind.clone(),
            namespace: namespace.clone(),
            name: group.name.clone(),
            uid: Some(group.uid.clone()),
        };
        match &note.group_event {
            Some(event) => (regarding, event.reason, event.message.as_str()),
            None => ours(regarding),
        }
    });
    if note.pods.is_empty() && !note.warning {
        return vec![group.unwrap_or_else(|| ours(gang()))];
    }
    let pods = note.pods.iter().map(|pod| ObjectReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: pod.key.namespace.clone(),
        name: pod.key.name.clone(),
        uid: Some(pod.uid.0.clone()),
    });
    std::iter::once(ours(gang())).chain(group).chain(pods.map(ours)).collect()
}

fn event_object(name: &str, key: &SeriesKey, warning: bool, instance: &str) -> Value {
    let (regarding, reason, note) = key;
    let mut about = json!({
        "apiVersion": &*regarding.api_version, "kind": &*regarding.kind, "name": &*regarding.name,
    });
    if !regarding.namespace.is_empty() {
        about["namespace"] = (*regarding.namespace).into();
    }
    if let Some(uid) = &regarding.uid {
        about["uid"] = (**uid).into();
    }
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": name, "namespace": event_namespace(regarding)},
        "eventTime": micro_time(SystemTime::now()),
        "reportingController": REPORTING_CONTROLLER, "reportingInstance": instance,
        "action": "Gang", "reason": reason, "note": note,
        "type": if warning { "Warning" } else { "Normal" },
        "regarding": about,
    })
}

/// The note, cut between characters to the length that the API server accepts.
fn truncated_note(note: &str) -> String {
    portcullis_text::truncate::ellipsize_bytes(note, MAX_EVENT_NOTE_BYTES).into_owned()
}

/// Token bucket: [`EVENT_BURST`] at once, then [`EVENTS_PER_SECOND`].
struct EventRateLimit {
    left: u32,
    refill: Interval,
}

impl EventRateLimit {
    fn new() -> Self {
        let mut refill = interval(Duration::from_secs(1) / EVENTS_PER_SECOND);
        refill.set_missed_tick_behavior(MissedTickBehavior::Burst);
        Self { left: EVENT_BURST, refill }
    }

    async fn take(&mut self) {
        use futures_util::FutureExt;
        while self.left < EVENT_BURST && self.refill.tick().now_or_never().is_some() {
            self.left += 1;
        }
        if self.left == 0 {
            self.refill.tick().await;
            return;
        }
        self.left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::dialect::GroupEvent;
    use portcullis_core::engine::PodRef;
    use portcullis_core::model::{DialectId, GangId, PodKey, str};
    use portcullis_core::objects::ObjectRef;

    use super::*;

    fn note(group: bool, pods: &[&str], warning: bool) -> GangEvent {
        let pod = |name: &&str| PodRef { key: PodKey::new("ns", name), uid: (*name).into() };
        GangEvent {
            gang: GangId::new(DialectId::Kai, "ns", "train"),
            reason: Reason::Lifted,
            message: "2 of 2 lifted".to_owned(),
            warning,
            group: group.then(|| ObjectRef {
                api_version: str("scheduling.run.ai/v2alpha2"),
                kind: str("PodGroup"),
                name: str("train"),
                uid: str("g"),
            }),
            group_event: group
                .then(|| GroupEvent { reason: "Scheduled", message: "pod group is ready".to_owned() }),
            pods: pods.iter().map(pod).collect(),
        }
    }

    #[test]
    fn success_is_one_event_and_a_problem_is_recorded_on_every_object() {
        let gang_uids = GangUids::default();
        let check = |note: GangEvent, expected: &[&str]| {
            let kinds: Vec<String> = recorded_on(&note, &gang_uids)
                .into_iter()
                .map(|(r, why, _)| format!("{why}: {}/{}", r.kind, r.name))
                .collect();
            assert_eq!(kinds, expected);
        };
        check(note(true, &[], false), &["Scheduled: PodGroup/train"]);
        check(note(false, &[], false), &["Lifted: Gang/train"]);
        check(
            note(true, &["a", "b"], false),
            &["Lifted: Gang/train", "Scheduled: PodGroup/train", "Lifted: Pod/a", "Lifted: Pod/b"],
        );
        check(note(false, &[], true), &["Lifted: Gang/train"]);
    }

    #[test]
    fn an_event_names_the_uid_of_its_gang() {
        let gang_uids = GangUids::default();
        let note = note(false, &[], false);
        gang_uids.set(&note.gang, &str("u"));
        let (regarding, reason, message) = recorded_on(&note, &gang_uids).remove(0);
        let key = (regarding, reason, message.to_owned());
        let event = event_object("train.1", &key, note.warning, "a");
        assert_eq!(
            event["regarding"],
            json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "Gang", "namespace": "ns", "name": "train", "uid": "u"})
        );
        assert_eq!((&event["type"], &event["reason"]), (&json!("Normal"), &json!("Lifted")));
    }

    #[test]
    fn an_event_about_a_cluster_scoped_object_is_created_in_default() {
        let node = ObjectReference {
            api_version: str("v1"),
            kind: str("Node"),
            namespace: str(""),
            name: str("gpu-1"),
            uid: Some(str("n")),
        };
        let key = (node, Reason::Unreadable.as_str(), "no".to_owned());
        let event = event_object("gpu-1.1", &key, true, "a");
        assert_eq!(event["metadata"]["namespace"], json!("default"));
        assert_eq!(
            event["regarding"],
            json!({"apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "n"})
        );
    }

    #[test]
    fn a_long_note_is_cut_to_the_limit_of_the_api_server() {
        let long = "ä".repeat(MAX_EVENT_NOTE_BYTES);
        let cut = truncated_note(&long);
        assert!(cut.len() <= MAX_EVENT_NOTE_BYTES && cut.ends_with("ä…"), "{} bytes", cut.len());
        assert_eq!(truncated_note("short"), "short");
    }
}
