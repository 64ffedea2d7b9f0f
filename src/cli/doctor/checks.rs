//! Runs all checks over the state of a cluster. Pure: the same state and time give the same results.

use std::time::SystemTime;

use super::cluster_state::ClusterState;
use super::{gated_pods, installation, nodes};

/// Result of a check, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CheckLevel {
    Ok,
    Warn,
    Fail,
}

/// The result of one check, with a message and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DoctorCheck {
    /// Name of two or three words.
    pub(super) name: &'static str,
    pub(super) verdict: CheckLevel,
    /// One sentence: the finding and its consequence.
    pub(super) message: String,
    /// Commands to type, one per line. Comments begin with `#`.
    pub(super) remedy: Vec<String>,
}

impl DoctorCheck {
    pub(super) fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, verdict: CheckLevel::Ok, message: message.into(), remedy: Vec::new() }
    }

    pub(super) fn warn<R: Into<String>>(
        name: &'static str,
        message: impl Into<String>,
        remedy: impl IntoIterator<Item = R>,
    ) -> Self {
        let remedy = remedy.into_iter().map(Into::into).collect();
        Self { name, verdict: CheckLevel::Warn, message: message.into(), remedy }
    }

    pub(super) fn fail<R: Into<String>>(
        name: &'static str,
        message: impl Into<String>,
        remedy: impl IntoIterator<Item = R>,
    ) -> Self {
        Self { verdict: CheckLevel::Fail, ..Self::warn(name, message, remedy) }
    }

    /// A warning that the state for this check could not be read.
    pub(super) fn unknown(name: &'static str, problem: &str) -> Self {
        Self::warn(name, format!("cannot be checked: {problem}"), [] as [&str; 0])
    }
}

/// The remedy for all objects of the manifests.
pub(super) const APPLY: &str = "kubectl apply -k manifests/";

/// Commands that remove the gate of every pod; manifests/README.md has the same lines. The API server applies
/// a deleted binding for another second or two, so the first command sleeps.
pub(super) const FREE_ALL: [&str; 2] = [
    "kubectl delete validatingadmissionpolicybinding portcullis-gate --ignore-not-found && sleep 5",
    r#"kubectl get pods -A -o go-template='{{range .items}}{{$p := .metadata}}{{range .spec.schedulingGates}}{{if eq .name "portcullis.dev/gang"}}{{$p.namespace}} {{$p.name}}{{"\n"}}{{end}}{{end}}{{end}}' | while read -r namespace pod; do kubectl patch pod -n "$namespace" "$pod" -p '{"spec":{"schedulingGates":[{"$patch":"delete","name":"portcullis.dev/gang"}]}}'; done"#,
];

/// Runs all checks, in the order in which a person would look.
pub(super) fn run_checks(state: &ClusterState, now: SystemTime) -> Vec<DoctorCheck> {
    let mut checks = installation::checks(state, now);
    match &state.nodes {
        Ok(list) => checks.extend(nodes::checks(list, state.pods.as_deref().unwrap_or_default())),
        Err(problem) => checks.push(DoctorCheck::unknown("GPU nodes", problem)),
    }
    match &state.pods {
        Ok(list) => checks.extend(gated_pods::checks(state, list, installation::has_leader(state, now))),
        Err(problem) => checks.push(DoctorCheck::unknown("gated pods", problem)),
    }
    checks
}

/// Returns a list such as `a, b, c and 4 more`.
pub(super) fn named<T: std::fmt::Display>(all: &[T]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = all.iter().take(SHOWN).map(ToString::to_string).collect();
    match all.len().checked_sub(SHOWN) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}
