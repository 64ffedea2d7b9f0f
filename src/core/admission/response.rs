//! The answer on the wire, as the API server demands it: same uid, patch and patch type together or not at all, never an
//! empty patch, warnings without control characters (k8s.io/apiserver, admission/plugin/webhook/request).

use base64::Engine as _;
use serde::Serialize;

use super::Verdict;
use super::decision::Decision;
use super::review::{API_VERSION, KIND, Review};

/// The API server cuts warnings at 256 characters once all of them are longer than 4096 bytes; ours are cut always.
const LONGEST_WARNING: usize = 256;
/// No more warnings than fit into what the API server keeps in any case.
const MOST_WARNINGS: usize = 16;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Status<'a> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: String,
    details: Details<'a>,
}

#[derive(Serialize)]
struct Details<'a> {
    name: &'a str,
    kind: &'static str,
    causes: Vec<Cause<'a>>,
}

#[derive(Serialize)]
struct Cause<'a> {
    reason: &'static str,
    message: &'a str,
    field: &'a str,
}

/// The body of the answer. `name` is what the user calls the pod.
pub(super) fn body(review: &Review<'_>, name: &str, decision: &Decision) -> Vec<u8> {
    let patch = (!decision.patch.is_empty()).then(|| {
        let operations = to_json(&decision.patch);
        base64::engine::general_purpose::STANDARD.encode(operations)
    });
    let envelope = Envelope {
        api_version: API_VERSION,
        kind: KIND,
        response: Response {
            uid: &review.uid,
            allowed: decision.verdict != Verdict::Denied,
            status: (decision.verdict == Verdict::Denied).then(|| status(name, decision)),
            patch_type: patch.is_some().then_some("JSONPatch"),
            patch,
            warnings: decision.warnings.iter().take(MOST_WARNINGS).map(|w| warning(w)).collect(),
        },
    };
    to_json(&envelope)
}

fn status<'d>(name: &'d str, decision: &'d Decision) -> Status<'d> {
    let lines: Vec<_> = decision.causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
    Status {
        status: "Failure",
        code: 422,
        reason: "Invalid",
        message: format!("Pod {name:?} is invalid: {}", lines.join("; ")),
        details: Details {
            name,
            kind: "Pod",
            causes: decision
                .causes
                .iter()
                .map(|c| Cause { reason: c.rule.cause_type(), message: &c.message, field: &c.field })
                .collect(),
        },
    }
}

fn warning(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST_WARNING).collect()
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts, numbers and lists of them always serialise")
}
