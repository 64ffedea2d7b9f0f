//! The review endpoints of the TLS port: one request, from its head to its answer.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, header};
use axum::routing::post;
use portcullis_core::admission::ReviewOutcome;
use portcullis_policy::WorkBudget;
use tokio::time::Instant;

use super::body::BodyReader;
use super::deadline::time_allowed;
use super::refusal::Refusal;
use super::slots::ReviewSlots;
use super::slow_lane::SlowLane;
use super::{PolicyEndpoints, ReviewHandler, Route, WebhookConfig, WebhookDependencies};
use crate::background::caught;
use crate::telemetry::{DecisionLog, Metrics};

/// State that all requests share.
struct RequestHandler {
    review: ReviewHandler,
    policies: Option<PolicyEndpoints>,
    metrics: Arc<Metrics>,
    decisions: DecisionLog,
    bodies: BodyReader,
    slots: ReviewSlots,
    slow_lane: SlowLane,
    default_timeout: Duration,
}

/// An answer with the time that it took.
struct TimedAnswer {
    answer: ReviewOutcome,
    started: Instant,
    took: Duration,
}

/// Larger policy reviews go to the slow lane at once, because parsing them already takes long.
const MAX_FAST_LANE_BYTES: usize = 256 * 1024;

/// The routes of the TLS port.
pub(super) fn router(config: &WebhookConfig, dependencies: &WebhookDependencies) -> Router {
    let slots = || ReviewSlots::new(config.max_concurrent, config.max_waiting, config.max_wait);
    let handler = Arc::new(RequestHandler {
        review: Arc::clone(&dependencies.review),
        policies: dependencies.policies.clone(),
        metrics: Arc::clone(&dependencies.metrics),
        decisions: DecisionLog::default(),
        bodies: BodyReader::new(config.max_body_bytes, config.max_held_bytes, config.body_timeout),
        slots: slots(),
        slow_lane: SlowLane::new(slots()),
        default_timeout: config.default_timeout,
    });
    let routes = Route::ALL.into_iter().fold(Router::new(), |router, route| {
        router.route(route.path(), post(move |state, request| handle_review(state, route, request)))
    });
    routes.method_not_allowed_fallback(handle_wrong_method).fallback(handle_unknown_path).with_state(handler)
}

async fn handle_review(
    State(handler): State<Arc<RequestHandler>>,
    route: Route,
    request: Request,
) -> Response<Body> {
    match handler.answer(route, request).await {
        Ok(answer) => {
            let mut response = Response::new(Body::from(answer.body));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(refusal) => handler.refuse(refusal),
    }
}

async fn handle_wrong_method(State(handler): State<Arc<RequestHandler>>, request: Request) -> Response<Body> {
    handler.refuse(Refusal::WrongMethod { method: truncated(request.method().as_str()) })
}

async fn handle_unknown_path(State(handler): State<Arc<RequestHandler>>, request: Request) -> Response<Body> {
    handler.refuse(Refusal::UnknownPath { path: truncated(request.uri().path()) })
}

/// The first 100 characters of a text that a client sent.
fn truncated(text: &str) -> String {
    let start = portcullis_text::truncate::first_chars(text, 100);
    if start.len() < text.len() { format!("{start}...") } else { text.to_owned() }
}

impl RequestHandler {
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
        let body = self.bodies.read(&head.headers, body, deadline).await?;
        if !route.is_for_policies() || body.bytes().len() <= MAX_FAST_LANE_BYTES {
            let _slot = self.slots.acquire(deadline).await?;
            if Instant::now() >= deadline {
                return Err(Refusal::DeadlinePassed { during: "its body was received" });
            }
            if let Some(timed) = self.review(route, body.bytes(), &WorkBudget::fast_lane())? {
                return Ok(self.record(route, timed));
            }
        }
        let handler = Arc::clone(self);
        let review = move || {
            handler.metrics.policies().count_slow_review();
            // The thread owns the body: its memory counts until the review ends, even after the deadline.
            handler.review(route, body.bytes(), &WorkBudget::unlimited())
        };
        let timed = self.slow_lane.run(deadline, review).await??.ok_or(Refusal::Panicked)?;
        Ok(self.record(route, timed))
    }

    /// Runs the review itself. A panic ends this request only: review handlers keep no state between reviews.
    ///
    /// Returns `None` if the policies need more work than `effort` allows. Gang reviews have no work budget.
    fn review(&self, route: Route, body: &[u8], effort: &WorkBudget) -> Result<Option<TimedAnswer>, Refusal> {
        let started = Instant::now();
        let review = || match &self.policies {
            Some(policies) if route.is_for_policies() => (policies.review)(route.hook(), body, effort),
            _ => (self.review)(route.hook(), body).map(Some),
        };
        match caught(review) {
            Ok(Ok(answer)) => {
                Ok(answer.map(|answer| TimedAnswer { answer, started, took: started.elapsed() }))
            }
            Ok(Err(problem)) => Err(problem.into()),
            Err(panic) => {
                self.metrics.count_review_panic();
                tracing::error!(
                    hook = route.as_str(),
                    body_bytes = body.len(),
                    problem = panic,
                    "review panicked"
                );
                Err(Refusal::Panicked)
            }
        }
    }

    /// Counts and logs an answer that is about to be sent. Answers that miss the deadline are not counted as
    /// reviews.
    fn record(&self, route: Route, timed: TimedAnswer) -> ReviewOutcome {
        let TimedAnswer { answer, started, took } = timed;
        self.metrics.count_review(route, &answer.summary.operation, answer.summary.verdict, took);
        self.decisions.write(route, &answer.summary, took, started.into_std());
        answer
    }

    fn refuse(&self, refusal: Refusal) -> Response<Body> {
        self.metrics.count_refusal(refusal.reason());
        tracing::debug!(
            reason = refusal.reason(),
            status = refusal.status().as_u16(),
            problem = refusal.message(),
            "request refused"
        );
        refusal.into_response()
    }
}

/// Accepts `application/json`, with or without parameters.
fn check_media_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Err(Refusal::WrongMediaType { found: None });
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    let media_type = text.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(Refusal::WrongMediaType { found: Some(truncated(&text)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_accepted_with_parameters_and_in_any_case() {
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
