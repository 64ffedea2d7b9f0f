//! What was state, as a list of checks. Pure: the same values and time give the same list.

use std::time::SystemTime;

use super::cluster_state::ClusterState;
use super::{gated_pods, installation, nodes};

/// How a check came out, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CheckLevel {
    Ok,
    Warn,
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DoctorCheck {
    /// Two or three words.
    pub(super) name: &'static str,
    pub(super) verdict: CheckLevel,
    /// One sentence: what is so, and what follows from it.
    pub(super) says: String,
    /// What to type, one line each; comments begin with `#`.
    pub(super) remedy: Vec<String>,
}

impl DoctorCheck {
    pub(super) fn ok(name: &'static str, says: impl Into<String>) -> Self {
        Self { name, verdict: CheckLevel::Ok, says: says.into(), remedy: Vec::new() }
    }

    pub(super) fn warn<R: Into<String>>(
        name: &'static str,
        says: impl Into<String>,
        remedy: impl IntoIterator<Item = R>,
    ) -> Self {
        let remedy = remedy.into_iter().map(Into::into).collect();
        Self { name, verdict: CheckLevel::Warn, says: says.into(), remedy }
    }

    pub(super) fn fail<R: Into<String>>(
        name: &'static str,
        says: impl Into<String>,
        remedy: impl IntoIterator<Item = R>,
    ) -> Self {
        Self { verdict: CheckLevel::Fail, ..Self::warn(name, says, remedy) }
    }

    /// What could not be looked at is a warning.
    pub(super) fn unknown(name: &'static str, problem: &str) -> Self {
        Self::warn(name, format!("could not be looked at: {problem}"), [] as [&str; 0])
    }
}

/// The remedy of everything that is installed by the manifests.
pub(super) const APPLY: &str = "kubectl apply -k manifests/";

/// Frees every pod behind our gate; manifests/README.md has the same lines. The API server goes by a deleted binding for a
/// second or two.
pub(super) const FREE_ALL: [&str; 2] = [
    "kubectl delete validatingadmissionpolicybinding portcullis-gate --ignore-not-found && sleep 5",
    r#"kubectl get pods -A -o go-template='{{range .items}}{{$p := .metadata}}{{range .spec.schedulingGates}}{{if eq .name "portcullis.dev/gang"}}{{$p.namespace}} {{$p.name}}{{"\n"}}{{end}}{{end}}{{end}}' | while read -r namespace pod; do kubectl patch pod -n "$namespace" "$pod" -p '{"spec":{"schedulingGates":[{"$patch":"delete","name":"portcullis.dev/gang"}]}}'; done"#,
];

/// The checks, in the order in which a person would look.
pub(super) fn run_checks(state: &ClusterState, now: SystemTime) -> Vec<DoctorCheck> {
    let mut checks = installation::checks(state, now);
    match &state.nodes {
        Ok(list) => checks.extend(nodes::checks(list, state.pods.as_deref().unwrap_or_default())),
        Err(problem) => checks.push(DoctorCheck::unknown("GPU nodes", problem)),
    }
    match &state.pods {
        Ok(list) => checks.extend(gated_pods::checks(state, list, installation::leads(state, now))),
        Err(problem) => checks.push(DoctorCheck::unknown("gated pods", problem)),
    }
    checks
}

/// `a, b, c and 4 more`.
pub(super) fn named<T: std::fmt::Display>(all: &[T]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = all.iter().take(SHOWN).map(ToString::to_string).collect();
    match all.len().checked_sub(SHOWN) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}
