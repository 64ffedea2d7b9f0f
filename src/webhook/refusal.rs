//! Answers without a review: an HTTP status, a reason for the metrics, and a message that names the problem
//! and the fix.

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
    BodyMemoryExhausted,
    BadReview(ReviewError),
    /// A patch that does not apply: a bug in Portcullis, not in the request.
    BadPatch {
        problem: String,
    },
    QueueFull,
    WaitedTooLong {
        waited: Duration,
    },
    DeadlinePassed {
        during: &'static str,
    },
    Panicked,
}

impl From<ReviewError> for Refusal {
    fn from(problem: ReviewError) -> Self {
        match problem {
            ReviewError::Unpatchable(_) => Self::BadPatch { problem: problem.to_string() },
            ReviewError::Malformed(_) | ReviewError::WrongVersion { .. } | ReviewError::NoRequest => {
                Self::BadReview(problem)
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
            Self::BodyBroken { .. } | Self::BadReview(_) => StatusCode::BAD_REQUEST,
            Self::BodyMemoryExhausted | Self::QueueFull | Self::WaitedTooLong { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::DeadlinePassed { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::BadPatch { .. } | Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The label value of the metric `requests_refused`.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::UnknownPath { .. } => "unknown_path",
            Self::NoPolicies => "no_policies",
            Self::WrongMethod { .. } => "wrong_method",
            Self::WrongMediaType { .. } => "wrong_media_type",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::BodyTooSlow { .. } => "body_too_slow",
            Self::BodyBroken { .. } => "body_broken",
            Self::BadReview(_) => "bad_review",
            Self::BadPatch { .. } => "bad_patch",
            Self::BodyMemoryExhausted | Self::QueueFull | Self::WaitedTooLong { .. } => "busy",
            Self::DeadlinePassed { .. } => "deadline",
            Self::Panicked => "panic",
        }
    }

    /// The body of the response.
    pub(super) fn message(&self) -> String {
        match self {
            Self::UnknownPath { path } => format!(
                "There is no endpoint at {path}. Reviews go to POST /mutate and POST /validate. Correct the path in the \
                 webhook configuration."
            ),
            Self::NoPolicies => {
                "This replica has no policies. Start it with --policies, or delete the webhook \
                                 configurations policies.portcullis.dev."
                    .to_owned()
            }
            Self::WrongMethod { method } => {
                format!("{method} is not allowed here. Send a POST with an AdmissionReview as its body.")
            }
            Self::WrongMediaType { found: Some(found) } => format!(
                "The content type is {found:?}. Send the AdmissionReview with the header content-type: application/json."
            ),
            Self::WrongMediaType { found: None } => {
                "The request has no content type. Send the AdmissionReview with the header content-type: \
                 application/json."
                    .to_owned()
            }
            Self::BodyTooLarge { limit } => format!(
                "The body is larger than {limit} bytes. The API server sends at most two objects of 3 MiB each. Make the \
                 object smaller."
            ),
            Self::BodyTooSlow { received, limit } => format!(
                "The body was not complete within {} ms; {received} bytes were received. Check the network between the \
                 client and this server.",
                limit.as_millis()
            ),
            Self::BodyBroken { problem } => {
                format!("The body ended before it was complete: {problem}. Send it again in full.")
            }
            Self::BadReview(problem) => format!(
                "The request cannot be reviewed: {problem}. Send an AdmissionReview of admission.k8s.io/v1 with a \
                 request, as the API server does."
            ),
            Self::BadPatch { problem } => {
                format!(
                    "The review hit a bug in Portcullis: {problem}. The request was neither allowed nor denied."
                )
            }
            Self::BodyMemoryExhausted => {
                "Too many bytes of other requests are held in memory. Retry in a second. If it \
                                          persists, add replicas."
                    .to_owned()
            }
            Self::QueueFull => {
                "Too many reviews are waiting already. Retry in a second. If it persists, add replicas or \
                                CPU."
                    .to_owned()
            }
            Self::WaitedTooLong { waited } => format!(
                "No review ended within {} ms. Retry in a second. If it persists, add replicas or CPU.",
                waited.as_millis()
            ),
            Self::DeadlinePassed { during } => format!(
                "The deadline of the request (timeout= in its URL, minus a margin) passed while {during}. The request was \
                 neither allowed nor denied. Raise timeoutSeconds in the webhook configuration, or add CPU."
            ),
            Self::Panicked => {
                "The review hit a bug in Portcullis. The request was neither allowed nor denied. The server \
                               keeps running. Report the bug with the log line \"review panicked\"."
                    .to_owned()
            }
        }
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.message() + "\n"));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        match self.status() {
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
            }
            // client-go retries after this number of seconds, within its timeout.
            StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}
