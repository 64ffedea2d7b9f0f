//! Probes and metrics, on a plain port of their own: a kubelet that probes needs no certificate, and a scraper no
//! access to the reviews.

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::watch;

use super::{Clock, PolicyEndpoints, ReadinessCheck, ShutdownStage, WebhookDependencies};
use crate::certs::LiveCertificate;
use crate::telemetry::Metrics;

struct Office {
    certificate: Arc<LiveCertificate>,
    metrics: Arc<Metrics>,
    clock: Clock,
    stage: watch::Receiver<ShutdownStage>,
    requirements: Vec<ReadinessCheck>,
    policies: Option<PolicyEndpoints>,
}

/// The routes of the plain port.
pub(super) fn router(service: &WebhookDependencies, stage: watch::Receiver<ShutdownStage>) -> Router {
    let office = Arc::new(Office {
        certificate: Arc::clone(&service.certificate),
        metrics: Arc::clone(&service.metrics),
        clock: Arc::clone(&service.clock),
        stage,
        requirements: service.requirements.clone(),
        policies: service.policies.clone(),
    });
    Router::new()
        // Alive means that this code runs. What would be mended by a restart is not known to it.
        .route("/healthz", get(async || "ok\n"))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/policies", get(policies))
        .fallback(async || {
            (StatusCode::NOT_FOUND, "There are /healthz, /livez, /readyz (with ?verbose), /policies and /metrics here. Reviews go to the TLS port.\n")
        })
        .with_state(office)
}

/// One thing that must hold for the webhook to be ready: its name, and what is wrong, or what else is to be said.
type Check = (&'static str, Result<String, &'static str>);

fn checks(stage: ShutdownStage, certificate_holds: bool, requirements: &[ReadinessCheck]) -> Vec<Check> {
    let mut checks = vec![
        (
            "serving",
            if stage == ShutdownStage::Serving {
                Ok(String::new())
            } else {
                Err("draining: the process was told to stop")
            },
        ),
        (
            "certificate",
            if certificate_holds {
                Ok(String::new())
            } else {
                Err(
                    "expired or not yet valid: see the log for failed renewals, and check the clock of the node",
                )
            },
        ),
    ];
    checks.extend(requirements.iter().map(|requirement| {
        let detail = || requirement.detail.as_ref().map(|detail| detail()).unwrap_or_default();
        (requirement.name, (requirement.holds)().map(|()| detail()))
    }));
    checks
}

async fn ready(State(office): State<Arc<Office>>, uri: Uri) -> impl IntoResponse {
    let stage = *office.stage.borrow();
    let holds = office.certificate.validity().holds_at((office.clock)());
    let checks = checks(stage, holds, &office.requirements);
    let verbose = uri
        .query()
        .is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("verbose")));
    report(&checks, verbose)
}

/// In the form that the API server's own `/readyz` has.
fn report(checks: &[Check], verbose: bool) -> (StatusCode, String) {
    let ready = checks.iter().all(|(_, result)| result.is_ok());
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if ready && !verbose {
        return (status, "ok\n".to_owned());
    }
    let mut text = String::new();
    for (name, result) in checks {
        // Writing to a String cannot fail.
        let _ = match result {
            Ok(detail) if detail.is_empty() => writeln!(text, "[+]{name} ok"),
            Ok(detail) => writeln!(text, "[+]{name} ok: {}", detail.trim_end()),
            Err(problem) => writeln!(text, "[-]{name} failed: {problem}"),
        };
    }
    text.push_str(if ready { "readyz check passed\n" } else { "readyz check failed\n" });
    (status, text)
}

async fn policies(State(office): State<Arc<Office>>) -> impl IntoResponse {
    match &office.policies {
        Some(policies) => (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], (policies.list)()),
        None => (
            StatusCode::NOT_FOUND,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            "There are no policies here: serve was started without --policies.\n".to_owned(),
        ),
    }
}

async fn metrics(State(office): State<Arc<Office>>) -> impl IntoResponse {
    let text = office.metrics.encode(office.certificate.validity().not_after);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_names_what_is_missing() {
        let check = |stage, holds, verbose, status: u16, text: &str| {
            assert_eq!(
                report(&checks(stage, holds, &[]), verbose),
                (StatusCode::from_u16(status).unwrap(), text.to_owned())
            );
        };
        check(ShutdownStage::Serving, true, false, 200, "ok\n");
        check(
            ShutdownStage::Serving,
            true,
            true,
            200,
            "[+]serving ok\n[+]certificate ok\nreadyz check passed\n",
        );
        check(
            ShutdownStage::NotReady,
            true,
            false,
            503,
            "[-]serving failed: draining: the process was told to stop\n[+]certificate ok\nreadyz check failed\n",
        );
        let waiting = ReadinessCheck::new("classes", || Err("not listed yet"));
        assert_eq!(
            report(&checks(ShutdownStage::Serving, true, &[waiting]), false).1,
            "[+]serving ok\n[+]certificate ok\n[-]classes failed: not listed yet\nreadyz check failed\n"
        );
        let kept =
            ReadinessCheck::new("policies", || Ok(())).detailed(|| "kept\n  as they were\n".to_owned());
        assert_eq!(
            report(&checks(ShutdownStage::Serving, true, &[kept]), true).1,
            "[+]serving ok\n[+]certificate ok\n[+]policies ok: kept\n  as they were\nreadyz check passed\n"
        );
        assert_eq!(
            report(&checks(ShutdownStage::Serving, false, &[]), false).0,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }
}
