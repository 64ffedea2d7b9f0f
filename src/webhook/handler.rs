//! The paths of the webhook, and one request from its head to its answer.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, header};
use axum::routing::post;
use portcullis_core::admission::ReviewOutcome;
use portcullis_policy::Effort;
use tokio::time::Instant;

use super::body::Bodies;
use super::deadline::time_allowed;
use super::refusal::Refusal;
use super::slots::Slots;
use super::slow_lane::SlowLane;
use super::{PolicyEndpoints, ReviewHandler, Route, WebhookConfig, WebhookDependencies};
use crate::background::caught;
use crate::telemetry::{DecisionLog, Metrics};

/// What every request shares.
struct Desk {
    review: ReviewHandler,
    policies: Option<PolicyEndpoints>,
    metrics: Arc<Metrics>,
    decisions: DecisionLog,
    bodies: Bodies,
    slots: Slots,
    slow_lane: SlowLane,
    default_timeout: Duration,
}

/// An answer, and how long it took.
struct Judged {
    answer: ReviewOutcome,
    begun: Instant,
    took: Duration,
}

/// A review by policies that is larger goes where long ones go without a look: reading it takes long.
const QUICK_BYTES: usize = 256 * 1024;

/// The routes of the TLS port.
pub(super) fn router(config: &WebhookConfig, service: &WebhookDependencies) -> Router {
    let slots = || Slots::new(config.max_concurrent, config.max_waiting, config.max_wait);
    let desk = Arc::new(Desk {
        review: Arc::clone(&service.review),
        policies: service.policies.clone(),
        metrics: Arc::clone(&service.metrics),
        decisions: DecisionLog::default(),
        bodies: Bodies::new(config.max_body_bytes, config.max_held_bytes, config.body_timeout),
        slots: slots(),
        slow_lane: SlowLane::new(slots()),
        default_timeout: config.default_timeout,
    });
    let routes = Route::ALL.into_iter().fold(Router::new(), |router, route| {
        router.route(route.path(), post(move |state, request| review(state, route, request)))
    });
    routes.method_not_allowed_fallback(wrong_method).fallback(unknown_path).with_state(desk)
}

async fn review(State(desk): State<Arc<Desk>>, route: Route, request: Request) -> Response<Body> {
    match desk.answer(route, request).await {
        Ok(answer) => {
            let mut response = Response::new(Body::from(answer.body));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(refusal) => desk.refuse(refusal),
    }
}

async fn wrong_method(State(desk): State<Arc<Desk>>, request: Request) -> Response<Body> {
    desk.refuse(Refusal::WrongMethod { method: shortened(request.method().as_str()) })
}

async fn unknown_path(State(desk): State<Arc<Desk>>, request: Request) -> Response<Body> {
    desk.refuse(Refusal::UnknownPath { path: shortened(request.uri().path()) })
}

/// Enough of what a client sent to recognise it.
fn shortened(text: &str) -> String {
    let start = portcullis_text::truncate::first_chars(text, 100);
    if start.len() < text.len() { format!("{start}...") } else { text.to_owned() }
}

impl Desk {
    async fn answer(self: &Arc<Self>, route: Route, request: Request) -> Result<ReviewOutcome, Refusal> {
        if route.is_for_policies() && self.policies.is_none() {
            self.bodies.discard(request.into_body()).await;
            return Err(Refusal::NoPolicies);
        }
        let _in_flight = self.metrics.track_review();
        let deadline = Instant::now() + time_allowed(request.uri().query(), self.default_timeout);
        let (head, body) = request.into_parts();
        if let Err(refusal) = check_media_type(&head.headers) {
            self.bodies.discard(body).await;
            return Err(refusal);
        }
        let body = self.bodies.receive(&head.headers, body, deadline).await?;
        if !route.is_for_policies() || body.bytes().len() <= QUICK_BYTES {
            let _place = self.slots.take(deadline).await?;
            if Instant::now() >= deadline {
                return Err(Refusal::DeadlinePassed { doing: "its body was received" });
            }
            if let Some(judged) = self.judge(route, body.bytes(), &Effort::quick())? {
                return Ok(self.account(route, judged));
            }
        }
        let desk = Arc::clone(self);
        let judge = move || {
            desk.metrics.policies().count_slow_review();
            // The body goes with the thread: it is held until the thread is done with it, also when nobody waits any more.
            desk.judge(route, body.bytes(), &Effort::unlimited())
        };
        let judged = self.slow_lane.run(deadline, judge).await??.ok_or(Refusal::Panicked)?;
        Ok(self.account(route, judged))
    }

    /// The review itself. A panic in it ends this request and nothing else: the reviewer keeps no state between
    /// reviews that a panic could leave half changed.
    ///
    /// None where the policies would need more than that effort; gangs never do.
    fn judge(&self, route: Route, body: &[u8], effort: &Effort) -> Result<Option<Judged>, Refusal> {
        let begun = Instant::now();
        let review = || match &self.policies {
            Some(policies) if route.is_for_policies() => (policies.review)(route.hook(), body, effort),
            _ => (self.review)(route.hook(), body).map(Some),
        };
        match caught(review) {
            Ok(Ok(answer)) => Ok(answer.map(|answer| Judged { answer, begun, took: begun.elapsed() })),
            Ok(Err(problem)) => Err(problem.into()),
            Err(panic) => {
                self.metrics.count_review_panic();
                tracing::error!(
                    hook = route.as_str(),
                    body_bytes = body.len(),
                    problem = panic,
                    "a review panicked"
                );
                Err(Refusal::Panicked)
            }
        }
    }

    /// Counts and logs what is about to be answered: what came too late was decided for nobody.
    fn account(&self, route: Route, judged: Judged) -> ReviewOutcome {
        let Judged { answer, begun, took } = judged;
        self.metrics.count_review(route, &answer.summary.operation, answer.summary.verdict, took);
        self.decisions.write(route, &answer.summary, took, begun.into_std());
        answer
    }

    fn refuse(&self, refusal: Refusal) -> Response<Body> {
        self.metrics.count_refusal(refusal.reason());
        tracing::debug!(
            reason = refusal.reason(),
            status = refusal.status().as_u16(),
            sentence = refusal.sentence(),
            "refused"
        );
        refusal.into_response()
    }
}

/// `application/json`, with or without parameters.
fn check_media_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Err(Refusal::WrongMediaType { found: None });
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    let media_type = text.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(Refusal::WrongMediaType { found: Some(shortened(&text)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_taken_with_parameters_and_in_any_case() {
        let check = |value: &str, accepted: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(check_media_type(&headers).is_ok(), accepted, "{value:?}");
        };
        check("application/json", true);
        check("application/json; charset=utf-8", true);
        check("Application/JSON ;charset=utf-8", true);
        check("application/jsonp", false);
        check("text/plain", false);
        check("application/yaml; application/json", false);
        check("", false);
        assert_eq!(check_media_type(&HeaderMap::new()), Err(Refusal::WrongMediaType { found: None }));
    }
}
