//! The `Status` of an error response, and how kubectl prints it.

use std::fmt;

use portcullis_core::api::{ErrorCause, ErrorDetails, ErrorStatus};
use serde_json::Value;

/// An error response of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiStatus {
    /// HTTP status code.
    pub code: u16,
    /// `reason`, for example `Conflict`.
    pub reason: String,
    /// `message`.
    pub message: String,
    /// `details.kind` and `details.name`.
    pub about: Option<Box<(String, String)>>,
    /// `details.causes`: field and message of each.
    pub causes: Vec<(String, String)>,
}

impl ApiStatus {
    /// An error without details.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.to_owned(), message: message.into(), about: None, causes: Vec::new() }
    }

    /// 409.
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// 422 about one field of one object.
    pub(super) fn invalid(kind: &str, name: &str, field: &str, problem: &str) -> Self {
        Self {
            code: 422,
            reason: "Invalid".to_owned(),
            message: format!("{kind} \"{name}\" is invalid: {field}: {problem}"),
            about: Some(Box::new((kind.to_owned(), name.to_owned()))),
            causes: vec![(field.to_owned(), problem.to_owned())],
        }
    }

    /// Reads the `status` of a denied admission response, as the API server does (code 0 becomes 403, the
    /// message gets a prefix that names the webhook).
    pub(super) fn denied(status: &Value) -> Self {
        let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
        let code = status.get("code").and_then(Value::as_u64).unwrap_or(0);
        let causes =
            status.pointer("/details/causes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let (kind, name) = (text("/details/kind"), text("/details/name"));
        let message = text("/message");
        Self {
            code: u16::try_from(code).ok().filter(|code| *code != 0).unwrap_or(403),
            reason: text("/reason"),
            message: format!("admission webhook \"portcullis.dev\" denied the request: {message}"),
            about: (!kind.is_empty() || !name.is_empty()).then(|| Box::new((kind, name))),
            causes: causes
                .iter()
                .map(|cause| {
                    let part = |key: &str| cause.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
                    (part("field"), part("message"))
                })
                .collect(),
        }
    }

    /// What kubectl prints (k8s.io/kubectl, pkg/cmd/util/helpers.go `StandardErrorMessage` and
    /// `MultilineError`): for an invalid object the causes, in a list when there are several; for anything
    /// else the message.
    pub fn kubectl(&self) -> String {
        if self.reason != "Invalid" {
            return format!("Error from server ({}): {}", self.reason, self.message);
        }
        let head = match &self.about {
            Some(about) => format!("The {} \"{}\" is invalid", about.0, about.1),
            None if self.causes.is_empty() => format!("The request is invalid: {}", self.message),
            None => "The request is invalid".to_owned(),
        };
        let mut lines: Vec<String> = Vec::new();
        for (field, message) in &self.causes {
            let line = format!("{field}: {message}");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        match lines.as_slice() {
            [] => head,
            [one] => format!("{head}: {one}"),
            many => many.iter().fold(format!("{head}:"), |text, line| format!("{text}\n* {line}")),
        }
    }
}

impl From<ApiStatus> for ErrorStatus {
    fn from(status: ApiStatus) -> Self {
        // Every cause that the store itself makes is an invalid field.
        let cause = |field| ErrorCause { reason: "FieldValueInvalid".to_owned(), field };
        let causes = status.causes.into_iter().map(|(field, _)| cause(field));
        let name = status.about.map(|about| about.1).unwrap_or_default();
        let details = ErrorDetails { name, causes: causes.collect() };
        Self { code: status.code, reason: status.reason, message: status.message, details }
    }
}

impl fmt::Display for ApiStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_are_printed_as_kubectl_prints_them() {
        let causes = |causes: Value| {
            let details = json!({"kind": "Pod", "name": "a", "causes": causes});
            json!({"code": 422, "reason": "Invalid", "message": "no", "details": details})
        };
        let one = json!([{"field": "spec.x", "message": "must go"}]);
        let two = json!([{"field": "spec.x", "message": "must go"}, {"field": "spec.y", "message": "too"}]);
        for (status, printed) in [
            (causes(json!([])), "The Pod \"a\" is invalid"),
            (causes(one), "The Pod \"a\" is invalid: spec.x: must go"),
            (causes(two), "The Pod \"a\" is invalid:\n* spec.x: must go\n* spec.y: too"),
            (
                json!({"reason": "Forbidden", "message": "no"}),
                "Error from server (Forbidden): admission webhook \"portcullis.dev\" denied the request: no",
            ),
        ] {
            assert_eq!(ApiStatus::denied(&status).kubectl(), printed);
        }
        assert_eq!(ApiStatus::denied(&json!({"message": "no"})).code, 403);
    }
}
