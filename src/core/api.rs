//! Requests to a Kubernetes API server and its responses, as plain values.
//!
//! The engine, the certificate upkeep and the policy status build [`ApiRequest`]s. A client of a real or of a
//! simulated API server sends them and returns an [`ApiResponse`].

use serde::Deserialize;
use serde_json::Value;

/// A resource type of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiResource {
    /// API group. Empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural name, as in the URL path.
    pub plural: &'static str,
}

/// Pods.
pub const PODS: ApiResource = ApiResource { group: "", version: "v1", plural: "pods" };

/// A request about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    /// The operation, with its body.
    pub verb: ApiVerb,
    /// The type of the object.
    pub resource: ApiResource,
    /// Namespace of the object. Empty for a cluster-scoped object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// `status`, or `None` for the object itself.
    pub subresource: Option<&'static str>,
}

/// An operation on an object, with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiVerb {
    /// Reads the object.
    Get,
    /// Creates the object.
    Create(Value),
    /// Replaces the object. `metadata.resourceVersion` in the body is the compare of the compare-and-swap.
    Update(Value),
    /// Applies an `application/json-patch+json` patch.
    JsonPatch(Value),
    /// Applies an `application/json-patch+json` patch with `dryRun=All`: the API server admits and validates
    /// the result, and does not store it.
    DryRunJsonPatch(Value),
    /// Applies an `application/merge-patch+json` patch. A `metadata.uid` in the patch must be the UID of the
    /// object: Kubernetes 1.36 answers a wrong one with HTTP 422, other versions with 409.
    MergePatch(Value),
    /// Server-side apply under the field manager of this project, without `force`.
    Apply(Value),
    /// Creates an `Eviction` (`policy/v1`) of the pod with this UID. The API server then respects
    /// PodDisruptionBudgets, sets the condition `DisruptionTarget`, which a `podFailurePolicy` can ignore,
    /// and deletes the pod.
    Evict {
        /// Evict the pod only if it has this UID.
        uid: String,
    },
    /// Deletes the object, with `preconditions.uid` and `preconditions.resourceVersion` where they are set.
    Delete {
        /// Delete the object only if it has this UID.
        uid: Option<String>,
        /// Delete the object only at this version.
        resource_version: Option<String>,
    },
}

/// The response of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiResponse {
    /// 2xx: the object after the request, as JSON text. The receiver parses it once, with a view of its own.
    Object(String),
    /// The request was about a version or an object that the API server does not store any more: HTTP 409, or
    /// an HTTP 422 that [`ErrorStatus::is_stale`] recognises. Nothing was written.
    Stale {
        /// `message` of the returned `Status`.
        message: String,
    },
    /// An admission webhook denied the request, with the code that it chose.
    DeniedByWebhook {
        /// HTTP status code.
        code: u16,
        /// `message` of the returned `Status`. It names the webhook.
        message: String,
    },
    /// The request was a dry run, and an admission webhook that would be called may have side effects.
    DryRunUnsupported {
        /// `message` of the returned `Status`. It names the webhook.
        message: String,
    },
    /// A PodDisruptionBudget does not allow the eviction now.
    DisruptionBudget {
        /// `message` of the returned `Status`.
        message: String,
    },
    /// Any other status code, with the message of the returned `Status`.
    Status {
        /// HTTP status code.
        code: u16,
        /// `message` of the returned `Status`.
        message: String,
    },
    /// The client received no response: the API server may or may not have carried out the request.
    Lost,
}

impl ApiResponse {
    /// Why the request had no effect, or may have had none. `None` for a request that succeeded.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Object(_) => None,
            Self::Stale { message }
            | Self::DeniedByWebhook { message, .. }
            | Self::DryRunUnsupported { message }
            | Self::DisruptionBudget { message } => Some(message.clone()),
            Self::Status { code, message } => Some(format!("{code}: {message}")),
            Self::Lost => Some("the API server did not answer".to_owned()),
        }
    }

    /// The response to a request that the API server rejected.
    #[must_use]
    pub fn rejected(status: ErrorStatus) -> Self {
        if status.is_stale() {
            return Self::Stale { message: status.message };
        }
        if status.is_dry_run_unsupported() {
            return Self::DryRunUnsupported { message: status.message };
        }
        // A webhook chooses the code of its denial. Its 404 does not mean that the object is gone.
        if status.is_webhook_denial() {
            return Self::DeniedByWebhook { code: status.code, message: status.message };
        }
        // The API server also answers 429 when it is overloaded.
        if status.details.causes.iter().any(|cause| cause.reason == "DisruptionBudget") {
            return Self::DisruptionBudget { message: status.message };
        }
        Self::Status { code: status.code, message: status.message }
    }
}

/// The `Status` object of an error response, as far as a caller decides by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ErrorStatus {
    /// HTTP status code.
    #[serde(skip)]
    pub code: u16,
    /// Machine-readable reason, for example `Conflict`.
    pub reason: String,
    /// Message for people.
    pub message: String,
    /// The object and the fields that the error is about.
    pub details: ErrorDetails,
}

/// `details` of a `Status` object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ErrorDetails {
    /// Name of the object.
    pub name: String,
    /// One entry for each problem.
    pub causes: Vec<ErrorCause>,
}

/// One of `details.causes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ErrorCause {
    /// Machine-readable reason, for example `FieldValueInvalid`.
    pub reason: String,
    /// Path of the field.
    pub field: String,
}

impl ErrorStatus {
    /// Reads the body of an error response. A body that is no `Status` gives its start as the message.
    #[must_use]
    pub fn read(code: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<Self>(body) {
            Ok(status) if !status.message.is_empty() => Self { code, ..status },
            _ => {
                let text = String::from_utf8_lossy(body);
                let message = text.trim().chars().take(MAX_ERROR_TEXT_CHARS).collect();
                Self { code, message, ..Self::default() }
            }
        }
    }

    /// Whether an admission webhook denied the request. The API server puts these words before the text of
    /// the webhook.
    #[must_use]
    pub fn is_webhook_denial(&self) -> bool {
        self.message.starts_with("admission webhook ")
    }

    /// Whether the API server did not call a webhook in a dry run (`NewDryRunUnsupportedErr` of apiserver).
    fn is_dry_run_unsupported(&self) -> bool {
        let name = self.message.strip_prefix("admission webhook \"");
        let name = name.and_then(|rest| rest.strip_suffix("\" does not support dry run"));
        // A webhook chooses the end of the message of its denial, which contains spaces.
        self.code == 400 && name.is_some_and(|name| !name.contains(' '))
    }

    /// Whether the request was about a version or an object that is not stored any more.
    ///
    /// Kubernetes 1.36 answers so with 409, with the 422 of a failed `test` in a JSON patch, and with the 422
    /// of a merge patch whose `metadata.uid` is another one. The 422 of a failed `test` has no details and a
    /// constant message (apimachinery, `NewGenericServerResponse`). The 422 of a validating policy names the
    /// object, and the message of a webhook starts with the name of the webhook: no policy can produce the
    /// same response.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        if self.is_webhook_denial() {
            return false;
        }
        match (self.code, &*self.reason) {
            (409, _) => true,
            (422, "Invalid") => {
                let details = &self.details;
                let unnamed = details.name.is_empty() && details.causes.is_empty();
                let failed_test = unnamed && self.message.starts_with(FAILED_PATCH_MESSAGE);
                let other_uid =
                    |cause: &ErrorCause| cause.reason == "FieldValueInvalid" && cause.field == "metadata.uid";
                failed_test || details.causes.iter().any(other_uid)
            }
            _ => false,
        }
    }
}

/// Upper bound for the part of a body without a `Status` that becomes the message.
const MAX_ERROR_TEXT_CHARS: usize = 500;
/// The message of the API server for a JSON patch that cannot be applied.
const FAILED_PATCH_MESSAGE: &str = "the server rejected our request due to an error in our request";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn response(code: u16, reason: &str, message: &str, details: &Value) -> ApiResponse {
        let body =
            json!({"kind": "Status", "code": code, "reason": reason, "message": message, "details": details});
        ApiResponse::rejected(ErrorStatus::read(code, body.to_string().as_bytes()))
    }

    /// The responses are those of Kubernetes 1.36.3.
    #[test]
    fn only_the_api_server_itself_can_say_that_a_request_is_stale() {
        let uid = json!({"name": "a", "kind": "Pod", "causes": [
            {"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "Invalid value: field is immutable"}]});
        for (code, reason, message, details) in [
            (
                409,
                "Conflict",
                "Operation cannot be fulfilled on pods \"a\"",
                json!({"name": "a", "kind": "pods"}),
            ),
            (409, "AlreadyExists", "gangs.portcullis.dev \"a\" already exists", json!({"name": "a"})),
            (422, "Invalid", FAILED_PATCH_MESSAGE, json!({})),
            (422, "Invalid", "Pod \"a\" is invalid: metadata.uid: Invalid value", uid.clone()),
        ] {
            let response = response(code, reason, message, &details);
            assert_eq!(response, ApiResponse::Stale { message: message.to_owned() });
        }
        let policy = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: test failed: testing path";
        let webhook = format!("admission webhook \"w\" denied the request: {FAILED_PATCH_MESSAGE}");
        let invalid = |message: &str| ApiResponse::Status { code: 422, message: message.to_owned() };
        for (message, details) in [
            (policy, json!({"name": "a", "kind": "pods", "causes": [{"message": "test failed"}]})),
            (FAILED_PATCH_MESSAGE, json!({"name": "a", "kind": "pods"})),
        ] {
            assert_eq!(response(422, "Invalid", message, &details), invalid(message));
        }
        for (code, details) in [(422, json!({})), (409, json!({})), (404, json!({})), (422, uid)] {
            let denied = ApiResponse::DeniedByWebhook { code, message: webhook.clone() };
            assert_eq!(response(code, "Invalid", &webhook, &details), denied);
        }
    }

    /// A webhook cannot have its denial taken for an unsupported dry run.
    #[test]
    fn an_unsupported_dry_run_differs_from_a_denial() {
        let message = "admission webhook \"w.example.com\" does not support dry run";
        let unsupported = ApiResponse::DryRunUnsupported { message: message.to_owned() };
        assert_eq!(response(400, "BadRequest", message, &json!({})), unsupported);
        let denial = "admission webhook \"w\" denied the request: \"x\" does not support dry run";
        let denied = ApiResponse::DeniedByWebhook { code: 400, message: denial.to_owned() };
        assert_eq!(response(400, "BadRequest", denial, &json!({})), denied);
    }

    #[test]
    fn a_disruption_budget_differs_from_an_overloaded_api_server() {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let causes = json!({"causes": [{"reason": "DisruptionBudget", "message": "needs 2 healthy pods"}]});
        let budget = ApiResponse::DisruptionBudget { message: message.to_owned() };
        assert_eq!(response(429, "TooManyRequests", message, &causes), budget);
        let overloaded = response(429, "TooManyRequests", "too many requests", &json!({}));
        assert!(matches!(overloaded, ApiResponse::Status { code: 429, .. }), "{overloaded:?}");
    }

    #[test]
    fn a_body_without_a_status_becomes_the_message() {
        let status = ErrorStatus::read(503, b" upstream connect error \n");
        assert_eq!((status.code, &*status.message), (503, "upstream connect error"));
        let cut = ErrorStatus::read(502, "\u{fc}".repeat(2_000).as_bytes());
        assert_eq!(cut.message.chars().count(), MAX_ERROR_TEXT_CHARS);
    }
}
