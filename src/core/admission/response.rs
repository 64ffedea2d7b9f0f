//! The answer on the wire, as the API server demands it: same uid, patch and patch type together or not at all, never an
//! empty patch, warnings without control characters (k8s.io/apiserver, admission/plugin/webhook/request).

use std::collections::BTreeMap;

use base64::Engine as _;
use json_patch::PatchOperation;
use serde::Serialize;

use super::AdmissionVerdict;
use super::decision::Decision;
use super::review::{API_VERSION, AdmissionReview, KIND};

/// The API server cuts warnings at 256 characters once all of them are longer than 4096 bytes; ours are cut always.
const MAX_WARNING_CHARS: usize = 256;
/// What the API server keeps of all warnings of an answer, in bytes.
const MAX_ALL_WARNINGS_BYTES: usize = 4096;
/// Room for the line that says how many are left out.
const OMITTED_LINE_BYTES: usize = 96;

/// Everything that an answer says. What is not in it is not on the wire.
#[derive(Debug)]
pub struct AdmissionResponse<'a> {
    /// That of the request.
    pub uid: &'a str,
    /// Why it is refused; none when it is allowed.
    pub refusal: Option<DenialStatus<'a>>,
    /// What is changed in the object; not with a refusal.
    pub patch: &'a [PatchOperation],
    /// A line each for the user. More than the API server would keep are cut here, and the last line says so.
    pub warnings: &'a [String],
    /// For the audit log, by key. The API server puts the name of the hook and a slash before each key, and takes no second slash.
    pub audit: &'a BTreeMap<String, String>,
}

/// A refusal as a `ResponseStatus`. kubectl prints kind, name and every cause; controllers print the message.
#[derive(Debug)]
pub struct DenialStatus<'a> {
    /// HTTP status.
    pub code: u16,
    /// `Invalid`, `Forbidden`, ...
    pub reason: &'a str,
    /// All of it in one text.
    pub message: String,
    /// What the user calls the object.
    pub name: &'a str,
    /// API group of the object, empty for core.
    pub group: &'a str,
    /// Kind of the object.
    pub kind: &'a str,
    /// Every cause, which kubectl prints on a line of its own.
    pub causes: Vec<DenialCause<'a>>,
}

/// One cause of a refusal.
#[derive(Clone, Debug, Serialize)]
pub struct DenialCause<'a> {
    /// `FieldValueInvalid`, ...
    pub reason: &'a str,
    /// What is wrong and how to mend it.
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

/// The body of the answer. `name` is what the user calls the pod.
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

/// As many warnings as the API server passes on, and how many more there would be.
fn fit_warnings(warnings: &[String]) -> Vec<String> {
    let short = |text: &String| text.chars().filter(|c| !c.is_control()).take(MAX_WARNING_CHARS).collect();
    let mut told: Vec<String> = warnings.iter().map(short).collect();
    if told.iter().map(String::len).sum::<usize>() <= MAX_ALL_WARNINGS_BYTES {
        return told;
    }
    let mut left = MAX_ALL_WARNINGS_BYTES - OMITTED_LINE_BYTES;
    let fits = |warning: &&String| {
        let after = left.checked_sub(warning.len());
        left = after.unwrap_or(left);
        after.is_some()
    };
    let kept = told.iter().take_while(fits).count();
    let more = told.len() - kept;
    told.truncate(kept);
    told.push(format!("{more} more warnings are left out: there are too many for one answer"));
    told
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts, numbers and lists of them always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_stay_within_what_the_api_server_passes_on() {
        let check = |warnings: &[String], expected: usize, last: &str| {
            let told = fit_warnings(warnings);
            assert_eq!(told.len(), expected);
            assert!(told.iter().map(String::len).sum::<usize>() <= MAX_ALL_WARNINGS_BYTES);
            assert!(told.last().is_none_or(|line| line.ends_with(last)), "{told:?}");
        };
        check(&[], 0, "");
        check(&["a\nb".to_owned()], 1, "ab");
        check(&["x".repeat(300)], 1, &"x".repeat(256));
        check(&vec!["x".repeat(256); 16], 16, "x");
        check(
            &vec!["x".repeat(256); 17],
            16,
            "2 more warnings are left out: there are too many for one answer",
        );
        check(
            &vec!["\u{4e16}".repeat(256); 16],
            6,
            "11 more warnings are left out: there are too many for one answer",
        );
    }
}
