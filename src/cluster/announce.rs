//! What the engine tells people, as events (`events.k8s.io/v1`) and log lines.
//!
//! A note that names pods says that something is wrong or waited for: the gang, its group object and those pods each get
//! the event. A note that names none says that all is well, and is one event: on the group object where there is one,
//! because our own object's status says it too. The group object hears it in the words of its stack. The same about the same object again is a series, not a new event.
//!
//! Bounds: notes that wait, events a second, events that are remembered. What is too much is dropped and counted; the
//! status of the gang says the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use portcullis_core::api::ApiResource;
use portcullis_core::engine::{GangEvent, wire};
use portcullis_core::model::{Reason, Str};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::client::{Client, JSON, MERGE_PATCH, collection_path};
use super::gangs::Directory;
use super::lease::micro_time;
use super::random;
use crate::telemetry::ClusterMetrics;

/// Notes that may wait.
const WAITING: usize = 1024;
/// At most so many events a second, on average; so many at once after a quiet time.
const EACH_SECOND: u32 = 25;
const AT_ONCE: u32 = 100;
/// The same again within this time belongs to the series.
const SERIES: Duration = Duration::from_secs(30 * 60);
/// A series is written at most this often.
const SERIES_WRITE: Duration = Duration::from_secs(60);
/// Series that are remembered.
const REMEMBERED: usize = 4096;
/// The API server takes no longer notes (bytes).
const LONGEST_NOTE: usize = 1024;
/// `reportingController` of our events.
pub const REPORTING_CONTROLLER: &str = "portcullis.dev/gang";

const EVENTS: ApiResource = ApiResource { group: "events.k8s.io", version: "v1", plural: "events" };

/// Takes notes and returns at once. Cheap to clone.
#[derive(Clone)]
pub(super) struct Announcer {
    words: mpsc::Sender<Word>,
    metrics: ClusterMetrics,
}

impl Announcer {
    /// The task writes the notes down until every announcer is gone.
    pub(super) fn start(
        client: Client,
        metrics: ClusterMetrics,
        directory: Directory,
        identity: &str,
    ) -> Self {
        let (words, waiting) = mpsc::channel(WAITING);
        let writer = Writer {
            client,
            metrics: metrics.clone(),
            directory,
            instance: identity.chars().take(128).collect(),
            series: BTreeMap::new(),
            allowance: Allowance::new(),
        };
        tokio::spawn(writer.run(waiting));
        Self { words, metrics }
    }

    /// Tells people, soon.
    pub(super) fn tell(&self, note: GangEvent) {
        let (gang, dialect, reason) = (note.gang.to_string(), note.gang.dialect, note.reason);
        if note.warning {
            tracing::warn!(gang, %dialect, %reason, "{}", note.message);
        } else {
            tracing::info!(gang, %dialect, %reason, "{}", note.message);
        }
        self.say(Word::GangEvent(note));
    }

    /// Tells whoever looks at an object that it cannot be read; the log has been told.
    pub(super) fn unreadable(&self, regarding: Regarding, problem: &str) {
        let message =
            format!("Portcullis cannot read this object and goes by what it last read of it: {problem}");
        self.say(Word::Unreadable(regarding, message));
    }

    fn say(&self, word: Word) {
        if self.words.try_send(word).is_err() {
            self.metrics.count_event(false);
        }
    }
}

/// Tells whoever looks at our Deployment. Cheap to clone.
#[derive(Clone)]
pub struct Teller {
    announcer: Announcer,
    regarding: Regarding,
}

impl Teller {
    /// `namespace` is our own; `identity` says which replica speaks.
    pub fn start(client: Client, metrics: ClusterMetrics, namespace: &str, identity: &str) -> Self {
        let regarding = Regarding {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: namespace.into(),
            name: "portcullis".into(),
            uid: None,
        };
        Self { announcer: Announcer::start(client, metrics, Directory::default(), identity), regarding }
    }

    /// Writes an event, soon. The same again within half an hour is one event.
    pub fn tell(&self, reason: &'static str, message: &str, warning: bool) {
        self.announcer.say(Word::Other {
            regarding: self.regarding.clone(),
            reason,
            message: message.to_owned(),
            warning,
        });
    }
}

/// Something to tell.
enum Word {
    /// By the engine, about a gang.
    GangEvent(GangEvent),
    /// By the edge, about one object.
    Unreadable(Regarding, String),
    /// By others of this program.
    Other { regarding: Regarding, reason: &'static str, message: String, warning: bool },
}

/// An object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Regarding {
    pub api_version: Str,
    pub kind: Str,
    /// Empty where the kind lives in none.
    pub namespace: Str,
    pub name: Str,
    pub uid: Option<Str>,
}

impl Regarding {
    /// Where events about it are kept.
    fn events_in(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }
}

/// What makes two events the same.
type SeriesKey = (Regarding, &'static str, String);

struct Series {
    /// Name of the event object.
    event: Arc<str>,
    count: u32,
    last: Instant,
    written: Instant,
}

struct Writer {
    client: Client,
    metrics: ClusterMetrics,
    directory: Directory,
    instance: String,
    series: BTreeMap<SeriesKey, Series>,
    allowance: Allowance,
}

impl Writer {
    async fn run(mut self, mut words: mpsc::Receiver<Word>) {
        while let Some(word) = words.recv().await {
            match word {
                Word::GangEvent(note) => {
                    for (regarding, reason, message) in audience(&note, &self.directory) {
                        self.write(regarding, reason, message, note.warning).await;
                    }
                }
                Word::Unreadable(regarding, message) => {
                    self.write(regarding, Reason::Unreadable.as_str(), &message, true).await;
                }
                Word::Other { regarding, reason, message, warning } => {
                    self.write(regarding, reason, &message, warning).await;
                }
            }
        }
    }

    async fn write(&mut self, regarding: Regarding, reason: &'static str, message: &str, warning: bool) {
        let now = Instant::now();
        let key = (regarding, reason, shortened(message));
        if let Some(series) = self.series.get_mut(&key).filter(|s| now.duration_since(s.last) < SERIES) {
            series.count = series.count.saturating_add(1);
            series.last = now;
            if now.duration_since(series.written) < SERIES_WRITE {
                return;
            }
            series.written = now;
            let (event, count) = (series.event.clone(), series.count);
            let patch =
                json!({"series": {"count": count, "lastObservedTime": micro_time(SystemTime::now())}});
            let path = format!("{}/{event}", collection_path(&EVENTS, key.0.events_in()));
            if self.send(Method::PATCH, &path, MERGE_PATCH, &patch).await != Some(404) {
                return;
            }
            // The event has outlived its time: begin anew.
        }
        // kubectl sorts events by a time that events.k8s.io no longer lets us set, so their names decide.
        let about: String = key.0.name.chars().take(200).collect();
        let event: Arc<str> = format!("{about}.{}", random::name_in_time_order()).into();
        let object = event_object(&event, &key, warning, &self.instance);
        let path = collection_path(&EVENTS, key.0.events_in());
        if self.send(Method::POST, &path, JSON, &object).await.is_some_and(|code| code < 300) {
            self.remember(key, Series { event, count: 1, last: now, written: now });
        }
    }

    fn remember(&mut self, key: SeriesKey, series: Series) {
        if self.series.len() >= REMEMBERED {
            let old = |series: &Series| series.last.elapsed() >= SERIES / 2;
            self.series.retain(|_, series| !old(series));
            if self.series.len() >= REMEMBERED {
                self.series.clear();
            }
        }
        self.series.insert(key, series);
    }

    /// The status code, or nothing when there is no answer.
    async fn send(&mut self, method: Method, path: &str, media: &str, body: &Value) -> Option<u16> {
        self.allowance.take().await;
        let reply = self.client.request(method, path, media, body.to_string().into_bytes()).await;
        let sent = reply.as_ref().is_ok_and(super::client::Reply::ok);
        let expected = reply.as_ref().is_ok_and(|reply| reply.code == 404);
        if sent || !expected {
            self.metrics.count_event(sent);
        }
        match reply {
            Ok(reply) => {
                if !sent && !expected {
                    tracing::debug!(code = reply.code, problem = reply.message(), "an event was refused");
                }
                Some(reply.code)
            }
            Err(lost) => {
                tracing::debug!(problem = %lost, "an event was lost");
                None
            }
        }
    }
}

/// Who is told what: reason and sentence.
fn audience<'n>(note: &'n GangEvent, directory: &Directory) -> Vec<(Regarding, &'static str, &'n str)> {
    let ours = |regarding| (regarding, note.reason.as_str(), note.message.as_str());
    let namespace = note.gang.namespace.clone();
    let gang = || Regarding {
        api_version: format!("{}/{}", wire::GANGS.group, wire::GANGS.version).into(),
        kind: "Gang".into(),
        namespace: namespace.clone(),
        name: note.gang.object_name(),
        uid: directory.uid(&note.gang),
    };
    let group = note.group.as_ref().map(|group| {
        let regarding = Regarding {
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
    let pods = note.pods.iter().map(|pod| Regarding {
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
        "metadata": {"name": name, "namespace": regarding.events_in()},
        "eventTime": micro_time(SystemTime::now()),
        "reportingController": REPORTING_CONTROLLER, "reportingInstance": instance,
        "action": "Gang", "reason": reason, "note": note,
        "type": if warning { "Warning" } else { "Normal" },
        "regarding": about,
    })
}

/// Not more than the API server takes, cut between characters.
fn shortened(note: &str) -> String {
    portcullis_text::truncate::ellipsize_bytes(note, LONGEST_NOTE).into_owned()
}

/// So many at once, and so many a second after that.
struct Allowance {
    left: u32,
    refill: Interval,
}

impl Allowance {
    fn new() -> Self {
        let mut refill = interval(Duration::from_secs(1) / EACH_SECOND);
        refill.set_missed_tick_behavior(MissedTickBehavior::Burst);
        Self { left: AT_ONCE, refill }
    }

    async fn take(&mut self) {
        use futures_util::FutureExt;
        while self.left < AT_ONCE && self.refill.tick().now_or_never().is_some() {
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
    fn good_news_is_one_event_and_bad_news_reaches_everybody() {
        let directory = Directory::default();
        let check = |note: GangEvent, expected: &[&str]| {
            let kinds: Vec<String> = audience(&note, &directory)
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
    fn an_event_says_about_which_object_of_that_name() {
        let directory = Directory::default();
        let note = note(false, &[], false);
        directory.note(&note.gang, &str("u"));
        let (regarding, reason, message) = audience(&note, &directory).remove(0);
        let key = (regarding, reason, message.to_owned());
        let event = event_object("train.1", &key, note.warning, "a");
        assert_eq!(
            event["regarding"],
            json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "Gang", "namespace": "ns", "name": "train", "uid": "u"})
        );
        assert_eq!((&event["type"], &event["reason"]), (&json!("Normal"), &json!("Lifted")));
    }

    #[test]
    fn an_event_about_what_lives_in_no_namespace_is_kept_in_default() {
        let node = Regarding {
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
    fn a_note_is_cut_to_what_the_api_server_takes() {
        let long = "ä".repeat(LONGEST_NOTE);
        let cut = shortened(&long);
        assert!(cut.len() <= LONGEST_NOTE && cut.ends_with("ä…"), "{} bytes", cut.len());
        assert_eq!(shortened("short"), "short");
    }
}
