//! The metrics of the edge to the cluster. Each help text says what to do when the value is high.

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_core::engine::Phase;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::metrics::StaticLabel;

/// Upper bounds in seconds, from a gang that is lifted at once to one that waits for a day.
const WAITING_BUCKETS: [f64; 14] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 28_800.0, 86_400.0];

/// Upper bounds in seconds. One step of the engine takes microseconds, a large plan tens of milliseconds.
const STEP_BUCKETS: [f64; 10] = [50e-6, 250e-6, 1e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 500e-3, 2.5];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: StaticLabel,
    resource: StaticLabel,
    code: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    kind: StaticLabel,
    end: StaticLabel,
}

/// How a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// The API server ended it, as it does every few minutes.
    Closed,
    /// The connection broke, or fell silent.
    Broken,
    /// It fell so far behind that everything has to be listed again.
    Expired,
}

/// How a request ended, in few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseCode(&'static str);

impl ResponseCode {
    /// No answer.
    pub const LOST: Self = Self("lost");

    /// Of an HTTP status.
    pub fn of(status: u16) -> Self {
        Self(match status {
            200 => "200",
            201 => "201",
            403 => "403",
            404 => "404",
            409 => "409",
            410 => "410",
            422 => "422",
            429 => "429",
            500.. => "5xx",
            400.. => "4xx",
            _ => "other",
        })
    }
}

/// What the edge counts. Cheap to clone; all clones count together.
#[derive(Clone)]
pub struct ClusterMetrics {
    leader: Gauge,
    leader_changes: Counter,
    gangs: Family<PhaseLabels, Gauge>,
    waiting: Histogram,
    lifts: Counter,
    lifts_refused: Counter,
    group_status_refused: Counter,
    requests: Family<RequestLabels, Counter>,
    watches_ended: Family<WatchLabels, Counter>,
    unreadable: Family<KindLabels, Counter>,
    events_sent: Counter,
    events_dropped: Counter,
    engine_seconds: Histogram,
    backlog: Gauge,
}

impl Default for ClusterMetrics {
    fn default() -> Self {
        Self {
            leader: Gauge::default(),
            leader_changes: Counter::default(),
            gangs: Family::default(),
            waiting: Histogram::new(WAITING_BUCKETS),
            lifts: Counter::default(),
            lifts_refused: Counter::default(),
            group_status_refused: Counter::default(),
            requests: Family::default(),
            watches_ended: Family::default(),
            unreadable: Family::default(),
            events_sent: Counter::default(),
            events_dropped: Counter::default(),
            engine_seconds: Histogram::new(STEP_BUCKETS),
            backlog: Gauge::default(),
        }
    }
}

impl ClusterMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "leader",
            "Whether this replica leads (1) or stands by (0). The sum over all replicas is 1; 0 for longer than half a minute: no replica can write the lease, the log says why",
            self.leader.clone(),
        );
        registry.register(
            "leader_acquisitions",
            "How often this replica has taken the lease. Rising outside of rollouts: the leader cannot renew in time; look at requests with code=lost and at the load of the API server",
            self.leader_changes.clone(),
        );
        registry.register(
            "gangs",
            "Gangs by phase, as the leader knows them. Waiting stays high: kubectl get gangs -A says what each one waits for. Torn above zero: kubectl describe the gang, it says which pods were not bound and why",
            self.gangs.clone(),
        );
        registry.register(
            "gang_waiting_seconds",
            "Time from the first member of a gang to its lift. Long: the cluster is too small or too fragmented; kubectl get gangs -A says of what there is too little",
            self.waiting.clone(),
        );
        registry.register("lifted_pods", "Pods whose gate was removed. Not rising while pods wait: kubectl get gangs says what each gang waits for", self.lifts.clone());
        registry.register(
            "lifts_refused",
            "Lifts that the API server did not accept; each one is tried again. Rising: somebody else changes gated pods all the time, or a webhook or policy refuses our patch; kubectl describe the gang says which",
            self.lifts_refused.clone(),
        );
        registry.register(
            "group_status_refused",
            "Writes of the status of group objects that the API server did not accept. Gangs are not affected. Rising: RBAC does not allow patch on podgroups/status, or somebody else writes it too; --group-status never leaves it alone",
            self.group_status_refused.clone(),
        );
        registry.register(
            "api_requests",
            "Requests to the API server. code=lost or 5xx rising: the API server is overloaded or out of reach. code=403: RBAC rules are missing, apply manifests/ again. code=429: raise our share with a FlowSchema",
            self.requests.clone(),
        );
        registry.register(
            "watches_ended",
            "Watches that ended. end=closed is ordinary, every few minutes. end=broken rising: the network or a proxy cuts long connections. end=expired rising: this process is too slow to follow; give it more CPU",
            self.watches_ended.clone(),
        );
        registry.register(
            "unreadable_objects",
            "Objects that could not be read and were left as last known. Above zero: the log names each one and the field",
            self.unreadable.clone(),
        );
        registry.register("events_sent", "Events written to the API server. Rising fast: gangs change their reason all the time; kubectl get events -A says which", self.events_sent.clone());
        registry.register(
            "events_dropped",
            "Events that were not written because too many wait or the API server refused them. Rising: the status of the gangs says the same; look at api_requests",
            self.events_dropped.clone(),
        );
        registry.register(
            "engine_seconds",
            "Time the engine takes to plan and decide after each batch of news. Above a tenth of a second: give the process more CPU",
            self.engine_seconds.clone(),
        );
        registry.register(
            "engine_backlog",
            "News that wait for the engine. Steadily above a few hundred: give the process more CPU",
            self.backlog.clone(),
        );
    }

    /// This replica leads from now on, or does not.
    pub fn set_leading(&self, leads: bool) {
        if leads {
            self.leader_changes.inc();
        }
        self.leader.set(i64::from(leads));
    }

    /// How many gangs there are in each phase; phases that are not in it have none.
    pub fn set_gangs(&self, by_phase: &BTreeMap<Phase, i64>) {
        const ALL: [Phase; 6] =
            [Phase::Gathering, Phase::Waiting, Phase::Planned, Phase::Lifting, Phase::Admitted, Phase::Torn];
        for phase in ALL {
            let count = by_phase.get(&phase).copied().unwrap_or(0);
            self.gangs.get_or_create(&PhaseLabels { phase: StaticLabel(phase.as_str()) }).set(count);
        }
    }

    /// A gang was lifted, this long after its first member.
    pub fn observe_gang_wait(&self, waited: Duration) {
        self.waiting.observe(waited.as_secs_f64());
    }

    /// A lift was accepted, or was not.
    pub fn count_lift(&self, accepted: bool) {
        if accepted {
            self.lifts.inc();
        } else {
            self.lifts_refused.inc();
        }
    }

    /// The status of a group object was accepted, or was not.
    pub fn count_group_status_write(&self, accepted: bool) {
        if !accepted {
            self.group_status_refused.inc();
        }
    }

    /// A request came to its end.
    pub fn count_request(&self, verb: &str, resource: &str, code: ResponseCode) {
        let labels = RequestLabels {
            verb: StaticLabel(known(verb, &VERBS)),
            resource: StaticLabel(known(resource, &RESOURCES)),
            code: StaticLabel(code.0),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// A watch of a kind came to its end.
    pub fn count_watch_end(&self, kind: &'static str, end: WatchEnd) {
        let end = StaticLabel(match end {
            WatchEnd::Closed => "closed",
            WatchEnd::Broken => "broken",
            WatchEnd::Expired => "expired",
        });
        self.watches_ended.get_or_create(&WatchLabels { kind: StaticLabel(kind), end }).inc();
    }

    /// An object of a kind could not be read.
    pub fn count_unreadable(&self, kind: &'static str) {
        self.unreadable.get_or_create(&KindLabels { kind: StaticLabel(kind) }).inc();
    }

    /// An event was written, or was not.
    pub fn count_event(&self, sent: bool) {
        if sent {
            self.events_sent.inc();
        } else {
            self.events_dropped.inc();
        }
    }

    /// The engine has taken a batch of news, in this time, and so many more wait.
    pub fn observe_engine_step(&self, took: Duration, waiting: usize) {
        self.engine_seconds.observe(took.as_secs_f64());
        self.backlog.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }
}

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "apply"];
const RESOURCES: [&str; 16] = [
    "pods",
    "pods/status",
    "nodes",
    "gangs",
    "gangs/status",
    "podgroups",
    "podgroups/status",
    "leases",
    "events",
    "priorityclasses",
    "runtimeclasses",
    "namespaces",
    "secrets",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "workloads",
];

fn known(word: &str, words: &[&'static str]) -> &'static str {
    words.iter().find(|known| **known == word).copied().unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn what_is_counted_appears_under_names_of_a_fixed_set() {
        let metrics = ClusterMetrics::default();
        let mut registry = Registry::with_prefix("portcullis");
        metrics.register(&mut registry);
        metrics.set_leading(true);
        metrics.set_gangs(&BTreeMap::from([(Phase::Waiting, 3)]));
        metrics.count_request("patch", "pods", ResponseCode::of(422));
        metrics.count_request("GET\"} 1", "pods/exec", ResponseCode::LOST);
        metrics.count_watch_end("pods", WatchEnd::Expired);
        metrics.count_lift(true);
        let mut text = String::new();
        encode(&mut text, &registry).expect("writing to a String cannot fail");
        for line in [
            "portcullis_leader 1",
            "portcullis_leader_acquisitions_total 1",
            "portcullis_gangs{phase=\"Waiting\"} 3",
            "portcullis_gangs{phase=\"Torn\"} 0",
            "portcullis_api_requests_total{verb=\"patch\",resource=\"pods\",code=\"422\"} 1",
            "portcullis_api_requests_total{verb=\"other\",resource=\"other\",code=\"lost\"} 1",
            "portcullis_watches_ended_total{kind=\"pods\",end=\"expired\"} 1",
            "portcullis_lifted_pods_total 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
