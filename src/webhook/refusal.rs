//! Every answer that is not a review: a status, a word for the metrics, and a sentence that says what was wrong, which
//! rule it broke and what to do.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use portcullis_core::admission::ReviewError;

/// Why a request got no review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    UnknownPath {
        path: String,
    },
    NoPolicies,
    WrongMethod {
        method: String,
    },
    WrongMediaType {
        found: Option<String>,
    },
    BodyTooLarge {
        limit: usize,
    },
    BodyTooSlow {
        received: usize,
        limit: Duration,
    },
    BodyBroken {
        problem: String,
    },
    BodiesHeld,
    ReviewError(ReviewError),
    /// Ours to mend, not the caller's.
    BadPatch {
        problem: String,
    },
    QueueFull,
    WaitedTooLong {
        waited: Duration,
    },
    DeadlinePassed {
        doing: &'static str,
    },
    Panicked,
}

impl From<ReviewError> for Refusal {
    fn from(problem: ReviewError) -> Self {
        match problem {
            ReviewError::Unpatchable(_) => Self::BadPatch { problem: problem.to_string() },
            ReviewError::Malformed(_) | ReviewError::WrongVersion { .. } | ReviewError::NoRequest => {
                Self::ReviewError(problem)
            }
        }
    }
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::UnknownPath { .. } | Self::NoPolicies => StatusCode::NOT_FOUND,
            Self::WrongMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::WrongMediaType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::BodyBroken { .. } | Self::ReviewError(_) => StatusCode::BAD_REQUEST,
            Self::BodiesHeld | Self::QueueFull | Self::WaitedTooLong { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::DeadlinePassed { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::BadPatch { .. } | Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// For the metrics.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::UnknownPath { .. } => "unknown_path",
            Self::NoPolicies => "no_policies",
            Self::WrongMethod { .. } => "wrong_method",
            Self::WrongMediaType { .. } => "wrong_media_type",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::BodyTooSlow { .. } => "body_too_slow",
            Self::BodyBroken { .. } => "body_broken",
            Self::ReviewError(_) => "bad_review",
            Self::BadPatch { .. } => "bad_patch",
            Self::BodiesHeld | Self::QueueFull | Self::WaitedTooLong { .. } => "busy",
            Self::DeadlinePassed { .. } => "deadline",
            Self::Panicked => "panic",
        }
    }

    pub(super) fn sentence(&self) -> String {
        match self {
            Self::UnknownPath { path } => {
                format!("There is nothing at {path}. Reviews go to POST /mutate and POST /validate; correct the path in the webhook configuration.")
            }
            Self::NoPolicies => {
                "This replica has no policies. Start it with --policies, or take the webhook configuration policies.portcullis.dev away.".to_owned()
            }
            Self::WrongMethod { method } => {
                format!("{method} is not for this path. A review comes as POST with an AdmissionReview as its body.")
            }
            Self::WrongMediaType { found: Some(found) } => {
                format!("The content type is {found:?}. An AdmissionReview comes as application/json; set the header content-type: application/json.")
            }
            Self::WrongMediaType { found: None } => {
                "The request names no content type. An AdmissionReview comes as application/json; set the header content-type: application/json.".to_owned()
            }
            Self::BodyTooLarge { limit } => {
                format!("The body is larger than {limit} bytes. The API server sends two objects of at most 3 MiB; make the object smaller.")
            }
            Self::BodyTooSlow { received, limit } => {
                format!("The body was not complete within {} ms; {received} bytes had come. Send it at once, or look for a slow network between the caller and this server.", limit.as_millis())
            }
            Self::BodyBroken { problem } => {
                format!("The body ended before it was complete: {problem}. Send it again in full.")
            }
            Self::ReviewError(problem) => {
                format!("The request cannot be reviewed: {problem}. Send an AdmissionReview as the API server does: apiVersion admission.k8s.io/v1, with a request.")
            }
            Self::BadPatch { problem } => {
                format!("The review hit a bug in Portcullis: {problem}. Nothing was decided.")
            }
            Self::BodiesHeld => {
                "Too many bytes of other requests are held in memory. Try again in a second; add replicas if it lasts.".to_owned()
            }
            Self::QueueFull => {
                "Too many reviews are waiting already. Try again in a second; add replicas or CPU if it lasts.".to_owned()
            }
            Self::WaitedTooLong { waited } => {
                format!("No review ended within {} ms. Try again in a second; add replicas or CPU if it lasts.", waited.as_millis())
            }
            Self::DeadlinePassed { doing } => {
                format!("The deadline of the request (timeout= in its URL, less a margin) passed while {doing}. Nothing was decided; raise timeoutSeconds in the webhook configuration, or add CPU.")
            }
            Self::Panicked => {
                "The review hit a bug in Portcullis. Nothing was decided, and the server goes on; report it with the log line \"a review panicked\".".to_owned()
            }
        }
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.sentence() + "\n"));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        match self.status() {
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
            }
            // client-go tries again after that many seconds while its timeout lasts.
            StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}
