//! Encodes the response as the API server requires it: same uid, patch and patch type together or not at all,
//! no empty patch, no control characters in warnings (k8s.io/apiserver, admission/plugin/webhook/request).

use std::collections::BTreeMap;

use base64::Engine as _;
use json_patch::PatchOperation;
use serde::Serialize;

use super::AdmissionVerdict;
use super::decision::Decision;
use super::review::{API_VERSION, AdmissionReview, KIND};

/// Maximum characters of a warning. The API server truncates to it when all warnings exceed 4096 bytes;
/// Portcullis always does.
const MAX_WARNING_CHARS: usize = 256;
/// Bytes of all warnings of a response that the API server keeps.
const MAX_ALL_WARNINGS_BYTES: usize = 4096;
/// Bytes reserved for the line with the number of omitted warnings.
const OMITTED_LINE_BYTES: usize = 96;

/// The complete content of an admission response.
#[derive(Debug)]
pub struct AdmissionResponse<'a> {
    /// `request.uid`.
    pub uid: &'a str,
    /// Why the request is denied; `None` when it is allowed.
    pub refusal: Option<DenialStatus<'a>>,
    /// The operations on the object; not sent with a denial.
    pub patch: &'a [PatchOperation],
    /// One line each, for the user. Warnings beyond the API server's limit are omitted, and the last line
    /// gives their number.
    pub warnings: &'a [String],
    /// Audit annotations by key. The API server prefixes each key with the webhook's name and a slash, and
    /// accepts no second slash.
    pub audit: &'a BTreeMap<String, String>,
}

/// A denial as a `Status`. kubectl prints kind, name and every cause; controllers print the message.
#[derive(Debug)]
pub struct DenialStatus<'a> {
    /// HTTP status.
    pub code: u16,
    /// `Invalid`, `Forbidden`, ...
    pub reason: &'a str,
    /// All causes in one text.
    pub message: String,
    /// Display name of the object.
    pub name: &'a str,
    /// API group of the object, empty for core.
    pub group: &'a str,
    /// Kind of the object.
    pub kind: &'a str,
    /// All causes; kubectl prints each on its own line.
    pub causes: Vec<DenialCause<'a>>,
}

/// One cause of a denial.
#[derive(Clone, Debug, Serialize)]
pub struct DenialCause<'a> {
    /// `FieldValueInvalid`, ...
    pub reason: &'a str,
    /// What is wrong and how to fix it.
    pub message: &'a str,
    /// Path of the field. kubectl prints it before the message, with a colon.
    pub field: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseEnvelope<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: ResponseBody<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseBody<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<ResponseStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct ResponseStatus<'a> {
    status: &'static str,
    code: u16,
    reason: &'a str,
    message: &'a str,
    details: StatusDetails<'a>,
}

#[derive(Serialize)]
struct StatusDetails<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    kind: &'a str,
    causes: &'a [DenialCause<'a>],
}

impl AdmissionResponse<'_> {
    /// The `AdmissionReview` that is sent back.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let patch = (!self.patch.is_empty() && self.refusal.is_none())
            .then(|| base64::engine::general_purpose::STANDARD.encode(to_json(&self.patch)));
        let status = self.refusal.as_ref().map(|refusal| ResponseStatus {
            status: "Failure",
            code: refusal.code,
            reason: refusal.reason,
            message: &refusal.message,
            details: StatusDetails {
                name: refusal.name,
                group: refusal.group,
                kind: refusal.kind,
                causes: &refusal.causes,
            },
        });
        let envelope = ResponseEnvelope {
            api_version: API_VERSION,
            kind: KIND,
            response: ResponseBody {
                uid: self.uid,
                allowed: status.is_none(),
                status,
                patch_type: patch.is_some().then_some("JSONPatch"),
                patch,
                audit_annotations: self.audit,
                warnings: fit_warnings(self.warnings),
            },
        };
        to_json(&envelope)
    }
}

/// The body of the response. `name` is the pod's display name.
pub(super) fn body(review: &AdmissionReview<'_>, name: &str, decision: &Decision) -> Vec<u8> {
    let reply = AdmissionResponse {
        uid: &review.uid,
        refusal: (decision.verdict == AdmissionVerdict::Denied).then(|| refusal(name, decision)),
        patch: &decision.patch,
        warnings: &decision.warnings,
        audit: &BTreeMap::new(),
    };
    reply.body()
}

fn refusal<'d>(name: &'d str, decision: &'d Decision) -> DenialStatus<'d> {
    let lines: Vec<_> = decision.causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
    let causes = decision.causes.iter();
    DenialStatus {
        code: 422,
        reason: "Invalid",
        message: format!("Pod {name:?} is invalid: {}", lines.join("; ")),
        name,
        group: "",
        kind: "Pod",
        causes: causes
            .map(|c| DenialCause { reason: c.rule.cause_type(), message: &c.message, field: &c.field })
            .collect(),
    }
}

/// The warnings within the API server's limit, and the number of omitted ones.
fn fit_warnings(warnings: &[String]) -> Vec<String> {
    let short = |text: &String| text.chars().filter(|c| !c.is_control()).take(MAX_WARNING_CHARS).collect();
    let mut shortened: Vec<String> = warnings.iter().map(short).collect();
    if shortened.iter().map(String::len).sum::<usize>() <= MAX_ALL_WARNINGS_BYTES {
        return shortened;
    }
    let mut left = MAX_ALL_WARNINGS_BYTES - OMITTED_LINE_BYTES;
    let fits = |warning: &&String| {
        let after = left.checked_sub(warning.len());
        left = after.unwrap_or(left);
        after.is_some()
    };
    let kept = shortened.iter().take_while(fits).count();
    let more = shortened.len() - kept;
    shortened.truncate(kept);
    shortened.push(format!("{more} more warnings are omitted: the API server limits their total size"));
    shortened
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts, numbers and lists of them always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_stay_within_the_limit_of_the_api_server() {
        let check = |warnings: &[String], expected: usize, last: &str| {
            let fitted = fit_warnings(warnings);
            assert_eq!(fitted.len(), expected);
            assert!(fitted.iter().map(String::len).sum::<usize>() <= MAX_ALL_WARNINGS_BYTES);
            assert!(fitted.last().is_none_or(|line| line.ends_with(last)), "{fitted:?}");
        };
        check(&[], 0, "");
        check(&["a\nb".to_owned()], 1, "ab");
        check(&["x".repeat(300)], 1, &"x".repeat(256));
        check(&vec!["x".repeat(256); 16], 16, "x");
        check(
            &vec!["x".repeat(256); 17],
            16,
            "2 more warnings are omitted: the API server limits their total size",
        );
        check(
            &vec!["\u{4e16}".repeat(256); 16],
            6,
            "11 more warnings are omitted: the API server limits their total size",
        );
    }
}
