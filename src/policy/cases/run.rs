//! Runs a case: what the policies make of it, and where that is not what was expected.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::compare::{lines, missing, patch};
use super::requests::{cluster, ensure_namespace, learn, request};
use super::{TestCase, TextPattern};
use crate::input::AdmissionRequest;
use crate::review::AdmissionOutcome;
use crate::set::PolicySet;

/// What became of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaseVerdict {
    /// All of it is let in.
    Allowed,
    /// All of it is let in, and something is said.
    Warned,
    /// Something of it is refused.
    Denied,
}

impl CaseVerdict {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Allowed, Self::Warned, Self::Denied];

    /// As cases write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Warned => "warned",
            Self::Denied => "denied",
        }
    }
}

/// Something that is not as it was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseMismatch {
    /// What: `verdict`, `message`, `object.spec.schedulerName`.
    pub what: String,
    /// What was expected, lines of text.
    pub expected: String,
    /// What there is, lines of text.
    pub got: String,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseReport {
    /// What became of its objects.
    pub verdict: CaseVerdict,
    /// Refusals, one line each.
    pub denials: Vec<String>,
    /// Policies that refused or changed something.
    pub policies: BTreeSet<String>,
    /// What the user is told.
    pub warnings: Vec<String>,
    /// Where it is not as it was expected; none when the case holds.
    pub mismatches: Vec<CaseMismatch>,
}

/// One object's way.
#[derive(Default)]
struct CaseObservations {
    denials: Vec<(String, String)>,
    warnings: Vec<String>,
    changed_by: Vec<String>,
    ignored: Vec<String>,
    /// Before and after.
    objects: Vec<(Json, Json)>,
}

impl TestCase {
    /// Runs it against a set. `beside` are the objects of its [`TestCase::file`]; `now` counts where neither case nor suite say, in Unix seconds.
    #[must_use]
    pub fn run(&self, set: &PolicySet, beside: &[Json], now: i64) -> CaseReport {
        let mut cluster = cluster(&self.cluster, now);
        let mut seen = CaseObservations::default();
        for object in self.objects.iter().chain(beside) {
            let request = request(object, &self.asked);
            let namespace = AdmissionRequest { json: &request }.namespace().to_owned();
            ensure_namespace(&mut cluster, &namespace);
            seen.one(set, &request, &cluster);
            // What is applied first is there for what comes after it.
            learn(&mut cluster, object, &namespace);
        }
        let verdict = match (seen.denials.is_empty(), seen.warnings.is_empty()) {
            (false, _) => CaseVerdict::Denied,
            (true, false) => CaseVerdict::Warned,
            (true, true) => CaseVerdict::Allowed,
        };
        let mismatches = self.compare(verdict, &seen);
        let refusing = seen.denials.iter().map(|(policy, _)| policy.clone());
        CaseReport {
            verdict,
            policies: refusing.chain(seen.changed_by.iter().cloned()).collect(),
            denials: seen.denials.into_iter().map(|(_, message)| message).collect(),
            warnings: seen.warnings,
            mismatches,
        }
    }

    fn compare(&self, verdict: CaseVerdict, seen: &CaseObservations) -> Vec<CaseMismatch> {
        let expected = &self.expected;
        let mut found = Vec::new();
        let mut differ = |what: &str, expected: String, got: String| {
            found.push(CaseMismatch { what: what.to_owned(), expected, got });
        };
        let told: Vec<&str> = match verdict {
            CaseVerdict::Denied => seen.denials.iter().map(|(_, message)| message.as_str()).collect(),
            _ => seen.warnings.iter().map(String::as_str).collect(),
        };
        let got = || if told.is_empty() { "nothing".to_owned() } else { told.join("\n") };
        if let Some(wanted) = expected.verdict {
            let holds = match wanted {
                CaseVerdict::Allowed => verdict != CaseVerdict::Denied,
                wanted => verdict == wanted,
            };
            if !holds {
                let why = if told.is_empty() { String::new() } else { format!(": {}", got()) };
                differ("verdict", wanted.as_str().to_owned(), format!("{}{why}", verdict.as_str()));
            }
        }
        for pattern in expected.messages.iter().filter(|pattern| !told.iter().any(|text| pattern.is_in(text)))
        {
            differ("message", pattern.text.clone(), got());
        }
        let policies: BTreeSet<&str> = seen
            .denials
            .iter()
            .map(|(policy, _)| policy)
            .chain(&seen.changed_by)
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
            && !all_match(wanted, &seen.warnings)
        {
            let wanted: Vec<&str> = wanted.iter().map(|pattern| pattern.text.as_str()).collect();
            let none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
            differ("warnings", none(wanted.join("\n")), none(seen.warnings.join("\n")));
        }
        let last = seen.objects.last();
        if let (Some(wanted), Some((_, after))) = (&expected.object, last) {
            for (path, wanted, got) in missing(wanted, after) {
                differ(&format!("object{path}"), wanted, got);
            }
        }
        if let (Some(wanted), Some((before, after))) = (&expected.patch, last) {
            let got = patch(before, after);
            if *wanted != got {
                differ("patch", lines(wanted), lines(&got));
            }
        }
        let changed = seen.objects.iter().any(|(before, after)| before != after);
        if let Some(wanted) = expected.changed.filter(|wanted| *wanted != changed) {
            let by = if changed {
                format!("changed by {}", seen.changed_by.join(", "))
            } else {
                "not changed".to_owned()
            };
            differ("changed", wanted.to_string(), by);
        }
        if expected.ignored == seen.ignored.is_empty() {
            let (wanted, got) = if expected.ignored {
                ("a rule that cannot be evaluated and is passed over".to_owned(), "all could be".to_owned())
            } else {
                ("all rules can be evaluated (or `ignored: true`)".to_owned(), seen.ignored.join("\n"))
            };
            differ("ignored", wanted, got);
        }
        found
    }
}

/// Whether each text has a pattern of its own.
fn all_match(patterns: &[TextPattern], texts: &[String]) -> bool {
    let mut left: Vec<&String> = texts.iter().collect();
    let found = patterns.iter().all(|pattern| {
        let place = left.iter().position(|text| pattern.is_in(text));
        place.map(|place| left.remove(place)).is_some()
    });
    found && left.is_empty()
}

impl CaseObservations {
    /// Asks as the API server does: what changes objects first, then what judges them.
    fn one(&mut self, set: &PolicySet, request: &Json, cluster: &crate::input::ClusterData) {
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
