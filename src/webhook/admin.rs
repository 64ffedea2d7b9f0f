//! Probes, metrics and the policy list on a plain HTTP port of their own. A kubelet probes it without a
//! certificate, and a scraper gets no access to reviews.

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

/// State that all requests of the plain port share.
struct AdminState {
    certificate: Arc<LiveCertificate>,
    metrics: Arc<Metrics>,
    clock: Clock,
    stage: watch::Receiver<ShutdownStage>,
    readiness_checks: Vec<ReadinessCheck>,
    policies: Option<PolicyEndpoints>,
}

/// The routes of the plain port.
pub(super) fn router(dependencies: &WebhookDependencies, stage: watch::Receiver<ShutdownStage>) -> Router {
    let state = Arc::new(AdminState {
        certificate: Arc::clone(&dependencies.certificate),
        metrics: Arc::clone(&dependencies.metrics),
        clock: Arc::clone(&dependencies.clock),
        stage,
        readiness_checks: dependencies.readiness_checks.clone(),
        policies: dependencies.policies.clone(),
    });
    Router::new()
        // The liveness probe always succeeds: no failure is known that a restart of the process repairs.
        .route("/healthz", get(async || "ok\n"))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(handle_readyz))
        .route("/metrics", get(handle_metrics))
        .route("/policies", get(handle_policies))
        .route("/refuted-plan", get(handle_refuted_plan))
        .fallback(async || {
            (
                StatusCode::NOT_FOUND,
                "This port serves /healthz, /livez, /readyz (with ?verbose), /policies, /metrics and /refuted-plan. \
                 Reviews go to the TLS port.\n",
            )
        })
        .with_state(state)
}

/// Name and result of one readiness check. `Ok` holds an optional detail, `Err` the problem.
type CheckResult = (&'static str, Result<String, &'static str>);

fn run_checks(
    stage: ShutdownStage,
    certificate_is_valid: bool,
    readiness_checks: &[ReadinessCheck],
) -> Vec<CheckResult> {
    let serving = match stage {
        ShutdownStage::Serving => Ok(String::new()),
        ShutdownStage::NotReady | ShutdownStage::Draining => Err("draining: the process is stopping"),
    };
    let certificate = if certificate_is_valid {
        Ok(String::new())
    } else {
        Err("expired or not yet valid: see the log for failed renewals, and check the clock of the node")
    };
    let mut results = vec![("serving", serving), ("certificate", certificate)];
    results.extend(readiness_checks.iter().map(|check| {
        let detail = || check.detail.as_ref().map(|detail| detail()).unwrap_or_default();
        (check.name, (check.check)().map(|()| detail()))
    }));
    results
}

async fn handle_readyz(State(state): State<Arc<AdminState>>, uri: Uri) -> impl IntoResponse {
    let stage = *state.stage.borrow();
    let certificate_is_valid = state.certificate.validity().holds_at((state.clock)());
    let results = run_checks(stage, certificate_is_valid, &state.readiness_checks);
    let verbose = uri
        .query()
        .is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("verbose")));
    report(&results, verbose)
}

/// Formats the results like `/readyz` of the API server.
fn report(results: &[CheckResult], verbose: bool) -> (StatusCode, String) {
    let ready = results.iter().all(|(_, result)| result.is_ok());
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if ready && !verbose {
        return (status, "ok\n".to_owned());
    }
    let mut text = String::new();
    for (name, result) in results {
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

async fn handle_policies(State(state): State<Arc<AdminState>>) -> impl IntoResponse {
    match &state.policies {
        Some(policies) => {
            (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], (policies.status_json)())
        }
        None => (
            StatusCode::NOT_FOUND,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            "This replica has no policies: serve was started without --policies.\n".to_owned(),
        ),
    }
}

async fn handle_refuted_plan(State(state): State<Arc<AdminState>>) -> impl IntoResponse {
    match state.metrics.cluster().refuted_plan() {
        Some(case) => (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], case.to_string()),
        None => (
            StatusCode::NOT_FOUND,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            "This replica has withheld no plan.\n".to_owned(),
        ),
    }
}

async fn handle_metrics(State(state): State<Arc<AdminState>>) -> impl IntoResponse {
    let text = state.metrics.encode(state.certificate.validity().not_after);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readyz_names_every_failed_check() {
        let check = |stage, holds, verbose, status: u16, text: &str| {
            assert_eq!(
                report(&run_checks(stage, holds, &[]), verbose),
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
            "[-]serving failed: draining: the process is stopping\n[+]certificate ok\nreadyz check failed\n",
        );
        let waiting = ReadinessCheck::new("classes", || Err("not listed yet"));
        assert_eq!(
            report(&run_checks(ShutdownStage::Serving, true, &[waiting]), false).1,
            "[+]serving ok\n[+]certificate ok\n[-]classes failed: not listed yet\nreadyz check failed\n"
        );
        let kept =
            ReadinessCheck::new("policies", || Ok(())).with_detail(|| "kept\n  as they were\n".to_owned());
        assert_eq!(
            report(&run_checks(ShutdownStage::Serving, true, &[kept]), true).1,
            "[+]serving ok\n[+]certificate ok\n[+]policies ok: kept\n  as they were\nreadyz check passed\n"
        );
        assert_eq!(
            report(&run_checks(ShutdownStage::Serving, false, &[]), false).0,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }
}
