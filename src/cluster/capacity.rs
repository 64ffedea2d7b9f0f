//! Publishes the capacity report of `portcullis_core::capacity` to policies, in one ConfigMap.
//!
//! Invariants: only the leader writes, at most every [`REPORT_INTERVAL`]. It writes if the numbers have
//! changed or the last write is [`REFRESH_INTERVAL`] ago, so that readers can recognize a report without a
//! writer as expired. Nothing is computed unless an expression of an active or candidate policy needs
//! capacity (`PolicySet::data_dependencies`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use portcullis_core::api::{ApiRequest, ApiResource, ApiResponse, ApiVerb};
use portcullis_core::capacity::{CapacityReport, capacity_report};
use portcullis_core::engine::Engine;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::client::Client;
use crate::clock::seconds_now;
use crate::telemetry::LastProblem;

/// Name of the ConfigMap, in the namespace of the installation.
pub(crate) const CONFIG_MAP_NAME: &str = "portcullis-capacity";
/// The only key of the ConfigMap.
pub(crate) const CONFIG_MAP_KEY: &str = "capacity.json";
const CONFIG_MAPS: ApiResource = ApiResource { group: "", version: "v1", plural: "configmaps" };
/// Minimum interval between two writes, and interval between two reads of a replica.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between two reports if nothing has changed. Policies ignore a report that is older than four of
/// these intervals.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Delay between a failed request and the next one.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Upper bound of the report's size, below the object size limit of etcd. The report of 1,000 namespaces and
/// 5,000 gangs is far smaller.
const MAX_CONFIG_MAP_BYTES: usize = 900_000;

/// Sends reports from the engine's loop, at most every [`REPORT_INTERVAL`].
pub(super) struct CapacityReporter {
    wanted: watch::Receiver<bool>,
    out: watch::Sender<Option<CapacityReport>>,
    /// When the reporter last computed a report.
    computed: Option<Instant>,
    /// When the reporter last sent a report.
    sent: Option<Instant>,
}

impl CapacityReporter {
    /// Returns a reporter and the receiver of its reports.
    pub(super) fn new(wanted: watch::Receiver<bool>) -> (Self, watch::Receiver<Option<CapacityReport>>) {
        let (out, reports) = watch::channel(None);
        (Self { wanted, out, computed: None, sent: None }, reports)
    }

    /// Returns the time until the next report is due; `None` while no policy needs capacity or this replica
    /// does not lead. `changed`: the engine has handled an event since the last report was computed.
    pub(super) fn time_until_due(&self, engine: &Engine, changed: bool) -> Option<Duration> {
        let wanted = *self.wanted.borrow() && engine.leads();
        let (since, interval) =
            if changed { (self.computed, REPORT_INTERVAL) } else { (self.sent, REFRESH_INTERVAL) };
        wanted.then(|| since.map_or(Duration::ZERO, |since| interval.saturating_sub(since.elapsed())))
    }

    /// Computes a report if it is due, and sends it if it is new. Returns whether a report was computed: then
    /// the next one is due after a change or the refresh interval.
    pub(super) fn report(&mut self, engine: &Engine, changed: bool) -> bool {
        if !engine.leads() {
            // The next leader reports.
            self.out.send_if_modified(|report| report.take().is_some());
            (self.computed, self.sent) = (None, None);
            return false;
        }
        if self.time_until_due(engine, changed) != Some(Duration::ZERO) {
            return false;
        }
        self.computed = Some(Instant::now());
        let report = capacity_report(engine);
        let refresh = self.sent.is_none_or(|sent| sent.elapsed() >= REFRESH_INTERVAL);
        let sent = self.out.send_if_modified(|last| {
            // A report that differs only in its time is not sent.
            let report = CapacityReport { at: last.as_ref().and_then(|last| last.at), ..report };
            let send = refresh || last.as_ref() != Some(&report);
            if send {
                *last = Some(CapacityReport { at: Some(seconds_now()), ..report });
            }
            send
        });
        if sent {
            self.sent = self.computed;
        }
        true
    }
}

/// Writes each report to the ConfigMap. Returns when the reporter is dropped.
pub(super) async fn publish(
    client: Client,
    namespace: String,
    mut reports: watch::Receiver<Option<CapacityReport>>,
) {
    let mut last_problem = LastProblem::default();
    while reports.changed().await.is_ok() {
        let Some(report) = reports.borrow_and_update().clone() else { continue };
        let pause = match write(&client, &namespace, &report).await {
            Ok(()) => {
                last_problem.clear();
                REPORT_INTERVAL
            }
            Err(problem) => {
                if last_problem.is_new(&problem) {
                    tracing::warn!(
                        problem,
                        config_map = CONFIG_MAP_NAME,
                        "capacity report could not be written; policies that use capacity get no new numbers"
                    );
                }
                // The same report is written again.
                reports.mark_changed();
                RETRY_DELAY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn write(client: &Client, namespace: &str, report: &CapacityReport) -> Result<(), String> {
    let mut text = serde_json::to_string(report).map_err(|error| error.to_string())?;
    if text.len() > MAX_CONFIG_MAP_BYTES {
        // The sums stay correct without the gangs. But a policy then counts a gang twice when a user applies
        // it again.
        let without_gangs = CapacityReport { gangs: BTreeMap::new(), ..report.clone() };
        text = serde_json::to_string(&without_gangs).map_err(|error| error.to_string())?;
    }
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP_NAME, "namespace": namespace, "labels": {
            "app.kubernetes.io/name": "portcullis", "app.kubernetes.io/part-of": "portcullis"}},
        "data": {CONFIG_MAP_KEY: text},
    });
    let patch = json!({"data": {CONFIG_MAP_KEY: text}});
    match send_request(client, namespace, ApiVerb::MergePatch(patch)).await {
        ApiResponse::Object(_) => Ok(()),
        ApiResponse::Status { code: 404, .. } => {
            match send_request(client, namespace, ApiVerb::Create(object)).await {
                ApiResponse::Object(_) => Ok(()),
                other => Err(describe_failure(&other)),
            }
        }
        other => Err(describe_failure(&other)),
    }
}

async fn send_request(client: &Client, namespace: &str, verb: ApiVerb) -> ApiResponse {
    let request = ApiRequest {
        verb,
        resource: CONFIG_MAPS,
        namespace: namespace.to_owned(),
        name: CONFIG_MAP_NAME.to_owned(),
        subresource: None,
    };
    client.send(&request).await
}

fn describe_failure(response: &ApiResponse) -> String {
    response.problem().unwrap_or_else(|| "an unexpected object in the response".to_owned())
}

/// Reads the leader's report; `None` if the ConfigMap does not exist.
///
/// # Errors
/// Why the report cannot be read.
pub(super) async fn read(client: &Client, namespace: &str) -> Result<Option<CapacityReport>, String> {
    match send_request(client, namespace, ApiVerb::Get).await {
        ApiResponse::Object(json) => {
            let object: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
            let text = object["data"][CONFIG_MAP_KEY]
                .as_str()
                .ok_or_else(|| format!("the ConfigMap has no key {CONFIG_MAP_KEY}"))?;
            serde_json::from_str(text).map(Some).map_err(|error| error.to_string())
        }
        ApiResponse::Status { code: 404, .. } => Ok(None),
        other => Err(describe_failure(&other)),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::engine::{EngineSettings, Event, ListedObjects};
    use portcullis_core::model::{Epoch, Time};
    use portcullis_core::objects::Node;

    use super::*;

    /// A leading engine in a cluster of one node.
    fn leading_engine() -> Engine {
        let node = json!({
            "metadata": {"name": "a", "labels": {"nvidia.com/gpu.product": "A100"}},
            "status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"},
                       "conditions": [{"type": "Ready", "status": "True"}]}
        });
        let listed = ListedObjects {
            nodes: Some(vec![Node::read(&node.to_string()).expect("a node")]),
            pods: Some(Vec::new()),
            gangs: Some(Vec::new()),
            ..ListedObjects::default()
        };
        let mut engine = Engine::new(EngineSettings::default());
        engine.step(Event::LeaseAcquired(Epoch(1)), Time(1_800_000_000_000));
        engine.step(Event::Listed(Epoch(1), listed), Time(1_800_000_000_000));
        engine
    }

    #[test]
    fn an_unchanged_report_is_refreshed_before_it_expires() {
        let engine = leading_engine();
        let (_wanted_sender, wanted) = watch::channel(true);
        let (mut reporter, mut reports) = CapacityReporter::new(wanted);
        let ago = |time| Instant::now().checked_sub(time).expect("the machine has been up for a minute");
        let mut poll = |reporter: &mut CapacityReporter, changed| {
            let computed = reporter.report(&engine, changed);
            (
                computed,
                reports.has_changed().expect("the reporter exists"),
                reports.borrow_and_update().clone(),
            )
        };
        let (_, sent, first) = poll(&mut reporter, true);
        let first = first.expect("the engine leads");
        assert!(sent && first.at.is_some_and(|at| at > 1_700_000_000), "{first:?}");
        // An event has happened, and the numbers are the same.
        reporter.computed = Some(ago(REPORT_INTERVAL));
        assert_eq!(poll(&mut reporter, true), (true, false, Some(first.clone())));
        assert!(reporter.time_until_due(&engine, false).is_some_and(|due| due > REPORT_INTERVAL));
        assert!(!poll(&mut reporter, false).0, "no event has happened");
        // No event happens for the refresh interval.
        reporter.sent = Some(ago(REFRESH_INTERVAL));
        assert_eq!(reporter.time_until_due(&engine, false), Some(Duration::ZERO));
        let (computed, sent, again) = poll(&mut reporter, false);
        assert!(computed && sent, "a user may have deleted the ConfigMap meanwhile");
        assert_eq!(CapacityReport { at: first.at, ..again.expect("the engine leads") }, first);
        assert!(!poll(&mut reporter, false).0, "a report was sent a moment ago");
    }
}
