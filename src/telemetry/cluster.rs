//! The metrics of the engine and of the connection to the API server. Each help text says what to do if the
//! value is high.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_core::engine::Phase;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::metrics::StaticLabel;

/// Upper bounds of the waiting time of gangs: from immediate admission to one day.
const GANG_WAIT_BUCKETS_SECONDS: [f64; 14] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 28_800.0, 86_400.0];

/// Upper bounds of the engine's step time. A step takes microseconds, a large plan tens of milliseconds.
const ENGINE_STEP_BUCKETS_SECONDS: [f64; 10] =
    [50e-6, 250e-6, 1e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 500e-3, 2.5];

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
    /// The API server closed it, as it does every few minutes.
    Closed,
    /// The connection broke or sent nothing for too long.
    Broken,
    /// The watch fell too far behind, and all objects must be listed again.
    Expired,
}

/// The result of an API request as a label value from a fixed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseCode(&'static str);

impl ResponseCode {
    /// The request got no answer.
    pub const LOST: Self = Self("lost");

    /// Returns the label of an HTTP status.
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

/// The metrics of the engine and of the connection to the API server. Cheap to clone; all clones update the
/// same values.
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
    invariant_violations: Counter,
    refuted_plans: Counter,
    /// The last refuted plan as a planning case in JSON.
    refuted_plan: Arc<Mutex<Option<Arc<str>>>>,
}

impl Default for ClusterMetrics {
    fn default() -> Self {
        Self {
            leader: Gauge::default(),
            leader_changes: Counter::default(),
            gangs: Family::default(),
            waiting: Histogram::new(GANG_WAIT_BUCKETS_SECONDS),
            lifts: Counter::default(),
            lifts_refused: Counter::default(),
            group_status_refused: Counter::default(),
            requests: Family::default(),
            watches_ended: Family::default(),
            unreadable: Family::default(),
            events_sent: Counter::default(),
            events_dropped: Counter::default(),
            engine_seconds: Histogram::new(ENGINE_STEP_BUCKETS_SECONDS),
            backlog: Gauge::default(),
            invariant_violations: Counter::default(),
            refuted_plans: Counter::default(),
            refuted_plan: Arc::default(),
        }
    }
}

impl ClusterMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "leader",
            "Whether this replica is the leader (1) or not (0). The sum over all replicas is 1. Sum 0 for more than 30 seconds: no replica can write the lease; the log shows the error",
            self.leader.clone(),
        );
        registry.register(
            "leader_acquisitions",
            "How often this replica acquired the lease. Rising outside of rollouts: the leader cannot renew the lease in time; check api_requests with code=lost and the load of the API server",
            self.leader_changes.clone(),
        );
        registry.register(
            "gangs",
            "Gangs by phase, as the leader observes them. Waiting stays high: kubectl get gangs -A shows what each gang waits for. Torn above zero: kubectl describe gang shows which pods were not bound and why",
            self.gangs.clone(),
        );
        registry.register(
            "gang_waiting_seconds",
            "Time from the first member of a gang to the removal of its gates. High: the cluster is too small or too fragmented; kubectl get gangs -A shows which resource is short",
            self.waiting.clone(),
        );
        registry.register("lifted_pods", "Pods whose gate was removed. Not rising while pods wait: kubectl get gangs -A shows what each gang waits for", self.lifts.clone());
        registry.register(
            "lifts_refused",
            "Gate removals that the API server rejected; the engine retries each one. Rising: another controller changes gated pods often, or a webhook or policy rejects the patch; kubectl describe gang shows which",
            self.lifts_refused.clone(),
        );
        registry.register(
            "group_status_refused",
            "Status writes of pod groups that the API server rejected. Gangs are not affected. Rising: RBAC does not allow patch on podgroups/status, or another controller owns the status; --group-status never disables these writes",
            self.group_status_refused.clone(),
        );
        registry.register(
            "api_requests",
            "Requests to the API server. code=lost or 5xx rising: the API server is overloaded or unreachable. code=403: RBAC rules are missing; apply manifests/ again. code=429: raise the share of Portcullis with a FlowSchema",
            self.requests.clone(),
        );
        registry.register(
            "watches_ended",
            "Ended watches. end=closed is normal, every few minutes. end=broken rising: the network or a proxy cuts long connections. end=expired rising: this process is too slow for the watch; give it more CPU",
            self.watches_ended.clone(),
        );
        registry.register(
            "unreadable_objects",
            "Objects that could not be parsed; the last valid version stays in use. Above zero: the log names the object and the field",
            self.unreadable.clone(),
        );
        registry.register("events_sent", "Events written to the API server. Rising fast: gangs change their reason often; kubectl get events -A shows which", self.events_sent.clone());
        registry.register(
            "events_dropped",
            "Events that were dropped because the queue was full or the API server rejected them. Rising: check api_requests; the status of the gangs has the same information",
            self.events_dropped.clone(),
        );
        registry.register(
            "engine_seconds",
            "Time the engine takes for a batch of events. Above 0.1 seconds: give the process more CPU",
            self.engine_seconds.clone(),
        );
        registry.register(
            "engine_backlog",
            "Events that wait for the engine. Constantly above a few hundred: give the process more CPU",
            self.backlog.clone(),
        );
        registry.register(
            "engine_invariant_violations",
            "Broken internal promises of the engine. Anything but 0 is a defect: report it with the log",
            self.invariant_violations.clone(),
        );
        registry.register(
            "engine_refuted_plans",
            "Plans that were withheld because their check failed. Anything but 0 is a defect: report it with /refuted-plan",
            self.refuted_plans.clone(),
        );
    }

    /// Records whether this replica is the leader.
    pub fn set_leading(&self, leads: bool) {
        if leads {
            self.leader_changes.inc();
        }
        self.leader.set(i64::from(leads));
    }

    /// Sets the number of gangs in each phase. Missing phases are set to 0.
    pub fn set_gangs(&self, by_phase: &BTreeMap<Phase, i64>) {
        const ALL: [Phase; 6] =
            [Phase::Gathering, Phase::Waiting, Phase::Planned, Phase::Lifting, Phase::Admitted, Phase::Torn];
        for phase in ALL {
            let count = by_phase.get(&phase).copied().unwrap_or(0);
            self.gangs.get_or_create(&PhaseLabels { phase: StaticLabel(phase.as_str()) }).set(count);
        }
    }

    /// Records the time from the first member of a gang to the removal of its gates.
    pub fn observe_gang_wait(&self, waited: Duration) {
        self.waiting.observe(waited.as_secs_f64());
    }

    /// Counts a gate removal.
    pub fn count_lift(&self, accepted: bool) {
        if accepted {
            self.lifts.inc();
        } else {
            self.lifts_refused.inc();
        }
    }

    /// Counts a status write of a pod group.
    pub fn count_group_status_write(&self, accepted: bool) {
        if !accepted {
            self.group_status_refused.inc();
        }
    }

    /// Counts a request to the API server.
    pub fn count_request(&self, verb: &str, resource: &str, code: ResponseCode) {
        let labels = RequestLabels {
            verb: StaticLabel(known(verb, &VERBS)),
            resource: StaticLabel(known(resource, &RESOURCES)),
            code: StaticLabel(code.0),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts the end of a watch.
    pub fn count_watch_end(&self, kind: &'static str, end: WatchEnd) {
        let end = StaticLabel(match end {
            WatchEnd::Closed => "closed",
            WatchEnd::Broken => "broken",
            WatchEnd::Expired => "expired",
        });
        self.watches_ended.get_or_create(&WatchLabels { kind: StaticLabel(kind), end }).inc();
    }

    /// Counts an object that could not be parsed.
    pub fn count_unreadable(&self, kind: &'static str) {
        self.unreadable.get_or_create(&KindLabels { kind: StaticLabel(kind) }).inc();
    }

    /// Counts an event that was written or dropped.
    pub fn count_event(&self, sent: bool) {
        if sent {
            self.events_sent.inc();
        } else {
            self.events_dropped.inc();
        }
    }

    /// Records the time of an engine step, and the number of events that wait for the next one.
    pub fn observe_engine_step(&self, took: Duration, waiting: usize) {
        self.engine_seconds.observe(took.as_secs_f64());
        self.backlog.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// Counts broken internal promises of the engine.
    pub fn count_invariant_violations(&self, number: u64) {
        self.invariant_violations.inc_by(number);
    }

    /// Counts refuted plans, and keeps the last one in place of the one before.
    pub fn count_refuted_plans(&self, number: u64, last: Arc<str>) {
        self.refuted_plans.inc_by(number);
        *self.refuted_plan.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    /// The last refuted plan as a planning case in JSON.
    pub fn refuted_plan(&self) -> Option<Arc<str>> {
        self.refuted_plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "apply"];
const RESOURCES: [&str; 17] = [
    "pods",
    "pods/eviction",
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
    fn label_values_come_from_a_fixed_set() {
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
