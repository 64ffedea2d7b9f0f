//! Runs a case and compares the outcome with the expectation.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::compare::{lines, patch, unmet_expectations};
use super::requests::{add_object, cluster, ensure_namespace, request};
use super::{TestCase, TextPattern};
use crate::input::AdmissionRequest;
use crate::review::AdmissionOutcome;
use crate::set::PolicySet;

/// The verdict over all objects of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaseVerdict {
    /// Every object is allowed without warnings.
    Allowed,
    /// Every object is allowed, with warnings.
    Warned,
    /// At least one object is denied.
    Denied,
}

impl CaseVerdict {
    /// All verdicts.
    pub const ALL: [Self; 3] = [Self::Allowed, Self::Warned, Self::Denied];

    /// Returns the word that cases use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Warned => "warned",
            Self::Denied => "denied",
        }
    }
}

/// A difference from the expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseMismatch {
    /// The field: `verdict`, `message`, `object.spec.schedulerName`.
    pub what: String,
    /// The expected value, as lines of text.
    pub expected: String,
    /// The actual value, as lines of text.
    pub got: String,
}

/// The report of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseReport {
    /// The verdict over all objects.
    pub verdict: CaseVerdict,
    /// Denials, one line each.
    pub denials: Vec<String>,
    /// Policies that denied or mutated.
    pub policies: BTreeSet<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Differences from the expectation; empty if the case passes.
    pub mismatches: Vec<CaseMismatch>,
}

/// What was observed over all objects.
#[derive(Default)]
struct CaseObservations {
    denials: Vec<(String, String)>,
    warnings: Vec<String>,
    changed_by: Vec<String>,
    ignored: Vec<String>,
    /// Each object before and after mutation.
    objects: Vec<(Json, Json)>,
}

impl TestCase {
    /// Runs the case against a set. `beside` holds the objects of its [`TestCase::file`]. `now` (Unix
    /// seconds) applies if neither case nor suite declares a time.
    #[must_use]
    pub fn run(&self, set: &PolicySet, file_objects: &[Json], now: i64) -> CaseReport {
        let mut cluster = cluster(&self.cluster, now);
        let mut observations = CaseObservations::default();
        for object in self.objects.iter().chain(file_objects) {
            let request = request(object, &self.request_attributes);
            let namespace = AdmissionRequest { json: &request }.namespace().to_owned();
            ensure_namespace(&mut cluster, &namespace);
            observations.evaluate_request(set, &request, &cluster);
            // Objects are visible to the objects after them.
            add_object(&mut cluster, object, &namespace);
        }
        let verdict = match (observations.denials.is_empty(), observations.warnings.is_empty()) {
            (false, _) => CaseVerdict::Denied,
            (true, false) => CaseVerdict::Warned,
            (true, true) => CaseVerdict::Allowed,
        };
        let mismatches = self.compare(verdict, &observations);
        let refusing = observations.denials.iter().map(|(policy, _)| policy.clone());
        CaseReport {
            verdict,
            policies: refusing.chain(observations.changed_by.iter().cloned()).collect(),
            denials: observations.denials.into_iter().map(|(_, message)| message).collect(),
            warnings: observations.warnings,
            mismatches,
        }
    }

    fn compare(&self, verdict: CaseVerdict, observations: &CaseObservations) -> Vec<CaseMismatch> {
        let expected = &self.expected;
        let mut found = Vec::new();
        let mut differ = |what: &str, expected: String, got: String| {
            found.push(CaseMismatch { what: what.to_owned(), expected, got });
        };
        let declared: Vec<&str> = match verdict {
            CaseVerdict::Denied => observations.denials.iter().map(|(_, message)| message.as_str()).collect(),
            _ => observations.warnings.iter().map(String::as_str).collect(),
        };
        let got = || if declared.is_empty() { "nothing".to_owned() } else { declared.join("\n") };
        if let Some(wanted) = expected.verdict {
            let holds = match wanted {
                CaseVerdict::Allowed => verdict != CaseVerdict::Denied,
                wanted => verdict == wanted,
            };
            if !holds {
                let why = if declared.is_empty() { String::new() } else { format!(": {}", got()) };
                differ("verdict", wanted.as_str().to_owned(), format!("{}{why}", verdict.as_str()));
            }
        }
        for pattern in
            expected.messages.iter().filter(|pattern| !declared.iter().any(|text| pattern.is_in(text)))
        {
            differ("message", pattern.text.clone(), got());
        }
        let policies: BTreeSet<&str> = observations
            .denials
            .iter()
            .map(|(policy, _)| policy)
            .chain(&observations.changed_by)
            .map(String::as_str)
            .collect();
        for policy in expected.policies.iter().filter(|policy| !policies.contains(policy.as_str())) {
            let got = if policies.is_empty() {
                "none".to_owned()
            } else {
                Vec::from_iter(policies.iter().copied()).join(", ")
            };
            differ("policy", policy.clone(), got);
        }
        if let Some(wanted) = &expected.warnings
            && !all_match(wanted, &observations.warnings)
        {
            let wanted: Vec<&str> = wanted.iter().map(|pattern| pattern.text.as_str()).collect();
            let none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
            differ("warnings", none(wanted.join("\n")), none(observations.warnings.join("\n")));
        }
        let last = observations.objects.last();
        if let (Some(wanted), Some((_, after))) = (&expected.object, last) {
            for (path, wanted, got) in unmet_expectations(wanted, after) {
                differ(&format!("object{path}"), wanted, got);
            }
        }
        if let (Some(wanted), Some((before, after))) = (&expected.patch, last) {
            let got = patch(before, after);
            if *wanted != got {
                differ("patch", lines(wanted), lines(&got));
            }
        }
        let changed = observations.objects.iter().any(|(before, after)| before != after);
        if let Some(wanted) = expected.changed.filter(|wanted| *wanted != changed) {
            let by = if changed {
                format!("changed by {}", observations.changed_by.join(", "))
            } else {
                "not changed".to_owned()
            };
            differ("changed", wanted.to_string(), by);
        }
        if expected.ignored == observations.ignored.is_empty() {
            let (wanted, got) = if expected.ignored {
                ("a rule that fails and is ignored".to_owned(), "no rule failed".to_owned())
            } else {
                (
                    "all rules can be evaluated (or `ignored: true`)".to_owned(),
                    observations.ignored.join("\n"),
                )
            };
            differ("ignored", wanted, got);
        }
        found
    }
}

/// Whether the patterns and texts can be paired.
fn all_match(patterns: &[TextPattern], texts: &[String]) -> bool {
    let mut left: Vec<&String> = texts.iter().collect();
    let found = patterns.iter().all(|pattern| {
        let place = left.iter().position(|text| pattern.is_in(text));
        place.map(|place| left.remove(place)).is_some()
    });
    found && left.is_empty()
}

impl CaseObservations {
    /// Evaluates one request: mutating policies first, then validating policies.
    fn evaluate_request(&mut self, set: &PolicySet, request: &Json, cluster: &crate::input::ClusterData) {
        let through = AdmissionOutcome::evaluate(set, &AdmissionRequest { json: request }, cluster);
        let before = request.get("object").cloned().unwrap_or_default();
        self.denials.extend(through.denials().map(|denial| (denial.policy.clone(), denial.message.clone())));
        self.objects.push((before.clone(), through.object.unwrap_or(before)));
        self.changed_by.extend(through.mutation.changed_by);
        self.ignored.extend(through.mutation.ignored_errors);
        self.warnings.extend(through.validation.warnings);
        self.ignored.extend(through.validation.ignored_errors);
    }
}
