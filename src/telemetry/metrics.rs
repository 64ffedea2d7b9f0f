//! The metrics of the webhook, with their labels and help texts. Each help text says what to do if the value
//! is high.

use std::fmt::Write;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, SystemTime};

use portcullis_core::admission::AdmissionVerdict;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::cluster::ClusterMetrics;
use super::policies::PolicyMetrics;
use crate::route::Route;

/// Upper bounds of the review duration. A review takes tens of microseconds; the last bucket is the deadline.
const REVIEW_DURATION_BUCKETS_SECONDS: [f64; 14] =
    [25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 2.5, 10.0];

/// A label value from a fixed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StaticLabel(pub(super) &'static str);

impl EncodeLabelValue for StaticLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    hook: StaticLabel,
    operation: StaticLabel,
    verdict: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabels {
    hook: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: StaticLabel,
}

/// All metrics of the process. Updates are cheap; the text is encoded on request only.
pub struct Metrics {
    registry: Registry,
    review_duration: Family<HookLabels, Histogram, fn() -> Histogram>,
    reviews: Family<ReviewLabels, Counter>,
    refused: Family<ReasonLabels, Counter>,
    reviews_in_flight: Gauge,
    connections: Gauge,
    certificate_not_after: Gauge<i64, AtomicI64>,
    certificate_reload_failures: Counter,
    handshake_failures: Counter,
    review_panics: Counter,
    cluster: ClusterMetrics,
    policies: PolicyMetrics,
}

/// Increments a gauge until it is dropped.
pub struct InProgressGuard(Gauge);

impl InProgressGuard {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for InProgressGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn duration_histogram() -> Histogram {
    Histogram::new(REVIEW_DURATION_BUCKETS_SECONDS)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Returns metrics with all values at zero.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("portcullis"),
            review_duration: Family::new_with_constructor(duration_histogram),
            reviews: Family::default(),
            refused: Family::default(),
            reviews_in_flight: Gauge::default(),
            connections: Gauge::default(),
            certificate_not_after: Gauge::default(),
            certificate_reload_failures: Counter::default(),
            handshake_failures: Counter::default(),
            review_panics: Counter::default(),
            cluster: ClusterMetrics::default(),
            policies: PolicyMetrics::default(),
        };
        metrics.register();
        metrics.cluster.register(&mut metrics.registry);
        metrics.policies.register(&mut metrics.registry);
        for route in Route::ALL {
            let _ = metrics.review_duration.get_or_create(&HookLabels { hook: StaticLabel(route.as_str()) });
        }
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "review_duration_seconds",
            "Time from the complete request body to the answer. Above a few milliseconds: the process lacks CPU; raise its CPU limit or add replicas",
            self.review_duration.clone(),
        );
        registry.register(
            "reviews",
            "Answered reviews. High rate of verdict=denied: a controller retries a denied object; the log names the object and the causes",
            self.reviews.clone(),
        );
        registry.register(
            "requests_refused",
            "Requests answered without a review. reason=busy or deadline: add replicas or CPU. Other reasons: the client is not the API server or uses another version; the debug log shows the request",
            self.refused.clone(),
        );
        registry.register(
            "reviews_in_flight",
            "Reviews in progress: receiving the body, waiting or evaluating. Constantly above the number of cores: add replicas or CPU",
            self.reviews_in_flight.clone(),
        );
        registry.register(
            "connections",
            "Open connections to the webhook port. Close to the limit of 1024: clients other than the API server hold connections; restrict access with a NetworkPolicy",
            self.connections.clone(),
        );
        registry.register(
            "tls_certificate_not_after_seconds",
            "Expiry of the served certificate, in Unix time. Less than a week ahead: the renewal fails; the log shows the error",
            self.certificate_not_after.clone(),
        );
        registry.register(
            "tls_certificate_reload_failures",
            "Failed certificate reloads and renewals. Rising: the log shows the error; the previous certificate is still served",
            self.certificate_reload_failures.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that failed or timed out. Rising: the caBundle of the webhook configuration does not match the CA, or a port scanner connects",
            self.handshake_failures.clone(),
        );
        registry.register(
            "review_panics",
            "Reviews that hit a bug in Portcullis and were answered with status 500. Above zero: report the bug with the log line",
            self.review_panics.clone(),
        );
    }

    /// The metrics of the connection to the cluster.
    pub fn cluster(&self) -> &ClusterMetrics {
        &self.cluster
    }

    /// The metrics of policies.
    pub fn policies(&self) -> &PolicyMetrics {
        &self.policies
    }

    /// Counts an answered review. `operation` comes from the client; unknown values count as `other`.
    pub fn count_review(&self, route: Route, operation: &str, verdict: AdmissionVerdict, took: Duration) {
        let hook = StaticLabel(route.as_str());
        self.review_duration.get_or_create(&HookLabels { hook }).observe(took.as_secs_f64());
        let labels = ReviewLabels {
            hook,
            operation: StaticLabel(known_operation(operation)),
            verdict: StaticLabel(verdict.as_str()),
        };
        self.reviews.get_or_create(&labels).inc();
    }

    /// Counts a request that was answered without a review.
    pub fn count_refusal(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabels { reason: StaticLabel(reason) }).inc();
    }

    /// Counts a review as in flight until the guard is dropped.
    pub fn track_review(&self) -> InProgressGuard {
        InProgressGuard::new(&self.reviews_in_flight)
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn track_connection(&self) -> InProgressGuard {
        InProgressGuard::new(&self.connections)
    }

    /// Counts a failed TLS handshake.
    pub fn count_handshake_failure(&self) {
        self.handshake_failures.inc();
    }

    /// Counts a review that panicked.
    pub fn count_review_panic(&self) {
        self.review_panics.inc();
    }

    /// Counts a failed certificate reload or renewal.
    pub fn count_certificate_reload_failure(&self) {
        self.certificate_reload_failures.inc();
    }

    /// Encodes all metrics as OpenMetrics 1.0 text, with the current expiry of the certificate.
    pub fn encode(&self, certificate_not_after: SystemTime) -> String {
        let seconds =
            certificate_not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        self.certificate_not_after.set(i64::try_from(seconds).unwrap_or(i64::MAX));
        let mut text = String::with_capacity(8 * 1024);
        // Writing to a String cannot fail. If the encoder rejects a metric, the text before it is still
        // valid.
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("encoding the metrics failed; the text is incomplete");
        }
        text
    }
}

/// Returns the operation of `admission.k8s.io/v1`, or `other`.
fn known_operation(operation: &str) -> &'static str {
    match operation {
        "CREATE" => "CREATE",
        "UPDATE" => "UPDATE",
        "DELETE" => "DELETE",
        "CONNECT" => "CONNECT",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::admission::Hook;

    use super::*;

    fn text(metrics: &Metrics) -> String {
        metrics.encode(SystemTime::UNIX_EPOCH + Duration::from_secs(77))
    }

    #[test]
    fn counters_have_their_names_and_labels() {
        let metrics = Metrics::new();
        metrics.count_review(
            Route::Gangs(Hook::Mutate),
            "CREATE",
            AdmissionVerdict::Patched,
            Duration::from_micros(30),
        );
        metrics.count_refusal("busy");
        let running = metrics.track_review();
        let during = text(&metrics);
        for line in [
            "portcullis_reviews_total{hook=\"mutate\",operation=\"CREATE\",verdict=\"patched\"} 1",
            "portcullis_requests_refused_total{reason=\"busy\"} 1",
            "portcullis_reviews_in_flight 1",
            "portcullis_tls_certificate_not_after_seconds 77",
            "portcullis_review_duration_seconds_bucket{le=\"0.000025\",hook=\"mutate\"} 0",
            "portcullis_review_duration_seconds_bucket{le=\"0.00005\",hook=\"mutate\"} 1",
            "portcullis_review_duration_seconds_count{hook=\"validate\"} 0",
        ] {
            assert!(during.lines().any(|found| found == line), "{line} is not in\n{during}");
        }
        drop(running);
        assert!(text(&metrics).contains("portcullis_reviews_in_flight 0"));
    }

    #[test]
    fn unknown_operations_share_one_time_series() {
        let metrics = Metrics::new();
        for operation in ["a", "b", "create", "DELETE\"} 1"] {
            metrics.count_review(
                Route::Gangs(Hook::Validate),
                operation,
                AdmissionVerdict::Allowed,
                Duration::ZERO,
            );
        }
        let text = text(&metrics);
        let series: Vec<_> =
            text.lines().filter(|line| line.starts_with("portcullis_reviews_total")).collect();
        assert_eq!(
            series,
            ["portcullis_reviews_total{hook=\"validate\",operation=\"other\",verdict=\"allowed\"} 4"]
        );
    }
}
